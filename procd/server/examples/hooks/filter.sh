subject=$(sed -n '/^.\{0,1\}$/q; s/^[Ss]ubject://p' | tr A-Z a-z)
for word; do
  case $subject in *"$word"*) echo "the subject has $word"; exit 1 ;; esac
done

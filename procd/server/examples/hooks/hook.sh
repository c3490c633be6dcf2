path=$(sed -n 's/.*"file_path": *"\([^"]*\)".*/\1/p')
case $path in
*/../*) ;;
"$PWD"/*) exit 0 ;;
esac
echo "$path is outside this project"
exit 2

import sys
subject = ""
for line in sys.stdin:
    if not line.strip():
        break
    if line.lower().startswith("subject:"):
        subject = line.lower()
for word in sys.argv[1:]:
    if word in subject:
        print("the subject has", word)
        sys.exit(1)

import json, os, sys
path, folder = json.load(sys.stdin)["tool_input"]["file_path"], os.getcwd() + "/"
if not path.startswith(folder) or "/../" in path:
    print(path, "is outside this project")
    sys.exit(2)

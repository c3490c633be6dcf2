-- jostle-call - /hook < event >&2: refuses (2) a change outside the caller's directory.
local event = assert(json.decode(body))
local path, folder = event.tool_input.file_path, caller.directory .. "/"
if path:sub(1, #folder) ~= folder or path:find("/../", 1, true) then
  print(path .. " is outside this project")
  exit(2)
end

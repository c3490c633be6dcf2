-- /attachments?file=PATH&EXTENSION&...: rejects (1) a message that has an
-- attachment whose name ends with one of the extensions:
--
--   jostle-call /attachments file=msg exe scr

local file, why = spool.open(args.file or error("attachments needs file=PATH"))
if not file then error(why) end

local text = file:read(1048576)
for name in text:gmatch('filename="?([^"\r\n;]+)') do
  for _, extension in ipairs(args) do
    if name:lower():sub(-#extension - 1) == "." .. extension then
      print(name .. " is not accepted")
      exit(1)
    end
  end
end

-- /blocked_sender?file=PATH&domain=D1&...: rejects (1) a message whose From
-- header names one of the domains given as positional arguments:
--
--   jostle-call /blocked_sender file=msg example.net example.org

local file, why = spool.open(args.file or error("blocked_sender needs file=PATH"))
if not file then error(why) end

-- Headers end at the first empty line; 64 KiB of them are enough.
local head = file:read(65536):gsub("\r\n", "\n")
local last = head:find("\n\n", 1, true)
head = "\n" .. head:sub(1, last or -1)

local from = head:match("\n[Ff][Rr][Oo][Mm]:([^\n]*)") or ""
local domain = from:match("@([%w.-]+)")
if not domain then
  log("no sender in " .. args.file)
  exit(0)
end

for _, blocked in ipairs(args) do
  if domain:lower() == blocked:lower() then
    print("mail from " .. domain .. " is not accepted")
    exit(1)
  end
end

-- /sizecheck_lua?file=PATH&max=BYTES: what the built-in /sizecheck does, to
-- compare the two and to start from.

local max = tonumber(args.max) or error("sizecheck_lua needs max=BYTES")
local size, why = spool.size(args.file or error("sizecheck_lua needs file=PATH"))
if not size then error(why) end

if size <= max then exit(0) end
print(args.file .. " has " .. size .. " bytes, " .. max .. " are allowed")
exit(1)

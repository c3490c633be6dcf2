-- What procedures see. This chunk runs once in each state, receives the host's
-- functions, and returns a function that makes the environment of one call.
--
-- Two rules. Nothing that a procedure can reach is shared by two calls and can
-- be changed. And no function keeps a state busy for long where the host cannot
-- stop it: the interpreter's count hook stops Lua code, but not the loops of its
-- C library, so those that a caller can make long are written here in Lua, or in
-- the host.

local host = ...

local assert, error, getmetatable, ipairs, next, pairs, pcall, rawequal, rawget, rawlen, select,
  setmetatable, tonumber, tostring, type =
  assert, error, getmetatable, ipairs, next, pairs, pcall, rawequal, rawget, rawlen, select,
  setmetatable, tonumber, tostring, type
local string, table, math, utf8 = string, table, math, utf8
local tointeger, huge = math.tointeger, math.maxinteger
local check, scan, plainfind = host.check, host.scan, host.plainfind

local function readonly(of, name)
  return setmetatable({}, {
    __index = of,
    __newindex = function() error(name .. " is read-only", 2) end,
    __metatable = false,
  })
end

-- Errors -------------------------------------------------------------------

-- An error of the host's (time is up, exit) goes on through every pcall.
local function passing(...)
  check()
  return ...
end

local function safe_pcall(f, ...)
  return passing(pcall(f, ...))
end

-- The handler runs after the stack is unwound: in one that runs before, hooks
-- are off while a hook's own error is handled.
local function handled(handler, ok, ...)
  if ok then return true, ... end
  return false, handler(...)
end

local function safe_xpcall(f, handler, ...)
  return handled(handler, safe_pcall(f, ...))
end

-- Finalizers run whenever memory is collected, and closers when an error of the
-- hook unwinds the stack: both with hooks off. So neither may exist, and as a
-- metatable can be changed later, the one that takes effect is a copy that nobody
-- else holds: what it says when `setmetatable` is called is what counts.
local copies = setmetatable({}, { __mode = "k" })

local function copied(meta)
  local copy = copies[meta] or {}
  for key in next, copy do copy[key] = nil end
  for key, value in next, meta do copy[key] = value end
  if copy.__gc ~= nil or copy.__close ~= nil then
    copy.__gc, copy.__close = nil, nil
    error("__gc and __close are not available", 3)
  end
  if copy.__metatable == nil then copy.__metatable = meta end
  copies[meta] = copy
  return copy
end

local function safe_setmetatable(t, meta)
  if meta ~= nil and type(meta) ~= "table" then
    error("bad argument #2 to 'setmetatable' (nil or table expected)", 2)
  end
  local copy = meta and copied(meta)
  local before = getmetatable(t)
  local held = before ~= nil and copies[before]
  if held then held.__metatable = nil end
  local ok, why = pcall(setmetatable, t, copy)
  if held then held.__metatable = before end
  if not ok then error(why, 2) end
  return t
end

-- An exit is an error of the host's too: it unwinds up to the host. It says
-- nothing, for to make a message costs more than most procedures.
local function exit(code)
  host.exit(code)
  error(nil, 0)
end

-- Many arguments -----------------------------------------------------------

-- A function that reads, compares or measures each string: the same long string given
-- a thousand times takes no memory and a thousand times as long.
local function weighed(f, name, most)
  return function(...)
    local count, a, b = select("#", ...), ...
    if count > 2 or type(a) == "string" and type(b) == "string" then
      local given, weight = { ... }, 0
      for index = 1, count do
        local value = given[index]
        if type(value) == "string" then weight = weight + #value end
      end
      if count > most or weight > host.memory then error("too many arguments to '" .. name .. "'", 2) end
    end
    return f(...)
  end
end

-- Strings ------------------------------------------------------------------

local function text(value, number, name)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return tostring(value) end
  error("bad argument #" .. number .. " to '" .. name .. "' (string expected, got " .. kind .. ")", 3)
end

-- The place, counted from 1, where a search begins; nil if behind the end.
local function begin(s, init)
  init = tointeger(init or 1) or error("number has no integer representation", 3)
  if init < 0 then init = #s + init + 1 end
  if init < 1 then init = 1 end
  return init <= #s + 1 and init or nil
end

local strings = {}
for _, name in ipairs { "byte", "len", "lower", "reverse", "sub", "upper" } do
  strings[name] = string[name]
end

strings.char = weighed(string.char, "char", huge)
-- A single item can take microseconds.
strings.format = weighed(string.format, "format", 250)

function strings.rep(s, n, separator)
  s = text(s, 1, "rep")
  separator = separator == nil and "" or text(separator, 3, "rep")
  -- Nothing, many times, takes no memory but all the time there is.
  local unit, times = s .. separator, tointeger(n)
  if unit == "" then return "" end
  if #unit < 64 and times and times > 2048 then
    -- It is copied one at a time.
    local block, rest = string.rep(unit, 1024), (times - 1) % 1024
    return string.rep(block, (times - 1) // 1024) .. string.rep(unit, rest) .. s
  end
  return string.rep(s, n, separator)
end

function strings.find(s, pattern, init, plain)
  s, pattern = text(s, 1, "find"), text(pattern, 2, "find")
  init = begin(s, init)
  if not init then return nil end
  if plain then
    local first, last = plainfind(s, pattern, init)
    if first then return first, last end
    return nil
  end
  return scan(s, pattern, init, true)
end

local function captured(s, first, last, ...)
  if not first then return nil end
  if select("#", ...) == 0 then return string.sub(s, first, last) end
  return ...
end

function strings.match(s, pattern, init)
  s, pattern = text(s, 1, "match"), text(pattern, 2, "match")
  init = begin(s, init)
  if not init then return nil end
  return captured(s, scan(s, pattern, init, true))
end

function strings.gmatch(s, pattern, init)
  s, pattern = text(s, 1, "gmatch"), text(pattern, 2, "gmatch")
  local at, ended = begin(s, init), nil
  local function step(first, last, ...)
    if not first then
      at = nil
      return nil
    end
    at, ended = last + 1, last
    return captured(s, first, last, ...)
  end
  return function()
    if not at then return nil end
    return step(scan(s, pattern, at, false, ended))
  end
end

local function expand(template, whole, ...)
  local count, values = select("#", ...), { ... }
  if count == 0 then
    count, values = 1, { whole }
  end
  local out, at = {}, 1
  while true do
    local percent = plainfind(template, "%", at)
    if not percent then break end
    out[#out + 1] = string.sub(template, at, percent - 1)
    local sign = string.sub(template, percent + 1, percent + 1)
    if sign == "%" then
      out[#out + 1] = "%"
    elseif sign == "0" then
      out[#out + 1] = whole
    else
      local index = tointeger(tonumber(sign)) or error("invalid use of '%' in replacement string", 3)
      if index > count then error("invalid capture index %" .. sign .. " in replacement string", 3) end
      out[#out + 1] = tostring(values[index])
    end
    at = percent + 2
  end
  out[#out + 1] = string.sub(template, at)
  return table.concat(out)
end

local function replacement(repl, kind, s, first, last, ...)
  local whole, value = string.sub(s, first, last), nil
  if kind == "string" then return expand(repl, whole, ...) end
  local capture = ...
  if select("#", ...) == 0 then capture = whole end
  if kind == "table" then
    value = repl[capture]
  elseif select("#", ...) == 0 then
    value = repl(whole)
  else
    value = repl(...)
  end
  if not value then return whole end
  if type(value) == "string" or type(value) == "number" then return tostring(value) end
  error("invalid replacement value (a " .. type(value) .. ")", 3)
end

function strings.gsub(s, pattern, repl, limit)
  s, pattern = text(s, 1, "gsub"), text(pattern, 2, "gsub")
  local kind = type(repl)
  if kind == "number" then
    repl, kind = tostring(repl), "string"
  elseif kind ~= "string" and kind ~= "table" and kind ~= "function" then
    error("bad argument #3 to 'gsub' (string/function/table expected, got " .. kind .. ")", 2)
  end
  limit = limit == nil and huge or tointeger(limit) or error("number has no integer representation", 2)
  local anchored = string.sub(pattern, 1, 1) == "^"
  local out, count, at, ended = {}, 0, 1, nil
  -- Copies what was skipped; true if something was replaced.
  local function replace(first, last, ...)
    if not first then return false end
    count = count + 1
    out[#out + 1] = string.sub(s, at, first - 1)
    out[#out + 1] = replacement(repl, kind, s, first, last, ...)
    at, ended = last + 1, last
    return true
  end
  while count < limit and replace(scan(s, pattern, at, true, ended)) do
    if anchored then break end
  end
  out[#out + 1] = string.sub(s, at)
  return table.concat(out), count
end

-- Tables -------------------------------------------------------------------

local function plain(t, name)
  if type(t) ~= "table" then
    error("bad argument #1 to '" .. name .. "' (table expected, got " .. type(t) .. ")", 3)
  end
  if getmetatable(t) ~= nil then
    error("bad argument #1 to '" .. name .. "' (a table without metatable expected)", 3)
  end
  return t
end

local tables = { pack = table.pack }

function tables.concat(t, separator, first, last)
  plain(t, "concat")
  first, last = first or 1, last or #t
  if not tointeger(first) or not tointeger(last) or last - first < 1000 then
    return table.concat(t, separator, first, last)
  end
  -- In parts: to write a number takes longer than to copy it.
  local parts = {}
  for from = first, last, 1000 do
    parts[#parts + 1] = table.concat(t, separator, from, last - from < 999 and last or from + 999)
  end
  return table.concat(parts, separator)
end

function tables.unpack(t, first, last)
  return table.unpack(plain(t, "unpack"), first, last)
end

function tables.sort(t, less)
  -- A function of Lua's own, so that the hook counts.
  local compare = less and function(a, b) return less(a, b) end or function(a, b) return a < b end
  table.sort(plain(t, "sort"), compare)
end

function tables.insert(t, ...)
  local count = select("#", ...)
  local length = #plain(t, "insert")
  if count == 1 then
    t[length + 1] = (...)
  elseif count == 2 then
    local at, value = ...
    at = tointeger(at)
    if not at or at < 1 or at > length + 1 then
      error("bad argument #2 to 'insert' (position out of bounds)", 2)
    end
    for index = length, at, -1 do t[index + 1] = t[index] end
    t[at] = value
  else
    error("wrong number of arguments to 'insert'", 2)
  end
end

function tables.remove(t, at)
  local length = #plain(t, "remove")
  at = at == nil and length or tointeger(at)
  if not at or (length > 0 or at ~= 0) and (at < 1 or at > length + 1) then
    error("bad argument #2 to 'remove' (position out of bounds)", 2)
  end
  local value = t[at]
  for index = at, length - 1 do t[index] = t[index + 1] end
  if at <= length then t[length] = nil end
  return value
end

function tables.move(from, first, last, at, to)
  to = to or from
  if at > last or at <= first or to ~= from then
    for index = 0, last - first do to[at + index] = from[first + index] end
  else
    for index = last - first, 0, -1 do to[at + index] = from[first + index] end
  end
  return to
end

-- Random numbers -----------------------------------------------------------

-- The generator is the interpreter's, and one call must not choose what the next
-- one gets.
local seeded = false

local maths = {}
for name, value in next, math do maths[name] = value end

maths.max = weighed(math.max, "max", huge)
maths.min = weighed(math.min, "min", huge)

function maths.randomseed(...)
  seeded = true
  math.randomseed(...)
end

local codes = {}
for name, value in next, utf8 do codes[name] = value end
codes.char = weighed(utf8.char, "char", huge)

-- What calls share ---------------------------------------------------------

local base = {
  _VERSION = _VERSION,
  assert = assert,
  error = error,
  exit = exit,
  getmetatable = getmetatable,
  ipairs = ipairs,
  json = readonly({ decode = host.json, null = host.null }, "json"),
  log = host.log,
  math = readonly(maths, "math"),
  next = next,
  pairs = pairs,
  pcall = safe_pcall,
  rawequal = rawequal,
  rawget = rawget,
  rawlen = rawlen,
  select = select,
  setmetatable = safe_setmetatable,
  spool = readonly({ open = host.open, read = host.read, size = host.size }, "spool"),
  string = readonly(strings, "string"),
  table = readonly(tables, "table"),
  tonumber = tonumber,
  tostring = tostring,
  type = type,
  utf8 = readonly(codes, "utf8"),
  xpcall = safe_xpcall,
}

function base.print(...)
  local parts = table.pack(...)
  for index = 1, parts.n do parts[index] = tostring(parts[index]) end
  host.write(table.concat(parts, "\t", 1, parts.n) .. "\n")
end

local of_strings = getmetatable("")
of_strings.__index = strings
of_strings.__metatable = false

local environment = { __index = base, __metatable = false }

local nobody = readonly({}, "caller")

local function new(args, body, caller)
  if seeded then
    seeded = false
    math.randomseed(host.seed())
  end
  return setmetatable({ args = args, body = body, caller = caller or nobody }, environment)
end

-- `pcall` here spares the traceback that the host would make of an error.
return new, pcall

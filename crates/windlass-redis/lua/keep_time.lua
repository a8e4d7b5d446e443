-- Names the process that reaps, promotes, prunes and ticks for all: renews it, lets the caller take over, or gives it up.
--
-- The value has two lines, `<until> <process> <keeper>` each: the holder, and a deputy that asks again when the holder's
-- time ends. The deputy belongs to another process, so that one process that dies does not take both along. All other
-- callers may rest for longer. The value `-` names no one. Times are of this script's clock; the key's expiry comes later
-- and removes what a fleet has left behind. A value of another form was written by an older version, which holds it until
-- the key expires.
--
-- KEYS    all of the store, in the one order; then the timekeeper's
-- ARGV    clock, bell prefix, publish command; keeper, process, time to live in ms (0 gives it up)
-- Answers `keeps`, `deputy` or `rests`; in how many ms the holder's time ends; how many workers there are
-- Bounds  one value of two lines

local KEY, AHEAD_MAX = KEYS[36], 60000
local keeper, process, ttl = E.arg(), E.arg(), E.num()
local value = call('GET', KEY)
if value and value ~= '-' and not match(value, '^%d+ %x+ ') then return { 'rests', ttl, 0 } end

-- An entry that ends later than any caller may ask for was written before the clock was set back. It is ignored: otherwise no
-- process would keep time until the clock has caught up.
local ahead_max = ttl > 0 and max(4 * ttl, AHEAD_MAX) or math.huge
local function read(line)
  local ends, of, id = match(line or '', '^(%d+) (%x+) (.+)$')
  ends = tonumber(ends)
  if ends and ends > now and ends - now <= ahead_max then return { ends = ends, process = of, id = id } end
end
local function line(entry)
  return E.int(entry.ends) .. ' ' .. entry.process .. ' ' .. entry.id
end
local first, second = match(value or '', '^([^\n]*)\n?(.*)$')
local holder, deputy = read(first), read(second)
local function write()
  local text = holder and line(holder) or '-'
  if holder and deputy then text = text .. '\n' .. line(deputy) end
  if ttl > 0 then call('SET', KEY, text, 'PX', max(2 * ttl, 10000)) else call('SET', KEY, text, 'KEEPTTL') end
end

if ttl == 0 then
  local held, stood_in = holder and holder.id == keeper, deputy and deputy.id == keeper
  if held then holder = nil end
  if stood_in then deputy = nil end
  if held or stood_in then write() end
  return { 'rests', 0, 0 }
end
if not holder or holder.id == keeper then
  holder = { ends = now + ttl, process = process, id = keeper }
  if deputy and (deputy.id == keeper or deputy.process == process) then deputy = nil end
  write()
  return { 'keeps', ttl, 0 }
end
local left = holder.ends - now
if holder.process ~= process and (not deputy or deputy.id == keeper) then
  -- Written anew before it ends, and not with every call: an idle store should hardly write.
  if not deputy or deputy.ends - now < 2 * ttl then
    deputy = { ends = now + 4 * ttl, process = process, id = keeper }
    write()
  end
  return { 'deputy', left, 0 }
end
return { 'rests', left, call('HLEN', E.WORKERS) }

-- Names the process that reaps, promotes, prunes and ticks for all: renews it, lets the caller take over, or gives it up.
--
-- The value has up to three lines. Two are `<until> <process> <keeper>`: the holder, and a deputy that asks again when the
-- holder's time ends. The deputy belongs to another process, so that one process that dies does not take both along. All other
-- callers rest for longer, and ask one after the other, at moments with equal distances, in case both have died: the third line
-- is the next moment that is free. The value `-` names no one. Times are of this script's clock; the key's expiry comes later
-- and removes what a fleet has left behind. A value of another form was written by an older version, which holds it until
-- the key expires.
--
-- KEYS    all of the store, in the one order; then the timekeeper's
-- ARGV    clock, bell prefix, publish command; keeper, process, time to live in ms (0 gives it up)
-- Answers `keeps`, `deputy` or `rests`, and in how many ms to ask again
-- Bounds  one value of three lines

local KEY, AHEAD_MAX = KEYS[36], 60000
-- The distance of two moments at which somebody asks, and the time in which everybody asks once. In a fleet of more than a hundred
-- workers the moments are closer together, so that none of them rests for longer.
local ASK_EVERY, ROUND = 200, 20000
local keeper, process, ttl = E.arg(), E.arg(), E.num()
local value = call('GET', KEY)
if value and value ~= '-' and not match(value, '^%d+ %x+ ') then return { 'rests', ttl } end

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
local first, second, third = match(value or '', '^([^\n]*)\n?([^\n]*)\n?(.*)$')
local holder, deputy, free_at = read(first), read(second), tonumber(third)
-- `PX` for whoever keeps time: the key of a fleet that is gone expires.
local function write(...)
  local text = holder and line(holder) or '-'
  if holder and (deputy or free_at) then text = text .. '\n' .. (deputy and line(deputy) or '') end
  if holder and free_at then text = text .. '\n' .. E.int(free_at) end
  call('SET', KEY, text, ...)
end
local expiry = max(2 * ttl, 10000)

if ttl == 0 then
  local held, stood_in = holder and holder.id == keeper, deputy and deputy.id == keeper
  if held then holder = nil end
  if stood_in then deputy = nil end
  if held or stood_in then write('KEEPTTL') end
  return { 'rests', 0 }
end
if not holder or holder.id == keeper then
  holder = { ends = now + ttl, process = process, id = keeper }
  if deputy and (deputy.id == keeper or deputy.process == process) then deputy = nil end
  write('PX', expiry)
  return { 'keeps', ttl }
end
local left = holder.ends - now
if holder.process ~= process and (not deputy or deputy.id == keeper) then
  -- Written anew before it ends, and not with every call: an idle store should hardly write.
  if not deputy or deputy.ends - now < 2 * ttl then
    deputy = { ends = now + 4 * ttl, process = process, id = keeper }
    write('PX', expiry)
  end
  return { 'deputy', left }
end
-- A moment is not before the end of the holder's time. One that is more than a round behind it was given out by a fleet that has
-- become smaller, or before the clock was set back: moments are then given out anew.
local ask_at = max(free_at or 0, holder.ends)
if ask_at > holder.ends + ROUND then ask_at = holder.ends end
free_at = ask_at + min(ASK_EVERY, floor(ROUND / max(call('HLEN', E.WORKERS), 1)))
write('KEEPTTL')
return { 'rests', ask_at - now }

-- The feed: one entry per step.

-- How many events it keeps at least, unless `meta` has a number within these bounds; the same as FEED_EVENTS_DEFAULT,
-- FEED_EVENTS_MIN and FEED_EVENTS_MAX of the contract.
local EVENTS_DEFAULT, EVENTS_MIN, EVENTS_MAX = 100000, 1000, 10000000
-- How many entries one call forgets at most. More than the 4,096 that steps add between two calls.
local ENTRIES_MAX = 8192

-- Whether what stays holds enough events when an entry goes, and all that are older.
local function may_go(entry, total, events)
  return entry ~= nil and total - tonumber(entry[2][2]) >= events
end
-- Forgets the oldest entries, a bounded number, while those that stay hold at least as many events as `meta` asks for.
-- There were `total` events ever. Answers whether more may go.
function E.trim_feed(total)
  local events = tonumber(call('HGET', META, 'feed_events') or '')
  if not (events and events >= EVENTS_MIN and events <= EVENTS_MAX) then events = EVENTS_DEFAULT end
  local oldest = call('XRANGE', E.FEED, '-', '+', 'COUNT', 1)[1]
  if not may_go(oldest, total, events) then return false end
  -- Ids and events rise together, so the first entry that stays is found by halves: `low` may go, `high` stays or is the bound.
  local low = tonumber(match(oldest[1], '^%d+'))
  local high = low + ENTRIES_MAX
  local bound = high
  for _ = 1, 16 do
    if high - low <= 1 then break end
    local middle = floor((low + high) / 2)
    if may_go(call('XRANGE', E.FEED, E.int(middle) .. '-0', '+', 'COUNT', 1)[1], total, events) then
      low = middle
    else
      high = middle
    end
  end
  call('XTRIM', E.FEED, 'MINID', E.int(high) .. '-0')
  return high == bound
end

-- Adds an entry of `count` events, with which there were `total` ever: numbers and names of their queues, and a line of
-- each kind of change.
function E.add_feed(cursor, total, count, names, events)
  call('XADD', E.FEED, E.int(cursor) .. '-0', 'n', E.int(total), 't', E.int(now), 'q', names, 'e', events)
  if floor(total / 4096) ~= floor((total - count) / 4096) then E.trim_feed(total) end
end

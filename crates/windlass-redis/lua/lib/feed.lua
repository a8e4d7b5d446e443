-- The feed: one entry per step.

local EVENTS_MAX = 100000

-- Forgets the oldest entries while those that stay hold enough events.
local function trim(total)
  local edge, count = nil, 2
  for _ = 1, 64 do
    count = min(2 * count, 64)
    local oldest = call('XRANGE', E.FEED, edge and '(' .. edge or '-', '+', 'COUNT', count)
    for _, entry in ipairs(oldest) do
      -- What lies behind an entry's end is what stays when it goes.
      if total - tonumber(entry[2][2]) < EVENTS_MAX then
        if edge then call('XTRIM', E.FEED, 'MINID', entry[1]) end
        return
      end
      edge = entry[1]
    end
    if #oldest == 0 then break end
  end
  if edge then call('XTRIM', E.FEED, 'MINID', edge) end
end

-- Adds an entry of `count` events, with which there were `total` ever: numbers and names of their queues, and a line of
-- each kind of change.
function E.add_feed(cursor, total, count, names, events)
  call('XADD', E.FEED, E.int(cursor) .. '-0', 'n', E.int(total), 't', E.int(now), 'q', names, 'e', events)
  if floor(total / 4096) ~= floor((total - count) / 4096) then trim(total) end
end

-- All queues as they are.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; `1` to count the lanes in use; names, or none for all
-- Answers of each its number, name, state, settings, version, lanes; and how many of those are in use
-- Bounds  one round per lane

local counts, queues = E.arg() == '1', {}
if #ARGV > 4 then
  for i = 5, #ARGV do queues[#queues + 1] = E.find_queue(ARGV[i]) end
else
  queues = E.all_queues()
end
local answer = {}
for _, q in ipairs(queues) do
  local found = call('HMGET', META, 'q' .. q.id, 's' .. q.id, 'v' .. q.id)
  local ids, text = E.lanes_of(q)
  local used = 0
  if counts then
    E.know_lanes(ids)
    for _, id in ipairs(ids) do
      if E.lane(id) and E.lane(id).jobs > 0 then used = used + 1 end
    end
  end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = q.id, q.name, found[1], found[2] or ''
  answer[n + 5], answer[n + 6], answer[n + 7] = found[3] or '0', text, used
end
return answer

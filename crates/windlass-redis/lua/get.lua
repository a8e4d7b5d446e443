-- Looks jobs up.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; ids
-- Answers the time; then of each its record, life, result, progress and failures, or nothing for what is not there
-- Bounds  one round per job

local ids, extras = {}, {}
for i = 4, #ARGV do
  local id = ARGV[i]
  ids[#ids + 1] = id
  extras[#extras + 1], extras[#extras + 2], extras[#extras + 3] = id .. ':r', id .. ':p', id .. ':f'
end
local records, lives, rest = E.hmget(JOBS, ids), E.hmget(LIFE, ids), E.hmget(E.EXTRA, extras)
local answer = { E.int(now) }
for i = 1, #ids do
  local n = #answer
  answer[n + 1], answer[n + 2] = records[i], lives[i]
  answer[n + 3], answer[n + 4], answer[n + 5] = rest[3 * i - 2], rest[3 * i - 1], rest[3 * i]
end
return answer

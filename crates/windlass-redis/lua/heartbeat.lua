-- A worker says that it lives.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; worker, after how long of silence it counts as dead, what it says as JSON
-- Answers the ids of its active jobs that were cancelled
-- Bounds  its cancelled jobs

local worker, ttl, beat = E.arg(), E.num(), E.arg()
local since, seen, old_ttl, said = match(call('HGET', E.WORKERS, worker) or '', '^(%-?%d+) (%-?%d+) (%d+) (.*)$')
if said ~= beat or tonumber(old_ttl) ~= ttl or now - tonumber(seen) >= floor(ttl / 3) then
  -- One that says nothing new is written down only now and then: an idle fleet must not keep the store busy.
  call('HSET', E.WORKERS, worker, (since or E.int(now)) .. ' ' .. E.int(now) .. ' ' .. E.int(ttl) .. ' ' .. beat)
end
local ids = {}
for i, member in ipairs(call('ZRANGEBYLEX', E.CANCELLING, '[' .. worker .. '\n', E.after_all(worker .. '\n'))) do
  ids[i] = sub(member, #worker + 14)
end
return ids

-- Registers a handle that waits for the end of a job or of a run.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; id, handle
-- Answers `ended` when it has ended or is not there, else `waits`
-- Bounds  256 handles of each: a run may be open for months, and the handles of processes that have ended stay in the list. Processes
--         that wait look again from time to time, so the oldest handle may be dropped

local id, handle = E.arg(), E.arg()
if match(id, '^r') then
  local r = E.run(id)
  if not r or r.broken or r.state ~= 'R' then return 'ended' end
else
  local j = E.peek(id)
  if not j or j.broken or j.state == 'S' or j.state == 'F' or j.state == 'C' then return 'ended' end
end
local known = call('HGET', E.WATCH, id) or ''
local count = 0
for other in gmatch(known, '%S+') do
  if other == handle then return 'waits' end
  count = count + 1
end
if count >= 256 then known = match(known, '^%S+ (.*)$') end
call('HSET', E.WATCH, id, known == '' and handle or known .. ' ' .. handle)
return 'waits'

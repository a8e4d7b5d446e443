-- Registers a handle that waits for the end of a job.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; id, handle
-- Answers `ended` when it has ended or is not there, else `waits`
-- Bounds  none needed

local id, handle = E.arg(), E.arg()
local j = E.peek(id)
if not j or j.broken or j.state == 'S' or j.state == 'F' or j.state == 'C' then return 'ended' end
local known = call('HGET', E.WATCH, id) or ''
for other in gmatch(known, '%S+') do
  if other == handle then return 'waits' end
end
call('HSET', E.WATCH, id, known == '' and handle or known .. ' ' .. handle)
return 'waits'

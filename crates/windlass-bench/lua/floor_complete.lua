-- Ends a batch of leased jobs of the bare queue: those that still carry the token are removed.
--
-- KEYS    the leases, what the hashes' names begin with
-- ARGV    the token, then ids
-- Answers how many
-- Bounds  one round per job
local ids, jobs = {}, {}
for i = 2, #ARGV do
  local job = KEYS[2] .. ARGV[i]
  if redis.call('HGET', job, 't') == ARGV[1] then
    ids[#ids + 1] = ARGV[i]
    jobs[#jobs + 1] = job
  end
end
if #ids > 0 then
  redis.call('ZREM', KEYS[1], unpack(ids))
  redis.call('UNLINK', unpack(jobs))
end
return #ids

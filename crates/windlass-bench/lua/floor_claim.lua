-- Leases up to a batch of jobs of the bare queue: ids leave the list, hashes get a token, a set gets the lease ends.
--
-- KEYS    the list, the leases, what the hashes' names begin with
-- ARGV    how many, the lease's end, the token
-- Answers id, payload, id, payload and so on; nothing when the list is empty
-- Bounds  one round per job
local ids = redis.call('LPOP', KEYS[1], tonumber(ARGV[1]))
if not ids then
  return {}
end
local jobs, leases = {}, {}
for i = 1, #ids do
  local job = KEYS[3] .. ids[i]
  redis.call('HSET', job, 's', 'a', 't', ARGV[3])
  jobs[2 * i - 1] = ids[i]
  jobs[2 * i] = redis.call('HGET', job, 'p')
  leases[2 * i - 1] = ARGV[2]
  leases[2 * i] = ids[i]
end
redis.call('ZADD', KEYS[2], unpack(leases))
return jobs

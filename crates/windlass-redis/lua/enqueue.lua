-- Accepts jobs.
--
-- KEYS    all of the store, in the one order; for plain jobs (no group, no dedup key, due now) the first ten
-- ARGV    clock, bell prefix, publish command; `1` for all or nothing, `2` to ask for refusals alone; lanes as create.lua reads them; count of jobs,
--         then the jobs as create.lua reads them
-- Answers `all` when all were created; else of each `created`, `existing`, `deduplicated <by>`, `replaced <old>`, `held <behind>`, `duplicate`, `full <max>`,
--         `lanes <count>`, `kinds <count>`, `damaged` when its queue cannot be read; or `bystander` when another one of all-or-nothing was refused;
--         `keys` when there is no store yet and not all keys were given: call again with all
-- Bounds  one round per job, one directory of 2,048 lanes per new lane

local quick = E.enqueue_quick()
if quick then return quick end
long_way()
if E.lacks_keys then return { 'keys' } end

-- 2 asks what would be refused, and nothing else.
local mode = E.arg()
E.read_lanes()
local count = E.num()
local jobs, ids, answers = {}, {}, {}
for i = 1, count do
  jobs[i] = E.read_new()
  ids[i] = jobs[i].id
end
E.know_new(ids)
E.know_groups_of(jobs)

local refusals = mode ~= '0' and E.refusals(jobs)
if refusals or mode == '2' then
  for i = 1, count do answers[i] = refusals and refusals[i] or 'bystander' end
  return answers
end
for i, job in ipairs(jobs) do answers[i] = E.enqueue_one(job) end
E.finish()
return answers

-- Accepts jobs.
--
-- KEYS    all of the store, in the one order; for plain jobs (no group, no dedup key, due now) the first ten
-- ARGV    clock, bell prefix, publish command; `1` for all or nothing, `2` to ask for refusals alone; lanes as create.lua reads them; count of jobs, then of
--         each its id, its fields, and the rest of its record
-- Answers of each `created`, `existing`, `deduplicated <by>`, `replaced <old>`, `held <behind>`, `duplicate`, `full <max>`,
--         `lanes <count>`; or `bystander` when another one of all-or-nothing was refused
-- Bounds  one round per job, one directory of 1,024 lanes per new lane

-- 2 asks what would be refused, and nothing else.
local mode = E.arg()
E.read_lanes()
local count = E.num()
local first = E.at
local ids, answers = {}, {}
for i = 1, count do ids[i] = ARGV[first + 3 * i - 2] end
E.know_new(ids)

-- Those that say more than the defaults, and the groups that they name, read together.
local jobs = {}
for i = 1, count do
  E.at = first + 3 * i - 3
  if mode ~= '0' or not match(ARGV[E.at + 2], '^%x+ %d+$') then jobs[i] = E.read_new() end
end
E.know_groups_of(jobs, count)

if mode == '0' then
  for i = 1, count do
    local base = first + 3 * i - 2
    if not jobs[i] and E.create_plain(ids[i], ARGV[base + 1], ARGV[base + 2]) then
      answers[i] = 'created'
    else
      E.end_plain_run()
      E.at = base - 1
      answers[i] = E.enqueue_one(jobs[i] or E.read_new())
    end
  end
  E.end_plain_run()
else
  local refusals = E.refusals(jobs)
  if refusals or mode == '2' then
    for i = 1, count do answers[i] = refusals and refusals[i] or 'bystander' end
    return answers
  end
  for i, job in ipairs(jobs) do answers[i] = E.enqueue_one(job) end
end
E.finish()
return answers

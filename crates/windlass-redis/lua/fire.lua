-- Handles a tick in one step: creates its jobs and moves on to the next one, if the schedule still expects it.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; name, the tick it must still wait for or `*` out of turn, its revision, the next
--         tick or `-`, `1` to create nothing while its last job has not ended, its name as
--         JSON; lanes and jobs as in enqueue.lua
-- Answers `missing`, `stale`, `skipped`, `fired <jobs>`, or `refused` and why
-- Bounds  one round per job

local name, expected, revision, following, skip_running = E.arg(), E.arg(), E.arg(), E.arg(), E.arg() == '1'
local name_json = E.arg()
local text = call('HGET', E.SCHEDULES, name)
if not text then return { 'missing' } end
local known, tick, paused, last_tick, last_job, fired, rest = match(text, '^(%d+) (%S+) ([01]) (%S+) (%S+) (%d+)(\n.*)$')
if not known then return { 'corrupt' } end
if known ~= revision or expected ~= '*' and tick ~= expected then return { 'stale' } end
local last = last_job ~= '-' and E.peek(last_job)
local running = last and not last.broken and (last.state == 's' or last.state == 'r' or last.state == 'a')
local skip = skip_running and running
E.read_lanes()
local jobs, ids = {}, {}
for i = 1, E.num() do
  jobs[i] = E.read_new()
  ids[i] = jobs[i].id
end
E.know_new(ids)
if expected ~= '*' then
  -- A tick whose job is there has been handled before, whatever the schedule says now: after a clock that jumped back, or
  -- a restore.
  local fresh = {}
  for _, job in ipairs(jobs) do
    if E.is_there(job.id) then last_job = job.id else fresh[#fresh + 1] = job end
  end
  jobs = fresh
end
local created = 0
if not skip then
  local refusals = E.refusals(jobs)
  for i = 1, refusals and #jobs or 0 do
    -- All or nothing, so that the tick can be repeated as a whole.
    if refusals[i] then return { 'refused', refusals[i], jobs[i].id } end
  end
  for _, job in ipairs(jobs) do
    local outcome = E.enqueue_one(job)
    local verb, by = match(outcome, '^(%S+) ?(%S*)$')
    if verb == 'deduplicated' then
      last_job = by
    else
      last_job = job.id
      if verb ~= 'existing' then created = created + 1 end
    end
  end
end
if expected ~= '*' then
  last_tick, tick = expected, following
  -- A job out of turn is none of a tick, and spends nothing of the limit.
  fired = E.int(tonumber(fired) + created)
end
E.hput(E.SCHEDULES, name, known .. ' ' .. tick .. ' ' .. paused .. ' ' .. last_tick .. ' ' .. last_job .. ' ' .. fired .. rest)
E.zput(E.TICKS, name, paused == '0' and E.opt(tick) or false)
E.flush_created()
E.note_json('fired ' .. (expected ~= '*' and expected or E.int(now)) .. ' ' .. name_json)
E.finish()
if skip then return { 'skipped' } end
return { 'fired', created }

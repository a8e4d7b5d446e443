-- Steps of runs: what their engines decided. Each: state, wake (as the due time of a job, `-` for none, `now`), `-` or `+` and why it is
-- stuck, summary; then counted: entries of the history, jobs to cancel, messages (run, flags as in messages.lua, body), and jobs as
-- create.lua reads them; then `-`, or letters of what few steps have, and in this order: `p` and the published values, `l` and the
-- labels, both as JSON; `r` and the result as it is kept; `e` and the error; `s`, the kind and the input of a new segment, and how
-- many entries of the step come before it; `c` and, counted, runs to create as new_runs.lua reads them; `u` and, counted, jobs to cancel
-- unless a worker has ever claimed them.

-- Reads what few steps have.
local function read_rare(s, letters, all)
  if match(letters, 'p') then s.published = E.arg() end
  if match(letters, 'l') then s.labels = E.arg() end
  if match(letters, 'r') then s.result = E.arg() end
  if match(letters, 'e') then s.error = E.arg() end
  if match(letters, 's') then
    s.segment = { kind = E.arg(), input_at = E.at + 1, before = tonumber(ARGV[E.at + 2]) }
    E.at = E.at + 2
  end
  if match(letters, 'c') then
    s.children = {}
    for i = 1, E.num() do s.children[i] = E.read_new_run(all) end
  end
  if not match(letters, 'u') then return end
  s.unclaimed = {}
  for i = 1, E.num() do
    s.unclaimed[i] = E.arg()
    all.cancel[#all.cancel + 1] = s.unclaimed[i]
  end
end
-- Reads a step; what may be large stays where it is.
function E.read_step(all)
  local s = { state = E.arg(), wake = E.arg(), stuck = E.arg(), summary = E.arg(), history = E.num(), cancel = {}, messages = {}, jobs = {} }
  s.history_at = E.at
  E.at = E.at + s.history
  for i = 1, E.num() do
    s.cancel[i] = E.arg()
    all.cancel[#all.cancel + 1] = s.cancel[i]
  end
  for i = 1, E.num() do
    s.messages[i] = { E.arg(), E.arg(), E.arg() }
    all.runs[#all.runs + 1] = s.messages[i][1]
  end
  for i = 1, E.num() do
    s.jobs[i] = E.read_new()
    all.jobs[#all.jobs + 1], all.ids[#all.ids + 1] = s.jobs[i], s.jobs[i].id
  end
  local letters = E.arg()
  if letters ~= '-' then read_rare(s, letters, all) end
  return s
end
-- What all steps of a call speak of, to be read together.
function E.new_steps()
  return { runs = {}, cancel = {}, jobs = {}, ids = {} }
end
function E.know_steps(all)
  E.know_runs(all.runs)
  E.know(all.cancel)
  for _, id in ipairs(all.cancel) do E.needs_object[id] = true end
  E.know_new(all.ids)
  E.know_groups_of(all.jobs)
end

-- Why a step cannot be made: the first of its jobs that is refused, and why; nil when all can be enqueued.
function E.step_refusal(s)
  if not s.jobs[1] then return nil end
  local refusals = E.refusals(s.jobs)
  for i = 1, refusals and #s.jobs or 0 do
    if refusals[i] then return 'refused ' .. i .. ' ' .. refusals[i] end
  end
  return nil
end

local function wake_time(text)
  if text == '-' then return nil end
  if text == 'now' then return now end
  local delay = match(text, '^%+(%d+)$')
  return delay and now + tonumber(delay) or tonumber(text)
end

-- Cancels jobs of a run that have not ended: all of them, or those that no worker has claimed.
local function cancel_jobs(r, ids, is_unclaimed)
  E.flush_created()
  for _, id in ipairs(ids) do
    local j = E.readable(id)
    if j and j.run == r.id and not E.has_flag(j, 'q') and j.state ~= 'C' and not j.cancel and not (is_unclaimed and j.claimed) then
      E.cancel(j)
    end
  end
end
-- The part of a step that concerns jobs and other runs.
local function make_others(r, s)
  -- A step may cancel the jobs that it starts.
  for _, job in ipairs(s.jobs) do E.enqueue_one(job) end
  if s.children then
    for _, child in ipairs(s.children) do E.create_child(r, child) end
  end
  if #s.cancel > 0 then cancel_jobs(r, s.cancel) end
  if s.unclaimed then cancel_jobs(r, s.unclaimed, true) end
  for _, message in ipairs(s.messages) do E.send_to_run(message[1], message[2], message[3]) end
end
-- Adds the entries of a step to the history, and begins a new segment if the step says so.
local function add_entries(r, s)
  if s.segment then
    local first = r.history + s.segment.before
    r.kind, r.segment = s.segment.kind, first > 0 and first or nil
    E.hput(E.RUNS, r.id .. ':i', ARGV[s.segment.input_at])
  end
  for k = 1, s.history do E.hput(E.HISTORY, E.numbered(r, r.history + k - 1), ARGV[s.history_at + k]) end
  r.history = r.history + s.history
end

-- Applies what was decided. Nothing may be refused here any more. `settle` says what becomes of the lease.
function E.make_step(r, s, settle)
  make_others(r, s)
  -- Only now: whatever was cancelled has left word in the inbox.
  local ends = s.state ~= 'R' and r.state == 'R'
  add_entries(r, s)
  if s.labels then r.labels = s.labels ~= '{}' and s.labels or nil end
  if s.published then E.hput(E.RUNS, r.id .. ':p', s.published ~= '{}' and s.published) end
  r.state, r.stuck, r.summary, r.wake = s.state, s.stuck, s.summary, wake_time(s.wake)
  -- A field that is set to nothing takes room, too.
  if r.stalls then r.stalls = nil end
  if settle then settle() end
  if r.state == 'R' then
    -- A run that its step creates may have terminated it.
    if r.finished then r.finished, r.error = nil, nil end
  else
    r.wake = nil
  end
  if ends then
    r.finished = now
    if s.error then r.error = s.error end
    E.trim_inbox(r, r.following)
    if r.unread then r.unread = nil end
    if r.holes then r.holes = nil end
    if s.result then E.hput(E.RUNS, r.id .. ':r', s.result) end
  end
  E.put_run(r)
  if ends then E.tell_end(r, s.result or '-') end
end

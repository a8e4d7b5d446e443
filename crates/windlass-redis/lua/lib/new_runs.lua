-- Runs to create. Each: id, fingerprint, kind, name, hash of its definition, how long it is kept, definition, input, and its step as
-- steps.lua reads it. Behind how long it is kept may stand: letters (`-` none, `j` ends of its jobs come with results, `a` an ended
-- run of this id starts again, `s` unless it succeeded, `m` messages follow its step), its parent or `-`, its labels as JSON or `-`.
-- Messages are counted; each: flags as in messages.lua, body.

-- Reads a run; what may be large stays where it is.
function E.read_new_run(all)
  local run = { id = E.arg(), fingerprint = E.arg(), kind = E.arg(), name = E.arg(), definition = E.arg(), keep = E.arg(), at = E.at }
  E.at = E.at + 2
  if run.keep:find(' ', 1, true) then
    local parent, labels
    run.keep, run.letters, parent, labels = match(run.keep, '^(%d+) (%S+) (%S+) (.*)$')
    if parent ~= '-' then run.parent = parent end
    if labels ~= '-' then run.labels = labels end
    run.job_results = match(run.letters, 'j') and true
  end
  run.step = E.read_step(all)
  if run.letters and match(run.letters, 'm') then
    run.messages = {}
    for i = 1, E.num() do run.messages[i] = { E.arg(), E.arg() } end
  end
  all.runs[#all.runs + 1] = run.id
  return run
end

-- Whether an ended run starts again under its id: `restarted`, or why not.
local function reuse(known, letters)
  if known.state == 'R' or not letters or not (match(letters, 'a') or match(letters, 's') and known.state ~= 'S') then return 'taken' end
  return E.run_rests(known) and 'restarted' or 'unclean'
end
-- A new run as it is before its first step.
local function begin(run)
  return {
    id = run.id, seq = E.hex12(E.bump(E.SEQ)), state = 'R', history = 0, first = 0, following = 0, last = '-', created = E.int(now), changed = E.int(now),
    keep = run.keep, definition = run.definition, fingerprint = run.fingerprint, kind = run.kind, engine = '', committer = '', name = run.name,
    stuck = '-', summary = '', told_history = 0, told_state = 'R', told_stuck = '-', parent = run.parent, labels = run.labels,
    job_results = run.job_results,
  }
end
-- A run that has ended starts again: its number, its place among all, its history and its message ids stay.
local function begin_again(r, run)
  r.state, r.stuck, r.summary, r.committer, r.engine = 'R', '-', '', '', ''
  r.keep, r.definition, r.fingerprint, r.kind, r.name = run.keep, run.definition, run.fingerprint, run.kind, run.name
  r.parent, r.labels, r.job_results = run.parent, run.labels, run.job_results
  r.segment = r.history > 0 and r.history or nil
  r.token, r.ready, r.wake, r.finished, r.error, r.unread, r.holes = nil, nil, nil, nil, nil, nil, nil
  r.told_history, r.told_state, r.told_stuck = r.history, 'R', '-'
  local s = run.step
  -- The step changes nothing that the feed tells, but the run runs again.
  if s.history == 0 and s.state == 'R' and s.stuck == '-' then E.note_run('run ' .. r.id .. ' R ' .. E.int(r.history)) end
  E.hput(E.RUNS, r.id .. ':p', false)
  E.hput(E.RUNS, r.id .. ':r', false)
  return r
end
-- Puts the messages of a creation into the inbox of the run that is there, if it goes on or has had them all. Nil, and nothing was
-- changed, if it is not a matter of messages.
local function take_messages(known, messages)
  local unknown = {}
  for _, message in ipairs(messages) do
    if not E.knows_message(known, match(message[1], '#(.*)$')) then unknown[#unknown + 1] = message end
  end
  if #unknown == 0 then return 'existing' end
  if known.state ~= 'R' then return nil end
  if (known.unread or 0) + #unknown > E.UNREAD_MAX then return 'full' end
  for _, message in ipairs(unknown) do E.send_to_run(known.id, message[1], message[2]) end
  return 'existing'
end
-- Creates a run together with its first step; answers what became of it.
function E.create_run(run)
  local known = E.run(run.id)
  local answer = 'created'
  if known then
    if known.broken then return 'taken' end
    local taken = run.messages and take_messages(known, run.messages)
    if taken then return taken end
    if known.fingerprint == run.fingerprint then return 'existing' end
    answer = reuse(known, run.letters)
    if answer ~= 'restarted' then return answer end
  end
  local refused = E.step_refusal(run.step)
  if refused then return refused end
  local r = known and begin_again(known, run) or begin(run)
  E.run_cache[r.id] = r
  E.hput(E.RUNS, r.id .. ':d', ARGV[run.at + 1])
  E.hput(E.RUNS, r.id .. ':i', ARGV[run.at + 2])
  E.make_step(r, run.step, nil)
  for _, message in ipairs(run.messages or {}) do E.send_to_run(r.id, message[1], message[2]) end
  return answer
end

-- Creates a run of a step. One that is refused is told to its parent: `taken`, `unclean`, or `job`, its id and why, and its queue.
function E.create_child(r, run)
  local answer = E.create_run(run)
  if answer == 'created' or answer == 'restarted' then return end
  local number, why = match(answer, '^refused (%d+) (.*)$')
  local job = number and run.step.jobs[tonumber(number)]
  if job then
    answer = 'job ' .. job.id .. ' ' .. why .. '\n' .. E.call_lanes[job.lane_no].queue_name
  elseif answer == 'existing' then
    answer = 'taken'
  end
  E.deliver(r, 'c ' .. run.id .. '\n' .. answer)
end

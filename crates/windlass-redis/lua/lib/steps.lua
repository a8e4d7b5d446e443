-- Steps of runs: what their engines decided. Each: state, wake (as the due time of a job, `-` for none, `now`), `-` or `+` and why it is
-- stuck, summary; then counted: entries of the history, jobs to cancel, messages (run, flags, body), and jobs as create.lua
-- reads them. Flags of a message: `i` takes the lease away, `r` opens the run again, `e<length>` is only for a run that has ended with a
-- history of this length.

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
  local refusals = E.refusals(s.jobs)
  for i = 1, refusals and #s.jobs or 0 do
    if refusals[i] then return 'refused ' .. i .. ' ' .. refusals[i] end
  end
  return nil
end

-- Puts a message into an inbox; answers why not.
function E.send_to_run(id, flags, body)
  local r = E.run(id)
  if not r then return 'missing' end
  if r.broken then return 'corrupt' end
  local reopens, ended_with = match(flags, 'r') ~= nil, match(flags, 'e(%d+)')
  if ended_with and r.state == 'R' then return 'running' end
  if ended_with and r.history ~= tonumber(ended_with) then return 'changed' end
  if E.run_rests(r) and not reopens then
    if r.state ~= 'R' then return 'ended ' .. r.state end
    return 'stuck ' .. sub(r.stuck, 2)
  end
  if reopens then r.state, r.stuck, r.finished = 'R', '-', nil end
  if match(flags, 'i') then r.token = nil end
  E.deliver(r, 'm ' .. E.int(now) .. '\n' .. body)
  return 'ok'
end

local function wake_time(text)
  if text == '-' then return nil end
  if text == 'now' then return now end
  local delay = match(text, '^%+(%d+)$')
  return delay and now + tonumber(delay) or tonumber(text)
end

-- Applies what was decided. Nothing may be refused here any more. `settle` says what becomes of the lease.
function E.make_step(r, s, settle)
  -- A step may cancel the jobs that it starts.
  for _, job in ipairs(s.jobs) do E.enqueue_one(job) end
  if #s.cancel > 0 then E.flush_created() end
  for _, id in ipairs(s.cancel) do
    local j = E.readable(id)
    if j and j.run == r.id and not E.has_flag(j, 'q') and j.state ~= 'C' and not j.cancel then E.cancel(j) end
  end
  for _, message in ipairs(s.messages) do E.send_to_run(message[1], message[2], message[3]) end
  -- Only now: whatever was cancelled has left word in the inbox.
  for k = 1, s.history do E.hput(E.HISTORY, E.numbered(r, r.history + k - 1), ARGV[s.history_at + k]) end
  r.history = r.history + s.history
  r.state, r.stuck, r.summary, r.wake = s.state, s.stuck, s.summary, wake_time(s.wake)
  if settle then settle() end
  if r.state ~= 'R' then
    r.finished, r.wake = now, nil
    E.trim_inbox(r, r.following)
  end
  E.put_run(r)
end

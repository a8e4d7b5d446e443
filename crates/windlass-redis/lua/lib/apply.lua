-- The machine, and the one function through which every change of a job goes: counters, groups, minutes and the feed
-- follow there, so that none of them can drift from the jobs.

local events, runs, run_key, event_count = {}, {}, nil, 0
-- Jobs that ended or are gone.
E.ended, E.ended_runs = {}, {}
local named_queues = {}

local function end_line()
  if run_key then events[#events + 1] = run_key .. ':' .. concat(runs, ',') end
  run_key, runs = nil, {}
end
-- A change of a job, for the feed. Like changes share one line.
function E.note(j, verb, from, to)
  local key = verb .. ' ' .. (from or '-') .. ' ' .. (to or '-') .. ' ' .. j.attempt .. ' ' .. j.queue
  if key ~= run_key then
    end_line()
    run_key = key
    named_queues[j.queue] = true
  end
  runs[#runs + 1] = j.id
  event_count = event_count + 1
  if to == 'r' then E.ring_lane(j.lane) end
end
-- Lines that are made already, as one text, of `count` changes of jobs of a queue.
function E.note_lines(lines, queue_id, count)
  end_line()
  events[#events + 1] = lines
  named_queues[queue_id] = true
  event_count = event_count + count
end
-- Any other event, as JSON that the caller made.
function E.note_json(text)
  end_line()
  events[#events + 1] = text
  event_count = event_count + 1
end

-- Writes the step's one entry into the feed.
function E.write_feed()
  if event_count == 0 then return end
  end_line()
  local names = {}
  for id in pairs(named_queues) do
    local q = E.queue(id)
    names[#names + 1] = id .. ' ' .. (named_queues[id] ~= true and named_queues[id] or q and q.name or '?')
  end
  local cursor, total = E.bump(E.FEED_N), E.bump(E.EVENT_N, event_count)
  E.add_feed(cursor, total, event_count, concat(names, '\n'), concat(events, '\n'))
end

local function is_ended(state)
  return state == 'S' or state == 'F' or state == 'C'
end

-- When a job goes that says so itself.
local function removal_time(j)
  if not is_ended(j.state) or not E.has_flag(j, 'k') or not E.head(j) then return nil end
  local ms = j.state == 'F' and j.keep_f or j.state ~= 'F' and j.keep_s or nil
  return ms and now + ms
end

local function measure(j, q, verb, from, to, ready_at, claimed)
  if verb ~= 'claim' and from ~= 'a' and not is_ended(to) then return end
  local m = E.minute_of(q)
  if verb == 'claim' then
    m[2] = m[2] + 1
    m[8] = m[8] + max(now - ready_at, 0)
  elseif verb == 'fail' and (to == 'r' or to == 's') then
    m[6] = m[6] + 1
  elseif to == 'S' then
    m[3] = m[3] + 1
  elseif to == 'F' then
    m[4] = m[4] + 1
  elseif to == 'C' then
    m[5] = m[5] + 1
  end
  if verb == 'reap' then m[7] = m[7] + 1 end
  if from == 'a' and claimed then m[9] = m[9] + max(now - claimed, 0) end
end

local function leave_state(j, q, from, group_id, to)
  if from == 'a' and q.settings.cap and q.a >= q.settings.cap then
    -- A place is free that somebody may be waiting for.
    E.ring_queue(q.id, 1)
  end
  q[from] = max(q[from] - 1, 0)
  E.touch_queue(q)
  E.leave_group(j, q, from, group_id, to)
end

-- A ready job that nobody has touched does not know its group's number.
local function know_group(j)
  if j.state == 'r' and not j.group and E.queue(j.queue) then j.group = E.group_for(j, E.queue(j.queue)) end
end

-- Counts a change of a job as work: one with a group, a dedup key, a log or a run touches more.
local function count_work(j)
  E.work = E.work + (j.flags == '-' and not j.run and 1 or 3)
end

-- Changes a job: `change` makes it what it becomes, everything else follows.
function E.apply(j, verb, change)
  count_work(j)
  local q = E.queue(j.queue)
  know_group(j)
  local from, ord, group_id, ready_at, claimed = j.state, j.ord, j.group, j.ready_at, j.claimed
  E.index(j, false)
  change(j)
  local to = j.state
  E.touch(j)
  if from == to then
    if verb ~= 'renew' then E.note(j, verb, from, to) end
    if to == 'r' and E.is_before(j.ord, ord) then
      local l = E.lane(j.lane)
      if E.is_before(j.ord, l.head) then
        l.head = j.ord
        E.touch_lane(l)
      end
    end
    return E.index(j, true)
  end
  if to == 'r' then
    j.group = E.group_for(j, q)
    j.ready_at = now
  elseif to ~= 'a' then
    j.group = nil
  end
  j.remove_at = removal_time(j)
  measure(j, q, verb, from, to, ready_at, claimed)
  leave_state(j, q, from, group_id, to)
  q[to] = q[to] + 1
  E.enter_group(j, q)
  E.note(j, verb, from, to)
  E.index(j, true)
  if is_ended(to) then
    E.ended[#E.ended + 1] = j.id
    if E.has_flag(j, 'd') then E.free_key(j) end
    if j.run then E.tell_run(j, to) end
    if j.remove_at and j.remove_at <= now then E.remove(j, 'remove') end
  end
end

-- Removes a job and all that hangs on it.
function E.remove(j, verb)
  count_work(j)
  local q, l = E.queue(j.queue), E.lane(j.lane)
  know_group(j)
  if j.run and not is_ended(j.state) then E.tell_run(j, nil) end
  E.index(j, false)
  E.ended[#E.ended + 1] = j.id
  if q then
    leave_state(j, q, j.state, j.group, nil)
    E.note(j, verb, j.state, nil)
  end
  if l then
    l.jobs = max(l.jobs - 1, 0)
    E.touch_lane(l)
  end
  E.delete(j)
  if not is_ended(j.state) and E.has_flag(j, 'd') then E.free_key(j) end
end

-- To ready when `due` has come, to scheduled otherwise; it takes a new place either way it goes.
local function wake(j, due)
  j.token, j.expires, j.worker = nil, nil, nil
  if due <= now then
    j.state, j.due = 'r', nil
    j.ord = sub(j.ord, 1, 4) .. sub(E.place(0, E.bump(E.SEQ), j.lifo), 5)
  else
    j.state, j.due = 's', due
  end
end
-- A cancel that was acknowledged wins over whatever the handler says.
local function finish(j, state)
  j.state = j.cancel and 'C' or state
  j.token, j.expires, j.worker, j.due, j.finished = nil, nil, nil, nil, now
end

-- The verbs. Each answers nil, or the name of the state that forbids it.
function E.promote(j)
  if j.state ~= 's' then return 'illegal ' .. j.state .. ' promote' end
  E.apply(j, 'promote', function(k) wake(k, now) end)
end
function E.reschedule(j, due)
  if j.state ~= 's' and j.state ~= 'r' then return 'illegal ' .. j.state .. ' reschedule' end
  E.apply(j, 'reschedule', function(k) wake(k, due) end)
end
local function spend(j, token)
  if j.state ~= 'a' then j.last_token, j.last_state = token, j.state end
end
function E.complete(j)
  local token = j.token
  E.apply(j, 'complete', function(k)
    finish(k, 'S')
    spend(k, token)
  end)
end
-- `delay` is nil when this failure is final.
function E.fail(j, delay)
  local token = j.token
  E.apply(j, 'fail', function(k)
    if delay and not k.cancel and k.attempt < k.attempts then wake(k, now + delay) else finish(k, 'F') end
    spend(k, token)
  end)
end
function E.release(j, started)
  local token = j.token
  E.apply(j, 'release', function(k)
    -- Started on the last attempt: as if its worker had vanished.
    local last = started and k.attempt >= k.attempts
    if k.cancel or last and k.stalls >= k.stalls_max then
      finish(k, 'F')
    else
      if last then k.stalls = k.stalls + 1 end
      if last or not started then k.attempt = max(k.attempt - 1, 0) end
      k.state, k.token, k.expires, k.worker = 'r', nil, nil, nil
    end
    spend(k, token)
  end)
end
function E.reap(j)
  E.apply(j, 'reap', function(k)
    k.attempt, k.stalls = max(k.attempt - 1, 0), k.stalls + 1
    if k.cancel or k.stalls > k.stalls_max then finish(k, 'F') else wake(k, now) end
  end)
end
function E.cancel(j)
  if j.state == 'a' then
    E.apply(j, 'cancel', function(k) k.cancel = true end)
  elseif is_ended(j.state) then
    return 'illegal ' .. j.state .. ' cancel'
  else
    E.apply(j, 'cancel', function(k) finish(k, 'C') end)
  end
end
function E.retry(j, due)
  E.apply(j, 'retry', function(k)
    k.attempt, k.stalls, k.retries, k.cancel, k.finished = 0, 0, k.retries + 1, false, nil
    wake(k, due)
  end)
end

local FAILURES_MAX = 10
-- Keeps a failure with its job, the oldest go: one line each, `class attempt time message` with line ends escaped.
function E.push_failure(j, class, message)
  local text = E.has_flag(j, 'x') and E.extra_now(j, ':f') or nil
  local line = class .. ' ' .. j.attempt .. ' ' .. E.int(now) .. ' ' .. message
  if text then
    local lines = {}
    for l in gmatch(text, '[^\n]+') do lines[#lines + 1] = l end
    -- ends because: every round takes a line away
    while #lines >= FAILURES_MAX do table.remove(lines, 1) end
    lines[#lines + 1] = line
    line = concat(lines, '\n')
  end
  E.put_extra(j, ':f', line)
end
-- What is kept with a job now, the step's own writes included.
function E.extra_now(j, name)
  local waiting = E.hashes[E.EXTRA] and E.hashes[E.EXTRA][j.id .. name]
  if waiting ~= nil then return waiting or nil end
  return call('HGET', E.EXTRA, j.id .. name) or nil
end

-- Jobs: the record that its creator made, and the life that it leads.
--
-- JOBS  <id>  `1 queue lane row created fingerprint` and, where they are not all defaults, ` due priority flags attempts
--             stalls dedup mode ttl keep-succeeded keep-failed group`; a line of rare fields; then the payload
-- LIFE  <id>  written when a job is first touched. In fixed places: state; `p` for an active job without anything
--             special, `g` for one of a named group, `n` for one of a graph, else `x`; token of the lease, or of the last report; the state that report led to; row; time of
--             the last claim; end of the lease, time of the end, or due time. Then: queue, lane, attempt, attempts, stalls,
--             stalls allowed, retries, cancel, place, ready since, group, created, flags, removal time, token and state of
--             the last report while there is a lease, worker. Behind the attempt of a job with nothing but defaults: `*`, created,
--             worker
--
-- States: s scheduled, r ready, a active, S succeeded, F failed, C cancelled. Flags: g names a group, d has a dedup key,
-- k says itself how long it is kept, l heads its priority, q quarantined, x has a result, progress or failures, o has a log; a
-- number among them is the cap that the job brings for its group; and behind them `@` and its run, for a job that has one.

E.HEAD = '^1 (%x+) (%x+) (%x+) (%x+) (%x+)(.-)\n'
E.HEAD_REST = '^ (%S+) (%-?%d+) (%S+) (%d+) (%d+) (%S+) (%S+) (%S+) (%S+) (%S+) (.+)$'
E.LIFE_TEXT = '^(%a) [pgnx] (%S+) (%S) (%x+) (%S+) (%S+) (%x+) (%x+) (%d+) (%d+) (%d+) (%d+) (%d+) ([01]) (%x+) (%x+) (%S+)'
  .. ' (%x+) (%S+) (%S+) (%S+) (%S) (.*)$'
E.SHORT_LIFE = '^(%a [px] %S+ %S (%x+) %S+ %S+ (%x+) %x+ %d+) %* (%x+) (.*)$'
E.NO_TOKEN = '----------------'
E.job_cache, E.dirty_jobs = {}, {}
-- Lives that this step has written as texts, without an object.
E.fresh_lives = {}
-- Lives that were read, for whoever makes an object of one.
E.known_lives = {}

-- The flags of a job, and its run.
function E.flags_and_run(text)
  if not text:find('@', 1, true) then return text, nil end
  return match(text, '^([^@]+)@(.+)$')
end

-- Reads the creator's part of a record into `j`; false when it cannot be read.
function E.read_head(j, record)
  local queue_id, lane_id, row, created, fingerprint, rest = match(record or '', E.HEAD)
  if not queue_id or #queue_id > 13 or #lane_id > 13 or #row > 12 or #created > 13 then return false end
  j.fingerprint = fingerprint
  j.head_queue, j.head_lane, j.head_row = tonumber(queue_id, 16), tonumber(lane_id, 16), tonumber(row, 16)
  j.head_created = tonumber(created, 16)
  if rest == '' then
    j.head_due, j.priority, j.head_flags, j.head_attempts, j.head_stalls = '-', 0, '-', 3, 1
    j.has_head = true
    return true
  end
  local due, priority, flags, attempts, stalls, key, mode, ttl, keep_s, keep_f, name = match(rest, E.HEAD_REST)
  local run
  if due then flags, run = E.flags_and_run(flags) end
  if not due or not flags or not E.upto(65535, tonumber(priority) + 32768 .. '') or not E.upto(E.U32, attempts) or not E.upto(E.U32, stalls)
    or not (due == '-' or due == 'h' or E.upto(1e15, match(due, '^h?(%d+)$') or '-')) or (match(flags, 'g') ~= nil) ~= (name ~= '-')
    or (match(flags, 'd') ~= nil) ~= (key ~= '-') then
    return false
  end
  j.has_head = true
  j.head_due, j.priority, j.head_flags, j.run = due, tonumber(priority), flags, run or j.run
  j.head_attempts, j.head_stalls = tonumber(attempts), tonumber(stalls)
  if key ~= '-' then j.key, j.mode, j.ttl = key, mode, E.opt(ttl) end
  j.keep_s, j.keep_f = E.opt(keep_s), E.opt(keep_f)
  if name ~= '-' then j.group_name = sub(name, 2) end
  return true
end

-- A job that nobody has touched leads the life that its record began with.
function E.begin_life(j)
  j.queue, j.lane, j.row, j.created = j.head_queue, j.head_lane, j.head_row, j.head_created
  j.flags, j.lifo = j.head_flags, match(j.head_flags, 'l') ~= nil
  j.attempt, j.attempts, j.stalls, j.stalls_max, j.retries, j.cancel = 0, j.head_attempts, 0, j.head_stalls, 0, false
  j.ready_at = j.created
  j.ord = E.place(j.priority, j.row, j.lifo)
  if j.head_due == '-' then
    j.state = 'r'
  else
    -- `h` is held behind another job, and has no time until that one ends.
    j.state, j.due = 's', tonumber(j.head_due)
  end
end

local function is_ended(state)
  return state == 'S' or state == 'F' or state == 'C'
end
-- A life as it would be without the short form.
local function whole_life(text)
  local first, row, queue_id, created, worker = match(text, E.SHORT_LIFE)
  if not first or #row ~= 12 or #queue_id > 13 then return text end
  local q = E.queue(tonumber(queue_id, 16))
  return first .. ' 3 0 1 0 0 ' .. E.place(0, tonumber(row, 16), false) .. ' ' .. created .. ' ' .. (q and q.plain or '-') .. ' '
    .. created .. ' - - - - ' .. worker
end
function E.read_life(j, text)
  local state, token, last_state, row, claimed, time, queue_id, lane_id, attempt, attempts, stalls, stalls_max, retries, cancel,
    ord, ready_at, group_id, created, flags, remove_at, before_token, before_state, worker = match(whole_life(text), E.LIFE_TEXT)
  local run
  if state then flags, run = E.flags_and_run(flags) end
  if not state or not flags or not match(state, '[sraSFC]') or #queue_id > 13 or #lane_id > 13 or #row ~= 12 or #created > 13 or #ready_at > 13
    or not (E.upto(E.U32, attempt) and E.upto(E.U32, attempts) and E.upto(E.U32, stalls) and E.upto(E.U32, stalls_max)
    and E.upto(E.U32, retries)) then
    return false
  end
  local waits = state == 's' or state == 'r' or state == 'a'
  -- What must be there in a state, and in no other.
  if time ~= E.NO_TIME and not tonumber(time) or claimed ~= E.NO_TIME and not tonumber(claimed) then return false end
  if waits and #ord ~= 16 or state == 'a' and (token == E.NO_TOKEN or not tonumber(time)) or state == 'r' and tonumber(time)
    or (state == 'r' or state == 'a') and not E.upto(1e15, group_id) or is_ended(state) and not tonumber(time) then
    return false
  end
  j.state, j.queue, j.lane, j.row = state, tonumber(queue_id, 16), tonumber(lane_id, 16), tonumber(row, 16)
  j.attempt, j.attempts, j.stalls, j.stalls_max = tonumber(attempt), tonumber(attempts), tonumber(stalls), tonumber(stalls_max)
  j.retries, j.cancel, j.ord, j.ready_at = tonumber(retries), cancel == '1', ord, tonumber(ready_at, 16)
  j.claimed, time = tonumber(claimed), tonumber(time)
  if state == 'a' then
    j.token, j.expires, j.worker, j.group = token, time, worker, E.opt(group_id)
    if before_token ~= '-' then j.last_token, j.last_state = before_token, before_state end
  else
    if last_state ~= '-' then j.last_token, j.last_state = token, last_state end
    if state == 's' then
      j.due = time
    elseif state == 'r' then
      j.group = E.opt(group_id)
    else
      j.finished = time
    end
  end
  j.created, j.flags, j.remove_at, j.run = tonumber(created, 16), flags, E.opt(remove_at), run or j.run
  j.lifo = match(flags, 'l') ~= nil
  return true
end

-- Loads jobs together. `heads` asks for their records, too; a job that was never touched needs its record anyway.
function E.know(ids, heads)
  local ask = {}
  for _, id in ipairs(ids) do
    if E.job_cache[id] == nil then
      E.job_cache[id] = false
      ask[#ask + 1] = id
    end
  end
  local unread, want, lives_of = {}, {}, {}
  for _, id in ipairs(ask) do
    if not E.fresh_lives[id] and E.known_lives[id] == nil then unread[#unread + 1] = id end
  end
  local lives = E.hmget(LIFE, unread)
  for i, id in ipairs(unread) do E.known_lives[id] = lives[i] end
  for _, id in ipairs(ask) do
    lives_of[id] = E.fresh_lives[id] or E.known_lives[id]
    if heads or not lives_of[id] then want[#want + 1] = id end
  end
  for _, id in ipairs(ask) do
    if lives_of[id] then E.job_cache[id] = { id = id } end
  end
  for from = 1, #want, 64 do
    local some = { unpack(want, from, min(from + 63, #want)) }
    local records = E.hmget(JOBS, some)
    for i, id in ipairs(some) do
      local j = E.job_cache[id]
      if not j and records[i] then
        j = { id = id }
        E.job_cache[id] = j
      end
      if j then
        j.record = records[i]
        E.count_record(j.record)
        E.read(j, lives_of[id])
        -- Payloads may be large, and most of those who look at a job do not look at its payload.
        if not heads then j.record = nil end
      end
    end
  end
  for _, id in ipairs(ask) do
    local j = E.job_cache[id]
    if j and not j.state and not j.broken then E.read(j, lives_of[id]) end
  end
  if heads then E.know_records(ids) end
end

-- Handles jobs in order, which are read a few at a time, until the step has done its work; returns how many were handled. The first
-- is always handled, so that every call makes progress.
function E.each(ids, handle)
  local known, size = 0, 1
  for i = 1, #ids do
    if i > 1 and E.is_spent() then return i - 1 end
    if i > known then
      local before = E.work
      known = min(i + size - 1, #ids)
      E.know({ unpack(ids, i, known) })
      size = E.next_slice(size, E.work - before)
    end
    handle(i, ids[i])
  end
  return #ids
end

-- Loads the records of jobs that were loaded without.
function E.know_records(ids)
  local want = {}
  for _, id in ipairs(ids) do
    local j = E.job_cache[id]
    if j and j.record == nil then want[#want + 1] = id end
  end
  local records = E.hmget(JOBS, want)
  for i, id in ipairs(want) do
    local j = E.job_cache[id]
    j.record = records[i]
    E.count_record(j.record)
    if not j.record then
      j.broken = j.broken or 'its record is gone'
    elseif not j.has_head and not E.read_head(j, j.record) then
      j.broken = j.broken or 'its record cannot be read'
    end
  end
end

-- Fills a job from its texts; what cannot be read is noted in `broken`.
function E.read(j, life)
  if j.record and not E.read_head(j, j.record) then j.broken = 'its record cannot be read' end
  if life then
    if not E.read_life(j, life) then j.broken = 'its life cannot be read' end
    j.touched = true
    if not j.broken and j.record == false then j.broken = 'its record is gone' end
  elseif not j.broken then
    E.begin_life(j)
  end
end

-- A job by id; nil when it is not there. One that cannot be read is set aside by whoever changes something.
function E.peek(id)
  if E.job_cache[id] == nil then E.know({ id }) end
  return E.job_cache[id] or nil
end

-- The whole record; false when it is gone.
function E.record(j)
  if j.record == nil then
    j.record = call('HGET', JOBS, j.id)
    E.count_record(j.record)
  end
  return j.record
end
-- The creator's part, for those who need more than the life says; false when it cannot be read.
function E.head(j)
  if j.has_head then return true end
  return E.read_head(j, E.record(j))
end

function E.touch(j)
  E.dirty_jobs[j.id] = j
  j.touched = true
end

function E.life_text(j)
  local active = j.state == 'a'
  local mark = 'x'
  if active and not j.cancel and not j.last_token then
    if j.flags == 'g' and not j.run then
      mark = 'g'
    elseif j.flags == '-' and j.group == (E.queue(j.queue) or {}).plain then
      mark = j.run and 'n' or 'p'
    end
  end
  local time = j.finished
  if active then time = j.expires elseif j.state == 's' then time = j.due elseif j.state == 'r' then time = nil end
  return fmt('%s %s %s %s %012x %s %s %x %x %d %d %d %d %d %d %s %x %s %x %s %s %s %s %s', j.state, mark,
    active and j.token or not active and j.last_token or E.NO_TOKEN, not active and j.last_state or '-', j.row,
    E.time15(j.claimed), E.time15(time), j.queue, j.lane, j.attempt, j.attempts, j.stalls, j.stalls_max, j.retries,
    j.cancel and 1 or 0, j.ord, j.ready_at, j.group or '-', j.created, j.run and j.flags .. '@' .. j.run or j.flags, j.remove_at and E.int(j.remove_at) or '-',
    active and j.last_token or '-', active and j.last_state or '-', active and j.worker or '')
end

-- Where a job stands in the indexes.
function E.ready_member(j)
  return E.enc(j.lane) .. E.enc(j.group) .. j.ord .. j.id
end
function E.sched_member(j)
  return E.enc(j.queue) .. (j.due and E.hex12(max(j.due, 0)) or 'zzzzzzzzzzzz') .. E.hex12(j.row) .. E.enc(j.lane) .. j.id
end
function E.ended_member(j)
  return E.enc(j.queue) .. j.state .. (j.remove_at and '1' or '0') .. E.hex12(max(j.finished or 0, 0)) .. E.hex12(j.row) .. E.enc(j.lane)
    .. j.id
end
function E.index(j, value)
  local state = j.state
  if state == 'a' then
    E.zput(E.LEASES, E.hex12(j.row) .. j.id, value and (j.expires or 0))
    if j.cancel and j.worker then E.zput(E.CANCELLING, j.worker .. '\n' .. E.hex12(j.row) .. j.id, value and 0) end
  elseif state == 'r' then
    if j.group then E.zput(READY, E.ready_member(j), value and 0) end
  elseif state == 's' then
    E.zput(E.SCHED, E.sched_member(j), value and 0)
  else
    E.zput(E.ENDED, E.ended_member(j), value and 0)
    if j.remove_at then E.zput(E.REMOVABLE, E.hex12(j.row) .. j.id, value and j.remove_at) end
  end
end

-- The log of a job is kept under its row: an id may come again.
function E.log_of(j)
  return fmt('%x', j.row)
end
function E.has_flag(j, flag)
  return match(j.flags, flag) ~= nil
end
function E.set_flag(j, flag)
  if not match(j.flags, flag) then
    j.flags = (j.flags == '-' and '' or j.flags) .. flag
    E.touch(j)
  end
end

-- Keeps a result, a progress or failures with a job.
function E.put_extra(j, name, text)
  if text then E.set_flag(j, 'x') end
  E.hput(E.EXTRA, j.id .. name, text)
end

-- Forgets a job with everything that hangs on it. Its log may be long: that goes to the bin, and then bit by bit.
function E.delete(j)
  E.job_cache[j.id], E.dirty_jobs[j.id] = false, nil
  E.hput(JOBS, j.id, false)
  if j.touched then E.hput(LIFE, j.id, false) end
  if j.flags and E.has_flag(j, 'x') then
    for _, name in ipairs({ ':r', ':p', ':f' }) do E.hput(E.EXTRA, j.id .. name, false) end
  end
  if j.flags and E.has_flag(j, 'o') then
    local log = call('HGET', E.EXTRA, j.id .. ':l')
    if log then call('RPUSH', E.TRASH, E.log_of(j) .. ' ' .. log) end
    E.hput(E.EXTRA, j.id .. ':l', false)
  end
end

-- Leaves a variadic write to the end of the step.
function E.later(command, key, list)
  local writes = E.late[key]
  if not writes then
    writes = {}
    E.late[key] = writes
  end
  writes[#writes + 1] = { command, list }
end

-- Writes everything that waits.
function E.flush()
  if E.raises_layout then E.hput(META, 'layout', E.LAYOUT) end
  E.flush_runs()
  for key in pairs(E.late) do E.settle_late(key) end
  for id, j in pairs(E.dirty_jobs) do E.hput(LIFE, id, E.life_text(j)) end
  E.dirty_jobs = {}
  for _, g in pairs(E.dirty_groups) do E.write_group(g) end
  for _, q in pairs(E.dirty_queues) do E.write_queue(q) end
  for _, l in pairs(E.dirty_lanes) do E.hput(META, 'l' .. l.id, l.queue .. ' ' .. l.ready .. ' ' .. l.jobs .. ' ' .. l.head) end
  for field, m in pairs(E.dirty_minutes) do E.write_minute(field, m) end
  if E.counters_dirty then
    call('HSET', META, 'seq', E.int(E.counters[1]), 'queue', E.counters[2], 'lane', E.counters[3], 'group', E.int(E.counters[4]), 'feed',
      E.int(E.counters[5]), 'events', E.int(E.counters[6]))
  end
  E.settle_all()
end

-- New jobs. Those with nothing but defaults come in rows: `P`, lane (its number among the call's), count, and of each its id
-- and its fingerprint, a line end, and the rest of its record, which no script reads. Others: `J`, id, the fields (fingerprint,
-- lane, due, priority, flags and run, attempts, stalls, dedup key, mode, ttl, keep and keep, group), and the rest of the record.

-- Lanes with labels of a queue, at most; and as many without. So label sets do not keep plain jobs out.
local LANES_MAX = 1024
-- The key of a lane is its kind, and behind this its labels.
local BETWEEN = '\31'
local function has_labels(key)
  return key:find(BETWEEN, 1, true) ~= nil
end
local call_lanes = {}
E.call_lanes = call_lanes

-- The lanes that a call speaks of: `queue name`, `kind and labels` of each.
function E.read_lanes()
  local names, fields = {}, {}
  for i = 1, E.num() do
    call_lanes[i] = { queue_name = E.arg(), key = E.arg() }
    names[i] = call_lanes[i].queue_name
  end
  E.know_queues(names)
  for i, l in ipairs(call_lanes) do
    local id = E.queue_ids[l.queue_name]
    fields[i] = id and 'k' .. id .. ' ' .. l.key or 'k'
  end
  local found = E.hmget(META, fields)
  local ids = {}
  for i, l in ipairs(call_lanes) do
    l.id = tonumber(found[i])
    ids[#ids + 1] = l.id
  end
  E.know_lanes(ids)
end

-- Loads the groups that jobs of a call name, and their places in the lanes.
function E.know_groups_of(jobs)
  local names, lanes, groups = {}, {}, {}
  for _, job in ipairs(jobs) do
    local id = job.group_name and E.queue_ids[call_lanes[job.lane_no].queue_name]
    if id then names[#names + 1] = 'n' .. id .. ' ' .. job.group_name end
  end
  if #names == 0 then return end
  E.know_group_ids(names)
  for _, job in ipairs(jobs) do
    local l = call_lanes[job.lane_no]
    local id = job.group_name and E.queue_ids[l.queue_name]
    local group_id = id and E.group_ids['n' .. id .. ' ' .. job.group_name]
    if group_id and l.id then lanes[#lanes + 1], groups[#groups + 1] = l.id, group_id end
  end
  E.know_subs(lanes, groups)
end

-- Fields of a job that is due now and has neither a group nor a key.
local PLAIN = '^(%x+) (%d+) (%- (%-?%d+) (%S+) %d+ %d+ %- %- %- %S+ %S+ %-)$'
-- Reads all fields of a job.
local function read_fields(job)
  local fingerprint, lane_no, due, priority, flags, attempts, stalls, key, mode, ttl, keep_s, keep_f, name =
    match(job.fields, '^(%x+) (%d+) (%S+) (%-?%d+) (%S+) (%d+) (%d+) (%S+) (%S+) (%S+) (%S+) (%S+) (.+)$')
  job.fingerprint, job.lane_no, job.due, job.priority, job.flags_text = fingerprint, tonumber(lane_no), due, tonumber(priority), flags
  job.flags, job.run = E.flags_and_run(flags)
  job.attempts, job.stalls = tonumber(attempts), tonumber(stalls)
  if key ~= '-' then job.key, job.mode, job.ttl = key, mode, E.opt(ttl) end
  job.keep = keep_s .. ' ' .. keep_f
  job.ttl_text, job.name_text = ttl, name
  if name ~= '-' then job.group_name = sub(name, 2) end
end

local plain_left, plain_lane = 0, nil
-- The next job of a call: one of a row of those with nothing but defaults, or one that says more.
function E.read_new()
  local job = {}
  if plain_left == 0 and E.arg() == 'P' then plain_lane, plain_left = E.arg(), E.num() end
  job.id = E.arg()
  if plain_left > 0 then
    plain_left = plain_left - 1
    local fingerprint, rest = match(E.arg(), '^(%x+)\n(.*)$')
    job.fields, job.rest = fingerprint .. ' ' .. plain_lane .. ' - 0 - 3 1 - - - - - -', rest
    job.fingerprint, job.lane_no, job.text, job.priority, job.flags = fingerprint, tonumber(plain_lane), '', 0, '-'
    return job
  end
  job.fields, job.rest = E.arg(), E.arg()
  local fingerprint, lane_no, text, priority, flags = match(job.fields, PLAIN)
  if fingerprint then
    job.fingerprint, job.lane_no, job.text, job.priority = fingerprint, tonumber(lane_no), ' ' .. text, tonumber(priority)
    job.flags, job.run = E.flags_and_run(flags)
  else
    read_fields(job)
  end
  return job
end

local directories = {}
local function directory(q)
  local d = directories[q.id]
  if not d then
    local ids, text = E.lanes_of(q)
    d = { ids = ids, text = text, labelled = {}, count = { [true] = 0, [false] = 0 } }
    for id, key in gmatch('\n' .. text, '\n(%d+) ([^\n]*)') do
      d.labelled[tonumber(id)] = has_labels(key)
      d.count[has_labels(key)] = d.count[has_labels(key)] + 1
    end
    directories[q.id] = d
  end
  return d
end
local function put_directory(q, d)
  E.hput(META, 'd' .. q.id, d.text)
  E.new_version(q)
end

-- Makes room for a lane, with labels or without, by forgetting one of these that has no jobs; false when there is none.
local function drop_empty_lane(q, d, labelled)
  E.know_lanes(d.ids)
  for i, id in ipairs(d.ids) do
    local l = E.lane(id)
    if d.labelled[id] == labelled and (not l or l.jobs == 0) then
      table.remove(d.ids, i)
      d.count[labelled] = d.count[labelled] - 1
      local before, key, behind = match('\n' .. d.text, '^(.-)\n' .. id .. ' ([^\n]*)(.*)$')
      d.text = sub(before .. behind, 2)
      E.lane_cache[id], E.dirty_lanes[id] = false, nil
      E.hput(META, 'l' .. id, false)
      E.hput(META, 'k' .. q.id .. ' ' .. key, false)
      for _, other in ipairs(call_lanes) do
        if other.id == id then other.id = nil end
      end
      return true
    end
  end
  return false
end

-- Whether the queue of a new job is there and cannot be read, or its plain group cannot. Another queue of this name would hide
-- the jobs of the first. The other jobs of the call go on.
local function is_damaged(job)
  local name = call_lanes[job.lane_no].queue_name
  local q = E.find_queue(name)
  if q then return not E.group(q.plain) end
  return E.queue_ids[name] and true
end

-- The queue and the lane of a new job, made if they are not there; nil and why not.
local function lane_for(job)
  local l = call_lanes[job.lane_no]
  local q = E.queue_for(l.queue_name)
  if l.id and E.lane(l.id) then return q, E.lane(l.id) end
  local d = directory(q)
  local labelled = has_labels(l.key)
  if d.count[labelled] >= LANES_MAX and not drop_empty_lane(q, d, labelled) then
    return nil, (labelled and 'lanes ' or 'kinds ') .. d.count[labelled] + 1
  end
  l.id = E.bump(E.LANE_N)
  local made = { id = l.id, queue = q.id, ready = 0, jobs = 0, head = '0' }
  E.lane_cache[l.id] = made
  E.touch_lane(made)
  d.ids[#d.ids + 1] = l.id
  d.labelled[l.id], d.count[labelled] = labelled, d.count[labelled] + 1
  d.text = (d.text == '' and '' or d.text .. '\n') .. l.id .. ' ' .. l.key
  put_directory(q, d)
  E.hput(META, 'k' .. q.id .. ' ' .. l.key, l.id)
  -- Nobody waits for a lane that was not there.
  E.ring_anybody(q.id, 128)
  return q, made
end

-- Why a queue takes no more: it is at its maximum length, `leaving` jobs making room. That holds off new work; a job of a run is
-- work that has begun.
local function no_room(job, leaving)
  if job.run then return nil end
  local q = E.find_queue(call_lanes[job.lane_no].queue_name)
  local most = q and q.settings.len_max
  if most and q.s + q.r >= most + leaving then return 'full ' .. E.int(most) end
  return nil
end

local function due_time(job)
  if job.due == '-' then return now end
  local delay = match(job.due, '^%+(%d+)$')
  return delay and now + tonumber(delay) or tonumber(job.due)
end

-- New jobs that another part of the call changes, by id: they are created with an object.
E.needs_object = {}
-- Jobs that were created without an object, by lane: what they change besides their own records. The feed shows them in the order
-- of the call, whatever their lanes: in streaks of one queue.
local created, created_by_lane, streaks = {}, {}, {}
local now_hex = ' ' .. fmt('%x', max(now, 0)) .. ' '
local function created_in(q, l)
  local c = created_by_lane[l.id]
  if c then return c end
  c = { queue = q, lane = l, count = 0, head = fmt('1 %x %x ', q.id, l.id), member = E.enc(l.id) .. E.enc(q.plain), sets = {}, ready = {} }
  created_by_lane[l.id], created[#created + 1] = c, c
  return c
end
-- A job becomes ready at this place of a lane.
local function lower_head(l, place)
  if l.ready == 0 or E.is_before(place, l.head) then l.head = place end
end
-- Creates a job that is due now and has neither a group nor a key, in a lane that is there. Does what `create` would do.
local function create_plain(job, q, l)
  local c, row = created_in(q, l), E.hex12(E.bump(E.SEQ))
  local n = c.count + 1
  local place
  if job.priority == 0 and job.flags == '-' then
    place = '80004' .. sub(row, 2)
    -- The next ones of this priority come behind it.
    if not c.is_compared then lower_head(l, place) end
    c.is_compared = true
  else
    place = E.place(job.priority, tonumber(row, 16), match(job.flags, 'l') ~= nil)
    lower_head(l, place)
  end
  l.ready, l.jobs, q.r = l.ready + 1, l.jobs + 1, q.r + 1
  local head = c.head .. row .. now_hex .. job.fingerprint .. job.text .. '\n'
  c.count, c.sets[2 * n - 1], c.sets[2 * n] = n, job.id, head .. job.rest
  c.ready[2 * n - 1], c.ready[2 * n] = 0, c.member .. place .. job.id
  local streak = streaks[#streaks]
  if not streak or streak.queue ~= q.id then
    streak = { queue = q.id, ids = {} }
    streaks[#streaks + 1] = streak
  end
  streak.ids[#streak.ids + 1] = job.id
  E.noted_new(job.id, head)
end
-- Writes down what they change, before anything else is told of.
function E.flush_created()
  local all, in_order = created, streaks
  if #all == 0 then return end
  created, created_by_lane, streaks = {}, {}, {}
  for _, c in ipairs(all) do
    local q, l, n = c.queue, c.lane, c.count
    E.touch_queue(q)
    E.touch_lane(l)
    E.enter_plain(l, q, n)
    local m = E.minute_of(q)
    m[1] = m[1] + n
    E.later('HSET', JOBS, c.sets)
    E.later('ZADD', READY, c.ready)
    E.ring_lane(l.id, n)
  end
  for _, streak in ipairs(in_order) do
    E.note_lines('enqueue - r 0 ' .. streak.queue .. ':' .. concat(streak.ids, ','), streak.queue, #streak.ids)
  end
end

-- Creates a job; answers why not.
local function create(job, behind)
  if job.text then
    local there = call_lanes[job.lane_no]
    local l, q = there.id and E.lane(there.id), E.find_queue(there.queue_name)
    if l and q and l.queue == q.id and not E.needs_object[job.id] and not no_room(job, 0) then return create_plain(job, q, l) end
    read_fields(job)
  end
  E.flush_created()
  local full = no_room(job, behind and 1 or 0)
  if full then return full end
  local q, l = lane_for(job)
  if not q then return l end
  local row, due = E.bump(E.SEQ), due_time(job)
  local j = {
    id = job.id, queue = q.id, lane = l.id, row = row, created = now, ready_at = now, attempt = 0, attempts = job.attempts,
    stalls = 0, stalls_max = job.stalls, retries = 0, cancel = false, flags = job.flags, lifo = match(job.flags, 'l') ~= nil,
    fingerprint = job.fingerprint, key = job.key, mode = job.mode, ttl = job.ttl, group_name = job.group_name,
    priority = job.priority, has_head = true, run = job.run,
  }
  j.ord = E.place(job.priority, row, j.lifo)
  local due_text = '-'
  if behind then
    j.state = 's'
    due_text = due > now and 'h' .. E.int(due) or 'h'
  elseif due <= now then
    j.state = 'r'
  else
    j.state, j.due = 's', due
    due_text = E.int(due)
  end
  j.head_due = due_text
  local keep_s, keep_f = match(job.keep, '^(%S+) (%S+)$')
  j.keep_s, j.keep_f = E.opt(keep_s), E.opt(keep_f)
  if job.key then E.take_key(j, behind) end
  if j.state == 'r' then j.group = job.group_name and E.group_for(j, q, true) or q.plain end
  q[j.state] = q[j.state] + 1
  E.touch_queue(q)
  E.enter_group(j, q)
  l.jobs = l.jobs + 1
  E.touch_lane(l)
  local m = E.minute_of(q)
  m[1] = m[1] + 1
  E.note(j, 'enqueue', nil, j.state)
  if j.state == 's' and j.due then E.sooner(q, j.due) end
  local head = fmt('1 %x %x %012x %x %s', q.id, l.id, row, now, job.fingerprint)
  if due_text ~= '-' or job.priority ~= 0 or job.flags_text ~= '-' or job.attempts ~= 3 or job.stalls ~= 1 then
    head = head .. ' ' .. due_text .. ' ' .. job.priority .. ' ' .. job.flags_text .. ' ' .. job.attempts .. ' ' .. job.stalls .. ' '
      .. (job.key or '-') .. ' ' .. (job.mode or '-') .. ' ' .. job.ttl_text .. ' ' .. job.keep .. ' ' .. job.name_text
  end
  E.hput(JOBS, j.id, head .. '\n' .. job.rest)
  E.index(j, true)
  E.job_cache[j.id] = j
  return nil
end

-- Removes a job whose place another one takes.
local function give_way(id)
  local j = E.readable(id)
  if j then E.remove(j, 'remove') end
end

local there_before = {}
-- Looks which of these jobs are there already.
function E.know_new(ids)
  local found, lives = E.hmget(JOBS, ids, 64), E.hmget(LIFE, ids)
  for i, id in ipairs(ids) do
    -- A life without a record is a damaged job, and its id is taken.
    there_before[id] = found[i] and match(found[i], '^[^\n]*\n') or lives[i] and '?' or nil
  end
end
-- The answer to a job that is there already; nil when it is not.
local function same_job(job)
  local j = E.job_cache[job.id]
  if j == false then return nil end
  local fingerprint
  if j then
    fingerprint = E.head(j) and j.fingerprint
  elseif there_before[job.id] then
    fingerprint = select(5, match(there_before[job.id], E.HEAD)) or false
  end
  if fingerprint == nil then return nil end
  return fingerprint == job.fingerprint and 'existing' or 'duplicate'
end
function E.noted_new(id, head)
  there_before[id] = head
end
function E.is_there(id)
  local j = E.job_cache[id]
  return j or j == nil and there_before[id]
end

-- One job of a call: what became of it.
function E.enqueue_one(job)
  local same = same_job(job)
  if same then return same end
  if is_damaged(job) then return 'damaged' end
  if not job.key then return create(job, nil) or 'created' end
  E.flush_created()
  local verdict, holder, waiting = E.key_verdict(job)
  if verdict == 'free' then return create(job, nil) or 'created' end
  if verdict == 'taken' then return 'deduplicated ' .. holder end
  local leaving = (verdict == 'replaces' or waiting) and 1 or 0
  local full = no_room(job, leaving)
  if full then return full end
  local q, why = lane_for(job)
  if not q then return why end
  if verdict == 'replaces' then
    give_way(holder)
    return create(job, nil) or 'replaced ' .. holder
  end
  if waiting then give_way(waiting) end
  return create(job, holder) or (waiting and 'replaced ' .. waiting or 'held ' .. holder)
end

-- Why each job of an atomic call would be refused; deduplication is not counted in. Nil when none would be.
function E.refusals(jobs)
  local ids, plans, answers, refused = {}, {}, {}, false
  for i, job in ipairs(jobs) do
    local seen, why = ids[job.id], nil
    if seen then
      if seen ~= job.fingerprint then why = 'duplicate' end
    else
      local same = same_job(job)
      if same == 'duplicate' then
        why = same
      elseif not same then
        why = E.refusal(job, plans)
        if not why then ids[job.id] = job.fingerprint end
      end
    end
    refused = refused or why ~= nil
    answers[i] = why or false
  end
  return refused and answers or nil
end
function E.refusal(job, plans)
  if is_damaged(job) then return 'damaged' end
  local l = call_lanes[job.lane_no]
  local known = l.id and E.lane(l.id) and E.lane(l.id).jobs > 0
  if known and job.run then return nil end
  local q = E.find_queue(l.queue_name)
  local plan = plans[l.queue_name]
  if not plan then
    plan = { jobs = 0, lanes = {}, used = { [true] = 0, [false] = 0 } }
    if q then
      local d = directory(q)
      E.know_lanes(d.ids)
      for _, id in ipairs(d.ids) do
        if E.lane(id) and E.lane(id).jobs > 0 then plan.used[d.labelled[id]] = plan.used[d.labelled[id]] + 1 end
      end
    end
    plans[l.queue_name] = plan
  end
  local most = q and q.settings.len_max
  if most and not job.run and q.s + q.r + plan.jobs >= most then return 'full ' .. E.int(most) end
  -- An empty lane counts as none: an earlier job of the call may take its place.
  if not known and not plan.lanes[l.key] then
    plan.lanes[l.key] = true
    local labelled = has_labels(l.key)
    plan.used[labelled] = plan.used[labelled] + 1
    if plan.used[labelled] > LANES_MAX then return (labelled and 'lanes ' or 'kinds ') .. LANES_MAX + 1 end
  end
  plan.jobs = plan.jobs + 1
  return nil
end

-- The quick way of an enqueue: jobs that are due now, without group and dedup key, in lanes that are there. Does what the
-- long way would do, with one read and one write per key and without an object per job.

-- Fields of a job that is due now and says more than the defaults: priority, flags `k` and `l`, attempts and stalls.
local OTHERS = '^(%x+) (%d+) (%- (%-?%d+) ([kl%-]+) %d+ %d+ %- %- %- %S+ %S+ %-)$'
-- Sequence numbers have so many places in an index entry.
local SEQ_MAX = 2 ^ 44

-- The lanes of the call with their queues; nil when one of them is not there, or not as usual.
local function read_lanes(count, meta)
  local ask, queues, lanes = {}, {}, {}
  for i = 1, count do
    local name, id = ARGV[4 + 2 * i], meta[4 + i]
    if not id then return nil end
    ask[i] = 'k' .. id .. ' ' .. ARGV[5 + 2 * i]
    local q = queues[id]
    if not q then
      q = { id = id, name = name, n = 0 }
      queues[id], queues[#queues + 1] = q, q
    end
    lanes[i] = { queue = q, n = 0 }
  end
  for _, q in ipairs(queues) do ask[#ask + 1], ask[#ask + 2] = 'q' .. q.id, 's' .. q.id end
  local found = E.hmget(META, ask)
  local asks, minutes = {}, {}
  local minute = E.int(floor(now / 60000))
  for i, q in ipairs(queues) do
    local text, settings = found[count + 2 * i - 1], found[count + 2 * i]
    -- A maximum length is to be kept. Paused, or with a cap or a rate, the queue may be shut, and nobody is woken for that.
    if not text or settings and not match(settings, '^0 %- %- %- %- ') then return nil end
    local name
    q.s, q.r, q.others, q.vtime, q.plain, q.named, q.minute, q.meter, name =
      match(text, '^(%d+) (%d+) (%d+ %d+ %d+ %d+) (%d+) (%d+) (%d+) (%-?%d+) (%S+) (.+)$')
    -- Damage; the long way looks after it.
    if name ~= q.name then return nil end
    if q.minute == '0' or tonumber(q.minute) > tonumber(minute) then q.minute = minute end
    q.minute_field = q.id .. ':' .. minute
    asks[i], minutes[i] = q.plain, q.minute_field
  end
  ask = {}
  for i = 1, count do
    local id = found[i]
    if not id then return nil end
    lanes[i].id, ask[i] = id, 'l' .. id
    asks[#asks + 1] = 's' .. id .. ':' .. lanes[i].queue.plain
  end
  local texts, groups, counts = E.hmget(META, ask), E.hmget(E.GROUPS, asks), E.hmget(E.MINUTES, minutes)
  for i, q in ipairs(queues) do
    q.g_first, q.g_ready, q.g_active, q.g_vtime, q.g_rest = match(groups[i] or '', '^(%d+ )(%d+)( %d+ )(%d+)( N .+)$')
    if not q.g_first then return nil end
    q.g_ready, q.g_vtime = tonumber(q.g_ready), tonumber(q.g_vtime)
    if q.g_ready == 0 and q.g_vtime < tonumber(q.vtime) then
      -- Whoever was away must not catch up on turns that it did not want; among others this needs a look at the rings.
      if q.named ~= '0' then return nil end
      q.g_vtime = tonumber(q.vtime)
    end
    q.m_first, q.m_rest = match(counts[i] or '0 0 0 0 0 0 0 0 0', '^(%d+)( .+)$')
    if not q.m_first then return nil end
  end
  for i, l in ipairs(lanes) do
    local q = l.queue
    local queue_id
    queue_id, l.ready, l.jobs, l.head = match(texts[i] or '', '^(%d+) (%d+) (%d+) (%x+)$')
    if queue_id ~= q.id then return nil end
    local text = groups[#queues + i]
    if text then
      l.s_ready, l.s_vtime = match(text, '^(%d+) (%d+)$')
      if not l.s_ready then return nil end
    elseif q.g_vtime < tonumber(q.vtime) then
      -- The plain group joins this lane; among others this needs a look at the rings.
      if q.named ~= '0' then return nil end
      l.joins_at = q.vtime
    end
    l.ready = tonumber(l.ready)
    l.level, l.position = E.place_numbers(l.head)
    if l.ready == 0 then l.level = math.huge end
    l.record = fmt('1 %x %x ', q.id, l.id)
    l.member = E.enc(tonumber(l.id)) .. E.enc(tonumber(q.plain))
  end
  return lanes, queues
end

-- Whether one of these jobs is there already, or comes twice.
local function any_known(ids)
  local records, lives, seen = E.hmget(JOBS, ids, 64), E.hmget(LIFE, ids), {}
  for i, id in ipairs(ids) do
    if records[i] or lives[i] or seen[id] then return true end
    seen[id] = true
  end
  return false
end

-- Everything that the new jobs change, in one write per key.
local function write(lanes, queues, meta, seq, sets, ready, count, events)
  local names, counts, groups, minutes, rings = {}, { 'seq', E.int(seq) }, {}, {}, {}
  for i, q in ipairs(queues) do
    names[i] = q.id .. ' ' .. q.name
    counts[#counts + 1], counts[#counts + 2] = 'q' .. q.id, q.s .. ' ' .. q.r + q.n .. ' ' .. q.others .. ' ' .. q.vtime .. ' '
      .. q.plain .. ' ' .. q.named .. ' ' .. q.minute .. ' ' .. q.meter .. ' ' .. q.name
    groups[#groups + 1], groups[#groups + 2] = q.plain, q.g_first .. q.g_ready + q.n .. q.g_active .. E.int(q.g_vtime) .. q.g_rest
    minutes[#minutes + 1], minutes[#minutes + 2] = q.minute_field, q.m_first + q.n .. q.m_rest
  end
  for _, l in ipairs(lanes) do
    if l.n > 0 then
      local q = l.queue
      counts[#counts + 1], counts[#counts + 2] = 'l' .. l.id, q.id .. ' ' .. l.ready + l.n .. ' ' .. l.jobs + l.n .. ' ' .. l.head
      local vtime = l.s_vtime or l.joins_at or E.int(q.g_vtime)
      groups[#groups + 1], groups[#groups + 2] = 's' .. l.id .. ':' .. q.plain, (l.s_ready or 0) + l.n .. ' ' .. vtime
      if not l.s_ready then
        rings[#rings + 1] = 0
        rings[#rings + 1] = E.enc(tonumber(l.id)) .. fmt('%016x', vtime) .. E.enc(tonumber(q.plain))
      end
    end
  end
  local cursor, total = (meta[3] or 0) + 1, (meta[4] or 0) + count
  counts[#counts + 1], counts[#counts + 2], counts[#counts + 3], counts[#counts + 4] = 'feed', E.int(cursor), 'events', E.int(total)
  E.many('HSET', JOBS, sets)
  E.zadd(READY, ready)
  E.many('HSET', META, counts)
  E.many('HSET', E.GROUPS, groups)
  E.many('HSET', E.MINUTES, minutes)
  if #rings > 0 then E.zadd(E.RING, rings) end
  E.add_feed(cursor, total, count, concat(names, '\n'), events)
end

-- Wakes those who wait for the lanes.
local function ring(lanes)
  if call('ZCARD', E.BELLS) == 0 then return end
  for _, l in ipairs(lanes) do
    if l.n > 0 then E.wake_lane(l.queue.name, l.id, min(l.n, l.ready + l.n, 8)) end
  end
end

-- The jobs of the call, by list: ids, lanes, what their records end with, and priority and flags where they are no defaults.
local function read_jobs(at, count)
  local ids, lanes, texts, others = {}, {}, {}, {}
  local i = 0
  -- ends because: every round reads a job
  while i < count do
    if ARGV[at + 1] == 'P' then
      local lane, n = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
      at = at + 3
      for k = i + 1, i + n do
        ids[k], lanes[k], texts[k] = ARGV[at + 1], lane, ARGV[at + 2]
        at = at + 2
      end
      i = i + n
    else
      local fingerprint, lane, rest, priority, flags = match(ARGV[at + 3], OTHERS)
      if not fingerprint then return nil end
      i = i + 1
      ids[i], lanes[i], texts[i] = ARGV[at + 2], tonumber(lane), fingerprint .. ' ' .. rest .. '\n' .. ARGV[at + 4]
      others[i] = { priority = tonumber(priority), lifo = match(flags, 'l') }
      at = at + 4
    end
  end
  return ids, lanes, texts, others
end

-- Accepts the jobs of the call; nil, and nothing has changed, when one of them is not of this kind.
function E.enqueue_quick()
  local lane_count = ARGV[4] == '0' and tonumber(ARGV[5])
  if not lane_count then return nil end
  local at = 6 + 2 * lane_count
  local count, ask = tonumber(ARGV[at]), { 'layout', 'seq', 'feed', 'events' }
  if count == 0 then return nil end
  local ids, numbers, texts, others = read_jobs(at, count)
  if not ids then return nil end
  for i = 1, lane_count do ask[4 + i] = 'Q' .. ARGV[4 + 2 * i] end
  local meta = E.hmget(META, ask)
  if tonumber(meta[1] or nil) ~= E.LAYOUT then return nil end
  local lanes, queues = read_lanes(lane_count, meta)
  local seq = tonumber(meta[2] or 0)
  if not lanes or seq + count >= SEQ_MAX or any_known(ids) then return nil end
  local now_hex, sets, ready = ' ' .. fmt('%x', max(now, 0)) .. ' ', {}, {}
  local lines, queue, from, number, l, record, member = {}, nil, 1, nil, nil, nil, nil
  for i = 1, count do
    if numbers[i] ~= number then
      number = numbers[i]
      l = lanes[number]
      record, member = l.record, l.member
      if l.queue ~= queue then
        if queue then lines[#lines + 1] = 'enqueue - r 0 ' .. queue.id .. ':' .. concat(ids, ',', from, i - 1) end
        queue, from = l.queue, i
      end
    end
    seq = seq + 1
    local row, other = fmt('%012x', seq), others[i]
    local placed, level, position = nil, 32768, E.MIDDLE + seq
    if other then
      level, position = other.priority + 32768, other.lifo and E.MIDDLE - seq or position
      placed = fmt('%04x%012x', level, position)
    else
      placed = '80004' .. sub(row, 2)
    end
    if level < l.level or level == l.level and position < l.position then
      l.level, l.position, l.head = level, position, placed
    end
    l.n, queue.n = l.n + 1, queue.n + 1
    local id = ids[i]
    sets[2 * i - 1], sets[2 * i] = id, record .. row .. now_hex .. texts[i]
    ready[2 * i - 1], ready[2 * i] = 0, member .. placed .. id
  end
  lines[#lines + 1] = 'enqueue - r 0 ' .. queue.id .. ':' .. concat(ids, ',', from, count)
  write(lanes, queues, meta, seq, sets, ready, count, concat(lines, '\n'))
  ring(lanes)
  return { 'all' }
end

-- What the doctor looks at: all counters, or one page of a container beside what belongs to it. Changes nothing, and sees
-- its page in one atomic step, so that a job on its way from one state to the next is never taken for a lost one.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; what to look at, cursor, entries of a page, bytes of a large record
-- Answers `counts`: numbers of the store, then of each queue; else the next cursor, entries seen, when the oldest unended job
--         of the page was made, then lists of what is wrong, its name first
-- Bounds  the page; of counts 1,000 queues and 10,000 lanes

local what, cursor, count, large = E.arg(), E.arg(), E.num(), E.num()
local QUEUES_MAX, LANES_MAX = 1000, 10000
local found = {}
local function say(...) found[#found + 1] = { ... } end

-- Where a job must stand: index and member; nil and what is missing.
local function stands(j)
  local q = E.queue(j.queue)
  if not q then return nil, 'queue' end
  if not E.lane(j.lane) then return nil, 'lane' end
  if j.state == 'a' then return E.LEASES, E.hex12(j.row) .. j.id end
  if j.state == 's' then return E.SCHED, E.sched_member(j) end
  if j.state ~= 'r' then return E.ENDED, E.ended_member(j) end
  if not j.group then
    -- One that nobody has touched does not know its group's number.
    local named = E.has_flag(j, 'g') and E.head(j) and j.group_name
    local g = named and E.find_group(q.id, named)
    j.group = named and (g and g.id) or not named and q.plain or nil
  end
  if not j.group then return nil, 'group' end
  return READY, E.ready_member(j)
end

local function id_of(key, member)
  local from = 13
  if key == READY then
    local _, group_at = E.dec(member, 1)
    local _, place_at = E.dec(member, group_at)
    from = place_at + 16
  elseif key ~= E.LEASES then
    local _, behind = E.dec(member, 1)
    local _, id_at = E.dec(member, behind + (key == E.ENDED and 26 or 24))
    from = id_at
  end
  return sub(member, from)
end

local oldest
local function check_job(id)
  local j = E.peek(id)
  if not j then return end
  if j.broken then return say('broken', id, j.broken) end
  -- Set aside already, and shown as such.
  if E.has_flag(j, 'q') then return end
  if j.state == 'r' or j.state == 's' or j.state == 'a' then oldest = min(oldest or j.created, j.created) end
  local key, member = stands(j)
  if not key then
    say('lost', id, j.state, 'its ' .. member .. ' is gone')
  elseif not call('ZSCORE', key, member) then
    say('lost', id, j.state, 'it is in no index')
  end
end

local function look_at_jobs()
  local page = call('HSCAN', JOBS, cursor, 'COUNT', count)
  local ids = {}
  for i = 1, #page[2], 2 do
    ids[#ids + 1] = page[2][i]
    if #page[2][i + 1] > large then say('large', page[2][i], #page[2][i + 1]) end
  end
  E.know(ids)
  for _, id in ipairs(ids) do check_job(id) end
  return page[1], #ids
end

-- Lives whose record is gone: no scan of the records finds them.
local function look_at_lives()
  local page = call('HSCAN', LIFE, cursor, 'COUNT', count)
  for i = 1, #page[2], 2 do
    local id, flags = page[2][i], match(page[2][i + 1], '(%S+) %S+ %S*$')
    if call('HEXISTS', JOBS, id) == 0 and not match(flags or '', 'q') then say('broken', id, 'its record is gone') end
  end
  return page[1], #page[2] / 2
end

local function look_at_index(key)
  local page = call('ZSCAN', key, cursor, 'COUNT', count)
  local members, ids = {}, {}
  for i = 1, #page[2], 2 do
    local ok, id = pcall(id_of, key, page[2][i])
    if ok and id ~= '' then
      members[#members + 1], ids[#ids + 1] = page[2][i], id
    else
      say('stray', page[2][i], 'it cannot be read')
    end
  end
  E.know(ids)
  for i, id in ipairs(ids) do
    local j = E.peek(id)
    if not j then
      say('stray', id, 'there is no such job')
    elseif not j.broken then
      local where, member = stands(j)
      if where ~= key or member ~= members[i] then say('stray', id, 'its job is elsewhere, as ' .. j.state) end
    end
  end
  return page[1], #page[2] / 2
end

-- Runs by the list of all: those that cannot be read, and those that stand where nobody finds them.
local function look_at_runs()
  local page = call('ZSCAN', E.RUN_LIST, cursor, 'COUNT', count)
  local ids = {}
  for i = 1, #page[2], 2 do ids[#ids + 1] = sub(page[2][i], 14) end
  E.know_runs(ids)
  for i = 1, #page[2], 2 do
    local list, seq, id = match(page[2][i], '^([*RSFCTE])(%x%x%x%x%x%x%x%x%x%x%x%x)(.+)$')
    local r = id and E.run(id)
    if not r then
      say('run', id or page[2][i], 'there is no such run')
    elseif r.broken then
      if list == '*' then say('run', id, 'it cannot be read') end
    elseif seq ~= r.seq or list ~= '*' and list ~= r.state then
      say('run', id, 'it is listed where it is not')
    elseif list == '*' and r.at_ready and not call('ZSCORE', E.RUN_READY, r.at_ready) then
      say('run', id, 'it has something to do, and no engine will find it')
    elseif list == '*' and r.at_look and not call('ZSCORE', E.RUN_WAKE, id) then
      say('run', id, 'nothing will wake it')
    end
  end
  return page[1], #page[2] / 2
end

local function ready_in(lane_id, group_id)
  local prefix = E.enc(lane_id) .. (group_id and E.enc(group_id) or '')
  return call('ZLEXCOUNT', READY, '[' .. prefix, E.after_all(prefix))
end

local function check_group(id)
  local g = E.group(id)
  if not g then return say('group', id, 'it cannot be read') end
  if not E.queue(g.queue) then return say('group', g.name or id, 'its queue is gone') end
  if not g.name then return end
  local ready = 0
  for l in pairs(g.lanes) do ready = ready + ready_in(l, id) end
  if ready ~= g.ready then
    say('group', g.name, 'it counts ' .. g.ready .. ' ready jobs and has ' .. ready)
  elseif g.ready == 0 and g.active == 0 and not (g.cap or g.rate or g.weight or g.wake) then
    say('group', g.name, 'it has no jobs, no settings and nothing to wait for')
  end
end

local function look_at_groups()
  local page = call('HSCAN', E.GROUPS, cursor, 'COUNT', count)
  for i = 1, #page[2], 2 do
    local field = page[2][i]
    if match(field, '^%d+$') then
      check_group(tonumber(field))
    elseif sub(field, 1, 1) == 'n' and call('HEXISTS', E.GROUPS, page[2][i + 1]) == 0 then
      say('group', field, 'the name of a group that is gone')
    end
  end
  return page[1], #page[2] / 2
end

local function count_queue(q, lane_ids)
  local ready = 0
  for _, id in ipairs(lane_ids) do ready = ready + ready_in(id) end
  local prefix = E.enc(q.id)
  local row = { q.name, E.int(q.s), E.int(q.r), E.int(q.a), E.int(q.S), E.int(q.F), E.int(q.C),
    call('ZLEXCOUNT', E.SCHED, '[' .. prefix, E.after_all(prefix)), ready }
  for _, state in ipairs({ 'S', 'F', 'C' }) do
    row[#row + 1] = call('ZLEXCOUNT', E.ENDED, '[' .. prefix .. state, E.after_all(prefix .. state))
  end
  for _, state in ipairs({ 'S', 'F', 'C' }) do
    -- The oldest of those that retention speaks of; others say themselves how long they are kept.
    local own = prefix .. state .. '0'
    local first = E.lex(E.ENDED, '[' .. own, E.after_all(own), 1)[1]
    row[#row + 1] = first and E.int(tonumber(sub(first, #own + 1, #own + 12), 16)) or '-'
  end
  return row
end

local function look_at_counts()
  local ended_late = now - 300000
  local first = call('ZRANGEBYSCORE', E.LEASES, '-inf', ended_late, 'WITHSCORES', 'LIMIT', 0, 1)
  local answer = { E.int(now), call('HLEN', JOBS), call('ZCARD', READY), call('ZCARD', E.SCHED), call('ZCARD', E.LEASES),
    call('ZCARD', E.ENDED), call('ZCOUNT', E.LEASES, '-inf', ended_late), first[2] or '-', 0 }
  local lanes = 0
  for i, q in ipairs(E.all_queues()) do
    local ids = E.lanes_of(q)
    lanes = lanes + #ids
    if i > QUEUES_MAX or lanes > LANES_MAX then
      answer[9] = 1
      break
    end
    answer[#answer + 1] = count_queue(q, ids)
  end
  return answer
end

if what == 'counts' then return look_at_counts() end
local next_cursor, seen
if what == 'jobs' then
  next_cursor, seen = look_at_jobs()
elseif what == 'lives' then
  next_cursor, seen = look_at_lives()
elseif what == 'groups' then
  next_cursor, seen = look_at_groups()
elseif what == 'runs' then
  next_cursor, seen = look_at_runs()
else
  next_cursor, seen = look_at_index(({ ready = READY, scheduled = E.SCHED, leases = E.LEASES, ended = E.ENDED })[what])
end
local answer = { next_cursor, seen, oldest and E.int(oldest) or '-' }
for _, one in ipairs(found) do answer[#answer + 1] = one end
return answer

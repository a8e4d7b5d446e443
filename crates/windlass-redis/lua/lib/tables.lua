-- Queues, lanes, groups and minutes: plain records, read once per step and written at its end.
--
-- META    Q<name>          number of a queue
--         q<queue>         counts of the six states, virtual time, plain group, named groups with ready jobs,
--                          oldest minute, meter, name
--         s<queue>         paused, cap, rate, maximum length, defaults of groups; then the settings as JSON
--         d<queue>         its lanes, one per line: number, kind and labels
--         v<queue>         version of its lanes and settings, which claims are planned by
--         k<queue> <lane>  number of the lane with this kind and these labels
--         l<lane>          queue, ready jobs, jobs, head
-- GROUPS  <group>          queue, ready, active, virtual time, parked, wake time, settings (behind the cap may stand `/` and the cap that jobs of
--                          runs have set), meter, lanes, name
--         n<queue> <name>  number of a group
--         s<lane>:<group>  ready jobs of a group in a lane, and its place in the ring

E.queue_cache, E.lane_cache, E.group_cache, E.sub_cache, E.minute_cache, E.queue_ids = {}, {}, {}, {}, {}, {}
E.dirty_queues, E.dirty_lanes, E.dirty_groups, E.dirty_minutes = {}, {}, {}, {}

-- Sorts a list of numbers; for one of texts see `E.is_before`.
function E.sort_numbers(list)
  -- compares numbers
  table.sort(list)
end
-- The first `most` texts of two lists that are in the order of their bytes, or backwards; compared from the `at`-th byte on.
function E.merge(one, other, most, backwards, at)
  local merged, i, k = {}, 1, 1
  for n = 1, min(most, #one + #other) do
    local a, b = one[i], other[k]
    local first = not b or a and E.is_before(sub(a, at or 1), sub(b, at or 1)) ~= backwards
    if first then
      merged[n], i = a, i + 1
    else
      merged[n], k = b, k + 1
    end
  end
  return merged
end

-- Meters: a list of times and counts, oldest first.
function E.meter_of(text)
  local m = {}
  if text ~= '-' then
    for t, n in gmatch(text, '(%-?%d+):(%d+)') do
      m[#m + 1] = tonumber(t)
      m[#m + 1] = tonumber(n)
    end
  end
  return m
end
function E.meter_text(m)
  if #m == 0 then return '-' end
  local parts = {}
  for i = 1, #m, 2 do parts[#parts + 1] = E.int(m[i]) .. ':' .. m[i + 1] end
  return concat(parts, ',')
end
function E.meter_room(m, limit, per)
  local edge, used = now - per, 0
  for i = 1, #m, 2 do
    if m[i] > edge then used = used + m[i + 1] end
  end
  return max(limit - used, 0)
end
function E.meter_take(m, limit, per, n)
  if n == 0 then return end
  local edge = now - per
  -- ends because: every round takes a start away
  while m[1] and m[1] <= edge do
    table.remove(m, 1)
    table.remove(m, 1)
  end
  local t = now
  if limit > 100 then
    local width = max(floor(per / 16) + (per % 16 ~= 0 and 1 or 0), 1)
    t = floor(now / width) * width + width - 1
  end
  local last = #m
  -- compares numbers
  if last > 0 and m[last - 1] >= t then
    m[last] = m[last] + n
  else
    m[last + 1], m[last + 2] = t, n
  end
end
-- When one more may start; nil when that is now.
function E.meter_next(m, limit, per)
  if E.meter_room(m, limit, per) > 0 then return nil end
  local over = 0
  for i = 2, #m, 2 do over = over + m[i] end
  for i = 1, #m, 2 do
    over = over - m[i + 1]
    if over < limit then return m[i] + per end
  end
  return nil
end
function E.meter_idle(m, per)
  return #m == 0 or m[#m - 1] <= now - per
end

-- Queues.
function E.read_settings(q, text)
  local s = {}
  if text then
    local paused, cap, rl, rp, len, gcap, grl, grp, gw =
      match(text, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
    s.paused = paused == '1'
    s.cap, s.rate, s.per, s.len_max = E.opt(cap), E.opt(rl), E.opt(rp), E.opt(len)
    s.g_cap, s.g_rate, s.g_per, s.g_weight = E.opt(gcap), E.opt(grl), E.opt(grp), E.opt(gw)
  end
  q.settings = s
end
function E.read_queue(id, text, settings)
  if not text then return nil end
  local a, b, c, d, e, f, vtime, plain, named, minute, meter, name =
    match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%-?%d+) (%S+) (.+)$')
  if not a then return nil end
  local q = {
    id = id, name = name, vtime = tonumber(vtime), plain = tonumber(plain), named = tonumber(named),
    minute = tonumber(minute), meter = E.meter_of(meter),
    s = tonumber(a), r = tonumber(b), a = tonumber(c), S = tonumber(d), F = tonumber(e), C = tonumber(f),
  }
  E.read_settings(q, settings)
  return q
end
-- A queue by number; nil when it is not there.
function E.queue(id)
  local q = E.queue_cache[id]
  if q == nil then
    local r = call('HMGET', META, 'q' .. id, 's' .. id)
    q = E.read_queue(id, r[1], r[2]) or false
    E.queue_cache[id] = q
  end
  return q or nil
end
function E.touch_queue(q)
  E.dirty_queues[q.id] = q
end
-- The numbers of queues by name: read together, for one round of reads is dearer than one more name.
function E.know_queues(names)
  local ask = {}
  for _, name in ipairs(names) do
    if E.queue_ids[name] == nil then ask[#ask + 1] = 'Q' .. name end
  end
  local found = E.hmget(META, ask)
  for i = 1, #ask do E.queue_ids[sub(ask[i], 2)] = tonumber(found[i] or nil) or false end
end
function E.find_queue(name)
  if E.queue_ids[name] == nil then E.know_queues({ name }) end
  local id = E.queue_ids[name]
  local q = id and E.queue(id)
  return q and q.name == name and q or nil
end
function E.write_queue(q)
  E.hput(META, 'q' .. q.id, q.s .. ' ' .. q.r .. ' ' .. q.a .. ' ' .. q.S .. ' ' .. q.F .. ' ' .. q.C .. ' ' .. E.int(q.vtime)
    .. ' ' .. q.plain .. ' ' .. q.named .. ' ' .. E.int(q.minute) .. ' ' .. E.meter_text(q.meter) .. ' ' .. q.name)
end
-- All queues, in the order in which they came.
function E.all_queues()
  local text = call('HGET', META, 'queues') or ''
  local ids, ask = {}, {}
  for id in gmatch(text, '%d+') do
    ids[#ids + 1] = tonumber(id)
    ask[#ask + 1], ask[#ask + 2] = 'q' .. id, 's' .. id
  end
  local r = E.hmget(META, ask)
  local found = {}
  for i, id in ipairs(ids) do
    if E.queue_cache[id] == nil then E.queue_cache[id] = E.read_queue(id, r[2 * i - 1], r[2 * i]) or false end
    if E.queue_cache[id] then found[#found + 1] = E.queue_cache[id] end
  end
  return found
end

-- Lanes.
function E.read_lane(id, text)
  local queue_id, ready, jobs, head = match(text or '', '^(%d+) (%d+) (%d+) (%x+)$')
  if not queue_id then return nil end
  return { id = id, queue = tonumber(queue_id), ready = tonumber(ready), jobs = tonumber(jobs), head = head }
end
function E.know_lanes(ids)
  local ask, want = {}, {}
  for _, id in ipairs(ids) do
    if E.lane_cache[id] == nil then
      E.lane_cache[id] = false
      ask[#ask + 1] = 'l' .. id
      want[#want + 1] = id
    end
  end
  local found = E.hmget(META, ask)
  for i, id in ipairs(want) do E.lane_cache[id] = E.read_lane(id, found[i]) or false end
end
function E.lane(id)
  if E.lane_cache[id] == nil then E.know_lanes({ id }) end
  return E.lane_cache[id] or nil
end
function E.touch_lane(l)
  E.dirty_lanes[l.id] = l
end
-- The lanes of a queue, in the order in which they came, and the text that lists them.
function E.lanes_of(q)
  local text = call('HGET', META, 'd' .. q.id) or ''
  local ids = {}
  for id in gmatch('\n' .. text, '\n(%d+) ') do ids[#ids + 1] = tonumber(id) end
  return ids, text
end

-- Groups.
function E.read_group(id, text)
  -- Most are neither parked nor limited by settings of their own.
  local queue_id, ready, active, vtime, lanes, name = match(text or '', '^(%d+) (%d+) (%d+) (%d+) N %- %- %- %- %- %- (%S+) (.+)$')
  local g
  if queue_id then
    g = { id = id, queue = tonumber(queue_id), parked = 'N', meter = {} }
  else
    local parked, wake, cap, rate, per, weight, meter
    queue_id, ready, active, vtime, parked, wake, cap, rate, per, weight, meter, lanes, name =
      match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%u) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (.+)$')
    if not queue_id then return nil end
    -- Behind a slash stands the cap that jobs of runs have set.
    local own, run_cap = match(cap, '^([^/]+)/(%d+)$')
    g = {
      id = id, queue = tonumber(queue_id), parked = parked, wake = E.opt(wake), cap = E.opt(own or cap), run_cap = tonumber(run_cap),
      rate = E.opt(rate), per = E.opt(per), weight = E.opt(weight), meter = E.meter_of(meter),
    }
  end
  g.ready, g.active, g.vtime, g.name = tonumber(ready), tonumber(active), tonumber(vtime), name ~= '-' and sub(name, 2) or nil
  g.lanes, g.lanes_text = {}, lanes
  if lanes ~= '-' then
    for l in gmatch(lanes, '%d+') do g.lanes[tonumber(l)] = true end
  end
  return g
end
function E.know_groups(ids)
  local ask, want = {}, {}
  for _, id in ipairs(ids) do
    if E.group_cache[id] == nil then
      E.group_cache[id] = false
      ask[#ask + 1] = id
      want[#want + 1] = id
    end
  end
  local found = E.hmget(E.GROUPS, ask)
  for i, id in ipairs(want) do E.group_cache[id] = E.read_group(id, found[i]) or false end
end
function E.group(id)
  if E.group_cache[id] == nil then E.know_groups({ id }) end
  return E.group_cache[id] or nil
end
function E.touch_group(g)
  E.dirty_groups[g.id] = g
end
function E.lanes_of_group(g)
  local ids = {}
  for l in pairs(g.lanes) do ids[#ids + 1] = l end
  E.sort_numbers(ids)
  return ids
end
function E.write_group(g)
  if not g.lanes_text then
    local lanes = E.lanes_of_group(g)
    g.lanes_text = #lanes > 0 and concat(lanes, ',') or '-'
  end
  local settings = ' N - - - - - - '
  if g.parked ~= 'N' or g.wake or g.cap or g.run_cap or g.rate or g.weight or g.meter[1] then
    settings = ' ' .. g.parked .. ' ' .. (g.wake and E.int(g.wake) or '-') .. ' ' .. E.or_dash(g.cap)
      .. (g.run_cap and '/' .. E.int(g.run_cap) or '') .. ' ' .. E.or_dash(g.rate) .. ' '
      .. E.or_dash(g.per) .. ' ' .. E.or_dash(g.weight) .. ' ' .. E.meter_text(g.meter) .. ' '
  end
  E.hput(E.GROUPS, g.id, g.queue .. ' ' .. g.ready .. ' ' .. g.active .. ' ' .. E.int(g.vtime) .. settings .. g.lanes_text
    .. (g.name and ' +' .. g.name or ' -'))
end
E.group_ids = {}
-- The numbers of named groups, read together: fields `n<queue> <name>`.
function E.know_group_ids(fields)
  local ask = {}
  for _, field in ipairs(fields) do
    if E.group_ids[field] == nil then
      E.group_ids[field] = false
      ask[#ask + 1] = field
    end
  end
  local found = E.hmget(E.GROUPS, ask)
  local ids = {}
  for i, field in ipairs(ask) do
    local id = tonumber(found[i] or nil)
    E.group_ids[field] = id or false
    if id then ids[#ids + 1] = id end
  end
  E.know_groups(ids)
end
function E.find_group(queue_id, name)
  local field = 'n' .. queue_id .. ' ' .. name
  if E.group_ids[field] == nil then E.know_group_ids({ field }) end
  local id = E.group_ids[field]
  return id and E.group(id) or nil
end
function E.make_group(queue_id, name)
  local g = {
    id = E.bump(E.GROUP_N), queue = queue_id, ready = 0, active = 0, vtime = 0, parked = 'N', meter = {}, lanes = {}, name = name,
  }
  E.group_cache[g.id] = g
  if name then
    local field = 'n' .. queue_id .. ' ' .. name
    E.group_ids[field] = g.id
    E.hput(E.GROUPS, field, g.id)
    E.zput(E.GNAMES, E.enc(queue_id) .. name .. '\n' .. g.id, 0)
  end
  E.touch_group(g)
  return g
end
function E.remove_group(g)
  local field = 'n' .. g.queue .. ' ' .. g.name
  if g.wake then E.zput(E.WAKE, E.enc(g.queue) .. E.hex12(g.wake) .. E.enc(g.id), false) end
  if g.parked ~= 'N' then E.zput(E.PARKED, E.enc(g.queue) .. E.enc(g.id), false) end
  E.group_ids[field], E.group_cache[g.id], E.dirty_groups[g.id] = false, false, nil
  E.hput(E.GROUPS, field, false)
  E.hput(E.GROUPS, g.id, false)
  E.zput(E.GNAMES, E.enc(g.queue) .. g.name .. '\n' .. g.id, false)
end
-- Changes whether a group is out of the ring, and when to look at it again.
function E.park_group(g, parked, wake)
  if g.wake ~= wake then
    if g.wake then E.zput(E.WAKE, E.enc(g.queue) .. E.hex12(g.wake) .. E.enc(g.id), false) end
    if wake then E.zput(E.WAKE, E.enc(g.queue) .. E.hex12(wake) .. E.enc(g.id), 0) end
  end
  if (g.parked == 'N') ~= (parked == 'N') then
    E.zput(E.PARKED, E.enc(g.queue) .. E.enc(g.id), parked ~= 'N' and 0 or false)
  end
  g.parked, g.wake = parked, wake
  E.touch_group(g)
end

-- The jobs of one group in one lane: by lane, then by group.
local function sub_of_text(field, text)
  local ready, vtime = match(text or '', '^(%d+) (%S+)$')
  if not ready then return { field = field, ready = 0 } end
  return { field = field, ready = tonumber(ready), vtime = E.opt(vtime) }
end
-- Loads those of lanes and groups, pair by pair.
function E.know_subs(lanes, groups)
  local ask, ask_lane, ask_group = {}, {}, {}
  for i, lane_id in ipairs(lanes) do
    local known = E.sub_cache[lane_id]
    if not known or not known[groups[i]] then
      local n = #ask + 1
      ask[n], ask_lane[n], ask_group[n] = 's' .. lane_id .. ':' .. groups[i], lane_id, groups[i]
    end
  end
  local found = E.hmget(E.GROUPS, ask)
  for i, field in ipairs(ask) do
    local known = E.sub_cache[ask_lane[i]]
    if not known then
      known = {}
      E.sub_cache[ask_lane[i]] = known
    end
    known[ask_group[i]] = sub_of_text(field, found[i])
  end
end
function E.sub_of(lane_id, group_id)
  local known = E.sub_cache[lane_id]
  if not known or not known[group_id] then
    E.know_subs({ lane_id }, { group_id })
    known = E.sub_cache[lane_id]
  end
  return known[group_id]
end
function E.ring_member(lane_id, vtime, group_id)
  return E.enc(lane_id) .. fmt('%016x', vtime) .. E.enc(group_id)
end
-- Changes it; one with nothing ready is removed.
function E.put_sub(lane_id, g, ready, vtime)
  local s = E.sub_of(lane_id, g.id)
  local was_in, is_in = s.ready > 0 and s.vtime or nil, ready > 0 and vtime or nil
  if was_in ~= is_in then
    if was_in then E.zput(E.RING, E.ring_member(lane_id, was_in, g.id), false) end
    if is_in then E.zput(E.RING, E.ring_member(lane_id, is_in, g.id), 0) end
  end
  if (s.ready > 0) ~= (ready > 0) and g.name then
    g.lanes[lane_id], g.lanes_text = ready > 0 or nil, nil
    E.touch_group(g)
  end
  if ready > 0 then
    s.ready, s.vtime = ready, vtime
  else
    s.ready, s.vtime = 0, nil
  end
  -- Its text is made at the end of the step.
  E.hput(E.GROUPS, s.field, s)
end
-- The ring of a lane beyond an entry: virtual times, groups and entries. What is damaged is of group 0, which is none.
function E.ring_of(lane_id, after, limit)
  local prefix = E.enc(lane_id)
  local places = E.lex(E.RING, after and '(' .. after or '[' .. prefix, E.after_all(prefix), limit)
  local found, start = {}, #prefix + 1
  for i, member in ipairs(places) do
    local vtime, id = tonumber(sub(member, start, start + 15), 16), E.dec(member, start + 16)
    found[i] = { vtime or 0, vtime and id or 0, member }
  end
  return found
end

-- Minutes: enqueued, claimed, succeeded, failed, cancelled, retried, stalled, waited, ran.
function E.minute_of(q)
  local number = floor(now / 60000)
  local field = q.id .. ':' .. E.int(number)
  local m = E.minute_cache[field]
  if not m then
    m = { 0, 0, 0, 0, 0, 0, 0, 0, 0 }
    local i = 0
    for n in gmatch(call('HGET', E.MINUTES, field) or '', '%d+') do
      i = i + 1
      m[i] = tonumber(n)
    end
    E.minute_cache[field] = m
    E.dirty_minutes[field] = m
    if q.minute == 0 or number < q.minute then
      q.minute = number
      E.touch_queue(q)
    end
  end
  return m
end
function E.write_minute(field, m)
  for i = 1, 9 do m[i] = E.int(m[i]) end
  E.hput(E.MINUTES, field, concat(m, ' '))
end

-- Which ready jobs come next: fair turns between groups, priority and sequence within one.
--
-- Each lane has a ring of groups, ordered by virtual time. In a claim, the virtual time of a group is the latest one of its
-- own and those of its places in the rings of the claim's lanes, so no ring of the claim shows a later one. So: take groups
-- from the rings in ring order, put each with its virtual time into a heap, and serve the heap's first group as soon as no
-- ring can still hold an earlier one. Rings are read in chunks, so that a claim of n jobs reads O(n) of them, however many
-- groups there are.

local TURN = E.TURN

-- A heap of pairs of numbers, the smallest first.
local function before(a, b)
  -- compares numbers
  if a[1] ~= b[1] then return a[1] < b[1] end
  -- compares numbers
  return a[2] < b[2]
end
local function push(heap, item)
  local i = #heap + 1
  heap[i] = item
  -- ends because: `i` is halved
  while i > 1 do
    local up = floor(i / 2)
    if not before(heap[i], heap[up]) then return end
    heap[i], heap[up] = heap[up], heap[i]
    i = up
  end
end
local function pop(heap)
  local n = #heap
  local first = heap[1]
  if n <= 1 then
    heap[1] = nil
    return first
  end
  heap[1], heap[n] = heap[n], nil
  n = n - 1
  local i = 1
  -- ends because: `i` goes down the heap
  while true do
    local least, left = i, 2 * i
    if left <= n and before(heap[left], heap[least]) then least = left end
    if left < n and before(heap[left + 1], heap[least]) then least = left + 1 end
    if least == i then return first end
    heap[i], heap[least] = heap[least], heap[i]
    i = least
  end
end

-- An item of the heap of a group's lanes: the place of a lane's next job, and which of them it is.
local function place_item(place, head)
  local level, position = E.place_numbers(place)
  return { level, position, head = head }
end

-- Ready jobs of a group in a lane beyond a place: places and members.
local function ready_of(lane_id, group_id, after, limit)
  local prefix = E.enc(lane_id) .. E.enc(group_id)
  local members = E.lex(READY, after and E.after_all(prefix .. after) or '[' .. prefix, E.after_all(prefix), limit)
  local start = #prefix + 1
  local orders = {}
  for i, member in ipairs(members) do orders[i] = sub(member, start, start + 15) end
  return orders, members, start + 16
end

-- No job of a head that was not taken stands before this place; nil when there is none.
local function bound_of(head)
  local ord = head.orders[head.first]
  if ord then return ord end
  if not head.more or not head.read_to then return nil end
  local last = tonumber(sub(head.read_to, 5), 16)
  -- A damaged place is as good a bound: what was read is behind it.
  return last and sub(head.read_to, 1, 4) .. fmt('%012x', last + 1) or head.read_to
end

-- The lanes of a claim in which a group has ready jobs.
local function lanes_of(choice, g)
  if choice.only_plain or #choice.lanes == 1 then return choice.lanes end
  local mine = {}
  if not g.name then
    local groups = {}
    for i = 1, #choice.lanes do groups[i] = g.id end
    E.know_subs(choice.lanes, groups)
  end
  for _, id in ipairs(choice.lanes) do
    local there
    if g.name then there = g.lanes[id] else there = E.sub_of(id, g.id).ready > 0 end
    if there then mine[#mine + 1] = id end
  end
  return mine
end

-- The virtual time of a group that was found in a ring and has ready jobs in these lanes of the claim.
local function vtime_in(choice, g, ring_vtime, mine)
  if choice.only_plain then return g.vtime end
  local latest = max(g.vtime, ring_vtime)
  if #choice.lanes > 1 then
    for _, id in ipairs(mine) do latest = max(latest, E.sub_of(id, g.id).vtime or 0) end
  end
  return latest
end

-- Loads what `vtime_in` reads of groups, if there are several lanes.
local function know_places(choice, ids)
  if #choice.lanes == 1 then return end
  local lanes, groups = {}, {}
  for _, group_id in ipairs(ids) do
    local g = E.group(group_id)
    if g and g.name and not choice.groups[group_id] then
      for _, lane_id in ipairs(choice.lanes) do
        if g.lanes[lane_id] then lanes[#lanes + 1], groups[#groups + 1] = lane_id, group_id end
      end
    end
  end
  E.know_subs(lanes, groups)
end

-- A group was found in a ring.
local function meet(choice, lane_id, ring_vtime, g)
  local served = choice.groups[g.id]
  if served then
    if ring_vtime < served[1] then served.stale[#served.stale + 1] = lane_id end
    return
  end
  -- Its limits may have been lowered since it took its place.
  E.review(g)
  if g.parked ~= 'N' then return end
  local cap, rate, per, weight = E.limits(g)
  local room = cap and max(cap - g.active, 0) or math.huge
  if rate then room = min(room, E.meter_room(g.meter, rate, per)) end
  local mine = lanes_of(choice, g)
  local heads, order = {}, #mine > 1 and {}
  for i, id in ipairs(mine) do
    heads[i] = { lane = id, orders = {}, first = 1, more = true }
    if order then push(order, place_item(E.lane(id).head, i)) end
  end
  local vtime = vtime_in(choice, g, ring_vtime, mine)
  -- Itself an item of the heap, by virtual time and number.
  served = {
    vtime, g.id, group = g, turn = floor(TURN / max(weight, 1)), room = room, heads = heads, order = order,
    stale = ring_vtime < vtime and { lane_id } or {}, taken = 0,
  }
  choice.groups[g.id] = served
  choice.count = choice.count + 1
  push(choice.heap, served)
end

-- Reads the rings until none of them can hold a group that comes before the heap's first.
local function read_rings(choice)
  local rings, i = choice.rings, 1
  -- ends because: every round reads on in a ring, is done with it, or goes on to the next one
  while rings[i] do
    local ring, first = rings[i], choice.heap[1]
    if first and ring.read_to and not before(ring.read_to, first) then
      i = i + 1
    else
      local places = E.ring_of(ring.lane, ring.read_to and ring.read_to[3], choice.chunk)
      if #places < choice.chunk then
        rings[i] = rings[#rings]
        rings[#rings] = nil
      else
        ring.read_to = places[#places]
      end
      local ids = {}
      for k, found in ipairs(places) do ids[k] = found[2] end
      E.know_groups(ids)
      know_places(choice, ids)
      for _, found in ipairs(places) do
        local g = E.group(found[2])
        if g then meet(choice, ring.lane, found[1], g) else E.zput(E.RING, found[3], false) end
      end
    end
  end
end

-- Reads on in a lane when what was read of it is used up; answers the place of its next job.
local function look_into(head, group_id, chunk)
  if not head.orders[head.first] and head.more then
    head.orders, head.members, head.id_at = ready_of(head.lane, group_id, head.read_to, chunk)
    head.first = 1
    head.more = #head.orders == chunk
    head.read_to = head.orders[#head.orders] or head.read_to
  end
  return head.orders[head.first]
end
-- Takes the next job of a lane.
local function take(choice, head, group_id)
  local n, member = #choice.ids + 1, head.members[head.first]
  head.first = head.first + 1
  choice.ids[n], choice.members[n], choice.its_lanes[n], choice.its_groups[n] = sub(member, head.id_at), member, head.lane, group_id
  return true
end
-- Takes the first job of a group over all its lanes; false when there is none. A lane is looked into only when it may hold
-- that job.
local function take_next(choice, served, share)
  local heads, order, group_id = served.heads, served.order, served[2]
  local chunk = floor(share / max(#heads, 1)) + 1
  if not order then return heads[1] and look_into(heads[1], group_id, chunk) and take(choice, heads[1], group_id) end
  -- ends because: every round reads on in a lane, finds its first job, or is done with it
  while order[1] do
    local item = pop(order)
    local head = heads[item.head]
    local ord = look_into(head, group_id, chunk)
    local following = ord and place_item(ord, item.head)
    if ord and before(item, following) then
      push(order, following)
    elseif ord then
      take(choice, head, group_id)
      local bound = bound_of(head)
      if bound then push(order, place_item(bound, item.head)) end
      return true
    end
  end
  return false
end

-- Gives a group its turn, or all that are left if nobody else is there, and puts it back if it may have more.
local function serve(choice, served)
  local left = choice.max - #choice.ids
  local alone = not choice.heap[1] and not choice.rings[1]
  local share = floor(left / (#choice.heap + 1))
  for _ = 1, alone and left or 1 do
    if served.room == 0 or not take_next(choice, served, share) then return end
    served.room = served.room - 1
    served.taken = served.taken + 1
    served[1] = served[1] + served.turn
  end
  push(choice.heap, served)
end

-- Tightens the hint of a lane of which the claim has seen the first job that stays.
local function move_head(head, g)
  local bound = head.read_to and bound_of(head)
  if not bound then return end
  local l = E.lane(head.lane)
  if E.sub_of(head.lane, g.id).ready == l.ready and E.is_before(l.head, bound) then
    l.head = bound
    E.touch_lane(l)
  end
end

-- Writes down what the claim has cost everybody.
local function settle_choice(q, choice)
  local s = q.settings
  if s.rate then
    E.meter_take(q.meter, s.rate, s.per, #choice.ids)
    E.touch_queue(q)
  end
  local lanes, groups = {}, {}
  for _, served in pairs(choice.groups) do
    for _, head in ipairs(served.heads) do
      if head.read_to then lanes[#lanes + 1], groups[#groups + 1] = head.lane, served[2] end
    end
  end
  E.know_subs(lanes, groups)
  -- A single group needs no order among groups; correcting its place in a thousand lanes would be for nothing.
  local function correct(lane_id, served)
    local place_now = E.sub_of(lane_id, served[2])
    if choice.count > 1 and place_now.vtime and place_now.vtime < served[1] then
      E.put_sub(lane_id, served.group, place_now.ready, served[1])
    end
  end
  for _, served in pairs(choice.groups) do
    local g = served.group
    if served.taken > 0 then
      local _, rate, per = E.limits(g)
      g.vtime = served[1]
      if rate then E.meter_take(g.meter, rate, per, served.taken) end
      E.touch_group(g)
    end
    for _, head in ipairs(served.heads) do
      move_head(head, g)
      if head.read_to and served.taken > 0 then correct(head.lane, served) end
    end
    for _, lane_id in ipairs(served.stale) do correct(lane_id, served) end
  end
end

-- The same for one lane while no named group has a ready job: nobody to share with.
function E.select_plain(q, lane_id, most)
  if most == 0 then return {}, {}, {}, {} end
  local g = E.group(q.plain)
  local orders, members, id_at = ready_of(lane_id, g.id, nil, most + 1)
  local taken, began = min(most, #orders), g.vtime
  if taken > 0 then
    g.vtime = g.vtime + taken * TURN
    E.touch_group(g)
  end
  q.vtime = max(q.vtime, began, g.vtime - TURN)
  E.touch_queue(q)
  if q.settings.rate then E.meter_take(q.meter, q.settings.rate, q.settings.per, taken) end
  local l, bound = E.lane(lane_id), orders[most + 1]
  if bound and E.is_before(l.head, bound) and E.sub_of(lane_id, g.id).ready == l.ready then
    l.head = bound
    E.touch_lane(l)
  end
  local ids, lanes, groups = {}, {}, {}
  for i = 1, taken do ids[i], lanes[i], groups[i] = sub(members[i], id_at), lane_id, g.id end
  return ids, members, lanes, groups
end

-- The next `most` jobs of these lanes, in the order in which they should start: ids, index entries, lanes, groups.
-- Turns, caps and rates are charged.
function E.select(q, lanes, most)
  if #lanes == 0 or most == 0 then return {}, {}, {}, {} end
  local choice = {
    rings = {}, heap = {}, groups = {}, lanes = lanes, ids = {}, members = {}, its_lanes = {}, its_groups = {}, max = most, only_plain = q.named == 0, count = 0,
    chunk = min(floor(2 * most / #lanes) + 2, most + 1),
  }
  if choice.only_plain then
    -- Nobody to share with: every ready job is of the one group, and the rings need not be asked.
    local plain = E.group(q.plain)
    if plain then meet(choice, lanes[1], math.huge, plain) end
  else
    for i, id in ipairs(lanes) do choice.rings[i] = { lane = id } end
  end
  -- ends because: every round picks a job, or takes a group out of the heap for good
  while #choice.ids < most do
    read_rings(choice)
    local served = pop(choice.heap)
    if not served then break end
    local found_at = served[1]
    serve(choice, served)
    -- Where the last turn began. Newcomers start no earlier, or they would catch up on turns before their time.
    local began = max(served[1] - served.turn, 0)
    -- Never back: a lane that few workers serve lags behind the others.
    q.vtime = max(q.vtime, found_at, began)
    E.touch_queue(q)
  end
  settle_choice(q, choice)
  return choice.ids, choice.members, choice.its_lanes, choice.its_groups
end

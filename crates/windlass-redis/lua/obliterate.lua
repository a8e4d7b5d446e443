-- Begins or ends the removal of a whole queue: its jobs are removed in between, in bounded steps.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; queue, `begin`, `end` or `rest` (end it
--         whatever is counted), `1` to take active jobs too, the events as JSON: that
--         of the pause, that of the end; the settings as text with the pause set
-- Answers `missing`, `active <count>`, `ok`, and at the end `gone` or `left`
-- Bounds  one round per lane of the queue, 500 groups, 4,000 minutes, 1,000 entries that belong to no job, and the work of one step

local name, phase, force, paused_event, gone_event, paused_settings = E.arg(), E.arg(), E.arg() == '1', E.arg(), E.arg(), E.arg()
local q = E.find_queue(name)
if not q then return 'missing' end
if phase == 'begin' then
  if q.a > 0 and not force then return 'active ' .. q.a end
  -- So that nothing is claimed between the steps. Whoever stops half-way leaves a paused queue.
  if not q.settings.paused then
    E.hput(META, 's' .. q.id, paused_settings)
    E.new_version(q)
    E.note_json(paused_event)
    E.finish()
  end
  return 'ok'
end
local ids, text = E.lanes_of(q)
local GROUPS_MAX, MINUTES_MAX = 500, 4000
local room = 1000
local function empty(key, prefix)
  if room == 0 then return false end
  local members = E.lex(key, '[' .. prefix, E.after_all(prefix), room)
  for _, member in ipairs(members) do E.zput(key, member, false) end
  room = room - #members
  return room > 0
end
if q.s + q.r + q.a + q.S + q.F + q.C > 0 then
  if phase ~= 'rest' then return 'left' end
  -- Nobody found a job any more, and still something is counted: entries whose jobs are gone.
  local done = empty(E.SCHED, E.enc(q.id)) and empty(E.ENDED, E.enc(q.id))
  for _, id in ipairs(ids) do done = empty(READY, E.enc(id)) and done end
  if not done then
    E.finish()
    return 'left'
  end
end
-- Groups first, some at a time: the queue is gone with the last of them.
local prefix = E.enc(q.id)
local groups = call('ZRANGEBYLEX', E.GNAMES, '[' .. prefix, E.after_all(prefix), 'LIMIT', 0, GROUPS_MAX)
local ids_of_groups = {}
for i, member in ipairs(groups) do ids_of_groups[i] = tonumber(match(member, '\n(%d+)$')) or 0 end
E.know_groups(ids_of_groups)
for i, member in ipairs(groups) do
  local g = E.group(ids_of_groups[i])
  if g then E.remove_group(g) else E.zput(E.GNAMES, member, false) end
end
-- Then its minutes: numbers without a gap, of which most may never have been written.
local minute_now = floor(now / 60000)
local minutes = q.minute ~= 0 and max(minute_now - q.minute + 1, 0) or 0
for minute = q.minute, q.minute + min(minutes, MINUTES_MAX) - 1 do E.hput(E.MINUTES, q.id .. ':' .. E.int(minute), false) end
if #groups == GROUPS_MAX or minutes > MINUTES_MAX then
  q.minute = q.minute + min(minutes, MINUTES_MAX)
  E.touch_queue(q)
  E.finish()
  return 'left'
end
for _, id in ipairs(ids) do E.hput(META, 'l' .. id, false) end
for key in gmatch('\n' .. text, '\n%d+ ([^\n]*)') do E.hput(META, 'k' .. q.id .. ' ' .. key, false) end
E.hput(E.GROUPS, q.plain, false)
local rest = {}
for id in gmatch(call('HGET', META, 'queues') or '', '%d+') do
  if tonumber(id) ~= q.id then rest[#rest + 1] = id end
end
E.hput(META, 'queues', #rest > 0 and concat(rest, ' ') or false)
for _, field in ipairs({ 'Q' .. name, 'q' .. q.id, 's' .. q.id, 'd' .. q.id, 'v' .. q.id }) do E.hput(META, field, false) end
E.dirty_queues[q.id], E.dirty_groups[q.plain] = nil, nil
E.note_json(gone_event)
E.finish()
return 'gone'

-- Changes the settings of a queue or a group.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; queue, what (`queue`, `group`, `review`), the event as JSON; for `queue` the
--         settings as text, the settings that they were made of or nothing (whatever they are); for `group` its name, cap, rate,
--         window, weight; for `review` the parked group to go on after
-- Answers `ok`; `changed` when the settings are not those that the new ones were made of; `more <group>` when the settings hold
--         and parked groups behind that one are still to be reviewed
-- Bounds  500 parked groups, and the work of one step

local PARKED_MAX = 500
local name, what, event = E.arg(), E.arg(), E.arg()

-- Reviews parked groups of a queue, behind a group; answers the last one when there may be more. Those that are in the ring are
-- looked at again when their turn comes. Those that nobody reviews are reviewed when a job of theirs ends, or when they wake.
local function review_parked(q, after)
  local prefix = E.enc(q.id)
  local from = after ~= '' and '(' .. prefix .. E.enc(tonumber(after)) or '[' .. prefix
  local parked, ids = call('ZRANGEBYLEX', E.PARKED, from, E.after_all(prefix), 'LIMIT', 0, PARKED_MAX), {}
  for i, member in ipairs(parked) do ids[i] = E.dec(member, #prefix + 1) or 0 end
  E.know_groups(ids)
  for i, member in ipairs(parked) do
    if i > 1 and E.is_spent() then return 'more ' .. E.int(ids[i - 1]) end
    local g = E.group(ids[i])
    E.work = E.work + 0.5
    if not g then
      E.zput(E.PARKED, member, false)
    else
      E.review(g)
      if g.parked == 'N' then E.drop_idle(g) end
    end
  end
  return #parked == PARKED_MAX and 'more ' .. E.int(ids[PARKED_MAX]) or nil
end

local more
local q = what == 'review' and E.find_queue(name)
if what == 'review' then
  more = q and review_parked(q, E.arg())
  E.finish()
  return more or 'ok'
end
if what == 'queue' then
  local text, base = E.arg(), E.arg()
  local known = E.find_queue(name)
  local stored = known and call('HGET', META, 's' .. known.id) or ''
  if base ~= '*' and stored ~= base then return 'changed' end
  q = E.queue_for(name)
  local s = q.settings
  local before = concat({ E.or_dash(s.g_cap), E.or_dash(s.g_rate), E.or_dash(s.g_per), E.or_dash(s.g_weight) }, ' ')
  E.read_settings(q, text)
  s = q.settings
  E.hput(META, 's' .. q.id, text)
  -- A call that gives all settings reviews the groups also when it changes nothing: it may repeat one that was interrupted.
  if base == '*' or before ~= concat({ E.or_dash(s.g_cap), E.or_dash(s.g_rate), E.or_dash(s.g_per), E.or_dash(s.g_weight) }, ' ') then
    more = review_parked(q, '')
  end
else
  q = E.queue_for(name)
  local group_name = E.arg()
  local g = E.find_group(q.id, group_name) or E.make_group(q.id, group_name)
  g.cap, g.rate, g.per, g.weight = E.opt(E.arg()), E.opt(E.arg()), E.opt(E.arg()), E.opt(E.arg())
  E.touch_group(g)
  E.review(g)
  E.drop_idle(g)
end
-- What was not allowed may be allowed now.
E.ring_anybody(q.id, 128)
E.new_version(q)
E.note_json(event)
E.finish()
return more or 'ok'

-- What commits take from inboxes: all items before a number, and single ones behind it. The inbox may have holes afterwards; it begins
-- with the oldest item that is left. Items are read only while there are unread messages, and looked for only while there are holes.

-- Numbers that are looked through at most, to find a message or the oldest item that is left.
local LOOK_MAX = 10000

-- Reads items a few at a time, because they may be large, until `visit` answers true.
local function each_item(r, numbers, visit)
  local at, slice = 1, 1
  -- ends because: every round reads at least one item
  while at <= #numbers do
    local names, bytes = {}, 0
    for i = at, min(at + slice - 1, #numbers) do names[#names + 1] = E.numbered(r, numbers[i]) end
    for _, item in ipairs(E.hmget(E.INBOX, names)) do
      if item then bytes = bytes + #item end
      if visit(item) then return true end
    end
    at, slice = at + #names, E.next_slice(slice, bytes / E.RECORD_BYTES)
  end
  return false
end
local function is_message(item)
  return item and sub(item, 1, 2) == 'm '
end
-- Whether messages seem to be left although there are none, because one of them was lost: looked at only when they are in the way.
local function has_messages(r, plan)
  local left = {}
  for n = plan.to, min(r.following, plan.to + LOOK_MAX) - 1 do
    if not plan.gone[n] then left[#left + 1] = n end
  end
  return each_item(r, left, is_message) or r.following > plan.to + LOOK_MAX
end

-- What a commit takes: all before `upto`, and a list of numbers. Changes nothing. Answers how many items that are, and how many messages
-- are left; or `beyond` and `beyond_taken`.
function E.plan_taken(r, upto, list, exactly)
  if upto > r.following then return 'beyond' end
  local plan = { to = max(upto, r.first), single = {}, gone = {}, unread = r.unread or 0 }
  for text in gmatch(list, '%d+') do
    local number = tonumber(text)
    if number >= r.following then return 'beyond_taken' end
    if number >= plan.to then plan.single[#plan.single + 1], plan.gone[number] = number, true end
  end
  plan.count = plan.to - r.first + #plan.single
  if plan.unread == 0 and not r.holes then return plan end
  local numbers, count, messages = {}, 0, 0
  for n = r.first, plan.to - 1 do numbers[#numbers + 1] = n end
  for _, n in ipairs(plan.single) do numbers[#numbers + 1] = n end
  if plan.unread > 0 then
    each_item(r, numbers, function(item)
      if item then count = count + 1 end
      if is_message(item) then messages = messages + 1 end
    end)
  else
    for _, n in ipairs(numbers) do count = count + call('HEXISTS', E.INBOX, E.numbered(r, n)) end
  end
  if r.holes then plan.count = count end
  plan.unread = max(plan.unread - messages, 0)
  if exactly and plan.unread > 0 and not has_messages(r, plan) then plan.unread = 0 end
  return plan
end

-- Takes what was planned.
function E.take(r, plan)
  local left = r.following - r.first - (r.holes or 0) - plan.count
  E.trim_inbox(r, plan.to)
  for _, n in ipairs(plan.single) do E.hput(E.INBOX, E.numbered(r, n), false) end
  local looks = r.holes and LOOK_MAX or 0
  -- ends because: `first` grows up to the end of the inbox
  while r.first < r.following do
    if not plan.gone[r.first] then
      if looks == 0 or call('HEXISTS', E.INBOX, E.numbered(r, r.first)) == 1 then break end
      looks = looks - 1
    end
    r.first = r.first + 1
  end
  if left <= 0 then r.first = r.following end
  local holes = r.following - r.first - left
  r.holes = left > 0 and holes > 0 and holes or nil
  r.unread = r.first < r.following and plan.unread > 0 and plan.unread or nil
end

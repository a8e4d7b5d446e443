-- Refuses to work on half a store: `meta` is gone, and other keys of the store are there. That is what an interrupted slot
-- move on a cluster leaves. A script that made a new `meta` there would hide the damage, and the halves could not be merged.
--
-- A store that has never been written has no `meta`. Idle workers register before anything is written (`bells`, `idle`,
-- `workers`), and pruning keeps its cursors in `meta`: so the counters and `layout` say whether the store exists.

-- The type of each key, in the order of KEYS: hash, sorted set, stream, list; `-` may exist while `meta` does not.
local TYPES = '-hzzhhx--hzzzhhzhzzhzzzhl-hzhhzzhzz'

local function is_there(i)
  local kind = sub(TYPES, i, i)
  if kind == 'h' then return call('HLEN', KEYS[i]) > 0 end
  if kind == 'z' then return call('ZCARD', KEYS[i]) > 0 end
  if kind == 'l' then return call('LINDEX', KEYS[i], 0) ~= false end
  return kind == 'x' and #call('XRANGE', KEYS[i], '-', '+', 'COUNT', 1) > 0
end

local exists = call('HMGET', META, 'layout', 'seq', 'feed')
-- A program that was connected when a newer one raised the layout must not go on by rules that do not hold any more.
if (tonumber(exists[1] or nil) or 0) > E.LAYOUT then error({ err = 'LAYOUT ' .. exists[1] }) end
-- What this step writes is of this layout.
E.raises_layout = exists[1] and (tonumber(exists[1]) or E.LAYOUT) < E.LAYOUT
if not exists[1] and not exists[2] and not exists[3] then
  -- A script that was given some of the keys cannot look at the others: it must be called again with all of them.
  E.lacks_keys = KEYS[#TYPES] == nil
  local found = {}
  for i = 1, E.lacks_keys and 0 or #TYPES do
    if is_there(i) then found[#found + 1] = match(KEYS[i], '[^:]+$') end
  end
  if #found > 0 then error({ err = 'HALF ' .. concat(found, ' ') }) end
end

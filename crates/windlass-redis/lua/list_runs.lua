-- One page of runs, by the order of their creation.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; state or `*`, `1` to go backwards, the place to go on from or nothing, limit, how many runs
--         to look at, `1` to pass only runs by what follows: kind, `1` stuck ones, `0` others; parent; a label as JSON; created from,
--         created before; `-` for each that is of no interest
-- Answers the place of the last run that was looked at when there are more behind it, else nothing; then of each its place, id, record or
--         nothing, and `1` when it cannot be read. A label may be found where it is not: the caller looks again
-- Bounds  how many runs to look at, one more

local list, backwards, after, limit, looks, is_filtered = E.arg(), E.arg() == '1', E.arg(), E.num(), E.num(), E.arg() == '1'
local kind, stuck, parent, label, from, before = E.arg(), E.arg(), E.arg(), E.arg(), E.opt(E.arg()), E.opt(E.arg())

local function passes(r)
  if not r or r.broken then return false end
  local created = tonumber(r.created)
  return (kind == '-' or r.kind == kind or match(r.kind, '^([^@]*)@') == kind) and (stuck == '-' or (r.stuck ~= '-') == (stuck == '1'))
    and (parent == '-' or r.parent == parent) and (label == '-' or (r.labels or ''):find(label, 1, true) ~= nil)
    -- compares numbers
    and (not from or created >= from) and (not before or created < before)
end

local low, high = '[' .. list, E.after_all(list)
if after ~= '' then
  if backwards then high = '(' .. list .. after else low = E.after_all(list .. after) end
end
local members
if backwards then members = E.lex_back(E.RUN_LIST, high, low, looks + 1) else members = E.lex(E.RUN_LIST, low, high, looks + 1) end
local ids, answer, looked, count = {}, { '' }, 0, 0
for i, member in ipairs(members) do ids[i] = sub(member, 14) end
E.know_runs(ids)
local found = {}
for i = 1, min(#ids, looks) do
  if count >= limit then break end
  looked = i
  if not is_filtered or passes(E.run(ids[i])) then
    count = count + 1
    found[count] = i
  end
end
if looked < #ids and looked > 0 then answer[1] = sub(members[looked], 2, 13) end
local wanted = {}
for k, i in ipairs(found) do wanted[k] = ids[i] end
local texts = E.hmget(E.RUNS, wanted)
for k, i in ipairs(found) do
  local r, n = E.run(ids[i]), #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = sub(members[i], 2, 13), ids[i], texts[k], r and r.broken and '1' or '0'
end
return answer

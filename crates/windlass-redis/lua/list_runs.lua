-- One page of runs, by the order of their creation.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; state or `*`, `1` to go backwards, the place to go on from or nothing, limit
-- Answers of each its place, id, record or nothing, and `1` when it cannot be read
-- Bounds  limit

local list, backwards, after, limit = E.arg(), E.arg() == '1', E.arg(), E.num()
local low, high = '[' .. list, E.after_all(list)
if after ~= '' then
  if backwards then high = '(' .. list .. after else low = E.after_all(list .. after) end
end
local members
if backwards then members = E.lex_back(E.RUN_LIST, high, low, limit) else members = E.lex(E.RUN_LIST, low, high, limit) end
local ids, answer = {}, {}
for i, member in ipairs(members) do ids[i] = sub(member, 14) end
E.know_runs(ids)
local texts = E.hmget(E.RUNS, ids)
for i, id in ipairs(ids) do
  local r, n = E.run(id), #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = sub(members[i], 2, 13), id, texts[i], r and r.broken and '1' or '0'
end
return answer

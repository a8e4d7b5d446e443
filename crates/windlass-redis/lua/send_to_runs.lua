-- Puts messages into inboxes.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; count, then of each its run, flags as in messages.lua, and body
-- Answers of each `ok`, `missing`, `corrupt`, `ended <state>`, `full`, `running`, `changed`, or `going`
-- Bounds  one round per message

local n = E.num()
local first, ids, answers = E.at, {}, {}
for i = 1, n do ids[i] = ARGV[first + 3 * i - 2] end
E.know_runs(ids)
for i, id in ipairs(ids) do answers[i] = E.send_to_run(id, ARGV[first + 3 * i - 1], ARGV[first + 3 * i]) end
E.finish()
return answers

-- Creates runs, each together with its first step.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; lanes as create.lua reads them; count, then runs as new_runs.lua reads them
-- Answers of each `created`, `existing`, `restarted`, `taken`, `unclean` when the ended run of this id was not cleaned up yet, `full`
--         when its inbox has no room for the messages, or `refused <job> <why>`
-- Bounds  one round per run, job, entry and message

E.read_lanes()
local all, runs, answers = E.new_steps(), {}, {}
for i = 1, E.num() do runs[i] = E.read_new_run(all) end
E.know_steps(all)
for i, run in ipairs(runs) do answers[i] = E.create_run(run) end
E.finish()
return answers

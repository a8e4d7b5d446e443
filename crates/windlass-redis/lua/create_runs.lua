-- Creates runs, each together with its first step.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; lanes as create.lua reads them; count, then of each its id, fingerprint, kind, name, hash of
--         its definition, how long it is kept, definition, input, and its step as steps.lua reads it
-- Answers of each `created`, `existing`, `taken`, or `refused <job> <why>`
-- Bounds  one round per run, job and entry

E.read_lanes()
local all, runs, answers = E.new_steps(), {}, {}
for i = 1, E.num() do
  local run = { id = E.arg(), fingerprint = E.arg(), kind = E.arg(), name = E.arg(), definition = E.arg(), keep = E.arg(), at = E.at }
  E.at = E.at + 2
  run.step = E.read_step(all)
  runs[i], all.runs[#all.runs + 1] = run, run.id
end
E.know_steps(all)

local function create(run)
  local known = E.run(run.id)
  if known then return not known.broken and known.fingerprint == run.fingerprint and 'existing' or 'taken' end
  local refused = E.step_refusal(run.step)
  if refused then return refused end
  local r = {
    id = run.id, seq = E.hex12(E.bump(E.SEQ)), state = 'R', history = 0, first = 0, following = 0, last = '-', created = E.int(now), changed = E.int(now),
    keep = run.keep, definition = run.definition, fingerprint = run.fingerprint, kind = run.kind, engine = '', name = run.name,
    stuck = '-', summary = '', told_history = 0, told_state = 'R', told_stuck = '-',
  }
  E.run_cache[r.id] = r
  E.hput(E.RUNS, r.id .. ':d', ARGV[run.at + 1])
  E.hput(E.RUNS, r.id .. ':i', ARGV[run.at + 2])
  E.make_step(r, run.step, nil)
  return 'created'
end
for i, run in ipairs(runs) do answers[i] = create(run) end
E.finish()
return answers

-- Ends attempts, and leases new jobs in the same step if asked to.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; `1` when a claim follows the report; if so the claim as in claim.lua; then
--         worker, count of outcomes, and in their order: `S`, token, count and ids of mere successes; or of one outcome its
--         kind (c, f, r), token, id, argument and extra
-- Answers `ok`; for each outcome a state (with `=` when it had been reported before) or `lost`, and a comma; then what
--         claim.lua answers after its `ok`. When the claim is refused: its refusal, and nothing was reported
-- Bounds  one round per outcome, and those of claim.lua

local claim = E.arg() == '1' and E.read_claim() or nil
local outcomes = E.read_outcomes()
local quick = E.report_quick(claim, outcomes)
if quick then return quick end
long_way()
local refused = claim and E.check_claim(claim)
if refused then return { refused } end
local answers = E.report(outcomes)
if claim then E.claim(claim) end
E.finish()
answers[#answers + 1] = ''
local answer = { 'ok', concat(answers, ',') }
if claim then return E.claimed(claim, answer) end
return answer

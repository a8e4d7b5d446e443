-- Ends attempts, and leases new jobs in the same step if asked to.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; `1` when a claim follows the report; if so the claim as in claim.lua; then
--         worker, count of outcomes, and of each its id, token, kind (c, f, r), argument and extra
-- Answers `ok`, the count of outcomes, a state (with `=` when it had been reported before) or `lost` for each; then what
--         claim.lua answers after its `ok`. When the claim is refused: its refusal, and nothing was reported
-- Bounds  one round per outcome, and those of claim.lua

local claim = E.arg() == '1' and E.read_claim() or nil
local refused = claim and E.check_claim(claim)
if refused then return { refused } end
local answers = E.report()
if claim then E.claim(claim) end
E.finish()
local answer = { 'ok', #answers }
for i, text in ipairs(answers) do answer[i + 2] = text end
if claim then return E.claimed(claim, answer) end
return answer

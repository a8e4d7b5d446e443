-- Changes runs as their engines decided, each in one step, with the current lease only.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; lanes as create.lua reads them; count, then of each its run, token, length of the history,
--         up to where the inbox was handled (and behind it `!` when no message may be left, and numbers of further items that it takes),
--         how long the lease is kept or `-`, and its step as steps.lua reads it
-- Answers of each `ok <length>`, `same <length>` when it had been made before, `lost`, `missing`, `corrupt`, `beyond`, `beyond_taken`,
--         `terminated` and `going` when the state of the step is not for a run that was terminated or not, `unread <messages>`, or
--         `refused <job> <why>`
-- Bounds  one round per commit, job, entry, message and run to create; items that a commit takes from an inbox with messages or holes

E.read_lanes()
local all, commits, answers = E.new_steps(), {}, {}
for i = 1, E.num() do
  local c = { run = E.arg(), token = E.arg(), history = E.num(), inbox = E.arg(), keep = E.arg() }
  c.inbox_to = tonumber(c.inbox)
  if not c.inbox_to then
    local upto, exactly, list = match(c.inbox, '^(%d+)(!?)(.*)$')
    c.inbox_to, c.exactly, c.list = tonumber(upto), exactly == '!', list
  end
  c.step = E.read_step(all)
  commits[i], all.runs[#all.runs + 1] = c, c.run
end
E.know_steps(all)

-- The parents of runs that end are read together.
local parents = {}
for _, c in ipairs(commits) do
  local r = c.step.state ~= 'R' and E.run_cache[c.run]
  if r and r.parent then parents[#parents + 1] = r.parent end
end
if #parents > 0 then E.know_runs(parents) end

-- What a commit takes from the inbox; nil and why it is refused.
local function plan_inbox(r, c)
  local plan = E.plan_taken(r, c.inbox_to, c.list or '', c.exactly)
  if type(plan) == 'string' then return nil, plan end
  if c.exactly and plan.unread > 0 then return nil, 'unread ' .. E.int(plan.unread) end
  return plan
end

local function commit(c)
  local r = E.run(c.run)
  if not r then return 'missing' end
  if r.broken then return 'corrupt' end
  if r.token ~= c.token then return r.last == c.token and 'same ' .. E.int(r.history) or 'lost' end
  if r.history ~= c.history then return r.history == c.history + c.step.history and 'same ' .. E.int(r.history) or 'lost' end
  if (r.state == 'E') ~= (c.step.state == 'E') then return r.state == 'E' and 'terminated' or 'going' end
  local plan, why
  -- Most inboxes have neither messages nor holes, and all of them is taken.
  if c.list or r.unread or r.holes then
    plan, why = plan_inbox(r, c)
    if why then return why end
  elseif c.inbox_to > r.following then
    return 'beyond'
  end
  local refused = E.step_refusal(c.step)
  if refused then return refused end
  if plan then E.take(r, plan) else E.trim_inbox(r, c.inbox_to) end
  local engine = r.engine
  E.make_step(r, c.step, function()
    r.committer = engine
    if c.keep == '-' then
      r.token, r.last = nil, c.token
    else
      r.token, r.engine, r.expires = c.token, engine, now + tonumber(c.keep)
    end
  end)
  return 'ok ' .. E.int(r.history)
end
for i, c in ipairs(commits) do answers[i] = commit(c) end
E.finish()
return answers

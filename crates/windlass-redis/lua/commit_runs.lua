-- Changes runs as their engines decided, each in one step, with the current lease only.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; lanes as create.lua reads them; count, then of each its run, token, length of the history,
--         up to where the inbox was handled, how long the lease is kept or `-`, and its step as steps.lua reads it
-- Answers of each `ok <length>`, `same <length>` when it had been made before, `lost`, `missing`, `corrupt`, `beyond`, or `refused
--         <job> <why>`
-- Bounds  one round per commit, job, entry and message

E.read_lanes()
local all, commits, answers = E.new_steps(), {}, {}
for i = 1, E.num() do
  local c = { run = E.arg(), token = E.arg(), history = E.num(), inbox_to = E.num(), keep = E.arg() }
  c.step = E.read_step(all)
  commits[i], all.runs[#all.runs + 1] = c, c.run
end
E.know_steps(all)

local function commit(c)
  local r = E.run(c.run)
  if not r then return 'missing' end
  if r.broken then return 'corrupt' end
  local same = 'same ' .. E.int(r.history)
  if r.token ~= c.token then return r.last == c.token and same or 'lost' end
  if r.history ~= c.history then return r.history == c.history + c.step.history and same or 'lost' end
  if c.inbox_to > r.following then return 'beyond' end
  local refused = E.step_refusal(c.step)
  if refused then return refused end
  E.trim_inbox(r, c.inbox_to)
  local engine = r.engine
  E.make_step(r, c.step, function()
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

-- Appends lines to logs of jobs, with the current lease only.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; most lines that a log keeps, count, then of each its id, token, number of its first
--         line, count of lines, and the lines
-- Answers of each the number that the next line will have, `lost`, or `gap <next>`
-- Bounds  one round per line

local most, n = E.num(), E.num()
local answers = {}
local logs = {}
for i = 1, n do
  local id, token, first, count = E.arg(), E.arg(), E.num(), E.num()
  local lines = E.at
  E.at = E.at + count
  local j = E.readable(id)
  if not j or j.token ~= token then
    answers[i] = 'lost'
  else
    local log = logs[id]
    if not log then
      local from, to = match(E.has_flag(j, 'o') and call('HGET', E.EXTRA, id .. ':l') or '', '^(%d+) (%d+)$')
      log = { from = E.upto(1e15, from or '0') or 0, to = E.upto(1e15, to or '0') or 0 }
      -- A log is never longer than this, so one that says so is damaged.
      if log.from > log.to or log.to - log.from > most then log.from = log.to end
      logs[id] = log
    end
    if count > 0 and first > log.to then
      answers[i] = 'gap ' .. E.int(log.to)
    else
      for k = log.to - min(first, log.to) + 1, count do
        E.hput(E.LOGS, E.log_of(j) .. ':' .. E.int(log.to), j.attempt .. ' ' .. ARGV[lines + k])
        log.to = log.to + 1
      end
      for old = log.from, log.to - most - 1 do
        E.hput(E.LOGS, E.log_of(j) .. ':' .. E.int(old), false)
        log.from = old + 1
      end
      if log.to > 0 then
        E.set_flag(j, 'o')
        E.hput(E.EXTRA, id .. ':l', E.int(log.from) .. ' ' .. E.int(log.to))
      end
      answers[i] = E.int(log.to)
    end
  end
end
E.finish()
return answers

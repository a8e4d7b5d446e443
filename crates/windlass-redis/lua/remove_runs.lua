-- Removes runs that have ended or that are stuck or damaged, with all that is theirs but their jobs.
--
-- KEYS    all of the store, in the one order
-- ARGV    clock, bell prefix, publish command; of each its id, and its place among all for one that does not know it itself, `-` when
--         that was not looked for, `?` when it was not found
-- Answers of each `ok`, `missing`, `running`, or `where` when its place must be looked for
-- Bounds  one round per run

local answers, ids = {}, {}
for i = 4, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
E.know_runs(ids)
for i, id in ipairs(ids) do
  local r, place = E.run(id), ARGV[2 * i + 3]
  if not r then
    answers[i] = 'missing'
  elseif not r.broken and r.state == 'R' and r.stuck == '-' then
    answers[i] = 'running'
  elseif not r.seq and place == '-' then
    answers[i] = 'where'
  else
    if place ~= '-' and place ~= '?' then r.seq = r.seq or place end
    E.forget_run(r)
    answers[i] = 'ok'
  end
end
E.finish()
return answers

-- Runs: their records, their places in the indexes, and what happens to them.
--
-- RUNS           <id>    `1 seq state history first next token expires last ready wake created changed finished keep definition
--                        fingerprint`; then a line each: kind, engine, name, `-` or `+` and why it is stuck, summary. `first` and
--                        `next` are the numbers of the oldest and of the next item of its inbox, `last` is the token of the last
--                        commit that let go of it. The engine is the one that made the last commit; while another engine holds the
--                        run, that one, a tab, and the engine of the last commit. seq, ready and the hashes are hexadecimal, other
--                        numbers and times decimal
--                        A run with parts that few runs have begins with `2`. Behind its fingerprint stand, in any order: `s` and the
--                        first entry of its segment, `u` and how many messages are in its inbox, `h` and how many numbers between
--                        `first` and `next` have no item any more, `n` and how many message ids were delivered, `l` and how many
--                        leases have run out since the last commit, `j` when ends of its jobs come with results. Behind the
--                        summary stand lines: `^` and its parent, `#` and its labels as JSON, `!` and its error
--                <id>:d  its definition; <id>:i its input; <id>:p the values that it publishes, as JSON; <id>:r its result as
--                        results of jobs are kept: `+`, type, line end, bytes
-- INBOX          <seq>:<number>         an item: `j job state attempt claimed at`, and the class of the failure of a failed job; a line
--                                       with `-` or `+` and an error; outputs as JSON, and for a run with `j` a line end and the
--                                       result. Or `m at`, the id of the message if it has one, line end, message. Or `r run state
--                                       at` of a child that has ended, a line with its error, `-` or its result. Or `c run` of a
--                                       child that was refused, and lines that say why
--                <seq>#<id>             number of a message by its id; <seq>@<number modulo 1,000> the id
-- HISTORY        <seq>:<number>         an entry
-- RUN_READY      <kind>\n<place><id>    has something to do, and nobody holds it
-- RUN_WAKE       <id>                   when its lease ends or its time comes
-- RUN_LIST       *<seq><id>             all; and <state><seq><id>
-- RUN_REMOVABLE  <id>                   when it goes
--
-- States: R running, S succeeded, F failed, C cancelled, T timed out, E terminated by a message. Numbers of sequences have twelve digits, those of items and entries are decimal.

local TEXT = '^([12]) (%x+) ([RSFCTE]) (%d+) (%d+) (%d+) ([%x%-]+) (%-?%d*) ([%x%-]+) ([%x%-]+) (%-?%d*) (%-?%d+) (%-?%d+) (%-?%d*) (%d+) (%x+) (%x+)([^\n]*)\n'
  .. '([^\n]+)\n([^\n]*)\n([^\n]*)\n([%-+][^\n]*)\n([^\n]*)(.*)$'
local NOW = E.int(now)
-- What the feed is told of runs, behind what it is told of jobs.
E.run_notes = {}
function E.note_run(text)
  E.run_notes[#E.run_notes + 1] = text
end
E.run_cache, E.dirty_runs, E.rung_runs, E.binned = {}, {}, {}, {}

-- True when nobody advances it: it is stuck, or it has ended and, if it was terminated, an engine has cleaned up after it.
function E.run_rests(r)
  if r.state == 'R' then return r.stuck ~= '-' end
  return r.state ~= 'E' or not r.token and r.first >= r.following
end
-- True when an engine may hold it: a stuck run when its wake-up has come, a terminated one while there are items in its inbox.
function E.run_is_claimable(r)
  if r.state == 'R' then return r.stuck == '-' or r.wake ~= nil and r.wake <= now end
  return r.state == 'E' and r.first < r.following
end
-- When time alone gives it something to do.
function E.run_look_at(r)
  if r.token then return r.expires end
  if r.state ~= 'R' or r.ready then return nil end
  return r.wake
end
local function remove_at(r)
  return r.finished and E.run_rests(r) and r.finished + tonumber(r.keep) or nil
end
function E.run_ready_member(r)
  return r.kind .. '\n' .. r.ready .. r.id
end
-- Where it stands in the indexes, so that the end of the step knows what has changed.
local function note_places(r)
  r.at_ready, r.at_look, r.at_state, r.at_remove = r.ready and E.run_ready_member(r), E.run_look_at(r), r.state, remove_at(r)
end
-- What the feed was told last.
local function note_told(r)
  r.told_history, r.told_state, r.told_stuck = r.history, r.state, r.stuck
end

-- The parts that few runs have; nil instead of 0.
local NUMBERS = { s = 'segment', u = 'unread', h = 'holes', n = 'ids', l = 'stalls' }
-- Reads them into `r`; false when they cannot be read.
local function read_rare(r, words, lines)
  -- Most runs of code have nothing else.
  if words == ' j' and lines == '' then
    r.job_results = true
    return true
  end
  for word in gmatch(words, '%S+') do
    local name, number = NUMBERS[sub(word, 1, 1)], E.upto(1e14, sub(word, 2))
    if name and number then
      r[name] = number > 0 and number or nil
    elseif word == 'j' then
      r.job_results = true
    else
      return false
    end
  end
  for line in gmatch(lines, '\n([^\n]*)') do
    local mark, text = sub(line, 1, 1), sub(line, 2)
    if mark == '^' and match(text, '^r%d+%-[0-9a-z]+$') then
      r.parent = text
    elseif mark == '#' then
      r.labels = text
    elseif mark == '!' then
      r.error = text
    else
      return false
    end
  end
  -- compares numbers
  return not r.segment or r.segment <= r.history
end
-- The parts as `read_rare` reads them: words and lines.
local function rare_text(r)
  local words = r.job_results and ' j' or ''
  if r.segment then words = words .. ' s' .. E.int(r.segment) end
  if r.unread then words = words .. ' u' .. E.int(r.unread) end
  if r.holes then words = words .. ' h' .. E.int(r.holes) end
  if r.ids then words = words .. ' n' .. E.int(r.ids) end
  if r.stalls then words = words .. ' l' .. E.int(r.stalls) end
  return words, (r.parent and '\n^' .. r.parent or '') .. (r.labels and '\n#' .. r.labels or '') .. (r.error and '\n!' .. r.error or '')
end

-- Whether a token or a place, which may be `-`, has one inside.
local function has_dash(text)
  return text ~= '-' and find(text, '-', 1, true)
end
-- A run from its text; one that cannot be read is `broken`.
local function read_run(id, text)
  local form, seq, state, history, first, following, token, expires, last, ready, wake, created, changed, finished, keep, definition, fingerprint,
    words, kind, engine, name, stuck, summary, lines = match(text, TEXT)
  local broken = not seq or #seq ~= 12 or #history > 14 or #first > 14 or #following > 14 or not match(id, '^r%d+%-[0-9a-z]+$')
    or #expires > 16 or #wake > 16 or #created > 16 or #changed > 16 or #finished > 16 or #keep > 20
    or token ~= '-' and #token ~= 16 or last ~= '-' and #last ~= 16 or ready ~= '-' and #ready ~= 12
    or (token == '-') ~= (expires == '-') or (state == 'R') ~= (finished == '-') or #definition ~= 32 or #fingerprint ~= 16
    or form == '1' and (words ~= '' or lines ~= '')
  local committer = engine
  if not broken and token ~= '-' then
    local holder, behind = match(engine, '^([^\t]*)\t(.*)$')
    if holder then engine, committer = holder, behind end
  end
  local r = not broken and {
    id = id, seq = seq, state = state, history = tonumber(history), first = tonumber(first), following = tonumber(following),
    token = token ~= '-' and token or nil, expires = tonumber(expires), last = last, ready = ready ~= '-' and ready or nil,
    wake = tonumber(wake), created = created, changed = changed, finished = tonumber(finished), keep = keep,
    definition = definition, fingerprint = fingerprint, kind = kind, engine = engine, committer = committer, name = name, stuck = stuck, summary = summary,
  }
  -- A `-` within a number or a token is none.
  if not r or r.first > r.following or expires ~= '-' and not r.expires or wake ~= '-' and not r.wake or finished ~= '-' and not r.finished
    or has_dash(token) or has_dash(last) or has_dash(ready) or form == '2' and not read_rare(r, words, lines) then
    return { id = id, broken = true, seq = match(text, '^[12] (%x%x%x%x%x%x%x%x%x%x%x%x) ') }
  end
  note_places(r)
  note_told(r)
  return r
end
local function or_dash(time)
  return time and E.int(time) or '-'
end
function E.run_text(r)
  local form, words, lines, engine = '1', '', '', r.committer
  if r.unread or r.parent or r.labels or r.job_results or r.segment or r.holes or r.ids or r.stalls or r.error then
    form, words, lines = '2', rare_text(r)
  end
  if r.token and r.engine ~= engine then engine = r.engine .. '\t' .. engine end
  return concat({ form, r.seq, r.state, E.int(r.history), E.int(r.first), E.int(r.following), r.token or '-', or_dash(r.token and r.expires),
    r.last, r.ready or '-', or_dash(r.wake), r.created, r.changed, or_dash(r.finished), r.keep, r.definition, r.fingerprint }, ' ') .. words
    .. '\n' .. r.kind .. '\n' .. engine .. '\n' .. r.name .. '\n' .. r.stuck .. '\n' .. r.summary .. lines
end

-- Loads runs together.
function E.know_runs(ids)
  local ask = {}
  for _, id in ipairs(ids) do
    if E.run_cache[id] == nil then
      E.run_cache[id] = false
      ask[#ask + 1] = id
    end
  end
  local found = E.hmget(E.RUNS, ask)
  for i, id in ipairs(ask) do E.run_cache[id] = found[i] and read_run(id, found[i]) or false end
end
-- A run by id; nil when it is not there.
function E.run(id)
  if E.run_cache[id] == nil then E.know_runs({ id }) end
  return E.run_cache[id] or nil
end
function E.touch_run(r)
  E.dirty_runs[r.id] = r
end
-- Somebody may claim so many more runs of a kind.
function E.ring_runs(kind, count)
  E.rung_runs[kind] = (E.rung_runs[kind] or 0) + count
end

-- Counts the lease that it has, which has run out.
function E.count_stall(r)
  if r.token then r.stalls = min((r.stalls or 0) + 1, E.U32) end
end
-- Puts runs whose time has come, or whose engine vanished, where they are claimed; those that cannot be read are set aside. Answers
-- them, and how many there were.
function E.wake_runs(most)
  local ids = call('ZRANGEBYSCORE', E.RUN_WAKE, '-inf', now, 'LIMIT', 0, most)
  E.know_runs(ids)
  local woken = {}
  for _, id in ipairs(ids) do
    local r = E.run(id)
    local look = r and not r.broken and E.run_look_at(r)
    if not look or look > now then
      E.zput(E.RUN_WAKE, id, look and E.int(look) or false)
    else
      E.count_stall(r)
      r.token, r.ready = nil, E.hex12(E.bump(E.SEQ))
      E.touch_run(r)
      woken[#woken + 1] = r
    end
  end
  return woken, #ids
end

-- The name of an item or of an entry.
local function numbered(r, number)
  return r.seq .. ':' .. E.int(number)
end
E.numbered = numbered
-- More items and entries than this, all runs of the step together, go to the bin, and then bit by bit.
local at_once = 2000
-- Forgets items or entries of a run, from one up to before another. What has more than anybody could have written is damaged, and is
-- looked for one by one.
local function forget_numbered(key, bin, r, from, to)
  if to - from <= at_once then
    at_once = at_once - (to - from)
    E.work = E.work + (to - from) * E.FIELD_WORK
    for n = from, to - 1 do E.hput(key, numbered(r, n), false) end
  elseif to - from <= 1e7 then
    E.binned[#E.binned + 1] = bin .. ' ' .. r.seq .. ' ' .. E.int(from) .. ' ' .. E.int(to)
  else
    E.binned[#E.binned + 1] = bin .. '* ' .. r.seq .. ' ' .. E.int(to) .. ' 0'
  end
end
-- The items before this one were handled.
function E.trim_inbox(r, upto)
  if upto <= r.first then return end
  forget_numbered(E.INBOX, 'i', r, r.first, upto)
  r.first = upto
end

-- A run has changed: gives it its place among those that have something to do, and tells of it.
function E.put_run(r)
  r.changed = NOW
  local due = r.wake and r.wake <= now
  if r.token or not E.run_is_claimable(r) or not (r.first < r.following or due) then
    r.ready = nil
  elseif not r.ready then
    r.ready = E.hex12(E.bump(E.SEQ))
    E.ring_runs(r.kind, 1)
  end
  if r.told_history ~= r.history or r.told_state ~= r.state or r.told_stuck ~= r.stuck then
    E.note_run('run ' .. r.id .. ' ' .. r.state .. ' ' .. E.int(r.history))
    note_told(r)
  end
  E.touch_run(r)
end
-- Puts an item into the inbox.
function E.deliver(r, item, is_message)
  E.hput(E.INBOX, numbered(r, r.following), item)
  r.following = r.following + 1
  if is_message then r.unread = (r.unread or 0) + 1 end
  E.put_run(r)
end

-- Puts words into the inboxes of runs, one each. A run that has ended, or is gone, or cannot be read has no use for it.
function E.tell_runs(ids, words)
  E.know_runs(ids)
  for i, id in ipairs(ids) do
    local r = E.run_cache[id]
    if r and r.state == 'R' then E.deliver(r, words[i]) end
  end
end
-- Wakes engines for the runs that got something to do.
function E.ring_for_runs()
  if not next(E.rung_runs) or call('ZCARD', E.BELLS) == 0 then return end
  for kind, count in pairs(E.rung_runs) do E.wake_some('\n' .. kind .. '\n', 'runs\n', min(count, 8)) end
end

-- What went wrong last with a failed job, as a text with `+` in front or `-`, and the class of that failure behind a space.
local function last_error(j)
  if E.has_flag(j, 'q') then return '+its stored form cannot be read', '' end
  local last
  for line in gmatch(E.has_flag(j, 'x') and E.extra_now(j, ':f') or '', '[^\n]+') do last = line end
  local class, message = match(last or '', '^(%S+) %S+ %S+ (.*)$')
  if not class then return '-', '' end
  return '+' .. message, ' ' .. class
end
-- Tells the run of a job that the job has ended, or is gone before it could (nil).
function E.tell_run(j, state)
  local r = E.run(j.run)
  if not r or r.state ~= 'R' then return end
  local why, class, outputs = '-', '', ''
  if state == 'F' then
    why, class = last_error(j)
  elseif state == 'S' and E.has_flag(j, 'x') then
    -- With the result behind them.
    outputs = E.extra_now(j, ':r') or ''
    if not r.job_results then outputs = match(outputs, '^[^\n]*') end
  end
  E.deliver(r, 'j ' .. j.id .. ' ' .. (state or '-') .. ' ' .. j.attempt .. ' ' .. or_dash(j.claimed) .. ' ' .. E.int(now) .. class .. '\n' .. why
    .. '\n' .. outputs)
end

-- Forgets a run with everything that is its own. One that cannot be read may stand anywhere.
function E.forget_run(r)
  for _, part in ipairs({ '', ':d', ':i', ':p', ':r' }) do E.hput(E.RUNS, r.id .. part, false) end
  E.zput(E.RUN_WAKE, r.id, false)
  E.zput(E.RUN_REMOVABLE, r.id, false)
  if r.at_ready then E.zput(E.RUN_READY, r.at_ready, false) end
  if r.seq then
    for _, list in ipairs(r.broken and { '*', 'R', 'S', 'F', 'C', 'T', 'E' } or { '*', r.at_state }) do
      E.zput(E.RUN_LIST, list .. r.seq .. r.id, false)
    end
    -- Of one that cannot be read nobody knows how much there is.
    forget_numbered(E.INBOX, 'i', r, r.first or 0, r.following or 1e15)
    forget_numbered(E.HISTORY, 'h', r, 0, r.history or 1e15)
    if r.ids then E.binned[#E.binned + 1] = 'm ' .. r.seq .. ' 0 ' .. E.int(min(r.ids, 1000)) end
  end
  E.run_cache[r.id], E.dirty_runs[r.id] = false, nil
  E.ended[#E.ended + 1] = r.id
  E.note_run('run ' .. r.id .. ' - ' .. (r.broken and '0' or E.int(r.history)))
end

local function put_places(r)
  local ready, look, removal = r.ready and E.run_ready_member(r), E.run_look_at(r), remove_at(r)
  if r.at_ready ~= ready then
    if r.at_ready then E.zput(E.RUN_READY, r.at_ready, false) end
    if ready then E.zput(E.RUN_READY, ready, 0) end
  end
  if r.at_look ~= look then E.zput(E.RUN_WAKE, r.id, look and E.int(look) or false) end
  if r.at_remove ~= removal then E.zput(E.RUN_REMOVABLE, r.id, removal and E.int(removal) or false) end
  if r.at_state ~= r.state then
    if r.at_state then E.zput(E.RUN_LIST, r.at_state .. r.seq .. r.id, false) else E.zput(E.RUN_LIST, '*' .. r.seq .. r.id, 0) end
    E.zput(E.RUN_LIST, r.state .. r.seq .. r.id, 0)
  end
  note_places(r)
end
-- Writes the runs that have changed, with the rest of the step.
function E.flush_runs()
  for id, r in pairs(E.dirty_runs) do
    E.hput(E.RUNS, id, r.text or E.run_text(r))
    put_places(r)
  end
  E.dirty_runs = {}
  if #E.binned > 0 then E.many('RPUSH', E.TRASH, E.binned) end
  E.binned = {}
end

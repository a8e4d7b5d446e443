-- Messages to runs, and the ends of runs that their parents get.

-- Unread messages of a run, and how many message ids it keeps; the same as UNREAD_MESSAGES_MAX and MESSAGE_IDS_KEPT of the contract.
local UNREAD_MAX, IDS_KEPT = 10000, 1000
E.UNREAD_MAX = UNREAD_MAX

-- A field of the inboxes as this step leaves it.
local function inbox_now(field)
  local waiting = E.hashes[E.INBOX] and E.hashes[E.INBOX][field]
  if waiting ~= nil then return waiting end
  return call('HGET', E.INBOX, field)
end
-- Keeps the id of a message, in place of the oldest one that is kept.
local function keep_id(r, id)
  local number = r.ids or 0
  local slot = r.seq .. '@' .. E.int(number % IDS_KEPT)
  local oldest = number >= IDS_KEPT and inbox_now(slot)
  if oldest then E.hput(E.INBOX, r.seq .. '#' .. oldest, false) end
  E.hput(E.INBOX, slot, id)
  E.hput(E.INBOX, r.seq .. '#' .. id, E.int(number))
  r.ids = number + 1
end

-- Whether a message of this id was delivered to a run, as far as it is kept.
function E.knows_message(r, id)
  return inbox_now(r.seq .. '#' .. id)
end

-- Tells the parent of a run, if it has one that has not ended, that the run has ended. `result` as it is kept, or `-`.
function E.tell_end(r, result)
  E.ended[#E.ended + 1] = r.id
  local parent = r.parent and E.run(r.parent)
  if not parent or parent.state ~= 'R' then return end
  E.deliver(parent, 'r ' .. r.id .. ' ' .. r.state .. ' ' .. E.int(now) .. '\n' .. (r.error and '+' .. r.error or '-') .. '\n' .. result)
end

-- Puts a message into an inbox; answers why not. Flags: `i` takes the lease away, `r` opens the run again, `t` terminates it, `e<length>`
-- is only for a run that has ended with a history of this length, `k` only for one that is stuck, `s` is of a step, which a full inbox
-- takes, too; and behind `#` stands the id of the message.
function E.send_to_run(run, flags_and_id, body)
  local r = E.run(run)
  if not r then return 'missing' end
  if r.broken then return 'corrupt' end
  local flags, id = match(flags_and_id, '^([^#]*)#?(.*)$')
  if id ~= '' and E.knows_message(r, id) then return 'ok' end
  local reopens, ended_with = match(flags, 'r') ~= nil, match(flags, 'e(%d+)')
  if ended_with and r.state == 'R' then return 'running' end
  if ended_with and r.history ~= tonumber(ended_with) then return 'changed' end
  if match(flags, 'k') and (r.state ~= 'R' or r.stuck == '-') then return 'going' end
  if r.state ~= 'R' and not reopens then return 'ended ' .. r.state end
  if flags == '-' and (r.unread or 0) >= UNREAD_MAX then return 'full' end
  local terminates = match(flags, 't') ~= nil
  if reopens then
    if r.state ~= 'R' then E.hput(E.RUNS, r.id .. ':r', false) end
    r.state, r.stuck, r.finished, r.error = 'R', '-', nil, nil
  end
  if match(flags, 'i') then r.token = nil end
  if terminates then r.token, r.state, r.stuck, r.wake, r.finished, r.error = nil, 'E', '-', nil, now, 'terminated' end
  if id ~= '' then keep_id(r, id) end
  E.deliver(r, 'm ' .. E.int(now) .. (id ~= '' and ' ' .. id or '') .. '\n' .. body, true)
  if terminates then E.tell_end(r, '-') end
  return 'ok'
end

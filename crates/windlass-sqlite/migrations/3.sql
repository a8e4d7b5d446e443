-- Purpose: runs with parents, labels, segments, results and message ids.
-- Outcomes: existing runs have one segment and no labels; their messages are counted, and the bytes of those that go on.

INSERT INTO windlass_run_state VALUES (4, 'timed_out'), (5, 'terminated');

-- `segment_bytes` are those of the input and of the segment's entries, `inbox_holes` the items that were taken out of the middle.
ALTER TABLE windlass_run ADD COLUMN parent TEXT;
ALTER TABLE windlass_run ADD COLUMN labels TEXT;
ALTER TABLE windlass_run ADD COLUMN job_results INTEGER NOT NULL DEFAULT 0;
ALTER TABLE windlass_run ADD COLUMN error TEXT;
ALTER TABLE windlass_run ADD COLUMN segment_from INTEGER NOT NULL DEFAULT 0;
ALTER TABLE windlass_run ADD COLUMN segment_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE windlass_run ADD COLUMN stall_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE windlass_run ADD COLUMN unread_messages INTEGER NOT NULL DEFAULT 0;
ALTER TABLE windlass_run ADD COLUMN inbox_holes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE windlass_run ADD COLUMN message_ids INTEGER NOT NULL DEFAULT 0;
ALTER TABLE windlass_run ADD COLUMN committed_by TEXT;

UPDATE windlass_run SET
  segment_bytes = coalesce((SELECT length(i.input) FROM windlass_run_input i WHERE i.run = seq), 0)
    + coalesce((SELECT sum(length(h.entries)) FROM windlass_history h WHERE h.run = seq), 0),
  unread_messages = (SELECT count(*) FROM windlass_inbox i
    WHERE i.run = seq AND i.number >= inbox_first AND i.item LIKE '{"item":"message"%')
  WHERE state = 0;

-- What a run publishes (part 0) and its result (part 1), as JSON.
CREATE TABLE windlass_run_value (run INTEGER NOT NULL, part INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (run, part));

-- The ids of the last messages to a run, hashed. A new one takes the slot of the oldest.
CREATE TABLE windlass_run_message_id (
  run INTEGER NOT NULL, slot INTEGER NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (run, slot)
) WITHOUT ROWID;
CREATE INDEX windlass_run_message_id_of ON windlass_run_message_id (run, hash);

DROP VIEW windlass_runs;
CREATE VIEW windlass_runs AS
  SELECT r.id, r.name, s.name AS state, r.stuck, r.error, r.summary, r.history_len AS history,
         r.inbox_next - r.inbox_first - r.inbox_holes AS inbox, r.parent, r.labels,
         r.engine, datetime(r.created_at / 1000, 'unixepoch') AS created,
         datetime(r.wake_at / 1000, 'unixepoch') AS wakes, datetime(r.finished_at / 1000, 'unixepoch') AS finished
    FROM windlass_run r LEFT JOIN windlass_run_state s ON s.code = r.state;

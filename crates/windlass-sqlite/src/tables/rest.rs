//! Dedup keys, memos, minutes, workers, schedules.

use super::{SqliteTables, limit};
use crate::db::{Db, Source};
use crate::values::{Col, Json, json};
use rusqlite::{Row as SqlRow, params};

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::Result;
use windlass_core::engine::{
    ClaimMemo, DedupRow, DedupTables, MetricTables, QueueId, ReportMemo, Row, ScheduleTables, Worker, WorkerTables,
};
use windlass_core::id::{JobId, Token};
use windlass_core::job::State;
use windlass_core::name::{ScheduleName, WorkerId};
use windlass_core::schedule::Schedule;
use windlass_core::store::MinuteMetrics;
use windlass_core::time::Timestamp;

/// A reported outcome takes 27 bytes: partition, id, token, state.
const REPORTED: usize = 27;

fn unpack(bytes: &[u8; REPORTED]) -> Option<(JobId, Token, State)> {
    let (partition, rest) = bytes.split_first_chunk::<2>()?;
    let (bits, rest) = rest.split_first_chunk::<16>()?;
    let (token, rest) = rest.split_first_chunk::<8>()?;
    let id = JobId::from_parts(u16::from_le_bytes(*partition), u128::from_le_bytes(*bits));
    let state = State::ALL.get(usize::from(*rest.first()?))?;
    Some((id, Token::from_bits(u64::from_le_bytes(*token)), *state))
}

/// The minutes that are being counted.
#[derive(Debug, Default)]
pub(super) struct Minutes {
    open: BTreeMap<(QueueId, i64), MinuteMetrics>,
    dirty: BTreeSet<(QueueId, i64)>,
}

const MINUTE: &str = "SELECT minute,enqueued,claimed,succeeded,failed,cancelled,retried,stalled,waited_ms,ran_ms \
                      FROM windlass_minute WHERE queue=?1 AND minute BETWEEN ?2 AND ?3 ORDER BY minute";

fn read_minute(row: &SqlRow<'_>) -> rusqlite::Result<MinuteMetrics> {
    let count = |at: usize| -> rusqlite::Result<u64> { Ok(row.get::<_, Col<u64>>(at)?.0) };
    Ok(MinuteMetrics {
        minute: Timestamp::from_ms(row.get::<_, i64>(0)?.saturating_mul(60_000)),
        enqueued: count(1)?,
        claimed: count(2)?,
        succeeded: count(3)?,
        failed: count(4)?,
        cancelled: count(5)?,
        retried: count(6)?,
        stalled: count(7)?,
        waited_ms: count(8)?,
        ran_ms: count(9)?,
    })
}

impl Minutes {
    pub(super) fn forget_queue(&mut self, queue: QueueId) {
        self.open.retain(|(of, _), _| *of != queue);
        self.dirty.retain(|(of, _)| *of != queue);
    }

    pub(super) fn flush<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        for key in std::mem::take(&mut self.dirty) {
            let Some(metrics) = self.open.get(&key) else {
                continue;
            };
            let (queue, minute) = key;
            db.run(
                "INSERT OR REPLACE INTO windlass_minute(queue,minute,enqueued,claimed,succeeded,failed,cancelled,retried,\
                 stalled,waited_ms,ran_ms) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)",
                params![
                    Col(queue.0),
                    minute,
                    Col(metrics.enqueued),
                    Col(metrics.claimed),
                    Col(metrics.succeeded),
                    Col(metrics.failed),
                    Col(metrics.cancelled),
                    Col(metrics.retried),
                    Col(metrics.stalled),
                    Col(metrics.waited_ms),
                    Col(metrics.ran_ms)
                ],
            )?;
        }
        if self.open.len() > 1_000 {
            self.open.clear();
        }
        Ok(())
    }
}

fn read_worker(row: &SqlRow<'_>) -> rusqlite::Result<Worker> {
    Ok(Worker {
        since: row.get::<_, Col<_>>(0)?.0,
        seen_at: row.get::<_, Col<_>>(1)?.0,
        beat: row.get::<_, Json<_>>(2)?.0,
    })
}

fn read_schedule(row: &SqlRow<'_>) -> rusqlite::Result<Schedule> {
    Ok(row.get::<_, Json<_>>(0)?.0)
}

impl<C: Source> DedupTables for SqliteTables<C> {
    fn dedup(&mut self, key: [u8; 16]) -> Result<Option<DedupRow>> {
        // A key that cannot be read holds nothing: rather a job too many than one that can never be enqueued or end.
        self.db.others().one_readable(
            "SELECT owner,until,sticky,successor FROM windlass_dedup WHERE key=?1",
            [key],
            |row| {
                Ok(DedupRow {
                    owner: row.get::<_, Col<_>>(0)?.0,
                    until: row.get::<_, Option<Col<_>>>(1)?.map(|at| at.0),
                    sticky: row.get(2)?,
                    successor: row.get::<_, Option<Col<_>>>(3)?.map(|id| id.0),
                })
            },
        )
    }

    fn put_dedup(&mut self, key: [u8; 16], row: Option<DedupRow>) -> Result<()> {
        match row {
            None => self.db.others().run("DELETE FROM windlass_dedup WHERE key=?1", [key]),
            Some(row) => self.db.others().run(
                "INSERT OR REPLACE INTO windlass_dedup(key,owner,until,sticky,successor) VALUES(?1,?2,?3,?4,?5)",
                params![key, Col(row.owner), row.until.map(Col), row.sticky, row.successor.map(Col)],
            ),
        }
    }

    fn expired_dedup(&mut self, until: Timestamp, max: usize) -> Result<Vec<[u8; 16]>> {
        let sql = "SELECT key FROM windlass_dedup WHERE until IS NOT NULL AND until<=?1 ORDER BY until,key LIMIT ?2";
        self.db.others().all_readable(sql, params![Col(until), limit(max)], |row| row.get(0))
    }
}

impl<C: Source> WorkerTables for SqliteTables<C> {
    fn claim_memo(&mut self, worker: &WorkerId) -> Result<Option<ClaimMemo>> {
        let sql =
            "SELECT request_id,fingerprint,token,claimed FROM windlass_memo WHERE worker=?1 AND request_id IS NOT NULL";
        self.db.others().one_readable(sql, [worker.as_str()], |row| {
            let claimed: Vec<u8> = row.get(3)?;
            let rows = claimed.as_chunks().0.iter().map(|bytes| Row(u64::from_le_bytes(*bytes))).collect();
            Ok(ClaimMemo {
                request_id: row.get::<_, Col<u64>>(0)?.0,
                fingerprint: row.get::<_, Col<u64>>(1)?.0,
                token: row.get::<_, Col<u64>>(2)?.0,
                rows,
            })
        })
    }

    fn put_claim_memo(&mut self, worker: &WorkerId, memo: ClaimMemo, now: Timestamp) -> Result<()> {
        let claimed: Vec<u8> = memo.rows.iter().flat_map(|row| row.0.to_le_bytes()).collect();
        let sql = "INSERT INTO windlass_memo(worker,at,request_id,fingerprint,token,claimed) VALUES(?1,?2,?3,?4,?5,?6) \
                   ON CONFLICT DO UPDATE SET at=excluded.at,request_id=excluded.request_id,fingerprint=excluded.fingerprint,\
                   token=excluded.token,claimed=excluded.claimed";
        let (request_id, fingerprint, token) = (Col(memo.request_id), Col(memo.fingerprint), Col(memo.token));
        self.db.others().run(sql, params![worker.as_str(), Col(now), request_id, fingerprint, token, claimed])
    }

    fn report_memo(&mut self, worker: &WorkerId) -> Result<ReportMemo> {
        let sql = "SELECT reported FROM windlass_memo WHERE worker=?1 AND reported IS NOT NULL";
        let bytes: Vec<u8> =
            self.db.others().one_readable(sql, [worker.as_str()], |row| row.get(0))?.unwrap_or_default();
        // An outcome that cannot be read is one that is not known: its repetition finds its lease lost.
        Ok(bytes.as_chunks::<REPORTED>().0.iter().filter_map(unpack).collect())
    }

    fn put_report_memo(&mut self, worker: &WorkerId, memo: ReportMemo, now: Timestamp) -> Result<()> {
        let mut bytes = Vec::with_capacity(memo.len() * REPORTED);
        for (id, token, state) in memo {
            bytes.extend(id.partition().to_le_bytes());
            bytes.extend(id.bits().to_le_bytes());
            bytes.extend(token.bits().to_le_bytes());
            bytes.push(u8::try_from(state.index()).unwrap_or(u8::MAX));
        }
        let sql = "INSERT INTO windlass_memo(worker,at,reported) VALUES(?1,?2,?3) \
                   ON CONFLICT DO UPDATE SET at=excluded.at,reported=excluded.reported";
        self.db.others().run(sql, params![worker.as_str(), Col(now), bytes])
    }

    fn prune_memos(&mut self, before: Timestamp, max: usize) -> Result<u64> {
        let sql = "DELETE FROM windlass_memo WHERE worker IN (SELECT worker FROM windlass_memo WHERE at<?1 LIMIT ?2)";
        Ok(self.db.others().run_counted(sql, params![Col(before), limit(max)])? as u64)
    }

    fn worker(&mut self, id: &WorkerId) -> Result<Option<Worker>> {
        self.db.others().one_readable(
            "SELECT since,seen_at,beat FROM windlass_worker WHERE id=?1",
            [id.as_str()],
            read_worker,
        )
    }

    fn put_worker(&mut self, worker: Worker) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO windlass_worker(id,since,seen_at,beat) VALUES(?1,?2,?3,?4)";
        self.db
            .others()
            .run(sql, params![worker.id().as_str(), Col(worker.since), Col(worker.seen_at), json(&worker.beat)?])
    }

    fn remove_worker(&mut self, id: &WorkerId) -> Result<()> {
        self.db.others().run("DELETE FROM windlass_worker WHERE id=?1", [id.as_str()])
    }

    fn workers(&mut self) -> Result<Vec<Worker>> {
        self.db.others().all_readable("SELECT since,seen_at,beat FROM windlass_worker ORDER BY id", [], read_worker)
    }
}

impl<C: Source> MetricTables for SqliteTables<C> {
    fn minute_mut(&mut self, queue: QueueId, minute: i64) -> Result<&mut MinuteMetrics> {
        let key = (queue, minute);
        self.minutes.dirty.insert(key);
        match self.minutes.open.entry(key) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(place) => {
                let params = params![Col(queue.0), minute, minute];
                let stored = self.db.others().one_readable(MINUTE, params, read_minute)?;
                Ok(place.insert(stored.unwrap_or_else(|| MinuteMetrics::begin(minute))))
            }
        }
    }

    fn minutes(&mut self, queue: QueueId, from: i64, to: i64) -> Result<Vec<MinuteMetrics>> {
        self.minutes.flush(self.db.others())?;
        self.db.others().all_readable(MINUTE, params![Col(queue.0), from, to], read_minute)
    }

    fn prune_minutes(&mut self, before: i64, max: usize) -> Result<u64> {
        self.minutes.flush(self.db.others())?;
        self.minutes.open.clear();
        let sql = "DELETE FROM windlass_minute WHERE (queue,minute) IN \
                   (SELECT queue,minute FROM windlass_minute WHERE minute<?1 LIMIT ?2)";
        Ok(self.db.others().run_counted(sql, params![before, limit(max)])? as u64)
    }
}

impl<C: Source> ScheduleTables for SqliteTables<C> {
    fn schedule(&mut self, name: &ScheduleName) -> Result<Option<Schedule>> {
        self.db.others().one("SELECT body FROM windlass_schedule WHERE name=?1", [name.as_str()], read_schedule)
    }

    fn put_schedule(&mut self, schedule: Schedule) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO windlass_schedule(name,paused,next_tick,body) VALUES(?1,?2,?3,?4)";
        let next = schedule.next_tick.map(Col);
        self.db.others().run(sql, params![schedule.name.as_str(), schedule.paused, next, json(&schedule)?])
    }

    fn remove_schedule(&mut self, name: &ScheduleName) -> Result<()> {
        self.db.others().run("DELETE FROM windlass_schedule WHERE name=?1", [name.as_str()])
    }

    fn schedules(&mut self) -> Result<Vec<Schedule>> {
        self.db.others().all_readable("SELECT body FROM windlass_schedule ORDER BY name", [], read_schedule)
    }

    fn due_schedules(&mut self, until: Timestamp, max: usize) -> Result<Vec<Schedule>> {
        let sql = "SELECT body FROM windlass_schedule WHERE paused=0 AND next_tick IS NOT NULL AND next_tick<=?1 \
                   ORDER BY next_tick,name LIMIT ?2";
        self.db.others().all_readable(sql, params![Col(until), limit(max)], read_schedule)
    }
}

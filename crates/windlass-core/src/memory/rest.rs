//! Everything that is not a job: dedup keys, memos, metrics, the feed, workers, schedules.

use super::tables::MemoryTables;
use crate::engine::{
    ClaimMemo, DedupRow, DedupTables, FEED_TRIM_MAX, FeedTables, MetricTables, QueueId, ReportMemo, ScheduleTables,
    Worker, WorkerTables,
};
use crate::error::Result;
use crate::name::{ScheduleName, WorkerId};
use crate::schedule::Schedule;
use crate::store::{FeedEntry, MinuteMetrics};
use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// What a worker was answered last.
#[derive(Debug, Default)]
pub(super) struct Memo {
    claim: Option<ClaimMemo>,
    report: ReportMemo,
    at: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Rest {
    dedup: HashMap<[u8; 16], DedupRow>,
    dedup_ends: BTreeSet<(Timestamp, [u8; 16])>,
    memos: HashMap<WorkerId, Memo>,
    pub(super) minutes: BTreeMap<(QueueId, i64), MinuteMetrics>,
    feed: VecDeque<FeedEntry>,
    feed_end: u64,
    feed_events: u64,
    /// The length of the feed, if it was set.
    feed_events_min: Option<u64>,
    workers: BTreeMap<WorkerId, Worker>,
    schedules: BTreeMap<ScheduleName, Schedule>,
}

impl Rest {
    fn memo(&mut self, worker: &WorkerId, now: Timestamp) -> &mut Memo {
        let memo = self.memos.entry(worker.clone()).or_default();
        memo.at = now;
        memo
    }

    fn append_feed(&mut self, entry: FeedEntry) {
        self.feed_end = entry.cursor.0;
        self.feed_events += entry.events.len() as u64;
        self.feed.push_back(entry);
    }

    fn trim_feed(&mut self, events_min: u64) {
        for _ in 0..FEED_TRIM_MAX {
            let Some(first) = self.feed.front() else { break };
            let left = self.feed_events - first.events.len() as u64;
            if left < events_min {
                break;
            }
            self.feed_events = left;
            self.feed.pop_front();
        }
    }
}

impl DedupTables for MemoryTables {
    fn dedup(&mut self, key: [u8; 16]) -> Result<Option<DedupRow>> {
        Ok(self.rest.dedup.get(&key).copied())
    }

    fn put_dedup(&mut self, key: [u8; 16], row: Option<DedupRow>) -> Result<()> {
        let before = match row {
            Some(row) => self.rest.dedup.insert(key, row),
            None => self.rest.dedup.remove(&key),
        };
        if let Some(until) = before.and_then(|row| row.until) {
            self.rest.dedup_ends.remove(&(until, key));
        }
        if let Some(until) = row.and_then(|row| row.until) {
            self.rest.dedup_ends.insert((until, key));
        }
        Ok(())
    }

    fn expired_dedup(&mut self, until: Timestamp, limit: usize) -> Result<Vec<[u8; 16]>> {
        Ok(self.rest.dedup_ends.range(..=(until, [u8::MAX; 16])).take(limit).map(|(_, key)| *key).collect())
    }
}

impl WorkerTables for MemoryTables {
    fn claim_memo(&mut self, worker: &WorkerId) -> Result<Option<ClaimMemo>> {
        Ok(self.rest.memos.get(worker).and_then(|memo| memo.claim.clone()))
    }

    fn put_claim_memo(&mut self, worker: &WorkerId, claim: ClaimMemo, now: Timestamp) -> Result<()> {
        self.rest.memo(worker, now).claim = Some(claim);
        Ok(())
    }

    fn report_memo(&mut self, worker: &WorkerId) -> Result<ReportMemo> {
        Ok(self.rest.memos.get(worker).map_or_else(Vec::new, |memo| memo.report.clone()))
    }

    fn put_report_memo(&mut self, worker: &WorkerId, report: ReportMemo, now: Timestamp) -> Result<()> {
        self.rest.memo(worker, now).report = report;
        Ok(())
    }

    fn prune_memos(&mut self, before: Timestamp, limit: usize) -> Result<u64> {
        let old = self.rest.memos.iter().filter(|(_, memo)| memo.at < before).map(|(worker, _)| worker.clone());
        let old: Vec<WorkerId> = old.take(limit).collect();
        old.iter().for_each(|worker| drop(self.rest.memos.remove(worker)));
        Ok(old.len() as u64)
    }

    fn worker(&mut self, id: &WorkerId) -> Result<Option<Worker>> {
        Ok(self.rest.workers.get(id).cloned())
    }

    fn put_worker(&mut self, worker: Worker) -> Result<()> {
        self.rest.workers.insert(worker.id().clone(), worker);
        Ok(())
    }

    fn remove_worker(&mut self, id: &WorkerId) -> Result<()> {
        self.rest.workers.remove(id);
        Ok(())
    }

    fn workers(&mut self) -> Result<Vec<Worker>> {
        Ok(self.rest.workers.values().cloned().collect())
    }
}

impl MetricTables for MemoryTables {
    fn minute_mut(&mut self, queue: QueueId, minute: i64) -> Result<&mut MinuteMetrics> {
        Ok(self.rest.minutes.entry((queue, minute)).or_insert_with(|| MinuteMetrics::begin(minute)))
    }

    fn minutes(&mut self, queue: QueueId, from: i64, to: i64) -> Result<Vec<MinuteMetrics>> {
        Ok(self.rest.minutes.range((queue, from)..=(queue, to)).map(|(_, metrics)| *metrics).collect())
    }

    fn prune_minutes(&mut self, before: i64, limit: usize) -> Result<u64> {
        let old = self.rest.minutes.keys().filter(|(_, minute)| *minute < before);
        let old: Vec<_> = old.take(limit).copied().collect();
        for key in &old {
            self.rest.minutes.remove(key);
        }
        Ok(old.len() as u64)
    }
}

impl FeedTables for MemoryTables {
    fn feed_end(&mut self) -> Result<u64> {
        Ok(self.rest.feed_end)
    }

    fn feed_begin(&mut self) -> Result<u64> {
        Ok(self.rest.feed.front().map_or(self.rest.feed_end + 1, |entry| entry.cursor.0))
    }

    fn append_feed(&mut self, entry: FeedEntry) -> Result<()> {
        self.rest.append_feed(entry);
        Ok(())
    }

    fn feed(&mut self, after: u64, limit: usize) -> Result<Vec<FeedEntry>> {
        // Entries are numbered without a gap, so the first one tells where the others are.
        let begin = self.rest.feed.front().map_or(0, |entry| entry.cursor.0);
        let skip = usize::try_from((after + 1).saturating_sub(begin)).unwrap_or(usize::MAX);
        Ok(self.rest.feed.iter().skip(skip).take(limit).cloned().collect())
    }

    fn trim_feed(&mut self, events_min: u64) -> Result<()> {
        self.rest.trim_feed(events_min);
        Ok(())
    }

    fn feed_events(&mut self) -> Result<Option<u64>> {
        Ok(self.rest.feed_events_min)
    }

    fn set_feed_events(&mut self, events: u64) -> Result<()> {
        self.rest.feed_events_min = Some(events);
        Ok(())
    }
}

impl ScheduleTables for MemoryTables {
    fn schedule(&mut self, name: &ScheduleName) -> Result<Option<Schedule>> {
        Ok(self.rest.schedules.get(name).cloned())
    }

    fn put_schedule(&mut self, schedule: Schedule) -> Result<()> {
        self.rest.schedules.insert(schedule.name.clone(), schedule);
        Ok(())
    }

    fn remove_schedule(&mut self, name: &ScheduleName) -> Result<()> {
        self.rest.schedules.remove(name);
        Ok(())
    }

    fn schedules(&mut self) -> Result<Vec<Schedule>> {
        Ok(self.rest.schedules.values().cloned().collect())
    }

    fn due_schedules(&mut self, until: Timestamp, limit: usize) -> Result<Vec<Schedule>> {
        let due = |schedule: &&Schedule| !schedule.paused && schedule.next_tick.is_some_and(|tick| tick <= until);
        let mut found: Vec<Schedule> = self.rest.schedules.values().filter(due).cloned().collect();
        found.sort_by(|a, b| (a.next_tick, &a.name).cmp(&(b.next_tick, &b.name)));
        found.truncate(limit);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ScheduleName;
    use crate::store::{FeedCursor, FeedEvent};

    #[test]
    fn a_step_forgets_a_bounded_number_of_feed_entries() {
        let mut rest = Rest::default();
        let event = FeedEvent::ScheduleRemoved { schedule: ScheduleName::new("s").unwrap() };
        for number in 1..=3_000 {
            let at = Timestamp::from_ms(0);
            rest.append_feed(FeedEntry { cursor: FeedCursor(number), at, events: vec![event.clone()] });
        }
        for left in [2_000, 1_000, 5, 5] {
            rest.trim_feed(5);
            assert_eq!(rest.feed.len(), left);
        }
    }
}

//! Everything that is not a job: dedup keys, memos, metrics, the feed, workers, schedules.

use crate::engine::{ClaimMemo, DedupRow, FEED_TRIM_MAX, QueueId, ReportMemo, Worker};
use crate::name::{ScheduleName, WorkerId};
use crate::schedule::Schedule;
use crate::store::{FeedEntry, MinuteMetrics};
use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// What a worker was answered last.
#[derive(Debug, Default)]
pub(super) struct Memo {
    pub(super) claim: Option<ClaimMemo>,
    pub(super) report: ReportMemo,
    at: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Rest {
    dedup: HashMap<[u8; 16], DedupRow>,
    dedup_ends: BTreeSet<(Timestamp, [u8; 16])>,
    pub(super) memos: HashMap<WorkerId, Memo>,
    pub(super) minutes: BTreeMap<(QueueId, i64), MinuteMetrics>,
    pub(super) feed: VecDeque<FeedEntry>,
    pub(super) feed_end: u64,
    feed_events: u64,
    /// The length of the feed, if it was set.
    pub(super) feed_events_min: Option<u64>,
    pub(super) workers: BTreeMap<WorkerId, Worker>,
    pub(super) schedules: BTreeMap<ScheduleName, Schedule>,
}

impl Rest {
    pub(super) fn dedup(&self, key: [u8; 16]) -> Option<DedupRow> {
        self.dedup.get(&key).copied()
    }

    pub(super) fn put_dedup(&mut self, key: [u8; 16], row: Option<DedupRow>) {
        let before = match row {
            Some(row) => self.dedup.insert(key, row),
            None => self.dedup.remove(&key),
        };
        if let Some(until) = before.and_then(|row| row.until) {
            self.dedup_ends.remove(&(until, key));
        }
        if let Some(until) = row.and_then(|row| row.until) {
            self.dedup_ends.insert((until, key));
        }
    }

    pub(super) fn expired_dedup(&self, until: Timestamp, limit: usize) -> Vec<[u8; 16]> {
        self.dedup_ends.range(..=(until, [u8::MAX; 16])).take(limit).map(|(_, key)| *key).collect()
    }

    pub(super) fn memo(&mut self, worker: &WorkerId, now: Timestamp) -> &mut Memo {
        if !self.memos.contains_key(worker) {
            self.memos.insert(worker.clone(), Memo::default());
        }
        let memo = self.memos.entry(worker.clone()).or_default();
        memo.at = now;
        memo
    }

    pub(super) fn prune_memos(&mut self, before: Timestamp, limit: usize) -> u64 {
        let old = self.memos.iter().filter(|(_, memo)| memo.at < before).map(|(worker, _)| worker.clone());
        let old: Vec<WorkerId> = old.take(limit).collect();
        old.iter().for_each(|worker| drop(self.memos.remove(worker)));
        old.len() as u64
    }

    pub(super) fn minute_mut(&mut self, queue: QueueId, minute: i64) -> &mut MinuteMetrics {
        let start = Timestamp::from_ms(minute.saturating_mul(60_000));
        self.minutes.entry((queue, minute)).or_insert_with(|| MinuteMetrics { minute: start, ..Default::default() })
    }

    pub(super) fn prune_minutes(&mut self, before: i64, limit: usize) -> u64 {
        let old: Vec<_> = self.minutes.keys().filter(|(_, minute)| *minute < before).take(limit).copied().collect();
        for key in &old {
            self.minutes.remove(key);
        }
        old.len() as u64
    }

    pub(super) fn append_feed(&mut self, entry: FeedEntry) {
        self.feed_end = entry.cursor.0;
        self.feed_events += entry.events.len() as u64;
        self.feed.push_back(entry);
    }

    pub(super) fn feed_after(&self, after: u64, limit: usize) -> Vec<FeedEntry> {
        // Entries are numbered without a gap, so the first one tells where the others are.
        let begin = self.feed.front().map_or(0, |entry| entry.cursor.0);
        let skip = usize::try_from((after + 1).saturating_sub(begin)).unwrap_or(usize::MAX);
        self.feed.iter().skip(skip).take(limit).cloned().collect()
    }

    pub(super) fn trim_feed(&mut self, events_min: u64) {
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

    pub(super) fn due_schedules(&self, until: Timestamp, limit: usize) -> Vec<Schedule> {
        let due = |schedule: &&Schedule| !schedule.paused && schedule.next_tick.is_some_and(|tick| tick <= until);
        let mut found: Vec<Schedule> = self.schedules.values().filter(due).cloned().collect();
        found.sort_by(|a, b| (a.next_tick, &a.name).cmp(&(b.next_tick, &b.name)));
        found.truncate(limit);
        found
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

//! Rates from the feed: what happened in each of the last seconds, by the store's clock.

use super::snapshot::Rates;
use std::collections::{BTreeMap, VecDeque};
use windlass::core::job::{State, Verb};
use windlass::core::name::QueueName;
use windlass::core::store::{FeedEntry, FeedEvent, Transition};
use windlass::core::time::Timestamp;

/// Seconds that are kept: as many as any chart shows.
const SECONDS_MAX: usize = 300;
/// Whole seconds over which a rate is the mean.
const WINDOW: u32 = 5;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    enqueued: u32,
    succeeded: u32,
    went_wrong: u32,
    ended: u32,
}

impl Counts {
    fn add(&mut self, change: &Transition) {
        let ended = change.to.is_some_and(State::is_terminal) && change.from.is_some_and(|from| !from.is_terminal());
        self.ended += u32::from(ended);
        match change.verb {
            Verb::Enqueue => self.enqueued += 1,
            Verb::Complete => self.succeeded += u32::from(change.to == Some(State::Succeeded)),
            Verb::Fail | Verb::Reap => self.went_wrong += 1,
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct Second {
    at: i64,
    all: Counts,
    queues: BTreeMap<QueueName, Counts>,
}

/// Counts events of the feed by second.
#[derive(Debug, Default)]
pub(super) struct RateMeter {
    seconds: VecDeque<Second>,
}

impl RateMeter {
    /// Counts an entry of the feed.
    pub(super) fn add(&mut self, entry: &FeedEntry) {
        let at = entry.at.as_ms().div_euclid(1_000);
        // Entries come in order, unless the clock was set back: then later seconds are dropped.
        while self.seconds.back().is_some_and(|last| last.at > at) {
            self.seconds.pop_back();
        }
        if self.seconds.back().is_none_or(|last| last.at < at) {
            self.seconds.push_back(Second { at, ..Second::default() });
        }
        if self.seconds.len() > SECONDS_MAX {
            self.seconds.pop_front();
        }
        let Some(second) = self.seconds.back_mut() else { return };
        for event in &entry.events {
            if let FeedEvent::Job(change) = event {
                second.all.add(change);
                second.queues.entry(change.queue.clone()).or_default().add(change);
            }
        }
    }

    /// The last whole seconds before `now`.
    fn window(&self, now: Timestamp) -> impl Iterator<Item = &Second> {
        let end = now.as_ms().div_euclid(1_000);
        let from = end - i64::from(WINDOW);
        self.seconds.iter().filter(move |second| (from..end).contains(&second.at))
    }

    /// The rates of all queues together.
    pub(super) fn rates(&self, now: Timestamp) -> Rates {
        rates(self.window(now).map(|second| second.all))
    }

    /// The rates of one queue.
    pub(super) fn rates_of(&self, queue: &QueueName, now: Timestamp) -> Rates {
        rates(self.window(now).filter_map(|second| second.queues.get(queue)).copied())
    }

    /// Jobs that ended in each of the last seconds, up to the last whole one.
    pub(super) fn ended(&self, now: Timestamp) -> Vec<u64> {
        let end = now.as_ms().div_euclid(1_000);
        let Some(first) = self.seconds.front().map(|second| second.at.max(end - 300)) else { return Vec::new() };
        let by_second: BTreeMap<i64, u32> = self.seconds.iter().map(|second| (second.at, second.all.ended)).collect();
        (first..end).map(|at| u64::from(by_second.get(&at).copied().unwrap_or(0))).collect()
    }
}

fn rates(counts: impl Iterator<Item = Counts>) -> Rates {
    let mut sum = Counts::default();
    for one in counts {
        sum.enqueued += one.enqueued;
        sum.succeeded += one.succeeded;
        sum.went_wrong += one.went_wrong;
    }
    let per_second = |count: u32| f64::from(count) / f64::from(WINDOW);
    Rates {
        enqueued: per_second(sum.enqueued),
        succeeded: per_second(sum.succeeded),
        went_wrong: per_second(sum.went_wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::core::id::JobId;
    use windlass::core::store::FeedCursor;

    fn entry(at_ms: i64, queue: &str, verb: Verb, to: State) -> FeedEntry {
        let change = Transition {
            job: JobId::from_parts(0, 1),
            queue: queue.try_into().unwrap(),
            verb,
            from: (verb != Verb::Enqueue).then_some(State::Active),
            to: Some(to),
            attempt: 1,
        };
        FeedEntry { cursor: FeedCursor(1), at: Timestamp::from_ms(at_ms), events: vec![FeedEvent::Job(change)] }
    }

    #[test]
    fn rates_are_those_of_the_last_whole_seconds() {
        let mut meter = RateMeter::default();
        meter.add(&entry(1_000, "old", Verb::Complete, State::Succeeded));
        for at_ms in [6_100, 6_900, 8_000, 9_999] {
            meter.add(&entry(at_ms, "a", Verb::Complete, State::Succeeded));
        }
        meter.add(&entry(9_999, "b", Verb::Fail, State::Scheduled));
        // The current second does not count.
        meter.add(&entry(10_500, "a", Verb::Complete, State::Succeeded));
        let now = Timestamp::from_ms(10_600);
        let rates = meter.rates(now);
        assert!((rates.succeeded - 0.8).abs() < 1e-9 && (rates.went_wrong - 0.2).abs() < 1e-9, "{rates:?}");
        assert_eq!(meter.rates_of(&"old".try_into().unwrap(), now), Rates::default());
        assert!((meter.rates_of(&"b".try_into().unwrap(), now).went_wrong - 0.2).abs() < 1e-9);
        assert_eq!(meter.ended(now), [1, 0, 0, 0, 0, 2, 0, 1, 1]);
    }

    #[test]
    fn a_clock_that_is_set_back_drops_later_seconds() {
        let mut meter = RateMeter::default();
        meter.add(&entry(100_000, "a", Verb::Complete, State::Succeeded));
        meter.add(&entry(50_000, "a", Verb::Complete, State::Succeeded));
        assert_eq!(meter.ended(Timestamp::from_ms(52_000)), [1, 0]);
    }
}

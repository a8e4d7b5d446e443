//! The last things that happened, in words.

use std::collections::VecDeque;

/// As many as any terminal shows.
const EVENTS_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// As it goes.
    Plain,
    /// Something went wrong with a job.
    Bad,
    /// Something was done to a worker.
    Fault,
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) at_ms: u64,
    pub(super) weight: Weight,
    pub(super) words: String,
}

/// The last events, newest first.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) last: VecDeque<Event>,
    /// Since the demo began.
    pub(super) now_ms: u64,
}

impl Events {
    pub(super) fn say(&mut self, words: impl Into<String>) {
        self.add(Weight::Plain, words.into());
    }

    pub(super) fn bad(&mut self, words: impl Into<String>) {
        self.add(Weight::Bad, words.into());
    }

    pub(super) fn fault(&mut self, words: impl Into<String>) {
        self.add(Weight::Fault, words.into());
    }

    fn add(&mut self, weight: Weight, words: String) {
        self.last.push_front(Event { at_ms: self.now_ms, weight, words });
        self.last.truncate(EVENTS_MAX);
    }
}

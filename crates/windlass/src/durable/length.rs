//! The length of a history: a hint when it grows, and a cap.
//!
//! All records of a segment are replayed whenever a run is opened. A run at the cap becomes stuck, with nothing lost, and never fails.
//! The record of a raised cap stands in the history, so that every engine finds it.

use super::decision::Decision;
use super::item::item_of;
use super::kind::CodeState;
use windlass_core::store::RunRead;
use windlass_durable::record::{Entry, Event, Record};
use windlass_durable::{Item, ItemBody, Run, Stuck, Turn};

/// From this length of a segment on there is a hint.
const HINT: u64 = 10_000;
/// Pages of an inbox that are looked through for a raised cap. An inbox holds 10,000 messages, and the ends of jobs.
const INBOX_PAGES_MAX: u32 = 1_000;

/// The last raised cap in these records.
pub(super) fn raised_cap(records: &[Record]) -> Option<u64> {
    records.iter().rev().find_map(|record| match record.entry {
        Entry::Event { event: Event::CapRaised { cap }, .. } => Some(cap),
        _ => None,
    })
}

impl CodeState {
    /// Applies raised caps among new items.
    pub(super) fn note_caps(&mut self, items: &[Item]) {
        for item in items {
            if let ItemBody::CapRaised { cap } = item.body {
                self.cap = Some(cap);
            }
        }
    }
}

impl Decision<'_> {
    /// The length of the segment, and how long it may be.
    fn length_and_cap(&self) -> (u64, u64) {
        let length = self.turn.history_len().saturating_sub(self.state.first);
        (length, self.state.cap.unwrap_or(0).max(self.turn.history_cap()))
    }

    /// Like [`check_length`](Self::check_length). A raised cap may stand far behind in the inbox.
    pub(super) async fn check_length_or_find_cap(&mut self) -> windlass_core::Result<Result<(), Stuck>> {
        let mut from = self.turn.claimed().inbox_to;
        for _ in 0..INBOX_PAGES_MAX {
            if self.check_length().is_ok() {
                break;
            }
            let read = RunRead { inbox_from: Some(from), ..RunRead::brief(self.state.id) };
            let Some(view) = self.turn.read(read).await?.filter(|view| view.inbox_to > from) else { break };
            from = view.inbox_to;
            let items: Vec<Item> = view.inbox.into_iter().filter_map(|item| item_of(item).ok()?).collect();
            self.state.note_caps(&items);
        }
        Ok(self.check_length())
    }

    /// The segment is twice as long as it may be.
    pub(super) fn is_far_too_long(&self) -> bool {
        let (length, cap) = self.length_and_cap();
        length / 2 >= cap
    }

    /// Refuses to execute the run any further if its segment is too long.
    pub(super) fn check_length(&self) -> Result<(), Stuck> {
        let (length, cap) = self.length_and_cap();
        if length < cap {
            return Ok(());
        }
        let id = self.state.id;
        Err(Stuck::TooLong(format!(
            "its history has {length} records, and all of them are replayed whenever it is opened; at most {cap} are allowed. \
             `windlass runs resume {id} --cap {}` lets it go on, for now. In its code, `continue_as_new` or children keep histories short",
            2 * length.max(cap)
        )))
    }

    /// Adds a hint to the summary, and logs it once, when the segment has become long.
    pub(super) fn hint_at_length(&mut self, run: &Run, turn: &Turn) {
        let (before, length) = (turn.first.saturating_sub(self.state.first), run.history_len() - self.state.first);
        if length < HINT || turn.ended.is_some() {
            return;
        }
        self.state.summary += &format!("; {length} records of history are replayed: continue as new, or use children");
        if before < HINT {
            let run = self.state.id;
            tracing::warn!(%run, length, "the history of a run grows long; let its workflow continue as new, or use children");
        }
    }
}

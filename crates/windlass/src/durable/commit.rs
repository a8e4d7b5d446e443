//! The commits of a decision about a code run.

use super::decision::Decision;
use super::step::{close, step_of};
use crate::runs::{Takes, TurnCommit};
use windlass_core::job::Due;
use windlass_core::store::{RUN_TEXT_BYTES_MAX, RunState, RunStep};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};
use windlass_durable::record::End;
use windlass_durable::{CancelTarget, Chunk, Item, NextSegment, Run, Turn};

/// Records of one commit.
const RECORDS_MAX: usize = 500;
/// An end is refused so often by messages that arrive, and then made in spite of them.
pub(super) const REFUSALS_MAX: u32 = 3;
/// A run that waits for timers and messages alone stays in memory only if a timer fires within this time.
const SLEEP_KEPT_MS: u64 = 5_000;

/// What became of the commits of a turn.
pub(super) enum Committed {
    /// The lease is released.
    Released,
    /// The lease is kept, because local steps are open.
    Kept,
    /// Messages have arrived before the end of the run; nothing of the last commit is stored.
    Refused {
        /// The ends of local steps that the refused commit contained.
        step_ends: Vec<Item>,
    },
}

/// What becomes of the lease with a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lease {
    Kept,
    Released,
    /// It is released while steps are open that have not begun: another engine has to claim the run at once.
    Handed,
}

/// The end of a run or of its segment.
struct Ending {
    end: End,
    next: Option<NextSegment>,
}

impl Decision<'_> {
    /// Commits a turn in chunks. Each takes exactly the items whose events it holds.
    pub(super) async fn commit(&mut self, run: Run, turn: Turn) -> Result<Committed> {
        self.state.summary = summary(&run, &turn);
        self.hint_at_length(&run, &turn);
        // An engine that stops lets steps end that have begun, and begins no others.
        let has_steps = if self.turn.is_stopping() { run.has_begun_steps() } else { run.has_steps() };
        let lease = match (has_steps, run.has_steps()) {
            (true, _) => Lease::Kept,
            (false, true) => Lease::Handed,
            (false, false) => Lease::Released,
        };
        self.state.run = Some(run);
        let committed = self.commit_turn(turn, lease).await?;
        // A commit may have waited for the store while the engine was told to stop.
        match committed {
            Committed::Kept if self.turn.is_stopping() && !self.has_begun_steps() => self.release(Lease::Handed).await,
            committed => Ok(committed),
        }
    }

    pub(super) fn has_begun_steps(&self) -> bool {
        self.state.run.as_ref().is_some_and(Run::has_begun_steps)
    }

    async fn commit_turn(&mut self, turn: Turn, lease: Lease) -> Result<Committed> {
        let (ended, next) = (turn.ended.clone(), turn.next.clone());
        let lease = if ended.is_some() && lease == Lease::Kept { Lease::Released } else { lease };
        let mut chunks: Vec<Chunk> = turn.chunks(RECORDS_MAX).collect();
        if let Some(end) = ended.clone().filter(|_| chunks.is_empty()) {
            return self.end_again(end).await;
        }
        if chunks.is_empty() {
            return if lease == Lease::Kept { Ok(Committed::Kept) } else { self.release(lease).await };
        }
        if ended.is_some() && next.is_none() {
            split_end(&mut chunks);
        }
        let mut chunks = chunks.into_iter().peekable();
        while let Some(chunk) = chunks.next() {
            let is_last = chunks.peek().is_none();
            let end = ended.clone().filter(|_| is_last).map(|end| Ending { end, next: next.clone() });
            let step_ends = chunk.step_ends();
            match self.commit_chunk(chunk, end, if is_last { lease } else { Lease::Kept }).await {
                Err(Error::UnreadMessages { .. }) => return Ok(Committed::Refused { step_ends }),
                committed => committed?,
            }
        }
        self.kind.forget_stuck(self.state.id);
        Ok(if lease == Lease::Kept { Committed::Kept } else { Committed::Released })
    }

    /// Ends a run that was opened again after its end: nothing can follow it.
    async fn end_again(&mut self, end: End) -> Result<Committed> {
        let mut step = RunStep { summary: self.summary(), ..RunStep::nothing() };
        close(&mut step, self.turn.history_len(), end, None)?;
        self.turn.drop_state();
        let commit = TurnCommit { step, takes: Takes::AllRead, keeps_lease: false, requires_read_messages: false };
        self.turn.commit(commit).await?;
        Ok(Committed::Released)
    }

    async fn commit_chunk(&mut self, mut chunk: Chunk, ending: Option<Ending>, lease: Lease) -> Result<()> {
        let mut step = step_of(self.state.id, &mut chunk)?;
        let starts_at = ending.as_ref().and_then(|ending| ending.next.as_ref()?.starts_at);
        if let Some(Ending { end, next }) = ending {
            close(&mut step, chunk.first, end, next)?;
        }
        let requires_read_messages = step.state != RunState::Running && self.refusals < REFUSALS_MAX;
        step.summary = self.summary();
        if step.state == RunState::Running {
            let is_due = step.segment.is_some() || lease == Lease::Handed;
            // The deadline of the run may pass before the next attempt starts.
            let starts_at = starts_at.map(|at| self.state.deadline.map_or(at, |deadline| at.min(deadline)));
            step.wake = if is_due { Some(starts_at.map_or(Due::Now, Due::At)) } else { self.wake() };
        }
        let keeps_lease = lease == Lease::Kept;
        let children = chunk.cancel_children.into_iter().map(CancelTarget::Child);
        let cancelled: Vec<_> = step.cancel.iter().map(|job| CancelTarget::Job(*job)).chain(children).collect();
        let taken = chunk.takes;
        let items: Vec<(u64, Item)> = taken.iter().filter_map(|number| self.unread.remove_entry(number)).collect();
        let takes = self.takes(taken, keeps_lease);
        self.drop_sleeper(keeps_lease || step.state != RunState::Running);
        let committed = self.turn.commit(TurnCommit { step, takes, keeps_lease, requires_read_messages }).await;
        match committed {
            Ok(()) => self.state.note_ends(items.iter().map(|(_, item)| item), cancelled.into_iter()),
            Err(_) => self.unread.extend(items),
        }
        committed
    }

    /// What a commit takes: these items, and those without effect with the last commit.
    fn takes(&mut self, mut taken: Vec<u64>, keeps_lease: bool) -> Takes {
        if !keeps_lease && self.unread.is_empty() && !self.leaves_unreadable {
            return Takes::AllRead;
        }
        if !keeps_lease {
            taken.append(&mut self.without_effect);
        }
        taken.sort_unstable();
        taken.dedup();
        Takes::Items(taken)
    }

    /// Releases the lease of a run for which nothing was decided.
    async fn release(&mut self, lease: Lease) -> Result<Committed> {
        let wake = if lease == Lease::Handed { Some(Due::Now) } else { self.wake() };
        let step = RunStep { wake, summary: self.summary(), ..RunStep::nothing() };
        let takes = self.takes(Vec::new(), false);
        self.drop_sleeper(false);
        let commit = TurnCommit { step, takes, keeps_lease: false, requires_read_messages: false };
        self.turn.commit(commit).await?;
        Ok(Committed::Released)
    }

    /// Drops a run that sleeps for long: its history is all that is needed to go on.
    fn drop_sleeper(&mut self, is_needed: bool) {
        let Some(run) = self.state.run.as_ref().filter(|_| !is_needed) else { return };
        let is_soon = run.next_timer().is_some_and(|at| at.ms_since(self.now()) < SLEEP_KEPT_MS);
        if run.sleeps() && !is_soon {
            self.state.drop_run();
            self.turn.drop_state();
        }
    }

    /// When the next timer fires or the deadline of the run passes.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        let run = self.state.run.as_ref()?;
        run.next_timer().into_iter().chain(self.state.deadline.filter(|_| !run.is_late())).min()
    }

    fn wake(&self) -> Option<Due> {
        self.wake_at().map(Due::At)
    }

    fn summary(&self) -> String {
        let text = &self.state.summary;
        text[..text.floor_char_boundary(RUN_TEXT_BYTES_MAX)].to_owned()
    }
}

/// Puts the record of the end into a commit of its own if the last commit starts something: a step that ends its run starts nothing.
fn split_end(chunks: &mut Vec<Chunk>) {
    let Some(last) = chunks.last_mut().filter(|last| !last.starts.is_empty()) else { return };
    let Some(end) = last.records.pop() else { return };
    let first = last.first + last.records.len() as u64;
    last.has_more = true;
    chunks.push(Chunk { first, records: vec![end], ..Chunk::default() });
}

/// What a run waits for, in short.
fn summary(run: &Run, turn: &Turn) -> String {
    match &turn.ended {
        Some(End::Retried { message, attempt, .. }) => return format!("waits for attempt {attempt}, after: {message}"),
        Some(end) => return end.name().to_owned(),
        None if run.has_started() => {}
        None if run.attempt() > 1 => return format!("waits for attempt {}", run.attempt()),
        None => return "has not started".to_owned(),
    }
    let attempt = if run.attempt() > 1 { format!("attempt {}: ", run.attempt()) } else { String::new() };
    let waits: Vec<String> = run
        .pending(4)
        .iter()
        .map(|op| match op.name.as_ref() {
            "" => op.kind.name().to_owned(),
            name => format!("{} `{name}`", op.kind.name()),
        })
        .collect();
    match waits.len() {
        0 => format!("{attempt}runs"),
        4 => format!("{attempt}waits for {} and more", waits[..3].join(", ")),
        _ => format!("{attempt}waits for {}", waits.join(", ")),
    }
}

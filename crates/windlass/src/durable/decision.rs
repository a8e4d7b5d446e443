//! One decision about a code run: items in, turns of the code, commits out.
//!
//! The code is polled on a thread of its own (`threads.rs`), never on the runtime. Everything that a turn
//! has decided is committed before a local step begins or goes on; while steps are open the lease is kept, and items that arrive
//! are fed to the code. An error drops the code: the next decision opens the run from its stored history.

use super::host::StepListener;
use super::item::item_of;
use super::kind::{CodeRuns, CodeState};
use super::step::{close, step_of};
use crate::runs::{Takes, Turn as EngineTurn, TurnCommit};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::job::Due;
use windlass_core::store::{InboxItem, RUN_TEXT_BYTES_MAX, RunRead, RunState, RunStep};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};
use windlass_durable::record::{End, OpKind};
use windlass_durable::{Chunk, Item, ItemBody, Record, Run, Stuck, Turn, decode_history};

/// Records of one commit. A commit of a segment that ends is not split.
const RECORDS_MAX: usize = 500;
/// After so many engines that ended without a commit a run is stuck: its code ends the process.
const STALLS_MAX: u32 = 3;
/// An end is refused so often by messages that arrive, and then made in spite of them.
const REFUSALS_MAX: u32 = 3;
/// The shortest and the longest time until a stuck run is tried again.
const STUCK_PAUSE_MS: (u64, u64) = (60_000, 3_600_000);
/// Entries of a history that are read at once.
const ENTRIES_READ: u32 = 10_000;
/// A run that waits for timers and messages alone stays in memory only if a timer fires within this time.
const SLEEP_KEPT_MS: u64 = 5_000;

pub(super) struct Decision<'d> {
    kind: &'d CodeRuns,
    state: &'d mut CodeState,
    turn: &'d mut EngineTurn,
    /// Items that were read and that no commit has taken, by their numbers.
    unread: BTreeMap<u64, Item>,
    /// Items that tell the code nothing.
    without_effect: Vec<u64>,
    /// The number behind the last item that was read.
    read_to: u64,
    begun: Instant,
    refusals: u32,
}

/// What became of the commits of a turn.
enum Committed {
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

impl<'d> Decision<'d> {
    #[expect(clippy::disallowed_methods, reason = "the time that a decision takes, by the clock of the runtime")]
    pub(super) fn new(kind: &'d CodeRuns, state: &'d mut CodeState, turn: &'d mut EngineTurn) -> Self {
        let (begun, read_to) = (Instant::now(), 0);
        Self { kind, state, turn, unread: BTreeMap::new(), without_effect: Vec::new(), read_to, begun, refusals: 0 }
    }

    /// Makes the decision and commits it.
    pub(super) async fn make(mut self) -> Result<()> {
        if self.turn.claimed().stall_count >= STALLS_MAX {
            return self.stall().await;
        }
        let items = self.turn.take_inbox();
        let items = self.read(items);
        let mut decided = self.advance(items).await?;
        let listener = self.kind.executor.host.listen(self.state.id);
        loop {
            let (run, turn) = match decided {
                Ok(decided) => decided,
                Err(stuck) => return self.park(&stuck.to_string()).await,
            };
            let has_steps = run.has_steps();
            self.state.summary = summary(&run, &turn);
            self.state.run = Some(run);
            match self.commit(turn, has_steps).await? {
                Committed::Released => return Ok(()),
                Committed::Kept => decided = self.next_turn(&listener).await?,
                Committed::Refused { step_ends } => decided = self.advance_again(step_ends).await?,
            }
        }
    }

    /// The store's time, as far as it is known here.
    fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.turn.now().plus_ms(elapsed)
    }

    /// Converts items that have not been read before.
    fn read(&mut self, items: Vec<InboxItem>) -> Vec<Item> {
        let mut new = Vec::with_capacity(items.len());
        for item in items {
            let number = item.number;
            if number < self.read_to {
                continue;
            }
            self.read_to = number + 1;
            match item_of(self.state.id, item) {
                Some(item) => {
                    self.unread.insert(number, item.clone());
                    new.push(item);
                }
                None => self.without_effect.push(number),
            }
        }
        new
    }

    /// Opens the run if it is not in memory, and feeds items to it.
    async fn advance(&mut self, mut items: Vec<Item>) -> Result<std::result::Result<(Run, Turn), Stuck>> {
        let now = self.now();
        if let Some(deadline) = self.state.deadline.filter(|deadline| *deadline <= now) {
            // The executor ignores it if the history has it already.
            let at = items.iter().position(|item| item.at > deadline).unwrap_or(items.len());
            items.insert(at, Item { number: None, at: deadline, body: ItemBody::TimedOut });
        }
        let (run, history) = (self.state.run.take(), std::mem::take(&mut self.state.history));
        let opening = if run.is_none() { Some(self.state.opening(self.kind, history)) } else { None };
        let work = move || {
            let mut run = match (run, opening) {
                (Some(run), _) => run,
                (None, Some(opening)) => Run::open(opening)?,
                (None, None) => return Err(Stuck::Misuse("a run without its history".to_owned())),
            };
            let turn = run.turn(items, now)?;
            Ok((run, turn))
        };
        self.kind.executor.threads.run(work).await
    }

    /// Waits until something happens while local steps are open, and lets the code act on it.
    async fn next_turn(&mut self, listener: &StepListener) -> Result<std::result::Result<(Run, Turn), Stuck>> {
        let run = self.state.run.take().ok_or_else(|| Error::corrupt("a run that is not in memory"))?;
        let is_due = self.wake_at(&run).is_some_and(|at| at <= self.now());
        let has_arrived = self.turn.has_arrivals();
        // A step that wakes itself all the time must not keep items and timers from the code.
        if !run.steps_woken() || is_due || has_arrived {
            let timer = self.wake_at(&run).map(|at| Duration::from_millis(at.ms_since(self.now())));
            let timer = async {
                match timer {
                    Some(time) => tokio::time::sleep(time).await,
                    None => std::future::pending().await,
                }
            };
            let arrived = tokio::select! {
                biased;
                arrived = self.turn.arrivals() => Some(arrived.items),
                () = timer => Some(Vec::new()),
                () = listener.woken() => None,
            };
            if let Some(items) = arrived {
                let items = self.read(items);
                self.state.run = Some(run);
                return self.advance(items).await;
            }
        }
        let now = self.now();
        let work = move || {
            let mut run = run;
            let turn = run.poll_steps(now)?;
            Ok((run, turn))
        };
        self.kind.executor.threads.run(work).await
    }

    /// Makes a turn anew whose commit was refused, with the unread messages in front.
    async fn advance_again(&mut self, step_ends: Vec<Item>) -> Result<std::result::Result<(Run, Turn), Stuck>> {
        self.refusals += 1;
        self.state.run = None;
        let arrived = self.turn.renew().await?;
        self.read(arrived.items);
        self.state.history = self.stored_history().await?;
        let is_message = |item: &&Item| !matches!(item.body, ItemBody::JobEnded { .. } | ItemBody::ChildEnded { .. });
        let messages = self.unread.values().filter(is_message);
        let others = self.unread.values().filter(|item| !is_message(item));
        let items = messages.chain(others).cloned().chain(step_ends).collect();
        self.advance(items).await
    }

    async fn stored_history(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        loop {
            let history_from = self.state.first + records.len() as u64;
            let read = RunRead { history_from, history_max: ENTRIES_READ, ..RunRead::brief(self.state.id) };
            let view = self.turn.store().read_runs(vec![read]).await?.pop().flatten();
            let entries = view.map(|view| view.history).unwrap_or_default();
            if entries.is_empty() || history_from >= self.turn.history_len() {
                return Ok(records);
            }
            records.extend(decode_history(&entries).map_err(|error| Error::corrupt(format!("its history: {error}")))?);
        }
    }

    /// Commits a turn in chunks. Each takes exactly the items whose events it holds.
    async fn commit(&mut self, turn: Turn, has_steps: bool) -> Result<Committed> {
        let (ended, next) = (turn.ended.clone(), turn.next.clone());
        // The records around the beginning of a segment stand in one commit.
        let records_max = if next.is_some() { usize::MAX } else { RECORDS_MAX };
        let is_over = ended.is_some();
        let mut chunks: Vec<Chunk> = turn.chunks(records_max).collect();
        if let Some(end) = ended.clone().filter(|_| chunks.is_empty()) {
            return self.end_again(end).await;
        }
        if chunks.is_empty() {
            return if has_steps { Ok(Committed::Kept) } else { self.release().await };
        }
        if ended.as_ref().is_some_and(|end| !matches!(end, End::Continued { .. })) {
            split_end(&mut chunks);
        }
        let mut chunks = chunks.into_iter().peekable();
        while let Some(chunk) = chunks.next() {
            let is_last = chunks.peek().is_none();
            let end = if is_last { ended.clone() } else { None };
            let keeps_lease = !is_last || has_steps && !is_over;
            let step_ends = chunk.step_ends();
            match self.commit_chunk(chunk, end, next.clone(), keeps_lease).await {
                Err(Error::UnreadMessages { .. }) => return Ok(Committed::Refused { step_ends }),
                committed => committed?,
            }
        }
        self.kind.forget_stuck(self.state.id);
        Ok(if has_steps && !is_over { Committed::Kept } else { Committed::Released })
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

    async fn commit_chunk(
        &mut self,
        mut chunk: Chunk,
        end: Option<End>,
        next: Option<windlass_durable::NextSegment>,
        keeps_lease: bool,
    ) -> Result<()> {
        let mut step = step_of(self.state.id, &mut chunk)?;
        let requires_read_messages =
            end.as_ref().is_some_and(|end| !matches!(end, End::Continued { .. })) && self.refusals < REFUSALS_MAX;
        let continues = matches!(end, Some(End::Continued { .. }));
        if let Some(end) = end {
            close(&mut step, chunk.first, end, next)?;
        }
        step.summary = self.summary();
        if step.state == RunState::Running {
            step.wake = if continues { Some(Due::Now) } else { self.wake() };
        }
        let taken = chunk.takes;
        let items: Vec<(u64, Item)> = taken.iter().filter_map(|number| self.unread.remove_entry(number)).collect();
        let takes = self.takes(taken, keeps_lease);
        self.drop_sleeper(keeps_lease || step.state != RunState::Running);
        let committed = self.turn.commit(TurnCommit { step, takes, keeps_lease, requires_read_messages }).await;
        if committed.is_err() {
            self.unread.extend(items);
        }
        committed
    }

    /// What a commit takes: these items, and those without effect with the last commit.
    fn takes(&mut self, mut taken: Vec<u64>, keeps_lease: bool) -> Takes {
        if !keeps_lease && self.unread.is_empty() {
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
    async fn release(&mut self) -> Result<Committed> {
        let step = RunStep { wake: self.wake(), summary: self.summary(), ..RunStep::nothing() };
        let takes = self.takes(Vec::new(), false);
        self.drop_sleeper(false);
        let commit = TurnCommit { step, takes, keeps_lease: false, requires_read_messages: false };
        self.turn.commit(commit).await?;
        Ok(Committed::Released)
    }

    /// Drops a run that sleeps for long: its history is all that is needed to go on.
    fn drop_sleeper(&mut self, is_needed: bool) {
        let Some(run) = self.state.run.as_ref().filter(|_| !is_needed) else { return };
        let waits = run.pending(usize::MAX);
        let rests = waits.iter().all(|op| matches!(op.kind, OpKind::Sleep | OpKind::Recv | OpKind::Promise));
        let is_soon = run.next_timer().is_some_and(|at| at.ms_since(self.now()) < SLEEP_KEPT_MS);
        if rests && !is_soon {
            self.state.run = None;
            self.turn.drop_state();
        }
    }

    fn wake_at(&self, run: &Run) -> Option<Timestamp> {
        run.next_timer().into_iter().chain(self.state.deadline.filter(|_| !run.is_late())).min()
    }

    fn wake(&self) -> Option<Due> {
        self.state.run.as_ref().and_then(|run| self.wake_at(run)).map(Due::At)
    }

    fn summary(&self) -> String {
        let text = &self.state.summary;
        text[..text.floor_char_boundary(RUN_TEXT_BYTES_MAX)].to_owned()
    }

    /// A run whose engines have ended without a commit: a panic while unwinding or a stack overflow ends the process.
    async fn stall(mut self) -> Result<()> {
        let count = self.turn.claimed().stall_count;
        let why = format!(
            "{count} processes in a row ended while they executed it: look for a stack overflow, an abort or a lack of memory; \
             `windlass runs resume` tries again"
        );
        self.park(&why).await
    }

    /// Marks the run as stuck. Nothing of the turn is stored, and the run is tried again later.
    async fn park(&mut self, why: &str) -> Result<()> {
        self.state.run = None;
        let id = self.state.id;
        let (min, max) = STUCK_PAUSE_MS;
        let doublings = self.kind.count_stuck(id).saturating_sub(1).min(10);
        let pause = (min << doublings).min(max);
        tracing::warn!(run = %id, why, "a run is stuck");
        let why = why[..why.floor_char_boundary(RUN_TEXT_BYTES_MAX)].to_owned();
        let step = RunStep {
            stuck: Some(why),
            wake: Some(Due::DelayMs(pause)),
            summary: "stuck".to_owned(),
            ..RunStep::nothing()
        };
        self.turn.drop_state();
        let takes = Takes::Items(Vec::new());
        self.turn.commit(TurnCommit { step, takes, keeps_lease: false, requires_read_messages: false }).await
    }
}

/// Puts the record of the end into a commit of its own if the last commit starts something: a step that ends its run starts nothing.
fn split_end(chunks: &mut Vec<Chunk>) {
    let Some(last) = chunks.last_mut().filter(|last| !last.starts.is_empty()) else { return };
    let Some(end) = last.records.pop() else { return };
    let first = last.first + last.records.len() as u64;
    last.has_more = true;
    let (records, starts, takes) = (vec![end], Vec::new(), Vec::new());
    let (cancel_jobs, cancel_children) = (Vec::new(), Vec::new());
    chunks.push(Chunk { first, records, starts, cancel_jobs, cancel_children, takes, has_more: false });
}

/// What a run waits for, in short.
fn summary(run: &Run, turn: &Turn) -> String {
    if let Some(end) = &turn.ended {
        return end.name().to_owned();
    }
    let waits: Vec<String> = run
        .pending(4)
        .iter()
        .map(|op| match op.name.as_ref() {
            "" => op.kind.name().to_owned(),
            name => format!("{} `{name}`", op.kind.name()),
        })
        .collect();
    match waits.len() {
        0 => "runs".to_owned(),
        4 => format!("waits for {} and more", waits[..3].join(", ")),
        _ => format!("waits for {}", waits.join(", ")),
    }
}

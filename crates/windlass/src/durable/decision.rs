//! One decision about a code run: items in, turns of the code, commits out.
//!
//! The code is polled on a thread of its own (`threads.rs`), never on the runtime. Everything that a turn
//! has decided is committed before a local step begins or goes on; while steps are open the lease is kept, and items that arrive
//! are fed to the code. An error drops the code: the next decision opens the run from its stored history.

use super::commit::{Committed, REFUSALS_MAX};
use super::host::StepListener;
use super::item::item_of;
use super::kind::{CodeRuns, CodeState};
use super::lost::{lost_ends, open_targets};
use super::resume::stuck_under;
use crate::runs::{Arrived, Takes, Turn as EngineTurn, TurnCommit};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::job::Due;
use windlass_core::store::{RunRead, RunStep};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};
use windlass_durable::{Item, ItemBody, Opening, Record, Run, RunOptions, RunProbe, Stuck, Turn, decode_history};

/// After so many engines that ended without a commit a run is stuck: its code ends the process.
const STALLS_MAX: u32 = 3;
/// The time until a run that has ended so many processes is tried again.
const STALLED_PAUSE_MS: u64 = 3_600_000;
/// The shortest and the longest time until a stuck run is tried again.
const STUCK_PAUSE_MS: (u64, u64) = (60_000, 3_600_000);
/// Entries of a history that are read at once.
const ENTRIES_READ: u32 = 10_000;
/// Code that has not returned for so long makes its run stuck.
const BLOCKED_MAX: Duration = Duration::from_secs(30);

pub(super) struct Decision<'d> {
    pub(super) kind: &'d CodeRuns,
    pub(super) state: &'d mut CodeState,
    pub(super) turn: &'d mut EngineTurn,
    /// Items that were read and that no commit has taken, by their numbers.
    pub(super) unread: BTreeMap<u64, Item>,
    /// Items that tell the code nothing.
    pub(super) without_effect: Vec<u64>,
    /// Items that have arrived meanwhile cannot be read. The next decision deals with them.
    pub(super) leaves_unreadable: bool,
    /// The number behind the last item that was read.
    read_to: u64,
    /// All items up to this time were read. Timers fire up to it.
    known_to: Timestamp,
    begun: Instant,
    pub(super) refusals: u32,
    /// The messages that stood in front of all other items of the last turn.
    offered: BTreeSet<u64>,
}

/// What a turn returns.
type Decided = std::result::Result<(Run, Turn), Stuck>;

impl<'d> Decision<'d> {
    #[expect(clippy::disallowed_methods, reason = "the time that a decision takes, by the clock of the runtime")]
    pub(super) fn new(kind: &'d CodeRuns, state: &'d mut CodeState, turn: &'d mut EngineTurn) -> Self {
        let (begun, known_to) = (Instant::now(), turn.now());
        let (unread, without_effect) = (BTreeMap::new(), Vec::new());
        let (leaves_unreadable, read_to, refusals, offered) = (false, 0, 0, BTreeSet::new());
        Self {
            kind,
            state,
            turn,
            unread,
            without_effect,
            leaves_unreadable,
            read_to,
            known_to,
            begun,
            refusals,
            offered,
        }
    }

    /// Makes the decision and commits it.
    pub(super) async fn make(mut self) -> Result<()> {
        if self.turn.claimed().stall_count >= STALLS_MAX {
            return self.park_stalled().await;
        }
        match self.decide().await {
            Ok(Ok(())) => Ok(()),
            // No code is executed for it, so it may be looked at as seldom as the longest pause allows.
            Ok(Err(stuck @ Stuck::TooLong(_))) => self.park(&stuck.to_string(), STUCK_PAUSE_MS.1).await,
            Ok(Err(stuck)) => self.park_stuck(&stuck.to_string()).await,
            // Nothing can be committed, or another engine decides.
            Err(error) if error.is_retryable() || self.turn.has_released() => Err(error),
            Err(error @ (Error::LeaseLost | Error::NotFound { .. })) => Err(error),
            Err(error) => self.park_stuck(&error.to_string()).await,
        }
    }

    async fn decide(&mut self) -> Result<std::result::Result<(), Stuck>> {
        if let Some(damage) = self.state.damage.take() {
            return Err(Error::corrupt(damage));
        }
        let items = self.turn.take_inbox();
        let has_unreadable = self.turn.claimed().inbox_taken > items.len() as u64;
        let arrived = Arrived { items, unreadable: 0 };
        let mut decided = match self.read(arrived, self.turn.now()) {
            Ok(mut items) => {
                if has_unreadable {
                    let open = open_targets(self.state, &items);
                    items.extend(lost_ends(open, self.turn).await?);
                }
                match self.check_length_or_find_cap().await? {
                    Ok(()) => self.run_turn(items).await?,
                    Err(stuck) => Err(stuck),
                }
            }
            Err(stuck) => Err(stuck),
        };
        let listener = self.kind.executor.host.listen(self.state.id);
        loop {
            let (run, turn) = match decided {
                Ok(decided) => decided,
                Err(stuck) => return Ok(Err(stuck)),
            };
            decided = match self.commit(run, turn).await? {
                Committed::Released => return Ok(Ok(())),
                Committed::Kept => match self.check_length() {
                    // A step that has begun should not be begun again, if that is possible.
                    Err(stuck) if !self.has_begun_steps() || self.is_far_too_long() => Err(stuck),
                    _ => self.wait_and_run_turn(&listener).await?,
                },
                Committed::Refused { step_ends } => self.redo_refused_turn(step_ends).await?,
            };
        }
    }

    /// The store's time, as far as it is known here.
    pub(super) fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.turn.now().plus_ms(elapsed)
    }

    /// Converts items that have not been read before. They were asked for at the time `asked_at`.
    fn read(&mut self, arrived: Arrived, asked_at: Timestamp) -> std::result::Result<Vec<Item>, Stuck> {
        let Arrived { items, unreadable } = arrived;
        self.leaves_unreadable |= unreadable > 0;
        let mut new = Vec::with_capacity(items.len());
        // After some items, more may be unread: a timer must not fire before an item that is older.
        let mut known_to = if items.is_empty() { Some(asked_at) } else { None };
        for item in items {
            let number = item.number;
            if number < self.read_to {
                continue;
            }
            self.read_to = number + 1;
            match item_of(item)? {
                Some(item) => {
                    known_to = known_to.max(Some(item.at));
                    self.unread.insert(number, item.clone());
                    new.push(item);
                }
                None => self.without_effect.push(number),
            }
        }
        self.state.note_caps(&new);
        self.known_to = known_to.unwrap_or(Timestamp::from_ms(0)).min(asked_at);
        Ok(new)
    }

    /// Opens the run if it is not in memory, and feeds items to it.
    async fn run_turn(&mut self, mut items: Vec<Item>) -> Result<Decided> {
        let (until, now, retry) = (self.known_to, self.now(), self.state.retry.clone());
        self.offered = items.iter().take_while(|item| is_message(item)).filter_map(|item| item.number).collect();
        if let Some(deadline) = self.state.deadline.filter(|deadline| *deadline <= until) {
            // The executor ignores it if the history has it already.
            let at = items.iter().position(|item| item.at > deadline).unwrap_or(items.len());
            items.insert(at, Item { number: None, at: deadline, body: ItemBody::TimedOut });
        }
        let (run, history) = (self.state.run.take(), std::mem::take(&mut self.state.history));
        let opening = if run.is_none() { Some(self.state.opening(self.kind, history)) } else { None };
        let probe = Arc::new(Mutex::new(run.as_ref().map(Run::probe)));
        let opened = Arc::clone(&probe);
        let work = move || {
            let mut run = match (run, opening) {
                (Some(run), _) => run,
                (None, Some(opening)) => open(opening, RunOptions { clock: now, retry }, &opened)?,
                (None, None) => return Err(Stuck::Misuse("a run without its history".to_owned())),
            };
            run.set_clock(now);
            let turn = run.turn(items, until)?;
            Ok((run, turn))
        };
        self.run_on_thread(probe, work).await
    }

    /// Runs code of the run on a thread for it. Code that does not return makes the run stuck.
    async fn run_on_thread(
        &mut self,
        probe: Arc<Mutex<Option<RunProbe>>>,
        work: impl FnOnce() -> Decided + Send + 'static,
    ) -> Result<Decided> {
        let id = self.state.id;
        let place = || probe.lock().as_ref().map_or_else(|| "its start".to_owned(), RunProbe::last_place);
        let blocked = |time: Duration| {
            if time < 2 * super::threads::BLOCKED_AFTER {
                tracing::warn!(run = %id, place = place(), "a workflow blocks its thread; use `run_blocking` for such work");
            }
            time >= BLOCKED_MAX
        };
        let decided = self.kind.executor.threads.run(work, blocked).await?;
        Ok(decided.unwrap_or_else(|| {
            let seconds = BLOCKED_MAX.as_secs();
            Err(Stuck::Blocked(format!(
                "after {} the code has not returned for {seconds} s: it blocks its thread; use `run_blocking` for such work",
                place()
            )))
        }))
    }

    /// Waits until something happens while local steps are open, and lets the code act on it.
    async fn wait_and_run_turn(&mut self, listener: &StepListener) -> Result<Decided> {
        // A step that has begun should not be dropped.
        self.turn.set_busy(self.has_begun_steps());
        let wake_at = self.wake_at();
        let is_due = wake_at.is_some_and(|at| at <= self.now());
        let are_woken = self.state.run.as_ref().is_some_and(Run::steps_woken);
        // A step that wakes itself all the time must not keep items and timers from the code.
        if !are_woken || is_due || self.turn.has_arrivals() {
            let timer = wake_at.map(|at| Duration::from_millis(at.ms_since(self.now())));
            let timer = async {
                match timer {
                    Some(time) => tokio::time::sleep(time).await,
                    None => std::future::pending().await,
                }
            };
            let asked_at = self.now();
            let arrived = tokio::select! {
                biased;
                arrived = self.turn.arrivals() => Some(Some((arrived, asked_at))),
                () = timer => Some(None),
                () = listener.woken() => None,
            };
            if let Some(arrived) = arrived {
                let (arrived, asked_at) = match arrived {
                    Some(arrived) => arrived,
                    // What came before the timer stands in front of it.
                    None => (self.turn.renew().await?, self.now()),
                };
                return match self.read(arrived, asked_at) {
                    Ok(items) => self.run_turn(items).await,
                    Err(stuck) => Ok(Err(stuck)),
                };
            }
        }
        self.turn.set_busy(true);
        self.offered.clear();
        let now = self.now();
        let mut run = self.state.run.take().ok_or_else(|| Error::corrupt("a run that is not in memory"))?;
        let probe = Arc::new(Mutex::new(Some(run.probe())));
        let work = move || {
            let turn = run.poll_steps(now)?;
            Ok((run, turn))
        };
        self.run_on_thread(probe, work).await
    }

    /// Makes a turn anew whose commit was refused, with the unread messages in front.
    async fn redo_refused_turn(&mut self, step_ends: Vec<Item>) -> Result<Decided> {
        self.refusals += 1;
        self.state.drop_run();
        let asked_at = self.now();
        let arrived = self.turn.renew().await?;
        if let Err(stuck) = self.read(arrived, asked_at) {
            return Ok(Err(stuck));
        }
        self.state.history = self.stored_history().await?;
        let (messages, others): (Vec<_>, Vec<_>) = self.unread.values().cloned().partition(is_message);
        // The code has ended although it was offered all of them before anything else, and would do so again.
        if messages.iter().filter_map(|item| item.number).all(|number| self.offered.contains(&number)) {
            self.refusals = REFUSALS_MAX;
        }
        let others: Vec<Item> = others.into_iter().chain(step_ends).collect();
        // A timer that was not due before the others is not due before the messages in front of them.
        let oldest = others.iter().map(|item| item.at).min();
        let in_front = |item: Item| Item { at: oldest.map_or(item.at, |oldest| item.at.min(oldest)), ..item };
        self.run_turn(messages.into_iter().map(in_front).chain(others).collect()).await
    }

    async fn stored_history(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        loop {
            let history_from = self.state.first + records.len() as u64;
            if history_from >= self.turn.history_len() {
                return Ok(records);
            }
            let read = RunRead { history_from, history_max: ENTRIES_READ, ..RunRead::brief(self.state.id) };
            let entries = self.turn.read(read).await?.map(|view| view.history).unwrap_or_default();
            if entries.is_empty() {
                return Err(Error::corrupt("its history is shorter than it should be"));
            }
            records.extend(decode_history(&entries).map_err(|error| Error::corrupt(format!("its history: {error}")))?);
        }
    }

    /// A run whose engines have ended without a commit: a panic while unwinding or a stack overflow ends the process.
    async fn park_stalled(&mut self) -> Result<()> {
        let count = self.turn.claimed().stall_count;
        let why = format!(
            "{count} processes in a row ended while they executed it: look for a stack overflow, an abort or a lack of memory; \
             it is tried again in an hour, or at once after `windlass runs resume`"
        );
        self.park(&why, STALLED_PAUSE_MS).await
    }

    async fn park_stuck(&mut self, why: &str) -> Result<()> {
        let (min, max) = STUCK_PAUSE_MS;
        let doublings = self.kind.count_stuck(self.state.id).saturating_sub(1).min(10);
        self.park(why, (min << doublings).min(max)).await
    }

    /// Marks the run as stuck. Nothing of the turn is stored, and the run is tried again after the pause.
    async fn park(&mut self, why: &str, pause_ms: u64) -> Result<()> {
        self.state.drop_run();
        tracing::warn!(run = %self.state.id, why, "a run is stuck");
        let why = stuck_under(&self.kind.executor.build(), why);
        let wake = Some(Due::DelayMs(pause_ms));
        let step = RunStep { stuck: Some(why), wake, summary: "stuck".to_owned(), ..RunStep::nothing() };
        self.turn.drop_state();
        let takes = Takes::Items(Vec::new());
        self.turn.commit(TurnCommit { step, takes, keeps_lease: false, requires_read_messages: false }).await
    }
}

/// A message of a user. Its commit is refused while one of them is unread.
fn is_message(item: &Item) -> bool {
    !matches!(item.body, ItemBody::JobEnded { .. } | ItemBody::ChildEnded { .. } | ItemBody::StepEnded { .. })
}

/// Opens a run. Its probe is stored before the code is replayed, which may block.
fn open(opening: Opening, options: RunOptions, probe: &Mutex<Option<RunProbe>>) -> std::result::Result<Run, Stuck> {
    Run::open_with(opening, options, |opened| *probe.lock() = Some(opened))
}

//! The job machine: one pure function, used by every store that runs Rust and matched by every other.
//!
//! | from \ verb | promote | claim | renew, progress, log | complete | fail | release | cancel | reap | retry | reschedule | reprioritise | update payload | remove |
//! |---|---|---|---|---|---|---|---|---|---|---|---|---|---|
//! | scheduled | ready | – | – | – | – | – | cancelled | – | – | scheduled, ready | scheduled | scheduled | gone |
//! | ready | – | active | – | – | – | – | cancelled | – | – | scheduled, ready | ready | ready | gone |
//! | active | – | – | active | succeeded, cancelled | scheduled, ready, failed, cancelled | ready, failed, cancelled | active | ready, failed, cancelled | – | – | – | – | – |
//! | succeeded | – | – | – | – | – | – | – | – | ready, scheduled | – | – | – | gone |
//! | failed | – | – | – | – | – | – | – | – | ready, scheduled | – | – | failed | gone |
//! | cancelled | – | – | – | – | – | – | – | – | ready, scheduled | – | – | – | gone |
//!
//! A dash is `IllegalTransition`, except for the verbs that need a lease: without the current one they are `LeaseLost`,
//! whatever the state.

use super::life::{Held, LastReport, Life};
use crate::error::{Error, Result};
use crate::id::Token;
use crate::name::WorkerId;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for its time, or behind another job.
    Scheduled,
    /// Waits for a worker.
    Ready,
    /// A worker holds its lease.
    Active,
    /// Ended well.
    Succeeded,
    /// Ended badly; this is the dead letter.
    Failed,
    /// Ended on request.
    Cancelled,
}

impl State {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Scheduled, Self::Ready, Self::Active, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// True when only an explicit retry can change it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// Its place in [`State::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Active => "active",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for State {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid("state", format!("`{text}` is none of {names}"))
        })
    }
}

/// What can be asked of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the vocabulary")]
pub enum Verb {
    Enqueue,
    Promote,
    Claim,
    Renew,
    Progress,
    Log,
    Complete,
    Fail,
    Release,
    Cancel,
    Reap,
    Retry,
    Reschedule,
    Reprioritise,
    UpdatePayload,
    Remove,
}

impl Verb {
    /// All that the machine handles; `Enqueue` makes a job and needs none.
    pub const ALL: [Self; 15] = [
        Self::Promote,
        Self::Claim,
        Self::Renew,
        Self::Progress,
        Self::Log,
        Self::Complete,
        Self::Fail,
        Self::Release,
        Self::Cancel,
        Self::Reap,
        Self::Retry,
        Self::Reschedule,
        Self::Reprioritise,
        Self::UpdatePayload,
        Self::Remove,
    ];

    /// True when it needs the current lease.
    pub fn needs_lease(self) -> bool {
        matches!(self, Self::Renew | Self::Progress | Self::Log | Self::Complete | Self::Fail | Self::Release)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Promote => "promote",
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::Progress => "progress",
            Self::Log => "log",
            Self::Complete => "complete",
            Self::Fail => "fail",
            Self::Release => "release",
            Self::Cancel => "cancel",
            Self::Reap => "reap",
            Self::Retry => "retry",
            Self::Reschedule => "reschedule",
            Self::Reprioritise => "reprioritise",
            Self::UpdatePayload => "update_payload",
            Self::Remove => "remove",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Log => "append to its log",
            Self::UpdatePayload => "change its payload",
            Self::Claim => "be claimed",
            Self::Cancel => "be cancelled",
            Self::Remove => "be removed",
            Self::Retry => "be retried",
            Self::Reschedule => "be rescheduled",
            Self::Reprioritise => "be reprioritised",
            Self::Promote => "be promoted",
            Self::Reap => "be reaped",
            Self::Release => "be released",
            other => other.as_str(),
        })
    }
}

/// Where `verb` may lead from `from`; `None` in the list is "gone". An empty list is an illegal pair.
pub fn targets(from: State, verb: Verb) -> &'static [Option<State>] {
    use State::{Active, Cancelled, Failed, Ready, Scheduled, Succeeded};
    match (from, verb) {
        (Scheduled, Verb::Promote) => &[Some(Ready)],
        (Ready, Verb::Claim) | (Active, Verb::Renew | Verb::Progress | Verb::Log | Verb::Cancel) => &[Some(Active)],
        (Active, Verb::Complete) => &[Some(Succeeded), Some(Cancelled)],
        (Active, Verb::Fail) => &[Some(Scheduled), Some(Ready), Some(Failed), Some(Cancelled)],
        (Active, Verb::Release | Verb::Reap) => &[Some(Ready), Some(Failed), Some(Cancelled)],
        (Scheduled | Ready, Verb::Cancel) => &[Some(Cancelled)],
        (Scheduled | Ready, Verb::Reschedule) | (Succeeded | Failed | Cancelled, Verb::Retry) => {
            &[Some(Scheduled), Some(Ready)]
        }
        (Scheduled, Verb::Reprioritise | Verb::UpdatePayload) => &[Some(Scheduled)],
        (Ready, Verb::Reprioritise | Verb::UpdatePayload) => &[Some(Ready)],
        (Failed, Verb::UpdatePayload) => &[Some(Failed)],
        (Scheduled | Ready | Succeeded | Failed | Cancelled, Verb::Remove) => &[None],
        _ => &[],
    }
}

/// What becomes of a failed attempt; the policy was asked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Try again after this delay, if an attempt is left.
    AfterMs(u64),
    /// This failure is final.
    Never,
}

/// Something that happens to a job.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are those of the requests that cause them")]
pub enum Event {
    Promote,
    Claim { worker: WorkerId, token: Token, lease_ms: u64 },
    Renew { token: Token, lease_ms: u64 },
    Progress { token: Token },
    Log { token: Token },
    Complete { token: Token },
    Fail { token: Token, retry: Retry },
    Release { token: Token, started: bool },
    Cancel,
    Reap,
    Retry { due_at: Timestamp },
    Reschedule { due_at: Timestamp },
    Reprioritise,
    UpdatePayload,
    Remove,
}

impl Event {
    /// The verb of the event.
    pub fn verb(&self) -> Verb {
        match self {
            Self::Promote => Verb::Promote,
            Self::Claim { .. } => Verb::Claim,
            Self::Renew { .. } => Verb::Renew,
            Self::Progress { .. } => Verb::Progress,
            Self::Log { .. } => Verb::Log,
            Self::Complete { .. } => Verb::Complete,
            Self::Fail { .. } => Verb::Fail,
            Self::Release { .. } => Verb::Release,
            Self::Cancel => Verb::Cancel,
            Self::Reap => Verb::Reap,
            Self::Retry { .. } => Verb::Retry,
            Self::Reschedule { .. } => Verb::Reschedule,
            Self::Reprioritise => Verb::Reprioritise,
            Self::UpdatePayload => Verb::UpdatePayload,
            Self::Remove => Verb::Remove,
        }
    }

    fn token(&self) -> Option<Token> {
        match self {
            Self::Renew { token, .. }
            | Self::Progress { token }
            | Self::Log { token }
            | Self::Complete { token }
            | Self::Fail { token, .. }
            | Self::Release { token, .. } => Some(*token),
            _ => None,
        }
    }
}

/// Whether the job keeps its place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It keeps its number.
    Keep,
    /// It takes a new number, behind all that are there.
    Fresh,
}

/// What the job becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It lives on like this.
    Becomes(Life, Order),
    /// It is gone.
    Gone,
}

/// The transition function. Anything that is not in the table is a typed error and changes nothing.
pub fn next(life: &Life, event: &Event, now: Timestamp) -> Result<Next> {
    let verb = event.verb();
    if let Some(token) = event.token()
        && !life.is_held_by(token)
    {
        return Err(Error::LeaseLost);
    }
    if targets(life.state, verb).is_empty() {
        return Err(Error::IllegalTransition { from: life.state, verb });
    }
    let mut job = life.clone();
    let mut order = Order::Keep;
    match event {
        Event::Remove => return Ok(Next::Gone),
        Event::Progress { .. } | Event::Log { .. } | Event::Reprioritise | Event::UpdatePayload => {}
        Event::Promote => order = wake(&mut job, now, now),
        Event::Claim { worker, token, lease_ms } => claim(&mut job, worker, *token, now.plus_ms(*lease_ms), now),
        Event::Renew { lease_ms, .. } => {
            if let Some(held) = &mut job.held {
                // A clock that jumped back must not take away what was promised.
                held.expires_at = held.expires_at.max(now.plus_ms(*lease_ms));
            }
        }
        Event::Complete { .. } => end(&mut job, State::Succeeded, now),
        Event::Fail { retry, .. } => order = fail(&mut job, *retry, now),
        Event::Release { started, .. } => release(&mut job, *started, now),
        Event::Reap => order = reap(&mut job, now)?,
        Event::Cancel if life.state == State::Active => job.cancel_requested = true,
        Event::Cancel => end(&mut job, State::Cancelled, now),
        Event::Reschedule { due_at } => order = wake(&mut job, *due_at, now),
        Event::Retry { due_at } => order = retry(&mut job, *due_at, now),
    }
    if let (Some(token), State::Active, true) = (event.token(), life.state, job.state != State::Active) {
        job.last_report = Some(LastReport { token, state: job.state });
    }
    debug_assert!(targets(life.state, verb).contains(&Some(job.state)), "{life:?} {event:?}");
    Ok(Next::Becomes(job, order))
}

fn claim(job: &mut Life, worker: &WorkerId, token: Token, expires_at: Timestamp, now: Timestamp) {
    job.state = State::Active;
    job.attempt = job.attempt.saturating_add(1);
    job.claimed_at = Some(now);
    job.held = Some(Held { token, worker: worker.clone(), expires_at });
}

/// To ready when `due_at` has come, to scheduled otherwise.
fn wake(job: &mut Life, due_at: Timestamp, now: Timestamp) -> Order {
    job.held = None;
    if due_at <= now {
        job.state = State::Ready;
        job.due_at = None;
    } else {
        job.state = State::Scheduled;
        job.due_at = Some(due_at);
    }
    Order::Fresh
}

/// To a terminal state; a cancel that was acknowledged wins over whatever the handler says.
fn end(job: &mut Life, state: State, now: Timestamp) {
    job.state = if job.cancel_requested { State::Cancelled } else { state };
    job.held = None;
    job.due_at = None;
    job.finished_at = Some(now);
}

fn fail(job: &mut Life, retry: Retry, now: Timestamp) -> Order {
    match retry {
        Retry::AfterMs(ms) if !job.cancel_requested && job.attempt < job.attempts_max => {
            wake(job, now.plus_ms(ms), now)
        }
        Retry::AfterMs(_) | Retry::Never => {
            end(job, State::Failed, now);
            Order::Keep
        }
    }
}

/// A worker that stops takes back nothing but time: whoever started on the last attempt is treated like one whose worker
/// vanished, and spends a stall.
fn release(job: &mut Life, started: bool, now: Timestamp) {
    let last = started && job.attempt >= job.attempts_max;
    if job.cancel_requested || last && job.stalls >= job.stalls_max {
        return end(job, State::Failed, now);
    }
    if last {
        job.stalls = job.stalls.saturating_add(1);
    }
    if last || !started {
        job.attempt = job.attempt.saturating_sub(1);
    }
    job.state = State::Ready;
    job.held = None;
}

fn reap(job: &mut Life, now: Timestamp) -> Result<Order> {
    if job.held.as_ref().is_some_and(|held| held.expires_at > now) {
        return Err(Error::IllegalTransition { from: job.state, verb: Verb::Reap });
    }
    job.attempt = job.attempt.saturating_sub(1);
    job.stalls = job.stalls.saturating_add(1);
    if job.cancel_requested || job.stalls > job.stalls_max {
        end(job, State::Failed, now);
        return Ok(Order::Keep);
    }
    Ok(wake(job, now, now))
}

fn retry(job: &mut Life, due_at: Timestamp, now: Timestamp) -> Order {
    job.attempt = 0;
    job.stalls = 0;
    job.retries = job.retries.saturating_add(1);
    job.cancel_requested = false;
    job.finished_at = None;
    wake(job, due_at, now)
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;

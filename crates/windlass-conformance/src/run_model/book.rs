//! What must be true of runs, written down without the engine: a book that is told of every step, and that says what the
//! store has to answer and to show. It keeps no index; whatever it wants to know, it looks through all runs for.

use bytes::Bytes;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::State;
use windlass_core::name::Kind;
use windlass_core::store::{NewRun, RunCommit, RunMessage, RunState, RunStep};
use windlass_core::time::Timestamp;

/// How a call is answered, without its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    Ok,
    Existing,
    Repeated,
    Taken,
    Invalid,
    Missing,
    Lost,
    Refused,
    Other,
}

impl Word {
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::RunTaken { .. } => Self::Taken,
            Error::Invalid { .. } => Self::Invalid,
            Error::NotFound { .. } => Self::Missing,
            Error::LeaseLost => Self::Lost,
            Error::RunRefused { .. } => Self::Refused,
            _ => Self::Other,
        }
    }
}

/// Something in an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Job(JobId, Option<State>),
    Message(Timestamp, String),
}

/// Who holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// The number of the lease.
    pub(super) lease: usize,
    pub(super) expires_at: Timestamp,
}

/// A run.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) place: u64,
    pub(super) kind: Kind,
    pub(super) content: u64,
    pub(super) state: RunState,
    pub(super) stuck: Option<String>,
    pub(super) summary: String,
    pub(super) history: Vec<Bytes>,
    pub(super) inbox: Vec<Item>,
    pub(super) held: Option<Holder>,
    /// Its engine vanished, and nobody has taken it since.
    abandoned: bool,
    last_lease: Option<usize>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) created_at: Timestamp,
    pub(super) changed_at: Timestamp,
    pub(super) finished_at: Option<Timestamp>,
}

impl Entry {
    fn rests(&self) -> bool {
        self.state.is_terminal() || self.stuck.is_some()
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.wake_at.is_some_and(|at| at <= now)
    }

    fn has_expired(&self, now: Timestamp) -> bool {
        self.held.is_some_and(|held| held.expires_at <= now)
    }

    fn may_be_claimed(&self, now: Timestamp) -> bool {
        self.held.is_none() && !self.rests() && (!self.inbox.is_empty() || self.is_due(now) || self.abandoned)
    }

    fn get(&mut self, item: Item, now: Timestamp) {
        self.inbox.push(item);
        self.changed_at = now;
    }
}

/// A job of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobNote {
    pub(super) run: RunId,
    pub(super) state: Option<State>,
}

/// A commit, as the driver knows it.
pub(super) struct CommitNote<'a> {
    /// The number of the lease; `None` for one that was made up.
    pub(super) lease: Option<usize>,
    /// Items of the inbox that it has handled; `None` for more than there are.
    pub(super) handled: Option<usize>,
    pub(super) commit: &'a RunCommit,
}

/// All there is.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    pub(super) runs: BTreeMap<RunId, Entry>,
    pub(super) jobs: BTreeMap<JobId, JobNote>,
    /// How many items of its inbox a lease was shown that nobody has handled since.
    pub(super) shown: BTreeMap<usize, usize>,
    places: u64,
}

impl Book {
    pub(super) fn create(&mut self, run: &NewRun, now: Timestamp) -> Word {
        if run.check().is_err() {
            return Word::Invalid;
        }
        match self.runs.get(&run.id) {
            Some(known) if known.content == run.fingerprint() => return Word::Existing,
            Some(_) => return Word::Taken,
            None => {}
        }
        self.places += 1;
        let entry = Entry {
            place: self.places,
            kind: run.kind.clone(),
            content: run.fingerprint(),
            state: RunState::Running,
            stuck: None,
            summary: String::new(),
            history: Vec::new(),
            inbox: Vec::new(),
            held: None,
            abandoned: false,
            last_lease: None,
            wake_at: None,
            created_at: now,
            changed_at: now,
            finished_at: None,
        };
        self.runs.insert(run.id, entry);
        self.step(run.id, &run.step, 0, now);
        Word::Ok
    }

    /// What a step does, but for the lease.
    fn step(&mut self, id: RunId, step: &RunStep, handled: usize, now: Timestamp) {
        for job in &step.jobs {
            // A commit without history entries that keeps the lease is made again when it is repeated; its jobs are not.
            if self.jobs.get(&job.id).is_none_or(|note| note.state.is_none()) {
                self.jobs.insert(job.id, JobNote { run: id, state: Some(State::Ready) });
            }
        }
        let mine = |note: &JobNote| note.run == id && matches!(note.state, Some(State::Ready));
        for job in &step.cancel {
            if self.jobs.get(job).is_some_and(mine) {
                self.job_ended(*job, Some(State::Cancelled), now);
            }
        }
        for message in &step.messages {
            self.send(message, now);
        }
        let Some(entry) = self.runs.get_mut(&id) else { return };
        entry.history.extend(step.history.iter().cloned());
        entry.inbox.drain(..handled);
        (entry.state, entry.stuck) = (step.state, step.stuck.clone());
        entry.summary.clone_from(&step.summary);
        entry.wake_at = step.wake.map(|due| due.resolve(now));
        entry.changed_at = now;
        entry.abandoned = false;
        if entry.state.is_terminal() {
            (entry.finished_at, entry.wake_at) = (Some(now), None);
            entry.inbox.clear();
        }
    }

    /// A job has ended, or is gone; its run is told, if it is there and goes on.
    pub(super) fn job_ended(&mut self, job: JobId, state: Option<State>, now: Timestamp) {
        let Some(note) = self.jobs.get_mut(&job) else { return };
        note.state = state;
        let run = note.run;
        if let Some(entry) = self.runs.get_mut(&run).filter(|entry| !entry.state.is_terminal()) {
            entry.get(Item::Job(job, state), now);
        }
    }

    pub(super) fn send(&mut self, message: &RunMessage, now: Timestamp) -> Word {
        let Some(entry) = self.runs.get_mut(&message.run) else { return Word::Missing };
        let other_end = |len| !entry.state.is_terminal() || entry.history.len() as u64 != len;
        if entry.rests() && !message.reopens || message.ended_with.is_some_and(other_end) {
            return Word::Refused;
        }
        if message.reopens {
            (entry.state, entry.stuck, entry.finished_at) = (RunState::Running, None, None);
        }
        if message.interrupts {
            entry.held = None;
        }
        entry.get(Item::Message(now, message.body.clone()), now);
        Word::Ok
    }

    pub(super) fn commit(&mut self, note: &CommitNote<'_>, now: Timestamp) -> (Word, u64) {
        let commit = note.commit;
        if commit.check().is_err() {
            return (Word::Invalid, 0);
        }
        let id = commit.lease.run;
        let Some(entry) = self.runs.get(&id) else { return (Word::Missing, 0) };
        let length = entry.history.len() as u64;
        let Some(held) = entry.held.filter(|held| Some(held.lease) == note.lease) else {
            let known = note.lease.is_some() && entry.last_lease == note.lease;
            return if known { (Word::Repeated, length) } else { (Word::Lost, 0) };
        };
        if commit.history_len != length {
            let made = commit.history_len.checked_add(commit.step.history.len() as u64) == Some(length);
            return if made { (Word::Repeated, length) } else { (Word::Lost, 0) };
        }
        let Some(handled) = note.handled else { return (Word::Invalid, 0) };
        self.step(id, &commit.step, handled, now);
        if let Some(shown) = self.shown.get_mut(&held.lease) {
            *shown -= handled;
        }
        let Some(entry) = self.runs.get_mut(&id) else { return (Word::Missing, 0) };
        match commit.keep_ms {
            Some(ms) => entry.held = Some(Holder { expires_at: now.plus_ms(ms), ..held }),
            None => (entry.held, entry.last_lease) = (None, Some(held.lease)),
        }
        (Word::Ok, entry.history.len() as u64)
    }

    /// Whether time has something for a claim to do.
    pub(super) fn is_waking(&self, now: Timestamp) -> bool {
        let due = |entry: &Entry| entry.held.is_none() && !entry.rests() && entry.is_due(now);
        self.runs.values().any(|entry| entry.has_expired(now) || due(entry))
    }

    /// The runs that a claim may hand out, after it has looked who vanished.
    pub(super) fn claimable(&mut self, kinds: &[Kind], now: Timestamp) -> Vec<RunId> {
        for entry in self.runs.values_mut().filter(|entry| entry.has_expired(now)) {
            (entry.held, entry.abandoned) = (None, true);
        }
        let fits = |entry: &Entry| kinds.contains(&entry.kind) && entry.may_be_claimed(now);
        self.runs.iter().filter(|(_, entry)| fits(entry)).map(|(id, _)| *id).collect()
    }

    /// Whether a claim of this very run gets it; `None` when it is not there.
    pub(super) fn is_free(&self, run: RunId, kinds: &[Kind], now: Timestamp) -> Option<bool> {
        let entry = self.runs.get(&run)?;
        let free = entry.held.is_none() || entry.has_expired(now);
        Some(free && !entry.rests() && kinds.contains(&entry.kind))
    }

    pub(super) fn hold(&mut self, run: RunId, holder: Holder) {
        if let Some(entry) = self.runs.get_mut(&run) {
            (entry.held, entry.abandoned) = (Some(holder), false);
            self.shown.insert(holder.lease, entry.inbox.len());
        }
    }

    pub(super) fn remove(&mut self, run: RunId) -> Word {
        match self.runs.get(&run) {
            None => Word::Missing,
            Some(entry) if !entry.rests() => Word::Refused,
            Some(_) => {
                self.runs.remove(&run);
                Word::Ok
            }
        }
    }

    /// In the order of their creation.
    pub(super) fn list(&self, state: Option<RunState>) -> Vec<RunId> {
        let wanted = |entry: &Entry| state.is_none_or(|state| entry.state == state);
        let mut found: Vec<_> = self.runs.iter().filter(|(_, entry)| wanted(entry)).collect();
        found.sort_by_key(|(_, entry)| entry.place);
        found.into_iter().map(|(id, _)| *id).collect()
    }
}

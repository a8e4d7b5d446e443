//! What must be true of runs, written down without the engine: a book that is told of every step, and that says what the
//! store has to answer and to show. It keeps no index; whatever it wants to know, it looks through all runs for.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::Error;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::State;
use windlass_core::name::{Kind, WorkerId};
use windlass_core::store::{
    JobEnd, NewRun, RUN_KEPT_MS, RunChange, RunCommit, RunItem, RunMessage, RunRenewal, RunState, RunStep,
};
use windlass_core::time::Timestamp;

/// How a call is answered, without its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    Ok,
    Existing,
    Repeated,
    Taken,
    Duplicate,
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
            Error::Duplicate { .. } => Self::Duplicate,
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
pub(super) struct Item {
    pub(super) item: RunItem,
    /// Items of one call that the contract does not put in order have the same number.
    pub(super) batch: u64,
}

/// Who holds a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// The number of the lease.
    pub(super) lease: usize,
    pub(super) engine: WorkerId,
    pub(super) expires_at: Timestamp,
}

/// A run.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) place: u64,
    /// The number that the store gave it, from its first claim on.
    pub(super) number: Option<u64>,
    pub(super) kind: Kind,
    pub(super) content: u64,
    pub(super) state: RunState,
    pub(super) stuck: Option<String>,
    pub(super) summary: String,
    pub(super) history: Vec<Bytes>,
    pub(super) inbox: Vec<Item>,
    pub(super) held: Option<Holder>,
    /// Since when it waits to be claimed, as a number that rises.
    pub(super) ready: Option<u64>,
    last_lease: Option<usize>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) created_at: Timestamp,
    pub(super) changed_at: Timestamp,
    pub(super) finished_at: Option<Timestamp>,
    keep_ms: u64,
}

/// What the feed has last shown of a run.
type Announced = (usize, RunState, Option<String>);

impl Entry {
    fn new(run: &NewRun, place: u64, now: Timestamp) -> Self {
        Self {
            place,
            number: None,
            kind: run.kind.clone(),
            content: run.fingerprint(),
            state: RunState::Running,
            stuck: None,
            summary: String::new(),
            history: Vec::new(),
            inbox: Vec::new(),
            held: None,
            ready: None,
            last_lease: None,
            wake_at: None,
            created_at: now,
            changed_at: now,
            finished_at: None,
            keep_ms: run.keep_ms.unwrap_or(RUN_KEPT_MS),
        }
    }

    fn rests(&self) -> bool {
        self.state.is_terminal() || self.stuck.is_some()
    }

    fn announced(&self) -> Announced {
        (self.history.len(), self.state, self.stuck.clone())
    }

    /// When time alone gives it something to do.
    fn look_at(&self) -> Option<Timestamp> {
        match &self.held {
            Some(held) => Some(held.expires_at),
            None if self.rests() || self.ready.is_some() => None,
            None => self.wake_at,
        }
    }

    fn is_waking(&self, now: Timestamp) -> bool {
        self.look_at().is_some_and(|at| at <= now)
    }
}

/// A job of a run.
#[derive(Clone, Debug)]
pub(super) struct JobNote {
    pub(super) run: RunId,
    pub(super) content: u64,
    /// `None` when it is gone.
    pub(super) state: Option<State>,
    pub(super) attempt: u32,
    pub(super) claimed_at: Option<Timestamp>,
}

impl JobNote {
    pub(super) fn is_open(&self) -> bool {
        self.state.is_some_and(|state| !state.is_terminal())
    }
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
    /// How many items of its inbox a lease was shown, by its claim and its renewals, that nobody has handled since.
    pub(super) shown: BTreeMap<usize, usize>,
    /// What the feed has to say of runs since it was last compared.
    pub(super) feed: Vec<RunChange>,
    numbers: u64,
}

impl Book {
    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn create(&mut self, run: &NewRun, now: Timestamp) -> Word {
        if run.check().is_err() {
            return Word::Invalid;
        }
        match self.runs.get(&run.id) {
            Some(known) if known.content == run.fingerprint() => return Word::Existing,
            Some(_) => return Word::Taken,
            None => {}
        }
        if !self.can_start(&run.step) {
            return Word::Duplicate;
        }
        let place = self.next_number();
        self.runs.insert(run.id, Entry::new(run, place, now));
        self.step(run.id, &run.step, 0, now);
        let since = self.next_number();
        self.put(run.id, since, now);
        Word::Ok
    }

    /// Whether no job of the step has an id under which there is another job.
    fn can_start(&self, step: &RunStep) -> bool {
        let mut own = BTreeMap::new();
        step.jobs.iter().all(|job| {
            let content = job.fingerprint();
            let known = self.jobs.get(&job.id).filter(|note| note.state.is_some()).map(|note| note.content);
            known.is_none_or(|known| known == content) && *own.entry(job.id).or_insert(content) == content
        })
    }

    /// What a step does, but for the lease; [`put`](Self::put) ends it.
    fn step(&mut self, id: RunId, step: &RunStep, handled: usize, now: Timestamp) {
        for job in &step.jobs {
            if self.jobs.get(&job.id).is_none_or(|note| note.state.is_none()) {
                let state = Some(if job.due.resolve(now) > now { State::Scheduled } else { State::Ready });
                let content = job.fingerprint();
                self.jobs.insert(job.id, JobNote { run: id, content, state, attempt: 0, claimed_at: None });
            }
        }
        for job in &step.cancel {
            let Some(note) = self.jobs.get_mut(job).filter(|note| note.run == id) else { continue };
            if note.is_open() && note.state != Some(State::Active) {
                note.state = Some(State::Cancelled);
                let end = JobEnd {
                    job: *job,
                    state: note.state,
                    attempt: note.attempt,
                    claimed_at: note.claimed_at,
                    at: now,
                    error: None,
                    outputs: BTreeMap::new(),
                };
                let batch = self.next_number();
                self.job_ended(end, batch);
            }
        }
        for message in &step.messages {
            self.send(message, now);
        }
        let Some(entry) = self.runs.get_mut(&id) else { return };
        let before = entry.announced();
        entry.history.extend(step.history.iter().cloned());
        entry.inbox.drain(..handled);
        (entry.state, entry.stuck) = (step.state, step.stuck.clone());
        entry.summary.clone_from(&step.summary);
        entry.wake_at = step.wake.map(|due| due.resolve(now));
        if entry.state.is_terminal() {
            (entry.finished_at, entry.wake_at) = (Some(now), None);
            entry.inbox.clear();
        }
        if before != entry.announced() {
            self.announce(id);
        }
    }

    /// The feed shows a change of a run.
    fn announce(&mut self, id: RunId) {
        let change = match self.runs.get(&id) {
            Some(entry) => RunChange { run: id, state: Some(entry.state), history_len: entry.history.len() as u64 },
            None => return,
        };
        self.feed.push(change);
    }

    /// A run has changed: it waits to be claimed from now on (`since`), or it does not.
    fn put(&mut self, id: RunId, since: u64, now: Timestamp) {
        let Some(entry) = self.runs.get_mut(&id) else { return };
        entry.changed_at = now;
        let due = entry.wake_at.is_some_and(|at| at <= now);
        let waits = entry.held.is_none() && !entry.rests() && (!entry.inbox.is_empty() || due);
        entry.ready = if waits { entry.ready.or(Some(since)) } else { None };
    }

    /// A job has ended, or is gone; its run is told, if it is there and goes on.
    pub(super) fn job_ended(&mut self, end: JobEnd, batch: u64) {
        let Some(run) = self.jobs.get(&end.job).map(|note| note.run) else { return };
        let now = end.at;
        if let Some(entry) = self.runs.get_mut(&run).filter(|entry| !entry.state.is_terminal()) {
            entry.inbox.push(Item { item: RunItem::JobEnded(end), batch });
            self.put(run, batch, now);
        }
    }

    pub(super) fn send(&mut self, message: &RunMessage, now: Timestamp) -> Word {
        let batch = self.next_number();
        let Some(entry) = self.runs.get_mut(&message.run) else { return Word::Missing };
        let other_end = |len| !entry.state.is_terminal() || entry.history.len() as u64 != len;
        if entry.rests() && !message.reopens || message.expected_history_len.is_some_and(other_end) {
            return Word::Refused;
        }
        let before = entry.announced();
        if message.reopens {
            (entry.state, entry.stuck, entry.finished_at) = (RunState::Running, None, None);
        }
        if message.interrupts {
            entry.held = None;
        }
        entry.inbox.push(Item { item: RunItem::Message { at: now, body: message.body.clone() }, batch });
        let changed = before != entry.announced();
        self.put(message.run, batch, now);
        if changed {
            self.announce(message.run);
        }
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
        let Some(held) = entry.held.clone().filter(|held| Some(held.lease) == note.lease) else {
            let known = note.lease.is_some() && entry.last_lease == note.lease;
            return if known { (Word::Repeated, length) } else { (Word::Lost, 0) };
        };
        if commit.history_len != length {
            let made = commit.history_len.checked_add(commit.step.history.len() as u64) == Some(length);
            return if made { (Word::Repeated, length) } else { (Word::Lost, 0) };
        }
        let Some(handled) = note.handled else { return (Word::Invalid, 0) };
        if !self.can_start(&commit.step) {
            return (Word::Duplicate, 0);
        }
        self.step(id, &commit.step, handled, now);
        if let Some(shown) = self.shown.get_mut(&held.lease) {
            *shown -= handled;
        }
        let Some(entry) = self.runs.get_mut(&id) else { return (Word::Missing, 0) };
        match commit.lease_ms {
            Some(ms) => entry.held = Some(Holder { expires_at: now.plus_ms(ms), ..held }),
            None => (entry.held, entry.last_lease) = (None, Some(held.lease)),
        }
        let length = entry.history.len() as u64;
        let since = self.next_number();
        self.put(id, since, now);
        (Word::Ok, length)
    }

    /// A renewal with this lease (`None` for one that was made up) for so many milliseconds.
    pub(super) fn renew(
        &mut self,
        renewal: &RunRenewal,
        lease: Option<usize>,
        is_beyond: bool,
        now: Timestamp,
    ) -> Word {
        if renewal.check().is_err() {
            return Word::Invalid;
        }
        let Some(entry) = self.runs.get_mut(&renewal.lease.run) else { return Word::Missing };
        let Some(held) = entry.held.as_mut().filter(|held| Some(held.lease) == lease) else { return Word::Lost };
        if is_beyond {
            return Word::Invalid;
        }
        held.expires_at = now.plus_ms(renewal.lease_ms);
        Word::Ok
    }

    /// How many runs time gives something to do.
    pub(super) fn waking(&self, now: Timestamp) -> usize {
        self.runs.values().filter(|entry| entry.is_waking(now)).count()
    }

    /// When time alone gives the next run something to do.
    pub(super) fn next_look(&self) -> Option<Timestamp> {
        self.runs.values().filter_map(Entry::look_at).min()
    }

    /// Lets those wait whose time has come, or whose engine vanished. Those of one moment come in any order.
    pub(super) fn wake(&mut self, since: u64, now: Timestamp) {
        for entry in self.runs.values_mut().filter(|entry| entry.is_waking(now)) {
            (entry.held, entry.ready) = (None, Some(since));
        }
    }

    /// The runs that a claim may hand out, in their order: by kind as asked for, then by since when they wait. Those with the
    /// same number come in any order.
    pub(super) fn claimable(&self, kinds: &[Kind]) -> Vec<(usize, u64, RunId)> {
        let mut found = BTreeSet::new();
        for (id, entry) in &self.runs {
            let kind = kinds.iter().position(|kind| *kind == entry.kind);
            if let (Some(kind), Some(ready)) = (kind, entry.ready) {
                found.insert((kind, ready, *id));
            }
        }
        found.into_iter().collect()
    }

    /// Whether a claim of this very run gets it; `None` when it is not there.
    pub(super) fn is_free(&self, run: RunId, kinds: &[Kind], now: Timestamp) -> Option<bool> {
        let entry = self.runs.get(&run)?;
        let free = entry.held.as_ref().is_none_or(|held| held.expires_at <= now);
        Some(free && !entry.rests() && kinds.contains(&entry.kind))
    }

    /// Notes a claim that was shown so many items.
    pub(super) fn hold(&mut self, run: RunId, holder: Holder, shown: usize) {
        if let Some(entry) = self.runs.get_mut(&run) {
            self.shown.insert(holder.lease, shown);
            (entry.held, entry.ready) = (Some(holder), None);
        }
    }

    pub(super) fn remove(&mut self, run: RunId) -> Word {
        match self.runs.get(&run) {
            None => Word::Missing,
            Some(entry) if !entry.rests() => Word::Refused,
            Some(entry) => {
                self.feed.push(RunChange { run, state: None, history_len: entry.history.len() as u64 });
                self.runs.remove(&run);
                Word::Ok
            }
        }
    }

    /// Removes the runs that were kept long enough.
    pub(super) fn prune(&mut self, now: Timestamp) -> usize {
        let over = |entry: &Entry| entry.finished_at.is_some_and(|at| at.plus_ms(entry.keep_ms) <= now);
        let runs: Vec<RunId> = self.runs.iter().filter(|(_, entry)| over(entry)).map(|(id, _)| *id).collect();
        for run in &runs {
            self.remove(*run);
        }
        runs.len()
    }

    /// In the order of their creation.
    pub(super) fn list(&self, state: Option<RunState>) -> Vec<RunId> {
        let wanted = |entry: &Entry| state.is_none_or(|state| entry.state == state);
        let mut found: Vec<_> = self.runs.iter().filter(|(_, entry)| wanted(entry)).collect();
        found.sort_by_key(|(_, entry)| entry.place);
        found.into_iter().map(|(id, _)| *id).collect()
    }
}

//! What must be true of runs, written down without the engine: a book that is told of every step, and that says what the
//! store has to answer and to show. It keeps no index; whatever it wants to know, it looks through all runs for.

use super::entry::{Entry, Holder, Word};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::id::{JobId, RunId};
use windlass_core::job::State;
use windlass_core::name::Kind;
use windlass_core::store::{
    JobEnd, NewRun, RUN_TERMINATED, RunChange, RunCommit, RunEnd, RunItem, RunMessage, RunRenewal, RunState, RunStep,
};
use windlass_core::time::Timestamp;

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
    pub(super) commit: &'a RunCommit,
}

/// All there is.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    pub(super) runs: BTreeMap<RunId, Entry>,
    pub(super) jobs: BTreeMap<JobId, JobNote>,
    /// Runs that steps have created since the driver looked.
    pub(super) children: Vec<NewRun>,
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
        let known = self.runs.get(&run.id).cloned();
        if let Some(word) = known.as_ref().and_then(|known| self.take_messages(known, run, now)) {
            return word;
        }
        match &known {
            Some(known) if known.content == run.fingerprint() => return Word::Existing,
            Some(known) if run.reuse.allows(known.state) && !known.rests() => return Word::Refused,
            Some(known) if !run.reuse.allows(known.state) => return Word::Taken,
            _ => {}
        }
        if !self.can_start(&run.step) {
            return Word::Duplicate;
        }
        let entry = match &known {
            Some(known) => known.restarted(run, now),
            None => Entry::new(run, self.next_number(), now),
        };
        self.runs.insert(run.id, entry);
        let step = &run.step;
        if known.is_some() && step.history.is_empty() && !step.state.is_terminal() && step.stuck.is_none() {
            self.announce(run.id);
        }
        self.step(run.id, step, &BTreeSet::new(), now);
        let since = self.next_number();
        self.put(run.id, since, now);
        self.tell_parent(run.id, step.state.is_terminal(), now);
        for message in &run.messages {
            self.send(message, now);
        }
        if known.is_some() { Word::Restarted } else { Word::Ok }
    }

    /// The messages of a creation go to the run that is there, if it goes on or has had all of them.
    fn take_messages(&mut self, known: &Entry, run: &NewRun, now: Timestamp) -> Option<Word> {
        let is_known = |message: &&RunMessage| message.id.as_ref().is_some_and(|id| known.message_ids.contains(id));
        let are_known = run.messages.iter().all(|message| is_known(&message));
        if run.messages.is_empty() || !are_known && known.state.is_terminal() {
            return None;
        }
        for message in &run.messages {
            self.send(message, now);
        }
        Some(if are_known { Word::Existing } else { Word::Signalled })
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

    /// What a step does, but for the lease; [`put`](Self::put) ends it. Returns whether the run has ended with it: a message of the step
    /// may have opened the run before.
    fn step(&mut self, id: RunId, step: &RunStep, handled: &BTreeSet<u64>, now: Timestamp) -> bool {
        for job in &step.jobs {
            if self.jobs.get(&job.id).is_none_or(|note| note.state.is_none()) {
                let state = Some(if job.due.resolve(now) > now { State::Scheduled } else { State::Ready });
                let content = job.fingerprint();
                self.jobs.insert(job.id, JobNote { run: id, content, state, attempt: 0, claimed_at: None });
            }
        }
        for child in &step.runs {
            self.create_child(id, child, now);
        }
        let cancels = step.cancel.iter().map(|job| (job, false));
        for (job, is_unclaimed) in cancels.chain(step.cancel_unclaimed.iter().map(|job| (job, true))) {
            let Some(note) = self.jobs.get_mut(job).filter(|note| note.run == id) else { continue };
            if is_unclaimed && note.claimed_at.is_some() {
                continue;
            }
            if note.is_open() && note.state != Some(State::Active) {
                note.state = Some(State::Cancelled);
                let end = JobEnd {
                    job: *job,
                    state: note.state,
                    attempt: note.attempt,
                    claimed_at: note.claimed_at,
                    at: now,
                    error: None,
                    class: None,
                    detail: None,
                    outputs: BTreeMap::new(),
                    result: None,
                };
                let batch = self.next_number();
                self.job_ended(end, batch);
            }
        }
        for message in &step.messages {
            self.send(message, now);
        }
        let Some(entry) = self.runs.get_mut(&id) else { return false };
        let before = entry.announced();
        let ends = step.state.is_terminal() && !entry.state.is_terminal();
        if let Some(segment) = &step.segment {
            entry.segment_from = entry.history.len() + segment.entries_before as usize;
            (entry.kind, entry.input) = (segment.kind.clone(), segment.input.clone());
        }
        entry.history.extend(step.history.iter().cloned());
        entry.inbox.retain(|item| !handled.contains(&item.number));
        (entry.state, entry.stuck) = (step.state, step.stuck.clone());
        entry.summary.clone_from(&step.summary);
        entry.wake_at = step.wake.map(|due| due.resolve(now)).filter(|_| !entry.state.is_terminal());
        entry.stall_count = 0;
        entry.labels = step.labels.clone().unwrap_or_else(|| entry.labels.clone());
        entry.published = step.published.clone().unwrap_or_else(|| entry.published.clone());
        if ends {
            entry.finished_at = Some(now);
            (entry.result, entry.error) = (step.result.clone(), step.error.clone());
            entry.inbox.clear();
        }
        if before != entry.announced() {
            self.announce(id);
        }
        ends
    }

    /// A run that a step creates; its parent gets an item if that is refused.
    fn create_child(&mut self, parent: RunId, child: &NewRun, now: Timestamp) {
        let word = self.create(child, now);
        if matches!(word, Word::Ok | Word::Restarted) {
            self.children.push(child.clone());
            return;
        }
        let batch = self.next_number();
        if let Some(entry) = self.runs.get_mut(&parent) {
            entry.push(RunItem::ChildRefused { run: child.id, reason: String::new() }, batch);
        }
        self.put(parent, batch, now);
    }

    /// A run has ended, if `ends`: its parent gets that, if it is there and goes on.
    fn tell_parent(&mut self, id: RunId, ends: bool, now: Timestamp) {
        let Some(entry) = self.runs.get(&id).filter(|_| ends) else { return };
        let (result, error) = (entry.result.clone(), entry.error.clone());
        let end = RunEnd { run: id, state: entry.state, at: now, result, error };
        let Some(parent) = entry.parent else { return };
        let batch = self.next_number();
        if let Some(entry) = self.runs.get_mut(&parent).filter(|entry| !entry.state.is_terminal()) {
            entry.push(RunItem::RunEnded(end), batch);
            self.put(parent, batch, now);
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
        let due = entry.is_due(now);
        let waits = entry.held.is_none() && entry.is_claimable(now) && (!entry.inbox.is_empty() || due);
        entry.ready = if waits { entry.ready.or(Some(since)) } else { None };
    }

    /// A job has ended, or is gone; its run is told, if it is there and goes on.
    pub(super) fn job_ended(&mut self, mut end: JobEnd, batch: u64) {
        let Some(run) = self.jobs.get(&end.job).map(|note| note.run) else { return };
        let now = end.at;
        if let Some(entry) = self.runs.get_mut(&run).filter(|entry| !entry.state.is_terminal()) {
            end.result = end.result.filter(|_| entry.job_results);
            entry.push(RunItem::JobEnded(end), batch);
            self.put(run, batch, now);
        }
    }

    pub(super) fn send(&mut self, message: &RunMessage, now: Timestamp) -> Word {
        if message.check().is_err() {
            return Word::Invalid;
        }
        let batch = self.next_number();
        let Some(entry) = self.runs.get_mut(&message.run) else { return Word::Missing };
        if message.id.as_ref().is_some_and(|id| entry.message_ids.contains(id)) {
            return Word::Ok;
        }
        let other_end = |len| !entry.state.is_terminal() || entry.history.len() as u64 != len;
        let refused = entry.state.is_terminal() && !message.reopens
            || message.only_if_stuck && (entry.state.is_terminal() || entry.stuck.is_none());
        if refused || message.expected_history_len.is_some_and(other_end) {
            return Word::Refused;
        }
        let before = entry.announced();
        if message.reopens {
            (entry.state, entry.stuck, entry.finished_at) = (RunState::Running, None, None);
            (entry.result, entry.error) = (None, None);
        }
        if message.interrupts || message.terminates {
            entry.held = None;
        }
        if message.terminates {
            (entry.state, entry.stuck, entry.wake_at) = (RunState::Terminated, None, None);
            (entry.finished_at, entry.error) = (Some(now), Some(RUN_TERMINATED.to_owned()));
        }
        entry.message_ids.extend(message.id.clone());
        entry.push(RunItem::Message { at: now, id: message.id.clone(), body: message.body.clone() }, batch);
        let changed = before != entry.announced();
        self.put(message.run, batch, now);
        if changed {
            self.announce(message.run);
        }
        self.tell_parent(message.run, message.terminates, now);
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
        let last = commit.inbox_taken.last().map_or(0, |last| last.saturating_add(1));
        if commit.inbox_to.max(last) > entry.next {
            return (Word::Invalid, 0);
        }
        if (entry.state == RunState::Terminated) != (commit.step.state == RunState::Terminated) {
            return (Word::Invalid, 0);
        }
        let taken = |number: &u64| *number < commit.inbox_to || commit.inbox_taken.contains(number);
        let handled: BTreeSet<u64> = entry.inbox.iter().map(|item| item.number).filter(taken).collect();
        let left = entry.inbox.iter().filter(|item| !handled.contains(&item.number));
        let unread = left.filter(|item| item.item.is_message()).count() as u64;
        if commit.requires_read_messages && unread > 0 {
            return (Word::Unread(unread), 0);
        }
        if !self.can_start(&commit.step) {
            return (Word::Duplicate, 0);
        }
        let ends = self.step(id, &commit.step, &handled, now);
        let Some(entry) = self.runs.get_mut(&id) else { return (Word::Missing, 0) };
        entry.committed_by = Some(held.engine.clone());
        match commit.lease_ms {
            Some(ms) => entry.held = Some(Holder { expires_at: now.plus_ms(ms), ..held }),
            None => (entry.held, entry.last_lease) = (None, Some(held.lease)),
        }
        let length = entry.history.len() as u64;
        let since = self.next_number();
        self.put(id, since, now);
        self.tell_parent(id, ends, now);
        (Word::Ok, length)
    }

    /// A renewal with this lease (`None` for one that was made up) for so many milliseconds.
    pub(super) fn renew(&mut self, renewal: &RunRenewal, lease: Option<usize>, now: Timestamp) -> Word {
        if renewal.check().is_err() {
            return Word::Invalid;
        }
        let Some(entry) = self.runs.get_mut(&renewal.lease.run) else { return Word::Missing };
        let Some(held) = entry.held.as_mut().filter(|held| Some(held.lease) == lease) else { return Word::Lost };
        if renewal.inbox_from > entry.next {
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
            entry.stall_count += u32::from(entry.held.is_some());
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
        Some(free && entry.is_claimable(now) && kinds.contains(&entry.kind))
    }

    /// Notes a claim. A lease that the run still has ran out.
    pub(super) fn hold(&mut self, run: RunId, holder: Holder) {
        if let Some(entry) = self.runs.get_mut(&run) {
            entry.stall_count += u32::from(entry.held.is_some());
            (entry.held, entry.ready) = (Some(holder), None);
        }
    }

    pub(super) fn remove(&mut self, run: RunId) -> Word {
        match self.runs.get(&run) {
            None => Word::Missing,
            Some(entry) if !entry.state.is_terminal() && entry.stuck.is_none() => Word::Refused,
            Some(entry) => {
                self.feed.push(RunChange { run, state: None, history_len: entry.history.len() as u64 });
                self.runs.remove(&run);
                Word::Ok
            }
        }
    }

    /// Removes the runs that were kept long enough.
    pub(super) fn prune(&mut self, now: Timestamp) -> usize {
        let is_over = |at: Timestamp, entry: &Entry| at.plus_ms(entry.keep_ms) <= now;
        let over = |entry: &Entry| entry.rests() && entry.finished_at.is_some_and(|at| is_over(at, entry));
        let runs: Vec<RunId> = self.runs.iter().filter(|(_, entry)| over(entry)).map(|(id, _)| *id).collect();
        for run in &runs {
            self.remove(*run);
        }
        runs.len()
    }

    /// In the order of their creation.
    pub(super) fn list(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<RunId> {
        let mut found: Vec<_> = self.runs.iter().filter(|(_, entry)| wanted(entry)).collect();
        found.sort_by_key(|(_, entry)| entry.place);
        found.into_iter().map(|(id, _)| *id).collect()
    }
}

//! What will happen, in virtual time.
//!
//! Every entry says between which commits it was there, so that the schedule as of any commit can be rebuilt.

use super::mock::mixed;
use std::collections::{BTreeSet, HashMap, HashSet};
use windlass_core::id::{JobId, RunId};
use windlass_durable::{CancelTarget, ItemBody, Key};

/// Something that will happen.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// A run starts.
    Start {
        /// The run.
        run: RunId,
    },
    /// An attempt of a job starts.
    Attempt {
        /// The job.
        job: JobId,
        /// The number of the attempt, from 1.
        number: u32,
    },
    /// An attempt of a mocked child starts.
    ChildAttempt {
        /// The child.
        run: RunId,
        /// The number of the attempt, from 1.
        number: u32,
    },
    /// A run gets an item.
    Item {
        /// The run.
        run: RunId,
        /// The item.
        body: ItemBody,
    },
}

#[derive(Clone, Debug)]
struct Entry {
    at: i64,
    action: Action,
    target: Option<CancelTarget>,
    /// The number of the commit that added it.
    added: u64,
    /// The number of the commit that removed it, or of the next one.
    removed: u64,
}

/// The entries of a test, those in the past included.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    entries: Vec<Entry>,
    /// Those in the future: time, rank among simultaneous ones, index.
    open: BTreeSet<(i64, u64, usize)>,
    /// What becomes of a job or a child next.
    next_of: HashMap<CancelTarget, usize>,
    /// Local steps whose ends are planned.
    steps: HashSet<(RunId, Key)>,
    /// Ranks are drawn from this seed; `None` for the order in which entries were added.
    order_seed: Option<u64>,
    /// True once two entries of the same time were open when one of them was due.
    pub(super) has_simultaneous: bool,
}

impl Schedule {
    pub(super) fn new(order_seed: Option<u64>) -> Self {
        Self { order_seed, ..Self::default() }
    }

    fn place(&self, index: usize) -> (i64, u64, usize) {
        let rank = self.order_seed.map_or(0, |seed| mixed(seed, index as u64));
        (self.entries[index].at, rank, index)
    }

    /// Adds an entry in commit number `commit`.
    pub(super) fn add(&mut self, commit: u64, at: i64, action: Action) {
        let index = self.entries.len();
        let target = match &action {
            Action::Attempt { job, .. } | Action::Item { body: ItemBody::JobEnded { job, .. }, .. } => {
                Some(CancelTarget::Job(*job))
            }
            Action::ChildAttempt { run, .. } | Action::Item { body: ItemBody::ChildEnded { run, .. }, .. } => {
                Some(CancelTarget::Child(*run))
            }
            Action::Start { .. } | Action::Item { .. } => None,
        };
        self.entries.push(Entry { at, action, target, added: commit, removed: u64::MAX });
        self.put_open(index);
    }

    fn put_open(&mut self, index: usize) {
        self.open.insert(self.place(index));
        if let Some(target) = self.entries[index].target {
            self.next_of.insert(target, index);
        }
        self.steps.extend(self.step_of(index));
    }

    /// The local step whose end an entry is.
    fn step_of(&self, index: usize) -> Option<(RunId, Key)> {
        match &self.entries[index].action {
            Action::Item { run, body: ItemBody::StepEnded { key, .. } } => Some((*run, key.clone())),
            _ => None,
        }
    }

    /// True when the end of this local step is planned.
    pub(super) fn has_step(&self, run: RunId, key: &Key) -> bool {
        self.steps.contains(&(run, key.clone()))
    }

    /// The next entry: its time and its index.
    pub(super) fn next(&self) -> Option<(i64, usize)> {
        self.open.first().map(|(at, _, index)| (*at, *index))
    }

    /// The next entry, which is due. Notes whether another one has the same time.
    pub(super) fn due(&mut self) -> Option<(usize, Action)> {
        let mut open = self.open.iter();
        let (at, _, index) = *open.next()?;
        self.has_simultaneous |= open.next().is_some_and(|next| next.0 == at);
        Some((index, self.entries[index].action.clone()))
    }

    /// Removes an entry in commit number `commit`.
    pub(super) fn remove(&mut self, commit: u64, index: usize) {
        if self.open.remove(&self.place(index)) {
            if let Some(step) = self.step_of(index) {
                self.steps.remove(&step);
            }
            let entry = &mut self.entries[index];
            entry.removed = commit;
            if let Some(target) = entry.target.filter(|target| self.next_of.get(target) == Some(&index)) {
                self.next_of.remove(&target);
            }
        }
    }

    /// Removes what becomes of a job or a mocked child. False when nothing is planned.
    pub(super) fn cancel(&mut self, commit: u64, target: &CancelTarget) -> bool {
        let index = self.next_of.get(target).copied();
        index.inspect(|index| self.remove(commit, *index)).is_some()
    }

    /// True for a job that has not ended and whose first attempt has not begun.
    pub(super) fn is_unclaimed(&self, job: JobId) -> bool {
        let next = self.next_of.get(&CancelTarget::Job(job));
        next.is_none_or(|index| matches!(self.entries[*index].action, Action::Attempt { number: 1, .. }))
    }

    /// The schedule as it was after `commits` commits.
    pub(super) fn after(&self, commits: u64) -> Self {
        let mut then = Self::new(self.order_seed);
        then.entries = self.entries.iter().take_while(|entry| entry.added <= commits).cloned().collect();
        for index in 0..then.entries.len() {
            let entry = &mut then.entries[index];
            if entry.removed > commits {
                entry.removed = u64::MAX;
                then.put_open(index);
            }
        }
        then
    }

    /// Messages to a run that did not arrive.
    pub(super) fn open_messages(&self, to: RunId) -> impl Iterator<Item = (i64, &ItemBody)> {
        self.open.iter().filter_map(move |(at, _, index)| match &self.entries[*index].action {
            Action::Item {
                run,
                body: body @ (ItemBody::Signal { .. } | ItemBody::Resolved { .. } | ItemBody::CancelRequested { .. }),
            } if *run == to => Some((*at, body)),
            _ => None,
        })
    }
}

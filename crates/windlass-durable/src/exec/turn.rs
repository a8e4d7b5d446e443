//! Items, turns and commits.

use crate::error::CallError;
use crate::record::{Body, End, Entry, Event, Key, Name, Outcome, ParentClosePolicy, Record, Request, SourceLine};
use crate::retry::RunRetry;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{Due, JobSpec};
use windlass_core::name::Kind;
use windlass_core::time::Timestamp;

/// Something that happened to a run and that its history does not have yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its number in the inbox; `None` for items that do not come from there.
    pub number: Option<u64>,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub body: ItemBody,
}

/// What an item says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ItemBody {
    /// A job of the run ended.
    JobEnded {
        /// The job.
        job: JobId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A child run ended, or was not created because its id was taken.
    ChildEnded {
        /// The child.
        run: RunId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A message.
    Signal {
        /// The name of the signal.
        name: String,
        /// The message.
        body: Body,
        /// The id that its sender gave it; empty for none.
        id: String,
    },
    /// A promise was resolved.
    Resolved {
        /// The token of the promise.
        token: u64,
        /// The value.
        body: Body,
    },
    /// The cancellation of the run was requested.
    CancelRequested {
        /// The reason that was given.
        reason: String,
    },
    /// The deadline of the run passed. The run is cancelled, and ends as timed out unless the code returns another error.
    TimedOut,
    /// The cap on the length of the segment was raised. The code is not concerned: the caller counts records.
    CapRaised {
        /// The most records of the segment.
        cap: u64,
    },
    /// A local step ended in a turn whose commit was refused. See [`Chunk::step_ends`].
    StepEnded {
        /// The step.
        key: Key,
        /// How it ended.
        outcome: Outcome,
        /// Where the code made the step.
        place: SourceLine,
    },
}

/// What has to be cancelled outside of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CancelTarget {
    /// A job.
    Job(JobId),
    /// A child run.
    Child(RunId),
}

/// Timeouts of a job beside that of an attempt, which stands in its spec. Those that are counted from the call stand in the record of
/// the call, too, and the run enforces them; the worker enforces the heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// From the call until a worker claims the job, in milliseconds.
    pub schedule_to_start_ms: Option<u64>,
    /// From the call until its end, over all attempts, in milliseconds.
    pub schedule_to_close_ms: Option<u64>,
    /// Between two heartbeats of an attempt, in milliseconds.
    pub heartbeat_ms: Option<u64>,
}

/// What a commit has to start, together with the record of its command.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Start {
    /// A job.
    Job {
        /// The number of the command.
        number: u64,
        /// The id of the job.
        job: JobId,
        /// The job; it names the run.
        spec: Box<JobSpec>,
        /// When the job may start.
        due: Due,
        /// Its other timeouts.
        timeouts: Timeouts,
    },
    /// A child run.
    Child {
        /// The number of the command.
        number: u64,
        /// The id of the child.
        run: RunId,
        /// The id that the code gave to the child; its run id is the hash of it.
        name: Option<String>,
        /// The kind of the child, `name@version`.
        kind: Kind,
        /// The input of the child, JSON.
        input: Bytes,
        /// What becomes of the child when the parent does not wait for it any more.
        policy: ParentClosePolicy,
        /// The deadline of the child, counted from its creation, in milliseconds.
        timeout_ms: Option<u64>,
        /// How often its code is started again when it fails.
        retry: RunRetry,
    },
}

impl Start {
    /// The number of the command.
    pub const fn number(&self) -> u64 {
        match self {
            Self::Job { number, .. } | Self::Child { number, .. } => *number,
        }
    }
}

/// What a turn decided. It has to be committed whole and in order, in one commit or in [`chunks`](Self::chunks).
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "what a turn decided has to be committed"]
pub struct Turn {
    /// The number of the first record.
    pub first: u64,
    /// Records to append.
    pub records: Vec<Record>,
    /// What to start, in the order of the commands.
    pub starts: Vec<Start>,
    /// What to cancel, by the number of the command.
    pub cancels: BTreeMap<u64, CancelTarget>,
    /// Jobs to cancel unless a worker has claimed them, by the number of the command.
    pub unclaimed: BTreeMap<u64, JobId>,
    /// Taken items: how many of the records a commit must hold before it may take the item, and the number of the item.
    pub takes: Vec<(usize, u64)>,
    /// When the next timer fires.
    pub wake: Option<Timestamp>,
    /// How the run or its segment ended, once it has.
    pub ended: Option<End>,
    /// The next segment, when the run continues.
    pub next: Option<NextSegment>,
}

/// The segment that follows one that continued.
#[derive(Clone, Debug, PartialEq)]
pub struct NextSegment {
    /// Its kind, `name@version`.
    pub kind: Name,
    /// Its input, JSON.
    pub input: Bytes,
    /// The number of the first record that belongs to its history: the `segment_from` of the run.
    pub from: u64,
    /// When its code starts, if that is not at once.
    pub starts_at: Option<Timestamp>,
}

/// One commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk {
    /// The number of the first record.
    pub first: u64,
    /// Records to append.
    pub records: Vec<Record>,
    /// What to start.
    pub starts: Vec<Start>,
    /// Jobs to cancel.
    pub cancel_jobs: Vec<JobId>,
    /// Jobs to cancel unless a worker has claimed them.
    pub cancel_unclaimed: Vec<JobId>,
    /// Child runs to cancel.
    pub cancel_children: Vec<RunId>,
    /// The numbers of the items that this commit takes from the inbox: exactly those whose events it holds, and those that
    /// nobody waits for.
    pub takes: Vec<u64>,
    /// More of the turn follows: the commit asks for the run to be woken at once.
    pub has_more: bool,
}

impl Chunk {
    /// The ends of local steps in these records, as items.
    ///
    /// When a commit is refused, the run is opened again from its stored history, and the turn is made anew with the unread
    /// messages in front and these items after them. Otherwise the steps would run a second time.
    pub fn step_ends(&self) -> Vec<Item> {
        step_ends(&self.records)
    }
}

impl Turn {
    /// True when there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.takes.is_empty()
    }

    /// See [`Chunk::step_ends`].
    pub fn step_ends(&self) -> Vec<Item> {
        step_ends(&self.records)
    }

    /// Splits the turn into commits of at most `records_max` records, in order. A record that cancels several commands counts as
    /// that many; a single one that counts more stands in a commit of its own.
    ///
    /// The records around the beginning of a segment stand in one commit, whatever their number.
    ///
    /// A commit takes exactly the items whose events it holds. If the process ends between two commits, the rest follows from
    /// the history that was committed and from the items that are still in the inbox.
    pub fn chunks(self, records_max: usize) -> impl Iterator<Item = Chunk> {
        let Self { first, records, starts, cancels, unclaimed, takes, next, .. } = self;
        let segment_from = next.map(|next| usize::try_from(next.from.saturating_sub(first)).unwrap_or(usize::MAX));
        Chunks {
            first,
            done: 0,
            records: records.into(),
            starts: starts.into(),
            cancels,
            unclaimed,
            takes: takes.into(),
            records_max: records_max.max(1),
            segment_from,
        }
    }
}

fn step_ends(records: &[Record]) -> Vec<Item> {
    let ends = records.iter().filter_map(|record| match &record.entry {
        Entry::Event { at, event: Event::Stepped { key, outcome, place } } => {
            let body = ItemBody::StepEnded { key: key.clone(), outcome: outcome.clone(), place: place.clone() };
            Some(Item { number: None, at: *at, body })
        }
        _ => None,
    });
    ends.collect()
}

struct Chunks {
    first: u64,
    /// Records in the chunks that were returned.
    done: usize,
    records: VecDeque<Record>,
    starts: VecDeque<Start>,
    cancels: BTreeMap<u64, CancelTarget>,
    unclaimed: BTreeMap<u64, JobId>,
    takes: VecDeque<(usize, u64)>,
    records_max: usize,
    /// How many records stand before the next segment. Those from there on are not split.
    segment_from: Option<usize>,
}

impl Iterator for Chunks {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        if self.records.is_empty() && self.takes.is_empty() {
            return None;
        }
        let records = self.take_records();
        let first = self.first + self.done as u64;
        self.done += records.len();
        let end = self.first + self.done as u64;
        let (mut cancel_jobs, mut cancel_children) = (Vec::new(), Vec::new());
        for number in records.iter().flat_map(cancelled) {
            match self.cancels.get(number) {
                Some(CancelTarget::Job(job)) => cancel_jobs.push(*job),
                Some(CancelTarget::Child(run)) => cancel_children.push(*run),
                None => {}
            }
        }
        let expired = records.iter().filter_map(|record| match &record.entry {
            Entry::Event { event: Event::StartExpired { of }, .. } => self.unclaimed.get(of).copied(),
            _ => None,
        });
        let cancel_unclaimed = expired.collect();
        let starts = std::iter::from_fn(|| self.starts.pop_front_if(|start| start.number() < end)).collect();
        let takes = std::iter::from_fn(|| self.takes.pop_front_if(|(records, _)| *records <= self.done));
        let takes = takes.map(|(_, number)| number).collect();
        let has_more = !self.records.is_empty();
        Some(Chunk { first, records, starts, cancel_jobs, cancel_unclaimed, cancel_children, takes, has_more })
    }
}

impl Chunks {
    fn take_records(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        let mut weight = 0;
        let is_segment = self.segment_from.is_some_and(|from| self.done >= from);
        while let Some(next) = self.records.front() {
            weight += cancelled(next).len().max(1);
            let begins_segment = !is_segment && self.segment_from == Some(self.done + records.len());
            let is_full = weight > self.records_max && !is_segment;
            if (is_full || begins_segment) && !records.is_empty() {
                break;
            }
            records.extend(self.records.pop_front());
        }
        records
    }
}

fn cancelled(record: &Record) -> &[u64] {
    match &record.entry {
        Entry::Cancel(numbers) => numbers,
        _ => &[],
    }
}

/// The jobs and children that a history has started and that have not ended: what the termination of a run has to deal with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenWork {
    /// Jobs to cancel.
    pub jobs: Vec<JobId>,
    /// Children, with their parent-close policies.
    pub children: Vec<(RunId, ParentClosePolicy)>,
}

impl OpenWork {
    /// Reads the history of a segment, whose first record has the number `first`.
    pub fn of(first: u64, history: &[Record]) -> Self {
        let mut work = Self::default();
        for request in Self::commands(first, history).into_values() {
            work.add(request);
        }
        work
    }

    /// Adds what a command has started.
    pub fn add(&mut self, request: Request) {
        match request {
            Request::Call { job, .. } => self.jobs.push(job),
            Request::Child { run, policy } => self.children.push((run, policy)),
            Request::Sleep { .. } => {}
        }
    }

    /// The commands that have started a job or child that has not ended, by their numbers.
    pub fn commands(first: u64, history: &[Record]) -> BTreeMap<u64, Request> {
        let mut open = BTreeMap::new();
        for (number, record) in (first..).zip(history) {
            match &record.entry {
                Entry::Command(command) if !matches!(command.request, Request::Sleep { .. }) => {
                    open.insert(number, command.request);
                }
                // The job of an expired call is cancelled by a record of its own, which may stand in the next commit.
                Entry::Event { event: Event::Done { of, .. }, .. } => {
                    open.remove(of);
                }
                Entry::Cancel(numbers) => {
                    for number in numbers {
                        open.remove(number);
                    }
                }
                _ => {}
            }
        }
        open
    }
}

/// Replaces a value that is larger than the limit by a permanent error.
pub(super) fn limited(outcome: Outcome, bytes_max: usize) -> Outcome {
    match outcome {
        Ok(body) if body.len() > bytes_max => Err(CallError::too_large("the result", body.len(), bytes_max)),
        other => other,
    }
}

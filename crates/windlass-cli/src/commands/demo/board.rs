//! All that the parent knows while the demo runs: what it was told, counted.

use super::events::Events;
use super::fleet::{Condition, Fleet, Turn};
use super::jobs::{Kind, QUEUES};
use std::collections::{HashMap, VecDeque};
use windlass::core::id::JobId;
use windlass::core::job::{FailureClass, Job, State, Verb};
use windlass::core::store::{FeedCursor, FeedEvent, FeedPage, QueueStatus, Transition, WorkerStatus};
use windlass::core::time::Timestamp;

/// Seconds of throughput that are kept.
const SECONDS_MAX: usize = 300;

/// What the tasks of the demo tell.
pub(super) enum News {
    /// The store has a new job.
    Acknowledged {
        id: JobId,
        kind: Kind,
    },
    /// Another job stands for it.
    Deduplicated,
    NotEnqueued(String),
    /// The last job was enqueued.
    NoMore,
    Feed {
        page: FeedPage,
        failures: Vec<Job>,
    },
    Status {
        queues: Vec<QueueStatus>,
        workers: Vec<WorkerStatus>,
    },
    /// The store did not answer.
    Trouble(String),
}

/// Counts of one job, of a kind, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) enqueued: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) retried: u64,
    pub(super) timed_out: u64,
    pub(super) reaped: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.enqueued += other.enqueued;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.retried += other.retried;
        self.timed_out += other.timed_out;
        self.reaped += other.reaped;
    }
}

/// What is known of one job. The feed may speak of it before its enqueue is acknowledged.
#[derive(Debug, Default)]
struct Seen {
    kind: Option<Kind>,
    completions: u32,
    tally: Tally,
}

/// How far the demo is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// No more jobs; what there is comes to its end.
    Finishing,
    Stopping,
}

#[derive(Debug)]
pub(super) struct Board {
    pub(super) started: Timestamp,
    pub(super) now: Timestamp,
    pub(super) phase: Phase,
    /// Where it takes place.
    pub(super) store: String,
    pub(super) seed: u64,
    pub(super) kinds: [Tally; 4],
    pub(super) total: Tally,
    pub(super) deduplicated: u64,
    pub(super) not_enqueued: u64,
    /// Jobs that ended per second, the present second last.
    pub(super) ended: VecDeque<u64>,
    pub(super) queues: Vec<QueueStatus>,
    pub(super) crew: Vec<Hand>,
    pub(super) events: Events,
    /// The queue that the keys are about.
    pub(super) selected: usize,
    pub(super) cursor: FeedCursor,
    /// Entries of the feed were missed.
    pub(super) gap: bool,
    jobs: HashMap<JobId, Seen>,
    held: HashMap<String, u32>,
    bereaved: HashMap<JobId, u32>,
}

/// A worker, to be shown.
#[derive(Clone, Debug)]
pub(super) struct Hand {
    pub(super) number: u32,
    pub(super) condition: Condition,
    pub(super) lives: u32,
    pub(super) held: u32,
}

impl Board {
    pub(super) fn new(started: Timestamp, cursor: FeedCursor, store: String, seed: u64) -> Self {
        Self {
            started,
            now: started,
            phase: Phase::Running,
            store,
            seed,
            kinds: [Tally::default(); 4],
            total: Tally::default(),
            deduplicated: 0,
            not_enqueued: 0,
            ended: VecDeque::from([0]),
            queues: Vec::new(),
            crew: Vec::new(),
            events: Events::default(),
            selected: 0,
            cursor,
            gap: false,
            jobs: HashMap::new(),
            held: HashMap::new(),
            bereaved: HashMap::new(),
        }
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        self.now.ms_since(self.started)
    }

    /// Time goes on.
    pub(super) fn tick(&mut self, now: Timestamp, fleet: &Fleet) {
        let before = self.elapsed_ms() / 1_000;
        self.now = now.max(self.now);
        self.events.now_ms = self.elapsed_ms();
        for _ in before..self.elapsed_ms() / 1_000 {
            self.ended.push_back(0);
        }
        while self.ended.len() > SECONDS_MAX {
            self.ended.pop_front();
        }
        let hand = |member: &super::fleet::Member| Hand {
            number: member.number,
            condition: member.condition,
            lives: member.lives,
            held: self.held(&member.name),
        };
        self.crew = fleet.members.iter().map(hand).collect();
    }

    /// How many jobs the worker said it has.
    pub(super) fn held(&self, worker: &str) -> u32 {
        self.held.get(worker).copied().unwrap_or(0)
    }

    /// Jobs that have not ended.
    pub(super) fn open(&self) -> u64 {
        self.queues.iter().map(|queue| queue.counts.scheduled + queue.counts.ready + queue.counts.active).sum()
    }

    /// Jobs that wait.
    pub(super) fn backlog(&self) -> u64 {
        self.queues.iter().map(|queue| queue.counts.scheduled + queue.counts.ready).sum()
    }

    /// These jobs have lost their worker.
    pub(super) fn bereave(&mut self, worker: u32, jobs: Vec<JobId>) {
        self.bereaved.extend(jobs.into_iter().map(|job| (job, worker)));
    }

    pub(super) fn note_turns(&mut self, turns: Vec<Turn>) {
        for turn in turns {
            match turn {
                Turn::Thawed(number) => {
                    self.events.fault(format!("worker {number} goes on; what it still reports comes too late"));
                }
                Turn::Restarted(number) => self.events.fault(format!("worker {number} was started again")),
                Turn::EndedByItself(number, said) => {
                    self.events.bad(format!("worker {number} ended by itself: {said}"));
                }
            }
        }
    }

    pub(super) fn take(&mut self, news: News) {
        match news {
            News::Acknowledged { id, kind } => self.acknowledge(id, kind),
            News::Deduplicated => self.deduplicated += 1,
            News::NotEnqueued(error) => {
                self.not_enqueued += 1;
                self.events.bad(format!("a job was not enqueued: {error}"));
            }
            News::NoMore => {}
            News::Feed { page, failures } => {
                self.gap |= page.gap;
                self.cursor = page.next;
                for event in page.entries.iter().flat_map(|entry| &entry.events) {
                    if let FeedEvent::Job(job) = event {
                        self.note(job);
                    }
                }
                failures.iter().for_each(|job| self.note_failure(job));
            }
            News::Status { queues, workers } => {
                self.queues = queues.into_iter().filter(|queue| QUEUES.contains(&queue.name.as_str())).collect();
                let held = workers.into_iter().map(|worker| (worker.beat.worker.to_string(), worker.beat.running));
                self.held = held.collect();
            }
            News::Trouble(error) => self.events.bad(format!("the store does not answer: {error}")),
        }
    }

    fn acknowledge(&mut self, id: JobId, kind: Kind) {
        let seen = self.jobs.entry(id).or_default();
        seen.kind = Some(kind);
        seen.tally.enqueued = 1;
        // What the feed has said before counts from now on.
        self.kinds[kind.index()] += seen.tally;
        self.total += seen.tally;
    }

    /// A change of one job.
    fn note(&mut self, change: &Transition) {
        if !QUEUES.contains(&change.queue.as_str()) {
            return;
        }
        let ended_badly = change.to == Some(State::Failed);
        let one = u64::from;
        let delta = match change.verb {
            Verb::Complete => Tally { succeeded: one(change.to == Some(State::Succeeded)), ..Tally::default() },
            Verb::Fail => Tally { failed: one(ended_badly), retried: one(!ended_badly), ..Tally::default() },
            Verb::Reap => Tally { reaped: 1, failed: one(ended_badly), ..Tally::default() },
            Verb::Enqueue | Verb::Promote | Verb::Claim | Verb::Renew | Verb::Progress | Verb::Log => return,
            Verb::Release | Verb::Cancel | Verb::Retry | Verb::Reschedule | Verb::Reprioritise => return,
            Verb::UpdatePayload | Verb::Remove => return,
        };
        let kind = self.add(change.job, delta);
        if change.verb == Verb::Reap {
            self.say_reaped(change, kind);
        }
    }

    fn add(&mut self, job: JobId, delta: Tally) -> Option<Kind> {
        let seen = self.jobs.entry(job).or_default();
        seen.completions += u32::try_from(delta.succeeded).unwrap_or(0);
        seen.tally += delta;
        if let Some(second) = self.ended.back_mut() {
            *second += delta.succeeded + delta.failed;
        }
        if let Some(kind) = seen.kind {
            self.kinds[kind.index()] += delta;
            self.total += delta;
        }
        seen.kind
    }

    fn say_reaped(&mut self, change: &Transition, kind: Option<Kind>) {
        let what = kind.map_or("job", Kind::as_str);
        let whose = self.bereaved.remove(&change.job).map(|worker| format!(" from worker {worker}"));
        let then = if change.to == Some(State::Failed) { "is dead" } else { "runs again" };
        let (id, whose) = (short(change.job), whose.unwrap_or_default());
        self.events.say(format!("{what} {id} was reaped{whose} and {then}"));
    }

    /// A failure, with its reason.
    fn note_failure(&mut self, job: &Job) {
        let Some(failure) = job.failures.last() else { return };
        let (kind, id) = (&job.spec.kind, short(job.id));
        let then = match job.state {
            State::Failed => "is a dead letter now".to_owned(),
            _ => format!("attempt {} of {} follows", failure.attempt + 1, job.spec.attempts),
        };
        if failure.class == FailureClass::Timeout {
            self.add(job.id, Tally { timed_out: 1, ..Tally::default() });
            self.events.bad(format!("{kind} {id} timed out; {then}"));
        } else {
            self.events.bad(format!("{kind} {id} failed: {}; {then}", failure.message));
        }
    }

    /// The jobs that the store has acknowledged.
    pub(super) fn acknowledged(&self) -> Vec<JobId> {
        self.jobs.iter().filter(|(_, seen)| seen.kind.is_some()).map(|(id, _)| *id).collect()
    }

    /// How often each job was completed according to the feed.
    pub(super) fn completions(&self) -> HashMap<JobId, u32> {
        self.jobs.iter().map(|(id, seen)| (*id, seen.completions)).collect()
    }
}

/// The end of an id: its beginning is much the same for jobs of one moment.
pub(super) fn short(id: JobId) -> String {
    let text = id.to_string();
    let from = text.len().saturating_sub(6);
    format!("…{}", text.get(from..).unwrap_or_default())
}

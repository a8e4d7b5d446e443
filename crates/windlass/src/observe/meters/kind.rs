//! The handles of one queue and kind, and what an attempt can come to.

use super::{Stopwatch, ToldKind};
use crate::observe::names;
use metrics::{Counter, Histogram, counter, histogram};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use windlass_core::job::{FailureClass, State};
use windlass_core::name::{Kind, QueueName};
use windlass_core::store::OutcomeKind;

/// What an outcome has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Succeeded,
    Failed(FailureClass),
    Retried,
    Released,
    Cancelled,
    LeaseLost,
}

pub(super) fn ended(told: ToldKind, state: State) -> Ended {
    match (state, told) {
        (State::Succeeded, _) => Ended::Succeeded,
        (State::Cancelled, _) => Ended::Cancelled,
        (State::Failed, ToldKind::Fail(class)) => Ended::Failed(class),
        // One that was given back after its last attempt had begun.
        (State::Failed, ToldKind::Release | ToldKind::Complete) => Ended::Failed(FailureClass::Released),
        (State::Scheduled | State::Ready | State::Active, ToldKind::Release) => Ended::Released,
        (State::Scheduled | State::Ready | State::Active, ToldKind::Fail(_) | ToldKind::Complete) => Ended::Retried,
    }
}

/// Outcomes of one batch that follow each other and are alike, added up.
#[derive(Default)]
pub(super) struct Sums {
    open: Option<(Arc<KindMeters>, Ended)>,
    count: u64,
}

impl Sums {
    pub(super) fn add(&mut self, kind: &Arc<KindMeters>, ended: Ended) {
        let alike = self.open.as_ref().is_some_and(|(open, was)| Arc::ptr_eq(open, kind) && *was == ended);
        if !alike {
            self.flush();
            self.open = Some((Arc::clone(kind), ended));
        }
        self.count += 1;
    }

    pub(super) fn flush(&mut self) {
        if let Some((kind, ended)) = self.open.take() {
            kind.ended(ended, std::mem::take(&mut self.count));
        }
    }
}

/// The handles of one queue and kind.
pub(super) struct KindMeters {
    names: Option<(QueueName, Kind)>,
    pub(super) enqueued: Counter,
    pub(super) claimed: Counter,
    succeeded: Counter,
    retried: Counter,
    released: Counter,
    cancelled: Counter,
    lease_lost: Counter,
    pub(super) dropped: Counter,
    wait: Histogram,
    failed: [OnceLock<Counter>; 6],
    runs: [OnceLock<Histogram>; Ran::COUNT],
}

/// How an attempt ended, from its handler's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    Succeeded,
    Error,
    Panic,
    Timeout,
    Released,
    Lost,
}

impl Ran {
    const COUNT: usize = 6;

    pub(super) fn of(outcome: Option<&OutcomeKind>) -> Self {
        match outcome {
            None => Self::Lost,
            Some(OutcomeKind::Complete { .. }) => Self::Succeeded,
            Some(OutcomeKind::Release { .. }) => Self::Released,
            Some(OutcomeKind::Fail { failure, .. }) => match failure.class {
                FailureClass::Panic => Self::Panic,
                FailureClass::Timeout => Self::Timeout,
                FailureClass::Released => Self::Released,
                FailureClass::Stalled => Self::Lost,
                FailureClass::Error | FailureClass::Quarantined => Self::Error,
            },
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
            Self::Released => "released",
            Self::Lost => "lost",
        }
    }
}

fn class_name(class: FailureClass) -> (usize, &'static str) {
    match class {
        FailureClass::Error => (0, "error"),
        FailureClass::Panic => (1, "panic"),
        FailureClass::Timeout => (2, "timeout"),
        FailureClass::Stalled => (3, "stalled"),
        FailureClass::Released => (4, "released"),
        FailureClass::Quarantined => (5, "quarantined"),
    }
}

impl KindMeters {
    pub(super) fn new(names: Option<(QueueName, Kind)>) -> Self {
        let (queue, kind) = label_texts(names.as_ref());
        let count = |name: &'static str| counter!(name, "queue" => queue.clone(), "kind" => kind.clone());
        Self {
            enqueued: count(names::JOBS_ENQUEUED),
            claimed: count(names::JOBS_CLAIMED),
            succeeded: count(names::JOBS_SUCCEEDED),
            retried: count(names::JOBS_RETRIED),
            released: count(names::JOBS_RELEASED),
            cancelled: count(names::JOBS_CANCELLED),
            lease_lost: count(names::JOBS_LEASE_LOST),
            dropped: count(names::JOBS_DROPPED),
            wait: histogram!(names::JOB_WAIT_SECONDS, "queue" => queue.clone(), "kind" => kind.clone()),
            failed: std::array::from_fn(|_| OnceLock::new()),
            runs: std::array::from_fn(|_| OnceLock::new()),
            names,
        }
    }

    pub(super) fn is(&self, queue: &QueueName, kind: &Kind) -> bool {
        self.names.as_ref().is_some_and(|names| names.0 == *queue && names.1 == *kind)
    }

    pub(super) fn waited(&self, ms: u64, jobs: usize) {
        if jobs > 0 {
            self.wait.record_many(Duration::from_millis(ms), jobs);
        }
    }

    fn ended(&self, ended: Ended, count: u64) {
        match ended {
            Ended::Succeeded => self.succeeded.increment(count),
            Ended::Retried => self.retried.increment(count),
            Ended::Released => self.released.increment(count),
            Ended::Cancelled => self.cancelled.increment(count),
            Ended::LeaseLost => self.lease_lost.increment(count),
            Ended::Failed(class) => {
                let (at, class) = class_name(class);
                let make = || {
                    let (queue, kind) = label_texts(self.names.as_ref());
                    counter!(names::JOBS_FAILED, "queue" => queue, "kind" => kind, "class" => class)
                };
                self.failed[at].get_or_init(make).increment(count);
            }
        }
    }

    pub(super) fn ran(&self, ran: Ran, watch: Stopwatch) {
        let make = || {
            let (queue, kind) = label_texts(self.names.as_ref());
            histogram!(names::JOB_RUN_SECONDS, "queue" => queue, "kind" => kind, "outcome" => ran.name())
        };
        self.runs[ran as usize].get_or_init(make).record(watch.elapsed());
    }
}

fn label_texts(names: Option<&(QueueName, Kind)>) -> (Arc<str>, Arc<str>) {
    match names {
        Some((queue, kind)) => (Arc::from(queue.as_str()), Arc::from(kind.as_str())),
        None => (Arc::from("other"), Arc::from("other")),
    }
}

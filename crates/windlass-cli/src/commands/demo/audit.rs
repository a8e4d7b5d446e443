//! The audit: what was acknowledged and what the workers wrote down, against what the store has. Pure, so that it can be
//! tested by itself.

use super::ledger::Entry;
use std::collections::{HashMap, HashSet};
use windlass::core::id::{JobId, Token};
use windlass::core::job::{FailureClass, Job, State};

/// A job as the store has it in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: JobId,
    pub(super) state: State,
    /// How its attempts went wrong, in order.
    pub(super) failures: Vec<FailureClass>,
}

impl Record {
    pub(super) fn of(job: &Job) -> Self {
        Self { id: job.id, state: job.state, failures: job.failures.iter().map(|failure| failure.class).collect() }
    }

    fn count(&self, class: FailureClass) -> u64 {
        self.failures.iter().filter(|one| **one == class).count() as u64
    }

    /// Attempts that went wrong by themselves and were followed by another one.
    fn retried(&self) -> u64 {
        let own =
            |class: &FailureClass| matches!(class, FailureClass::Error | FailureClass::Panic | FailureClass::Timeout);
        let failed = self.failures.iter().filter(|class| own(class)).count() as u64;
        let last_was_final = self.state == State::Failed && self.failures.last().is_some_and(own);
        failed - u64::from(last_was_final)
    }
}

/// All that is known in the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    /// Jobs whose enqueue the store has acknowledged to the parent.
    pub(super) acknowledged: HashSet<JobId>,
    /// What the workers wrote down.
    pub(super) entries: Vec<Entry>,
    /// What the store has.
    pub(super) records: Vec<Record>,
    /// How often each job was completed, as the feed says.
    pub(super) completions: HashMap<JobId, u32>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) enqueued: u64,
    pub(super) executed: u64,
    pub(super) succeeded: u64,
    /// Jobs of which a worker wrote down that the store took their completion; one that was killed could not.
    pub(super) confirmed: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    /// Jobs that have not ended: they are there, and run when somebody comes.
    pub(super) waiting: u64,
    pub(super) retried: u64,
    pub(super) timed_out: u64,
    pub(super) reaped: u64,
    /// Leases of which the store wanted to hear nothing any more: those of frozen workers.
    pub(super) refused: u64,
    pub(super) lost: u64,
    pub(super) double_completed: u64,
    /// Some of the jobs at fault, each with the reason.
    pub(super) faults: Vec<String>,
}

/// Faults that are named; the rest is only counted.
const FAULTS_NAMED: usize = 10;

/// What the ledgers say about one job.
#[derive(Debug, Default)]
struct Told {
    started: u64,
    /// Completions that the store has not called repeated.
    completions: u64,
    /// Leases with an outcome that the store has taken.
    accepted: HashSet<Token>,
    refused: HashSet<Token>,
}

fn gather(entries: &[Entry]) -> HashMap<JobId, Told> {
    let mut jobs: HashMap<JobId, Told> = HashMap::new();
    for entry in entries {
        match *entry {
            Entry::Started { job, .. } => jobs.entry(job).or_default().started += 1,
            Entry::Accepted { job, token, state, repeated } => {
                let told = jobs.entry(job).or_default();
                told.accepted.insert(token);
                told.completions += u64::from(state == State::Succeeded && !repeated);
            }
            Entry::Refused { job, token } => {
                jobs.entry(job).or_default().refused.insert(token);
            }
            Entry::Ended { .. } => {}
        }
    }
    jobs
}

impl Told {
    fn loss(&self, record: Option<&Record>) -> Option<String> {
        match record {
            None => Some("was acknowledged and is not in the store".to_owned()),
            Some(record) if self.completions > 0 && record.state != State::Succeeded => {
                Some(format!("was completed and is {}", record.state))
            }
            Some(record) if record.state == State::Succeeded && self.started == 0 => {
                Some("succeeded and was never executed".to_owned())
            }
            Some(_) => None,
        }
    }
}

/// Compares. Jobs that this run has not enqueued are none of its business.
pub(super) fn audit(books: &Books) -> Findings {
    let told = gather(&books.entries);
    let nothing = Told::default();
    let records: HashMap<JobId, &Record> = books.records.iter().map(|record| (record.id, record)).collect();
    let mut findings = Findings::default();
    for id in &books.acknowledged {
        let (told, record) = (told.get(id).unwrap_or(&nothing), records.get(id).copied());
        findings.count(told, record);
        if let Some(why) = told.loss(record) {
            findings.lost += 1;
            findings.fault(*id, &why);
        }
        let completions = u64::from(books.completions.get(id).copied().unwrap_or(0)).max(told.completions);
        if completions > 1 {
            findings.double_completed += 1;
            findings.fault(*id, &format!("was completed {completions} times"));
        }
    }
    findings
}

impl Findings {
    fn count(&mut self, told: &Told, record: Option<&Record>) {
        self.enqueued += 1;
        self.executed += told.started;
        self.confirmed += u64::from(told.completions > 0);
        // A renewal that crosses its own job's outcome is refused, too, and means nothing.
        self.refused += told.refused.difference(&told.accepted).count() as u64;
        let Some(record) = record else { return };
        match record.state {
            State::Succeeded => self.succeeded += 1,
            State::Failed => self.failed += 1,
            State::Cancelled => self.cancelled += 1,
            State::Scheduled | State::Ready | State::Active => self.waiting += 1,
        }
        self.retried += record.retried();
        self.timed_out += record.count(FailureClass::Timeout);
        self.reaped += record.count(FailureClass::Stalled);
    }

    fn fault(&mut self, job: JobId, why: &str) {
        if self.faults.len() < FAULTS_NAMED {
            self.faults.push(format!("{job} {why}"));
        }
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;

//! The audit: what the ledgers hold against what the store holds. Pure, so that it can be tested without processes.

use crate::ledger::Entry;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use windlass_core::id::{JobId, Token};
use windlass_core::job::{FailureClass, Job, Lease, State};
use windlass_core::store::Reported;

/// Faults that are named; the others are only counted.
const FAULTS_NAMED: usize = 10;

/// A job as the store holds it in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    /// The id of the job.
    pub id: JobId,
    /// The state of the job.
    pub state: State,
    /// How its attempts failed, in order.
    pub failures: Vec<FailureClass>,
    /// How often it may be delivered: attempts and stalls together.
    pub deliveries_max: u64,
}

impl From<&Job> for StoredJob {
    fn from(job: &Job) -> Self {
        let failures = job.failures.iter().map(|failure| failure.class).collect();
        let deliveries_max = u64::from(job.spec.attempts) + u64::from(job.spec.stalls);
        Self { id: job.id, state: job.state, failures, deliveries_max }
    }
}

impl StoredJob {
    fn count(&self, class: FailureClass) -> u64 {
        self.failures.iter().filter(|one| **one == class).count() as u64
    }

    /// Attempts that failed by themselves and were followed by another one.
    fn retried(&self) -> u64 {
        let own =
            |class: &FailureClass| matches!(class, FailureClass::Error | FailureClass::Panic | FailureClass::Timeout);
        let failed = self.failures.iter().filter(|class| own(class)).count() as u64;
        let last_was_final = self.state == State::Failed && self.failures.last().is_some_and(own);
        failed - u64::from(last_was_final)
    }
}

/// What the audit compares.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The entries of all ledgers, in any order.
    pub entries: Vec<Entry>,
    /// The jobs of the store.
    pub jobs: Vec<StoredJob>,
    /// How often each job was completed according to the feed; empty when the feed was not read.
    pub completions: HashMap<JobId, u32>,
    /// True when others may use the same store, and retry jobs in it. Then only acknowledged jobs are audited, a job that
    /// has not ended is not lost, and deliveries are not limited.
    pub is_shared: bool,
}

/// What the audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Jobs whose enqueue was acknowledged.
    pub jobs: u64,
    /// Times that a handler was executed.
    pub executed: u64,
    /// Jobs that were executed more than once although their first attempt did not fail: allowed, at-least-once.
    pub delivered_twice: u64,
    /// Outcomes that were refused because their lease was lost: allowed, and not counted as completions.
    pub too_late: u64,
    /// Jobs that were acknowledged or completed and are not in the store, have not ended or have ended otherwise, and
    /// jobs that succeeded unexecuted.
    pub lost: u64,
    /// Jobs with two accepted completions, or with more deliveries than their budgets allow.
    pub double: u64,
    /// Jobs that were claimed once more after their completion had been acknowledged.
    #[serde(default)]
    pub forgotten: u64,
    /// Jobs that were executed or are in the store, and that nobody meant to enqueue.
    pub phantom: u64,
    /// The first jobs at fault: the id, a colon and the reason.
    pub faults: Vec<String>,
    /// Acknowledged jobs that are in the store and have not ended.
    #[serde(skip)]
    pub waiting: u64,
    /// Numbers that no promise depends on.
    #[serde(skip)]
    pub counts: Counts,
}

/// What became of the jobs, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Jobs whose completion a worker wrote to its ledger; a worker that was killed could not.
    pub confirmed: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Attempts that failed and were followed by another one.
    pub retried: u64,
    /// Attempts that timed out.
    pub timed_out: u64,
    /// Leases that ran out.
    pub reaped: u64,
    /// Leases whose holder came too late, with an outcome or a renewal.
    pub refused: u64,
}

impl Findings {
    /// True when no promise was broken.
    pub fn is_clean(&self) -> bool {
        self.lost + self.double + self.forgotten + self.phantom == 0
    }

    fn count(&mut self, history: &History, job: Option<&StoredJob>) {
        self.jobs += u64::from(history.is_acknowledged);
        self.executed += history.executed;
        self.too_late += history.too_late;
        self.delivered_twice += u64::from(history.executed > history.failed_attempts + 1);
        let counts = &mut self.counts;
        counts.confirmed += u64::from(history.first_completions > 0);
        // A renewal that was sent before the outcome of its own lease and arrived after it is refused, too.
        counts.refused += history.refused.difference(&history.accepted).count() as u64;
        let Some(job) = job else { return };
        match job.state {
            State::Succeeded => counts.succeeded += 1,
            State::Failed => counts.failed += 1,
            State::Cancelled => counts.cancelled += 1,
            State::Scheduled | State::Ready | State::Active => self.waiting += 1,
        }
        counts.retried += job.retried();
        counts.timed_out += job.count(FailureClass::Timeout);
        counts.reaped += job.count(FailureClass::Stalled);
    }

    fn fault(&mut self, job: JobId, why: &str) {
        if self.faults.len() < FAULTS_NAMED {
            self.faults.push(format!("{job}: {why}"));
        }
    }
}

/// What the ledgers hold about one job.
#[derive(Debug, Default)]
struct History {
    is_intended: bool,
    is_acknowledged: bool,
    is_redelivered: bool,
    executed: u64,
    failed_attempts: u64,
    /// Outcomes that were refused.
    too_late: u64,
    /// Leases of which an outcome was accepted.
    accepted: HashSet<Token>,
    /// Leases of which an outcome or a renewal was refused.
    refused: HashSet<Token>,
    /// Leases of which a completion was accepted.
    completed: HashSet<Token>,
    /// Completions that the store did not call repeated.
    first_completions: u64,
}

fn histories(entries: &[Entry]) -> BTreeMap<JobId, History> {
    let mut jobs: BTreeMap<JobId, History> = BTreeMap::new();
    for entry in entries {
        match *entry {
            Entry::ClockAheadMs(_) => {}
            Entry::Intended(job) => jobs.entry(job).or_default().is_intended = true,
            Entry::Acknowledged(job) => jobs.entry(job).or_default().is_acknowledged = true,
            Entry::Redelivered(job) => jobs.entry(job).or_default().is_redelivered = true,
            Entry::Executed { job, .. } => jobs.entry(job).or_default().executed += 1,
            Entry::Accepted(lease, reported) => jobs.entry(lease.job).or_default().accept(lease, reported),
            Entry::Refused(lease) => jobs.entry(lease.job).or_default().refuse(lease, 1),
            Entry::RenewalRefused(lease) => jobs.entry(lease.job).or_default().refuse(lease, 0),
        }
    }
    jobs
}

impl History {
    fn refuse(&mut self, lease: Lease, outcomes: u64) {
        self.too_late += outcomes;
        self.refused.insert(lease.token);
    }

    fn accept(&mut self, lease: Lease, reported: Reported) {
        self.accepted.insert(lease.token);
        if reported.state == State::Succeeded {
            self.completed.insert(lease.token);
            self.first_completions += u64::from(!reported.repeated);
        } else {
            self.failed_attempts += 1;
        }
    }

    fn loss(&self, job: Option<&StoredJob>, is_shared: bool) -> Option<String> {
        let is_completed = !self.completed.is_empty();
        let is_promised = self.is_acknowledged || is_completed;
        match job {
            None if is_promised => Some("was acknowledged and is not in the store".to_owned()),
            Some(job) if is_promised && !is_shared && !job.state.is_terminal() => {
                Some("was acknowledged and has not ended".to_owned())
            }
            Some(job) if is_completed && job.state != State::Succeeded => {
                Some(format!("was completed and is {}", job.state))
            }
            Some(job) if job.state == State::Succeeded && self.executed == 0 => {
                Some("succeeded and was never executed".to_owned())
            }
            _ => None,
        }
    }

    /// `in_feed` is the number of completions in the feed.
    fn doubling(&self, job: Option<&StoredJob>, is_shared: bool, in_feed: u32) -> Option<String> {
        let completions = u64::from(in_feed).max(self.completed.len() as u64).max(self.first_completions);
        if completions > 1 {
            return Some(format!("was completed {completions} times"));
        }
        let is_over_budget = !is_shared && job.is_some_and(|job| self.executed > job.deliveries_max);
        is_over_budget.then(|| "was delivered more often than its budgets allow".to_owned())
    }
}

/// Compares what the processes wrote down with what the store holds in the end.
pub fn audit(evidence: &Evidence) -> Findings {
    let is_shared = evidence.is_shared;
    let mut histories = histories(&evidence.entries);
    let stored: HashMap<JobId, &StoredJob> = evidence.jobs.iter().map(|job| (job.id, job)).collect();
    for id in stored.keys() {
        histories.entry(*id).or_default();
    }
    let mut findings = Findings::default();
    for (id, history) in &histories {
        if is_shared && !history.is_acknowledged {
            continue;
        }
        let job = stored.get(id).copied();
        findings.count(history, job);
        if !history.is_intended && !is_shared {
            findings.phantom += 1;
            findings.fault(*id, "nobody meant to enqueue it");
        }
        if let Some(why) = history.loss(job, is_shared) {
            findings.lost += 1;
            findings.fault(*id, &why);
        }
        if history.is_redelivered {
            findings.forgotten += 1;
            findings.fault(*id, "was completed, and claimed once more");
        }
        let in_feed = evidence.completions.get(id).copied().unwrap_or(0);
        if let Some(why) = history.doubling(job, is_shared, in_feed) {
            findings.double += 1;
            findings.fault(*id, &why);
        }
    }
    findings
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;

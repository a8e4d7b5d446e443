//! The audit: what the ledgers say against what the store says. Pure, so that it can be tested by itself.

use crate::ledger::Entry;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use windlass_core::id::{JobId, Token};
use windlass_core::job::State;

/// A job as the store has it in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredJob {
    /// Its id.
    pub id: JobId,
    /// Where it stands.
    pub state: State,
    /// How often it may have been delivered: attempts and stalls.
    pub deliveries_max: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Jobs whose enqueue was acknowledged.
    pub jobs: u64,
    /// Times that a handler did its work.
    pub executed: u64,
    /// Jobs that were worked on more than once although their first attempt did not fail: allowed, at-least-once.
    pub delivered_twice: u64,
    /// Outcomes that came too late, under a lease that was lost: allowed, and not counted as completions.
    pub too_late: u64,
    /// Jobs that were acknowledged or completed and have not ended, have ended otherwise, or succeeded unexecuted.
    pub lost: u64,
    /// Jobs with two accepted completions, or with more deliveries than their budgets allow.
    pub double: u64,
    /// Jobs that were claimed once more after their completion had been acknowledged.
    #[serde(default)]
    pub forgotten: u64,
    /// Jobs that ran or exist and that nobody meant to enqueue.
    pub phantom: u64,
    /// Some of the jobs at fault, each with the reason.
    pub faults: Vec<String>,
}

/// Faults that are named; the rest is only counted.
const FAULTS_NAMED: usize = 10;

impl Findings {
    /// True when no promise was broken.
    pub fn is_clean(&self) -> bool {
        self.lost + self.double + self.forgotten + self.phantom == 0
    }

    fn fault(&mut self, job: JobId, why: &str) {
        if self.faults.len() < FAULTS_NAMED {
            self.faults.push(format!("{job}: {why}"));
        }
    }
}

/// What the ledgers say about one job.
#[derive(Debug, Default)]
struct Told {
    intended: bool,
    acknowledged: bool,
    executed: u64,
    failed_attempts: u64,
    refused: u64,
    redelivered: bool,
    /// Completions that the store accepted, and those of them that it did not call repeated.
    completions: BTreeSet<(u32, u64)>,
    fresh_completions: u64,
}

fn gather(entries: &[Entry]) -> BTreeMap<JobId, Told> {
    let mut jobs: BTreeMap<JobId, Told> = BTreeMap::new();
    for entry in entries {
        match *entry {
            Entry::Clock { .. } => {}
            Entry::Intended { job } => jobs.entry(job).or_default().intended = true,
            Entry::Acknowledged { job } => jobs.entry(job).or_default().acknowledged = true,
            Entry::Executed { job, .. } => jobs.entry(job).or_default().executed += 1,
            Entry::Refused { job, .. } => jobs.entry(job).or_default().refused += 1,
            Entry::Redelivered { job } => jobs.entry(job).or_default().redelivered = true,
            Entry::Accepted { job, attempt, token, state, repeated } => {
                jobs.entry(job).or_default().accept((attempt, token), state, repeated);
            }
        }
    }
    jobs
}

impl Told {
    fn accept(&mut self, (attempt, token): (u32, Token), state: State, repeated: bool) {
        if state == State::Succeeded {
            self.completions.insert((attempt, token.bits()));
            self.fresh_completions += u64::from(!repeated);
        } else {
            self.failed_attempts += 1;
        }
    }

    fn loss(&self, stored: Option<&StoredJob>) -> Option<&'static str> {
        let promised = self.acknowledged || !self.completions.is_empty();
        match stored {
            None if promised => Some("was acknowledged and is not in the store"),
            Some(job) if promised && !job.state.is_terminal() => Some("was acknowledged and has not ended"),
            Some(job) if !self.completions.is_empty() && job.state != State::Succeeded => {
                Some("was completed and has not succeeded")
            }
            Some(job) if job.state == State::Succeeded && self.executed == 0 => {
                Some("succeeded and was never executed")
            }
            _ => None,
        }
    }

    fn doubling(&self, stored: Option<&StoredJob>) -> Option<&'static str> {
        if self.completions.len() > 1 || self.fresh_completions > 1 {
            return Some("was completed twice");
        }
        let max = stored.map_or(u64::MAX, |job| job.deliveries_max);
        (self.executed > max).then_some("was delivered more often than its budgets allow")
    }
}

/// Compares what the processes wrote down with what the store has in the end.
pub fn audit(entries: &[Entry], stored: &[StoredJob]) -> Findings {
    let mut told = gather(entries);
    let stored: HashMap<JobId, &StoredJob> = stored.iter().map(|job| (job.id, job)).collect();
    for id in stored.keys() {
        told.entry(*id).or_default();
    }
    let mut findings = Findings::default();
    for (id, told) in &told {
        let job = stored.get(id).copied();
        findings.jobs += u64::from(told.acknowledged);
        findings.executed += told.executed;
        findings.too_late += told.refused;
        findings.delivered_twice += u64::from(told.executed > told.failed_attempts + 1);
        if !told.intended {
            findings.phantom += 1;
            findings.fault(*id, "nobody meant to enqueue it");
        }
        if let Some(why) = told.loss(job) {
            findings.lost += 1;
            findings.fault(*id, why);
        }
        if told.redelivered {
            findings.forgotten += 1;
            findings.fault(*id, "was completed, and claimed once more");
        }
        if let Some(why) = told.doubling(job) {
            findings.double += 1;
            findings.fault(*id, why);
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId::from_parts(0, 1);

    fn stored(state: State) -> Vec<StoredJob> {
        vec![StoredJob { id: JOB, state, deliveries_max: 4 }]
    }

    fn enqueued() -> Vec<Entry> {
        vec![Entry::Intended { job: JOB }, Entry::Acknowledged { job: JOB }]
    }

    fn executed(attempt: u32) -> Entry {
        Entry::Executed { job: JOB, attempt, token: Token::from_bits(u64::from(attempt)) }
    }

    fn accepted(attempt: u32, state: State, repeated: bool) -> Entry {
        Entry::Accepted { job: JOB, attempt, token: Token::from_bits(u64::from(attempt)), state, repeated }
    }

    fn check(mut entries: Vec<Entry>, stored: &[StoredJob], expected: (u64, u64, u64)) {
        let findings = audit(&entries, stored);
        assert_eq!((findings.lost, findings.double, findings.phantom), expected, "{entries:?} {stored:?}");
        // The order of ledgers means nothing.
        entries.reverse();
        assert_eq!(audit(&entries, stored), findings);
    }

    #[test]
    fn what_is_allowed_is_clean() {
        let done = |more: &[Entry]| [enqueued(), more.to_vec()].concat();
        check(done(&[executed(1), accepted(1, State::Succeeded, false)]), &stored(State::Succeeded), (0, 0, 0));
        // Delivered twice, completed once; and completed by a worker that was killed before it could write so.
        let twice = done(&[executed(1), executed(2), accepted(2, State::Succeeded, false)]);
        assert_eq!(audit(&twice, &stored(State::Succeeded)).delivered_twice, 1);
        check(twice, &stored(State::Succeeded), (0, 0, 0));
        check(done(&[executed(1)]), &stored(State::Succeeded), (0, 0, 0));
        // A dead letter need not have run; a retry after a failure is no second delivery.
        check(enqueued(), &stored(State::Failed), (0, 0, 0));
        let retried = done(&[executed(1), accepted(1, State::Ready, false), executed(2)]);
        assert_eq!(audit(&retried, &stored(State::Succeeded)).delivered_twice, 0);
        // Killed between the store's commit and the acknowledgement, or before the store had it at all.
        check(vec![Entry::Intended { job: JOB }, executed(1)], &stored(State::Succeeded), (0, 0, 0));
        check(vec![Entry::Intended { job: JOB }], &[], (0, 0, 0));
    }

    #[test]
    fn what_is_broken_is_found() {
        let done = |more: &[Entry]| [enqueued(), more.to_vec()].concat();
        check(enqueued(), &[], (1, 0, 0));
        check(enqueued(), &stored(State::Ready), (1, 0, 0));
        check(enqueued(), &stored(State::Succeeded), (1, 0, 0));
        check(done(&[executed(1), accepted(1, State::Succeeded, false)]), &stored(State::Failed), (1, 0, 0));
        let both = [accepted(1, State::Succeeded, false), accepted(2, State::Succeeded, false)];
        check(done(&[&[executed(1), executed(2)], &both[..]].concat()), &stored(State::Succeeded), (0, 1, 0));
        let often: Vec<_> = (1..=5).map(executed).collect();
        check(done(&often), &stored(State::Succeeded), (0, 1, 0));
        let again = done(&[executed(1), accepted(1, State::Succeeded, false), Entry::Redelivered { job: JOB }]);
        let forgotten = audit(&again, &stored(State::Succeeded));
        assert_eq!((forgotten.forgotten, forgotten.is_clean()), (1, false), "{forgotten:?}");
        check(vec![executed(1)], &[], (0, 0, 1));
        check(Vec::new(), &stored(State::Failed), (0, 0, 1));
    }
}

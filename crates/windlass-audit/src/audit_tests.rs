use super::*;

const JOB: JobId = JobId::from_parts(0, 1);
const OTHER: JobId = JobId::from_parts(0, 2);

fn lease(number: u32) -> Lease {
    Lease { job: JOB, attempt: number, token: Token::from_bits(u64::from(number)) }
}

fn executed(attempt: u32) -> Entry {
    Entry::Executed { job: JOB, attempt }
}

fn accepted(number: u32, state: State) -> Entry {
    Entry::Accepted(lease(number), Reported { state, repeated: false })
}

fn repeated(number: u32, state: State) -> Entry {
    Entry::Accepted(lease(number), Reported { state, repeated: true })
}

fn stored(state: State, failures: &[FailureClass]) -> StoredJob {
    StoredJob { id: JOB, state, failures: failures.to_vec(), deliveries_max: 4 }
}

/// One acknowledged job in a store of its own.
fn evidence(entries: &[Entry], job: Option<State>) -> Evidence {
    let entries = [&[Entry::Intended(JOB), Entry::Acknowledged(JOB)], entries].concat();
    Evidence { entries, jobs: job.map(|state| stored(state, &[])).into_iter().collect(), ..Evidence::default() }
}

fn shared(evidence: &Evidence) -> Evidence {
    Evidence { is_shared: true, ..evidence.clone() }
}

/// Audits, with the ledgers in either order. The faults are without the id of their job.
fn faults(evidence: &Evidence) -> ([u64; 4], Vec<String>) {
    let findings = audit(evidence);
    let mut reversed = evidence.clone();
    reversed.entries.reverse();
    assert_eq!(audit(&reversed), findings);
    let Findings { lost, double, forgotten, phantom, .. } = findings;
    assert_eq!(findings.is_clean(), findings.faults.is_empty(), "{findings:?}");
    let reason = |fault: String| fault.split_once(": ").unwrap().1.to_owned();
    ([lost, double, forgotten, phantom], findings.faults.into_iter().map(reason).collect())
}

fn is_clean(evidence: &Evidence) {
    for evidence in [evidence.clone(), shared(evidence)] {
        assert_eq!(faults(&evidence), ([0; 4], Vec::new()), "{evidence:?}");
    }
}

/// One fault, in a store of its own and in a shared one.
fn is_fault(evidence: &Evidence, counts: [u64; 4], why: &str) {
    for evidence in [evidence.clone(), shared(evidence)] {
        assert_eq!(faults(&evidence), (counts, vec![why.to_owned()]), "{evidence:?}");
    }
}

/// One fault in a store of its own, none in a shared one.
fn is_fault_unless_shared(evidence: &Evidence, counts: [u64; 4], why: &str) {
    assert_eq!(faults(evidence), (counts, vec![why.to_owned()]), "{evidence:?}");
    assert_eq!(faults(&shared(evidence)), ([0; 4], Vec::new()), "{evidence:?}");
}

#[test]
fn what_is_allowed_is_clean() {
    let done = Some(State::Succeeded);
    let success = accepted(1, State::Succeeded);
    is_clean(&evidence(&[executed(1), success], done));
    // The worker was killed before it could write that the store accepted its outcome.
    is_clean(&evidence(&[executed(1)], done));
    // Reported again, because the answer was lost.
    is_clean(&evidence(&[executed(1), success, repeated(1, State::Succeeded)], done));
    // Executed by two workers, completed by one: at least once.
    is_clean(&evidence(&[executed(1), executed(2), accepted(2, State::Succeeded), Entry::Refused(lease(1))], done));
    // A dead letter need not have been executed.
    is_clean(&evidence(&[], Some(State::Failed)));
    // As many deliveries as the budgets allow.
    is_clean(&evidence(&[executed(1), executed(2), executed(3), executed(4)], done));
    // Completed once, as the feed says, too.
    let completions = HashMap::from([(JOB, 1)]);
    is_clean(&Evidence { completions, ..evidence(&[executed(1), success], done) });
    // The enqueuer was killed between the commit of the store and the acknowledgement, or before the store had the job.
    let intended = Evidence { entries: vec![Entry::Intended(JOB), executed(1)], ..evidence(&[], done) };
    is_clean(&intended);
    is_clean(&Evidence { entries: vec![Entry::Intended(JOB)], ..Evidence::default() });
}

#[test]
fn an_acknowledged_job_that_is_not_in_the_store_is_lost() {
    is_fault(&evidence(&[], None), [1, 0, 0, 0], "was acknowledged and is not in the store");
}

#[test]
fn a_completed_job_that_is_not_in_the_store_is_lost_without_an_acknowledgement() {
    let entries = vec![Entry::Intended(JOB), executed(1), accepted(1, State::Succeeded)];
    let unacknowledged = Evidence { entries, ..Evidence::default() };
    is_fault_unless_shared(&unacknowledged, [1, 0, 0, 0], "was acknowledged and is not in the store");
}

#[test]
fn a_job_that_has_not_ended_is_lost_or_waits_in_a_shared_store() {
    for state in [State::Scheduled, State::Ready, State::Active] {
        let open = evidence(&[executed(1)], Some(state));
        is_fault_unless_shared(&open, [1, 0, 0, 0], "was acknowledged and has not ended");
        assert_eq!(audit(&shared(&open)).waiting, 1);
        // It was completed once, and the store has forgotten that.
        let again = shared(&evidence(&[executed(1), accepted(1, State::Succeeded)], Some(state)));
        assert_eq!(faults(&again), ([1, 0, 0, 0], vec![format!("was completed and is {state}")]));
        assert_eq!(audit(&again).waiting, 1);
    }
}

#[test]
fn a_completed_job_that_has_not_succeeded_is_lost() {
    for completed in [accepted(1, State::Succeeded), repeated(1, State::Succeeded)] {
        let failed = evidence(&[executed(1), completed], Some(State::Failed));
        is_fault(&failed, [1, 0, 0, 0], "was completed and is failed");
    }
}

#[test]
fn a_job_that_succeeded_unexecuted_is_lost() {
    is_fault(&evidence(&[], Some(State::Succeeded)), [1, 0, 0, 0], "succeeded and was never executed");
}

#[test]
fn completions_under_two_leases_are_double_also_when_they_are_called_repeated() {
    for second in [accepted(2, State::Succeeded), repeated(2, State::Succeeded)] {
        let entries = [executed(1), executed(2), accepted(1, State::Succeeded), second];
        is_fault(&evidence(&entries, Some(State::Succeeded)), [0, 1, 0, 0], "was completed 2 times");
    }
}

#[test]
fn two_first_completions_under_one_lease_are_double() {
    let entries = [executed(1), accepted(1, State::Succeeded), accepted(1, State::Succeeded)];
    is_fault(&evidence(&entries, Some(State::Succeeded)), [0, 1, 0, 0], "was completed 2 times");
}

#[test]
fn three_completions_in_the_feed_are_double() {
    let completions = HashMap::from([(JOB, 3)]);
    let evidence = Evidence { completions, ..evidence(&[executed(1)], Some(State::Succeeded)) };
    is_fault(&evidence, [0, 1, 0, 0], "was completed 3 times");
}

#[test]
fn more_deliveries_than_the_budgets_allow_are_double() {
    let often: Vec<_> = (1..=5).map(executed).collect();
    let evidence = evidence(&often, Some(State::Succeeded));
    is_fault_unless_shared(&evidence, [0, 1, 0, 0], "was delivered more often than its budgets allow");
}

#[test]
fn a_job_that_is_claimed_after_its_completion_is_forgotten() {
    let entries = [executed(1), accepted(1, State::Succeeded), Entry::Redelivered(JOB)];
    is_fault(&evidence(&entries, Some(State::Succeeded)), [0, 0, 1, 0], "was completed, and claimed once more");
}

#[test]
fn a_job_that_nobody_meant_to_enqueue_is_a_phantom_unless_the_store_is_shared() {
    let ran = Evidence { entries: vec![executed(1)], ..Evidence::default() };
    is_fault_unless_shared(&ran, [0, 0, 0, 1], "nobody meant to enqueue it");
    let there = Evidence { jobs: vec![stored(State::Failed, &[])], ..Evidence::default() };
    is_fault_unless_shared(&there, [0, 0, 0, 1], "nobody meant to enqueue it");
    // The demo writes no intentions.
    let entries = vec![Entry::Acknowledged(JOB)];
    is_fault_unless_shared(&Evidence { entries, ..there }, [0, 0, 0, 1], "nobody meant to enqueue it");
}

#[test]
fn jobs_of_others_in_a_shared_store_are_not_counted() {
    let mut evidence = shared(&evidence(&[executed(1)], Some(State::Succeeded)));
    let ours = audit(&evidence);
    evidence.jobs.push(StoredJob { id: OTHER, ..stored(State::Ready, &[FailureClass::Timeout]) });
    evidence.entries.push(Entry::Executed { job: OTHER, attempt: 1 });
    assert_eq!(audit(&evidence), ours);
    assert_eq!((ours.jobs, ours.executed), (1, 1));
}

#[test]
fn a_retry_after_a_failure_is_no_second_delivery() {
    let twice = evidence(&[executed(1), executed(2), accepted(2, State::Succeeded)], Some(State::Succeeded));
    assert_eq!(audit(&twice).delivered_twice, 1);
    let retried = evidence(&[executed(1), accepted(1, State::Ready), executed(2)], Some(State::Succeeded));
    assert_eq!(audit(&retried).delivered_twice, 0);
}

#[test]
fn a_refused_lease_is_counted_once_and_not_at_all_when_its_outcome_was_accepted() {
    let late = [Entry::Refused(lease(1)), Entry::RenewalRefused(lease(1)), Entry::RenewalRefused(lease(2))];
    let refused = audit(&evidence(&late, Some(State::Failed)));
    assert_eq!((refused.too_late, refused.counts.refused), (1, 2));
    let crossed = [executed(1), accepted(1, State::Succeeded), Entry::RenewalRefused(lease(1))];
    let crossed = audit(&evidence(&crossed, Some(State::Succeeded)));
    assert_eq!((crossed.too_late, crossed.counts.refused), (0, 0));
}

#[test]
fn jobs_are_counted_by_state_and_attempts_by_failure() {
    use FailureClass::{Error, Stalled, Timeout};
    let counts = |state, failures: &[FailureClass]| {
        let entries = [executed(1), accepted(1, state)];
        let mut evidence = evidence(&entries, None);
        evidence.jobs.push(stored(state, failures));
        audit(&evidence).counts
    };
    let retried = Counts { retried: 2, timed_out: 1, reaped: 1, ..Counts::default() };
    let expected = Counts { succeeded: 1, confirmed: 1, ..retried };
    assert_eq!(counts(State::Succeeded, &[Error, Timeout, Stalled]), expected);
    // The last attempt of a failed job was not followed by another one.
    assert_eq!(counts(State::Failed, &[Stalled, Error]), Counts { failed: 1, reaped: 1, ..Counts::default() });
    let stalled = Counts { failed: 1, retried: 1, reaped: 1, ..Counts::default() };
    assert_eq!(counts(State::Failed, &[Error, Stalled]), stalled);
    // The last failure of a job that succeeded was followed by another attempt.
    assert_eq!(counts(State::Succeeded, &[Timeout, Error]), Counts { reaped: 0, ..expected });
    assert_eq!(counts(State::Cancelled, &[]), Counts { cancelled: 1, ..Counts::default() });
}

#[test]
fn only_the_first_faults_are_named() {
    let ids = || (1..=12).map(|number| JobId::from_parts(0, number));
    let entries = ids().flat_map(|id| [Entry::Intended(id), Entry::Acknowledged(id)]).collect();
    let findings = audit(&Evidence { entries, ..Evidence::default() });
    assert_eq!((findings.lost, findings.faults.len()), (12, FAULTS_NAMED));
    let first = JobId::from_parts(0, 1);
    assert_eq!(findings.faults[0], format!("{first}: was acknowledged and is not in the store"));
}

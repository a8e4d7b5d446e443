use super::*;

const JOB: JobId = JobId::from_parts(0, 1);

fn started(attempt: u32) -> Entry {
    Entry::Started { job: JOB, attempt }
}

fn accepted(lease: u64, state: State, repeated: bool) -> Entry {
    Entry::Accepted { job: JOB, token: Token::from_bits(lease), state, repeated }
}

fn record(state: State, failures: &[FailureClass]) -> Record {
    Record { id: JOB, state, failures: failures.to_vec() }
}

/// One acknowledged job, completed as often as the feed says.
fn books(entries: &[Entry], record: Option<Record>, completions: u32) -> Books {
    Books {
        acknowledged: HashSet::from([JOB]),
        entries: entries.to_vec(),
        records: record.into_iter().collect(),
        completions: HashMap::from([(JOB, completions)]),
    }
}

fn faults(books: &Books) -> (u64, u64) {
    let findings = audit(books);
    assert_eq!(findings.faults.is_empty(), findings.lost + findings.double_completed == 0, "{findings:?}");
    (findings.lost, findings.double_completed)
}

#[test]
fn what_is_allowed_is_clean() {
    let done = || Some(record(State::Succeeded, &[]));
    let success = accepted(1, State::Succeeded, false);
    assert_eq!(faults(&books(&[started(1), success], done(), 1)), (0, 0));
    // Its worker was killed before it could write down that the store took it.
    assert_eq!(faults(&books(&[started(1)], done(), 1)), (0, 0));
    // Repeated, because the answer was lost.
    assert_eq!(faults(&books(&[started(1), success, accepted(1, State::Succeeded, true)], done(), 1)), (0, 0));
    // Run by two workers, completed by one: at least once.
    let late = Entry::Refused { job: JOB, token: Token::from_bits(1) };
    let twice = books(&[started(1), started(2), accepted(2, State::Succeeded, false), late, late], done(), 1);
    assert_eq!(faults(&twice), (0, 0));
    assert_eq!((audit(&twice).executed, audit(&twice).refused), (2, 1));
    // A renewal came after the outcome of its own attempt.
    assert_eq!(audit(&books(&[started(1), success, late], done(), 1)).refused, 0);
    // A dead letter.
    assert_eq!(faults(&books(&[started(1)], Some(record(State::Failed, &[FailureClass::Error])), 0)), (0, 0));
}

#[test]
fn a_loss_is_found() {
    let success = accepted(1, State::Succeeded, false);
    assert_eq!(faults(&books(&[], None, 0)), (1, 0), "gone");
    let failed = Some(record(State::Failed, &[FailureClass::Stalled]));
    assert_eq!(faults(&books(&[started(1), success], failed, 1)), (1, 0), "completed, and yet failed");
    assert_eq!(faults(&books(&[], Some(record(State::Succeeded, &[])), 1)), (1, 0), "never executed");
}

#[test]
fn what_has_not_ended_waits_and_is_not_lost() {
    for state in [State::Scheduled, State::Ready, State::Active] {
        let books = books(&[started(1)], Some(record(state, &[])), 0);
        assert_eq!((faults(&books), audit(&books).waiting), ((0, 0), 1), "{state}");
        // It was done once, and the store has forgotten it.
        let again = self::books(&[started(1), accepted(1, State::Succeeded, false)], Some(record(state, &[])), 1);
        assert_eq!((faults(&again), audit(&again).waiting), ((1, 0), 1), "{state}");
    }
}

#[test]
fn a_double_completion_is_found_in_the_feed_and_in_the_ledgers() {
    let done = || Some(record(State::Succeeded, &[]));
    assert_eq!(faults(&books(&[started(1)], done(), 2)), (0, 1));
    let both = [started(1), started(2), accepted(1, State::Succeeded, false), accepted(2, State::Succeeded, false)];
    assert_eq!(faults(&books(&both, done(), 1)), (0, 1));
}

#[test]
fn attempts_are_counted_by_how_they_went_wrong() {
    use FailureClass::{Error, Stalled, Timeout};
    let succeeded = audit(&books(&[started(3)], Some(record(State::Succeeded, &[Error, Timeout, Stalled])), 1));
    assert_eq!((succeeded.retried, succeeded.timed_out, succeeded.reaped), (2, 1, 1));
    let dead = audit(&books(&[started(2)], Some(record(State::Failed, &[Stalled, Error])), 0));
    assert_eq!((dead.retried, dead.reaped, dead.failed), (0, 1, 1), "the last one was not tried again");
    let stalled = audit(&books(&[started(2)], Some(record(State::Failed, &[Error, Stalled])), 0));
    assert_eq!((stalled.retried, stalled.reaped), (1, 1));
}

#[test]
fn jobs_of_others_are_not_counted() {
    let other = Record { id: JobId::from_parts(0, 2), state: State::Ready, failures: Vec::new() };
    let mut books = books(&[started(1)], Some(record(State::Succeeded, &[])), 1);
    books.records.push(other);
    assert_eq!((faults(&books), audit(&books).enqueued), ((0, 0), 1));
}

//! The attempts of a job that failed and were followed by another.

use super::RunUpdate;
use crate::text::rough_duration;
use std::collections::VecDeque;
use windlass::core::id::JobId;
use windlass::core::job::{self, FailureClass};
use windlass::core::time::Timestamp;

/// An attempt that failed and was not the last.
pub(super) struct Retry {
    failure: job::Failure,
    /// When the next attempt begins; `None` when it had begun before this was read.
    due_at: Option<Timestamp>,
}

/// The failed attempts of a job, each returned once.
#[derive(Default)]
pub(super) struct Retries {
    pending: VecDeque<Retry>,
    /// The last failure that was added.
    last: Option<(Timestamp, u32)>,
}

impl Retries {
    /// Adds those of the failures, oldest first, that are new. `again_at` is when the attempt after the last one begins.
    pub(super) fn add(&mut self, failures: &[job::Failure], again_at: Option<Timestamp>) {
        for (at, failure) in failures.iter().enumerate() {
            let key = Some((failure.at, failure.attempt));
            if key <= self.last {
                continue;
            }
            self.last = key;
            let due_at = again_at.filter(|_| at + 1 == failures.len());
            self.pending.push_back(Retry { failure: failure.clone(), due_at });
        }
    }

    /// The next failure that comes before a log line of this attempt.
    pub(super) fn before(&mut self, attempt: u32, at: Timestamp) -> Option<Retry> {
        let failure = &self.pending.front()?.failure;
        // A worker that vanishes does not use up the attempt; the next one has the same number.
        let given_back = failure.class == FailureClass::Stalled && failure.attempt == attempt && failure.at < at;
        if failure.attempt < attempt || given_back { self.next() } else { None }
    }

    /// The next failure.
    pub(super) fn next(&mut self) -> Option<Retry> {
        self.pending.pop_front()
    }
}

impl Retry {
    /// The update about it.
    pub(super) fn update<'a>(&'a self, label: &'a str, job: JobId) -> RunUpdate<'a> {
        RunUpdate::Retry { label, job, failure: &self.failure, due_at: self.due_at, text: self.text() }
    }

    fn text(&self) -> String {
        let job::Failure { class, message, attempt, at, .. } = &self.failure;
        let again = match self.due_at.filter(|due| due > at) {
            Some(due) => format!("again in {}", rough_duration(due.ms_since(*at))),
            None => "again".to_owned(),
        };
        match class {
            FailureClass::Stalled => format!("its worker vanished; {again}"),
            _ => {
                // The last log lines were passed on already.
                let why = message.lines().next().unwrap_or_default();
                let why = why.strip_suffix("; its last lines:").unwrap_or(why);
                format!("attempt {attempt} failed: {why}; {again}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(class: FailureClass, attempt: u32, at: i64) -> job::Failure {
        job::Failure { class, message: "no luck\nat all".to_owned(), attempt, at: Timestamp::from_ms(at), detail: None }
    }

    #[test]
    fn each_failure_is_returned_once_and_before_the_lines_of_the_next_attempt() {
        let (mut retries, at) = (Retries::default(), Timestamp::from_ms);
        let words = |retry: Option<Retry>| retry.map(|retry| retry.text());
        let all = [failure(FailureClass::Error, 1, 10), failure(FailureClass::Stalled, 2, 20)];
        retries.add(&all[..1], Some(at(1_010)));
        // Clocks differ: lines of the first attempt come before its end, whatever their times are.
        assert_eq!(words(retries.before(1, at(99))), None);
        assert_eq!(words(retries.before(2, at(5))).unwrap(), "attempt 1 failed: no luck; again in 1s");
        retries.add(&all, None);
        assert_eq!(words(retries.before(2, at(15))), None, "logged before its worker vanished");
        assert_eq!(words(retries.before(2, at(25))).unwrap(), "its worker vanished; again");
        retries.add(&all, None);
        assert_eq!(words(retries.next()), None);
    }
}

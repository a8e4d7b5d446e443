//! What went wrong with a job that was tried again.

use super::Follower;
use crate::draw_graph::Mark;
use crate::failure::Failure;
use crate::values::about;
use serde_json::json;
use std::collections::VecDeque;
use windlass::core::id::JobId;
use windlass::core::job::{self, FailureClass};
use windlass::core::time::Timestamp;

/// An attempt that was not the last.
pub(super) struct Retry {
    failure: job::Failure,
    /// When the next one begins, if that was seen in time.
    due_at: Option<Timestamp>,
}

/// The attempts of a job that went wrong, each told once.
#[derive(Default)]
pub(super) struct Retries {
    untold: VecDeque<Retry>,
    /// The last one that is known.
    known: Option<(Timestamp, u32)>,
}

impl Retries {
    /// Of these, oldest first, those that are new. After the last one it is tried again at this time, if that is known.
    pub(super) fn learn(&mut self, failures: &[job::Failure], again_at: Option<Timestamp>) {
        for (at, failure) in failures.iter().enumerate() {
            let place = Some((failure.at, failure.attempt));
            if place <= self.known {
                continue;
            }
            self.known = place;
            let due_at = again_at.filter(|_| at + 1 == failures.len());
            self.untold.push_back(Retry { failure: failure.clone(), due_at });
        }
    }

    /// The next that comes before a line of this attempt.
    pub(super) fn before(&mut self, attempt: u32, at: Timestamp) -> Option<Retry> {
        let failure = &self.untold.front()?.failure;
        // A worker that vanishes does not use up the attempt; the next one has the same number.
        let given_back = failure.class == FailureClass::Stalled && failure.attempt == attempt && failure.at < at;
        if failure.attempt < attempt || given_back { self.next() } else { None }
    }

    pub(super) fn next(&mut self) -> Option<Retry> {
        self.untold.pop_front()
    }
}

impl Retry {
    fn words(&self) -> String {
        let job::Failure { class, message, attempt, at } = &self.failure;
        let again = match self.due_at.filter(|due| due > at) {
            Some(due) => format!("again in {}", about(due.ms_since(*at))),
            None => "again".to_owned(),
        };
        match class {
            FailureClass::Stalled => format!("its worker vanished; {again}"),
            _ => {
                // What it said last is there already.
                let why = message.lines().next().unwrap_or_default();
                let why = why.strip_suffix("; its last lines:").unwrap_or(why);
                format!("attempt {attempt} failed: {why}; {again}")
            }
        }
    }
}

impl Follower<'_> {
    pub(super) fn say_retry(&self, label: &str, job: JobId, retry: &Retry) -> Result<(), Failure> {
        if self.ui.json {
            let (failure, due_at) = (&retry.failure, retry.due_at);
            return self.ui.json(&json!({
                "retry": { "node": label, "job": job, "failure": failure, "due_at": due_at, "text": retry.words() }
            }));
        }
        self.say(Mark::Running, label, &retry.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(class: FailureClass, attempt: u32, at: i64) -> job::Failure {
        job::Failure { class, message: "no luck\nat all".to_owned(), attempt, at: Timestamp::from_ms(at) }
    }

    #[test]
    fn each_is_told_once_and_before_the_lines_of_the_next_attempt() {
        let (mut retries, at) = (Retries::default(), Timestamp::from_ms);
        let words = |retry: Option<Retry>| retry.map(|retry| retry.words());
        let all = [failure(FailureClass::Error, 1, 10), failure(FailureClass::Stalled, 2, 20)];
        retries.learn(&all[..1], Some(at(1_010)));
        // Clocks differ: what the first attempt says stands before its end, whenever that was.
        assert_eq!(words(retries.before(1, at(99))), None);
        assert_eq!(words(retries.before(2, at(5))).unwrap(), "attempt 1 failed: no luck; again in 1s");
        retries.learn(&all, None);
        assert_eq!(words(retries.before(2, at(15))), None, "said before its worker vanished");
        assert_eq!(words(retries.before(2, at(25))).unwrap(), "its worker vanished; again");
        retries.learn(&all, None);
        assert_eq!(words(retries.next()), None);
    }
}

//! What a test of a workflow returns.

use super::simulation::CallMade;
use super::verify::Observed;
use crate::durable::RunFailure;
use crate::job::Job;
use serde::de::DeserializeOwned;
use std::fmt;
use std::time::Duration;
use windlass_core::store::RunState;
use windlass_durable::{End, Running, Wf, Workflow, kind_of};

/// How a workflow under test stopped, and what it did.
pub struct WorkflowRun<T> {
    /// The result of the workflow; of a workflow that has not ended, what it waits for.
    pub result: T,
    /// How much virtual time has passed.
    pub elapsed: Duration,
    /// After how many prefixes of the history the process was ended and the workflow was executed again; 0 without
    /// [`crash_everywhere`](super::WorkflowTest::crash_everywhere).
    pub crashes: u64,
    /// How many other orders of simultaneous events were tried; 0 when there were no simultaneous events.
    pub orders: u64,
    /// Signals and requests to cancel whose time did not come, in words.
    pub undelivered: Vec<String>,
    history: String,
    calls: Vec<CallMade>,
}

/// What a workflow waits for that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Each operation in words, with its place in the source; at most 20. In the pause between two attempts of the workflow, the next
    /// attempt.
    pub for_what: Vec<String>,
}

impl<T> WorkflowRun<T> {
    pub(super) fn new(result: T, observed: Observed) -> Self {
        let Observed { history, calls, elapsed_ms, undelivered, crashes, orders, .. } = observed;
        Self { result, elapsed: Duration::from_millis(elapsed_ms), crashes, orders, undelivered, history, calls }
    }

    /// The inputs of all calls of this type, in the order in which they were made, also of those that were cancelled later.
    ///
    /// # Panics
    ///
    /// When an input of this kind is not one of this type.
    pub fn calls<J: Job>(&self) -> Vec<J> {
        self.called(J::KIND).map(|call| self.decode(call)).collect()
    }

    /// When calls of this type were made, counted from the start.
    pub fn call_times<J: Job>(&self) -> Vec<Duration> {
        self.called(J::KIND).map(|call| Duration::from_millis(call.at_ms)).collect()
    }

    /// The inputs of all children of this workflow.
    ///
    /// # Panics
    ///
    /// When an input of this kind is not one of this type.
    pub fn children<W: Workflow>(&self, _workflow: impl FnOnce(Wf, W::Input) -> Running<W>) -> Vec<W::Input> {
        self.called(&kind_of::<W>()).map(|call| self.decode(call)).collect()
    }

    /// The inputs of all calls of a kind that is named at run time, and of child workflows (`name@version`).
    pub fn calls_of(&self, kind: &str) -> Vec<serde_json::Value> {
        self.called(kind).map(|call| self.decode(call)).collect()
    }

    /// Exactly so many calls of this type were made.
    ///
    /// # Panics
    ///
    /// When there are more or less. The message contains the history.
    #[track_caller]
    pub fn assert_calls<J: Job>(&self, times: usize) {
        let found = self.called(J::KIND).count();
        assert!(found == times, "`{}` was called {found} times, not {times}; history:\n{}", J::KIND, self.history);
    }

    /// A call of this type was made for which `is_it` holds.
    ///
    /// # Panics
    ///
    /// When there is none. The message contains the history.
    #[track_caller]
    pub fn assert_called<J: Job>(&self, is_it: impl Fn(&J) -> bool) {
        let found = self.calls::<J>().iter().any(is_it);
        let inputs: Vec<_> = self.called(J::KIND).map(|call| String::from_utf8_lossy(&call.input)).collect();
        assert!(
            found,
            "no call of `{}` is as it should be; its inputs were [{}]; history:\n{}",
            J::KIND,
            inputs.join(", "),
            self.history
        );
    }

    /// The history in readable lines, with the histories of children whose code ran.
    pub fn history(&self) -> &str {
        &self.history
    }

    fn called<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a CallMade> {
        self.calls.iter().filter(move |call| call.kind == kind)
    }

    #[expect(clippy::panic, reason = "a failed check of a test is a panic")]
    fn decode<I: DeserializeOwned>(&self, call: &CallMade) -> I {
        match serde_json::from_slice(&call.input) {
            Ok(input) => input,
            Err(error) => panic!("an input of `{}` is of another type: {error}; history:\n{}", call.kind, self.history),
        }
    }
}

impl<O> WorkflowRun<Result<O, RunFailure>> {
    /// The value that the workflow returned.
    ///
    /// # Panics
    ///
    /// When the workflow did not succeed. The message contains the history.
    #[track_caller]
    #[expect(clippy::panic, reason = "a failed check of a test is a panic")]
    pub fn output(self) -> O {
        match self.result {
            Ok(output) => output,
            Err(failure) => panic!("{failure}; history:\n{}", self.history),
        }
    }

    /// How the workflow failed.
    ///
    /// # Panics
    ///
    /// When the workflow succeeded. The message contains the history.
    #[track_caller]
    #[expect(clippy::panic, reason = "a failed check of a test is a panic")]
    pub fn failure(&self) -> &RunFailure {
        match &self.result {
            Ok(_) => panic!("the workflow succeeded; history:\n{}", self.history),
            Err(failure) => failure,
        }
    }
}

/// The result of a run that has ended.
pub(super) fn result_of<O: DeserializeOwned>(end: &End) -> Result<Result<O, RunFailure>, String> {
    let failed = |state, message: &String| Ok(Err(RunFailure { state, message: message.clone() }));
    match end {
        End::Ok(value) => value.read().map(Ok).map_err(|error| format!("the result does not decode: {error}")),
        End::Failed(message) => failed(RunState::Failed, message),
        End::Cancelled(message) => failed(RunState::Cancelled, message),
        End::TimedOut(message) => failed(RunState::TimedOut, message),
        other => Err(format!("the run ended as {}", other.name())),
    }
}

impl<T: fmt::Debug> fmt::Debug for WorkflowRun<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkflowRun({:?} after {:?})\n{}", self.result, self.elapsed, self.history)
    }
}

//! The builder of a test.

use super::super::bed::BEGIN;
use super::attempts::without_jitter;
use super::ended::{Waiting, WorkflowRun, result_of};
use super::host::run_there;
use super::mock::{Mock, Mocks, Outside, StepMock, json, signal_item};
use super::simulation::{Setup, Stop};
use super::verify::{Checks, Observed, execute};
use crate::durable::RunFailure;
use crate::error::JobError;
use crate::job::Job;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use windlass_core::retry::RetryPolicy;
use windlass_core::time::Timestamp;
use windlass_durable::{
    AnyWorkflow, BoxError, CallError, ItemBody, RunRetry, Running, Signal, Span, Wf, Workflow, kind_of, typed,
};

/// How many other orders of simultaneous events are tried.
const ORDERS: u64 = 20;

/// A test of a durable workflow in virtual time: no store, no worker, no waiting.
///
/// Jobs and children are mocked, signals come at virtual times, and local steps run or are mocked. By default the code is
/// replayed after every turn (*shadow replay*), and simultaneous events are tried in 20 other orders. A mock is called once for
/// each attempt of a call, however often the code is executed.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// use windlass::Job;
/// use windlass::durable::{Error, Wf, workflow};
/// use windlass::testing::WorkflowTest;
///
/// #[derive(Serialize, Deserialize, Job)]
/// struct Remind { user: u64 }
///
/// #[workflow]
/// async fn reminder(wf: Wf, user: u64) -> Result<(), Error> {
///     wf.sleep("30d").await?;
///     Ok(wf.call(Remind { user }).await?)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// // In a test: #[tokio::test] async fn a_user_is_reminded_after_30_days() {
/// let run = WorkflowTest::new().mock(|_: Remind| Ok(())).crash_everywhere().run(reminder, 7).await;
/// assert_eq!(run.result, Ok(()));
/// assert_eq!(run.elapsed.as_secs(), 30 * 24 * 3_600);
/// run.assert_called::<Remind>(|job| job.user == 7);
/// # }
/// ```
#[must_use = "a test does nothing until it is run"]
pub struct WorkflowTest {
    mocks: Mocks,
    last: Last,
    workflows: HashMap<String, Arc<dyn AnyWorkflow>>,
    items: Vec<(u64, ItemBody)>,
    begin: Timestamp,
    retry: RunRetry,
    checks: Checks,
}

/// The mock that was added last.
enum Last {
    None,
    Job(String),
    Workflow(String),
    Step(String),
}

impl Default for WorkflowTest {
    fn default() -> Self {
        Self::new()
    }
}

/// Mocks.
impl WorkflowTest {
    /// A test without mocks that begins at midnight (UTC) of 2026-01-01.
    pub fn new() -> Self {
        let checks =
            Checks { seed: 1, shadows: true, pokes: false, orders: ORDERS, order_matters: false, crashes: false };
        Self {
            mocks: Mocks::new(),
            last: Last::None,
            workflows: HashMap::new(),
            items: Vec::new(),
            begin: BEGIN,
            retry: RunRetry::default(),
            checks,
        }
    }

    fn add_job(mut self, kind: String, mock: Mock) -> Self {
        self.last = Last::Job(kind.clone());
        self.mocks.jobs.insert(kind, mock);
        self
    }

    /// Mocks a job. Each attempt calls the closure, with the attempts, the pauses and the timeouts that the call asks for; a
    /// [`JobError::fatal`] is not tried again. A worker claims the job at once, and an attempt takes no time; see
    /// [`claimed_after`](Self::claimed_after) and [`takes`](Self::takes).
    pub fn mock<J: Job>(self, mut answer: impl FnMut(J) -> Result<J::Output, JobError> + Send + 'static) -> Self {
        self.add_job(J::KIND.to_owned(), Mock::of_job::<J>(move |job, _| (None, answer(job))))
    }

    /// Mocks a job by a closure that can also send signals and resolve promises.
    pub fn mock_with<J: Job>(
        self,
        mut answer: impl FnMut(J, &mut Outside) -> Result<J::Output, JobError> + Send + 'static,
    ) -> Self {
        self.add_job(J::KIND.to_owned(), Mock::of_job::<J>(move |job, outside| (None, answer(job, outside))))
    }

    /// Mocks a job whose attempts take different times: the closure returns how long this attempt takes, and its result.
    pub fn mock_timed<J: Job, S: Span>(
        self,
        mut answer: impl FnMut(J) -> (S, Result<J::Output, JobError>) + Send + 'static,
    ) -> Self {
        let answer = move |job, _: &mut Outside| {
            let (time, result) = answer(job);
            (Some(time.to_ms()), result)
        };
        self.add_job(J::KIND.to_owned(), Mock::of_job::<J>(answer))
    }

    /// Lets all calls of a job end with this error, without further attempts.
    pub fn mock_error<J: Job>(self, error: CallError) -> Self {
        self.add_job(J::KIND.to_owned(), Mock::of_error(error))
    }

    /// Lets no worker ever claim jobs of this type. A call ends when its `schedule_to_start` or its `schedule_to_close` passes, or when
    /// it is cancelled.
    pub fn mock_unclaimed<J: Job>(self) -> Self {
        self.add_job(J::KIND.to_owned(), Mock::unclaimed())
    }

    /// Mocks a job of a kind that is named at run time.
    pub fn mock_kind(
        self,
        kind: impl Into<String>,
        answer: impl FnMut(serde_json::Value) -> Result<serde_json::Value, JobError> + Send + 'static,
    ) -> Self {
        let kind = kind.into();
        self.add_job(kind.clone(), Mock::of_kind(kind, answer))
    }

    /// Sets how much virtual time the last mock takes: an attempt of a job, a child, or a local step. An attempt that takes longer than the
    /// timeout of its call times out.
    ///
    /// # Panics
    ///
    /// Before the first mock, and on text that is not a duration.
    #[expect(clippy::panic, reason = "a mistake in a test is a panic")]
    #[track_caller]
    pub fn takes(mut self, time: impl Span) -> Self {
        let (mocks, ms) = (&mut self.mocks, time.to_ms());
        let takes_ms = match &self.last {
            Last::Job(kind) => mocks.jobs.get_mut(kind).map(|mock| &mut mock.takes_ms),
            Last::Workflow(kind) => mocks.workflows.get_mut(kind).map(|mock| &mut mock.takes_ms),
            Last::Step(name) => mocks.steps.get_mut(name).map(|mock| &mut mock.takes_ms),
            Last::None => None,
        };
        match takes_ms {
            Some(takes_ms) => *takes_ms = ms,
            None => panic!("`takes` follows the mock that it is about"),
        }
        self
    }

    /// Sets how much virtual time a job of the last mock waits until a worker claims it for its first attempt, counted from the call
    /// and its delay. If its `schedule_to_start` passes before, the job never starts.
    ///
    /// # Panics
    ///
    /// When the last mock is not one of a job, and on text that is not a duration.
    #[expect(clippy::panic, reason = "a mistake in a test is a panic")]
    #[track_caller]
    pub fn claimed_after(mut self, time: impl Span) -> Self {
        let ms = time.to_ms();
        let mock = match &self.last {
            Last::Job(kind) => self.mocks.jobs.get_mut(kind),
            _ => None,
        };
        match mock {
            Some(mock) => mock.claimed_after_ms = Some(ms),
            None => panic!("`claimed_after` follows the mock of a job"),
        }
        self
    }

    /// Runs the code of a child workflow, or of the workflow as which a run continues. The code of the workflow under test needs
    /// no registration.
    pub fn workflow<W: Workflow>(self, workflow: impl FnOnce(Wf, W::Input) -> Running<W>) -> Self {
        self.any_workflow(typed(workflow))
    }

    /// The same for a workflow without types.
    pub fn any_workflow(mut self, workflow: Arc<dyn AnyWorkflow>) -> Self {
        self.workflows.insert(workflow.kind().into_owned(), workflow);
        self
    }

    /// Mocks a child workflow. Each attempt of the child calls the closure, with the attempts and the pauses that its parent asks for.
    pub fn mock_workflow<W: Workflow>(
        mut self,
        _workflow: impl FnOnce(Wf, W::Input) -> Running<W>,
        mut answer: impl FnMut(W::Input) -> Result<W::Output, W::Error> + Send + 'static,
    ) -> Self {
        let kind = kind_of::<W>();
        let text = |error: W::Error| {
            let error: BoxError = error.into();
            error.to_string()
        };
        let mock = Mock::of_workflow(kind.clone(), move |input| answer(input).map_err(text));
        self.last = Last::Workflow(kind.clone());
        self.mocks.workflows.insert(kind, mock);
        self
    }

    /// Mocks the local steps of this name. Other local steps are executed on the tokio runtime of the test.
    pub fn mock_step<T: Serialize>(
        mut self,
        name: impl Into<String>,
        mut answer: impl FnMut() -> Result<T, String> + Send + 'static,
    ) -> Self {
        let name = name.into();
        self.last = Last::Step(name.clone());
        let mock = move || answer().map(|value| json("the result of a step", &value)).map_err(CallError::failed);
        self.mocks.steps.insert(name, StepMock { answer: Box::new(mock), takes_ms: 0 });
        self
    }
}

/// Messages and time.
impl WorkflowTest {
    fn item_at(mut self, after_ms: u64, body: ItemBody) -> Self {
        self.items.push((after_ms, body));
        self
    }

    /// Sends a signal to the workflow at this time, counted from the start.
    ///
    /// # Panics
    ///
    /// On text that is not a duration, and when JSON cannot hold the signal.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a signal is handed over, as it is to a run")]
    pub fn signal_at<S: Signal>(self, time: impl Span, signal: S) -> Self {
        self.item_at(time.to_ms(), signal_item(&signal))
    }

    /// Sends a signal by its name.
    ///
    /// # Panics
    ///
    /// Like [`signal_at`](Self::signal_at).
    #[track_caller]
    pub fn signal_named_at<T: Serialize + ?Sized>(self, time: impl Span, name: &str, body: &T) -> Self {
        let body = ItemBody::Signal { name: name.to_owned(), body: json("a signal", body), id: String::new() };
        self.item_at(time.to_ms(), body)
    }

    /// Asks the workflow to cancel at this time.
    ///
    /// # Panics
    ///
    /// On text that is not a duration.
    #[track_caller]
    pub fn cancel_at(self, time: impl Span, reason: impl Into<String>) -> Self {
        self.item_at(time.to_ms(), ItemBody::CancelRequested { reason: reason.into() })
    }

    /// Sets the timeout of the run, over all attempts.
    ///
    /// # Panics
    ///
    /// On text that is not a duration.
    #[track_caller]
    pub fn timeout(self, time: impl Span) -> Self {
        self.item_at(time.to_ms(), ItemBody::TimedOut)
    }

    /// Sets how often the code of the workflow may be tried; once by default. See [`Start::attempts`](crate::durable::Start::attempts).
    /// The pauses between attempts have no jitter.
    ///
    /// # Panics
    ///
    /// On a number that a start refuses.
    #[track_caller]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.retry.attempts = Some(attempts);
        self.with_checked_retry()
    }

    /// Sets how long to wait between the attempts of the workflow; by default 1 s, doubling up to 1 h. It sets three attempts unless
    /// [`attempts`](Self::attempts) sets another number.
    ///
    /// # Panics
    ///
    /// On a policy that a start refuses.
    #[track_caller]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry.policy = Some(policy);
        self.with_checked_retry()
    }

    #[expect(clippy::panic, reason = "a mistake in a test is a panic")]
    #[track_caller]
    fn with_checked_retry(self) -> Self {
        match self.retry.check() {
            Ok(()) => self,
            Err(error) => panic!("{error}"),
        }
    }

    /// Sets the time of the start.
    pub fn starting_at(mut self, time: Timestamp) -> Self {
        self.begin = time;
        self
    }
}

/// Checks.
impl WorkflowTest {
    /// Sets the seed of `wf.random()`, of `wf.uuid()` and of the orders of simultaneous events. It is 1 by default.
    pub fn seed(mut self, seed: u64) -> Self {
        self.checks.seed = seed;
        self
    }

    /// Polls the code needlessly after every turn. That must change nothing.
    pub fn poke(mut self) -> Self {
        self.checks.pokes = true;
        self
    }

    /// Ends the process behind every record and executes the rest once more. The result must be the same, and without local steps
    /// also the history. A local step whose end is not recorded is executed again, as after a real crash.
    pub fn crash_everywhere(mut self) -> Self {
        self.checks.crashes = true;
        self
    }

    /// Does not replay the code.
    pub fn without_shadow_replay(mut self) -> Self {
        self.checks.shadows = false;
        self
    }

    /// Sets how many other orders of simultaneous events are tried. It is 20 by default; 0 tries none.
    pub fn orders(mut self, orders: u64) -> Self {
        self.checks.orders = orders;
        self
    }

    /// Allows the result to depend on the order of simultaneous events. The code must not get stuck in any order all the same.
    pub fn order_matters(mut self) -> Self {
        self.checks.order_matters = true;
        self
    }
}

/// Execution.
impl WorkflowTest {
    /// Runs the workflow to its end.
    ///
    /// # Panics
    ///
    /// When a check fails, when something has no mock, and when the workflow waits for something that never comes. The message has
    /// the seed, the history, and what to do.
    #[expect(clippy::panic, reason = "a failed check of a test is a panic")]
    pub async fn run<W: Workflow>(
        self,
        workflow: impl FnOnce(Wf, W::Input) -> Running<W>,
        input: W::Input,
    ) -> WorkflowRun<Result<W::Output, RunFailure>> {
        let seed = self.checks.seed;
        let observed = self.execute(typed(workflow), json("the input", &input), None).await;
        let Stop::Ended(end) = &observed.stop else {
            let Observed { waits_for, history, .. } = observed;
            let waits_for = waits_for.join(", ");
            panic!(
                "workflow `{}` waits for {waits_for}, and nothing will happen any more (seed {seed}): add what it waits for, such as \
                 `.signal_at(\"1h\", ..)`, or call `run_until_waiting`\nhistory:\n{history}",
                kind_of::<W>()
            );
        };
        match result_of::<W::Output>(end) {
            Ok(result) => WorkflowRun::new(result, observed),
            Err(error) => panic!("workflow `{}`: {error}\nhistory:\n{}", kind_of::<W>(), observed.history),
        }
    }

    /// Runs the workflow until it waits and nothing will happen any more.
    ///
    /// # Panics
    ///
    /// Like [`run`](Self::run), and when the workflow ends.
    pub async fn run_until_waiting<W: Workflow>(
        self,
        workflow: impl FnOnce(Wf, W::Input) -> Running<W>,
        input: W::Input,
    ) -> WorkflowRun<Waiting> {
        let observed = self.execute(typed(workflow), json("the input", &input), None).await;
        Self::waiting(observed)
    }

    /// Runs the workflow for so long by the virtual clock.
    ///
    /// # Panics
    ///
    /// Like [`run`](Self::run), and when the workflow ends before.
    pub async fn run_for<W: Workflow>(
        self,
        time: impl Span,
        workflow: impl FnOnce(Wf, W::Input) -> Running<W>,
        input: W::Input,
    ) -> WorkflowRun<Waiting> {
        let until_ms = Some(time.to_ms());
        let observed = self.execute(typed(workflow), json("the input", &input), until_ms).await;
        Self::waiting(observed)
    }

    #[expect(clippy::panic, reason = "a failed check of a test is a panic")]
    fn waiting(observed: Observed) -> WorkflowRun<Waiting> {
        match &observed.stop {
            Stop::Waiting => WorkflowRun::new(Waiting { for_what: observed.waits_for.clone() }, observed),
            Stop::Ended(end) => panic!(
                "the workflow {}; call `run` for its result\nhistory:\n{}",
                super::report::end_text(end),
                observed.history
            ),
        }
    }

    #[expect(clippy::panic, reason = "a failed check of a test is a panic")]
    async fn execute(
        self,
        workflow: Arc<dyn AnyWorkflow>,
        input: windlass_durable::Body,
        until_ms: Option<u64>,
    ) -> Observed {
        let Self { mocks, workflows, items, begin, retry, checks, .. } = self;
        let retry = without_jitter(&retry);
        let executed = run_there(checks.seed, move |host| {
            let (input, mocks) = (input.into_bytes(), Mutex::new(mocks));
            let setup = Setup { workflow, input, begin, retry, workflows, items, mocks, host, until_ms };
            execute(&Arc::new(setup), &checks)
        });
        match executed.await {
            Ok(observed) => observed,
            Err(failure) => panic!("{failure}"),
        }
    }
}

impl fmt::Debug for WorkflowTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowTest").field("checks", &self.checks).finish_non_exhaustive()
    }
}

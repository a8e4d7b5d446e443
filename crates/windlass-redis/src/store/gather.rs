//! Gathers small enqueues that come at the same time into one call: a script costs the server much more than a job does.
//!
//! An enqueue that comes while no call is under way is sent at once. Those that come meanwhile are sent together when the call is
//! back. A call is made by a task of its own, on the link's thread: a caller that gives up, or whose runtime ends, must not take
//! the others along. A task that ends before its time (a panic, the end of the link) is not counted any more, and those whom no
//! task is left to serve are answered. A caller waits for its turn for as long as one call may take; a call has its own limits.

use super::caller::Caller;
use super::enqueue::{enqueue_piece, piece_of};
use crate::error::{unavailable, unknown};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;
use windlass_core::engine::Prepared;
use windlass_core::store::Enqueued;
use windlass_core::{Error, Result};

/// Calls under way at once: while one is on its way back, the other is at work.
const UNDER_WAY_MAX: usize = 2;

type Answers = Result<Vec<Result<Enqueued>>>;

/// One caller's jobs.
struct Waiting {
    number: u64,
    jobs: Vec<Prepared>,
    answer: oneshot::Sender<Answers>,
}

#[derive(Default)]
struct State {
    under_way: usize,
    waiting: Vec<Waiting>,
    /// The number of the last caller.
    last: u64,
}

/// The enqueues of a store.
pub(super) struct Gathering {
    caller: Arc<Caller>,
    state: Arc<Mutex<State>>,
}

impl Gathering {
    pub(super) fn new(caller: Arc<Caller>) -> Self {
        Self { caller, state: Arc::default() }
    }

    /// Enqueues jobs, together with those of other callers that wait.
    pub(super) async fn enqueue(&self, jobs: Vec<Prepared>) -> Answers {
        let (answer, mut answered) = oneshot::channel();
        let (number, is_first) = {
            let mut state = self.state.lock();
            state.last += 1;
            let number = state.last;
            state.waiting.push(Waiting { number, jobs, answer });
            let is_first = state.under_way < UNDER_WAY_MAX;
            state.under_way += usize::from(is_first);
            (number, is_first)
        };
        if is_first {
            let sender = Sender { caller: Arc::clone(&self.caller), state: Arc::clone(&self.state), is_done: false };
            self.caller.link.spawn(sender.send_all());
        }
        let options = self.caller.options();
        let limit = options.connect_timeout + options.response_timeout;
        let answers = match self.caller.link.timeout(limit, &mut answered).await {
            Some(answers) => answers,
            None if self.give_up(number) => {
                let ms = limit.as_millis();
                return Err(unavailable(format!(
                    "the jobs could not be sent within {ms} ms: earlier calls are not answered"
                )));
            }
            // They were sent, and that call has limits of its own.
            None => answered.await,
        };
        answers.unwrap_or_else(|_| Err(unknown("the connection was closed during the call")))
    }

    /// Takes the jobs of a caller back; false when they were sent.
    fn give_up(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let before = state.waiting.len();
        state.waiting.retain(|waiting| waiting.number != number);
        state.waiting.len() < before
    }
}

/// A task that is counted in `under_way`.
struct Sender {
    caller: Arc<Caller>,
    state: Arc<Mutex<State>>,
    /// It has ended in order, and is not counted any more.
    is_done: bool,
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut state = self.state.lock();
        state.under_way -= 1;
        if state.under_way == 0 {
            // No task is left that would send them.
            state.waiting.clear();
        }
    }
}

impl Sender {
    /// Sends what waits until nothing does.
    async fn send_all(mut self) {
        loop {
            // Those who have just got their answers come again at once, and can come along.
            tokio::task::yield_now().await;
            let group = {
                let mut state = self.state.lock();
                if state.waiting.is_empty() {
                    // Under the same lock, so that nobody relies on a task that ends.
                    state.under_way -= 1;
                    self.is_done = true;
                    return;
                }
                let count = fitting(&state.waiting);
                state.waiting.drain(..count).collect::<Vec<_>>()
            };
            self.send(group).await;
        }
    }

    /// Sends the jobs of some callers. When the server refuses the call because something is damaged, each caller's jobs are sent
    /// in a call of their own: the damage may concern one of them alone.
    async fn send(&self, group: Vec<Waiting>) {
        let jobs: Vec<&Prepared> = group.iter().flat_map(|waiting| &waiting.jobs).collect();
        match enqueue_piece(&self.caller, &jobs, false).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for Waiting { jobs, answer, .. } in group {
                    // One who has given up does not listen.
                    drop(answer.send(Ok(answers.by_ref().take(jobs.len()).collect())));
                }
            }
            Err(Error::Corrupt { .. }) if group.len() > 1 => {
                for Waiting { jobs, answer, .. } in group {
                    let jobs: Vec<&Prepared> = jobs.iter().collect();
                    drop(answer.send(enqueue_piece(&self.caller, &jobs, false).await));
                }
            }
            Err(error) => group.into_iter().for_each(|waiting| drop(waiting.answer.send(Err(error.clone())))),
        }
    }
}

/// How many callers fit into one script, at least one.
fn fitting(waiting: &[Waiting]) -> usize {
    let jobs: Vec<&Prepared> = waiting.iter().flat_map(|waiting| &waiting.jobs).collect();
    let most = piece_of(&jobs);
    let mut sum = 0;
    let fits = |waiting: &&Waiting| {
        sum += waiting.jobs.len();
        sum <= most
    };
    waiting.iter().take_while(fits).count().max(1)
}

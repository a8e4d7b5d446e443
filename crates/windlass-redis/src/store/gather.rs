//! Gathers small enqueues that come at the same time into one call: a script costs the server much more than a job does.
//!
//! Whoever comes while no call is under way goes at once, so that nobody waits for company. Those who come meanwhile go
//! together when it is back. A call is made by a task of its own: a caller that gives up must not take the others along.

use super::caller::Caller;
use super::enqueue::{Prepared, enqueue_piece, piece_of};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;
use windlass_core::store::Enqueued;
use windlass_core::{Error, Result};

/// Calls under way at once: while one is on its way back, the other is at work.
const UNDER_WAY_MAX: usize = 2;

type Answers = Result<Vec<Result<Enqueued>>>;

/// One caller's jobs.
struct Waiting {
    jobs: Vec<Prepared>,
    answer: oneshot::Sender<Answers>,
}

#[derive(Default)]
struct State {
    under_way: usize,
    waiting: Vec<Waiting>,
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

    /// Enqueues jobs, together with those of others who are here.
    #[expect(clippy::disallowed_methods, reason = "it ends when nobody waits any more")]
    pub(super) async fn enqueue(&self, jobs: Vec<Prepared>) -> Answers {
        let (answer, answered) = oneshot::channel();
        let first = {
            let mut state = self.state.lock();
            state.waiting.push(Waiting { jobs, answer });
            let first = state.under_way < UNDER_WAY_MAX;
            state.under_way += usize::from(first);
            first
        };
        if first {
            tokio::spawn(send_all(Arc::clone(&self.caller), Arc::clone(&self.state)));
        }
        let gone = || Error::Unknown { reason: "the runtime ended during the call".to_owned() };
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Sends what waits until nothing does.
async fn send_all(caller: Arc<Caller>, state: Arc<Mutex<State>>) {
    loop {
        // Those who have just got their answers come again at once, and can come along.
        tokio::task::yield_now().await;
        let group = {
            let mut state = state.lock();
            if state.waiting.is_empty() {
                state.under_way -= 1;
                return;
            }
            let count = fitting(&state.waiting);
            state.waiting.drain(..count).collect::<Vec<_>>()
        };
        let jobs: Vec<&Prepared> = group.iter().flat_map(|waiting| &waiting.jobs).collect();
        let answers = enqueue_piece(&caller, &jobs, false).await;
        match answers {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for Waiting { jobs, answer } in group {
                    // One who has given up does not listen.
                    drop(answer.send(Ok(answers.by_ref().take(jobs.len()).collect())));
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

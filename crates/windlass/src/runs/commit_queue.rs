//! Commits of several decisions that are made at the same time: those that come while one call to the store is under way go
//! together in the next one, so that the busier an engine is, the fewer calls a run costs.
//!
//! The calls are made in a task of their own. A decision that is dropped while it waits drops its answer and nothing else.

use super::retry::retried;
use crate::repeat::{PAUSE, TRIES};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;
use windlass_core::store::{RunCommit, RunCommitted, Store};
use windlass_core::{Error, Result};

/// The most commits of one call.
const COMMITS_MAX: usize = 256;
/// The most jobs and runs that the commits of one call start together. One commit may start more.
const STARTS_MAX: usize = 1_000;

/// Makes commits in one call. Those whose answer got lost are repeated as they were.
pub(super) async fn commit_all(store: &dyn Store, commits: &[RunCommit]) -> Result<Vec<Result<RunCommitted>>> {
    if commits.is_empty() {
        return Ok(Vec::new());
    }
    retried(|| store.commit_runs(commits.to_vec())).await
}

/// A commit with its answer, or the error of the whole call.
type Answered = Result<(RunCommit, Result<RunCommitted>)>;

struct Waiting {
    commit: RunCommit,
    answer: oneshot::Sender<Answered>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// A task makes the calls.
    is_served: bool,
}

/// The commits that wait for the next call.
pub(super) struct CommitQueue {
    store: Arc<dyn Store>,
    queue: Mutex<Queue>,
}

impl CommitQueue {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, queue: Mutex::default() }
    }

    /// Makes a commit. It is repeated while it alone fails with a retryable error.
    pub(super) async fn commit(this: &Arc<Self>, mut commit: RunCommit) -> Result<RunCommitted> {
        let mut number = 1;
        loop {
            let answer;
            (commit, answer) = Self::commit_once(this, commit).await?;
            match answer {
                Err(error) if error.is_retryable() && number < TRIES => tokio::time::sleep(PAUSE * number).await,
                answer => return answer,
            }
            number += 1;
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the task ends by itself when no commit waits")]
    async fn commit_once(this: &Arc<Self>, commit: RunCommit) -> Answered {
        let (sender, answer) = oneshot::channel();
        let starts = {
            let mut queue = this.queue.lock();
            queue.waiting.push(Waiting { commit, answer: sender });
            !std::mem::replace(&mut queue.is_served, true)
        };
        if starts {
            tokio::spawn(Arc::clone(this).serve());
        }
        answer.await.unwrap_or_else(|_| Err(Error::Unknown { reason: "the commit was not answered".to_owned() }))
    }

    /// Makes calls until no commit waits.
    async fn serve(self: Arc<Self>) {
        loop {
            // Decisions that were woken by the last answers commit before the next call.
            tokio::task::yield_now().await;
            let some = self.next();
            if some.is_empty() {
                return;
            }
            let (commits, senders): (Vec<_>, Vec<_>) =
                some.into_iter().map(|waiting| (waiting.commit, waiting.answer)).unzip();
            // A decision that was dropped waits for no answer.
            match commit_all(self.store.as_ref(), &commits).await {
                Ok(answers) => {
                    let answers = commits.into_iter().zip(answers);
                    senders.into_iter().zip(answers).for_each(|(sender, answer)| drop(sender.send(Ok(answer))));
                }
                Err(error) => senders.into_iter().for_each(|sender| drop(sender.send(Err(error.clone())))),
            }
        }
    }

    /// The commits of the next call; none when the task ends.
    fn next(&self) -> Vec<Waiting> {
        let mut queue = self.queue.lock();
        let mut starts = 0;
        let fits = queue.waiting.iter().take(COMMITS_MAX).take_while(|waiting| {
            let is_first = starts == 0;
            starts += 1 + waiting.commit.step.jobs.len() + waiting.commit.step.runs.len();
            is_first || starts <= STARTS_MAX
        });
        let count = fits.count();
        queue.is_served = count > 0;
        queue.waiting.drain(..count).collect()
    }
}

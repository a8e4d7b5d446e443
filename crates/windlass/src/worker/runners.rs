//! Jobs that are to start, and the tasks that run them.
//!
//! A task for each job costs more than many a handler does, most of it for waking a thread that finds the work done. So a
//! few runners take the jobs one after the other. A runner whose handler has to wait becomes the task of that job, and
//! another takes its seat: a job never waits for another one's handler to be done waiting.
//!
//! There are as many seats as the runtime has threads, so that handlers which block their threads keep each other waiting
//! no more than tasks of their own would. What that leaves out is `block_in_place`, which blocks a runner and brings the
//! runtime another thread: the pump looks now and then whether jobs stand still, and adds a runner.

use super::Shared;
use super::execute::{Started, execute, execute_many};
use futures::FutureExt;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// A job that may start, or several that start together.
#[derive(Debug)]
pub(super) enum Start {
    One(Started),
    Many(Vec<Started>),
}

/// Jobs that may start, and who takes them.
#[derive(Debug)]
pub(crate) struct Runners {
    seats: usize,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    jobs: VecDeque<Start>,
    /// Runners that take jobs; those whose handler waits are not among them.
    taking: usize,
    /// Runners that were spawned and have had no thread yet.
    unbegun: usize,
    /// Jobs taken so far.
    taken: u64,
    /// The same when the pump last looked and jobs waited, and have gone on waiting since.
    seen: Option<u64>,
}

impl Runners {
    pub(super) fn new(runtime: &tokio::runtime::Handle) -> Self {
        Self { seats: runtime.metrics().num_workers().max(1), line: Mutex::default() }
    }

    /// True when jobs wait for a runner.
    pub(super) fn are_behind(&self) -> bool {
        !self.line.lock().jobs.is_empty()
    }

    /// Takes away what nobody has begun.
    pub(super) fn clear(&self) -> VecDeque<Start> {
        std::mem::take(&mut self.line.lock().jobs)
    }

    /// The next job; `None` when there is none, and the runner gives up its seat.
    fn take(&self, is_first: bool) -> Option<Start> {
        let mut line = self.line.lock();
        line.unbegun -= usize::from(is_first);
        match line.jobs.pop_front() {
            Some(start) => {
                line.taken += 1;
                Some(start)
            }
            None => {
                line.taking -= 1;
                line.seen = None;
                None
            }
        }
    }

    /// Takes a seat again, if there is one and a reason to.
    fn sit_down(&self) -> bool {
        let mut line = self.line.lock();
        let room = line.taking < self.seats && !line.jobs.is_empty();
        line.taking += usize::from(room);
        room
    }

    /// Gives the seat to somebody else; true when there is a reason to.
    fn stand_up(&self) -> bool {
        let mut line = self.line.lock();
        let wanted = !line.jobs.is_empty();
        line.taking -= usize::from(!wanted);
        line.unbegun += usize::from(wanted);
        wanted
    }
}

/// Starts jobs, in this order.
pub(super) fn start(shared: &Arc<Shared>, jobs: impl IntoIterator<Item = Start>) {
    let runners = {
        let mut line = shared.runners.line.lock();
        line.jobs.extend(jobs);
        let runners = line.jobs.len().min(shared.runners.seats.saturating_sub(line.taking));
        line.taking += runners;
        line.unbegun += runners;
        runners
    };
    for _ in 0..runners {
        spawn(shared);
    }
}

/// Adds a runner when no job was taken since the last look, although some wait. While one has no thread, another would have
/// none, either.
pub(super) fn look_after(shared: &Arc<Shared>) {
    let stuck = {
        let mut line = shared.runners.line.lock();
        let waiting = !line.jobs.is_empty();
        let stuck = waiting && line.unbegun == 0 && line.seen == Some(line.taken);
        line.seen = waiting.then_some(line.taken);
        line.taking += usize::from(stuck);
        line.unbegun += usize::from(stuck);
        stuck
    };
    if stuck {
        spawn(shared);
    }
}

fn spawn(shared: &Arc<Shared>) {
    drop(shared.runtime.spawn(run(Arc::clone(shared))));
}

/// Sits on a seat from the start.
async fn run(shared: Arc<Shared>) {
    let mut is_first = true;
    while let Some(start) = shared.runners.take(std::mem::take(&mut is_first)) {
        let mut running = std::pin::pin!(begin(Arc::clone(&shared), start));
        if std::future::poll_fn(|cx| std::task::Poll::Ready(running.poll_unpin(cx).is_pending())).await {
            if shared.runners.stand_up() {
                spawn(&shared);
            }
            running.await;
            if !shared.runners.sit_down() {
                return;
            }
        }
        // Others want the thread, too.
        tokio::task::consume_budget().await;
    }
}

async fn begin(shared: Arc<Shared>, start: Start) {
    match start {
        Start::One(started) => execute(shared, started).await,
        Start::Many(started) => execute_many(shared, started).await,
    }
}

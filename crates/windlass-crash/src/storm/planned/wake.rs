//! Real workers: idle ones whose wake-ups are timed. Their engines advance the runs of the load.

use crate::child::{open, pass_ms};
use crate::storm::bed::PREFIX;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use windlass::{Client, Job, JobError, Options, State, Stopper};
use windlass_core::time::{Clock, SystemClock, Timestamp};

/// Each has a queue and a store handle of its own.
const WORKERS: usize = 2;
/// How long a start is waited for.
const START_WITHIN: Duration = Duration::from_secs(40);
/// How long an enqueue is tried.
const ENQUEUE_MS_MAX: u64 = 40_000;
/// Starts that nobody has read yet: never more than the jobs of one measurement and their redeliveries.
const STARTS_MAX: usize = 64;

#[derive(Debug, Serialize, Deserialize)]
struct Wake {
    number: u64,
}

impl Job for Wake {
    const KIND: &'static str = "wake";
    type Output = ();
}

type Starts = mpsc::Sender<(u64, Timestamp)>;

async fn note_start(job: Wake, State(starts): State<Starts>) -> Result<(), JobError> {
    let _ = starts.try_send((job.number, SystemClock.now()));
    Ok(())
}

/// Idle workers, and a client that enqueues for them.
pub(super) struct IdleWorkers {
    client: Client,
    starts: mpsc::Receiver<(u64, Timestamp)>,
    stoppers: Vec<Stopper>,
    workers: JoinSet<windlass::Result<()>>,
    last: u64,
}

fn queue_name(at: usize) -> String {
    format!("wake-{at}")
}

impl IdleWorkers {
    pub(super) fn start(url: &str) -> Result<Self> {
        let (sender, starts) = mpsc::channel(STARTS_MAX);
        let (mut workers, mut stoppers) = (JoinSet::new(), Vec::new());
        for at in 0..WORKERS {
            let store = open(Path::new(PREFIX), Some(url))?;
            let builder = windlass::Worker::builder(store).id(format!("idle-{at}")).queue(queue_name(at));
            let worker = builder.state(sender.clone()).handle(note_start).build()?;
            stoppers.push(worker.stopper());
            workers.spawn(worker.run_until_stopped());
        }
        let client = Client::new(open(Path::new(PREFIX), Some(url))?);
        Ok(Self { client, starts, stoppers, workers, last: 0 })
    }

    /// The longest time from an acknowledged enqueue to the start of its handler, over all workers.
    pub(super) async fn wake_up_ms(&mut self) -> Result<u64> {
        let mut longest = 0;
        for at in 0..WORKERS {
            longest = longest.max(self.wake_up_one_ms(at).await?);
        }
        Ok(longest)
    }

    async fn wake_up_one_ms(&mut self, at: usize) -> Result<u64> {
        self.last += 1;
        let number = self.last;
        let enqueued_at = self.enqueue(number, at).await?;
        let started = async {
            loop {
                let (started, at) = self.starts.recv().await.ok_or("the idle workers have ended")?;
                if started == number {
                    return Ok::<_, Error>(at);
                }
            }
        };
        match tokio::time::timeout(START_WITHIN, started).await {
            Ok(started_at) => Ok(started_at?.ms_since(enqueued_at)),
            // The row shows it as what it is: longer than anybody should wait.
            Err(_) => Ok(SystemClock.now().ms_since(enqueued_at)),
        }
    }

    /// Enqueues until it is acknowledged; if that takes two tries, the first start counts. Returns when it was.
    async fn enqueue(&self, number: u64, at: usize) -> Result<Timestamp> {
        let end = SystemClock.now().plus_ms(ENQUEUE_MS_MAX);
        loop {
            let options = Options::new().queue(queue_name(at));
            match self.client.enqueue_with(Wake { number }, options).await {
                Ok(_) => return Ok(SystemClock.now()),
                Err(error) if error.is_retryable() && SystemClock.now() < end => pass_ms(10).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        self.stoppers.iter().for_each(Stopper::drain);
        while let Some(ended) = self.workers.join_next().await {
            ended??;
        }
        Ok(())
    }
}

//! Enqueueing, and waiting for what becomes of it.

use crate::job::{Job, Options, decode};
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::id::{Ids, JobId};
use windlass_core::job::{Failure, NewJob, State};
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::{BATCH_MAX, EnqueueRequest, Enqueued, Store, WaitFor};
use windlass_core::time::SystemClock;
use windlass_core::{Error, Result};

/// How long a wait goes without a look of its own, in case a wake-up gets lost.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How often an enqueue whose answer got lost is repeated.
const TRIES: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Enqueues jobs. Cheap to clone.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Client, Job, Options};
/// # #[derive(Serialize, Deserialize)]
/// # struct Welcome { to: String }
/// # impl Job for Welcome { const KIND: &'static str = "welcome"; type Output = (); }
/// # async fn example() -> windlass::Result<()> {
/// let client = Client::open("sqlite://jobs.db")?;
/// client.enqueue(Welcome { to: "ada@example.org".into() }).await?;
///
/// let later = Options::new().delay(std::time::Duration::from_secs(3600)).priority(5);
/// client.enqueue_with(Welcome { to: "bob@example.org".into() }, later).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    ids: Ids,
}

impl Client {
    /// Over a store that is open.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system()));
        Self { store, ids }
    }

    /// Over the store that a URL names.
    pub fn open(url: &str) -> Result<Self> {
        crate::open(url).map(Self::new)
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Enqueues a job. When this returns, the job is as safe as the store promises.
    pub async fn enqueue<J: Job>(&self, job: J) -> Result<Ticket<J>> {
        self.enqueue_with(job, Options::new()).await
    }

    /// Enqueues a job with options on top of its own.
    pub async fn enqueue_with<J: Job>(&self, job: J, options: Options) -> Result<Ticket<J>> {
        let job = self.prepare(&job, options)?;
        let mut answers = self.send(vec![job]).await?;
        let enqueued = answers.pop().unwrap_or_else(|| Err(no_answer()))?;
        Ok(self.ticket(enqueued))
    }

    /// Enqueues many jobs in as few steps as the contract allows. Each is answered for itself.
    pub async fn enqueue_all<J: Job>(&self, jobs: impl IntoIterator<Item = J>) -> Result<Vec<Result<Ticket<J>>>> {
        let jobs: Result<Vec<NewJob>> = jobs.into_iter().map(|job| self.prepare(&job, Options::new())).collect();
        let mut jobs = jobs?;
        let mut tickets = Vec::with_capacity(jobs.len());
        while !jobs.is_empty() {
            let rest = jobs.split_off(jobs.len().min(BATCH_MAX));
            let answers = self.send(std::mem::replace(&mut jobs, rest)).await?;
            tickets.extend(answers.into_iter().map(|answer| answer.map(|enqueued| self.ticket(enqueued))));
        }
        Ok(tickets)
    }

    fn prepare<J: Job>(&self, job: &J, options: Options) -> Result<NewJob> {
        let (spec, due) = options.or(job.options()).into_spec(J::QUEUE, J::KIND, Payload::json(job)?)?;
        Ok(NewJob::new(self.ids.next(), spec).due(due))
    }

    /// The ids are ours, so a call whose answer got lost may be repeated.
    async fn send(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Enqueued>>> {
        let request = EnqueueRequest::new(jobs);
        for n in 1..TRIES {
            match self.store.enqueue(request.clone()).await {
                Err(error) if error.is_outcome_unknown() => tokio::time::sleep(TRY_AGAIN * n).await,
                answer => return answer,
            }
        }
        self.store.enqueue(request).await
    }

    fn ticket<J: Job>(&self, enqueued: Enqueued) -> Ticket<J> {
        Ticket { client: self.clone(), enqueued, job: PhantomData }
    }

    /// Waits until a job has ended or is gone, for at most `time`.
    pub async fn wait<T: DeserializeOwned>(&self, id: JobId, time: Duration) -> Result<Waited<T>> {
        let look = async {
            loop {
                if let Some(waited) = self.look(id).await? {
                    return Ok(waited);
                }
                // Whatever comes of the wait, the next look tells.
                let _ = tokio::time::timeout(LOOK_AGAIN, self.store.wait(WaitFor::Job(id))).await;
            }
        };
        tokio::time::timeout(time, look).await.unwrap_or(Ok(Waited::TimedOut))
    }

    async fn look<T: DeserializeOwned>(&self, id: JobId) -> Result<Option<Waited<T>>> {
        let Some(job) = self.store.get(vec![id]).await?.pop().flatten() else {
            return Ok(Some(Waited::Gone));
        };
        Ok(match job.state {
            State::Scheduled | State::Ready | State::Active => None,
            State::Succeeded => Some(Waited::Succeeded(decode(&job.result.unwrap_or_default())?)),
            State::Failed => Some(Waited::Failed(job.failures.last().cloned())),
            State::Cancelled => Some(Waited::Cancelled),
        })
    }
}

fn no_answer() -> Error {
    Error::Unknown { reason: "the store answered for fewer jobs than it was given".to_owned() }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// A job that was enqueued.
#[derive(Debug)]
pub struct Ticket<J> {
    client: Client,
    enqueued: Enqueued,
    job: PhantomData<fn() -> J>,
}

impl<J: Job> Ticket<J> {
    /// The job that does the work: this one, or the one that stands for it.
    pub fn id(&self) -> JobId {
        self.enqueued.id()
    }

    /// What became of the enqueue.
    pub fn enqueued(&self) -> Enqueued {
        self.enqueued
    }

    /// Waits until the job has ended or is gone, for at most `time`. It never hangs.
    pub async fn wait(&self, time: Duration) -> Result<Waited<J::Output>> {
        self.client.wait(self.id(), time).await
    }
}

/// What a wait has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited<T> {
    /// The job succeeded, and its handler returned this.
    Succeeded(T),
    /// The job is dead; this is why, as far as it is known.
    Failed(Option<Failure>),
    /// It was cancelled.
    Cancelled,
    /// It is not there (any more).
    Gone,
    /// It has not ended in time. It may yet.
    TimedOut,
}

impl<T> Waited<T> {
    /// What the handler returned, if the job succeeded.
    pub fn success(self) -> Option<T> {
        match self {
            Self::Succeeded(value) => Some(value),
            Self::Failed(_) | Self::Cancelled | Self::Gone | Self::TimedOut => None,
        }
    }
}

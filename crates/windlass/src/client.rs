//! Enqueueing, and waiting for what becomes of it.

use crate::job::{Job, Names, Options, decode};
use crate::repeat::enqueue;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::id::{Ids, JobId};
use windlass_core::job::{Failure, NewJob, State};
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::{BATCH_MAX, Enqueued, Store, WaitFor};
use windlass_core::time::SystemClock;
use windlass_core::{Error, Result};

/// How long a wait goes without a look of its own, in case a wake-up gets lost.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

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
        Self::with(store, Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system())))
    }

    /// The same, with ids from elsewhere.
    pub(crate) fn with(store: Arc<dyn Store>, ids: Ids) -> Self {
        Self { store, ids }
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
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
        let mut answers = self.enqueue_new(vec![job]).await?;
        let enqueued = answers.pop().unwrap_or_else(|| Err(Error::too_few_answers()))?;
        Ok(self.ticket(enqueued))
    }

    /// Enqueues many jobs in as few steps as the contract allows, 10,000 at a time. Each is answered for itself. An error of
    /// the whole call means that none was enqueued, as when one of them cannot be sent at all; when the store goes away
    /// half-way, the jobs from there on are answered with its error.
    pub async fn enqueue_all<J: Job>(&self, jobs: impl IntoIterator<Item = J>) -> Result<Vec<Result<Ticket<J>>>> {
        let batches = self.prepare_all(jobs)?;
        let mut tickets = Vec::with_capacity(batches.iter().map(Vec::len).sum());
        let mut failed = None;
        for batch in batches {
            let jobs = batch.len();
            let sent = match &failed {
                None => self.enqueue_new(batch).await,
                Some(error) => Err(Error::clone(error)),
            };
            match sent {
                Ok(answers) => {
                    tickets.extend(answers.into_iter().map(|answer| answer.map(|enqueued| self.ticket(enqueued))));
                }
                // Nothing was enqueued before it; and nobody knows of its own jobs, whose ids are gone with the call.
                Err(error) if tickets.is_empty() => return Err(error),
                Err(error) => {
                    tickets.extend((0..jobs).map(|_| Err(error.clone())));
                    failed = Some(error);
                }
            }
        }
        Ok(tickets)
    }

    /// In batches from the start: to cut them off one long row would move the rest of it again and again.
    fn prepare_all<J: Job>(&self, jobs: impl IntoIterator<Item = J>) -> Result<Vec<Vec<NewJob>>> {
        let names = Names::of::<J>()?;
        let mut jobs = jobs.into_iter().peekable();
        let mut batches = Vec::new();
        while jobs.peek().is_some() {
            let mut batch = Vec::with_capacity(jobs.size_hint().0.min(BATCH_MAX));
            for job in jobs.by_ref().take(BATCH_MAX) {
                batch.push(self.prepare_as(&names, &job, Options::new())?);
            }
            batches.push(batch);
        }
        Ok(batches)
    }

    fn prepare<J: Job>(&self, job: &J, options: Options) -> Result<NewJob> {
        self.prepare_as(&Names::of::<J>()?, job, options)
    }

    fn prepare_as<J: Job>(&self, names: &Names, job: &J, options: Options) -> Result<NewJob> {
        let (mut spec, due) = options.or(job.options()).into_spec_of(names, Payload::json(job)?)?;
        spec.trace = spec.trace.or_else(crate::observe::current_trace);
        Ok(NewJob::new(self.ids.next(), spec).due(due))
    }

    /// Enqueues jobs that were made elsewhere, and returns an answer for each. A call whose answer was lost is repeated: a job
    /// carries its id, so it is enqueued once.
    pub async fn enqueue_new(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Enqueued>>> {
        enqueue(self.store.as_ref(), jobs).await
    }

    fn ticket<J: Job>(&self, enqueued: Enqueued) -> Ticket<J> {
        Ticket { client: self.clone(), enqueued, job: PhantomData }
    }

    /// Waits until a job has ended or is gone, for at most `time`. A store that is away for a while is waited for, too.
    pub async fn wait<T: DeserializeOwned>(&self, id: JobId, time: Duration) -> Result<Waited<T>> {
        let mut away = None;
        let look = async {
            loop {
                match self.look(id).await {
                    Ok(Some(waited)) => return Ok(waited),
                    Ok(None) => away = None,
                    Err(error) if error.is_retryable() => away = Some(error),
                    Err(error) => return Err(error),
                }
                let again = tokio::time::timeout(LOOK_AGAIN, self.store.wait(WaitFor::Job(id)));
                if let Ok(Err(_)) = again.await {
                    // It cannot say; the next look tells.
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
        };
        match tokio::time::timeout(time, look).await {
            Ok(waited) => waited,
            Err(_) => away.map_or(Ok(Waited::TimedOut), Err),
        }
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

opaque_debug!(Client);

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Task {
        n: usize,
        group: String,
    }

    impl Job for Task {
        const KIND: &'static str = "task";
        type Output = ();

        fn options(&self) -> Options {
            Options::new().group(&self.group)
        }
    }

    fn tasks(n: usize, group: impl Fn(usize) -> &'static str) -> impl Iterator<Item = Task> {
        (0..n).map(move |n| Task { n, group: group(n).to_owned() })
    }

    #[tokio::test]
    async fn many_jobs_are_answered_in_their_order_however_many_steps_it_takes() {
        let client = Client::open("memory://").unwrap();
        for n in [0, 1, BATCH_MAX, BATCH_MAX + 1, 2 * BATCH_MAX + 7] {
            let tickets = client.enqueue_all(tasks(n, |_| "a")).await.unwrap();
            let ids: Vec<JobId> = tickets.into_iter().map(|ticket| ticket.unwrap().id()).collect();
            assert_eq!(ids.len(), n);
            for at in [0, n / 2, n.saturating_sub(1)].into_iter().filter(|at| *at < n) {
                let job = client.store().get(vec![ids[at]]).await.unwrap().remove(0).unwrap();
                assert_eq!(job.spec.payload.to_json::<Task>().unwrap().n, at);
            }
        }
    }

    #[tokio::test]
    async fn when_one_of_many_cannot_be_sent_none_is() {
        let client = Client::open("memory://").unwrap();
        let last = BATCH_MAX + 5;
        let sent = client.enqueue_all(tasks(last + 1, |n| if n == last { "" } else { "a" })).await;
        assert!(matches!(sent, Err(Error::Invalid { .. })));
        assert!(client.store().queues().await.unwrap().is_empty());
    }
}

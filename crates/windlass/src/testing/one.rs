//! One handler, called directly: a unit test without a worker.

use super::TestBed;
use crate::context::{Ctx, World};
use crate::error::JobError;
use crate::handler::Handler;
use crate::job::{Job, Options, decode};
use crate::observe::Attempts;
use crate::worker::{Active, BootClock, LogCalls, Pool};
use futures::future::BoxFuture;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use windlass_core::id::Token;
use windlass_core::job::Lease;
use windlass_core::payload::Payload;
use windlass_core::store::ClaimedJob;
use windlass_core::time::Clock;

impl TestBed {
    /// Calls a handler with a job, and answers what it returns. Await it.
    ///
    /// The job goes through its stored form, as it would on its way to a worker; its store knows nothing of it, so there
    /// is no timeout and no retry, and a panic is the test's.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::testing::TestBed;
    /// # use windlass::{Ctx, Job, JobError, State};
    /// # #[derive(Serialize, Deserialize, Job)]
    /// # #[job(output = String)]
    /// # struct Welcome { to: String }
    /// struct Greeting { word: &'static str }
    ///
    /// async fn welcome(job: Welcome, greeting: State<Greeting>, ctx: Ctx) -> Result<String, JobError> {
    ///     Ok(format!("{}, {}, for the {} time", greeting.word, job.to, ctx.attempt()))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let test = TestBed::new();
    /// let job = Welcome { to: "ada".into() };
    /// let said = test.run_one(welcome, job).state(Greeting { word: "hello" }).attempt(2).await;
    /// assert_eq!(said.unwrap(), "hello, ada, for the 2 time");
    /// # }
    /// ```
    pub fn run_one<H, Args>(&self, handler: H, job: H::Job) -> RunOne<H, Args>
    where
        H: Handler<Args>,
    {
        RunOne { bed: self.clone(), handler, job, attempt: 1, state: HashMap::new(), args: PhantomData }
    }
}

/// A handler that is about to be called; see [`TestBed::run_one`].
#[must_use = "nothing happens until it is awaited"]
pub struct RunOne<H: Handler<Args>, Args> {
    bed: TestBed,
    handler: H,
    job: H::Job,
    attempt: u32,
    state: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    args: PhantomData<fn(Args)>,
}

impl<H: Handler<Args>, Args> RunOne<H, Args> {
    /// Something that the handler asks for as [`State<T>`](crate::State).
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(TypeId::of::<T>(), Arc::new(value));
        self
    }

    /// Which attempt it is; the first when not said.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt.max(1);
        self
    }

    fn context(&self) -> Result<Ctx, JobError> {
        let options = Options::new().or(self.job.options());
        let (spec, _) = options.into_spec(H::Job::QUEUE, H::Job::KIND, Payload::json(&self.job)?)?;
        let now = self.bed.clock.now();
        let id =
            windlass_core::id::Ids::new(Arc::clone(&self.bed.clock) as Arc<dyn Clock>, Arc::clone(&self.bed.random))
                .next();
        let lease = Lease { job: id, attempt: self.attempt, token: Token::from_bits(self.bed.random.next_u64()) };
        let expires_at = now.plus_ms(30_000);
        let spec = Arc::new(spec);
        let job =
            ClaimedJob { lease, expires_at, spec, stall_count: 0, retry_count: 0, created_at: now, ready_at: now };
        let (client, state) = (self.bed.client.clone(), self.state.clone());
        let clock = Arc::clone(&self.bed.clock) as Arc<dyn Clock>;
        let pool = Pool::in_place(tokio::runtime::Handle::current());
        let (lease_clock, attempts, log_calls) = (Arc::new(BootClock), Attempts::new(), LogCalls::default());
        let world = World { client, state, clock, lease_clock, attempts, log_calls, pool };
        Ok(Ctx {
            job: Arc::new(job),
            active: Arc::new(Active::new(lease, crate::worker::now())),
            world: Arc::new(world),
            call: None,
        })
    }
}

impl<H: Handler<Args>, Args: 'static> IntoFuture for RunOne<H, Args> {
    type Output = Result<<H::Job as Job>::Output, JobError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let ctx = self.context();
        let handler = self.handler;
        Box::pin(async move {
            let ctx = ctx?;
            let job = decode(&ctx.job.spec.payload)?;
            handler.handle(job, ctx).await
        })
    }
}

impl<H: Handler<Args>, Args> fmt::Debug for RunOne<H, Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOne").field("kind", &H::Job::KIND).finish_non_exhaustive()
    }
}

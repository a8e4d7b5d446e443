//! Requests and replies that get lost: the same call once more gives the same outcome, at every kind of call.

use crate::support::{assert_in_accord, claim, counts, done, enqueue, jobs, spec};
use std::net::{Ipv4Addr, SocketAddr};
use windlass_core::Error;
use windlass_core::job::State;
use windlass_core::name::ScheduleName;
use windlass_core::schedule::{Rule, Schedule};
use windlass_core::store::{
    Change, ChangeOp, ClaimedJob, EnqueueRequest, Enqueued, Fire, FireOutcome, JobQueue, RenewRequest, Renewal,
    ScheduleStore, Store,
};
use windlass_redis::RedisStore;
use windlass_servers::{Faults, Proxy, Redis};

/// Where the line breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Break {
    InsideRequest,
    BeforeReply,
    InsideReply,
    /// Nothing is heard any more, and the connection stays.
    Silence,
}

const BREAKS: [Break; 4] = [Break::InsideRequest, Break::BeforeReply, Break::InsideReply, Break::Silence];

/// A store behind a line that breaks.
struct Rig {
    _server: Redis,
    proxy: Proxy,
    url: String,
    store: RedisStore,
    /// The same store with a short timeout, for the call whose reply does not arrive.
    impatient: RedisStore,
}

impl Rig {
    fn new() -> Self {
        let server = Redis::start().unwrap();
        let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).unwrap();
        let open = |timeout_ms: u32| {
            RedisStore::open_url(&format!("redis://127.0.0.1:{}?timeout_ms={timeout_ms}", proxy.port())).unwrap()
        };
        let (store, impatient) = (open(30_000), open(150));
        Self { url: server.url(), _server: server, proxy, store, impatient }
    }

    fn faults(&self) -> &Faults {
        self.proxy.faults()
    }

    /// Makes the call while the line breaks, and then again and again: the second answer must be the third, but for the
    /// store's word that it knew already.
    async fn through<T: std::fmt::Debug>(
        &self,
        at: Break,
        call: impl AsyncFn(&RedisStore) -> Result<T, Error>,
    ) -> (T, T) {
        let first_store = if at == Break::Silence { &self.impatient } else { &self.store };
        prepared(first_store).await;
        match at {
            Break::InsideRequest => self.faults().cut_after_bytes_to_server(100),
            Break::BeforeReply => self.faults().cut_before_reply_to("EVALSHA", 1),
            Break::InsideReply => self.faults().cut_after_bytes_from_server(3),
            Break::Silence => self.faults().swallow_replies(true),
        }
        let first = call(first_store).await;
        assert!(first.as_ref().is_err_and(Error::is_outcome_unknown), "{at:?}: {first:?}");
        // Bytes do not get lost on a connection that goes on.
        if at == Break::Silence {
            self.faults().cut_all();
        }
        self.faults().pass().unwrap();
        prepared(&self.store).await;
        (call(&self.store).await.unwrap(), call(&self.store).await.unwrap())
    }
}

/// Returns when there is a connection, with the scripts at the server and the queue's settings in the handle.
async fn prepared(store: &RedisStore) {
    while let Err(error) = store.queues().await {
        assert!(error.is_retryable(), "{error:?}");
    }
}

fn tokens(jobs: &[ClaimedJob]) -> Vec<(u32, u64)> {
    jobs.iter().map(|job| (job.lease.attempt, job.lease.token.bits())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_is_done_once() {
    for at in BREAKS {
        let rig = Rig::new();
        enqueue(&rig.store, 1).await;
        let new = jobs(3);
        let (second, third) =
            rig.through(at, async |store| store.enqueue(EnqueueRequest::new(new.clone())).await).await;
        for (job, (second, third)) in new.iter().zip(second.into_iter().zip(third)) {
            // What did not arrive is new now; what was done is known.
            let expected = if at == Break::InsideRequest {
                Enqueued::Created { id: job.id }
            } else {
                Enqueued::Existing { id: job.id }
            };
            assert_eq!((second, third), (Ok(expected), Ok(Enqueued::Existing { id: job.id })), "{at:?}");
        }
        assert_eq!(counts(&rig.store).await.ready, 4, "{at:?}");
        assert_in_accord(&rig.url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_answered_with_the_same_leases() {
    for at in BREAKS {
        let rig = Rig::new();
        enqueue(&rig.store, 5).await;
        // The queue is known, so that the claim is one call.
        assert_eq!(rig.store.claim(claim(1, 1)).await.unwrap().jobs.len(), 1);
        let (second, third) = rig.through(at, async |store| store.claim(claim(2, 2)).await).await;
        assert_eq!(second.jobs.len(), 2);
        assert_eq!(tokens(&second.jobs), tokens(&third.jobs), "{at:?}");
        assert!(second.jobs.iter().all(|job| job.lease.attempt == 1), "{at:?}");
        let counts = counts(&rig.store).await;
        assert_eq!((counts.ready, counts.active), (2, 3), "{at:?}");
        assert_in_accord(&rig.url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_counts_once() {
    for at in BREAKS {
        let rig = Rig::new();
        enqueue(&rig.store, 3).await;
        let held = rig.store.claim(claim(1, 2)).await.unwrap().jobs;
        let report = done(held.iter().map(|job| job.lease));
        let (second, third) = rig.through(at, async |store| store.report(report.clone()).await).await;
        for (second, third) in second.into_iter().zip(third) {
            let (second, third) = (second.unwrap(), third.unwrap());
            assert_eq!((second.state, third.state), (State::Succeeded, State::Succeeded), "{at:?}");
            assert_eq!((second.repeated, third.repeated), (at != Break::InsideRequest, true), "{at:?}");
        }
        assert_eq!(counts(&rig.store).await.succeeded, 2, "{at:?}");
        assert_in_accord(&rig.url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_with_a_claim_counts_once() {
    for at in BREAKS {
        let rig = Rig::new();
        enqueue(&rig.store, 5).await;
        let held = rig.store.claim(claim(1, 2)).await.unwrap().jobs;
        let report = done(held.iter().map(|job| job.lease));
        let call = async |store: &RedisStore| store.report_and_claim(report.clone(), claim(2, 2)).await;
        let (second, third) = rig.through(at, call).await;
        for answer in second.reported.iter().chain(&third.reported) {
            assert_eq!(answer.as_ref().unwrap().state, State::Succeeded, "{at:?}");
        }
        assert_eq!(second.claimed.jobs.len(), 2);
        assert_eq!(tokens(&second.claimed.jobs), tokens(&third.claimed.jobs), "{at:?}");
        let counts = counts(&rig.store).await;
        assert_eq!((counts.ready, counts.active, counts.succeeded), (1, 2, 2), "{at:?}");
        assert_in_accord(&rig.url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_holds() {
    for at in BREAKS {
        let rig = Rig::new();
        enqueue(&rig.store, 1).await;
        let lease = rig.store.claim(claim(1, 1)).await.unwrap().jobs.remove(0).lease;
        let renewals = vec![Renewal { lease, lease_ms: Some(90_000), progress: None }];
        let call = async |store: &RedisStore| store.renew(RenewRequest { renewals: renewals.clone() }).await;
        let (second, third) = rig.through(at, call).await;
        assert!(second[0].is_ok() && third[0].is_ok(), "{at:?}");
        assert_eq!(counts(&rig.store).await.active, 1, "{at:?}");
        assert_in_accord(&rig.url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_counts_once() {
    for at in BREAKS {
        let rig = Rig::new();
        let new = jobs(2);
        rig.store.enqueue(EnqueueRequest::new(new.clone())).await.unwrap();
        let changes: Vec<Change> = new.iter().map(|job| Change { id: job.id, op: ChangeOp::Cancel }).collect();
        let (second, third) = rig.through(at, async |store| store.change(changes.clone()).await).await;
        assert!(second.iter().all(Result::is_ok), "{at:?}: {second:?}");
        assert_eq!(second, third, "{at:?}");
        assert_eq!(counts(&rig.store).await.cancelled, 2, "{at:?}");
        assert_in_accord(&rig.url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_creates_one_job() {
    for at in BREAKS {
        let rig = Rig::new();
        let now = rig.store.now().await.unwrap();
        let name = ScheduleName::new("s").unwrap();
        let rule = Rule::every_ms(60_000);
        rig.store
            .put_schedule(Schedule { next_tick: Some(now), ..Schedule::new(name.clone(), rule, spec()) })
            .await
            .unwrap();
        let revision = rig.store.schedules().await.unwrap().remove(0).revision;
        let fire = Fire {
            name,
            expected_tick: Some(now),
            revision,
            jobs: jobs(1),
            next_tick: Some(now.plus_ms(60_000)),
            skip_if_running: false,
        };
        let (second, third) = rig.through(at, async |store| store.fire(fire.clone()).await).await;
        // A tick that was handled is somebody's, whoever that was: nobody creates its job again.
        let expected = if at == Break::InsideRequest { FireOutcome::Fired { jobs: 1 } } else { FireOutcome::Stale };
        assert_eq!((second, third), (expected, FireOutcome::Stale), "{at:?}");
        assert_eq!(counts(&rig.store).await.ready, 1, "{at:?}");
        let schedule = rig.store.schedules().await.unwrap().remove(0);
        assert_eq!((schedule.fired, schedule.next_tick), (1, Some(now.plus_ms(60_000))), "{at:?}");
        assert_in_accord(&rig.url).await;
    }
}

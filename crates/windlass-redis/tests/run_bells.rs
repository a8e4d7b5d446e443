//! Engines that wait are woken by what is done in another process, and only those that can do something about it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::Arc;
use support::raw::Raw;
use support::{LEASE_MS, block, claim, claim_request, fresh_url, job_with, open_at, report, virtual_clock};
use tokio::time::timeout;
use windlass_core::id::RunId;
use windlass_core::job::Due;
use windlass_core::name::{Kind, WorkerId};
use windlass_core::store::{
    JobQueue, NewRun, RunClaim, RunMessage, RunStore, RunsClaimed, Store, Sweep, SweepKind, WaitFor,
};
use windlass_core::time::{HANG_GUARD, VirtualClock};
use windlass_redis::RedisStore;
use windlass_servers::Redis;

fn request(engine: &str, kind: &str, max: u32) -> RunClaim {
    let (engine, kinds) = (WorkerId::new(engine).unwrap(), vec![Kind::new(kind).unwrap()]);
    RunClaim { max, lease_ms: LEASE_MS, ..RunClaim::new(engine, kinds) }
}

fn new_run(n: u128, kind: &str) -> NewRun {
    NewRun::new(RunId::from_parts(0, n), Kind::new(kind).unwrap())
}

struct Scene {
    url: String,
    clock: Arc<VirtualClock>,
    doer: RedisStore,
    raw: Raw,
}

impl Scene {
    fn new(server: &Redis) -> Self {
        let (url, clock) = (fresh_url(&server.url()), virtual_clock());
        Self { doer: open_at(&url, &clock), raw: Raw::open(&url), url, clock }
    }

    /// Another process with an engine that found nothing and is on the list of those who wait.
    async fn engine(&self, name: &str, kind: &str) -> (RedisStore, RunsClaimed) {
        let store = open_at(&self.url, &self.clock);
        let mut found = store.claim_runs(request(name, kind, 1)).await.unwrap();
        // Until it listens, it is told of everything at once; then it registers.
        while self.raw.members("idle", &format!("//{name}")).await.is_empty() {
            timeout(HANG_GUARD, store.wait(WaitFor::Runs(found.mark))).await.expect("it begins to listen").unwrap();
            found = store.claim_runs(request(name, kind, 1)).await.unwrap();
            assert!(found.runs.is_empty());
        }
        (store, found)
    }

    async fn create(&self, run: NewRun) {
        self.doer.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    }

    async fn waiting(&self) -> usize {
        self.raw.items("idle").await.len()
    }
}

async fn woken(store: &RedisStore, found: &RunsClaimed) {
    timeout(HANG_GUARD, store.wait(WaitFor::Runs(found.mark))).await.expect("it is told").unwrap();
}

#[test]
fn what_happens_to_a_run_wakes_an_engine_elsewhere() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server);
        let mut run = new_run(1, "graph");
        run.step.jobs = vec![job_with(|spec| spec.run = Some(run.id))];
        scene.create(run.clone()).await;
        let job = claim(&scene.doer, "w", 1).await.remove(0);
        // The end of a job, a message, a new run with something to do, and a time that has come for another kind's claim.
        let (store, found) = scene.engine("a", "graph").await;
        report(&scene.doer, "w", job.lease).await.unwrap();
        woken(&store, &found).await;
        assert_eq!(store.claim_runs(request("a", "graph", 1)).await.unwrap().runs.len(), 1);
        scene.create(new_run(2, "graph")).await;
        let (store, found) = scene.engine("b", "graph").await;
        let message = RunMessage::new(RunId::from_parts(0, 2), String::new());
        scene.doer.send_to_runs(vec![message]).await.unwrap().remove(0).unwrap();
        woken(&store, &found).await;
        assert_eq!(store.claim_runs(request("b", "graph", 1)).await.unwrap().runs.len(), 1);
        let (store, found) = scene.engine("c", "graph").await;
        let mut now = new_run(3, "graph");
        now.step.wake = Some(Due::Now);
        scene.create(now).await;
        woken(&store, &found).await;
        assert_eq!(store.claim_runs(request("c", "graph", 1)).await.unwrap().runs.len(), 1);
        let mut later = new_run(4, "graph");
        later.step.wake = Some(Due::DelayMs(1_000));
        scene.create(later).await;
        let (store, found) = scene.engine("d", "graph").await;
        scene.clock.advance_ms(1_000);
        assert!(scene.doer.claim_runs(request("other", "code", 9)).await.unwrap().runs.is_empty());
        woken(&store, &found).await;
        assert_eq!(store.claim_runs(request("d", "graph", 1)).await.unwrap().runs.len(), 1);
    });
}

/// The lane of the job is known already: nobody is woken because it is new.
#[test]
fn a_step_that_starts_a_job_wakes_a_worker_elsewhere() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server);
        let begins = |n: u128| {
            let mut run = new_run(n, "graph");
            run.step.jobs = vec![job_with(|spec| spec.run = Some(run.id))];
            run
        };
        scene.create(begins(1)).await;
        assert_eq!(claim(&scene.doer, "first", 1).await.len(), 1);
        let store = open_at(&scene.url, &scene.clock);
        let wait = |mark| store.wait(WaitFor::Work { queues: claim_request("w", 1).queues, mark });
        let mut found = store.claim(claim_request("w", 1)).await.unwrap();
        while scene.raw.members("idle", "/w").await.is_empty() {
            timeout(HANG_GUARD, wait(found.mark)).await.expect("it begins to listen").unwrap();
            found = store.claim(claim_request("w", 1)).await.unwrap();
        }
        scene.create(begins(2)).await;
        timeout(HANG_GUARD, wait(found.mark)).await.expect("it is told").unwrap();
        assert_eq!(claim(&store, "w", 1).await.len(), 1);
    });
}

#[test]
fn one_engine_is_woken_for_one_run() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server);
        let (a, found_a) = scene.engine("a", "graph").await;
        let (b, found_b) = scene.engine("b", "graph").await;
        let (_code, _) = scene.engine("c", "code").await;
        assert_eq!(scene.waiting().await, 3);
        let awake = |n: u128| {
            let mut run = new_run(n, "graph");
            run.step.wake = Some(Due::Now);
            run
        };
        scene.create(awake(1)).await;
        assert_eq!(scene.waiting().await, 2, "one of those who can was taken off the list");
        scene.create(awake(2)).await;
        assert_eq!(scene.waiting().await, 1, "the one of another kind is left alone");
        woken(&a, &found_a).await;
        woken(&b, &found_b).await;
        // Whoever takes all it asked for waits no more.
        assert_eq!(a.claim_runs(request("a", "graph", 1)).await.unwrap().runs.len(), 1);
        assert_eq!(b.claim_runs(request("b", "graph", 1)).await.unwrap().runs.len(), 1);
        assert_eq!(scene.waiting().await, 1);
    });
}

/// A step wakes eight at most; those wake the others.
#[test]
fn an_engine_that_leaves_runs_wakes_the_next() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server);
        let mut engines = Vec::new();
        for n in 0..9 {
            let name = format!("engine{n}");
            engines.push((scene.engine(&name, "graph").await, name));
        }
        let runs = (1..=9).map(|n| {
            let mut run = new_run(n, "graph");
            run.step.wake = Some(Due::Now);
            run
        });
        for created in scene.doer.create_runs(runs.collect()).await.unwrap() {
            created.unwrap();
        }
        assert_eq!(scene.waiting().await, 1);
        for ((store, found), name) in &engines {
            if scene.raw.members("idle", &format!("//{name}")).await.is_empty() {
                woken(store, found).await;
                assert_eq!(store.claim_runs(request(name, "graph", 1)).await.unwrap().runs.len(), 1);
                break;
            }
        }
        assert_eq!(scene.waiting().await, 0, "the last one was woken");
    });
}

#[test]
fn an_engine_that_is_gone_is_forgotten_by_maintenance() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server);
        let (store, _) = scene.engine("a", "graph").await;
        store.close().await.unwrap();
        drop(store);
        // The server may still know the connection; maintenance asks again each time.
        for _ in 0..1_000 {
            JobQueue::sweep(&scene.doer, Sweep { kind: SweepKind::Prune, max: 10 }).await.unwrap();
            if scene.waiting().await == 0 {
                break;
            }
        }
        assert_eq!((scene.waiting().await, scene.raw.items("bells").await.len()), (0, 0));
    });
}

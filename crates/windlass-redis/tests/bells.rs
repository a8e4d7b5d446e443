//! Wake-ups between processes: whoever waits on one handle is woken by what is done on another, at once, and only those
//! are woken who can do something about it.
//!
//! A wait of the store has no end of its own, so being woken is being woken by a bell. Who is on the list of those who
//! wait is asked of the server, so that "was not woken" does not depend on how long one looks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]
#![allow(clippy::disallowed_methods, reason = "bells ring in real time, between tasks of the test")]

mod support;

use std::sync::Arc;
use support::{
    LEASE_MS, block, claim, claim_request, complete, enqueue, fresh_url, get, job, job_with, open_at, report,
    report_as, virtual_clock,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use windlass_core::Result;
use windlass_core::job::{Due, NewJob};
use windlass_core::name::{Kind, Labels, WorkerId};
use windlass_core::rate::Rate;
use windlass_core::store::{
    Change, ChangeOp, ClaimRequest, Feed, FeedRequest, GroupSettings, JobQueue, Kinds, OutcomeKind, QueueSettings,
    Setting, Store, Sweep, SweepKind, WaitFor, WorkMark,
};
use windlass_core::time::{HANG_GUARD, VirtualClock};
use windlass_redis::RedisStore;
use windlass_redis::link::{Command, Link, Value};
use windlass_redis::options::Options;
use windlass_servers::{Cluster, Redis};

/// A store that several processes use.
struct Scene {
    url: String,
    clock: Arc<VirtualClock>,
    /// The handle on which things are done.
    doer: RedisStore,
    raw: Link,
}

impl Scene {
    fn new(server: &str) -> Self {
        let (url, clock) = (fresh_url(server), virtual_clock());
        let raw = Link::open(Options::from_url(&url).unwrap(), &[]).unwrap();
        Self { doer: open_at(&url, &clock), url, clock, raw }
    }

    /// Another process.
    fn open(&self) -> Arc<RedisStore> {
        Arc::new(open_at(&self.url, &self.clock))
    }

    fn key(&self, name: &str) -> String {
        format!("{{{}}}:{name}", self.raw.options().prefix)
    }

    /// The workers that wait for a bell.
    async fn idle(&self) -> Vec<String> {
        let Value::Array(fields) = self.raw.command(&Command::new("HKEYS").arg(self.key("idle"))).await.unwrap() else {
            panic!("no list");
        };
        let worker = |field: Value| match field {
            Value::BulkString(text) => {
                String::from_utf8(text).unwrap().split_once('/').map(|(_, worker)| worker.to_owned()).unwrap()
            }
            other => panic!("{other:?}"),
        };
        let mut workers: Vec<String> = fields.into_iter().map(worker).collect();
        workers.sort();
        workers
    }

    /// Lets a worker find nothing until it is on the list of those who wait.
    async fn settle(&self, store: &RedisStore, request: &mut ClaimRequest) -> WorkMark {
        loop {
            request.request_id = next_request();
            let claimed = store.claim(request.clone()).await.unwrap();
            assert_eq!(claimed.jobs.len(), 0, "there is nothing to do yet");
            if self.idle().await.contains(&request.worker.as_str().to_owned()) {
                return claimed.mark;
            }
            // Whoever does not listen yet begins to, and is told to look once more.
            let wait = store.wait(WaitFor::Work { queues: request.queues.clone(), mark: claimed.mark });
            timeout(HANG_GUARD, wait).await.expect("it listens").unwrap();
        }
    }

    /// A process that waits for work.
    async fn waiting(&self, worker: &str) -> Waiting {
        self.waiting_for(request(worker)).await
    }

    async fn waiting_for(&self, mut request: ClaimRequest) -> Waiting {
        let store = self.open();
        let mark = self.settle(&store, &mut request).await;
        let (waiter, queues) = (Arc::clone(&store), request.queues.clone());
        let wait = tokio::spawn(async move {
            timeout(HANG_GUARD, waiter.wait(WaitFor::Work { queues, mark }))
                .await
                .expect("a bell")
                .map(|()| Instant::now())
        });
        Waiting { store, request, wait }
    }

    async fn set(&self, edit: impl FnOnce(&mut QueueSettings)) {
        let mut settings = QueueSettings::default();
        edit(&mut settings);
        self.doer.configure(Setting::Queue { queue: "q".try_into().unwrap(), settings }).await.unwrap();
    }

    async fn sweep(&self, kind: SweepKind) {
        self.doer.sweep(Sweep { kind, max: 100 }).await.unwrap();
    }
}

fn request(worker: &str) -> ClaimRequest {
    claim_request(worker, 1)
}

fn next_request() -> u64 {
    claim_request("any", 1).request_id
}

struct Waiting {
    store: Arc<RedisStore>,
    request: ClaimRequest,
    wait: JoinHandle<Result<Instant>>,
}

impl Waiting {
    /// It hears the bell of what was done since `done`, and finds work.
    async fn wakes(mut self, done: Instant, by: &str) {
        let woken = timeout(HANG_GUARD, &mut self.wait).await;
        let at = woken.unwrap_or_else(|_| panic!("{by} woke nobody")).unwrap().unwrap();
        println!("woken by {by} after {:?}", at.saturating_duration_since(done));
        self.request.request_id = next_request();
        let claimed = self.store.claim(self.request).await.unwrap();
        assert_eq!(claimed.jobs.len(), 1, "woken by {by}, and there is nothing");
    }
}

fn grouped() -> NewJob {
    job_with(|spec| spec.group = Some("g".try_into().unwrap()))
}

#[test]
fn new_work_wakes_another_process() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server.url());
        // The first job makes the queue, the second a lane that nobody knows, the third finds all there.
        for (by, kind) in [("the first job", "work"), ("a job of a new kind", "other"), ("a job", "work")] {
            let waiting = scene.waiting(&format!("waits-for-{kind}")).await;
            let done = Instant::now();
            enqueue(&scene.doer, vec![job_with(|spec| spec.kind = kind.try_into().unwrap())]).await;
            waiting.wakes(done, by).await;
        }
    });
}

#[test]
fn slow_new_work_wakes_another_process_on_a_cluster() {
    let cluster = Cluster::start(3, 0).unwrap();
    block(async {
        // Stores in different slots, so on different nodes.
        for _ in 0..4 {
            let scene = Scene::new(&cluster.url());
            for by in ["the first job", "a job"] {
                let waiting = scene.waiting("w").await;
                let done = Instant::now();
                enqueue(&scene.doer, vec![job()]).await;
                waiting.wakes(done, by).await;
            }
            let id = enqueue(&scene.doer, vec![job()]).await[0];
            waiters_are_bounded(&scene, id).await;
            ends_are_heard(&scene, id).await;
        }
    });
}

#[test]
fn what_comes_back_wakes_another_process() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server.url());
        enqueue(&scene.doer, vec![job()]).await;
        let held = claim(&scene.doer, "d", 1).await.remove(0);
        let waiting = scene.waiting("w").await;
        let done = Instant::now();
        report_as(&scene.doer, "d", held.lease, OutcomeKind::Release { started: false }).await.unwrap();
        waiting.wakes(done, "a release").await;

        let id = enqueue(&scene.doer, vec![job().due(Due::DelayMs(1_000))]).await[0];
        let waiting = scene.waiting("v").await;
        scene.clock.advance_ms(1_000);
        let done = Instant::now();
        scene.sweep(SweepKind::Promote).await;
        waiting.wakes(done, "a sweep that promotes").await;

        scene.clock.advance_ms(LEASE_MS + 1);
        let waiting = scene.waiting("u").await;
        let done = Instant::now();
        scene.sweep(SweepKind::Reap).await;
        waiting.wakes(done, "a sweep that reaps").await;
        let _ = id;

        let late = enqueue(&scene.doer, vec![job().due(Due::DelayMs(9_000_000))]).await[0];
        claim(&scene.doer, "d", 9).await;
        let waiting = scene.waiting("t").await;
        let done = Instant::now();
        scene.doer.change(vec![Change { id: late, op: ChangeOp::Promote }]).await.unwrap().remove(0).unwrap();
        waiting.wakes(done, "a promotion by hand").await;
    });
}

#[test]
fn room_wakes_another_process() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server.url());
        scene.set(|settings| settings.cap = Some(1)).await;
        enqueue(&scene.doer, vec![job(), job()]).await;
        let held = claim(&scene.doer, "d", 1).await.remove(0);
        let waiting = scene.waiting("w").await;
        let done = Instant::now();
        report(&scene.doer, "d", held.lease).await.unwrap();
        waiting.wakes(done, "a place below the queue's cap").await;

        let scene = Scene::new(&server.url());
        scene.set(|settings| settings.groups = GroupSettings { cap: Some(1), ..GroupSettings::default() }).await;
        enqueue(&scene.doer, vec![grouped(), grouped()]).await;
        let held = claim(&scene.doer, "d", 1).await.remove(0);
        let waiting = scene.waiting("w").await;
        let done = Instant::now();
        report(&scene.doer, "d", held.lease).await.unwrap();
        waiting.wakes(done, "a place below the group's cap").await;

        let scene = Scene::new(&server.url());
        let rate = Some(Rate { limit: 1, per_ms: 1_000 });
        scene.set(|settings| settings.groups = GroupSettings { rate, ..GroupSettings::default() }).await;
        enqueue(&scene.doer, vec![grouped(), grouped()]).await;
        claim(&scene.doer, "d", 1).await;
        let waiting = scene.waiting("w").await;
        scene.clock.advance_ms(1_001);
        let done = Instant::now();
        scene.sweep(SweepKind::Promote).await;
        waiting.wakes(done, "a group whose rate allows more").await;
    });
}

#[test]
fn settings_wake_another_process() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server.url());
        let queue = || "q".try_into().unwrap();
        type Change = fn(&mut QueueSettings);
        let changes: [(&str, Change); 2] = [
            ("a queue that is resumed", |settings| settings.paused = true),
            ("a cap that is raised", |settings| settings.cap = Some(1)),
        ];
        for (by, before) in changes {
            scene.set(|_| {}).await;
            enqueue(&scene.doer, vec![job(), job()]).await;
            let held = claim(&scene.doer, "d", 1).await;
            scene.set(before).await;
            let waiting = scene.waiting("w").await;
            let done = Instant::now();
            scene.set(|_| {}).await;
            waiting.wakes(done, by).await;
            assert_eq!(held.len(), 1);
        }
        let kind: Kind = "work".try_into().unwrap();
        let paused = |paused| Setting::KindPaused { queue: queue(), kind: kind.clone(), paused };
        claim(&scene.doer, "d", 100).await;
        scene.doer.configure(paused(true)).await.unwrap();
        enqueue(&scene.doer, vec![job()]).await;
        let waiting = scene.waiting("v").await;
        let done = Instant::now();
        scene.doer.configure(paused(false)).await.unwrap();
        waiting.wakes(done, "a kind that is resumed").await;
    });
}

#[test]
fn a_job_wakes_one_of_many() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server.url());
        // Makes the queue and its lane: a new lane wakes all, because any of them may be the one who can.
        enqueue(&scene.doer, vec![job()]).await;
        claim(&scene.doer, "d", 1).await;
        let mut all = Vec::new();
        for worker in ["a", "b", "c", "e", "f", "g"] {
            all.push(scene.waiting(worker).await);
        }
        let mut left = 6;
        for jobs in [1, 2, 1] {
            enqueue(&scene.doer, (0..jobs).map(|_| job()).collect()).await;
            left -= jobs;
            let idle = scene.idle().await;
            assert_eq!(idle.len(), left, "{jobs} jobs woke more or fewer: {idle:?} still wait");
        }
        let idle = scene.idle().await;
        let (still, woken): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|waiting| idle.contains(&waiting.request.worker.as_str().to_owned()));
        assert!(still.len() == 2 && still.iter().all(|waiting| !waiting.wait.is_finished()));
        for waiting in woken {
            waiting.wakes(Instant::now(), "one of the jobs").await;
        }
    });
}

#[test]
fn whoever_cannot_run_a_job_is_not_woken_by_it() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server.url());
        let labelled = || job_with(|spec| spec.labels = Labels::parse(["gpu"]).unwrap());
        enqueue(&scene.doer, vec![labelled(), job()]).await;
        let able = ClaimRequest { labels: Labels::parse(["gpu"]).unwrap(), ..request("able") };
        let taken = scene.doer.claim(ClaimRequest { max: 9, ..able.clone() }).await.unwrap();
        assert_eq!(taken.jobs.len(), 2);
        let unable = scene.waiting("unable").await;
        let other_kind = ClaimRequest { kinds: Kinds::Only([Kind::new("x").unwrap()].into()), ..request("other-kind") };
        let other_kind = scene.waiting_for(other_kind).await;
        let able = ClaimRequest { worker: WorkerId::new("able-too").unwrap(), ..able };
        let able = scene.waiting_for(able).await;
        let done = Instant::now();
        enqueue(&scene.doer, vec![labelled()]).await;
        assert_eq!(scene.idle().await, ["other-kind", "unable"]);
        able.wakes(done, "a job with a label").await;
        let done = Instant::now();
        enqueue(&scene.doer, vec![job()]).await;
        assert_eq!(scene.idle().await, ["other-kind"]);
        unable.wakes(done, "a job without labels").await;
        assert!(!other_kind.wait.is_finished());
    });
}

#[test]
fn the_dead_are_skipped() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server.url());
        enqueue(&scene.doer, vec![job()]).await;
        claim(&scene.doer, "d", 1).await;
        let mut dead = Vec::new();
        for worker in ["a", "b", "c", "e", "f", "g", "h"] {
            dead.push(scene.waiting(worker).await);
        }
        let living = scene.waiting("w").await;
        for waiting in dead {
            waiting.wait.abort();
            // Its task holds the store until it has ended.
            let _ = waiting.wait.await;
            drop(waiting.store);
        }
        let channels = Command::new("PUBSUB").arg("CHANNELS").arg(scene.key("bell:*"));
        timeout(HANG_GUARD, async {
            while !matches!(scene.raw.command(&channels).await, Ok(Value::Array(channels)) if channels.len() == 1) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the server notices that they are gone");
        assert_eq!(scene.idle().await.len(), 8, "they died without a word");
        let done = Instant::now();
        enqueue(&scene.doer, vec![job()]).await;
        living.wakes(done, "a job that seven dead ones waited for").await;
    });
}

/// The handle of a process that waited, and has ended since, stays in the list until the job or run ends.
async fn waiters_are_bounded(scene: &Scene, id: windlass_core::id::JobId) {
    let watched = |command: &str| Command::new(command).arg(scene.key("watch")).arg(id.to_string());
    let handles: Vec<String> = (0..256).map(|n| format!("gone{n}")).collect();
    scene.raw.command(&watched("HSET").arg(handles.join(" "))).await.unwrap();
    let store = scene.open();
    let wait = tokio::spawn(async move { store.wait(WaitFor::Job(id)).await });
    timeout(HANG_GUARD, async {
        loop {
            let Value::BulkString(found) = scene.raw.command(&watched("HGET")).await.unwrap() else { panic!() };
            let found = String::from_utf8(found).unwrap();
            if !found.ends_with("gone255") {
                assert_eq!(found.split(' ').count(), 256);
                assert!(found.starts_with("gone1 "), "the oldest one was dropped");
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("it is registered");
    wait.abort();
    scene.raw.command(&watched("HDEL")).await.unwrap();
}

/// A job ends on one handle while others wait for it.
async fn ends_are_heard(scene: &Scene, id: windlass_core::id::JobId) {
    let lease = claim(&scene.doer, "ends", 1).await.remove(0).lease;
    assert_eq!(lease.job, id);
    let mut waits = Vec::new();
    for store in [scene.open(), scene.open()] {
        // A wait may also end when the process begins to listen, because of what it may have missed before.
        waits.push(tokio::spawn(async move {
            while get(store.as_ref(), id).await.is_some_and(|job| !job.state.is_terminal()) {
                timeout(HANG_GUARD, store.wait(WaitFor::Job(id))).await.expect("a bell").unwrap();
            }
        }));
    }
    let watched = Command::new("HGET").arg(scene.key("watch")).arg(id.to_string());
    timeout(HANG_GUARD, async {
        // Both are registered, and both listen: the order in which they come is theirs.
        loop {
            let registered = match scene.raw.command(&watched).await.unwrap() {
                Value::BulkString(handles) => handles.split(|byte| *byte == b' ').count(),
                _ => 0,
            };
            if registered == 2 {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("both are registered");
    let done = Instant::now();
    report_as(&scene.doer, "ends", lease, complete()).await.unwrap();
    for wait in waits {
        timeout(HANG_GUARD, wait).await.expect("the end is heard").unwrap();
    }
    println!("the end of a job was heard after {:?}", done.elapsed());
}

#[test]
fn the_end_of_a_job_is_heard_by_all_who_wait_for_it() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server.url());
        for _ in 0..20 {
            let id = enqueue(&scene.doer, vec![job()]).await[0];
            ends_are_heard(&scene, id).await;
        }
    });
}

#[test]
fn an_entry_of_the_feed_is_heard() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server.url());
        enqueue(&scene.doer, vec![job()]).await;
        for _ in 0..5 {
            let follower = scene.open();
            let end = follower.read_feed(FeedRequest { after: None, max: 1 }).await.unwrap().next;
            let wait = tokio::spawn({
                let follower = Arc::clone(&follower);
                async move { timeout(HANG_GUARD, follower.wait(WaitFor::Feed(end))).await.expect("news") }
            });
            let done = Instant::now();
            enqueue(&scene.doer, vec![job()]).await;
            timeout(HANG_GUARD, wait).await.expect("the entry is heard").unwrap().unwrap();
            println!("an entry of the feed was heard after {:?}", done.elapsed());
            let page = follower.read_feed(FeedRequest { after: Some(end), max: 10 }).await.unwrap();
            assert_eq!(page.entries.len(), 1);
        }
    });
}

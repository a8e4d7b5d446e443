//! Jobs that log a lot: no lease ends because of it, nothing is lost, and little is held.

use super::active::{Active, LINE_BYTES_FULL, LINES_FULL, Portion};
use super::lines::{CALL, LogCalls, push_all};
use super::{BootClock, LeaseClock, Pool, Worker, WorkerBuilder, now};
use crate::context::{Ctx, State, World};
use crate::error::JobError;
use crate::job::Job;
use crate::observe::Attempts;
use crate::{Client, Item, Options, Waited};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use windlass_conformance::faults::{Fault, FaultPlan, Faulty, Method};
use windlass_core::Result;
use windlass_core::id::JobId;
use windlass_core::memory::MemoryStore;
use windlass_core::name::Labels;
use windlass_core::random::StrongRandom;
use windlass_core::store::{
    ClaimRequest, JobQueue as _, Kinds, LOG_LINE_BYTES_MAX, LogAppend, LogLine, LogRequest, LogSink as _, LogStream,
    RenewRequest, Renewed, Store, Wrap, Wrapped,
};
use windlass_core::time::{HANG_GUARD, SystemClock, Timestamp, VirtualClock};

const LEASE_MS: u64 = 30_000;
/// Longer than any test runs.
const NEVER: Duration = Duration::from_secs(86_400);

#[derive(Debug, Serialize, Deserialize)]
struct Talk {
    lines: usize,
    bytes: usize,
}

impl Job for Talk {
    const KIND: &'static str = "talk";
    type Output = ();
}

/// A store whose time is moved by the test, and which records the calls of interest.
struct Recorded {
    inner: MemoryStore,
    clock: Arc<VirtualClock>,
    lease_ms: Arc<AtomicU64>,
    renewals: AtomicU64,
    appends: AtomicU64,
    /// Appends do not return.
    hung: AtomicBool,
    /// Lines and bytes of the largest append.
    largest: Mutex<(usize, usize)>,
    waiting: Waiting,
}

struct MovedClock(Arc<AtomicU64>);

impl LeaseClock for MovedClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

impl Recorded {
    fn note_append(&self, lines: usize, bytes: usize) {
        let mut largest = self.largest.lock();
        *largest = (largest.0.max(lines), largest.1.max(bytes));
    }
}

#[async_trait]
impl Wrap for Recorded {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn renew(&self, request: RenewRequest) -> Result<Vec<Result<Renewed>>> {
        let renewed = self.inner.renew(request).await?;
        self.renewals.fetch_add(renewed.iter().filter(|answer| answer.is_ok()).count() as u64, Ordering::SeqCst);
        Ok(renewed)
    }

    async fn append_logs(&self, appends: Vec<LogAppend>) -> Result<Vec<Result<u64>>> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        if self.hung.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let lines = || appends.iter().flat_map(|append| &append.lines);
        let (count, bytes) = (lines().count(), lines().map(|line| line.text.len()).sum());
        self.note_append(count, bytes);
        self.inner.append_logs(appends).await
    }
}

type Shared = Arc<Wrapped<Recorded>>;

fn store() -> Shared {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
    let inner = MemoryStore::with(Arc::clone(&clock) as _, Arc::new(StrongRandom::seeded(1)));
    Arc::new(Wrapped(Recorded {
        inner,
        clock,
        lease_ms: Arc::default(),
        renewals: AtomicU64::new(0),
        appends: AtomicU64::new(0),
        hung: AtomicBool::new(false),
        largest: Mutex::default(),
        waiting: Waiting::default(),
    }))
}

/// A worker whose keeper looks after its jobs every `look`.
fn worker(store: &Shared, look: Duration) -> WorkerBuilder {
    let mut builder = Worker::builder(Arc::clone(store) as Arc<dyn Store>).state(Arc::clone(store));
    builder.lease_clock = Arc::new(MovedClock(Arc::clone(&store.lease_ms)));
    builder.look = look;
    builder.lease(Duration::from_millis(LEASE_MS)).without_runs().without_maintenance()
}

fn client(store: &Shared) -> Client {
    Client::new(Arc::clone(store) as Arc<dyn Store>)
}

/// Returns when `is_met`.
async fn until(what: &str, is_met: impl Fn() -> bool) {
    let met = async {
        while !is_met() {
            // sleeps because: the worker's keeper has a thread and a clock of its own
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(HANG_GUARD, met).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn leases_are_renewed_while_the_store_does_not_answer_an_append_of_lines() {
    async fn talk_and_wait(_job: Talk, ctx: Ctx) {
        ctx.log("a line that the store never takes");
        ctx.stopped().await;
    }
    let store = store();
    store.hung.store(true, Ordering::SeqCst);
    let id = client(&store).enqueue(Talk { lines: 1, bytes: 1 }).await.unwrap().id();
    let worker = worker(&store, Duration::from_millis(1)).handle(talk_and_wait).build().unwrap();
    let stopper = worker.stopper();
    let test = async {
        until("an append is under way", || store.appends.load(Ordering::SeqCst) > 0).await;
        for _ in 0..4 {
            let before = store.renewals.load(Ordering::SeqCst);
            store.clock.advance_ms(LEASE_MS / 3);
            store.lease_ms.fetch_add(LEASE_MS / 3, Ordering::SeqCst);
            until("the lease is renewed", || store.renewals.load(Ordering::SeqCst) > before).await;
        }
        let lease = store.inner.get(vec![id]).await.unwrap().remove(0).unwrap().lease;
        assert!(lease.is_some(), "it is held for longer than the lease that was claimed");
        stopper.stop_now();
    };
    tokio::join!(worker.run_until_stopped(), test).0.unwrap();
}

/// Lines of a job, in their order.
async fn lines_of(store: &Shared, job: JobId) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let from = lines.len() as u64;
        let page = store.inner.read_logs(LogRequest { job, from, limit: 10_000 }).await.unwrap();
        if page.lines.is_empty() {
            return lines;
        }
        lines.extend(page.lines.into_iter().map(|(_, line)| String::from_utf8_lossy(&line.text).into_owned()));
    }
}

fn numbered(n: usize, bytes: usize) -> String {
    format!("{n:0bytes$}")
}

/// The most lines and bytes that waited when a handler went on.
#[derive(Default)]
struct Waiting {
    lines: AtomicUsize,
    bytes: AtomicUsize,
}

impl Waiting {
    fn note(&self, Portion { lines, bytes }: Portion) {
        self.lines.fetch_max(lines, Ordering::SeqCst);
        self.bytes.fetch_max(bytes, Ordering::SeqCst);
    }

    fn most(&self) -> Portion {
        Portion { lines: self.lines.load(Ordering::SeqCst), bytes: self.bytes.load(Ordering::SeqCst) }
    }
}

/// Lines that a handler logs between two awaits.
const BURST: usize = 100;

async fn talk(job: Talk, ctx: Ctx, store: State<Shared>) {
    for n in 0..job.lines {
        if n % BURST == 0 {
            tokio::task::yield_now().await;
            store.waiting.note(ctx.active.waiting_lines());
        }
        ctx.log(numbered(n, job.bytes));
    }
}

async fn talk_batch(jobs: Vec<Item<Talk>>, store: State<Shared>) -> Result<(), JobError> {
    for item in jobs {
        talk(item.job, item.ctx, store.clone()).await;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "handlers are given what they ask for")]
fn talk_blocking(job: Talk, ctx: Ctx, store: State<Shared>) {
    for n in 0..job.lines {
        store.waiting.note(ctx.active.waiting_lines());
        ctx.log(numbered(n, job.bytes));
    }
}

type Handled = fn(WorkerBuilder) -> WorkerBuilder;

const HANDLERS: [(&str, Handled); 3] = [
    ("async", |builder| builder.handle(talk)),
    ("blocking", |builder| builder.handle_blocking(talk_blocking)),
    ("batch", |builder| builder.handle_batch(3, talk_batch)),
];

/// Runs jobs that log as `job` says, with a keeper that does not look by itself, and checks that all lines are stored.
async fn all_lines_are_stored(handle: Handled, lines: usize, bytes: usize) -> Shared {
    let store = store();
    let worker = handle(worker(&store, NEVER)).build().unwrap();
    let stopper = worker.stopper();
    let test = async {
        let jobs = (0..3).map(|_| Talk { lines, bytes });
        for ticket in client(&store).enqueue_all(jobs).await.unwrap() {
            let ticket = ticket.unwrap();
            assert_eq!(ticket.wait(HANG_GUARD).await.unwrap(), Waited::Succeeded(()));
            let stored = lines_of(&store, ticket.id()).await;
            assert_eq!(stored.len(), lines);
            assert!(stored.iter().enumerate().all(|(n, line)| *line == numbered(n, bytes)));
        }
        stopper.drain();
    };
    tokio::join!(worker.run_until_stopped(), test).0.unwrap();
    store
}

#[tokio::test]
async fn a_handler_that_logs_faster_than_lines_are_stored_waits_and_loses_none() {
    for (name, handle) in HANDLERS {
        let store = all_lines_are_stored(handle, 25_000, 5).await;
        let most = store.waiting.most().lines;
        assert!(most < LINES_FULL + BURST, "{name}: {most} lines waited when it went on");
    }
}

#[tokio::test]
async fn calls_that_append_lines_are_small_however_long_the_lines_are() {
    for (name, handle) in HANDLERS {
        let store = all_lines_are_stored(handle, 1_000, 32_000).await;
        let most = store.waiting.most().bytes;
        assert!(most < LINE_BYTES_FULL + BURST * 32_000, "{name}: {most} bytes waited when it went on");
        let (lines, bytes) = *store.largest.lock();
        assert!(lines <= CALL.lines && bytes <= CALL.bytes, "{name}: {lines} lines of {bytes} bytes in one call");
    }
}

#[tokio::test]
async fn lines_of_several_jobs_in_one_call_are_bounded_together() {
    async fn talk_and_wait(job: Talk, ctx: Ctx) {
        for n in 0..job.lines {
            ctx.log(numbered(n, job.bytes));
        }
        ctx.stopped().await;
    }
    let store = store();
    let jobs = (0..16).map(|_| Talk { lines: 500, bytes: 2_000 });
    let tickets = client(&store).enqueue_all(jobs).await.unwrap();
    let worker = worker(&store, Duration::from_millis(1)).handle(talk_and_wait).build().unwrap();
    let stopper = worker.stopper();
    let test = async {
        for ticket in tickets {
            let job = ticket.unwrap().id();
            let stored = async {
                while lines_of(&store, job).await.len() < 500 {
                    // sleeps because: no signal tells that lines were stored
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(HANG_GUARD, stored).await.expect("all lines are stored");
        }
        stopper.stop_now();
    };
    tokio::join!(worker.run_until_stopped(), test).0.unwrap();
    let (lines, bytes) = *store.largest.lock();
    assert!(lines <= CALL.lines && bytes <= CALL.bytes, "{lines} lines of {bytes} bytes in one call");
}

/// A job that is held, and what its handler would have.
pub(super) async fn held(store: Arc<dyn Store>) -> (World, Active) {
    let client = Client::new(Arc::clone(&store));
    client.enqueue(Talk { lines: 0, bytes: 0 }).await.unwrap();
    let request = ClaimRequest {
        worker: "w".try_into().unwrap(),
        request_id: 1,
        queues: vec!["default".try_into().unwrap()],
        kinds: Kinds::Any,
        labels: Labels::default(),
        max: 1,
        lease_ms: 60_000,
    };
    let active = Active::new(store.claim(request).await.unwrap().jobs[0].lease, now());
    let world = World {
        client,
        state: HashMap::new(),
        clock: Arc::new(SystemClock),
        lease_clock: Arc::new(BootClock),
        attempts: Attempts::new(),
        log_calls: LogCalls::default(),
        pool: Pool::new(1, tokio::runtime::Handle::current()),
    };
    (world, active)
}

pub(super) fn line(text: impl Into<Bytes>) -> LogLine {
    LogLine { at: Timestamp::from_ms(0), stream: LogStream::Stdout, text: text.into() }
}

#[tokio::test]
async fn however_much_is_said_little_is_held_and_nothing_is_lost() {
    let store = crate::open("memory://").unwrap();
    let calls = AtomicU32::new(0);
    // Now and then the store is away, or its answer gets lost.
    let choose = move |method| match (method, calls.fetch_add(1, Ordering::Relaxed) % 10) {
        (Method::AppendLogs, 3) => Fault::Before,
        (Method::AppendLogs, 7) => Fault::Lost,
        _ => Fault::Pass,
    };
    let (world, active) = held(Arc::new(Faulty::new(Arc::clone(&store), FaultPlan::by(choose)))).await;
    let (most, at_once) = (200_000, 500);
    let mut held_most = 0;
    for first in (0..most).step_by(at_once) {
        push_all(&world, &active, (first..first + at_once).map(|n| line(n.to_string())).collect()).await;
        held_most = held_most.max(active.waiting_lines().lines);
    }
    assert!(held_most < LINES_FULL, "held {held_most}");
    let rest = active.waiting_lines().lines;
    let from = (most - rest - 10_000) as u64;
    let page = store.read_logs(LogRequest { job: active.lease.job, from, limit: 10_000 }).await.unwrap();
    assert_eq!(page.next, (most - rest) as u64);
    assert!((from..).zip(&page.lines).all(|(n, (_, line))| line.text == n.to_string()));
    for _ in 0..200 {
        push_all(&world, &active, vec![line("x".repeat(LOG_LINE_BYTES_MAX))]).await;
        let bytes = active.waiting_lines().bytes;
        assert!(bytes < LINE_BYTES_FULL, "held {bytes} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn an_append_that_never_returns_does_not_hold_up_the_lines_of_other_jobs() {
    let store = crate::open("memory://").unwrap();
    let first = AtomicBool::new(true);
    let choose = move |method| match method {
        Method::AppendLogs if first.swap(false, Ordering::SeqCst) => Fault::Hang,
        _ => Fault::Pass,
    };
    let (world, one) = held(Arc::new(Faulty::new(Arc::clone(&store), FaultPlan::by(choose)))).await;
    let other = Active::new(one.lease, now());
    let full = || vec![line("x"); LINES_FULL];
    tokio::select! {
        biased;
        () = push_all(&world, &one, full()) => panic!("it never returns"),
        () = push_all(&world, &other, full()) => {}
    }
    assert!(!other.is_full());
}

/// An append that was dropped may have been applied: its number is asked for again.
#[tokio::test]
async fn lines_after_an_append_that_was_dropped_are_stored() {
    let store = crate::open("memory://").unwrap();
    let appends = AtomicU32::new(0);
    let choose = move |method| match method {
        // The first asks for a number; the second is applied, and nobody waits for its answer.
        Method::AppendLogs if appends.fetch_add(1, Ordering::SeqCst) == 1 => Fault::Delay(1),
        _ => Fault::Pass,
    };
    let (world, active) = held(Arc::new(Faulty::new(Arc::clone(&store), FaultPlan::by(choose)))).await;
    {
        let mut push = std::pin::pin!(push_all(&world, &active, vec![line("a"); LINES_FULL]));
        let stored =
            async || store.read_logs(LogRequest { job: active.lease.job, from: 0, limit: 1 }).await.unwrap().next;
        while stored().await == 0 {
            assert!(futures::poll!(push.as_mut()).is_pending(), "its answer is delayed");
        }
    }
    let before = store.read_logs(LogRequest { job: active.lease.job, from: 0, limit: 1 }).await.unwrap().next;
    push_all(&world, &active, vec![line("b"); LINES_FULL]).await;
    let page = store.read_logs(LogRequest { job: active.lease.job, from: before, limit: 10_000 }).await.unwrap();
    let waiting = active.waiting_lines().lines;
    assert_eq!(
        page.lines.len() + waiting,
        2 * LINES_FULL - usize::try_from(before).unwrap(),
        "none was taken for a repeated one"
    );
}

#[tokio::test]
async fn a_line_stands_for_those_that_were_left_out() {
    let (_, active) = held(crate::open("memory://").unwrap()).await;
    for n in 0..10_005 {
        active.push_log(vec![line(n.to_string())]);
    }
    let all = Portion { lines: usize::MAX, bytes: usize::MAX };
    assert_eq!(active.take_lines(all, true).len(), 10_000);
    active.push_log(vec![line("later")]);
    let texts: Vec<Bytes> = active.take_lines(all, true).into_iter().map(|line| line.text).collect();
    assert!(texts[0].starts_with(b"(5 lines were left out"), "{texts:?}");
    assert_eq!(texts[1..], ["later"]);
}

/// A store whose appends take a while.
struct SlowAppends(MemoryStore, Duration);

/// A client and a worker of such a store.
fn slow_appends(time: Duration) -> (Client, WorkerBuilder) {
    let store: Arc<dyn Store> = Arc::new(Wrapped(SlowAppends(MemoryStore::new(), time)));
    (Client::new(Arc::clone(&store)), Worker::builder(store).without_runs())
}

#[async_trait]
impl Wrap for SlowAppends {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn append_logs(&self, appends: Vec<LogAppend>) -> Result<Vec<Result<u64>>> {
        // sleeps because: the store is slow
        tokio::time::sleep(self.1).await;
        self.0.append_logs(appends).await
    }
}

#[tokio::test]
async fn the_last_lines_of_a_handler_that_panicked_are_stored_by_a_slow_store() {
    async fn panics(_: Talk, ctx: Ctx) {
        ctx.log("the last words");
        panic!("no more");
    }
    // A worker that leaves waits for half a second.
    let (client, worker) = slow_appends(Duration::from_millis(600));
    let ticket = client.enqueue_with(Talk { lines: 0, bytes: 0 }, Options::new().attempts(1)).await.unwrap();
    let worker = worker.handle(panics).build().unwrap();
    let (stopper, job) = (worker.stopper(), ticket.id());
    let test = async {
        let ended = ticket.wait(HANG_GUARD).await.unwrap();
        assert!(matches!(&ended, Waited::Failed(Some(failure)) if failure.message == "no more"), "{ended:?}");
        stopper.drain();
    };
    tokio::join!(worker.run_until_stopped(), test).0.unwrap();
    let page = client.store().read_logs(LogRequest { job, from: 0, limit: 10 }).await.unwrap();
    assert_eq!(page.lines.len(), 1);
}

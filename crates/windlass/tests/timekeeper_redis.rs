//! When the process that keeps time on Redis dies or stops, another takes over: when one process dies, leases are reaped at most 2 s late.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::Arc;
use std::time::Duration;
use support::{LONG, Task};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use windlass::core::store::Store;
use windlass::core::time::{Clock as _, SystemClock, Timestamp};
use windlass::{Client, Ctx, JobError, State, Worker};
use windlass_servers::Redis;

/// The bar: how late a lease may be reaped and its job be started again.
const LATE_MS_MAX: u64 = 2_000;
const LEASE: Duration = Duration::from_secs(1);

type Starts = mpsc::UnboundedSender<(String, Timestamp)>;

/// Runs until its process is gone.
async fn hang(_job: Task, ctx: Ctx, worker: State<String>, starts: State<Starts>) -> Result<u32, JobError> {
    starts.send((worker.0.to_string(), SystemClock.now())).unwrap();
    ctx.stopped().await;
    Err(JobError::new("stopped"))
}

struct Fleet {
    server: Redis,
    client: Client,
    starts: Starts,
    started: mpsc::UnboundedReceiver<(String, Timestamp)>,
}

impl Fleet {
    fn new() -> Self {
        let server = Redis::start().unwrap();
        let client = Client::new(windlass::open(&server.url()).unwrap());
        let (starts, started) = mpsc::unbounded_channel();
        Self { server, client, starts, started }
    }

    fn worker(&self, id: &str) -> Worker {
        // A store of its own, as a process has.
        let store = windlass::open(&self.server.url()).unwrap();
        let builder = Worker::builder(store).id(id).slots(1).lease(LEASE).state(id.to_owned());
        builder.state(self.starts.clone()).handle(hang).build().unwrap()
    }

    /// Starts a worker and waits until the store lists it.
    #[expect(clippy::disallowed_methods, reason = "the test's own task")]
    async fn start(&self, id: &str) -> JoinHandle<windlass::Result<()>> {
        let running = tokio::spawn(self.worker(id).run_until_stopped());
        self.until(|| async { self.listed(id).await }).await;
        running
    }

    async fn listed(&self, id: &str) -> bool {
        let store: &Arc<dyn Store> = self.client.store();
        store.workers().await.unwrap().iter().any(|worker| worker.beat.worker.as_str() == id)
    }

    async fn until<F: Future<Output = bool>>(&self, holds: impl Fn() -> F) {
        let polls = async {
            while !holds().await {
                // sleeps because: the server is asked again and again whether it has come to that
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LONG, polls).await.expect("it never comes to that");
    }

    fn ask(&self, words: &[&str]) -> String {
        self.server.command(words).unwrap()
    }

    /// Returns just after the timekeeper has renewed its hint.
    async fn until_renewed(&self) {
        let left_ms = || self.ask(&["PTTL", "{windlass}:timekeeper"]).parse::<i64>().unwrap();
        let mut least = left_ms();
        let renewed = || {
            let now = left_ms();
            let grew = now > least + 100;
            least = least.min(now);
            grew
        };
        let renewed = std::cell::RefCell::new(renewed);
        self.until(|| async { (renewed.borrow_mut())() }).await;
    }

    async fn next_start(&mut self) -> (String, Timestamp) {
        tokio::time::timeout(LONG, self.started.recv()).await.expect("no handler starts").unwrap()
    }
}

/// The longest time by which a thread of this process ran later than it should: on a machine that is busy otherwise, everything
/// here takes that much longer.
struct Delays(Arc<std::sync::atomic::AtomicU64>);

impl Delays {
    #[expect(clippy::disallowed_methods, reason = "the real delays of the machine are measured")]
    fn start() -> Self {
        let longest = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let weak = Arc::downgrade(&longest);
        std::thread::spawn(move || {
            const STEP: Duration = Duration::from_millis(5);
            while let Some(longest) = weak.upgrade() {
                let begun = std::time::Instant::now();
                // sleeps because: that it takes longer than this is what is measured
                std::thread::sleep(STEP);
                let over = u64::try_from(begun.elapsed().saturating_sub(STEP).as_millis()).unwrap();
                longest.fetch_max(over, std::sync::atomic::Ordering::Relaxed);
            }
        });
        Self(longest)
    }

    fn longest_ms(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// The worst case: the timekeeper has just renewed its hint, and holds a job whose lease ends long before the hint does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_lease_is_reaped_in_time_when_its_worker_was_the_timekeeper() {
    let mut fleet = Fleet::new();
    let delays = Delays::start();
    let first = fleet.start("first").await;
    fleet.client.enqueue(Task { n: 0 }).await.unwrap();
    assert_eq!(fleet.next_start().await.0, "first");
    let others = [fleet.start("second").await, fleet.start("third").await];
    // Both have asked for the hint by then.
    fleet.until_renewed().await;
    fleet.until_renewed().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    // The thread that renews its leases has ended, too: from here on nothing of it reaches the store.
    fleet.until(|| async { !fleet.listed("first").await }).await;
    let ends_ms: f64 =
        fleet.ask(&["ZRANGE", "{windlass}:leases", "0", "0", "WITHSCORES"]).lines().nth(1).unwrap().parse().unwrap();
    #[expect(clippy::cast_possible_truncation, reason = "milliseconds since 1970")]
    let ends_at = Timestamp::from_ms(ends_ms as i64);
    let (worker, started_at) = fleet.next_start().await;
    let late_ms = started_at.ms_since(ends_at);
    let machine_ms = delays.longest_ms();
    println!(
        "{worker} started the job {late_ms} ms after its lease had ended; the machine delays threads by {machine_ms} ms"
    );
    // Several threads and the server take part in it, one after the other.
    assert!(late_ms <= LATE_MS_MAX + 5 * machine_ms, "{late_ms} ms late, machine {machine_ms} ms");
    others.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_timekeeper_that_stops_leaves_no_gap() {
    let fleet = Fleet::new();
    let first = fleet.worker("first");
    let stopper = first.stopper();
    #[expect(clippy::disallowed_methods, reason = "the test's own task")]
    let first = tokio::spawn(first.run_until_stopped());
    let holder = || fleet.ask(&["GET", "{windlass}:timekeeper"]);
    fleet.until(|| async { !holder().is_empty() }).await;
    let held = holder();
    stopper.drain();
    first.await.unwrap().unwrap();
    assert_eq!(holder(), "-", "it was {held:?}");
}

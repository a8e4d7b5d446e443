//! A fleet that has nothing to do leaves the server alone, and is there at once when something comes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use windlass::{Client, Job, JobError, Worker};
use windlass_servers::Redis;

/// Each with a store, connections, a keeper and maintenance of its own, as a process has.
const WORKERS: usize = 100;
/// Commands per second, those inside scripts included.
const BUDGET: u64 = 100;
const LOOK: Duration = Duration::from_secs(30);

static DONE: AtomicU64 = AtomicU64::new(0);

#[derive(Serialize, Deserialize)]
struct Task;
impl Job for Task {
    const KIND: &'static str = "task";
    type Output = ();
}

async fn task(_job: Task) -> Result<(), JobError> {
    DONE.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Commands that the server has run so far, by name.
fn commands(server: &Redis) -> Vec<(String, u64)> {
    let stats = server.command(&["INFO", "commandstats"]).unwrap();
    let of = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    stats.lines().filter_map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the test's own tasks")]
async fn slow_an_idle_fleet_costs_the_server_little_and_wakes_at_once() {
    let server = Redis::start().unwrap();
    let mut stops = Vec::new();
    for _ in 0..WORKERS {
        let store = windlass::open(&server.url()).unwrap();
        let worker = Worker::builder(store).slots(4).handle(task).build().unwrap();
        stops.push(worker.stopper());
        tokio::spawn(worker.run_until_stopped());
    }
    let client = Client::new(windlass::open(&server.url()).unwrap());
    // Once through, so that the queue and its lane are there and everybody has planned by them.
    client.enqueue(Task).await.unwrap();
    // sleeps because: the fleet has to come to rest, and then rests: what it does meanwhile is what is counted.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(DONE.load(Ordering::Relaxed), 1);
    let before = commands(&server);
    // sleeps because: see above.
    tokio::time::sleep(LOOK).await;
    let after = commands(&server);
    let sum = |all: &[(String, u64)]| all.iter().map(|(_, calls)| calls).sum::<u64>();
    let per_s = (sum(&after) - sum(&before)) / LOOK.as_secs();
    let old = |name: &str| before.iter().find(|(known, _)| known == name).map_or(0, |(_, calls)| *calls);
    for (name, calls) in &after {
        println!("{name}: {} in {} s", calls - old(name), LOOK.as_secs());
    }
    println!("{per_s} commands/s by {WORKERS} idle workers");
    assert!(per_s < BUDGET, "{per_s} commands/s");

    // The poll is 20 s away; a bell is not.
    client
        .enqueue(Task)
        .await
        .unwrap()
        .wait(Duration::from_secs(5))
        .await
        .unwrap()
        .success()
        .expect("nobody was woken");
    assert_eq!(DONE.load(Ordering::Relaxed), 2);
    stops.into_iter().for_each(|stop| stop.stop_now());
}

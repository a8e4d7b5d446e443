//! The examples of durable workflows as real processes that are killed again and again.
//!
//! Each example runs over files that outlive it, is killed with SIGKILL at moments drawn from a seed, and is started again until
//! it ends by itself. Then the files are compared with what it printed.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use windlass::core::random::{Random, StrongRandom};
use windlass::core::store::{Run, RunList};
use windlass::core::time::HANG_GUARD;

/// How often an example is killed before it ends.
const KILLS: u32 = 6;

/// One process of an example.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(example: &Example) -> Self {
        let mut command = Command::new(executable(example.name));
        command.arg(&example.url).arg(example.bank());
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("the example starts");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads to the end of the output, which is that of the process.
    async fn read_to_end(&mut self) -> Vec<String> {
        let mut printed = Vec::new();
        while let Some(line) = self.lines.next_line().await.unwrap() {
            printed.push(line);
        }
        printed
    }
}

/// `cargo xtask test` and `cargo test` build the examples before the tests, into the folder next to theirs.
fn executable(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples").join(example);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace --examples`", path.display());
    path
}

/// An example and its files.
struct Example {
    name: &'static str,
    url: String,
    folder: tempfile::TempDir,
}

impl Example {
    fn new(name: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { name, url: format!("sqlite://{}/jobs.db", folder.path().display()), folder }
    }

    fn bank(&self) -> PathBuf {
        self.folder.path().join("bank")
    }

    /// What was booked, as the names of the files.
    fn bookings(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.bank()).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Kills the example `KILLS` times, each time up to `up_to_ms` after its first line, and then lets it end. Returns what the last
    /// process printed.
    async fn run_with_kills(&self, seed: u64, up_to_ms: u64) -> Vec<String> {
        let random = StrongRandom::seeded(seed);
        let mut alive = 0;
        for _ in 0..KILLS {
            let mut process = Process::start(self);
            let first = tokio::time::timeout(HANG_GUARD, process.lines.next_line()).await.expect("a first line");
            assert!(first.unwrap().is_some(), "the example prints a line");
            let after = Duration::from_millis(random.next_u64() % up_to_ms);
            // sleeps because: the moment of the kill is drawn from the seed
            let ended = tokio::time::timeout(after, process.read_to_end()).await;
            alive += u32::from(ended.is_err());
            process.child.kill().await.unwrap();
        }
        println!("{}: seed {seed}, {alive} of {KILLS} kills before its end", self.name);
        let mut process = Process::start(self);
        let printed = tokio::time::timeout(HANG_GUARD, process.read_to_end()).await.expect("the example ends");
        let status = process.child.wait().await.unwrap();
        assert!(status.success(), "{status}: {printed:#?}");
        assert!(alive > 0, "every process had ended before its kill");
        printed
    }

    /// The runs; none of them may be stuck or open.
    async fn ended_runs(&self) -> Vec<Run> {
        let store = windlass::open(&self.url).unwrap();
        let runs = store.list_runs(RunList::new(100)).await.unwrap().runs;
        assert!(runs.iter().all(|run| run.state.is_terminal() && run.stuck.is_none()), "{runs:#?}");
        runs
    }
}

/// The parts of the name of a booking: what, for whom, and the id of the job with all of its hyphens.
fn parts(booking: &str) -> (&str, u32, &str) {
    let (what, rest) = booking.split_once('-').unwrap();
    let (number, rest) = rest.split_once('-').unwrap();
    (what, number.parse().unwrap(), rest)
}

async fn orders(seed: u64) {
    let example = Example::new("durable_order");
    let printed = example.run_with_kills(seed, 120).await;
    let bookings = example.bookings();
    let mut booked: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for booking in &bookings {
        let (what, order, _job) = parts(booking);
        booked.entry(order).or_default().push(what);
    }
    assert_eq!(booked.keys().copied().collect::<Vec<_>>(), (1..=40).collect::<Vec<_>>());
    for (order, mut booked) in booked {
        booked.sort_unstable();
        let shipped = printed.contains(&format!("order {order}: shipped as parcel {order}"));
        assert_eq!(shipped, !order.is_multiple_of(3) && !order.is_multiple_of(5), "{order}: {printed:#?}");
        let expected: &[&str] = if shipped { &["charge"] } else { &["charge", "refund"] };
        assert_eq!(booked, expected, "order {order}");
    }
    assert_eq!(example.ended_runs().await.len(), 40);
    let refunds = bookings.iter().filter(|booking| booking.starts_with("refund")).count();
    println!("40 runs, {} charges, {refunds} refunds", bookings.len() - refunds);
}

#[tokio::test]
async fn slow_killed_orders_are_charged_once_and_refunded_once_if_not_shipped() {
    for seed in 1..=3 {
        orders(seed).await;
    }
}

async fn periods(seed: u64) {
    let example = Example::new("durable_subscription");
    let printed = example.run_with_kills(seed, 600).await;
    let bookings = example.bookings();
    let charged: Vec<(u32, u64)> = bookings
        .iter()
        .map(|booking| {
            let (_, period, rest) = parts(booking);
            (period, rest.split_once('-').unwrap().0.parse().unwrap())
        })
        .collect();
    let periods: BTreeSet<u32> = charged.iter().map(|(period, _)| *period).collect();
    assert_eq!(periods.len(), charged.len(), "a period is charged twice: {bookings:#?}");
    assert!(periods.iter().copied().eq(0..u32::try_from(periods.len()).unwrap()), "a period is missing: {bookings:#?}");
    assert!(periods.len() >= 12, "{printed:#?}");
    let cents: u64 = charged.iter().map(|(_, cents)| cents).sum();
    let end = format!("ended in several segments: {} periods, {cents} cents", periods.len());
    assert_eq!(printed.last(), Some(&end), "{printed:#?}");
    assert_eq!(example.ended_runs().await.len(), 1);
    println!("{end}");
}

#[tokio::test]
async fn slow_a_killed_subscription_charges_every_period_once() {
    for seed in 1..=3 {
        periods(seed).await;
    }
}

async fn items(seed: u64) {
    let example = Example::new("durable_fan_out");
    let printed = example.run_with_kills(seed, 600).await;
    let sum: u64 = (0..1_000_u64).map(|item| item * item).sum();
    assert_eq!(printed.last(), Some(&format!("1000 items, their squares add up to {sum}")));
    let jobs = windlass::open(&example.url).unwrap().queues().await.unwrap();
    assert!(jobs.iter().all(|queue| queue.counts.succeeded == 1_000 && queue.counts.active == 0), "{jobs:#?}");
    assert_eq!(example.ended_runs().await.len(), 1);
}

#[tokio::test]
async fn slow_a_killed_fan_out_loses_no_item() {
    for seed in 1..=3 {
        items(seed).await;
    }
}

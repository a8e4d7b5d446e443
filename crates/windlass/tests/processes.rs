//! Workers as processes of their own on one SQLite file: signals, kill -9, and a file that somebody else holds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use support::{LONG, Running, Task, stored};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use windlass::core::job::State as JobState;
use windlass::{Client, Ctx, JobError, Waited, Worker};

/// What the child is told through its environment.
const URL: &str = "WINDLASS_TEST_CHILD_URL";
const THREADS: &str = "WINDLASS_TEST_CHILD_THREADS";
const LEASE_MS: &str = "WINDLASS_TEST_CHILD_LEASE_MS";
const SLOTS: usize = 4;
/// A lease that ends soon, for a child that is to be killed or stopped. The others have one that a busy machine does not lose.
const SHORT_MS: u64 = 1_000;
const USUAL_MS: u64 = 30_000;

/// `n` says what the job does.
async fn act(job: Task, ctx: Ctx) -> Result<u32, JobError> {
    println!("started {} {}", job.n, ctx.attempt());
    match job.n {
        // Until it is told, or its process is killed.
        0 if ctx.attempt() == 1 && ctx.spec().metadata.contains_key("hang") => {
            ctx.stopped().await;
            Err(JobError::new("stopped"))
        }
        // For as long as a drain allows.
        1 => {
            // sleeps because: the signal has to come while it works
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(1)
        }
        // For ever, and its thread with it.
        2 => loop {
            std::thread::park();
        },
        // Until a line comes, and its thread with it: the jobs behind it have to wait.
        3 => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            Ok(3)
        }
        n => Ok(n),
    }
}

/// Not a test: the child's program.
#[test]
fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let lease = Duration::from_millis(std::env::var(LEASE_MS).unwrap().parse().unwrap());
    let threads = std::env::var(THREADS).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = windlass::open(&url).unwrap();
        let worker = Worker::builder(store).slots(SLOTS).lease(lease).handle(act).build().unwrap();
        println!("up");
        worker.run().await.unwrap();
        println!("drained");
    });
}

struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    async fn start(url: &str) -> Self {
        Self::start_with(url, USUAL_MS, 3).await
    }

    async fn start_with(url: &str, lease_ms: u64, threads: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env(URL, url);
        command.env(LEASE_MS, lease_ms.to_string()).env(THREADS, threads.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self { child, lines };
        process.until("up").await;
        process
    }

    /// Reads on until a line that contains `words`.
    async fn until(&mut self, words: &str) {
        let read = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(words) {
                    return;
                }
            }
            panic!("the child ended without saying `{words}`");
        };
        tokio::time::timeout(LONG, read).await.unwrap_or_else(|_| panic!("the child does not say `{words}`"));
    }

    /// The starts that it prints before a line that contains `words`.
    async fn starts_until(&mut self, words: &str) -> Vec<String> {
        let mut started = Vec::new();
        let read = async {
            loop {
                let line = self.lines.next_line().await.unwrap().expect("the child goes on");
                match line.find("started ") {
                    Some(_) if line.contains(words) => return,
                    Some(at) => started.push(line[at..].to_owned()),
                    None => {}
                }
            }
        };
        tokio::time::timeout(LONG, read).await.unwrap_or_else(|_| panic!("the child does not say `{words}`"));
        started
    }

    async fn say(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().await.unwrap().success());
    }

    /// Stops it, and returns when all its threads stand still: `kill` returns before that.
    async fn stop(&self) {
        self.signal("STOP").await;
        let threads = format!("/proc/{}/task", self.child.id().unwrap());
        let is_stopped = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
        };
        let stands_still = async {
            while !std::fs::read_dir(&threads).unwrap().all(|thread| thread.is_ok_and(is_stopped)) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, stands_still).await.expect("the process stops");
    }

    async fn exit_code(mut self) -> Option<i32> {
        tokio::time::timeout(LONG, self.child.wait()).await.expect("it ends").unwrap().code()
    }
}

struct Setting {
    _dir: tempfile::TempDir,
    path: std::path::PathBuf,
    url: String,
    client: Client,
}

fn setting() -> Setting {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let url = format!("sqlite://{}", path.display());
    let client = Client::open(&url).unwrap();
    Setting { _dir: dir, path, url, client }
}

fn hang() -> windlass::Options {
    windlass::Options::new().metadata("hang", "yes")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_sigterm_finishes_what_was_started_and_leaves_no_lease() {
    let set = setting();
    let mut worker = Process::start(&set.url).await;
    let ticket = set.client.enqueue(Task { n: 1 }).await.unwrap();
    worker.until("started 1").await;
    worker.signal("TERM").await;
    worker.until("drained").await;
    assert_eq!(worker.exit_code().await, Some(0));
    let store = set.client.store();
    assert_eq!(stored(store, ticket.id()).await.state, JobState::Succeeded);
    assert_eq!(store.workers().await.unwrap(), [], "it said that it leaves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_second_signal_gives_back_what_was_started_at_once() {
    let set = setting();
    let mut worker = Process::start(&set.url).await;
    let ticket = set.client.enqueue_with(Task { n: 0 }, hang()).await.unwrap();
    worker.until("started 0").await;
    worker.signal("INT").await;
    worker.signal("INT").await;
    // Two signals that come at once may be heard as one.
    while worker.child.try_wait().unwrap().is_none() {
        worker.signal("INT").await;
        tokio::task::yield_now().await;
    }
    let job = stored(set.client.store(), ticket.id()).await;
    assert_ne!(job.state, JobState::Active);
    assert_eq!(job.attempt, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_process_whose_handler_blocks_for_good_ends_and_gives_its_job_back() {
    // With a single thread, no other is left to hear the signals.
    for threads in [3, 1] {
        let set = setting();
        let mut worker = Process::start_with(&set.url, USUAL_MS, threads).await;
        let ticket = set.client.enqueue(Task { n: 2 }).await.unwrap();
        worker.until("started 2").await;
        worker.signal("TERM").await;
        // Two signals that come at once are heard as one, so a single second one may not be heard as such.
        let ended = async {
            while worker.child.try_wait().unwrap().is_none() {
                worker.signal("TERM").await;
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, ended).await.expect("it ends");
        assert_eq!(worker.exit_code().await, Some(1));
        assert_eq!(stored(set.client.store(), ticket.id()).await.state, JobState::Ready);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_what_a_killed_process_held_is_finished_by_another() {
    let set = setting();
    let mut doomed = Process::start_with(&set.url, SHORT_MS, 3).await;
    let ticket = set.client.enqueue_with(Task { n: 0 }, hang()).await.unwrap();
    doomed.until("started 0 1").await;
    doomed.child.kill().await.unwrap();
    let stalls = async || stored(set.client.store(), ticket.id()).await.stall_count;
    let before = stalls().await;
    let mut other = Process::start(&set.url).await;
    // It hangs again, on its first attempt: the stall gave the attempt back.
    other.until("started 0 1").await;
    assert_eq!(stalls().await, before + 1);
    let again = set.client.enqueue(Task { n: 7 }).await.unwrap();
    assert_eq!(again.wait(LONG).await.unwrap(), Waited::Succeeded(7));
    other.signal("TERM").await;
    other.child.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_worker_claims_again_when_a_held_file_is_free() {
    async fn double(job: Task) -> Result<u32, JobError> {
        Ok(job.n * 2)
    }
    let set = setting();
    let worker = Running::start(Worker::builder(windlass::open(&set.url).unwrap()).handle(double));
    let before = set.client.enqueue(Task { n: 1 }).await.unwrap();
    assert_eq!(before.wait(LONG).await.unwrap(), Waited::Succeeded(2));
    let ticket = set.client.enqueue_with(Task { n: 21 }, windlass::Options::new().delay(Duration::from_secs(2))).await;
    let ticket = ticket.unwrap();
    // Somebody holds the file for longer than anyone waits for it.
    let held = rusqlite::Connection::open(&set.path).unwrap();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    // sleeps because: the worker has to meet the lock, and its calls wait a while for it
    tokio::time::sleep(Duration::from_secs(7)).await;
    held.execute_batch("ROLLBACK").unwrap();
    // How soon is tested on a virtual clock, in `liveness.rs`.
    assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(42));
    worker.drain().await;
}

/// A process is stopped beyond its leases while jobs wait in it, and goes on when another process has done them. It is stopped
/// while its only thread of handlers is busy, so that no handler is about to start. Returns the jobs that it then starts.
async fn starts_after_a_stop(url: &str, file: Option<&Path>) -> Vec<String> {
    let client = Client::open(url).unwrap();
    let mut stopped = Process::start_with(url, SHORT_MS, 1).await;
    let tasks = std::iter::once(3).chain(10..).take(SLOTS).map(|n| Task { n });
    let tickets: Vec<_> = client.enqueue_all(tasks).await.unwrap().into_iter().map(Result::unwrap).collect();
    stopped.until("started 3").await;
    for ticket in &tickets {
        while stored(client.store(), ticket.id()).await.state != JobState::Active {
            tokio::task::yield_now().await;
        }
    }
    // A process that is stopped while it writes would keep the file locked.
    let lock = file.map(|file| rusqlite::Connection::open(file).unwrap());
    lock.iter().for_each(|lock| lock.busy_timeout(LONG).unwrap());
    lock.iter().for_each(|lock| lock.execute_batch("BEGIN IMMEDIATE").unwrap());
    stopped.stop().await;
    drop(lock);
    // Its handler may go on as soon as the process does.
    stopped.say("go").await;
    let mut other = Process::start(url).await;
    other.say("go").await;
    for ticket in &tickets {
        assert!(matches!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(_)));
    }
    other.child.kill().await.unwrap();
    stopped.signal("CONT").await;
    // What it starts next, it starts on a new lease.
    let last = client.enqueue(Task { n: 99 }).await.unwrap();
    let started = stopped.starts_until("started 99").await;
    assert_eq!(last.wait(LONG).await.unwrap(), Waited::Succeeded(99));
    started
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_process_that_was_stopped_beyond_its_leases_starts_none_of_its_jobs_on_sqlite() {
    let set = setting();
    assert_eq!(starts_after_a_stop(&set.url, Some(&set.path)).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_process_that_was_stopped_beyond_its_leases_starts_none_of_its_jobs_on_redis() {
    let server = windlass_servers::Redis::start().unwrap();
    assert_eq!(starts_after_a_stop(&server.url(), None).await, Vec::<String>::new());
}

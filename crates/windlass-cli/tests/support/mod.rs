//! The real binary in a folder of its own, and the store beneath it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a failed check is a panic; not every test needs all of it"
)]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use windlass::core::id::JobId;
use windlass::core::job::Retry;
use windlass::core::name::{Labels, WorkerId};
use windlass::core::store::{
    Beat, ClaimRequest, ClaimedJob, Filter, JobQueue, Kinds, ListRequest, Outcome, ReportRequest, ScheduleStore,
    WorkerRegistry,
};
use windlass::core::time::{Clock, SystemClock, Timestamp};
use windlass_sqlite::SqliteStore;
use windlass_sqlite::rusqlite::Connection;

/// A folder with a store in it.
pub(crate) struct Scene {
    dir: tempfile::TempDir,
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// It went well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// It ended with this code, and the user saw these words on standard error.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "`{word}` is missing: {self:?}");
        }
        assert!(!self.err.contains("panicked"), "{self:?}");
        self
    }

    /// These words are on standard output.
    #[track_caller]
    pub(crate) fn shows(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.out.contains(word), "`{word}` is missing: {self:?}");
        }
        self
    }

    /// The lines of standard output, each a JSON object.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        self.out.lines().map(parse).collect()
    }

    /// The one JSON object of standard output.
    #[track_caller]
    pub(crate) fn one(&self) -> serde_json::Value {
        let mut all = self.json();
        assert_eq!(all.len(), 1, "{self:?}");
        all.remove(0)
    }
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command, not begun.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(args).current_dir(self.dir.path()).env("WINDLASS_STORE", "sqlite://jobs.db").env("COLUMNS", "100");
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        said(self.command(args).output().unwrap())
    }

    pub(crate) fn run_with(&self, args: &[&str], input: &[u8]) -> Said {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        // Whoever refuses a command may not read its input.
        let _ = child.stdin.take().unwrap().write_all(input);
        said(child.wait_with_output().unwrap())
    }

    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    /// Enqueues a job and answers its id.
    #[track_caller]
    pub(crate) fn enqueue(&self, args: &[&str]) -> JobId {
        let args: Vec<&str> = ["enqueue"].iter().chain(args).copied().collect();
        self.run(&args).ok().out.trim().parse().unwrap()
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path("jobs.db")).unwrap()
    }

    /// The file itself, for damage.
    pub(crate) fn raw(&self) -> Connection {
        Connection::open(self.path("jobs.db")).unwrap()
    }

    /// All that an operator can see, to tell whether anything changed.
    pub(crate) fn seen(&self) -> String {
        if !self.path("jobs.db").exists() {
            return String::new();
        }
        wait(async {
            let store = self.store();
            let jobs = store
                .list(ListRequest { filter: Filter::default(), limit: 1_000, ..Default::default() })
                .await
                .unwrap();
            format!("{jobs:?} {:?} {:?}", store.queues().await.unwrap(), store.schedules().await.unwrap())
        })
    }
}

pub(crate) fn said(Output { status, stdout, stderr }: Output) -> Said {
    Said {
        code: status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Claims one job.
pub(crate) async fn claim(store: &impl JobQueue, queue: &str, lease_ms: u64) -> ClaimedJob {
    static REQUESTS: AtomicU64 = AtomicU64::new(1);
    let worker = WorkerId::new(format!("worker-of-{queue}")).unwrap();
    // Counted, not timed: a store answers two claims with one request id as one claim.
    let request = REQUESTS.fetch_add(1, Ordering::Relaxed);
    let claim = ClaimRequest { lease_ms, ..ClaimRequest::new(worker, request, queue.try_into().unwrap()) };
    store.claim(claim).await.unwrap().jobs.pop().unwrap()
}

/// Returns when this time is over by the clock that the stores go by.
pub(crate) fn until(time: Timestamp) {
    while SystemClock.now() <= time {
        std::thread::yield_now();
    }
}

pub(crate) async fn report(store: &SqliteStore, job: &ClaimedJob, outcome: Outcome) {
    let worker = WorkerId::new(format!("worker-of-{}", job.spec.queue)).unwrap();
    for answer in store.report(ReportRequest { worker, outcomes: vec![outcome] }).await.unwrap() {
        answer.unwrap();
    }
}

/// Claims a job and fails it for good.
pub(crate) async fn fail(store: &SqliteStore, queue: &str, message: &str) -> JobId {
    let job = claim(store, queue, 60_000).await;
    report(store, &job, Outcome::fail(job.lease, message, Retry::Never)).await;
    job.lease.job
}

/// A live worker on a queue.
pub(crate) async fn beat(store: &SqliteStore, queue: &str, kinds: Kinds) {
    let beat = Beat {
        worker: WorkerId::new(format!("worker-of-{queue}")).unwrap(),
        queues: vec![queue.try_into().unwrap()],
        kinds,
        labels: Labels::parse(["linux"]).unwrap(),
        slots: 8,
        running: 3,
        about: "host-1 pid 7".to_owned(),
        ttl_ms: 600_000,
    };
    store.heartbeat(beat).await.unwrap();
}

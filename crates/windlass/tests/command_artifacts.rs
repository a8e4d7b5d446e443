//! Files that commands take from other jobs of their run, and those that they hand on.

#![cfg(all(unix, feature = "commands", feature = "artifacts", feature = "yaml"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::commands::{Steps, TIMEOUT, run, run_with, script_with, time_out};
use support::{LONG, Running, faulty, memory, stored};
use tokio::sync::Notify;
use windlass::artifacts::{
    self, Artifact, ArtifactName, ArtifactResult, ArtifactSource, ArtifactStore, Checked, FileEntry, Limits, Manifest,
    Put, RunKey,
};
use windlass::command::Commands;
use windlass::core::job::{FailureClass, Job as StoredJob, State};
use windlass::core::memory::MemoryStore;
use windlass::core::random::StrongRandom;
use windlass::core::store::{RunState, Store, Sweep, SweepKind};
use windlass::core::time::{Timestamp, VirtualClock};
use windlass::graph::{Graph, Work, yaml};
use windlass::runs::{NewGraphRun, Rerun, RunStatus, Runs};
use windlass::{Client, Options, Ticket, Waited, Worker, WorkerBuilder};
use windlass_conformance::faults::{Fault, Method};

fn kept() -> Arc<dyn ArtifactStore> {
    artifacts::open("memory://").unwrap()
}

/// A job of the run `run-1`.
fn job(run: &str, artifacts: Json) -> Json {
    let mut more = json!({ "run": { "id": "run-1" } });
    more["artifacts"] = artifacts;
    script_with(run, more)
}

/// The artifact `dist` of `run-1`, with one file.
async fn with_dist(content: &str) -> Arc<dyn ArtifactStore> {
    let (store, source) = (kept(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("app"), content).unwrap();
    let put = Put::new(Artifact::new("run-1", "dist").unwrap());
    artifacts::upload(store.as_ref(), &put, source.path(), &["."]).await.unwrap();
    store
}

async fn content(store: &Arc<dyn ArtifactStore>, run: &str, file: &str) -> String {
    let into = tempfile::tempdir().unwrap();
    let artifact = Artifact::new(run, "dist").unwrap();
    artifacts::download(store.as_ref(), &artifact, into.path(), Limits::default()).await.unwrap();
    fs::read_to_string(into.path().join(file)).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_job_leaves_another_one_finds() {
    let store = kept();
    let commands = || Commands::new().artifacts(Arc::clone(&store));
    let build = "mkdir -p target/x; echo app > target/x/app; chmod +x target/x/app; echo a > a.log; echo b > b.log";
    let ran = run(commands(), job(build, json!({ "upload": { "dist": ["target/x", "*.log"] } }))).await;
    assert_eq!(ran.said(), "");
    assert_eq!(ran.log(), "▸ artifact dist: 3 files, 8 B");
    let look = "cat from/here/target/x/app from/here/a.log; test -x from/here/target/x/app; ls -A from/here";
    let ran = run(commands(), job(look, json!({ "download": { "dist": "from/here" } }))).await;
    assert_eq!(ran.said(), "app\na\na.log\nb.log\ntarget");
    assert!(ran.log().starts_with("▸ artifact dist: 3 files, 8 B, put into `from/here`\n"), "{}", ran.log());
    for folder in [".", "./sub/"] {
        let look = format!("cat {folder}/b.log");
        assert_eq!(run(commands(), job(&look, json!({ "download": { "dist": folder } }))).await.said(), "b");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_uploaded_by_a_job_that_fails_and_a_later_attempt_wins() {
    let store = kept();
    let upload = json!({ "upload": { "dist": ["file"] } });
    let failing = job("echo half > file; false", upload.clone());
    run(Commands::new().artifacts(Arc::clone(&store)), failing).await.error();
    let run_key = Artifact::new("run-1", "dist").unwrap().run;
    assert!(store.list(&run_key).await.unwrap().is_empty());

    let second = job("echo $WINDLASS_ATTEMPT > file; [ $WINDLASS_ATTEMPT = 2 ]", upload);
    let commands = Commands::new().artifacts(Arc::clone(&store));
    run_with(commands, second, Options::new().attempts(2)).await.said();
    // A first attempt that comes late.
    let late = tempfile::tempdir().unwrap();
    fs::write(late.path().join("file"), "late").unwrap();
    let put = Put { attempt: 1, ..Put::new(Artifact::new("run-1", "dist").unwrap()) };
    artifacts::upload(store.as_ref(), &put, late.path(), &["file"]).await.unwrap();
    assert_eq!(content(&store, "run-1", "file").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_done_is_said_with_what_to_do() {
    let wants = |name: &str, folder: &str| job("echo ran", json!({ "download": { name: folder } }));
    let ran = run(Commands::new(), wants("dist", "x")).await;
    let advice = "start the worker with `--artifacts DIR` (in Rust: `Commands::artifacts`)";
    assert!(ran.error().contains("`dist`") && ran.error().contains(advice), "{}", ran.error());

    let with_store = |store| Commands::new().artifacts(store);
    let ran = run(with_store(kept()), wants("dist", "x")).await;
    assert!(ran.error().starts_with("there is no artifact `dist` in this run, which has none"), "{}", ran.error());
    let twice = Options::new().attempts(2);
    let ran = run_with(with_store(with_dist("a").await), wants("dits", "x"), twice).await;
    assert!(ran.error().contains("`dits` in this run, only `dist`;"), "{}", ran.error());
    assert_eq!(ran.job.attempt, 1, "another attempt finds nothing else");

    let no_run = script_with("echo ran", json!({ "artifacts": { "upload": { "dist": ["x"] } } }));
    let ran = run(with_store(kept()), no_run).await;
    assert!(ran.error().contains("belongs to no run"), "{}", ran.error());
    let nothing = job("true", json!({ "upload": { "dist": ["missing/*"] } }));
    let ran = run(with_store(kept()), nothing).await;
    assert!(ran.error().contains("`dist` cannot be uploaded") && ran.error().contains("missing/*"), "{}", ran.error());
    let typo = run(with_store(kept()), job("true", json!({ "uplaod": { "dist": ["x"] } }))).await;
    assert!(typo.error().contains("uplaod"), "{}", typo.error());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_put_or_read_outside_of_the_work_folder() {
    let (outside, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink(outside.path(), work.path().join("link")).unwrap();
    let absolute = outside.path().to_str().unwrap().to_owned();
    for folder in ["..", "a/../../b", absolute.as_str(), "link", "link/deep", "a//b", ""] {
        let commands = Commands::new().in_folder(work.path()).artifacts(with_dist("a").await);
        let ran = run(commands, job("echo ran", json!({ "download": { "dist": folder } }))).await;
        if folder.is_empty() {
            // The work folder itself.
            assert_eq!(ran.said(), "ran");
            continue;
        }
        assert!(ran.error().contains("refused"), "{folder}: {}", ran.error());
        assert!(!ran.log().contains("ran"), "{folder}: no step may run");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    for pattern in ["../**", "/etc/hostname", "link/*"] {
        fs::write(outside.path().join("theirs"), "x").unwrap();
        let commands = Commands::new().in_folder(work.path()).artifacts(kept());
        let ran = run(commands, job("true", json!({ "upload": { "dist": [pattern] } }))).await;
        assert!(ran.error().contains("cannot be uploaded"), "{pattern}: {}", ran.error());
    }
}

/// A place that never answers. It notes that it was asked.
#[derive(Debug)]
struct Silent(Arc<Notify>);

impl Silent {
    async fn hang<T>(&self) -> T {
        self.0.notify_one();
        std::future::pending().await
    }
}

#[async_trait]
impl ArtifactStore for Silent {
    async fn put(&self, _: &Put, _: &dyn ArtifactSource) -> ArtifactResult<Manifest> {
        self.hang().await
    }

    async fn manifest(&self, _: &Artifact) -> ArtifactResult<Manifest> {
        self.hang().await
    }

    async fn get(&self, _: &Artifact, _: &FileEntry) -> ArtifactResult<Checked> {
        self.hang().await
    }

    async fn list(&self, _: &RunKey) -> ArtifactResult<Vec<ArtifactName>> {
        self.hang().await
    }

    async fn remove(&self, _: &RunKey) -> ArtifactResult<()> {
        self.hang().await
    }
}

#[tokio::test]
async fn a_place_that_never_answers_is_not_waited_for_longer_than_the_job_may_take() {
    for (artifacts, place) in [
        (json!({ "download": { "dist": "." } }), "the download of artifacts"),
        (json!({ "upload": { "dist": ["file"] } }), "the upload of artifacts"),
    ] {
        let asked = Arc::new(Notify::new());
        let commands = Commands::new().grace(LONG).artifacts(Arc::new(Silent(Arc::clone(&asked))));
        let ran = time_out(commands, job("echo x > file", artifacts), async |_, _| asked.notified().await).await;
        assert_eq!(ran.error(), format!("it took longer than its {} ms, in {place}", TIMEOUT.as_millis()));
        assert_eq!(ran.class(), FailureClass::Timeout);
    }
}

/// An artifact store that accepts the first upload and never answers it. It keeps that upload, so that a test can carry it
/// out late.
#[derive(Debug)]
struct FirstUploadHangs {
    inner: Arc<dyn ArtifactStore>,
    first: Mutex<Option<Put>>,
    began: Notify,
}

impl FirstUploadHangs {
    fn new() -> Arc<Self> {
        Arc::new(Self { inner: kept(), first: Mutex::new(None), began: Notify::new() })
    }

    /// Carries the first upload out, with this content.
    async fn finish_first(&self, content: &str) {
        let source = tempfile::tempdir().unwrap();
        fs::write(source.path().join("file"), content).unwrap();
        let put = self.first.lock().take().expect("an upload has begun");
        artifacts::upload(self.inner.as_ref(), &put, source.path(), &["file"]).await.unwrap();
    }
}

#[async_trait]
impl ArtifactStore for FirstUploadHangs {
    async fn put(&self, put: &Put, source: &dyn ArtifactSource) -> ArtifactResult<Manifest> {
        let is_first = {
            let mut first = self.first.lock();
            let is_first = first.is_none();
            first.get_or_insert_with(|| put.clone());
            is_first
        };
        if is_first {
            self.began.notify_one();
            std::future::pending::<()>().await;
        }
        self.inner.put(put, source).await
    }

    async fn manifest(&self, artifact: &Artifact) -> ArtifactResult<Manifest> {
        self.inner.manifest(artifact).await
    }

    async fn get(&self, artifact: &Artifact, file: &FileEntry) -> ArtifactResult<Checked> {
        self.inner.get(artifact, file).await
    }

    async fn list(&self, run: &RunKey) -> ArtifactResult<Vec<ArtifactName>> {
        self.inner.list(run).await
    }

    async fn remove(&self, run: &RunKey) -> ArtifactResult<()> {
        self.inner.remove(run).await
    }
}

/// A job whose first upload is not answered.
struct Uploading {
    store: Arc<dyn Store>,
    client: Client,
    ticket: Ticket<Steps>,
    kept: Arc<FirstUploadHangs>,
}

impl Uploading {
    /// Returns when the upload has begun, with the worker that runs the job. The worker does not renew leases.
    async fn start(store: Arc<dyn Store>, stalls: u32) -> (Self, Running) {
        let (client, kept) = (Client::new(Arc::clone(&store)), FirstUploadHangs::new());
        let payload = job("echo new > file", json!({ "upload": { "dist": ["file"] } }));
        let ticket = client.enqueue_with(Steps(payload), Options::new().attempts(1).stalls(stalls)).await.unwrap();
        let uploading = Self { store, client, ticket, kept };
        let no_renewals = faulty(&uploading.store, |method| match method {
            Method::Renew => Fault::Before,
            _ => Fault::Pass,
        });
        let worker = Running::start(uploading.worker(no_renewals).slots(1).drain_time(Duration::ZERO));
        tokio::time::timeout(LONG, uploading.kept.began.notified()).await.expect("the job uploads");
        (uploading, worker)
    }

    fn worker(&self, store: Arc<dyn Store>) -> WorkerBuilder {
        let kept = Arc::clone(&self.kept) as Arc<dyn ArtifactStore>;
        Worker::builder(store).commands(Commands::new().artifacts(kept))
    }

    async fn job(&self) -> StoredJob {
        stored(&self.store, self.ticket.id()).await
    }

    /// Runs the job once more, then lets the first upload arrive, which must replace nothing.
    async fn finish(&self) {
        let next = Running::start(self.worker(Arc::clone(&self.store)));
        assert_eq!(self.ticket.wait(LONG).await.unwrap(), Waited::Succeeded(()));
        assert_eq!(self.job().await.attempt, 1, "the number of the attempt is that of the first upload");
        next.drain().await;
        self.kept.finish_first("late").await;
        assert_eq!(content(&self.kept.inner, "run-1", "file").await, "new");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_upload_of_a_last_attempt_that_was_given_back_replaces_nothing() {
    let (uploading, worker) = Uploading::start(memory().0, 1).await;
    worker.drain().await;
    assert_eq!(uploading.job().await.stall_count, 1);
    uploading.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_upload_of_a_worker_that_lost_its_lease_replaces_nothing() {
    let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(0)));
    let store = Arc::new(MemoryStore::with(Arc::clone(&clock) as _, Arc::new(StrongRandom::seeded(1))));
    let (uploading, worker) = Uploading::start(store, 1).await;
    clock.advance_ms(u64::try_from(LONG.as_millis()).unwrap());
    uploading.store.sweep(Sweep { kind: SweepKind::Reap, max: 10 }).await.unwrap();
    assert_eq!(uploading.job().await.stall_count, 1);
    worker.drain().await;
    uploading.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_upload_from_before_an_explicit_retry_replaces_nothing() {
    let (uploading, worker) = Uploading::start(memory().0, 0).await;
    worker.drain().await;
    assert_eq!(uploading.client.retry(uploading.ticket.id()).await.unwrap(), Some(State::Ready));
    uploading.finish().await;
}

/// A workflow in which `use` takes what `make` leaves. Its first run needs two attempts, the next one only one, which must win
/// all the same.
fn handed_on(flag: &Path) -> Graph {
    let text = format!(
        "
jobs:
  make:
    retry: {{ count: 1, delay: 1ms }}
    run: |
      if [ -e {flag} ]; then echo new > file; exit; fi
      echo old > file
      [ $WINDLASS_ATTEMPT = 2 ]
      touch {flag}
  use:
    needs: make
    run: echo \"said=$(cat in/file)\" >> \"$WINDLASS_OUTPUT\"
",
        flag = flag.display()
    );
    let mut graph = yaml::read("test.yml", &text).unwrap_or_else(|problems| panic!("{problems}")).graph;
    let artifacts = [json!({ "upload": { "dist": ["file"] } }), json!({ "download": { "dist": "in" } })];
    for (node, artifacts) in graph.nodes.iter_mut().zip(artifacts) {
        let Work::Job(job) = &mut node.work else { panic!("it is a job") };
        job.payload["artifacts"] = artifacts;
    }
    graph
}

async fn ended(runs: &Runs, run: windlass::core::id::RunId) -> RunStatus {
    runs.wait(run, LONG).await.unwrap().expect("the run ends")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_jobs_of_a_run_hand_files_on_and_those_of_a_rerun_win() {
    let (store, _): (Arc<dyn Store>, _) = memory();
    let (runs, kept) = (Runs::new(Arc::clone(&store)), kept());
    let flag = tempfile::tempdir().unwrap();
    let working = Running::start(Worker::builder(store).commands(Commands::new().artifacts(Arc::clone(&kept))));
    let run = runs.start(NewGraphRun::new(handed_on(&flag.path().join("ran")))).await.unwrap();
    for expected in ["old", "new"] {
        let status = ended(&runs, run).await;
        assert_eq!(status.run.state, RunState::Succeeded, "{:?}", status.progress.nodes);
        assert_eq!(status.progress.nodes[1].outputs["said"], expected);
        if expected == "old" {
            runs.rerun(run, Rerun::All).await.unwrap();
        }
    }
    assert_eq!(content(&kept, &run.to_string(), "file").await, "new");
    working.drain().await;
}

const ROWS: &str = "
jobs:
  list: { run: 'echo \"names=[1, 2, \\\"$LAST\\\"]\" >> \"$WINDLASS_OUTPUT\"', env: { LAST: LAST_ROW } }
  each:
    needs: list
    run: echo ${MATRIX_VALUE} > g
    strategy: { fail-fast: false, matrix: '${{ fromJSON(needs.list.outputs.names) }}' }
    artifacts:
      upload:
        g-${{ matrix.value }}: g
  all:
    needs: each
    run: echo \"said=$(cat 1/g 2/g c/g | tr '\\n' ' ')\" >> \"$WINDLASS_OUTPUT\"
    artifacts: { download: { g-1: 1, g-2: 2, g-c: c } }
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_row_of_a_matrix_uploads_under_a_name_of_its_own() {
    let (store, _): (Arc<dyn Store>, _) = memory();
    let runs = Runs::new(Arc::clone(&store));
    let working = Running::start(Worker::builder(store).commands(Commands::new().artifacts(kept())));
    let start = |last: &str| {
        let text = ROWS.replace("LAST_ROW", last);
        runs.start(NewGraphRun::new(yaml::read("test.yml", &text).unwrap_or_else(|p| panic!("{p}")).graph))
    };
    let status = ended(&runs, start("c").await.unwrap()).await;
    assert_eq!(status.run.state, RunState::Succeeded, "{:?}", status.progress.nodes);
    assert_eq!(status.progress.nodes[2].outputs["said"], "1 2 c ");

    let status = ended(&runs, start("a/b").await.unwrap()).await;
    assert_eq!(status.run.state, RunState::Failed);
    let errors: Vec<&str> = status.progress.nodes[1].instances.iter().filter_map(|one| one.error.as_deref()).collect();
    let expected = "its job could not be made: `g-${{ matrix.value }}` names no artifact: ";
    assert!(errors.len() == 1 && errors[0].starts_with(expected) && errors[0].contains("`g-a/b`"), "{errors:?}");
    working.drain().await;
}

//! Running commands, for the tests of them.

#![allow(dead_code, reason = "each test uses some of it")]

use super::{LONG, Running, memory, stored};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use windlass::command::{Commands, KIND};
use windlass::core::id::JobId;
use windlass::core::job::{FailureClass, Job as StoredJob};
use windlass::core::retry::RetryPolicy;
use windlass::core::store::{LogRequest, LogStream, Store};
use windlass::{Client, Job, Options, Ticket, Waited, Worker};

/// A job that runs commands: its payload.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Steps(pub(crate) Json);

impl Job for Steps {
    const KIND: &'static str = KIND;
    type Output = ();

    fn options(&self) -> Options {
        Options::new().attempts(1).retry(RetryPolicy::Fixed { delay_ms: 1 })
    }
}

/// A job of one step.
pub(crate) fn script(run: &str) -> Json {
    json!({ "steps": [{ "run": run }] })
}

/// The same with more said of it.
pub(crate) fn script_with(run: &str, more: Json) -> Json {
    let (Json::Object(mut payload), Json::Object(more)) = (script(run), more) else { panic!("it is a map") };
    payload.extend(more);
    Json::Object(payload)
}

/// What became of a job.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ended: Waited<()>,
    pub(crate) job: StoredJob,
    pub(crate) lines: Vec<(LogStream, Vec<u8>)>,
}

impl Ran {
    /// What it said on standard output.
    #[track_caller]
    pub(crate) fn said(&self) -> String {
        assert_eq!(self.ended, Waited::Succeeded(()), "{:?}", self.job.failures);
        let said = self.lines.iter().filter(|(stream, _)| *stream == LogStream::Stdout);
        said.map(|(_, text)| String::from_utf8_lossy(text)).collect::<Vec<_>>().join("\n")
    }

    /// All lines, of all streams.
    pub(crate) fn log(&self) -> String {
        self.lines.iter().map(|(_, text)| String::from_utf8_lossy(text)).collect::<Vec<_>>().join("\n")
    }

    /// Why it failed.
    #[track_caller]
    pub(crate) fn error(&self) -> &str {
        let Waited::Failed(Some(failure)) = &self.ended else { panic!("it ended as {:?}: {}", self.ended, self.log()) };
        &failure.message
    }

    #[track_caller]
    pub(crate) fn class(&self) -> FailureClass {
        let Waited::Failed(Some(failure)) = &self.ended else { panic!("it ended as {:?}", self.ended) };
        failure.class
    }
}

/// Runs a job on a worker of its own.
pub(crate) async fn run(commands: Commands, payload: Json) -> Ran {
    run_with(commands, payload, Options::new()).await
}

pub(crate) async fn run_with(commands: Commands, payload: Json, options: Options) -> Ran {
    let (store, client) = memory();
    let worker = Running::start(Worker::builder(store).commands(commands));
    let ran = enqueue_and_wait(&client, payload, options).await;
    worker.drain().await;
    ran
}

pub(crate) async fn enqueue_and_wait(client: &Client, payload: Json, options: Options) -> Ran {
    let ticket = client.enqueue_with(Steps(payload), options).await.unwrap();
    ran(client, &ticket).await
}

async fn ran(client: &Client, ticket: &Ticket<Steps>) -> Ran {
    let ended = ticket.wait(LONG).await.unwrap();
    let lines = log_of(client.store(), ticket.id()).await;
    Ran { ended, job: stored(client.store(), ticket.id()).await, lines }
}

async fn log_of(store: &Arc<dyn Store>, job: JobId) -> Vec<(LogStream, Vec<u8>)> {
    let page = store.read_logs(LogRequest { job, from: 0, limit: 10_000 }).await.unwrap();
    page.lines.into_iter().map(|(_, line)| (line.stream, line.text.to_vec())).collect()
}

/// The timeout of a job that [`time_out`] runs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3_600);

/// Runs a job until `far_enough` returns, and then lets its time run out: by tokio's clock, which is moved, so that the
/// job gets as far as it is meant to on any machine. Needs a runtime of one thread, and commands with a long grace: the
/// worker gives up on the handler when its timeout, its grace and two seconds are over.
pub(crate) async fn time_out(
    commands: Commands,
    payload: Json,
    far_enough: impl AsyncFnOnce(Arc<dyn Store>, JobId),
) -> Ran {
    let (store, client) = memory();
    let worker = Running::start(Worker::builder(Arc::clone(&store)).commands(commands));
    let ticket = client.enqueue_with(Steps(payload), Options::new().timeout(TIMEOUT)).await.unwrap();
    far_enough(store, ticket.id()).await;
    tokio::time::pause();
    tokio::time::advance(TIMEOUT).await;
    tokio::time::resume();
    let ran = ran(&client, &ticket).await;
    worker.drain().await;
    ran
}

/// Returns when the store has two lines of the job.
pub(crate) async fn has_lines(store: Arc<dyn Store>, job: JobId) {
    while log_of(&store, job).await.len() < 2 {
        // sleeps because: no signal tells that lines were stored
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns when `file` holds a line, and answers it.
pub(crate) async fn line_of(file: &Path) -> String {
    let read = async {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if let Some((line, _)) = text.split_once('\n') {
                return line.to_owned();
            }
            // sleeps because: no signal tells that another process has written a file
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, read).await.expect("the command has written its line")
}

/// Returns when the process whose id is in `file` is gone.
pub(crate) async fn gone(file: &Path) {
    let pid: i32 = line_of(file).await.trim().parse().unwrap();
    let gone = async {
        while is_alive(pid) {
            // sleeps because: no signal tells of the end of somebody else's child
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.unwrap_or_else(|_| panic!("the process {pid} still lives"));
}

/// One that has ended and that nobody has waited for is not alive.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ended = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']));
    let id = rustix::process::Pid::from_raw(pid).unwrap();
    !ended && rustix::process::test_kill_process(id).is_ok()
}

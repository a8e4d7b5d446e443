//! How commands end: by themselves, and otherwise; and those that say a lot.

#![cfg(all(unix, feature = "commands"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde_json::{Value as Json, json};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::commands::{Steps, gone, has_lines, line_of, run, script, script_with, time_out};
use support::{LONG, Running, faulty, memory, state, stored};
use windlass::command::Commands;
use windlass::core::job::{FailureClass, State};
use windlass::core::store::{Change, ChangeOp, LogRequest};
use windlass::{Client, Options, Waited, Worker};
use windlass_conformance::faults::{Fault, Method};

/// A process with a child and a grandchild; each writes its id into the folder `$AT`.
const FAMILY: &str = "\
sh -c 'sleep 1000 & echo $! > $AT/grandchild; wait' &
echo $! > $AT/child
echo $$ > $AT/self
wait";
/// The same, and none of them ends when it is asked to.
const STUBBORN: &str = "trap '' TERM\n";

fn family(before: &str, at: &Path) -> Json {
    script_with(&format!("{before}{FAMILY}"), json!({ "env": { "AT": at } }))
}

async fn all_gone(at: &Path) {
    for member in ["self", "child", "grandchild"] {
        gone(&at.join(member)).await;
    }
}

async fn all_up(at: &Path) {
    for member in ["self", "child", "grandchild"] {
        line_of(&at.join(member)).await;
    }
}

async fn cancel(client: &Client, id: windlass::core::id::JobId) {
    let change = Change { id, op: ChangeOp::Cancel };
    client.store().change(vec![change]).await.unwrap().remove(0).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_takes_its_whole_family_along() {
    for (before, grace) in [("", Duration::from_secs(1_000)), (STUBBORN, Duration::from_millis(50))] {
        let (at, base) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (store, client) = memory();
        let commands = Commands::new().grace(grace).work_dir(base.path());
        let worker = Running::start(Worker::builder(store).commands(commands));
        let ticket = client.enqueue(Steps(family(before, at.path()))).await.unwrap();
        all_up(at.path()).await;
        cancel(&client, ticket.id()).await;
        assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Cancelled);
        all_gone(at.path()).await;
        worker.drain().await;
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_job_whose_time_is_over_may_say_goodbye() {
    let at = tempfile::tempdir().unwrap();
    let before = "trap 'echo goodbye; exit 0' TERM\n";
    let commands = Commands::new().grace(Duration::from_secs(1_000));
    let ran = time_out(commands, family(before, at.path()), async |_, _| all_up(at.path()).await).await;
    assert_eq!(ran.class(), FailureClass::Timeout);
    assert!(ran.error().starts_with("it took longer than its 3600000 ms, in step `trap"), "{}", ran.error());
    assert!(ran.error().ends_with("; its last lines:\ngoodbye"), "{}", ran.error());
    all_gone(at.path()).await;
    let at = tempfile::tempdir().unwrap();
    let commands = Commands::new().grace(Duration::from_millis(50));
    let ran = time_out(commands, family(STUBBORN, at.path()), async |_, _| all_up(at.path()).await).await;
    assert_eq!(ran.class(), FailureClass::Timeout);
    all_gone(at.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_step_leaves_running_ends_with_it() {
    let at = tempfile::tempdir().unwrap();
    let steps = json!({
        "steps": [
            { "run": "trap '' TERM; sleep 1000 & echo $! > $AT/left; echo done" },
            { "run": "echo next" },
        ],
        "env": { "AT": at.path() },
    });
    assert_eq!(run(Commands::new(), steps).await.said(), "done\nnext");
    gone(&at.path().join("left")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_leaves_its_group_does_not_hold_up_the_job() {
    let at = tempfile::tempdir().unwrap();
    let text =
        "setsid sh -c 'echo $$ > $AT/left; exec sleep 1000' &\nuntil [ -s $AT/left ]; do sleep 0.01; done; echo done";
    let ran = run(Commands::new(), script_with(text, json!({ "env": { "AT": at.path() } }))).await;
    assert_eq!(ran.said(), "done");
    let pid = line_of(&at.path().join("left")).await.parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_goes_gives_the_job_back_without_its_processes() {
    // The first has a moment to clean up.
    for before in ["trap 'sleep 0.1; echo bye > $AT/bye; exit 0' TERM\n", STUBBORN] {
        let at = tempfile::tempdir().unwrap();
        let (store, client) = memory();
        let worker = Running::start(Worker::builder(Arc::clone(&store)).commands(Commands::new()));
        let twice = Options::new().attempts(2);
        let ticket = client.enqueue_with(Steps(family(before, at.path())), twice).await.unwrap();
        all_up(at.path()).await;
        worker.stopper.stop_now();
        let health = worker.health.clone();
        worker.ended().await;
        assert_eq!(health.stuck(), 0);
        assert_eq!(state(&store, ticket.id()).await, State::Ready);
        assert!(stored(&store, ticket.id()).await.failures.is_empty(), "it is given back, not failed");
        all_gone(at.path()).await;
        assert_eq!(at.path().join("bye").exists(), before != STUBBORN);
    }
}

#[tokio::test]
async fn a_flood_of_lines_does_not_keep_a_job_from_its_end() {
    let (long, short) = (Duration::from_secs(1_000), Duration::from_millis(50));
    for (text, grace) in [("yes", long), ("yes >&2 & yes", long), ("trap '' TERM; yes", short)] {
        let ran = time_out(Commands::new().grace(grace), script(text), has_lines).await;
        assert_eq!(ran.class(), FailureClass::Timeout);
        // The worker may have given up on the handler of the one that is not asked for long.
        let given_up = grace == short && ran.error() == "it took longer than its 3602050 ms";
        assert!(ran.error().ends_with("y\ny") || given_up, "{}", ran.error());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_lost_lease_ends_the_commands_of_whoever_has_lost_it() {
    let at = tempfile::tempdir().unwrap();
    let (store, client) = memory();
    let cut = Arc::new(AtomicBool::new(false));
    let is_cut = Arc::clone(&cut);
    let renews = move |method| method == Method::Renew && is_cut.load(Ordering::SeqCst);
    let deaf = faulty(&store, move |method| if renews(method) { Fault::Before } else { Fault::Pass });
    let worker = Worker::builder(deaf).lease(Duration::from_millis(2_000)).commands(Commands::new());
    let worker = Running::start(worker);
    // The second time it has nothing to do.
    let ticket = client.enqueue(Steps(family("[ -e $AT/self ] && exit 0\n", at.path()))).await.unwrap();
    all_up(at.path()).await;
    cut.store(true, Ordering::SeqCst);
    while stored(&store, ticket.id()).await.stall_count == 0 {
        // sleeps because: no signal tells that the store has taken a lease away
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cut.store(false, Ordering::SeqCst);
    assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(()));
    all_gone(at.path()).await;
    worker.drain().await;
}

#[test]
fn a_handler_that_is_dropped_leaves_nothing_behind() {
    let (at, base) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let first = runtime();
    first.block_on(async {
        let (store, client) = memory();
        let worker = Running::start(Worker::builder(store).commands(Commands::new().work_dir(base.path())));
        client.enqueue(Steps(family(STUBBORN, at.path()))).await.unwrap();
        all_up(at.path()).await;
        drop(worker);
    });
    first.shutdown_timeout(LONG);
    runtime().block_on(all_gone(at.path()));
    assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
}

const AT: &str = "WINDLASS_TEST_CHILD_AT";
const FIXED: &str = "WINDLASS_TEST_CHILD_FIXED";

/// Not a test: a worker that will be killed.
#[test]
fn child() {
    let Ok(at) = std::env::var(AT) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, client) = memory();
        client.enqueue(Steps(family(STUBBORN, Path::new(&at)))).await.unwrap();
        let commands = Commands::new();
        let commands = if std::env::var(FIXED).is_ok() { commands.in_folder(at) } else { commands };
        Worker::builder(store).commands(commands).build().unwrap().run_until_stopped().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_takes_its_commands_and_their_folder_along() {
    for fixed in [false, true] {
        let (at, base) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env(AT, at.path()).env("TMPDIR", base.path());
        command.envs(fixed.then_some((FIXED, "1"))).stdout(Stdio::null()).kill_on_drop(true);
        let mut worker = command.spawn().unwrap();
        all_up(at.path()).await;
        let left = || std::fs::read_dir(base.path()).unwrap().count();
        assert_eq!(left(), 1);
        worker.kill().await.unwrap();
        all_gone(at.path()).await;
        let swept = async {
            while left() > 0 {
                // sleeps because: no signal tells that another process has removed a folder
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, swept).await.expect("its folder is removed");
        assert!(at.path().join("self").exists(), "a folder of the user's stays as it is");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_may_say_more_than_is_kept() {
    const LINES: u64 = 200_000;
    let (store, client) = memory();
    let worker = Running::start(Worker::builder(Arc::clone(&store)).commands(Commands::new()));
    let ticket = client.enqueue(Steps(script(&format!("seq {LINES}")))).await.unwrap();
    assert_eq!(ticket.wait(LONG).await.unwrap(), Waited::Succeeded(()));
    for from in [LINES / 2, LINES - 10_000] {
        let page = store.read_logs(LogRequest { job: ticket.id(), from, limit: 10_000 }).await.unwrap();
        assert_eq!((page.first, page.next), (from, LINES));
        for (at, (_, line)) in (from..).zip(&page.lines) {
            assert_eq!(line.text, (at + 1).to_string(), "none is missing, and none comes twice");
        }
    }
    worker.drain().await;
}

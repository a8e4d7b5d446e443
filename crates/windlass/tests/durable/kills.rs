//! Engines that end at every commit of a run, before it and after it.

use super::{order, support, worker};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::faulty;
use tokio::sync::Notify;
use windlass::Client;
use windlass::core::store::{RunRead, Store};
use windlass::core::time::HANG_GUARD;
use windlass::durable::typed;
use windlass::runs::Engine;
use windlass_conformance::faults::{Fault, Method};

/// The lease of a killed engine has to run out before another engine continues.
const LEASE: Duration = Duration::from_secs(1);

/// How an engine ends: at its first commit, before the store applies it or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    Before,
    After,
}

/// Runs an engine until it is killed. Its other calls after that are refused, as if the process had ended.
async fn run_until_killed(store: &Arc<dyn Store>, kill: Kill) {
    let (killed, is_dead) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let faulty = faulty(store, {
        let (killed, is_dead) = (Arc::clone(&killed), Arc::clone(&is_dead));
        move |method| {
            if is_dead.load(Ordering::SeqCst) {
                return Fault::Before;
            }
            if method != Method::CommitRuns {
                return Fault::Pass;
            }
            is_dead.store(true, Ordering::SeqCst);
            killed.notify_one();
            if kill == Kill::Before { Fault::Before } else { Fault::Lost }
        }
    });
    let engine = Engine::new(faulty).unwrap().lease(LEASE).poll(Duration::from_millis(50));
    let engine = engine.workflows(vec![typed(order)], Some("test".to_owned())).unwrap();
    tokio::select! {
        () = engine.run(std::future::pending()) => {}
        () = killed.notified() => {}
    }
}

/// The history of a run, without what differs between two runs.
pub(super) async fn history(store: &Arc<dyn Store>, run: windlass::core::id::RunId) -> Vec<String> {
    let read = RunRead { history_max: 1_000, ..RunRead::brief(run) };
    let view = store.read_runs(vec![read]).await.unwrap().remove(0).unwrap();
    view.history.iter().map(|entry| String::from_utf8_lossy(entry).into_owned()).collect()
}

async fn killed_at_every_commit(store: Arc<dyn Store>) {
    let worker = support::Running::start(worker(&store).without_runs());
    let client = Client::new(Arc::clone(&store));
    let run = client.start(order, 7).await.unwrap();
    let kills = Mutex::new(0);
    let engines = async {
        loop {
            for kill in [Kill::Before, Kill::After] {
                run_until_killed(&store, kill).await;
                *kills.lock() += 1;
            }
        }
    };
    let result = tokio::select! {
        result = run.result(HANG_GUARD) => result.unwrap().expect("it ends").unwrap(),
        () = engines => unreachable!("engines are started for ever"),
    };
    assert_eq!(result, "parcel 7 for 70");
    let history = history(&store, run.id()).await;
    assert_eq!(history.len(), 8, "{history:#?}");
    assert!(*kills.lock() >= 5, "{} kills", kills.lock());
    worker.drain().await;
}

#[tokio::test]
async fn slow_a_run_whose_engines_end_at_every_commit_has_the_right_result_memory() {
    killed_at_every_commit(windlass::open("memory://").unwrap()).await;
}

#[tokio::test]
async fn slow_a_run_whose_engines_end_at_every_commit_has_the_right_result_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    killed_at_every_commit(windlass::open(&format!("sqlite://{}/jobs.db", folder.path().display())).unwrap()).await;
}

#[tokio::test]
async fn slow_a_run_whose_engines_end_at_every_commit_has_the_right_result_redis() {
    let server = windlass_servers::Redis::start().unwrap();
    killed_at_every_commit(windlass::open(&server.url()).unwrap()).await;
}

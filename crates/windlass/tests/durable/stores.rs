//! Tests that run on every store.

use super::support;
use std::sync::Arc;
use std::time::Duration;
use windlass::Client;
use windlass::core::store::{Run, RunList, RunRead, Store};
use windlass::core::time::HANG_GUARD;
use windlass::durable::RunHandle;

/// A store, opened as other processes would open it.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
    /// Where other processes find the store; they cannot find one in memory.
    pub(crate) url: String,
    _folder: Option<tempfile::TempDir>,
    _server: Option<windlass_servers::Redis>,
}

fn opened(url: String, folder: Option<tempfile::TempDir>, server: Option<windlass_servers::Redis>) -> Opened {
    let store = windlass::open(&url).unwrap();
    let client = Client::new(Arc::clone(&store));
    Opened { store, client, url, _folder: folder, _server: server }
}

pub(crate) fn memory() -> Opened {
    opened("memory://".to_owned(), None, None)
}

pub(crate) fn sqlite() -> Opened {
    let folder = tempfile::tempdir().unwrap();
    // Whether a commit is synced makes no difference to these tests.
    opened(format!("sqlite://{}/jobs.db?synchronous=normal", folder.path().display()), Some(folder), None)
}

pub(crate) fn redis() -> Opened {
    let server = windlass_servers::Redis::start().unwrap();
    opened(server.url(), None, Some(server))
}

/// Makes three tests of each function over an [`Opened`] store.
macro_rules! on_every_store {
    ($($name:ident),+ $(,)?) => { $(
        mod $name {
            use crate::stores;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn memory() {
                super::$name(stores::memory()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name(stores::sqlite()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn redis() {
                super::$name(stores::redis()).await;
            }
        }
    )+ };
}
pub(crate) use on_every_store;

/// Waits until something is so. The store cannot be waited for: what is asked for is none of its events.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    let look = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            // sleeps because: the condition can only be looked at.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(HANG_GUARD, look).await.unwrap_or_else(|_| panic!("never: {what}"))
}

impl Opened {
    pub(crate) async fn view<W>(&self, run: &RunHandle<W>) -> Run {
        self.store.read_runs(vec![RunRead::brief(run.id())]).await.unwrap().remove(0).expect("the run is there").run
    }

    /// Waits until the run is stuck, and returns why.
    pub(crate) async fn stuck<W>(&self, run: &RunHandle<W>) -> String {
        until("the run is stuck", || async { self.view(run).await.stuck }).await
    }

    /// Waits for the summary of a run.
    pub(crate) async fn summary<W>(&self, run: &RunHandle<W>, part: &str) {
        let is_there = || async { self.view(run).await.summary.contains(part).then_some(()) };
        until(part, is_there).await;
    }

    /// All runs, by pages.
    pub(crate) async fn runs(&self) -> Vec<Run> {
        let (mut list, mut runs) = (RunList::new(500), Vec::new());
        loop {
            let page = self.store.list_runs(list.clone()).await.unwrap();
            runs.extend(page.runs);
            list.cursor = page.cursor;
            if list.cursor.is_none() {
                return runs;
            }
        }
    }

    /// Waits until this holds for all runs.
    pub(crate) async fn all(&self, what: &str, is_so: impl Fn(&Run) -> bool + Sync) {
        until(what, || async { self.runs().await.iter().all(&is_so).then_some(()) }).await;
    }

    /// A worker of this build.
    pub(crate) fn worker(&self, build: &str) -> windlass::WorkerBuilder {
        super::worker(&self.store).build_id(build)
    }

    pub(crate) fn start(&self, worker: windlass::WorkerBuilder) -> support::Running {
        support::Running::start(worker)
    }
}

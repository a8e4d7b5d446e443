//! A worker of the library in a process of its own: it renews its leases, reaps, promotes, and takes part in timekeeping.

use crate::args::Part;
use crate::child::{Dice, open, pass_ms};
use crate::{QUEUE, Result};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Ctx, Job, JobError, State};
use windlass_audit::{Entry, Ledger, Recorder};
use windlass_core::name::WorkerId;
use windlass_core::store::{MaintenanceClaim, Store, Wrap, Wrapped};

/// Short, so that the leases of a frozen process end soon.
const LEASE: Duration = Duration::from_secs(1);
const SLOTS: usize = 4;
/// A handler takes less than this.
const WORK_MS: u64 = 300;

/// Where the process called `name` writes the name under which it asks to be the timekeeper.
pub(crate) fn keeper_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.keeper"))
}

/// Works until the process is killed.
pub(crate) async fn work(part: Part) -> Result<()> {
    let ledger = Arc::new(Ledger::open(&part.dir, &part.name)?.synced());
    let store = open(&part.dir, part.url.as_deref())?;
    let inner = Arc::new(Wrapped(Recorder::new(store, Arc::clone(&ledger))));
    let path = Mutex::new(Some(keeper_path(&part.dir, &part.name)));
    let store: Arc<dyn Store> = Arc::new(Wrapped(NameWriter { inner, path }));
    let builder = windlass::Worker::builder(store).id(&part.name).queue(QUEUE).slots(SLOTS).lease(LEASE);
    let handlers = Handlers { ledger, dice: Dice::new(part.seed) };
    let builder = builder.state(handlers).handle(handle::<Work>).handle(handle::<Chore>);
    Ok(builder.build()?.run_until_stopped().await?)
}

/// The two kinds of jobs. The payload says whether the first attempt fails.
#[derive(Debug, Serialize, Deserialize)]
struct Work(bool);
#[derive(Debug, Serialize, Deserialize)]
struct Chore(bool);

trait FailsOnce: Job<Output = ()> {
    fn fails_once(&self) -> bool;
}

impl Job for Work {
    const KIND: &'static str = "work";
    type Output = ();
}

impl Job for Chore {
    const KIND: &'static str = "chore";
    type Output = ();
}

impl FailsOnce for Work {
    fn fails_once(&self) -> bool {
        self.0
    }
}

impl FailsOnce for Chore {
    fn fails_once(&self) -> bool {
        self.0
    }
}

/// What the handlers share.
struct Handlers {
    ledger: Arc<Ledger>,
    dice: Dice,
}

async fn handle<J: FailsOnce>(job: J, ctx: Ctx, State(handlers): State<Handlers>) -> Result<(), JobError> {
    pass_ms(handlers.dice.below(WORK_MS)).await;
    handlers.ledger.note(&[Entry::Executed { job: ctx.id(), attempt: ctx.attempt() }]);
    if job.fails_once() && ctx.attempt() == 1 {
        return Err(JobError::new("as it was asked to").retry_after(Duration::ZERO));
    }
    Ok(())
}

/// The store of the worker, which writes under which name its process asks to be the timekeeper.
struct NameWriter {
    inner: Arc<dyn Store>,
    /// Where to write the name, until it is written.
    path: Mutex<Option<PathBuf>>,
}

#[async_trait]
impl Wrap for NameWriter {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn claim_maintenance(&self, keeper: WorkerId, ttl_ms: u64) -> windlass_core::Result<MaintenanceClaim> {
        let unwritten = self.path.lock().take();
        if let Some(path) = unwritten {
            let written = std::fs::write(path, keeper.as_str());
            written.map_err(|error| windlass_core::Error::corrupt(error.to_string()))?;
        }
        self.inner.claim_maintenance(keeper, ttl_ms).await
    }
}

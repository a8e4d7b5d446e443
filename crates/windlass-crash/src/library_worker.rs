//! A worker of the library in a process of its own: it renews its leases, reaps, promotes, and takes part in timekeeping.

use crate::args::Part;
use crate::child::{Dice, open, pass_ms};
use crate::ledger::{Entry, Ledger};
use crate::{QUEUE, Result};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Ctx, Job, JobError, State};
use windlass_core::id::{JobId, Token};
use windlass_core::job::Lease;
use windlass_core::name::WorkerId;
use windlass_core::store::{
    ClaimRequest, Claimed, ReportRequest, Reported, ReportedAndClaimed, Store, Timekeeping, Wrap, Wrapped,
};

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
    let recorder = Arc::new(Wrapped(Recorder {
        inner: open(&part.dir, part.url.as_deref())?,
        ledger: Mutex::new(Ledger::open(&part.dir, &part.name)?),
        tokens: Mutex::default(),
        dice: Dice::new(part.seed),
        keeper: Mutex::new(Some(keeper_path(&part.dir, &part.name))),
    }));
    let store: Arc<dyn Store> = Arc::<Wrapped<Recorder>>::clone(&recorder);
    let builder = windlass::Worker::builder(store).id(&part.name).queue(QUEUE).slots(SLOTS).lease(LEASE);
    let builder = builder.state(Recording(recorder)).handle(handle::<Work>).handle(handle::<Chore>);
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

struct Recording(Arc<Wrapped<Recorder>>);

async fn handle<J: FailsOnce>(job: J, ctx: Ctx, State(recording): State<Recording>) -> Result<(), JobError> {
    let recorder = &recording.0;
    pass_ms(recorder.dice.below(WORK_MS)).await;
    recorder.note_executed(ctx.id(), ctx.attempt()).map_err(JobError::new)?;
    if job.fails_once() && ctx.attempt() == 1 {
        return Err(JobError::new("as it was asked to").retry_after(Duration::ZERO));
    }
    Ok(())
}

/// The store of the worker, which writes the ledger.
struct Recorder {
    inner: Arc<dyn Store>,
    ledger: Mutex<Ledger>,
    /// The token of each attempt that was claimed, as it was last claimed.
    tokens: Mutex<HashMap<(JobId, u32), Token>>,
    dice: Dice,
    /// Where to write the name of the timekeeper, until it is written.
    keeper: Mutex<Option<PathBuf>>,
}

impl Recorder {
    fn note_executed(&self, job: JobId, attempt: u32) -> Result<()> {
        let token = self.tokens.lock().get(&(job, attempt)).copied().ok_or("the job was not claimed")?;
        self.ledger.lock().note(&[Entry::executed(Lease { job, attempt, token })])
    }

    fn note_claimed(&self, claimed: &Claimed) {
        let mut tokens = self.tokens.lock();
        tokens.extend(claimed.jobs.iter().map(|job| ((job.lease.job, job.lease.attempt), job.lease.token)));
    }

    fn note_reported(
        &self,
        leases: &[Lease],
        answers: &[windlass_core::Result<Reported>],
    ) -> windlass_core::Result<()> {
        let entry = |(lease, answer): (&Lease, &windlass_core::Result<Reported>)| {
            let Lease { job, attempt, token } = *lease;
            match answer {
                Ok(Reported { state, repeated }) => {
                    Some(Entry::Accepted { job, attempt, token, state: *state, repeated: *repeated })
                }
                Err(error) if error.is_lease_lost() => Some(Entry::Refused { job, attempt, token }),
                Err(_) => None,
            }
        };
        let entries: Vec<Entry> = leases.iter().zip(answers).filter_map(entry).collect();
        self.ledger.lock().note(&entries).map_err(|error| windlass_core::Error::corrupt(error.to_string()))
    }
}

fn leases(report: &ReportRequest) -> Vec<Lease> {
    report.outcomes.iter().map(|outcome| outcome.lease).collect()
}

#[async_trait]
impl Wrap for Recorder {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    async fn claim(&self, request: ClaimRequest) -> windlass_core::Result<Claimed> {
        let claimed = self.inner.claim(request).await?;
        self.note_claimed(&claimed);
        Ok(claimed)
    }

    async fn report(&self, request: ReportRequest) -> windlass_core::Result<Vec<windlass_core::Result<Reported>>> {
        let leases = leases(&request);
        let answers = self.inner.report(request).await?;
        self.note_reported(&leases, &answers)?;
        Ok(answers)
    }

    async fn report_and_claim(
        &self,
        report: ReportRequest,
        claim: ClaimRequest,
    ) -> windlass_core::Result<ReportedAndClaimed> {
        let leases = leases(&report);
        let both = self.inner.report_and_claim(report, claim).await?;
        self.note_claimed(&both.claimed);
        self.note_reported(&leases, &both.reported)?;
        Ok(both)
    }

    async fn keep_time(&self, keeper: WorkerId, ttl_ms: u64) -> windlass_core::Result<Timekeeping> {
        let unwritten = self.keeper.lock().take();
        if let Some(path) = unwritten {
            let written = std::fs::write(path, keeper.as_str());
            written.map_err(|error| windlass_core::Error::corrupt(error.to_string()))?;
        }
        self.inner.keep_time(keeper, ttl_ms).await
    }
}

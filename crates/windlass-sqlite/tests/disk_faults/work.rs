//! The calls that a disk fault meets: something of everything that a store does, each of them one step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, JobSpec, Lease, NewJob, Progress, Retry};
use windlass_core::name::{Kind, Labels, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::random::Random;
use windlass_core::schedule::{Rule, Schedule, tick};
use windlass_core::store::{
    Beat, Change, ChangeMany, ChangeManyOp, ChangeOp, ClaimRequest, ClaimedJob, ClaimedRun, EnqueueRequest, Feed,
    FeedCursor, FeedRequest, Filter, JobQueue, Kinds, ListRequest, LogAppend, LogLine, LogSink, LogStream, NewRun,
    Outcome, OutcomeKind, QueueSettings, RenewRequest, Renewal, ReportRequest, RunClaim, RunCommit, RunMessage,
    RunState, RunStep, RunStore, ScheduleStore, Setting, Store, Sweep, SweepKind, WorkerRegistry,
};
use windlass_core::time::{Clock, Timestamp};
use windlass_core::{Error, Result};
use windlass_sqlite::rusqlite::{self, Connection, TransactionBehavior};
use windlass_sqlite::{Options, SqliteStore, Synchronous};

/// How many calls there are.
pub(crate) const CALLS: usize = 32;
/// After these the store is closed and opened again, so that the next calls read from the file.
const REOPENED_AFTER: [usize; 4] = [4, 9, 16, 24];

/// Time and randomness that begin anew with every call, so that a call that is repeated does the same again.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    now: AtomicI64,
    random: AtomicU64,
}

impl Inputs {
    fn begin(&self, call: usize) {
        // The leases of the first calls have ended when the later ones begin.
        let late = if call >= 26 { 600_000 } else { 0 };
        let call = u32::try_from(call).unwrap();
        self.now.store(1_700_000_000_000 + late + 1_000 * i64::from(call), Ordering::SeqCst);
        self.random.store(1 + 1_000 * u64::from(call), Ordering::SeqCst);
    }
}

impl Clock for Inputs {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.now.load(Ordering::SeqCst))
    }
}

impl Random for Inputs {
    fn next_u64(&self) -> u64 {
        self.random.fetch_add(1, Ordering::SeqCst).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// What the caller of the store has been answered so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    jobs: Vec<ClaimedJob>,
    runs: Vec<ClaimedRun>,
}

/// A store on a file, and its caller.
pub(crate) struct Session {
    path: PathBuf,
    inputs: Arc<Inputs>,
    store: Option<SqliteStore>,
    pub(crate) known: Known,
}

impl Session {
    /// Nothing is opened yet: the first call does that.
    pub(crate) fn new(path: &Path, known: Known) -> Self {
        Self { path: path.to_owned(), inputs: Arc::default(), store: None, known }
    }

    fn open(&mut self) -> Result<&SqliteStore> {
        let store = match self.store.take() {
            Some(store) => store,
            None => {
                let options = Options { synchronous: Synchronous::Full, adopt: true, ..Options::new(&self.path) };
                SqliteStore::open_with(options, self.inputs.clone(), self.inputs.clone())?
            }
        };
        Ok(self.store.insert(store))
    }

    /// Makes a call. Returns its answer as text.
    pub(crate) async fn call(&mut self, call: usize) -> Result<String> {
        self.inputs.begin(call);
        self.open()?;
        let mut known = std::mem::take(&mut self.known);
        let store = self.store.as_ref().ok_or_else(|| Error::Unavailable { reason: "is not open".to_owned() })?;
        let answer = match call {
            0..=9 => first_jobs(store, &mut known, call).await,
            10..=19 => runs(store, &mut known, call).await,
            20..=25 => more_jobs(store, &mut known, call).await,
            _ => self.rest(store, call).await,
        };
        self.known = known;
        let answer = answer?;
        if REOPENED_AFTER.contains(&call) {
            self.close().await;
        }
        Ok(answer)
    }

    /// Opens the store and closes it again, without a call.
    pub(crate) async fn open_and_close(&mut self) {
        self.inputs.begin(0);
        self.open().unwrap();
        self.close().await;
    }

    pub(crate) async fn close(&mut self) {
        if let Some(store) = self.store.take() {
            store.close().await.unwrap();
        }
    }

    async fn rest(&self, store: &SqliteStore, call: usize) -> Result<String> {
        Ok(match call {
            26 => {
                let ticked = tick(store, 10).await?;
                match ticked.failed.first() {
                    Some((_, error)) => return Err(error.clone()),
                    None => format!("{ticked:?}"),
                }
            }
            27 => format!("{:?}", store.sweep(Sweep { kind: SweepKind::Reap, max: 500 }).await?),
            28 => format!("{:?}", store.sweep(Sweep { kind: SweepKind::Promote, max: 500 }).await?),
            29 => self.enqueue_with_an_order(store)?,
            30 => {
                let jobs = store.list(ListRequest { limit: 500, ..ListRequest::default() }).await?;
                let feed = store.read_feed(FeedRequest { after: Some(FeedCursor(0)), max: 1_000 }).await?;
                format!("{jobs:?} {feed:?} {:?}", store.queues().await?)
            }
            _ => {
                let filter = Filter::queue("q".try_into().unwrap());
                let retry = ChangeMany { op: ChangeManyOp::RetryFailed, filter, max: 500, cursor: None };
                format!("{:?}", store.change_many(retry).await?.changed)
            }
        })
    }

    /// Jobs as a part of the caller's own transaction, which also writes to a table of the caller's.
    fn enqueue_with_an_order(&self, store: &SqliteStore) -> Result<String> {
        let failed = |error: rusqlite::Error| Error::Unknown { reason: error.to_string() };
        let mut conn = Connection::open(&self.path).map_err(failed)?;
        conn.execute_batch("PRAGMA synchronous=FULL").map_err(failed)?;
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        // The same order again is the same order, as the same jobs are the same jobs.
        tx.execute("INSERT OR IGNORE INTO orders VALUES ('rope')", []).map_err(failed)?;
        let jobs = (0..20).map(|n| job(29, n, |_| {})).collect();
        let answers = store.enqueue_in(&tx, EnqueueRequest::new(jobs))?;
        tx.commit().map_err(failed)?;
        Ok(format!("{answers:?}"))
    }
}

fn id(call: usize, n: u64) -> JobId {
    JobId::from_parts(0, 100_000 * (call as u128 + 1) + u128::from(n))
}

fn job(call: usize, n: u64, edit: impl FnOnce(&mut JobSpec)) -> NewJob {
    let payload = Payload::new("text/plain", vec![b'p'; 300]);
    let mut spec = JobSpec::new("q".try_into().unwrap(), "work".try_into().unwrap(), payload);
    edit(&mut spec);
    NewJob::new(id(call, n), spec)
}

/// Jobs that differ: in groups, with keys, with priorities, due later, one that is refused.
fn mixed(call: usize, count: u64) -> Vec<NewJob> {
    let make = |n: u64| {
        let made = job(call, n, |spec| {
            spec.priority = i16::try_from(n % 3).unwrap_or(0);
            spec.group = (n % 4 > 1).then(|| format!("g{}", n % 4).as_str().try_into().unwrap());
            let by = DedupBy::Key(format!("key {n}").as_str().try_into().unwrap());
            spec.dedup = n.is_multiple_of(5).then_some(Dedup { by, mode: DedupMode::KeepLast, ttl_ms: None });
            spec.attempts = if n == 7 { 0 } else { 2 };
        });
        if n % 11 == 10 { made.due(Due::DelayMs(30_000)) } else { made }
    };
    (0..count).map(make).collect()
}

fn claim_request(call: usize, queue: &str, max: u32) -> ClaimRequest {
    ClaimRequest {
        worker: worker(),
        request_id: call as u64 + 1,
        queues: vec![queue.try_into().unwrap()],
        kinds: Kinds::Any,
        labels: Labels::default(),
        max,
        lease_ms: 60_000,
    }
}

fn worker() -> WorkerId {
    WorkerId::new("w").unwrap()
}

async fn claim(store: &SqliteStore, known: &mut Known, request: ClaimRequest) -> Result<String> {
    let jobs = store.claim(request).await?.jobs;
    let answer = format!("{jobs:?}");
    known.jobs.extend(jobs);
    Ok(answer)
}

/// The outcomes of the oldest jobs that are known to be leased.
fn outcomes(known: &mut Known, count: usize, bytes: usize) -> Vec<Outcome> {
    let count = count.min(known.jobs.len());
    let outcome = |(n, job): (usize, ClaimedJob)| match n % 8 {
        5 => Outcome::fail(job.lease, "no", Retry::AfterMs(20_000)),
        6 => Outcome::fail(job.lease, "never", Retry::Never),
        7 => Outcome::release(job.lease),
        _ => {
            let outputs = BTreeMap::from([("n".to_owned(), n.to_string())]);
            let result = Some(Payload::new("text/plain", vec![b'r'; bytes]));
            Outcome { lease: job.lease, kind: OutcomeKind::Complete { result, outputs } }
        }
    };
    known.jobs.drain(..count).enumerate().map(outcome).collect()
}

async fn report(store: &SqliteStore, known: &mut Known, count: usize, bytes: usize) -> Result<String> {
    let outcomes = outcomes(known, count, bytes);
    Ok(format!("{:?}", store.report(ReportRequest { worker: worker(), outcomes }).await?))
}

async fn first_jobs(store: &SqliteStore, known: &mut Known, call: usize) -> Result<String> {
    Ok(match call {
        0 => {
            let settings = QueueSettings { cap: Some(200), ..QueueSettings::default() };
            format!("{:?}", store.configure(Setting::Queue { queue: "q".try_into().unwrap(), settings }).await?)
        }
        1 => format!("{:?}", store.enqueue(EnqueueRequest::new(mixed(call, 40))).await?),
        2 => claim(store, known, claim_request(call, "q", 30)).await?,
        3 => report(store, known, 24, 1_000).await?,
        4 => format!("{:?}", store.enqueue(EnqueueRequest::new(mixed(call, 40))).await?),
        5 => {
            let renewal = |job: &ClaimedJob| {
                let progress = Some(Progress { percent: 40, message: "so far".to_owned() });
                Renewal { lease: job.lease, lease_ms: Some(70_000), progress }
            };
            let renewals = known.jobs.iter().map(renewal).collect();
            format!("{:?}", store.renew(RenewRequest { renewals }).await?)
        }
        6 => {
            let line =
                |n: u8| LogLine { at: Timestamp::from_ms(1), stream: LogStream::Stdout, text: vec![n; 80].into() };
            let append = |lease: Lease| LogAppend { lease, first: 0, lines: (0..20).map(line).collect() };
            let appends = known.jobs.iter().map(|job| append(job.lease)).collect();
            format!("{:?}", store.append_logs(appends).await?)
        }
        7 => claim(store, known, claim_request(call, "q", 40)).await?,
        8 => report(store, known, 40, 2_000).await?,
        _ => {
            let spec = job(call, 0, |_| {}).spec;
            let schedule = Schedule::new("nightly".try_into().unwrap(), Rule::every_ms(60_000), spec);
            let now = store.now().await?;
            format!("{:?}", store.put_schedule(schedule.arm(None, now)?).await?)
        }
    })
}

fn run_id(n: u64) -> RunId {
    RunId::from_parts(0, u128::from(n) + 1)
}

fn run_job(call: usize, n: u64, run: u64) -> NewJob {
    job(call, n, |spec| {
        spec.queue = "r".try_into().unwrap();
        spec.run = Some(run_id(run));
    })
}

fn graph() -> Kind {
    Kind::new("graph").unwrap()
}

fn new_run(call: usize, run: u64) -> NewRun {
    let jobs = (0..8).map(|n| run_job(call, 100 * run + n, run)).collect();
    let step = RunStep { jobs, history: vec![vec![b'h'; 500].into()], ..RunStep::nothing() };
    NewRun {
        name: format!("run {run}"),
        definition: vec![b'd'; 900].into(),
        input: "{}".into(),
        step,
        ..NewRun::new(run_id(run), graph())
    }
}

fn message(run: u64) -> RunMessage {
    RunMessage::new(run_id(run), "go")
}

async fn runs(store: &SqliteStore, known: &mut Known, call: usize) -> Result<String> {
    Ok(match call {
        10 => format!("{:?}", store.create_runs((0..4).map(|run| new_run(call, run)).collect()).await?),
        11 => claim(store, known, claim_request(call, "r", 20)).await?,
        12 | 17 => report(store, known, 24, 200).await?,
        13 | 18 => {
            let claim = RunClaim { max: 10, lease_ms: 60_000, ..RunClaim::new(worker(), vec![graph()]) };
            let runs = store.claim_runs(claim).await?.runs;
            let answer = format!("{runs:?}");
            known.runs.extend(runs);
            answer
        }
        14 | 19 => {
            let commit = |(n, claimed): (usize, ClaimedRun)| {
                let run = u64::try_from(claimed.lease.run.bits()).unwrap_or(1) - 1;
                let (jobs, cancel) = match call {
                    14 => ((50..60).map(|n| run_job(call, 100 * run + n, run)).collect(), vec![id(10, 100 * run + 7)]),
                    _ => (Vec::new(), Vec::new()),
                };
                let state = if call == 19 && n == 0 { RunState::Succeeded } else { RunState::Running };
                let history = vec![vec![b'h'; 500].into()];
                let step = RunStep { jobs, cancel, history, state, ..RunStep::nothing() };
                let (lease, history_len, inbox_to) = (claimed.lease, claimed.history_len, claimed.inbox_to);
                RunCommit { inbox_to, ..RunCommit::new(lease, history_len, step) }
            };
            let commits = known.runs.drain(..).enumerate().map(commit).collect();
            format!("{:?}", store.commit_runs(commits).await?)
        }
        15 => format!("{:?}", store.send_to_runs((0..5).map(message).collect()).await?),
        _ => claim(store, known, claim_request(call, "r", 24)).await?,
    })
}

async fn more_jobs(store: &SqliteStore, known: &mut Known, call: usize) -> Result<String> {
    Ok(match call {
        20 => {
            let large = |n| job(call, n, |spec| spec.payload = Payload::new("text/plain", vec![b'x'; 20_000]));
            format!("{:?}", store.enqueue(EnqueueRequest::new((0..12).map(large).collect())).await?)
        }
        21 => {
            let op = |n| match n % 4 {
                0 => ChangeOp::Cancel,
                1 => ChangeOp::Reprioritise(9),
                2 => ChangeOp::Reschedule(Due::DelayMs(10_000)),
                _ => ChangeOp::Remove,
            };
            let changes = (0..10).map(|n| Change { id: id(20, n), op: op(n) }).collect();
            format!("{:?}", store.change(changes).await?)
        }
        22 => claim(store, known, claim_request(call, "q", 40)).await?,
        23 => {
            let outcomes = outcomes(known, 40, 3_000);
            let request = ReportRequest { worker: worker(), outcomes };
            let both = store.report_and_claim(request, claim_request(call, "q", 10)).await?;
            let answer = format!("{:?} {:?}", both.reported, both.claimed.jobs);
            known.jobs.extend(both.claimed.jobs);
            answer
        }
        24 => {
            let beat = Beat {
                worker: worker(),
                queues: vec!["q".try_into().unwrap()],
                kinds: Kinds::Any,
                labels: Labels::default(),
                slots: 4,
                running: 1,
                about: "a test".to_owned(),
                ttl_ms: 10_000,
            };
            format!("{:?}", store.heartbeat(beat).await?)
        }
        _ => claim(store, known, claim_request(call, "q", 10)).await?,
    })
}

//! Counters, gauges and histograms, through the `metrics` facade.
//!
//! Nothing is counted while the application has installed no recorder: then [`Meters::current`] is `None`, and costs a
//! look at a thread-local. With one, handles are made once and kept, and a call to the store costs as many updates as its
//! jobs have kinds, whatever number of jobs it carries.

mod book;
mod call;
mod kind;
mod watch;

use super::names::{self, MetricType};
use book::Book;
pub(super) use call::CallMeter;
use kind::{Ended, KindMeters, Ran, Sums, ended};
use metrics::{Gauge, Histogram, Unit, counter, gauge, histogram};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use watch::Stopwatch;
use windlass_core::job::{FailureClass, Lease, NewJob};
use windlass_core::name::{Kind, QueueName, WorkerId};
use windlass_core::store::{
    Beat, Call, ClaimedJob, Enqueued, Method, Outcome, OutcomeKind, Renewed, Reported, SweepKind, Swept,
};
use windlass_core::{Error, Result};

/// The most pairs of queue and kind that are told apart; all further ones are `other`. A label without a bound would
/// bring the metrics database down.
pub(super) const PAIRS_MAX: usize = 1_000;

/// The handles for one store, made when there is a recorder to make them.
pub(crate) struct Meters {
    store: &'static str,
    live: RwLock<Option<Arc<Live>>>,
}

impl Meters {
    pub(super) const fn new(store: &'static str) -> Self {
        Self { store, live: RwLock::new(None) }
    }

    /// A call to the store begins; `None` while nobody records.
    pub(super) fn begin_call(&self, call: &Call) -> Option<CallMeter> {
        self.current().map(|live| CallMeter::begin(live, call))
    }

    /// A handler is about to run; `None` while nobody records.
    pub(super) fn begin_run(&self, job: &ClaimedJob) -> Option<RunMeter> {
        let live = self.current()?;
        Some(RunMeter { kind: live.kind(&job.spec.queue, &job.spec.kind), watch: Stopwatch::start() })
    }

    /// A job was not started because its lease had ended.
    pub(super) fn dropped(&self, job: &ClaimedJob) {
        if let Some(live) = self.current() {
            live.kind(&job.spec.queue, &job.spec.kind).dropped.increment(1);
        }
    }

    /// `None` while nobody records.
    fn current(&self) -> Option<Arc<Live>> {
        let recorder = recorder_address()?;
        let live = self.live.read().clone();
        if live.as_ref().is_some_and(|live| live.recorder == recorder) {
            return live;
        }
        // The first time; or a test has installed another one for its own thread.
        let live = Arc::new(Live::new(self.store, recorder));
        *self.live.write() = Some(Arc::clone(&live));
        Some(live)
    }
}

/// A handler that runs.
pub(super) struct RunMeter {
    kind: Arc<KindMeters>,
    watch: Stopwatch,
}

impl RunMeter {
    /// The handler has ended so; `None` when its lease was lost.
    pub(super) fn end(self, outcome: Option<&OutcomeKind>) {
        self.kind.ran(Ran::of(outcome), self.watch);
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Tells recorders apart; `None` when there is none. The facade does not say so, but its stand-in has no size, and no
/// recorder that keeps anything is like that.
fn recorder_address() -> Option<usize> {
    metrics::with_recorder(|recorder| {
        (size_of_val(recorder) > 0).then(|| std::ptr::from_ref(recorder).cast::<()>().addr())
    })
}

struct Live {
    recorder: usize,
    store: &'static str,
    calls: [OnceLock<Histogram>; Method::ALL.len()],
    kinds: RwLock<Kinds>,
    book: Mutex<Book<Arc<KindMeters>>>,
    workers: Mutex<HashMap<WorkerId, (u32, u32)>>,
    slots: Gauge,
    running: Gauge,
}

#[derive(Default)]
struct Kinds {
    pairs: usize,
    by_name: HashMap<QueueName, HashMap<Kind, Arc<KindMeters>>>,
    other: Option<Arc<KindMeters>>,
}

/// A batch as kinds that follow each other, and how many jobs of each: mostly one.
type Asked = Vec<(Arc<KindMeters>, usize)>;

/// Outcomes without what is heavy in them.
type Told = Vec<(Lease, ToldKind)>;

#[derive(Clone, Copy)]
enum ToldKind {
    Complete,
    Fail(FailureClass),
    Release,
}

impl Live {
    fn new(store: &'static str, recorder: usize) -> Self {
        describe();
        Self {
            recorder,
            store,
            calls: std::array::from_fn(|_| OnceLock::new()),
            kinds: RwLock::default(),
            book: Mutex::default(),
            workers: Mutex::default(),
            slots: gauge!(names::WORKER_SLOTS),
            running: gauge!(names::WORKER_RUNNING),
        }
    }

    /// A call has come back.
    fn called(&self, op: Method, watch: Stopwatch, error: Option<&Error>) {
        // How long a wait took says nothing about the store.
        if op != Method::Wait {
            let make = || histogram!(names::STORE_CALL_SECONDS, "op" => op.name(), "store" => self.store);
            self.calls[op as usize].get_or_init(make).record(watch.elapsed());
        }
        if let Some(error) = error {
            let error = error.code();
            counter!(names::STORE_ERRORS, "op" => op.name(), "store" => self.store, "error" => error).increment(1);
        }
    }

    /// Counts the items that were refused.
    fn refused<'a, T: 'a>(&self, op: Method, answers: impl IntoIterator<Item = &'a Result<T>>) {
        let mut counts: Vec<(&'static str, u64)> = Vec::new();
        for error in answers.into_iter().filter_map(|answer| answer.as_ref().err()) {
            let name = error.code();
            match counts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => counts.push((name, 1)),
            }
        }
        for (error, count) in counts {
            counter!(names::STORE_REFUSALS, "op" => op.name(), "store" => self.store, "error" => error)
                .increment(count);
        }
    }

    fn asked(&self, jobs: &[NewJob]) -> Asked {
        let mut asked: Asked = Vec::new();
        for job in jobs {
            match asked.last_mut() {
                Some((kind, count)) if kind.is(&job.spec.queue, &job.spec.kind) => *count += 1,
                _ => asked.push((self.kind(&job.spec.queue, &job.spec.kind), 1)),
            }
        }
        asked
    }

    fn enqueued(&self, asked: &Asked, answers: &[Result<Enqueued>]) {
        let mut left = answers.iter();
        for (kind, count) in asked {
            let new = left.by_ref().take(*count).filter(|answer| is_new(answer)).count();
            kind.enqueued.increment(new as u64);
        }
        self.refused(Method::Enqueue, answers);
    }

    /// A tick has created the first `jobs` of those it asked for.
    fn fired(&self, asked: &Asked, jobs: u32) {
        let mut left = jobs as usize;
        for (kind, count) in asked {
            let new = left.min(*count);
            left -= new;
            kind.enqueued.increment(new as u64);
        }
    }

    fn claimed(&self, jobs: &[ClaimedJob], lease_ms: u64) {
        let Some(first) = jobs.first() else { return };
        let mut book = self.book.lock();
        let mut kind = self.kind(&first.spec.queue, &first.spec.kind);
        // Jobs that came together have mostly waited as long as each other.
        let (mut count, mut waited_ms, mut alike) = (0, 0, 0);
        for job in jobs {
            let claimed_at = job.expires_at.minus_ms(lease_ms);
            let waits_ms = claimed_at.ms_since(job.ready_at);
            let same_kind = kind.is(&job.spec.queue, &job.spec.kind);
            if !same_kind || waits_ms != waited_ms {
                kind.waited(waited_ms, alike);
                (waited_ms, alike) = (waits_ms, 0);
            }
            if !same_kind {
                kind.claimed.increment(count);
                kind = self.kind(&job.spec.queue, &job.spec.kind);
                count = 0;
            }
            count += 1;
            alike += 1;
            book.note_time(claimed_at);
            book.add(job.lease, job.expires_at, Arc::clone(&kind));
        }
        kind.waited(waited_ms, alike);
        kind.claimed.increment(count);
    }

    fn told(&self, outcomes: &[Outcome]) -> Told {
        let told = |outcome: &Outcome| match &outcome.kind {
            OutcomeKind::Complete { .. } => ToldKind::Complete,
            OutcomeKind::Fail { failure, .. } => ToldKind::Fail(failure.class),
            OutcomeKind::Release { .. } => ToldKind::Release,
        };
        outcomes.iter().map(|outcome| (outcome.lease, told(outcome))).collect()
    }

    fn reported(&self, op: Method, told: &Told, answers: &[Result<Reported>]) {
        self.refused(op, answers);
        let mut sums = Sums::default();
        {
            let mut book = self.book.lock();
            for ((lease, told), answer) in told.iter().zip(answers) {
                let ended = match answer {
                    Ok(reported) => Some(ended(*told, reported.state)),
                    Err(Error::LeaseLost) => Some(Ended::LeaseLost),
                    // Its lease stands: another outcome will come.
                    Err(_) => None,
                };
                let Some(ended) = ended else { continue };
                match book.take(*lease) {
                    Some(kind) => sums.add(&kind, ended),
                    // Counted the first time.
                    None if answer.as_ref().is_ok_and(|reported| reported.repeated) => {}
                    None => sums.add(&self.other(), ended),
                }
            }
        }
        sums.flush();
    }

    fn renewed(&self, leases: &[Lease], answers: &[Result<Renewed>]) {
        self.refused(Method::Renew, answers);
        let mut sums = Sums::default();
        {
            let mut book = self.book.lock();
            for (lease, answer) in leases.iter().zip(answers) {
                match answer {
                    Ok(renewed) => book.renew(*lease, renewed.expires_at),
                    Err(Error::LeaseLost) => {
                        // Whoever asks again is told again, and is counted once.
                        if let Some(kind) = book.take(*lease) {
                            sums.add(&kind, Ended::LeaseLost);
                        }
                    }
                    Err(_) => {}
                }
            }
        }
        sums.flush();
    }

    fn swept(&self, kind: SweepKind, swept: Swept) {
        let sweep = match kind {
            SweepKind::Reap => "reap",
            SweepKind::Promote => "promote",
            SweepKind::Prune => "prune",
        };
        counter!(names::SWEPT, "sweep" => sweep).increment(swept.handled);
    }

    /// A worker has said how it is. Sums are kept by differences, so that several stores add up.
    fn beat(&self, beat: &Beat) {
        let now = (beat.slots, beat.running);
        let before = self.workers.lock().insert(beat.worker.clone(), now).unwrap_or_default();
        self.move_gauges(before, now);
    }

    fn left(&self, worker: &WorkerId) {
        let before = self.workers.lock().remove(worker).unwrap_or_default();
        self.move_gauges(before, (0, 0));
    }

    fn move_gauges(&self, before: (u32, u32), now: (u32, u32)) {
        self.slots.increment(f64::from(now.0) - f64::from(before.0));
        self.running.increment(f64::from(now.1) - f64::from(before.1));
    }

    /// The handles of a queue and a kind.
    fn kind(&self, queue: &QueueName, kind: &Kind) -> Arc<KindMeters> {
        if let Some(found) = self.kinds.read().by_name.get(queue).and_then(|kinds| kinds.get(kind)) {
            return Arc::clone(found);
        }
        let mut kinds = self.kinds.write();
        if kinds.pairs >= PAIRS_MAX {
            drop(kinds);
            return self.other();
        }
        let by_kind = kinds.by_name.entry(queue.clone()).or_default();
        if let Some(found) = by_kind.get(kind) {
            return Arc::clone(found);
        }
        let new = Arc::new(KindMeters::new(Some((queue.clone(), kind.clone()))));
        by_kind.insert(kind.clone(), Arc::clone(&new));
        kinds.pairs += 1;
        new
    }

    /// The handles of jobs whose queue and kind are not told apart, or not known.
    fn other(&self) -> Arc<KindMeters> {
        Arc::clone(self.kinds.write().other.get_or_insert_with(|| Arc::new(KindMeters::new(None))))
    }
}

fn is_new(answer: &Result<Enqueued>) -> bool {
    match answer {
        Ok(Enqueued::Created { .. } | Enqueued::Replaced { .. } | Enqueued::Held { .. }) => true,
        Ok(Enqueued::Existing { .. } | Enqueued::Deduplicated { .. }) | Err(_) => false,
    }
}

/// Tells the recorder what each metric means.
fn describe() {
    for metric in names::ALL {
        match metric.kind {
            MetricType::Counter => metrics::describe_counter!(metric.name, metric.help),
            MetricType::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            MetricType::Histogram => metrics::describe_histogram!(metric.name, Unit::Seconds, metric.help),
        }
    }
}

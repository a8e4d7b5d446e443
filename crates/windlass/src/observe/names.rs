//! The names of all metrics, in one table: what is recorded, what it is called, and what `docs/observability.md` says
//! about it. Base units, `_total` for counters, `_seconds` for times, as Prometheus wants it.

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// It only rises.
    Counter,
    /// It rises and falls.
    Gauge,
    /// A distribution.
    Histogram,
}

/// A metric: its name, its type, its labels, and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it behaves.
    pub kind: MetricType,
    /// Its labels. Never a job id, a group or a worker id: those have no bound.
    pub labels: &'static [&'static str],
    /// What it means; exporters show it as help.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($name:ident = $kind:ident $text:literal [$($label:literal),*] $help:literal;)+) => {
        $(#[doc = $help] pub const $name: &str = $text;)+

        /// All of them.
        pub const ALL: &[Metric] = &[
            $(Metric { name: $name, kind: MetricType::$kind, labels: &[$($label),*], help: $help },)+
        ];
    };
}

metrics! {
    STORE_CALL_SECONDS = Histogram "windlass_store_call_seconds" ["op", "store"]
        "How long calls to the store took, from the caller's side; waits for work are left out";
    STORE_ERRORS = Counter "windlass_store_errors_total" ["op", "store", "error"]
        "Calls to the store that failed as a whole";
    STORE_REFUSALS = Counter "windlass_store_refusals_total" ["op", "store", "error"]
        "Items of calls that the store refused while it took the call";
    JOBS_ENQUEUED = Counter "windlass_jobs_enqueued_total" ["queue", "kind"]
        "Jobs that this process enqueued; repeats and duplicates are not counted";
    JOBS_CLAIMED = Counter "windlass_jobs_claimed_total" ["queue", "kind"]
        "Jobs that were leased to this process";
    JOBS_SUCCEEDED = Counter "windlass_jobs_succeeded_total" ["queue", "kind"]
        "Jobs that ended well";
    JOBS_FAILED = Counter "windlass_jobs_failed_total" ["queue", "kind", "class"]
        "Jobs that ended as dead letters; class is that of the last attempt";
    JOBS_RETRIED = Counter "windlass_jobs_retried_total" ["queue", "kind"]
        "Attempts that failed and will be tried again";
    JOBS_RELEASED = Counter "windlass_jobs_released_total" ["queue", "kind"]
        "Jobs that were given back, mostly by a worker that was leaving";
    JOBS_CANCELLED = Counter "windlass_jobs_cancelled_total" ["queue", "kind"]
        "Jobs that were cancelled while this process worked on them";
    JOBS_LEASE_LOST = Counter "windlass_jobs_lease_lost_total" ["queue", "kind"]
        "Leases that this process lost while it worked on the job";
    JOBS_DROPPED = Counter "windlass_jobs_dropped_total" ["queue", "kind"]
        "Claimed jobs whose handler was not started because their lease had ended: the process was stopped, or the store answered late";
    JOB_WAIT_SECONDS = Histogram "windlass_job_wait_seconds" ["queue", "kind"]
        "How long claimed jobs had been ready; delays and back-off are not in it";
    JOB_RUN_SECONDS = Histogram "windlass_job_run_seconds" ["queue", "kind", "outcome"]
        "How long handlers ran: one attempt each";
    SWEPT = Counter "windlass_swept_total" ["sweep"]
        "Items that sweeps of this process handled; reap counts the leases that ran out";
    WORKER_SLOTS = Gauge "windlass_worker_slots" []
        "Jobs that the workers of this process can run at once, as they last told the store";
    WORKER_RUNNING = Gauge "windlass_worker_running" []
        "Jobs that the workers of this process held, as they last told the store";
    QUEUE_JOBS = Gauge "windlass_queue_jobs" ["queue", "state"]
        "Jobs in the store, by the sampler";
    WORKERS = Gauge "windlass_workers" ["state"]
        "Workers that have not left, live or dead, by the sampler";
}

//! What the executor needs from its surroundings.

use super::BoxFuture;
use std::time::Duration;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX};
use windlass_core::time::Timestamp;

/// The surroundings of runs: ids, randomness, and the runtime in which local steps are polled.
///
/// One host can serve all runs of an engine. No method may call into the run that it was called for. Wakers hold the host and
/// may be dropped last on a thread of the runtime, so a host holds a handle of its runtime and does not own it.
pub trait Host: Send + Sync {
    /// The build of the code, as it stands in histories and messages; at most about 20 bytes.
    fn build(&self) -> &str;

    /// The id of the job of command `number`, which is made at `now`. Best the same id whenever it is asked for, so that a
    /// repeated commit is recognised; [`derived_job_id`] has that property.
    fn job_id(&self, run: RunId, number: u64, now: Timestamp) -> JobId {
        derived_job_id(run, number, now)
    }

    /// The id of the child run of command `number`. See [`job_id`](Self::job_id).
    fn run_id(&self, run: RunId, number: u64, now: Timestamp) -> RunId {
        derived_run_id(run, number, now)
    }

    /// The source of all random numbers of the segment that starts with record `number`. Tokens of promises are derived from
    /// it, so it must be hard to guess where strangers can resolve promises.
    fn seed(&self, run: RunId, number: u64) -> u64;

    /// Calls `poll`, which polls or drops the future of a local step, inside of the runtime that such futures need.
    fn enter(&self, poll: &mut dyn FnMut());

    /// A timer for the timeouts and retries of local steps. It is made, polled and dropped inside of [`enter`](Self::enter).
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;

    /// Calls `work` on a thread that may block.
    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>);

    /// A local step of the run is ready: [`Run::poll_steps`](super::Run::poll_steps) should be called soon. It is called from
    /// any thread, once per set of woken steps.
    fn notify(&self, run: RunId);
}

/// A host without a runtime: for replays and for workflows without timed local steps.
///
/// Timers never fire, and `run_blocking` works in place.
#[derive(Clone, Debug, Default)]
pub struct NoHost {
    /// The build that it names.
    pub build: String,
}

impl Host for NoHost {
    fn build(&self) -> &str {
        &self.build
    }

    fn seed(&self, run: RunId, number: u64) -> u64 {
        low_half(RunId::named(&format!("{run} seed {number}")).bits())
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        poll();
    }

    fn sleep(&self, _time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn notify(&self, _run: RunId) {}
}

/// Bounds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest input of a call or a child, in bytes of JSON.
    pub input_bytes_max: usize,
    /// The largest result of a call, a child, a local step or the workflow, in bytes of JSON.
    pub result_bytes_max: usize,
}

impl Default for Limits {
    /// The limits of jobs: 4 MiB of input, 1 MiB of result.
    fn default() -> Self {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self { input_bytes_max: size(PAYLOAD_BYTES_MAX), result_bytes_max: size(RESULT_BYTES_MAX) }
    }
}

/// An id that depends on its arguments alone. Its order is that of `now`, as with ids of [`Ids`](windlass_core::id::Ids).
pub fn derived_job_id(run: RunId, number: u64, now: Timestamp) -> JobId {
    JobId::from_parts(run.partition(), derived_bits(run, number, now))
}

/// See [`derived_job_id`].
pub fn derived_run_id(run: RunId, number: u64, now: Timestamp) -> RunId {
    RunId::from_parts(run.partition(), derived_bits(run, number, now))
}

/// The layout of a UUID version 7, with a hash in place of its random bits.
fn derived_bits(run: RunId, number: u64, now: Timestamp) -> u128 {
    let ms = u128::from(now.as_ms().max(0).cast_unsigned() & 0xffff_ffff_ffff);
    let hash = RunId::named(&format!("{run} command {number}")).bits();
    let hash = hash & !(0xffff_ffff_ffff << 80) & !(0xf << 76) & !(0b11 << 62);
    ms << 80 | hash | 7 << 76 | 0b10 << 62
}

#[expect(clippy::cast_possible_truncation, reason = "half of the bits are enough")]
pub(crate) fn low_half(bits: u128) -> u64 {
    bits as u64
}

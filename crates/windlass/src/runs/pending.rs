//! Decisions that are not ready at their first poll: each goes on in a task of its own while the engine advances other runs. The
//! leases of all of them are renewed together, and what a renewal returns is passed on to the decision.
//!
//! A lease that is lost ends its decision, because another engine makes it again. So does the stop of the engine, which releases
//! the runs, so that other engines need not wait until the leases end. Decisions that are busy with work that should not be done
//! twice are waited for as long as the engine drains.

use super::calls::{Calls, Decided, Stop};
use super::kind::Arrivals;
use super::kinds::LoadedRun;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use windlass_core::job::Due;
use windlass_core::store::{Run, RunCommit, RunLease, RunRead, RunRenewal, RunRenewed, RunStep};
use windlass_core::{Error, Result};

/// The longest time between two renewals, and so the longest time until an item reaches a decision.
const RENEW_EVERY_MAX: Duration = Duration::from_secs(1);
/// Leases that are renewed in one call.
const RENEWALS_MAX: usize = 256;

/// A decision that is being made.
pub(super) struct PendingDecision {
    pub(super) lease: RunLease,
    pub(super) inbox_to: u64,
    pub(super) arrivals: Arc<Arrivals>,
    pub(super) is_busy: Arc<AtomicBool>,
    pub(super) decision: BoxFuture<'static, Decided>,
}

/// The pending decisions of an engine. They end with it.
pub(super) struct PendingDecisions {
    calls: Calls,
    /// Each ends with its run if that goes on and its state is that of the store.
    tasks: JoinSet<Result<Option<LoadedRun>>>,
    renewer: JoinSet<()>,
    leases: Arc<Mutex<Leases>>,
}

/// The leases to renew.
#[derive(Default)]
struct Leases {
    held: HashMap<RunLease, HeldRun>,
    is_renewing: bool,
}

/// A run whose decision is being made.
struct HeldRun {
    inbox_to: u64,
    arrivals: Arc<Arrivals>,
    /// Renewals that failed since the last one that succeeded.
    failures: u32,
    _cancel_on_drop: oneshot::Sender<()>,
}

impl PendingDecisions {
    pub(super) fn new(calls: Calls) -> Self {
        let (tasks, renewer) = (JoinSet::new(), JoinSet::new());
        Self { calls, tasks, renewer, leases: Arc::default() }
    }

    /// Waits for a decision in a task, and commits it.
    pub(super) fn start(&mut self, pending: PendingDecision) {
        let PendingDecision { lease, inbox_to, arrivals, is_busy, decision } = pending;
        let (sender, lost) = oneshot::channel();
        self.renew(lease, HeldRun { inbox_to, arrivals, failures: 0, _cancel_on_drop: sender });
        let (leases, calls, mut stop) = (Arc::clone(&self.leases), self.calls.clone(), self.calls.stop.subscribe());
        let stopped = async move {
            let is_over =
                |stop: &Stop| *stop == Stop::AtOnce || *stop == Stop::Drain && !is_busy.load(Ordering::SeqCst);
            if stop.wait_for(is_over).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        self.tasks.spawn(async move {
            let decided = tokio::select! {
                biased;
                decided = decision => Some(decided),
                () = stopped => None,
                // Its lease is lost, and another engine decides.
                _ = lost => return Ok(None),
            };
            leases.lock().held.remove(&lease);
            match decided {
                Some(decided) => calls.commit_decision(decided).await,
                None => {
                    release(&calls, lease).await;
                    Ok(None)
                }
            }
        });
    }

    fn renew(&mut self, lease: RunLease, held: HeldRun) {
        // Those that have ended are not needed any more.
        while self.renewer.try_join_next().is_some() {}
        let mut leases = self.leases.lock();
        // The run was claimed again: an older lease of it is lost.
        leases.held.retain(|old, _| old.run != lease.run);
        leases.held.insert(lease, held);
        if !std::mem::replace(&mut leases.is_renewing, true) {
            self.renewer.spawn(renew(self.calls.clone(), Arc::clone(&self.leases)));
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until one has ended. Returns its run.
    pub(super) async fn ended(&mut self) -> Option<LoadedRun> {
        ended(self.tasks.join_next().await?).ok().flatten()
    }

    /// The runs whose decisions have ended since the last call.
    pub(super) fn all_ended(&mut self) -> Vec<LoadedRun> {
        let mut runs = Vec::new();
        while let Some(task) = self.tasks.try_join_next() {
            runs.extend(ended(task).ok().flatten());
        }
        runs
    }

    /// Waits until all decisions are made and committed. Returns their runs, and the last error.
    pub(super) async fn wait(&mut self) -> (Vec<LoadedRun>, Result<()>) {
        let (mut runs, mut result) = (Vec::new(), Ok(()));
        while let Some(task) = self.tasks.join_next().await {
            match ended(task) {
                Ok(run) => runs.extend(run),
                Err(error) => result = Err(error),
            }
        }
        (runs, result)
    }

    /// Drops all decisions that are not made, and releases their runs. Busy ones are waited for until `at_once` returns.
    pub(super) async fn stop(mut self, at_once: impl Future<Output = ()>) {
        self.calls.stop.send_replace(Stop::Drain);
        let calls = self.calls.clone();
        let at_once = async {
            at_once.await;
            calls.stop.send_replace(Stop::AtOnce);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            _ = self.wait() => {}
            () = at_once => {}
        }
    }
}

/// The result of a task. A failed run is tried again when its lease has ended.
fn ended(task: std::result::Result<Result<Option<LoadedRun>>, JoinError>) -> Result<Option<LoadedRun>> {
    let result = task.unwrap_or_else(|error| Err(Error::Unknown { reason: error.to_string() }));
    result.inspect_err(|error| tracing::warn!(%error, "a run could not be advanced"))
}

/// Renews the leases until none is left.
async fn renew(calls: Calls, leases: Arc<Mutex<Leases>>) {
    let lease = Duration::from_millis(calls.lease_ms);
    let every = (lease / 3).min(RENEW_EVERY_MAX);
    // A lease has ended after so many failed renewals.
    let failures_max = u32::try_from(lease.as_millis() / every.as_millis().max(1)).unwrap_or(u32::MAX);
    loop {
        tokio::time::sleep(every).await;
        let renewals: Vec<RunRenewal> = {
            let mut leases = leases.lock();
            if leases.held.is_empty() {
                leases.is_renewing = false;
                return;
            }
            let renewal = |(lease, held): (&RunLease, &HeldRun)| RunRenewal {
                lease: *lease,
                lease_ms: calls.lease_ms,
                inbox_from: held.inbox_to,
            };
            leases.held.iter().map(renewal).collect()
        };
        for some in renewals.chunks(RENEWALS_MAX) {
            let answers = calls.store.renew_runs(some.to_vec()).await;
            let mut leases = leases.lock();
            match answers {
                Ok(answers) => {
                    for (renewal, answer) in some.iter().zip(answers) {
                        leases.handle_renewal(renewal.lease, answer, failures_max);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "leases of runs could not be renewed");
                    some.iter().for_each(|renewal| leases.count_failure(renewal.lease, failures_max));
                }
            }
        }
    }
}

impl Leases {
    fn handle_renewal(&mut self, lease: RunLease, answer: Result<RunRenewed>, failures_max: u32) {
        match answer {
            Ok(renewed) => {
                if let Some(held) = self.held.get_mut(&lease) {
                    (held.inbox_to, held.failures) = (renewed.inbox_to, 0);
                    held.arrivals.add(renewed);
                }
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(run = %lease.run, %error, "the lease of a run could not be renewed");
                self.count_failure(lease, failures_max);
            }
            Err(error) => {
                tracing::debug!(run = %lease.run, %error, "the lease of a run is lost");
                self.held.remove(&lease);
            }
        }
    }

    /// A decision whose lease has ended is dropped: an engine claims the run again.
    fn count_failure(&mut self, lease: RunLease, failures_max: u32) {
        if let Some(held) = self.held.get_mut(&lease) {
            held.failures += 1;
            if held.failures >= failures_max {
                self.held.remove(&lease);
            }
        }
    }
}

/// Releases a run without a decision, so that any engine can claim it at once.
async fn release(calls: &Calls, lease: RunLease) {
    // A step replaces summary and wake-up. Without them the run waits until its lease ends.
    let Ok(Some(run)) = calls.read(vec![RunRead::brief(lease.run)]).await.map(|mut views| views.pop().flatten()) else {
        return;
    };
    let Run { summary, wake_at, inbox_len, history_len, state, .. } = run.run;
    // A run that has nothing in its inbox was claimed because it was time, or because an engine left off in mid-decision.
    let wake = if inbox_len > 0 { wake_at.map(Due::At) } else { Some(Due::Now) };
    let step = RunStep { wake, summary, state, ..RunStep::nothing() };
    let release = RunCommit::new(lease, history_len, step);
    if let Err(error) = calls.commit(&[release]).await {
        tracing::debug!(run = %lease.run, %error, "a run could not be released; it is claimed when its lease ends");
    }
}

//! Decisions that are not made at once: each waits in a task of its own while the engine goes on with other runs. The leases of
//! all of them are renewed together, and what a renewal returns is passed on to the decision.
//!
//! A lease that is lost ends its decision, because another engine makes it again. So does the stop of the engine, which lets go of
//! the runs, so that other engines need not wait until the leases end.

use super::calls::{Calls, Decided};
use super::kind::Arrivals;
use super::kinds::LoadedRun;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use windlass_core::Result;
use windlass_core::job::Due;
use windlass_core::store::{RunCommit, RunLease, RunRead, RunRenewal, RunRenewed, RunStep};

/// The longest time between two renewals, and so the longest time until an item reaches a decision.
const RENEW_EVERY_MAX: Duration = Duration::from_secs(1);
/// Leases that are renewed in one call.
const RENEWALS_MAX: usize = 256;

/// A decision that is being made.
pub(super) struct LongDecision {
    pub(super) lease: RunLease,
    pub(super) history_len: u64,
    pub(super) inbox_to: u64,
    pub(super) arrivals: Arc<Arrivals>,
    pub(super) decision: BoxFuture<'static, Decided>,
}

/// The decisions that an engine waits for. They end with it.
pub(super) struct LongDecisions {
    calls: Calls,
    /// Returns the run, if its state is that of the store.
    tasks: JoinSet<Option<LoadedRun>>,
    renewer: JoinSet<()>,
    leases: Arc<Mutex<Leases>>,
    stop: watch::Sender<bool>,
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
    /// Ends the decision when it is dropped.
    _lost: oneshot::Sender<()>,
}

impl LongDecisions {
    pub(super) fn new(calls: Calls) -> Self {
        let (tasks, renewer) = (JoinSet::new(), JoinSet::new());
        Self { calls, tasks, renewer, leases: Arc::default(), stop: watch::Sender::new(false) }
    }

    /// Waits for a decision in a task, and commits it.
    pub(super) fn start(&mut self, long: LongDecision) {
        let LongDecision { lease, history_len, inbox_to, arrivals, decision } = long;
        let (sender, lost) = oneshot::channel();
        self.renew(lease, HeldRun { inbox_to, arrivals, _lost: sender });
        let (leases, calls, mut stop) = (Arc::clone(&self.leases), self.calls.clone(), self.stop.subscribe());
        self.tasks.spawn(async move {
            let decided = tokio::select! {
                biased;
                decided = decision => Some(decided),
                _ = stop.wait_for(|stops| *stops) => None,
                // Its lease is lost, and another engine decides.
                _ = lost => return None,
            };
            leases.lock().held.remove(&lease);
            match decided {
                Some(decided) => calls.commit_decision(decided).await,
                None => {
                    release(&calls, lease, history_len).await;
                    None
                }
            }
        });
    }

    fn renew(&mut self, lease: RunLease, held: HeldRun) {
        let mut leases = self.leases.lock();
        leases.held.insert(lease, held);
        if !std::mem::replace(&mut leases.is_renewing, true) {
            self.renewer.spawn(renew(self.calls.clone(), Arc::clone(&self.leases)));
        }
    }

    /// The runs whose decisions were committed since the last call.
    pub(super) fn finished(&mut self) -> Vec<LoadedRun> {
        let mut runs = Vec::new();
        while let Some(ended) = self.tasks.try_join_next() {
            runs.extend(ended.ok().flatten());
        }
        runs
    }

    /// Waits until all decisions are made and committed. Returns their runs.
    pub(super) async fn wait(&mut self) -> Vec<LoadedRun> {
        let mut runs = Vec::new();
        while let Some(ended) = self.tasks.join_next().await {
            runs.extend(ended.ok().flatten());
        }
        runs
    }

    /// Drops all decisions that are not made, and lets go of their runs.
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        self.wait().await;
    }
}

/// Renews the leases until none is left.
async fn renew(calls: Calls, leases: Arc<Mutex<Leases>>) {
    let every = (Duration::from_millis(calls.lease_ms) / 3).min(RENEW_EVERY_MAX);
    loop {
        tokio::time::sleep(every).await;
        let renewals: Vec<RunRenewal> = {
            let mut leases = leases.lock();
            if leases.held.is_empty() {
                leases.is_renewing = false;
                return;
            }
            let lease_ms = calls.lease_ms;
            leases
                .held
                .iter()
                .map(|(lease, held)| RunRenewal { lease: *lease, lease_ms, inbox_from: held.inbox_to })
                .collect()
        };
        for some in renewals.chunks(RENEWALS_MAX) {
            match calls.store.renew_runs(some.to_vec()).await {
                Ok(answers) => {
                    let mut leases = leases.lock();
                    some.iter().zip(answers).for_each(|(renewal, answer)| leases.take_in(renewal.lease, answer));
                }
                // The next renewal comes before the leases end.
                Err(error) => tracing::warn!(%error, "leases of runs could not be renewed"),
            }
        }
    }
}

impl Leases {
    fn take_in(&mut self, lease: RunLease, answer: Result<RunRenewed>) {
        match answer {
            Ok(renewed) => {
                if let Some(held) = self.held.get_mut(&lease) {
                    held.inbox_to = renewed.inbox_to;
                    held.arrivals.add(renewed);
                }
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(run = %lease.run, %error, "the lease of a run could not be renewed");
            }
            Err(error) => {
                tracing::debug!(run = %lease.run, %error, "the lease of a run is lost");
                self.held.remove(&lease);
            }
        }
    }
}

/// Lets go of a run without a decision, so that any engine can claim it at once.
async fn release(calls: &Calls, lease: RunLease, history_len: u64) {
    let view = calls.store.read_runs(vec![RunRead::brief(lease.run)]).await;
    // A step replaces the summary.
    let summary =
        view.ok().and_then(|mut views| views.pop().flatten()).map_or_else(String::new, |view| view.run.summary);
    let step = RunStep { wake: Some(Due::Now), summary, ..RunStep::nothing() };
    let release = RunCommit { lease, history_len, inbox_to: 0, lease_ms: None, step };
    if let Err(error) = calls.commit(&[release]).await {
        tracing::debug!(run = %lease.run, %error, "a run could not be released; it is claimed when its lease ends");
    }
}

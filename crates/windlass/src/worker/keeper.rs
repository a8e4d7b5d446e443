//! The keeper renews the leases, passes on progress and log lines, and says that the worker lives. It has a thread of its
//! own, so that no handler can keep it from its work.

use super::Shared;
use super::active::{Active, Stop};
use super::execute::pass_on_lines;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::store::{BATCH_MAX, Beat, Kinds, RenewRequest, Renewal};

/// How soon a cancelled job is told, and progress and lines are passed on.
const LOOK: Duration = Duration::from_millis(500);
/// A worker that was not heard of for so long counts as dead.
const TTL_MS: u64 = 60_000;

pub(super) struct Keeper {
    shared: Arc<Shared>,
    /// Milliseconds after which each lease has to be renewed, by our clock.
    renewed_at: HashMap<JobId, i64>,
    beat_at: i64,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, renewed_at: HashMap::new(), beat_at: i64::MIN }
    }

    /// Runs until the worker ends.
    pub(super) async fn run(mut self, mut end: oneshot::Receiver<()>) {
        let third = Duration::from_millis(self.shared.config.lease_ms / 3);
        loop {
            self.look().await;
            tokio::select! {
                _ = &mut end => return self.leave().await,
                () = tokio::time::sleep(LOOK.min(third / 2)) => {}
            }
        }
    }

    async fn look(&mut self) {
        let actives = self.shared.actives.all();
        self.beat(actives.len()).await;
        if actives.is_empty() {
            self.renewed_at.clear();
            return;
        }
        self.renew(&actives).await;
        for active in &actives {
            pass_on_lines(&self.shared, active).await;
        }
    }

    async fn renew(&mut self, actives: &[Arc<Active>]) {
        let now = self.shared.clock.now().as_ms();
        let third = i64::try_from(self.shared.config.lease_ms / 3).unwrap_or(i64::MAX);
        let mut known = HashMap::with_capacity(actives.len());
        let mut asked = Vec::new();
        for active in actives {
            let id = active.lease.job;
            // One that is new has a whole lease before it.
            let renewed_at = self.renewed_at.get(&id).copied().unwrap_or(now);
            let due = now.saturating_sub(renewed_at) >= third;
            let progress = active.notes().progress.take();
            known.insert(id, if due { now } else { renewed_at });
            if due || progress.is_some() {
                let lease_ms = due.then_some(self.shared.config.lease_ms);
                asked.push((Arc::clone(active), Renewal { lease: active.lease, lease_ms, progress }));
            }
        }
        self.renewed_at = known;
        for chunk in asked.chunks(BATCH_MAX) {
            self.renew_some(chunk).await;
        }
    }

    async fn renew_some(&mut self, asked: &[(Arc<Active>, Renewal)]) {
        let renewals = asked.iter().map(|(_, renewal)| renewal.clone()).collect();
        match self.shared.store.renew(RenewRequest { renewals }).await {
            Ok(answers) => {
                for ((active, _), answer) in asked.iter().zip(answers) {
                    match answer {
                        Ok(renewed) if renewed.cancel_requested => active.tell(Stop::Cancelled),
                        Ok(_) => {}
                        Err(Error::LeaseLost | Error::NotFound { .. }) => active.tell(Stop::Lost),
                        Err(error) => tracing::warn!(job = %active.lease.job, %error, "its lease could not be renewed"),
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "leases could not be renewed; it is tried again at once");
                // As if they had never been renewed: the next look asks again.
                for (active, renewal) in asked {
                    self.renewed_at.insert(active.lease.job, i64::MIN);
                    let mut notes = active.notes();
                    if notes.progress.is_none() {
                        notes.progress.clone_from(&renewal.progress);
                    }
                }
            }
        }
    }

    /// Says that the worker lives: often while jobs may be cancelled, rarely while it has none.
    async fn beat(&mut self, running: usize) {
        let now = self.shared.clock.now().as_ms();
        let rarely = i64::try_from(TTL_MS / 3).unwrap_or(i64::MAX);
        if running == 0 && now.saturating_sub(self.beat_at) < rarely {
            return;
        }
        let config = &self.shared.config;
        let beat = Beat {
            worker: config.id.clone(),
            queues: config.queues.iter().map(|(name, _)| name.clone()).collect(),
            kinds: Kinds::Only(self.shared.handlers.keys().cloned().collect()),
            labels: config.labels.clone(),
            slots: u32::try_from(config.slots).unwrap_or(u32::MAX),
            running: u32::try_from(running).unwrap_or(u32::MAX),
            about: config.about.clone(),
            ttl_ms: TTL_MS,
        };
        match self.shared.store.heartbeat(beat).await {
            Ok(answer) => {
                self.beat_at = now;
                self.shared.note_answer();
                for id in answer.cancelled {
                    if let Some(active) = self.shared.actives.get(id) {
                        active.tell(Stop::Cancelled);
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the store does not hear that this worker lives"),
        }
    }

    async fn leave(self) {
        if let Err(error) = self.shared.store.deregister(self.shared.config.id.clone()).await {
            tracing::warn!(%error, "the store does not hear that this worker leaves");
        }
    }
}

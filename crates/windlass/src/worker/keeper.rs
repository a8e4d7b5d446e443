//! The keeper renews the leases, passes on progress and log lines, and says that the worker lives. It has a thread of its
//! own, so that no handler can keep it from its work. Renewals do not wait for log lines.

use super::Shared;
use super::active::{Active, Stop};
use super::health::now;
use super::lines::keep_passing_on;
use super::stop::LAST_WORDS;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::store::{BATCH_MAX, Beat, Kinds, RenewRequest, Renewal};

/// A worker that has jobs and was not heard of for two leases counts as dead, within these bounds.
const TTL_MS: std::ops::RangeInclusive<u64> = 10_000..=60_000;
/// One that has none may be silent for longer, so that it does not wake the disk: it is heard of once a minute.
const IDLE_TTL_MS: u64 = 3 * 60_000;
/// How long a keeper without jobs does nothing.
const REST: Duration = Duration::from_millis(IDLE_TTL_MS / 3);

pub(super) struct Keeper {
    shared: Arc<Shared>,
    /// When each lease was last renewed, by the clock of leases: that a machine was suspended brings renewals forward.
    /// `None` when it should have been and was not.
    renewed_at: HashMap<JobId, Option<Duration>>,
    beat_at: Option<Instant>,
    /// How many jobs the last beat told of; `None` when it did not get through.
    told_running: Option<usize>,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, renewed_at: HashMap::new(), beat_at: None, told_running: None }
    }

    /// Runs until `end` returns.
    pub(super) async fn run(mut self, end: impl Future<Output = ()>) {
        let third = Duration::from_millis(self.shared.config.lease_ms / 3);
        let shared = Arc::clone(&self.shared);
        let looks = async {
            loop {
                self.look().await;
                if self.told_running == Some(0) {
                    // Nobody needs it before the next beat, or before a job has come.
                    let _ = tokio::time::timeout(REST, self.shared.actives.come()).await;
                }
                tokio::time::sleep(self.shared.config.look.min(third / 2)).await;
            }
        };
        tokio::select! {
            () = end => {}
            () = looks => {}
            () = keep_passing_on(&shared) => {}
        }
        // A store that does not answer must not keep the worker.
        if tokio::time::timeout(LAST_WORDS, self.leave()).await.is_err() {
            tracing::warn!("the store does not hear that this worker leaves");
        }
    }

    async fn look(&mut self) {
        let actives = self.shared.actives.all();
        self.beat(actives.len()).await;
        if actives.is_empty() {
            self.renewed_at.clear();
            return;
        }
        self.shared.world.log_calls.pass_on_soon();
        self.renew(&actives).await;
    }

    async fn renew(&mut self, actives: &[Arc<Active>]) {
        let now = self.shared.world.lease_clock.now();
        let third = Duration::from_millis(self.shared.config.lease_ms / 3);
        let mut known = HashMap::with_capacity(actives.len());
        let mut asked = Vec::new();
        for active in actives {
            let id = active.lease.job;
            let renewed_at = self.renewed_at.get(&id).copied().unwrap_or(Some(active.sent_at));
            let due = renewed_at.is_none_or(|at| now.saturating_sub(at) >= third);
            let progress = active.notes().progress.take();
            known.insert(id, if due { Some(now) } else { renewed_at });
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
        let sent_at = self.shared.world.lease_clock.now();
        match self.shared.store.renew(RenewRequest { renewals }).await {
            Ok(answers) => {
                for ((active, renewal), answer) in asked.iter().zip(answers) {
                    if let (Ok(_), Some(lease_ms)) = (&answer, renewal.lease_ms) {
                        active.lease_end.extend(sent_at, lease_ms);
                    }
                    match answer {
                        Ok(renewed) if renewed.cancel_requested => active.tell(Stop::Cancelled),
                        Ok(_) => {}
                        Err(Error::LeaseLost | Error::NotFound { .. }) => active.tell(Stop::Lost),
                        Err(error) => {
                            tracing::warn!(job = %active.lease.job, %error, "its lease could not be renewed");
                            // The next look asks again, without what may have been refused with it.
                            self.renewed_at.insert(active.lease.job, None);
                        }
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "leases could not be renewed; it is tried again at once");
                // As if they had never been renewed: the next look asks again.
                for (active, renewal) in asked {
                    self.renewed_at.insert(active.lease.job, None);
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
        let now = now();
        let rarely = Duration::from_millis(IDLE_TTL_MS / 3);
        let recent = self.beat_at.is_some_and(|at| now.duration_since(at) < rarely);
        if running == 0 && self.told_running == Some(0) && recent {
            return;
        }
        let config = &self.shared.config;
        let beat = Beat {
            worker: config.id.clone(),
            queues: config.queues.iter().map(|(name, _)| name.clone()).collect(),
            kinds: Kinds::Only(self.shared.handlers.keys().cloned().collect()),
            labels: config.labels.clone(),
            slots: u32::try_from(config.slots).unwrap_or(u32::MAX),
            running: u32::try_from(self.shared.health.running()).unwrap_or(u32::MAX),
            about: config.about.clone(),
            ttl_ms: if running == 0 { IDLE_TTL_MS } else { busy_ttl_ms(config.lease_ms) },
        };
        match self.shared.store.heartbeat(beat).await {
            Ok(answer) => {
                self.beat_at = Some(now);
                self.shared.health.note_heard();
                self.told_running = Some(running);
                for id in answer.cancelled {
                    if let Some(active) = self.shared.actives.get(id) {
                        active.tell(Stop::Cancelled);
                    }
                }
            }
            Err(error) => {
                self.told_running = None;
                tracing::warn!(%error, "the store does not hear that this worker lives");
            }
        }
    }

    async fn leave(self) {
        if let Err(error) = self.shared.store.deregister(self.shared.config.id.clone()).await {
            tracing::warn!(%error, "the store does not hear that this worker leaves");
        }
    }
}

fn busy_ttl_ms(lease_ms: u64) -> u64 {
    lease_ms.saturating_mul(2).clamp(*TTL_MS.start(), *TTL_MS.end())
}

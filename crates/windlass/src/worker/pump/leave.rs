//! Giving jobs back: what has waited too long, and all of them when the worker leaves.

use super::{AHEAD_MAX, Ahead, Pump};
use crate::worker::active::Stop;
use crate::worker::health::now;
use crate::worker::runners::Start;
use crate::worker::stop::Haste;
use std::collections::VecDeque;
use windlass_core::job::Lease;
use windlass_core::store::{ClaimedJob, Outcome, OutcomeKind};

impl Pump {
    pub(super) fn give_back_ahead(&mut self) {
        for ahead in std::mem::take(&mut self.ahead) {
            self.let_go(&ahead.job);
        }
    }

    /// Gives back what has waited for too long: the jobs turned out to be longer than they used to be.
    pub(super) fn give_back_stale(&mut self) {
        let now = now();
        let is_stale = |ahead: &Ahead| now.duration_since(ahead.since) >= AHEAD_MAX;
        let (stale, fresh): (VecDeque<Ahead>, VecDeque<Ahead>) =
            std::mem::take(&mut self.ahead).into_iter().partition(is_stale);
        self.ahead = fresh;
        for ahead in &stale {
            self.let_go(&ahead.job);
        }
        self.ahead_pays = false;
    }

    fn let_go(&mut self, job: &ClaimedJob) {
        if let Some(at) = self.shared.limited_kind(&job.spec.kind) {
            self.limited[at].held -= 1;
        }
        self.give_back(job.lease);
    }

    /// What has a slot and no thread yet.
    fn give_back_unbegun(&mut self) {
        for start in self.shared.runners.clear() {
            let started = match start {
                Start::One(started) => vec![started],
                Start::Many(started) => started,
            };
            for (job, _) in started {
                self.running = self.running.saturating_sub(1);
                self.give_back(job.lease);
            }
        }
    }

    /// As if it had never been claimed.
    pub(super) fn give_back(&mut self, lease: Lease) {
        self.shared.actives.get_or_add(lease).note_ended();
        self.outcomes.push(Outcome::release(lease));
    }

    /// No more claims. What was not started goes back; what was has until the deadline, or no time when there is more
    /// haste.
    pub(super) fn hurry(&mut self, haste: Haste) {
        self.haste = haste;
        self.shared.health.note_leaving();
        self.give_back_ahead();
        if haste >= Haste::AtOnce {
            self.give_back_unbegun();
            for active in self.shared.actives.all() {
                active.tell(Stop::Leaving);
            }
        }
        if haste >= Haste::Abandon {
            self.abandon();
        }
    }

    /// Gives back what handlers do not let go of: somebody else may do better. They block their threads, and are too late
    /// with whatever they come to.
    fn abandon(&mut self) {
        let actives = self.shared.actives.all();
        // Whoever notes the end first, we or the handler, reports it.
        let stuck: Vec<Lease> =
            actives.iter().filter(|active| active.note_ended()).map(|active| active.lease).collect();
        for lease in &stuck {
            tracing::error!(job = %lease.job, "its handler does not let go: it blocks its thread; the job is given back");
        }
        let give_back = |lease: &Lease| Outcome { lease: *lease, kind: OutcomeKind::Release { started: true } };
        self.shared.health.note_stuck(stuck.len());
        self.outcomes.extend(stuck.iter().map(give_back));
        self.running = self.running.saturating_sub(stuck.len());
    }
}

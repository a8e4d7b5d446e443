//! A long mixed life of a store, for the cases that check what must always hold.

use crate::ctx::{Ctx, fail};
use crate::look::{group, on, release};
use std::collections::HashSet;
use windlass_core::id::JobId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, KeepFor, NewJob, Retry, State, Verb};
use windlass_core::name::{DedupKey, Labels};
use windlass_core::payload::Payload;
use windlass_core::store::{
    ChangeManyOp, ChangeOp, ClaimRequest, ClaimedJob, EnqueueRequest, Enqueued, FeedCursor, FeedEvent, GroupSettings,
    SweepKind,
};

pub(super) const QUEUES: [&str; 3] = ["red", "green", "blue"];

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<'t, T>(&mut self, of: &'t [T]) -> Option<&'t T> {
        let len = u64::try_from(of.len()).unwrap();
        if len == 0 { None } else { of.get(usize::try_from(self.roll(len)).unwrap()) }
    }
}

/// Whatever the jobs of a store can go through, in a long row.
pub(super) async fn mixed_run(ctx: &Ctx, steps: u32) {
    let mut run = Run { ctx, dice: Dice(42), ids: Vec::new(), held: Vec::new() };
    ctx.set_queue("green", |settings| settings.groups = GroupSettings { cap: Some(2), ..Default::default() }).await;
    ctx.set_queue("blue", |settings| settings.retention.succeeded.count = Some(5)).await;
    for _ in 0..steps {
        run.step().await;
    }
    for state in State::ALL {
        ctx.job_in("last", state).await;
    }
}

struct Run<'c> {
    ctx: &'c Ctx,
    dice: Dice,
    ids: Vec<JobId>,
    held: Vec<ClaimedJob>,
}

impl Run<'_> {
    async fn step(&mut self) {
        match self.dice.roll(16) {
            0..=3 => self.enqueue().await,
            4..=6 => self.claim().await,
            7..=9 => self.report().await,
            10..=12 => self.change().await,
            13 => self.ctx.advance_ms(2).await,
            14 => self.sweep().await,
            _ => self.bulk().await,
        }
    }

    fn job(&mut self) -> NewJob {
        let (queue, kind) = (self.dice.roll(3), self.dice.roll(2));
        let (name, labels, dedup) = (self.dice.roll(4), self.dice.roll(4), self.dice.roll(6));
        let keep = self.dice.roll(5);
        let mut job = self.ctx.job(QUEUES[usize::try_from(queue).unwrap()], ["a", "b"][usize::from(kind == 1)]);
        let spec = &mut job.spec;
        spec.group = ["x", "y", "z"].get(usize::try_from(name).unwrap()).map(|name| group(name));
        spec.labels = if labels == 0 { Labels::parse(["gpu"]).unwrap() } else { Labels::default() };
        spec.attempts = 2;
        let modes = [DedupMode::Reject, DedupMode::Replace, DedupMode::KeepLast];
        if let Some(mode) = modes.get(usize::try_from(dedup).unwrap()) {
            let by = DedupBy::Key(DedupKey::new("key").unwrap());
            spec.dedup = Some(Dedup { by, mode: *mode, ttl_ms: None });
        }
        if keep == 0 {
            spec.keep_for = KeepFor { succeeded_ms: Some(0), failed_ms: Some(3) };
        }
        if self.dice.roll(4) == 0 { job.due(Due::DelayMs(3)) } else { job }
    }

    async fn enqueue(&mut self) {
        let count = 1 + self.dice.roll(4);
        let jobs = (0..count).map(|_| self.job()).collect();
        let answers = self.ctx.store.enqueue(EnqueueRequest::new(jobs)).await.unwrap();
        for answer in answers {
            if let Enqueued::Created { id } | Enqueued::Replaced { id, .. } | Enqueued::Held { id, .. } =
                answer.unwrap()
            {
                self.ids.push(id);
            }
        }
    }

    async fn claim(&mut self) {
        let queue = QUEUES[usize::try_from(self.dice.roll(3)).unwrap()];
        let max = 1 + u32::try_from(self.dice.roll(4)).unwrap();
        let labels = if self.dice.roll(2) == 0 { Labels::parse(["gpu"]).unwrap() } else { Labels::default() };
        let lease_ms = if self.dice.roll(5) == 0 { 10 } else { 600_000 };
        let request = ClaimRequest { labels, lease_ms, ..self.ctx.claim_request("w", queue, max) };
        self.held.extend(self.ctx.store.claim(request).await.unwrap().jobs);
    }

    async fn report(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let place = usize::try_from(self.dice.roll(u64::try_from(self.held.len()).unwrap())).unwrap();
        let lease = self.held.swap_remove(place).lease;
        let outcome = match self.dice.roll(6) {
            0 => fail("boom", Retry::AfterMs(0)),
            1 => fail("boom", Retry::AfterMs(2)),
            2 => fail("boom", Retry::Never),
            3 => release(self.dice.roll(2) == 0),
            _ => crate::ctx::complete(),
        };
        // Some leases have ended meanwhile.
        let _ = self.ctx.report("w", lease, outcome).await;
    }

    async fn change(&mut self) {
        let Some(id) = self.dice.pick(&self.ids).copied() else { return };
        let op = match self.dice.roll(7) {
            0 => ChangeOp::Cancel,
            1 => ChangeOp::Promote,
            2 => ChangeOp::Reschedule(Due::DelayMs(5)),
            3 => ChangeOp::Reprioritise(i16::try_from(self.dice.roll(5)).unwrap()),
            4 => ChangeOp::UpdatePayload(Payload::default()),
            5 => ChangeOp::Retry(if self.dice.roll(2) == 0 { Due::Now } else { Due::DelayMs(4) }),
            _ => ChangeOp::Remove,
        };
        // Not every state allows it, and some jobs are gone.
        let _ = self.ctx.change(id, op).await;
    }

    async fn sweep(&mut self) {
        for kind in SweepKind::ALL {
            self.ctx.sweep(kind).await;
        }
    }

    async fn bulk(&mut self) {
        let queue = QUEUES[usize::try_from(self.dice.roll(3)).unwrap()];
        let op = match self.dice.roll(24) {
            0 => ChangeManyOp::Drain { scheduled: true },
            1..=4 => ChangeManyOp::Clean { older_than_ms: 4 },
            5 => ChangeManyOp::Obliterate { force: true },
            6..=10 => ChangeManyOp::RetryFailed,
            11..=14 => ChangeManyOp::PromoteAll,
            15 => ChangeManyOp::CancelAll,
            _ => return,
        };
        self.ctx.change_all(op, on(queue), 7).await;
    }
}

/// A run that did not do all this would make its checks mean little.
pub(super) async fn assert_lively(ctx: &Ctx) {
    let entries = ctx.feed_after(FeedCursor(0)).await;
    let events = entries.iter().flat_map(|entry| &entry.events);
    let seen: HashSet<Verb> =
        events.filter_map(|event| if let FeedEvent::Job(job) = event { Some(job.verb) } else { None }).collect();
    for verb in Verb::ALL {
        // These change no state and need no entry.
        if !matches!(verb, Verb::Renew | Verb::Progress | Verb::Log) {
            assert!(seen.contains(&verb), "no job went through {verb:?}");
        }
    }
}

//! An enqueuer: notes what it means to enqueue, enqueues, notes what was acknowledged, until it is killed.

use crate::args::Bug;
use crate::child::{Dice, pass_ms, queue};
use crate::hand::Hand;
use crate::{QUEUE, Result};
use std::sync::Arc;
use windlass_audit::Entry;
use windlass_core::id::Ids;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, JobSpec, NewJob};
use windlass_core::name::{DedupKey, GroupName, Kind};
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::EnqueueRequest;
use windlass_core::time::SystemClock;

/// Waiting jobs at which it pauses, so that the end of a run does not take longer than the run.
const BACKLOG_MAX: u64 = 60;
/// Stalls that most jobs survive: more than a run is likely to bring.
const STALLS: u32 = 20;
/// Groups that jobs are of.
const GROUPS: u64 = 5;

/// Enqueues until it is killed.
pub(crate) async fn enqueue(hand: Hand) -> Result<()> {
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::seeded(hand.dice.seed())));
    loop {
        while backlog(&hand).await? >= BACKLOG_MAX {
            pass_ms(5).await;
        }
        let jobs = (0..=hand.dice.below(4)).map(|_| job(&ids, &hand.dice)).collect::<Result<Vec<_>>>()?;
        let intended: Vec<_> = jobs.iter().map(|job| Entry::Intended(job.id)).collect();
        let acknowledged: Vec<_> = jobs.iter().map(|job| Entry::Acknowledged(job.id)).collect();
        hand.ledger.note(&intended);
        if hand.bug == Some(Bug::AcknowledgeFirst) {
            hand.ledger.note(&acknowledged);
            // The moment in which a kill shows what such an order is worth.
            pass_ms(hand.dice.below(10)).await;
        }
        accept(&hand, jobs).await?;
        if hand.bug != Some(Bug::AcknowledgeFirst) {
            hand.ledger.note(&acknowledged);
        }
        pass_ms(hand.dice.below(8)).await;
    }
}

/// Enqueues until there is an answer: the same jobs again are enqueued once.
pub(crate) async fn accept(hand: &Hand, jobs: Vec<NewJob>) -> Result<()> {
    let answers = hand.insist(|| hand.store.enqueue(EnqueueRequest::new(jobs.clone()))).await?;
    for answer in answers {
        answer?;
    }
    Ok(())
}

async fn backlog(hand: &Hand) -> Result<u64> {
    let queues = hand.insist(|| hand.store.queues()).await?;
    let ours = queues.iter().find(|queue| queue.name.as_str() == QUEUE);
    Ok(ours.map_or(0, |queue| queue.counts.ready + queue.counts.scheduled))
}

/// Of eight jobs, one fails at first, one is due a little later, one has the usual small budgets, and one has a dedup
/// key that nobody else wants; half of them are of a group, and they are of two kinds and priorities.
pub(crate) fn job(ids: &Ids, dice: &Dice) -> Result<NewJob> {
    let (id, fails_once) = (ids.next(), dice.below(8) == 0);
    let kind = if dice.below(2) == 0 { "work" } else { "chore" };
    let mut spec = JobSpec::new(queue()?, Kind::new(kind)?, Payload::json(&fails_once)?);
    if dice.below(8) != 0 {
        spec.stalls = STALLS;
    }
    if dice.below(8) == 0 {
        let by = DedupBy::Key(DedupKey::new(id.to_string())?);
        spec.dedup = Some(Dedup { by, mode: DedupMode::Reject, ttl_ms: None });
    }
    let group = dice.below(2 * GROUPS);
    if group < GROUPS {
        spec.group = Some(GroupName::new(format!("g{group}"))?);
    }
    spec.priority = i16::from(dice.below(4) == 0);
    let due = if dice.below(8) == 0 { Due::DelayMs(dice.below(50)) } else { Due::Now };
    Ok(NewJob::new(id, spec).due(due))
}

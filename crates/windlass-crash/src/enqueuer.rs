//! An enqueuer: notes what it means to enqueue, enqueues, notes what was acknowledged, until it is killed.

use crate::args::{Bug, Part};
use crate::child::{Dice, open, pass_ms, queue};
use crate::ledger::{Entry, Ledger};
use crate::{QUEUE, Result};
use std::sync::Arc;
use windlass_core::id::Ids;
use windlass_core::job::{Due, JobSpec, NewJob};
use windlass_core::name::Kind;
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::{EnqueueRequest, JobQueue};
use windlass_core::time::SystemClock;
use windlass_sqlite::SqliteStore;

/// Waiting jobs at which it pauses, so that the end of a run does not take longer than the run.
const BACKLOG_MAX: u64 = 60;
/// Stalls that most jobs survive: more than a run is likely to bring.
const STALLS: u32 = 20;

/// Enqueues until it is killed.
pub(crate) async fn enqueue(part: Part) -> Result<()> {
    let store = open(&part.dir)?;
    let mut ledger = Ledger::open(&part.dir, &part.name)?;
    let dice = Dice::of(&part);
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::seeded(dice.seed())));
    loop {
        while backlog(&store).await? >= BACKLOG_MAX {
            pass_ms(5).await;
        }
        let jobs = (0..=dice.below(4)).map(|_| job(&ids, &dice)).collect::<Result<Vec<_>>>()?;
        let intended: Vec<_> = jobs.iter().map(|job| Entry::Intended { job: job.id }).collect();
        let acknowledged: Vec<_> = jobs.iter().map(|job| Entry::Acknowledged { job: job.id }).collect();
        ledger.note(&intended)?;
        if part.bug == Some(Bug::AcknowledgeFirst) {
            ledger.note(&acknowledged)?;
            // The moment in which a kill shows what such an order is worth.
            pass_ms(dice.below(10)).await;
        }
        accept(&store, jobs).await?;
        if part.bug != Some(Bug::AcknowledgeFirst) {
            ledger.note(&acknowledged)?;
        }
        pass_ms(dice.below(8)).await;
    }
}

/// Enqueues until there is an answer: the same jobs again are enqueued once.
async fn accept(store: &SqliteStore, jobs: Vec<NewJob>) -> Result<()> {
    loop {
        match store.enqueue(EnqueueRequest::new(jobs.clone())).await {
            Ok(answers) => {
                for answer in answers {
                    answer?;
                }
                return Ok(());
            }
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn backlog(store: &SqliteStore) -> Result<u64> {
    match store.queues().await {
        Ok(queues) => {
            let ours = queues.iter().find(|queue| queue.name.as_str() == QUEUE);
            Ok(ours.map_or(0, |queue| queue.counts.ready + queue.counts.scheduled))
        }
        Err(error) if error.is_retryable() => Ok(BACKLOG_MAX),
        Err(error) => Err(error.into()),
    }
}

/// Of eight jobs, one fails at first, one is due a little later, and one has the usual small budgets.
fn job(ids: &Ids, dice: &Dice) -> Result<NewJob> {
    let fails_once = dice.below(8) == 0;
    let mut spec = JobSpec::new(queue()?, Kind::new("work")?, Payload::json(&fails_once)?);
    if dice.below(8) != 0 {
        spec.stalls = STALLS;
    }
    let due = if dice.below(8) == 0 { Due::DelayMs(dice.below(50)) } else { Due::Now };
    Ok(NewJob::new(ids.next(), spec).due(due))
}

//! Random sequences about runs, against a book of what must be true that shares no code with any store.
//!
//! Each step is done to the store and told to the book; the answer is compared, and after every step all that can be seen of
//! every run. A failure prints its seed and the shortest sequence that was found; `WINDLASS_MODEL_SEED` and
//! `WINDLASS_MODEL_CASES` repeat it, as they do for the sequences about jobs.

mod book;
mod caps;
mod choose;
mod compare;
mod drive;
mod entry;
mod jobs;
mod made;
mod op;
mod renew;

use crate::ctx::{Ctx, Factory, TestClock};
use crate::model::{Budget, words};
use crate::runner::cases;
use choose::Chooser;
use drive::Driver;
use futures::FutureExt;
use op::Op;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

cases!("run_model": slow_random_runs);

const STEPS: usize = 80;
const SEQUENCES: u64 = 240;

/// What the sequences have to reach, all together.
const WANTED: &[&str] = &[
    "Create Ok",
    "Create Existing",
    "Create Signalled",
    "Create Taken",
    "Create Invalid",
    "Create Restarted",
    "Create Refused",
    "Create Duplicate",
    "Renew Ok",
    "Renew Lost",
    "Renew Invalid",
    "Renew Missing",
    "renewed without new items",
    "renewed with new items",
    "renewed with items from the beginning",
    "renewed with fewer items than there are",
    "renewed after the lease had ended",
    "renewed twice in one call",
    "Commit Ok",
    "committed with items of a renewal",
    "committed without the last items of a renewal",
    "Commit Repeated",
    "Commit Lost",
    "Commit Invalid",
    "Commit Duplicate",
    "Commit Missing",
    "Commit Unread",
    "committed with single items",
    "committed with all messages read",
    "created by a step",
    "told of a run",
    "told of a refused child",
    "a segment began",
    "ended with a result",
    "claimed when it was stuck",
    "claimed when it was terminated",
    "claimed with a hole in its inbox",
    "claimed after two leases ran out",
    "claimed with its history",
    "claimed with a part of its history",
    "a terminated run was cleaned up",
    "a repeated message",
    "a message to a stuck run",
    "terminated when it was stuck",
    "terminated when it was held",
    "a list by Kind",
    "a list by Stuck",
    "a list by Parent",
    "a list by Label",
    "Send Ok",
    "Send Refused",
    "Send Missing",
    "Remove Ok",
    "Remove Refused",
    "Remove Missing",
    "Claim Missing",
    "claimed by its id",
    "claimed after its engine vanished",
    "claimed because it is time",
    "a claim that leaves some",
    "opened after its end",
    "opened when it was stuck",
    "removed when it was stuck",
    "told of a job",
    "the end of a job: Some(Succeeded)",
    "the end of a job: Some(Failed)",
    "the end of a job: Some(Cancelled)",
    "the end of a job: None",
    "an outcome accepted",
    "an outcome refused",
    "an inbox of more items than a claim hands out",
    "an inbox that is larger than a claim hands out",
    "woken by a sweep",
    "pruned",
    "cancelled by the step that started it",
    "cancelled because no worker has claimed it",
    "a cap of a group",
    "a cap of a group replaced by that of a new job",
    "a cap of a group brought by a job that became ready again",
    "a claim limited by the cap of a group",
];

type Seen = BTreeSet<String>;

async fn slow_random_runs(ctx: Ctx) {
    if matches!(ctx.clock, TestClock::Real) {
        return;
    }
    let budget = Budget::from_env(ctx.factory.sequences(SEQUENCES));
    let mut seen = Seen::new();
    for case in 0..budget.cases {
        let seed = budget.seed.wrapping_add(case);
        let chooser = Chooser::new(seed);
        let ops: Vec<Op> = (0..STEPS).map(|_| chooser.next()).collect();
        let two_handles = seed.is_multiple_of(4);
        if let Err(text) = attempt(&ops, two_handles, &ctx.factory, &mut seen).await {
            let (ops, text) = shrink(ops, text, two_handles, &ctx.factory).await;
            let steps: Vec<String> = ops.iter().enumerate().map(|(i, op)| format!("  {i}: {op:?}")).collect();
            panic!("{}\n{text}\nrepeat it with WINDLASS_MODEL_SEED={seed} WINDLASS_MODEL_CASES=1", steps.join("\n"));
        }
    }
    if budget.cases >= SEQUENCES {
        let missing: Vec<_> = WANTED.iter().filter(|what| !seen.contains(**what)).collect();
        assert!(missing.is_empty(), "the sequences never reached {missing:?}, but {seen:?}");
    }
}

/// One sequence on a store of its own; a panic is a failure like any other, so that it is made shorter, too.
async fn attempt(ops: &[Op], two_handles: bool, factory: &Arc<dyn Factory>, seen: &mut Seen) -> Result<(), String> {
    let sequence = async {
        let mut driver = Driver::new(Ctx::open(Arc::clone(factory)).await, two_handles).await;
        for (i, op) in ops.iter().enumerate() {
            driver.step(op, seen).await.map_err(|text| format!("step {i}, {op:?}:\n{text}"))?;
            driver.compare(seen).await.map_err(|text| format!("after step {i}:\n{text}"))?;
        }
        Ok(())
    };
    AssertUnwindSafe(sequence).catch_unwind().await.unwrap_or_else(|panic| Err(words(panic.as_ref())))
}

/// Leaves steps out for as long as it still fails.
async fn shrink(
    mut ops: Vec<Op>,
    mut text: String,
    two_handles: bool,
    factory: &Arc<dyn Factory>,
) -> (Vec<Op>, String) {
    let mut size = ops.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + size).min(ops.len()));
            match attempt(&fewer, two_handles, factory, &mut Seen::new()).await {
                Err(why) => (ops, text) = (fewer, why),
                Ok(()) => at += size,
            }
        }
        size /= 2;
    }
    (ops, text)
}

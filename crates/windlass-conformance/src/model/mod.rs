//! Random operation sequences: the store under test against the memory store, and both against what must always be true.
//!
//! A sequence is up to 120 steps over every method of the contract. Each step is done to the memory store (the model) and
//! to the store under test; their answers are compared after every step, everything that can be seen of them every ten
//! steps and at the end. Beside that, small checkers that share no code with the engine follow the model's own trace: both
//! embedded stores run the same engine, so that comparing them would not show a mistake of the engine itself.
//!
//! A run also fails when its sequences did not reach every method, outcome, state, edge of the machine and reason: a
//! generator that is never refused and never at a limit shows nothing.
//!
//! # How to repeat a failure
//!
//! A failure prints its seed, the shrunk sequence, and both answers. The same seed gives the same sequence:
//!
//! ```text
//! WINDLASS_MODEL_SEED=<seed> WINDLASS_MODEL_CASES=1 cargo nextest run -p <the store's crate> -E 'test(random_sequences)'
//! ```
//!
//! `WINDLASS_MODEL_CASES=20000` tries more; sequence *n* of a run has the seed of the run plus *n*. To keep a failure,
//! write the shrunk sequence down as a case of its own in the concern that it belongs to: seeds change their meaning
//! whenever the generator does.
//!
//! In a shrunk sequence a job is named by how many jobs were named after it (0 is the latest), a lease likewise; times are
//! offsets. So a step keeps its meaning when the steps before it are taken away.
//!
//! # What a store with a clock of its own would need
//!
//! These sequences need a clock that can be set, because they move to the very millisecond at which a lease ends, and
//! back. A store on a server's clock passes this case without a step, and needs: moves of the clock replaced by waits,
//! every time in an answer compared as a distance to the time of its step, and no two steps closer to a boundary than the
//! clock's jitter.

mod answer;
mod check;
mod coverage;
mod fairness;
mod op;
mod run;
mod side;
mod strategy;
mod strategy_spec;
mod view;

pub(crate) use check::Replay;
pub(crate) use run::{Budget, words};

use crate::ctx::{Ctx, TestClock};
use crate::runner::cases;
use coverage::Seen;

cases!("model": slow_random_sequences, fair_turns);

async fn slow_random_sequences(ctx: Ctx) {
    if matches!(ctx.clock, TestClock::Real) {
        return;
    }
    let budget = Budget::from_env(ctx.factory.sequences(Budget::plain().cases));
    // What shrinks a sequence cannot move between threads, so all of it stays on this one.
    let runtime = tokio::runtime::Handle::current();
    let outcome = tokio::task::block_in_place(|| runtime.block_on(run::run(&budget, &ctx.factory)));
    let seen = outcome.unwrap_or_else(|problem| panic!("{problem}"));
    assert!(seen.unlisted().is_empty(), "nobody has listed {:?}", seen.unlisted());
    // A shorter run is one that repeats a failure.
    if budget.cases >= Budget::plain().cases {
        assert!(seen.missing().is_empty(), "the generator never reached {:?}", seen.missing());
        println!(
            "{} sequences reached all of {} methods, outcomes, edges and reasons",
            budget.cases,
            Seen::required_count()
        );
    }
}

async fn fair_turns(ctx: Ctx) {
    fairness::fair_turns(&ctx).await;
}

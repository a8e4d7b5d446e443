//! Runs sequences, and shrinks the first one that fails.

use super::answer::Answer;
use super::check::{Checker, Step};
use super::coverage::Seen;
use super::op::{Op, World};
use super::side::Side;
use super::{strategy, view};
use crate::ctx::{Factory, Opened, TestClock};
use futures::FutureExt;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use windlass_core::id::JobId;
use windlass_core::job::{Job, Verb};
use windlass_core::memory::MemoryStore;
use windlass_core::random::StrongRandom;
use windlass_core::store::{FeedEvent, JobQueue};
use windlass_core::time::{Timestamp, VirtualClock};

/// The longest sequence; the mean is half of it.
pub(super) const STEPS_MAX: usize = 120;
/// Sequences in a plain run.
pub(super) const CASES: u64 = 300;
/// The seed of a plain run: the same every time, so that a red run is red again.
const SEED: u64 = 20_260_101;
/// Tries to make a failing sequence shorter.
const SHRINKS_MAX: usize = 4_000;
/// Everything is compared after so many steps.
const VIEW_EVERY: usize = 10;

/// How much to try.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) seed: u64,
    pub(crate) cases: u64,
}

impl Budget {
    pub(super) fn plain() -> Self {
        Self { seed: SEED, cases: CASES }
    }

    /// `cases` unless the environment says another number.
    pub(crate) fn from_env(cases: u64) -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is `{text}`; give a number")))
        };
        let plain = Self::plain();
        Self {
            seed: number("WINDLASS_MODEL_SEED").unwrap_or(plain.seed),
            cases: number("WINDLASS_MODEL_CASES").unwrap_or(cases),
        }
    }
}

/// A sequence that failed.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) seed: u64,
    pub(super) steps: usize,
    pub(super) ops: Vec<Op>,
    pub(super) text: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, steps, ops, text } = self;
        writeln!(f, "seed {seed}, shrunk from {steps} steps to:")?;
        for (i, op) in ops.iter().enumerate() {
            writeln!(f, "  {i}: {op:?}")?;
        }
        writeln!(f, "{text}")?;
        write!(f, "repeat it with WINDLASS_MODEL_SEED={seed} WINDLASS_MODEL_CASES=1")
    }
}

/// Tries sequences against the model; answers what they reached.
pub(super) async fn run(budget: &Budget, factory: &Arc<dyn Factory>) -> Result<Seen, Problem> {
    let mut seen = Seen::default();
    let strategy = strategy::sequence(STEPS_MAX);
    for case in 0..budget.cases {
        let seed = budget.seed.wrapping_add(case);
        let mut tree = strategy.new_tree(&mut runner(seed)).unwrap();
        let ops = tree.current();
        if let Err(text) = attempt(&ops, factory, &mut seen).await {
            let (ops, text, steps) = shrink(&mut tree, (ops, text), factory).await;
            return Err(Problem { seed, steps, ops, text });
        }
    }
    Ok(seen)
}

fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

async fn shrink(
    tree: &mut impl ValueTree<Value = Vec<Op>>,
    mut found: (Vec<Op>, String),
    factory: &Arc<dyn Factory>,
) -> (Vec<Op>, String, usize) {
    let steps = found.0.len();
    let mut moved = tree.simplify();
    for _ in 0..SHRINKS_MAX {
        if !moved {
            break;
        }
        let ops = tree.current();
        match attempt(&ops, factory, &mut Seen::default()).await {
            Err(text) => {
                found = (ops, text);
                moved = tree.simplify();
            }
            Ok(()) => moved = tree.complicate(),
        }
    }
    (found.0, found.1, steps)
}

/// One sequence; a panic is a failure like any other, so that it is shrunk too.
async fn attempt(ops: &[Op], factory: &Arc<dyn Factory>, seen: &mut Seen) -> Result<(), String> {
    let outcome = AssertUnwindSafe(sequence(ops, factory, seen)).catch_unwind().await;
    outcome.unwrap_or_else(|panic| Err(words(panic.as_ref())))
}

pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    format!("a panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without words"))
}

/// Both stores, the names they share, and the checks.
struct Pair {
    model: Side,
    other: Side,
    world: World,
    checker: Checker,
    /// The model's jobs after the last step.
    jobs: BTreeMap<JobId, Job>,
}

async fn sequence(ops: &[Op], factory: &Arc<dyn Factory>, seen: &mut Seen) -> Result<(), String> {
    let Opened { store, clock, keep } = factory.open().await;
    let TestClock::Virtual(clock) = clock else { return Err("the clock cannot be moved".to_owned()) };
    let model_clock = Arc::new(VirtualClock::new(Timestamp::default()));
    let model = MemoryStore::with(model_clock.clone(), Arc::new(StrongRandom::seeded(1)));
    let mut pair = Pair {
        model: Side::new(Arc::new(model), model_clock),
        other: Side::new(store, clock),
        world: World::default(),
        checker: Checker::default(),
        jobs: BTreeMap::new(),
    };
    for (i, op) in ops.iter().enumerate() {
        pair.step(op, seen).await.map_err(|text| format!("step {i}, {op:?}:\n{text}"))?;
        if i % VIEW_EVERY == VIEW_EVERY - 1 || i == ops.len() - 1 {
            pair.compare(seen).await.map_err(|text| format!("after step {i}:\n{text}"))?;
        }
    }
    pair.end(seen).await?;
    drop(keep);
    Ok(())
}

impl Pair {
    async fn step(&mut self, op: &Op, seen: &mut Seen) -> Result<(), String> {
        if let Op::Advance { .. } | Op::AdvanceTo(_) | Op::JumpBack { .. } = op {
            self.move_clocks(op);
        }
        let leases_before = self.model.leases.len();
        let spoken_for = self.spoken_for(op);
        let claim = match op {
            Op::Claim(plan) | Op::ReportAndClaim(_, plan) => Some(self.model.claim_request(plan)),
            _ => None,
        };
        let (answer, other) = match op {
            Op::Advance { .. } | Op::AdvanceTo(_) | Op::JumpBack { .. } => (Answer::Nothing, Answer::Nothing),
            _ => (self.model.apply(op, &self.world).await, self.other.apply(op, &self.world).await),
        };
        let (events, other_events) = (self.model.feed_news().await, self.other.feed_news().await);
        seen.note_op(op);
        seen.note_answer(&answer);
        events.iter().for_each(|(_, event)| seen.note_event(event));
        let world = self.world.clone();
        self.world.learn(op);
        for (_, event) in &events {
            if let FeedEvent::Job(job) = event
                && job.verb == Verb::Enqueue
            {
                self.world.learn_id(job.job);
            }
        }
        let after = self.model.jobs(&self.world.ids).await;
        after.values().for_each(|job| seen.note_job(job));
        self.checker.step(&Step {
            op,
            answer: &answer,
            now: self.model.now(),
            world: &world,
            spoken_for: &spoken_for,
            claim: claim.as_ref(),
            leases_before,
            before: &self.jobs,
            after: &after,
            events: &events,
        })?;
        self.jobs = after;
        if answer != other {
            return Err(format!("the model answers {answer:#?}\nthe store answers {other:#?}"));
        }
        if events != other_events {
            return Err(format!("the model's feed says {events:#?}\nthe store's feed says {other_events:#?}"));
        }
        Ok(())
    }

    /// The numbers of the leases that a step speaks for.
    fn spoken_for(&self, op: &Op) -> Vec<Option<usize>> {
        match op {
            Op::Report(plan) | Op::ReportAndClaim(plan, _) => {
                plan.outcomes.iter().map(|(lease, _)| self.model.lease_index(lease)).collect()
            }
            Op::Renew(plans) => plans.iter().map(|plan| self.model.lease_index(&plan.lease)).collect(),
            Op::AppendLogs { lease, .. } => vec![self.model.lease_index(lease)],
            _ => Vec::new(),
        }
    }

    fn move_clocks(&self, op: &Op) {
        let now = self.model.now();
        let to = match op {
            Op::Advance { ms } => now.plus_ms(*ms),
            Op::JumpBack { ms } => now.minus_ms(*ms),
            Op::AdvanceTo(edge) => {
                let lease = |job: &Job| job.lease.as_ref().map(|lease| lease.expires_at);
                let edges = self.jobs.values().flat_map(|job| [lease(job), job.due_at]).flatten();
                let of_rates = self.checker.edges(now).into_iter().filter(|_| edge.of_a_rate).min();
                let next = of_rates.or(edges.filter(|at| *at > now).min()).unwrap_or(now);
                if edge.just_before { next.minus_ms(1).max(now) } else { next }
            }
            _ => now,
        };
        self.model.clock.set(to);
        self.other.clock.set(to);
    }

    /// Compares everything that can be seen, and counts it again.
    async fn compare(&self, seen: &mut Seen) -> Result<(), String> {
        self.checker.whole(&self.model, &self.jobs).await?;
        for id in self.jobs.keys() {
            let explanation = self.model.store.explain(*id).await.map_err(|error| error.to_string())?;
            seen.note_answer(&Answer::Explained(explanation));
        }
        let model = view::view(&self.model, &self.world).await;
        let other = view::view(&self.other, &self.world).await;
        view::difference(&model, &other).map_or(Ok(()), Err)
    }

    async fn end(&self, seen: &mut Seen) -> Result<(), String> {
        for side in [&self.model, &self.other] {
            seen.note_answer(&side.close().await);
        }
        self.model.store.calls().into_keys().for_each(|method| seen.note_method(method));
        Ok(())
    }
}

//! The storm: a crew works on a Redis store whose servers break, again and again; then everything is counted.
//!
//! A round lets the crew work, breaks something, waits until the store is back, measures how long the crew takes to claim
//! again, and recounts every index ([`crate::recount`]). In the end nobody enqueues any more, the rest is worked off, and what
//! the crew wrote down is compared with what the store has ([`windlass_audit`]).
//!
//! Failovers under full load have a storm of their own, with runs and wake-ups ([`planned`]), and so has the timekeeper, with
//! worker processes ([`timekeeper`]).

mod bed;
mod blows;
mod crew;
mod fault;
mod half;
mod planned;
mod table;
mod timekeeper;

pub use crate::watch::Unanswered;
pub use fault::Fault;
pub use table::Row;

use crate::Result;
use crate::args::StormConfig;
use crate::recount::Discord;
use bed::{Bed, PREFIX, aside, end};
use crew::{Crew, Outcome};
use std::sync::Arc;
use windlass_core::name::QueueName;
use windlass_core::store::{QueueSettings, Retention, RetentionRule, Setting, Store};
use windlass_core::time::{Clock, SystemClock};

/// Jobs that are completed before every blow.
const JOBS_BETWEEN: u64 = 30;

/// What is done how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What.
    pub fault: Fault,
    /// How often.
    pub rounds: u32,
    /// Draws the moments.
    pub seed: u64,
}

/// Does it.
pub async fn run(plan: Plan) -> Result<Row> {
    let Plan { fault, rounds, seed } = plan;
    if fault.is_under_full_load() {
        return planned::run(plan).await;
    }
    if fault == Fault::FrozenTimekeeper {
        return timekeeper::run(plan).await;
    }
    let began = SystemClock.now();
    let bed = Arc::new(aside(move || Bed::start(fault)).await?);
    let mut crews = vec![Crew::start(&bed.url(PREFIX, fault.options()), fault.workers(), seed)?];
    if fault == Fault::Neighbours {
        crews.push(Crew::start(&bed.url("storm-2", ""), fault.workers(), seed ^ 1)?);
    }
    let mut row = Row { fault: fault.name().to_owned(), rounds, ..Row::default() };
    let mut storm = Storm { bed, crews, fault, dice: crate::child::Dice::new(seed) };
    for _ in 0..rounds {
        for crew in &mut storm.crews {
            crew.progress(JOBS_BETWEEN).await?;
        }
        let struck = storm.strike().await?;
        row.in_discord(&struck.discord);
        for crew in &mut storm.crews {
            row.recovery_ms = row.recovery_ms.max(crew.recovery_ms(struck.back_at).await?);
        }
        storm.mend().await?;
        for crew in &storm.crews {
            row.in_discord(&crew.recount().await?);
        }
    }
    // The servers must outlive the crews.
    let Storm { bed, crews, .. } = storm;
    for crew in crews {
        row.add(crew.finish().await?);
    }
    row.seconds = SystemClock.now().ms_since(began) / 1_000;
    end(bed).await?;
    Ok(row)
}

/// A storm under way.
struct Storm {
    bed: Arc<Bed>,
    crews: Vec<Crew>,
    fault: Fault,
    dice: crate::child::Dice,
}

/// The audit needs every job, and the workers of the library remove what retention lets go.
async fn keep_everything(store: &dyn Store, queues: Vec<QueueName>) -> Result<()> {
    let all = RetentionRule::default();
    let retention = Retention { succeeded: all, failed: all, cancelled: all };
    for queue in queues {
        let settings = QueueSettings { retention, ..QueueSettings::default() };
        store.configure(Setting::Queue { queue, settings }).await?;
    }
    Ok(())
}

impl Row {
    fn in_discord(&mut self, discord: &Discord) {
        self.discord += discord.count;
        self.findings.faults.extend(discord.named.iter().take(5).cloned());
    }

    fn add(&mut self, outcome: Outcome) {
        let Outcome { findings, miscounted, discord, unanswered } = outcome;
        self.in_discord(&discord);
        self.miscounted += miscounted;
        let (all, calls) = (&mut self.findings, &mut self.unanswered);
        all.jobs += findings.jobs;
        all.executed += findings.executed;
        all.delivered_twice += findings.delivered_twice;
        all.too_late += findings.too_late;
        all.lost += findings.lost;
        all.double += findings.double;
        all.forgotten += findings.forgotten;
        all.phantom += findings.phantom;
        all.faults.extend(findings.faults);
        calls.unknown += unanswered.unknown;
        calls.unavailable += unanswered.unavailable;
        calls.full += unanswered.full;
        calls.refused += unanswered.refused;
    }
}

/// The long version: all faults that were asked for, and a table of them. True when no promise was broken.
pub(crate) fn run_all(config: &StormConfig) -> Result<bool> {
    eprintln!("seed {}", config.seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut clean = true;
    if !config.json {
        println!("{}", Row::HEAD);
    }
    for fault in &config.faults {
        match runtime.block_on(run(Plan { fault: *fault, rounds: config.rounds, seed: config.seed })) {
            Ok(row) => {
                clean &= row.is_clean();
                println!("{}", if config.json { serde_json::to_string(&row)? } else { row.to_string() });
                row.findings.faults.iter().filter(|_| !row.is_clean()).for_each(|fault| eprintln!("  {fault}"));
            }
            Err(error) => {
                clean = false;
                eprintln!("{fault}: {error}");
            }
        }
    }
    Ok(clean)
}

//! Durable workflows under SIGKILL: a fleet of workers executes sagas while it is killed in a loop, and what the activities did is
//! compared with what they should have done.
//!
//! Activities run at least once. So every activity notes the id of its job: two ids for one call of the code would be a call that
//! was made twice, and no id a call that was lost.

use crate::args::{Config, Part, StoreKind};
use crate::child::{Dice, open, pass_ms};
use crate::fleet::{Fleet, Kind};
use crate::{QUEUE, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass::durable::{Error, RunHandle, Signal, Wf, join, select, workflow};
use windlass::{Client, Ctx, Job, JobError, State};
use windlass_core::store::{Run, RunState};
use windlass_core::time::{Clock, HANG_GUARD, SystemClock};
use windlass_servers::{Fsync, Redis};

/// Runs that go on at a time.
const IN_FLIGHT: usize = 40;
/// The longest pause before a kill, in ms.
const PAUSE_MS: u64 = 250;
/// Short, so that the leases of a killed process end soon.
const LEASE: Duration = Duration::from_secs(1);
/// An order with a number that this divides cannot be shipped, and its payment is refunded.
const FAILS_EVERY: u64 = 3;
/// An attempt takes less than this.
const WORK_MS: u64 = 40;
/// The ending of the files to which workers write what their activities did.
const EFFECTS: &str = "effects";

/// One storm, as it is printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowReport {
    /// Repeats the moments.
    pub seed: u64,
    /// Processes killed.
    pub kills: u64,
    /// Runs that were started.
    pub runs: u64,
    /// Runs that have not ended.
    pub unended: u64,
    /// Runs that ended in another way than they should have, or with another result.
    pub wrong_results: u64,
    /// Payments, by different jobs.
    pub charges: u64,
    /// Refunds, by different jobs.
    pub refunds: u64,
    /// Orders with another number of payments, refunds, parcels or invoices than they should have.
    pub unbalanced: u64,
    /// Attempts that were repeated because a worker was killed.
    pub repeated: u64,
    /// Runs that became stuck because three engines in a row were killed while they held them. They were resumed.
    pub resumed: u64,
    /// How long it took.
    pub seconds: u64,
}

impl WorkflowReport {
    /// True when nothing was lost or made twice.
    pub fn is_clean(&self) -> bool {
        self.runs > 0 && self.unended == 0 && self.wrong_results == 0 && self.unbalanced == 0
    }
}

/// What an activity does, as it is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Effect {
    Charged,
    Refunded,
    Shipped,
    Invoiced,
}

#[derive(Serialize, Deserialize)]
struct Noted {
    effect: Effect,
    order: u64,
    job: String,
}

macro_rules! activities {
    ($($activity:ident $effect:ident;)*) => {$(
        #[derive(Serialize, Deserialize, Job)]
        #[job(queue = "crash", output = u64, stalls = 1000, attempts = 3)]
        struct $activity {
            order: u64,
        }

        impl Activity for $activity {
            const EFFECT: Effect = Effect::$effect;

            fn order(&self) -> u64 {
                self.order
            }
        }
    )*};
}

trait Activity: Job<Output = u64> {
    const EFFECT: Effect;

    fn order(&self) -> u64;
}

activities! {
    Charge Charged;
    Refund Refunded;
    Ship Shipped;
    Print Invoiced;
}

#[derive(Serialize, Deserialize, Signal)]
struct Approve {
    by: u64,
}

#[workflow]
async fn invoice(wf: Wf, order: u64) -> Result<u64, Error> {
    wf.sleep("20ms").await?;
    Ok(wf.call(Print { order }).await?)
}

#[workflow]
async fn order(wf: Wf, order: u64) -> Result<String, Error> {
    let mut saga = wf.saga();
    let paid = wf.call(Charge { order }).await?;
    saga.undo(Refund { order });
    let slip = wf.run_ok("slip", async || order + 1).await?;
    let approved = select! {
        approve = wf.recv::<Approve>() => approve?.by,
        late = wf.sleep("1h") => { late?; return Err("nobody has approved it".into()) },
    };
    wf.sleep("30ms").await?;
    let (parcel, invoice) = join!(wf.call(Ship { order }), wf.child(invoice, order));
    Ok(format!("{order} {paid} {slip} {approved} {} {}", parcel?, invoice?))
}

fn expected(order: u64) -> std::result::Result<String, String> {
    if order.is_multiple_of(FAILS_EVERY) {
        return Err(format!("order {order} cannot be shipped"));
    }
    Ok(format!("{order} {order} {} {order} {order} {order}", order + 1))
}

/// What the handlers share.
struct Handlers {
    effects: parking_lot::Mutex<File>,
    dice: Dice,
}

async fn handle<A: Activity>(activity: A, ctx: Ctx, State(handlers): State<Handlers>) -> Result<u64, JobError> {
    pass_ms(handlers.dice.below(WORK_MS)).await;
    let order = activity.order();
    if A::EFFECT == Effect::Shipped && order.is_multiple_of(FAILS_EVERY) {
        return Err(JobError::fatal(format!("order {order} cannot be shipped")));
    }
    let noted = Noted { effect: A::EFFECT, order, job: ctx.id().to_string() };
    let mut line = serde_json::to_string(&noted).map_err(JobError::new)?;
    line.push('\n');
    let mut file = handlers.effects.lock();
    file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).map_err(JobError::new)?;
    Ok(order)
}

/// A worker process: works until it is killed.
pub(crate) async fn work(part: Part) -> Result<()> {
    let store = open(&part.dir, part.url.as_deref())?;
    let path = part.dir.join(&part.name).with_extension(EFFECTS);
    let effects = parking_lot::Mutex::new(OpenOptions::new().create(true).append(true).open(path)?);
    let handlers = Handlers { effects, dice: Dice::new(part.seed) };
    let builder = windlass::Worker::builder(store).id(&part.name).queue(QUEUE).slots(8).lease(LEASE).state(handlers);
    let builder =
        builder.handle(handle::<Charge>).handle(handle::<Refund>).handle(handle::<Ship>).handle(handle::<Print>);
    Ok(builder.workflow(order).workflow(invoice).build()?.run_until_stopped().await?)
}

/// Runs the storm.
pub(crate) async fn storm(config: &Config) -> Result<WorkflowReport> {
    eprintln!("seed {}", config.seed);
    let folder = tempfile::tempdir()?;
    let dir = config.dir.as_deref().unwrap_or(folder.path());
    std::fs::create_dir_all(dir)?;
    // Ended with this storm.
    let server = match config.store {
        StoreKind::Sqlite => None,
        StoreKind::Redis => Some(Redis::builder().append_only(Fsync::EverySec).start()?),
    };
    let url = server.as_ref().map(Redis::url);
    let store = open(dir, url.as_deref())?;
    let mut fleet = Fleet::new(config, dir, url.as_deref())?;
    for _ in 0..config.workers {
        fleet.start(Kind::WorkflowWorker)?;
    }
    let report = WorkflowReport { seed: config.seed, ..WorkflowReport::default() };
    let mut storm = Storm { client: Client::new(Arc::clone(&store)), going_on: Vec::new(), report };
    let began = SystemClock.now();
    storm.kill_in_a_loop(config, &mut fleet).await?;
    storm.work_off(&mut fleet).await?;
    fleet.kill_all(Kind::WorkflowWorker)?;
    let mut report = storm.report;
    audit(dir, &mut report)?;
    store.close().await?;
    report.seconds = SystemClock.now().ms_since(began) / 1_000;
    Ok(report)
}

struct Storm {
    client: Client,
    going_on: Vec<(u64, RunHandle<order>)>,
    report: WorkflowReport,
}

impl Storm {
    async fn kill_in_a_loop(&mut self, config: &Config, fleet: &mut Fleet) -> Result<()> {
        let dice = Dice::new(config.seed);
        let end = SystemClock.now().plus_ms(config.seconds.saturating_mul(1_000));
        while SystemClock.now() < end || self.report.kills < config.kills {
            fleet.check()?;
            while self.going_on.len() < IN_FLIGHT && self.report.runs < config.jobs {
                self.start().await?;
            }
            self.collect().await?;
            pass_ms(dice.below(PAUSE_MS)).await;
            let names: Vec<String> = fleet.names(Kind::WorkflowWorker).map(str::to_owned).collect();
            let place = usize::try_from(dice.below(names.len().max(1) as u64))?;
            fleet.replace(&names[place])?;
            self.report.kills += 1;
        }
        Ok(())
    }

    /// Nobody is killed any more: every run must come to its end.
    async fn work_off(&mut self, fleet: &mut Fleet) -> Result<()> {
        let (mut left, mut ended_at) = (self.going_on.len(), SystemClock.now());
        while !self.going_on.is_empty() {
            fleet.check()?;
            self.collect().await?;
            if self.going_on.len() < left {
                (left, ended_at) = (self.going_on.len(), SystemClock.now());
            }
            if SystemClock.now().ms_since(ended_at) > HANG_GUARD.as_secs() * 1_000 {
                for (_, run) in &self.going_on {
                    eprintln!("not ended: {:?}", run.describe().await?);
                }
                break;
            }
            pass_ms(20).await;
        }
        self.report.unended = self.going_on.len() as u64;
        Ok(())
    }

    async fn start(&mut self) -> Result<()> {
        self.report.runs += 1;
        let number = self.report.runs;
        let run = self.client.start(order, number).id(format!("order-{number}")).await?;
        run.signal_once("approve", Approve { by: number }).await?;
        self.going_on.push((number, run));
        Ok(())
    }

    /// Compares the runs that have ended with what was expected.
    async fn collect(&mut self) -> Result<()> {
        for (number, run) in std::mem::take(&mut self.going_on) {
            let seen = run.describe().await?;
            if let Some(stuck) = &seen.stuck {
                if !stuck.contains("processes in a row ended") {
                    return Err(format!("order {number} is stuck: {stuck}").into());
                }
                run.resume().await?;
                self.report.resumed += 1;
            }
            if !seen.state.is_terminal() {
                self.going_on.push((number, run));
            } else if !is_right(number, &run, &seen).await? {
                self.report.wrong_results += 1;
            }
        }
        Ok(())
    }
}

async fn is_right(number: u64, run: &RunHandle<order>, seen: &Run) -> Result<bool> {
    let result = run.result(HANG_GUARD).await?.ok_or("a run that has ended has no result")?;
    let is_right = match (expected(number), &result) {
        (Ok(expected), Ok(result)) => expected == *result,
        (Err(expected), Err(failure)) => seen.state == RunState::Failed && failure.message.contains(&expected),
        _ => false,
    };
    if !is_right {
        eprintln!("order {number} ended as {:?}: {result:?}", seen.state);
    }
    Ok(is_right)
}

/// The lines of all workers.
fn read_effects(dir: &Path) -> Result<Vec<Noted>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path: PathBuf = entry?.path();
        if path.extension().is_none_or(|ending| ending != EFFECTS) {
            continue;
        }
        // The last line of a worker that was killed may be cut off: its attempt did not end.
        all.extend(std::fs::read_to_string(path)?.lines().filter_map(|line| serde_json::from_str::<Noted>(line).ok()));
    }
    Ok(all)
}

/// Counts the different jobs that had each effect on each order.
fn audit(dir: &Path, report: &mut WorkflowReport) -> Result<()> {
    let (mut jobs, mut attempts) = (BTreeMap::<(u64, Effect), BTreeSet<String>>::new(), 0);
    for Noted { effect, order, job } in read_effects(dir)? {
        attempts += 1;
        jobs.entry((order, effect)).or_default().insert(job);
    }
    let count = |order, effect| jobs.get(&(order, effect)).map_or(0, BTreeSet::len) as u64;
    for order in 1..=report.runs {
        let fails = order.is_multiple_of(FAILS_EVERY);
        let found =
            [Effect::Charged, Effect::Refunded, Effect::Shipped, Effect::Invoiced].map(|effect| count(order, effect));
        // The invoice of an order that cannot be shipped is printed beside the attempt to ship it, and both are awaited.
        let right = [1, u64::from(fails), u64::from(!fails), 1];
        if found != right {
            eprintln!("order {order}: payments, refunds, parcels, invoices are {found:?} instead of {right:?}");
            report.unbalanced += 1;
        }
        report.charges += found[0];
        report.refunds += found[1];
    }
    report.repeated = attempts - jobs.values().map(|jobs| jobs.len() as u64).sum::<u64>();
    Ok(())
}

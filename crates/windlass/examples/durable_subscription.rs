//! A subscription as a durable workflow: it charges every period, takes signals, and continues as new so that its history stays
//! short.
//!
//! ```sh
//! cargo run -p windlass --example durable_subscription
//! cargo run -p windlass --example durable_subscription sqlite:///tmp/subscription.db /tmp/subscription-bank
//! ```
//!
//! The second form keeps its files: kill it with `kill -9` at any moment and start it again. In the end each period is charged
//! once. A period is 200 ms here, and a month in real life; nothing else would change.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass::core::time::Timestamp;
use windlass::durable::{Error, RunHandle, Signal, Wf, select, workflow};
use windlass::{Client, Ctx, Job, JobError, State, Worker};

const PERIOD_MS: u64 = 200;
/// After so many periods the run continues as new.
const PERIODS_PER_SEGMENT: u32 = 4;

#[derive(Serialize, Deserialize, Signal)]
pub(crate) struct ChangePlan {
    pub(crate) cents: u64,
}

#[derive(Serialize, Deserialize, Signal)]
pub(crate) struct Unsubscribe {}

/// Many stalls are allowed, because this program is killed for demonstration.
#[derive(Serialize, Deserialize, Job)]
#[job(queue = "billing", stalls = 1_000)]
pub(crate) struct Charge {
    pub(crate) period: u32,
    pub(crate) cents: u64,
}

/// All that a segment passes on to the next one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Subscription {
    /// The price of a period.
    pub(crate) cents: u64,
    /// The end of the current period; `None` before the first.
    pub(crate) due: Option<Timestamp>,
    pub(crate) periods_charged: u32,
    pub(crate) cents_charged: u64,
}

#[workflow]
pub(crate) async fn subscription(wf: Wf, mut now: Subscription) -> Result<Subscription, Error> {
    for _ in 0..PERIODS_PER_SEGMENT {
        // Computed from the last due time, not from the current time, so that periods do not drift.
        let due = now.due.unwrap_or_else(|| wf.now()).plus_ms(PERIOD_MS);
        loop {
            select! {
                plan = wf.recv::<ChangePlan>() => now.cents = plan?.cents,
                left = wf.recv::<Unsubscribe>() => { left?; return Ok(now) },
                time = wf.sleep_until(due) => { time?; break },
            }
        }
        wf.call(Charge { period: now.periods_charged, cents: now.cents }).attempts(10).await?;
        now.due = Some(due);
        now.periods_charged += 1;
        now.cents_charged += now.cents;
    }
    wf.continue_as_new(subscription, now).await
}

/// A bank that keeps each booking as an empty file. The name contains the id of the job, so an attempt that is repeated after a
/// crash does not book twice.
struct Bank(PathBuf);

impl Bank {
    fn book(&self, job: &Charge, ctx: &Ctx) -> std::io::Result<()> {
        File::create(self.0.join(format!("charge-{}-{}-{}", job.period, job.cents, ctx.id()))).map(drop)
    }
}

async fn charge(job: Charge, bank: State<Bank>, ctx: Ctx) -> Result<(), JobError> {
    Ok(bank.book(&job, &ctx)?)
}

/// A run that has ended refuses signals: an earlier process has sent the last one.
fn is_open(sent: windlass::Result<()>) -> windlass::Result<bool> {
    match sent {
        Err(windlass::Error::RunRefused { .. }) => Ok(false),
        sent => sent.map(|()| true),
    }
}

/// What the customer does: a dearer plan after 5 periods, and the end after 12. Signals have ids, so that a restarted program
/// may send them again.
async fn act_as_customer(run: &RunHandle<subscription>, bank: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut shown = 0;
    loop {
        let charges = std::fs::read_dir(bank)?.count();
        if charges > shown {
            println!("{charges} periods are charged");
            shown = charges;
        }
        if charges >= 5 && !is_open(run.signal_once("dearer", ChangePlan { cents: 900 }).await)? {
            return Ok(());
        }
        if charges >= 12 {
            is_open(run.signal_once("end", Unsubscribe {}).await)?;
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn subscribe(client: &Client, bank: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let new = Subscription { cents: 500, due: None, periods_charged: 0, cents_charged: 0 };
    let run = match client.start(subscription, new).id("subscription-ada").await {
        Err(windlass::Error::RunTaken { .. }) => client.run(subscription, "subscription-ada"),
        started => started?,
    };
    println!("ada has subscribed");
    act_as_customer(&run, bank).await?;
    let ended = loop {
        if let Some(ended) = run.result(Duration::from_secs(60)).await? {
            break ended?;
        }
    };
    let segments = if run.describe().await?.segment_from > 0 { "several segments" } else { "one segment" };
    println!("ended in {segments}: {} periods, {} cents", ended.periods_charged, ended.cents_charged);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| format!("sqlite://{}/subscription.db", temporary.path().display()));
    let bank = args.next().map_or_else(|| temporary.path().join("bank"), PathBuf::from);
    std::fs::create_dir_all(&bank)?;

    let client = Client::open(&url)?;
    // A short lease, so that the jobs of a killed process soon run again.
    let worker = Worker::builder(client.store().clone()).queue("billing").lease(Duration::from_secs(2));
    let worker = worker.state(Bank(bank.clone())).handle(charge).workflow(subscription).build()?;
    let stopper = worker.stopper();
    let life = async {
        let ended = subscribe(&client, &bank).await;
        stopper.drain();
        ended
    };
    let (ran, ended) = tokio::join!(worker.run_until_stopped(), life);
    ended?;
    ran?;
    Ok(())
}

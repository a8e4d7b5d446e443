//! Orders as durable workflows: charge, wait for an approval, ship; after a failure the payment is refunded.
//!
//! ```sh
//! cargo run -p windlass --example durable_order
//! cargo run -p windlass --example durable_order sqlite:///tmp/orders.db /tmp/orders-bank
//! ```
//!
//! The second form keeps its files: kill it with `kill -9` at any moment and start it again. In the end each order is charged
//! once, and an order that is not shipped is refunded once.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;
use windlass::durable::{Error, PromiseToken, RunHandle, Wf, select, workflow};
use windlass::{Client, Ctx, Job, JobError, State, Worker};

const ORDERS: u32 = 40;

/// Returns the id of the payment. Many stalls are allowed, because this program is killed for demonstration.
#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = String, stalls = 1_000)]
pub(crate) struct Charge {
    pub(crate) order: u32,
}

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", stalls = 1_000)]
pub(crate) struct Refund {
    pub(crate) order: u32,
    pub(crate) payment: String,
}

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", stalls = 1_000)]
pub(crate) struct AskForApproval {
    pub(crate) order: u32,
    pub(crate) answer_to: PromiseToken,
}

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = String, stalls = 1_000)]
pub(crate) struct Ship {
    pub(crate) order: u32,
}

#[workflow]
pub(crate) async fn order(wf: Wf, number: u32) -> Result<String, Error> {
    let mut saga = wf.saga();
    let payment = wf.call(Charge { order: number }).await?;
    // From here on, every error that this function returns is followed by the refund.
    saga.undo(Refund { order: number, payment });

    let approval = wf.promise::<bool>();
    wf.call(AskForApproval { order: number, answer_to: approval.token() }).await?;
    select! {
        approved = approval => if !approved? { return Err("not approved".into()) },
        late = wf.sleep("1h") => { late?; return Err("nobody approved it within an hour".into()) },
    }
    Ok(wf.call(Ship { order: number }).timeout("30s").await?)
}

/// A bank that keeps each booking as an empty file. The name contains the id of the job, so an attempt that is repeated after a
/// crash does not book twice.
struct Bank(PathBuf);

impl Bank {
    async fn book(&self, what: &str, order: u32, ctx: &Ctx) -> Result<String, JobError> {
        tokio::time::sleep(Duration::from_millis(20)).await; // as long as a request takes
        let booking = format!("{what}-{order}-{}", ctx.id());
        File::create(self.0.join(&booking))?;
        Ok(booking)
    }
}

async fn charge(job: Charge, bank: State<Bank>, ctx: Ctx) -> Result<String, JobError> {
    bank.book("charge", job.order, &ctx).await
}

async fn refund(job: Refund, bank: State<Bank>, ctx: Ctx) -> Result<(), JobError> {
    ctx.log(format!("refunds {}", job.payment));
    bank.book("refund", job.order, &ctx).await.map(drop)
}

/// In a real system this sends a mail with a link that contains the token, and the handler of the link resolves the promise.
async fn ask_for_approval(job: AskForApproval, ctx: Ctx) -> Result<(), JobError> {
    let approved = !job.order.is_multiple_of(5);
    Ok(ctx.client().resolve(&job.answer_to, &approved).await?)
}

async fn ship(job: Ship) -> Result<String, JobError> {
    if job.order.is_multiple_of(3) {
        return Err(JobError::fatal("out of stock")); // no further attempt
    }
    Ok(format!("parcel {}", job.order))
}

/// Starts an order, or finds the run that an earlier process started for it.
async fn place(client: &Client, number: u32) -> windlass::Result<RunHandle<order>> {
    let id = format!("order-{number}");
    match client.start(order, number).id(&id).await {
        Err(windlass::Error::RunTaken { .. }) => Ok(client.run(order, id)),
        started => started,
    }
}

async fn place_all(client: &Client) -> windlass::Result<()> {
    let mut runs = Vec::new();
    for number in 1..=ORDERS {
        runs.push((number, place(client, number).await?));
    }
    println!("{ORDERS} orders are placed");
    for (number, run) in runs {
        let ended = loop {
            if let Some(ended) = run.result(Duration::from_secs(60)).await? {
                break ended;
            }
        };
        match ended {
            Ok(parcel) => println!("order {number}: shipped as {parcel}"),
            Err(failure) => println!("order {number}: {}, the payment is refunded", failure.message),
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| format!("sqlite://{}/orders.db", temporary.path().display()));
    let bank = args.next().map_or_else(|| temporary.path().join("bank"), PathBuf::from);
    std::fs::create_dir_all(&bank)?;

    let client = Client::open(&url)?;
    // A short lease, so that the jobs of a killed process soon run again.
    let worker = Worker::builder(client.store().clone()).queue("shop").lease(Duration::from_secs(2)).state(Bank(bank));
    let worker = worker.handle(charge).handle(refund).handle(ask_for_approval).handle(ship).workflow(order).build()?;
    let stopper = worker.stopper();
    let orders = async {
        let placed = place_all(&client).await;
        stopper.drain();
        placed
    };
    let (ran, placed) = tokio::join!(worker.run_until_stopped(), orders);
    placed.and(ran)?;
    Ok(())
}

//! The example of the guide: it compiles as written, and is killed after every commit.

use super::support::{State, TokioHost, World, body};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_durable::{CallError, Cancelled, End, Job, Signal, Wf, join, select, typed, workflow as durable_workflow};

macro_rules! job {
    ($name:ident { $($field:ident : $type:ty),* } -> $output:ty) => {
        #[derive(Serialize, Deserialize, Debug, Clone)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
        impl Job for $name {
            const KIND: &'static str = stringify!($name);
            type Output = $output;
        }
    };
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub(crate) struct Order {
    id: u64,
}

#[derive(Serialize, Deserialize, Debug, Clone)]
pub(crate) struct Payment {
    id: u64,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub(crate) struct Receipt {
    slip: String,
    ship: u64,
    invoice: u64,
}

#[derive(Serialize, Deserialize, Debug, Clone, Signal)]
#[signal(crate = windlass_durable)]
pub(crate) struct Approve {
    by: String,
}

job!(Charge { order: u64 } -> Payment);
job!(Refund { payment: u64 } -> ());
job!(Ship { order: u64 } -> u64);
job!(Bill { order: u64 } -> u64);

#[derive(Debug)]
pub(crate) enum Error {
    Late,
    Call(CallError),
    Cancelled(Cancelled),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late => f.write_str("late"),
            Self::Call(error) => error.fmt(f),
            Self::Cancelled(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Late => None,
            Self::Call(error) => Some(error),
            Self::Cancelled(error) => Some(error),
        }
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<Cancelled> for Error {
    fn from(error: Cancelled) -> Self {
        Self::Cancelled(error)
    }
}

async fn render(paid: &Payment) -> Result<String, std::io::Error> {
    tokio::time::sleep(std::time::Duration::from_millis(2)).await; // sleeps because: the step has to wait for a timer
    Ok(format!("slip {}", paid.id))
}

#[durable_workflow(crate = windlass_durable)]
async fn invoice(wf: Wf, order: u64) -> Result<u64, Error> {
    Ok(wf.call(Bill { order }).await?)
}

#[rustfmt::skip]
#[durable_workflow(version = 2, crate = windlass_durable)]
async fn order(wf: Wf, o: Order) -> Result<Receipt, Error> {
    let mut saga = wf.saga();
    let paid = wf.call(Charge { order: o.id }).timeout("30s").await?;   // a job, on its queue
    saga.undo(Refund { payment: paid.id });                             // runs if the workflow ends in Err
    let slip = wf.run("slip", async || render(&paid).await).await?;     // a local step, no queue
    select! {
        a = wf.recv::<Approve>() => { a?; }                             // a typed signal
        t = wf.sleep("30d")      => { t?; return Err(Error::Late); }    // `t?`: a cancellation is not a timeout
    };
    let (ship, invoice) = join!(wf.call(Ship { order: o.id }), wf.child(invoice, o.id));
    Ok(Receipt { slip, ship: ship?, invoice: invoice? })
}

fn receipt() -> Receipt {
    Receipt { slip: "slip 77".into(), ship: 4, invoice: 5 }
}

fn world(host: &Arc<TokioHost>) -> World {
    let mut world = World::new(typed(order), &Order { id: 9 });
    world.others.insert("invoice@1".into(), typed(invoice));
    world.host = host.clone();
    world.activity = Arc::new(|job| {
        let output = match &*job.key.name {
            "Charge" => body(&Payment { id: 77 }),
            "Ship" => body(&4),
            "Bill" => body(&5),
            _ => body(&()),
        };
        (5, Ok(output))
    });
    world
}

/// Steps are awaited in real time.
fn go(world: &mut World, host: &TokioHost) -> State {
    loop {
        let state = world.go();
        if !matches!(state, State::Waiting) || !world.run.as_ref().is_some_and(windlass_durable::Run::has_steps) {
            return state;
        }
        host.wait();
    }
}

#[test]
fn an_approved_order_returns_its_receipt() {
    let host = Arc::new(TokioHost::new());
    let mut world = world(&host);
    world.signal(1_000, &Approve { by: "me".into() });
    let state = go(&mut world, &host);
    let State::Ended(End::Ok(value)) = state else { panic!("{state:?}\n{}", world.print()) };
    assert_eq!(value.read::<Receipt>().unwrap(), receipt());
    let spec = match &world.started[0].start {
        windlass_durable::Start::Job { spec, .. } => spec,
        other => panic!("{other:?}"),
    };
    assert_eq!((spec.timeout_ms, spec.run), (Some(30_000), Some(world.id)));
    assert_eq!(typed(order).kind(), "order@2");
}

#[test]
fn a_late_order_is_refunded() {
    let host = Arc::new(TokioHost::new());
    let mut world = world(&host);
    assert_eq!(go(&mut world, &host), State::Ended(End::Failed("late".into())), "{}", world.print());
    assert_eq!(world.count("Refund"), 1);
    assert!(world.now > 30 * 86_400_000);
}

/// `ship?` returns past the saga; the charge is refunded all the same.
#[test]
fn an_order_that_cannot_be_shipped_is_refunded() {
    let host = Arc::new(TokioHost::new());
    let mut world = world(&host);
    let before = world.activity.clone();
    world.activity = Arc::new(move |job| match &*job.key.name {
        "Ship" => (5, Err(CallError::failed("no truck"))),
        _ => before(job),
    });
    world.signal(1_000, &Approve { by: "me".into() });
    assert_eq!(go(&mut world, &host), State::Ended(End::Failed("no truck".into())), "{}", world.print());
    assert_eq!(world.count("Refund"), 1);
}

#[test]
fn a_cancelled_order_is_refunded_and_ends_as_cancelled() {
    let host = Arc::new(TokioHost::new());
    let mut world = world(&host);
    world.cancel(500);
    assert_eq!(go(&mut world, &host), State::Ended(End::Cancelled("cancelled".into())), "{}", world.print());
    assert_eq!(world.count("Refund"), 1);
}

#[test]
fn slow_an_order_survives_a_kill_after_every_commit() {
    let host = Arc::new(TokioHost::new());
    for chunk in [1, 2, 500] {
        for kill in 0..30 {
            let mut world = world(&host);
            world.chunk = chunk;
            world.shadow = true;
            world.crash = Box::new(move |commit| kill == 0 || commit == kill);
            world.signal(1_000, &Approve { by: "me".into() });
            let state = go(&mut world, &host);
            let State::Ended(End::Ok(value)) = state else { panic!("{chunk} {kill} {state:?}\n{}", world.print()) };
            assert_eq!(value.read::<Receipt>().unwrap(), receipt());
            assert_eq!(world.count("Charge"), 1);
        }
    }
}

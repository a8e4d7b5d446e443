//! Messages that a stuck run cannot read are dropped, and the run goes on.

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass::core::name::WorkerId;
use windlass::core::store::{RunClaim, RunMessage, RunRead, RunsClaimed, Store, Wrap, Wrapped};
use windlass::core::time::HANG_GUARD;
use windlass::durable::record::{Entry, Record};
use windlass::durable::{AnyWorkflow, Discard, Error, RunHandle, Signal, Wf, Workflow, typed, workflow};
use windlass::runs::Engine;
use windlass::testing::TestBed;
use windlass::{Client, Error as StoreError};

#[derive(Serialize, Deserialize, Signal)]
struct Amount {
    cents: u64,
}

#[derive(Serialize, Deserialize, Signal)]
struct Go {}

/// Waits for the amount from the start: a bad one is never recorded.
#[workflow]
async fn waiting(wf: Wf, _: ()) -> Result<u64, Error> {
    Ok(wf.recv::<Amount>().await?.cents)
}

/// The amount is recorded before the code asks for it.
#[workflow]
async fn asking_later(wf: Wf, _: ()) -> Result<u64, Error> {
    wf.recv::<Go>().await?;
    Ok(wf.recv::<Amount>().await?.cents)
}

fn engine(store: &Arc<dyn Store>, workflow: Arc<dyn AnyWorkflow>) -> Engine {
    Engine::new(Arc::clone(store)).unwrap().workflows(vec![workflow], Some("test".to_owned())).unwrap()
}

async fn stuck<W>(run: &RunHandle<W>) -> String {
    run.describe().await.unwrap().stuck.expect("the run is stuck")
}

async fn result<W: Workflow<Output = u64>>(run: &RunHandle<W>) -> u64 {
    run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap()
}

/// What the history says of messages that were dropped: the record and the body of each.
async fn discarded<W>(store: &Arc<dyn Store>, run: &RunHandle<W>) -> Vec<(Option<u64>, String)> {
    let read = RunRead { history_max: 100, ..RunRead::brief(run.id()) };
    let view = store.read_runs(vec![read]).await.unwrap().remove(0).unwrap();
    let of = |entry: &_| match Record::decode(AsRef::<[u8]>::as_ref(entry)).unwrap().entry {
        Entry::Discarded { message, .. } => Some((message.of, message.body.as_json().to_owned())),
        _ => None,
    };
    view.history.iter().filter_map(of).collect()
}

async fn dropped_from_inbox_and_from_history(store: Arc<dyn Store>) {
    let client = Client::new(Arc::clone(&store));
    let run = client.start(waiting, ()).await.unwrap();
    let mut first = engine(&store, typed(waiting));
    first.settle().await.unwrap();
    run.signal_named(Amount::NAME, &json!({ "cents": "many" })).await.unwrap();
    first.settle().await.unwrap();
    let reason = stuck(&run).await;
    assert!(reason.starts_with("message 0 (record 1) does not decode: "), "{reason}");
    let found = run.find_discardable(&Discard::Unreadable).await.unwrap();
    assert_eq!((found.item, found.record, found.signal.as_deref()), (Some(0), None, Some(Amount::NAME)));
    assert_eq!(run.discard(&Discard::Unreadable).await.unwrap(), found);
    let now = run.describe().await.unwrap();
    assert_eq!((now.stuck, now.inbox_len), (None, 0));
    run.signal(Amount { cents: 7 }).await.unwrap();
    first.settle().await.unwrap();
    assert_eq!(result(&run).await, 7);
    let dropped = discarded(&store, &run).await;
    assert_eq!(dropped.len(), 1);
    assert!(dropped[0].0.is_none() && dropped[0].1.contains("many"), "{dropped:?}");

    let run = client.start(asking_later, ()).await.unwrap();
    let mut engine_of_later = engine(&store, typed(asking_later));
    engine_of_later.settle().await.unwrap();
    run.signal_named(Amount::NAME, &json!(["no", "object"])).await.unwrap();
    engine_of_later.settle().await.unwrap();
    assert_eq!(run.describe().await.unwrap().inbox_len, 0, "it is in the history");
    run.signal(Go {}).await.unwrap();
    engine_of_later.settle().await.unwrap();
    let refused = run.discard(&Discard::Record(2)).await.unwrap_err();
    assert!(refused.to_string().contains("has changed meanwhile"), "{refused}");
    let found = run.discard(&Discard::Record(1)).await.unwrap();
    assert_eq!((found.item, found.record, found.text.as_str()), (None, Some(1), r#"["no","object"]"#));
    run.signal(Amount { cents: 8 }).await.unwrap();
    // Another process replays the history without the message.
    engine(&store, typed(asking_later)).settle().await.unwrap();
    assert_eq!(result(&run).await, 8);
    assert_eq!(discarded(&store, &run).await, [(Some(1), "null".to_owned())]);
}

#[tokio::test]
async fn a_message_is_dropped_from_the_inbox_and_from_the_history_memory() {
    dropped_from_inbox_and_from_history(windlass::open("memory://").unwrap()).await;
}

#[tokio::test]
async fn a_message_is_dropped_from_the_inbox_and_from_the_history_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/jobs.db", folder.path().display());
    dropped_from_inbox_and_from_history(windlass::open(&url).unwrap()).await;
}

#[tokio::test]
async fn a_message_is_dropped_from_the_inbox_and_from_the_history_redis() {
    let server = windlass_servers::Redis::start().unwrap();
    dropped_from_inbox_and_from_history(windlass::open(&server.url()).unwrap()).await;
}

#[tokio::test]
async fn messages_are_chosen_by_number_and_by_name_and_only_messages_of_stuck_runs() {
    let test = TestBed::new();
    let store = test.store();
    let run = test.client().start(waiting, ()).await.unwrap();
    let mut engine = engine(&store, typed(waiting));
    engine.settle().await.unwrap();
    let refused = run.discard(&Discard::Unreadable).await.unwrap_err();
    assert!(matches!(&refused, StoreError::RunRefused { why, .. } if why.contains("is not stuck")), "{refused}");
    for body in ["{\"say\":\"dance\"}", "no JSON"] {
        store.send_to_runs(vec![RunMessage::new(run.id(), body)]).await.unwrap().remove(0).unwrap();
    }
    run.signal(Go {}).await.unwrap();
    run.signal(Amount { cents: 9 }).await.unwrap();
    engine.settle().await.unwrap();
    assert!(stuck(&run).await.starts_with("message 0 is not understood"));
    for missing in [Discard::Item(9), Discard::Signal("nobody".to_owned())] {
        let refused = run.discard(&missing).await.unwrap_err();
        assert!(refused.is_not_found(), "{missing:?}: {refused}");
    }
    assert_eq!(run.describe().await.unwrap().inbox_len, 4, "what was refused changed nothing");
    assert_eq!(run.discard(&Discard::Unreadable).await.unwrap().text, "{\"say\":\"dance\"}");
    engine.settle().await.unwrap();
    assert!(stuck(&run).await.starts_with("message 1 is not understood"));
    assert_eq!(run.discard(&Discard::Signal(Go::NAME.to_owned())).await.unwrap().item, Some(2));
    engine.settle().await.unwrap();
    assert_eq!(run.discard(&Discard::Item(1)).await.unwrap().text, "no JSON");
    engine.settle().await.unwrap();
    assert_eq!(result(&run).await, 9);
    assert_eq!(discarded(&store, &run).await.len(), 3);
    let refused = run.discard(&Discard::Item(1)).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::RunRefused { why, .. } if why.contains("has ended: succeeded")),
        "{refused}"
    );
}

#[tokio::test]
async fn a_message_is_not_dropped_while_an_engine_holds_the_run() {
    let test = TestBed::new();
    let (store, mut engine) = (test.store(), engine(&test.store(), typed(waiting)));
    let run = test.client().start(waiting, ()).await.unwrap();
    run.signal_named(Amount::NAME, &json!(null)).await.unwrap();
    engine.settle().await.unwrap();
    let before = run.describe().await.unwrap();
    let claim = RunClaim {
        run: Some(run.id()),
        even_stuck: true,
        lease_ms: 60_000,
        ..RunClaim::new(WorkerId::new("other").unwrap(), vec![before.kind.clone()])
    };
    assert_eq!(store.claim_runs(claim).await.unwrap().runs.len(), 1);
    let refused = run.discard(&Discard::Unreadable).await.unwrap_err();
    assert!(refused.to_string().contains("held by an engine"), "{refused}");
    let after = run.describe().await.unwrap();
    assert_eq!((after.stuck, after.inbox_len, after.history_len), (before.stuck, before.inbox_len, before.history_len));
}

/// Before the run is claimed, another operator drops what the reason names, and an engine acts on it, if it is there.
struct DroppedMeanwhile {
    store: Arc<dyn Store>,
    is_over: AtomicBool,
    has_engine: bool,
}

#[async_trait::async_trait]
impl Wrap for DroppedMeanwhile {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    async fn claim_runs(&self, claim: RunClaim) -> windlass::Result<RunsClaimed> {
        if !self.is_over.swap(true, Ordering::SeqCst) {
            let other = Client::new(Arc::clone(&self.store)).run_by_id(claim.run.unwrap());
            other.discard(&Discard::Unreadable).await.unwrap();
            if self.has_engine {
                engine(&self.store, typed(waiting)).settle().await.unwrap();
            }
        }
        self.store.claim_runs(claim).await
    }
}

#[tokio::test]
async fn what_has_changed_since_it_was_looked_at_is_left_alone() {
    let cases = [
        ("no JSON", Discard::Unreadable, true, true),
        (r#"{"say":"cancel"}"#, Discard::Unreadable, true, false),
        ("no JSON", Discard::Item(1), false, false),
    ];
    for (second, which, has_engine, is_stuck) in cases {
        let test = TestBed::new();
        let store = test.store();
        let run = test.client().start(waiting, ()).await.unwrap();
        for body in [r#"{"say":"dance"}"#, second] {
            store.send_to_runs(vec![RunMessage::new(run.id(), body)]).await.unwrap().remove(0).unwrap();
        }
        engine(&store, typed(waiting)).settle().await.unwrap();
        assert!(stuck(&run).await.starts_with("message 0 is not understood"));
        let wrapped = Arc::new(Wrapped(DroppedMeanwhile {
            store: Arc::clone(&store),
            is_over: AtomicBool::new(false),
            has_engine,
        }));
        let late = Client::new(wrapped).run_by_id(run.id());
        let refused = late.discard(&which).await.unwrap_err();
        assert!(matches!(&refused, StoreError::RunRefused { .. }), "{refused}");
        let now = run.describe().await.unwrap();
        assert_eq!((now.stuck.is_some(), now.wake_at.is_some()), (is_stuck, is_stuck || !has_engine), "{now:?}");
        assert_eq!(discarded(&store, &run).await.len(), 1);
    }
}

/// Another form of the amount, as code of a later build expects it.
#[derive(Serialize, Deserialize)]
struct Precise {
    micros: u64,
}

impl Signal for Precise {
    const NAME: &'static str = Amount::NAME;
}

static IS_PRECISE: AtomicBool = AtomicBool::new(false);

#[workflow]
async fn deployed_anew(wf: Wf, _: ()) -> Result<u64, Error> {
    let value = match IS_PRECISE.load(Ordering::SeqCst) {
        true => wf.recv::<Precise>().await?.micros,
        false => wf.recv::<Amount>().await?.cents,
    };
    wf.sleep("30d").await?;
    Ok(value)
}

#[tokio::test]
async fn what_an_earlier_build_has_received_is_not_dropped() {
    let test = TestBed::new();
    let store = test.store();
    let run = test.client().start(deployed_anew, ()).await.unwrap();
    run.signal(Amount { cents: 3 }).await.unwrap();
    engine(&store, typed(deployed_anew)).settle().await.unwrap();
    IS_PRECISE.store(true, Ordering::SeqCst);
    run.signal(Go {}).await.unwrap();
    engine(&store, typed(deployed_anew)).settle().await.unwrap();
    let reason = stuck(&run).await;
    assert!(reason.starts_with("record 1, received by an earlier build does not decode"), "{reason}");
    let refused = run.discard(&Discard::Unreadable).await.unwrap_err();
    assert!(refused.to_string().contains("deploy code that reads both forms"), "{refused}");
}

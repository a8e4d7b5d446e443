//! Runs are exported whole, and replayed against code without a store.

use super::{Charge, Ship};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass::core::store::{RunRead, RunView, Store, Wrap, Wrapped};
use windlass::durable::record::OpKind;
use windlass::durable::{Error, Replay, ReplayError, Signal, Stuck, Wf, typed, workflow};
use windlass::runs::{Engine, RunExport};
use windlass::{Client, Error as StoreError};

#[derive(Serialize, Deserialize, Signal)]
struct Approve {
    by: String,
}

#[workflow]
async fn reviewed(wf: Wf, order: u64) -> Result<String, Error> {
    let paid = wf.call(Charge { order });
    let approve = wf.recv::<Approve>().await?;
    drop(paid);
    wf.call(Ship { order }).await?;
    Ok(approve.by)
}

/// A deploy that calls something else first.
#[workflow(name = "reviewed")]
async fn reviewed_wrongly(wf: Wf, order: u64) -> Result<String, Error> {
    let approve = wf.recv::<Approve>().await?;
    wf.call(Charge { order }).await?;
    Ok(approve.by)
}

/// A run whose history grows between two reads: the first one has its length without the last two records.
struct Grows(Arc<dyn Store>);

#[async_trait::async_trait]
impl Wrap for Grows {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn read_runs(&self, reads: Vec<RunRead>) -> windlass::Result<Vec<Option<RunView>>> {
        let mut views = self.0.read_runs(reads).await?;
        for view in views.iter_mut().flatten() {
            view.run.history_len -= 2;
        }
        Ok(views)
    }
}

#[tokio::test]
async fn what_a_run_does_during_its_export_is_left_out() {
    let store = windlass::open("memory://").unwrap();
    let whole = exported(Arc::clone(&store)).await;
    let grows = Wrapped(Grows(store));
    let export = RunExport::read(&grows, whole.run.id).await.unwrap().expect("the run is there");
    assert_eq!((export.history.len(), export.run.history_len), (whole.history.len() - 2, whole.run.history_len - 2));
}

/// A run that waits for its second call, with a message that it has not read.
async fn exported(store: Arc<dyn Store>) -> RunExport {
    let client = Client::new(Arc::clone(&store));
    let run = client.start(reviewed, 4).id("order-4").label("tenant", "acme").await.unwrap();
    run.signal(Approve { by: "ann".into() }).await.unwrap();
    let mut engine = Engine::new(Arc::clone(&store)).unwrap();
    engine = engine.workflows(vec![typed(reviewed)], Some("first".to_owned())).unwrap();
    engine.settle().await.unwrap();
    run.signal(Approve { by: "bob".into() }).await.unwrap();
    let export = RunExport::read(store.as_ref(), run.id()).await.unwrap().expect("the run is there");
    let read = RunRead { history_max: 1_000, definition: true, input: true, ..RunRead::brief(run.id()) };
    let view = store.read_runs(vec![read]).await.unwrap().remove(0).unwrap();
    let same = RunExport::from_json(export.to_json().unwrap().as_bytes()).unwrap();
    for export in [&export, &same] {
        assert_eq!(export.run, view.run);
        assert_eq!(
            (&export.input.bytes, &export.definition.bytes),
            (&view.input.clone().unwrap(), &view.definition.clone().unwrap())
        );
        let entries: Vec<_> = export.history.iter().map(|entry| entry.entry.bytes.clone()).collect();
        assert_eq!(entries, view.history, "byte for byte");
        assert_eq!(
            export.history.iter().map(|entry| entry.number).collect::<Vec<_>>(),
            (0..entries.len() as u64).collect::<Vec<_>>()
        );
        assert_eq!(export.inbox.len(), 1, "{:?}", export.inbox);
    }
    assert!(export.to_json().unwrap().lines().count() > view.history.len(), "each entry is on a line of its own");
    same
}

#[tokio::test]
async fn an_exported_run_is_replayed_against_its_code_memory() {
    let export = exported(windlass::open("memory://").unwrap()).await;
    let replayed = Replay::of(export.clone()).against(reviewed).unwrap();
    let waits: Vec<_> = replayed.waits_for.iter().map(|op| (op.kind, op.name.as_ref())).collect();
    assert_eq!(waits, [(OpKind::Call, "ship")]);
    assert!(replayed.waits_for[0].place.to_string().contains("replay.rs:"), "{:?}", replayed.waits_for);
    assert_eq!((replayed.until, replayed.adds.len(), replayed.has_ended), (export.history.len() as u64, 0, false));

    // Before the signal: what the code adds is what the history has next.
    let early = Replay::of(export.clone()).until(1).against(reviewed).unwrap();
    assert_eq!((early.until, early.waits_for[0].kind), (1, OpKind::Recv));
    let start = Replay::of(export.clone()).until(0).against(reviewed).unwrap();
    assert_eq!((start.until, start.waits_for.len()), (0, 1));
    let refused = Replay::of(export.clone()).until(99).against(reviewed).unwrap_err();
    assert!(matches!(&refused, ReplayError::Unfit(error) if error.to_string().contains("until")), "{refused}");

    let stuck = Replay::of(export.clone()).against(reviewed_wrongly).unwrap_err();
    let ReplayError::Stuck(Stuck::Mismatch { history, code, .. }) = &stuck else { panic!("{stuck}") };
    assert!(history.what.contains("ship") && history.place.contains("replay.rs:"), "{history}");
    assert!(code.what.contains("charge") && code.place.contains("replay.rs:"), "{code}");
    let other = Replay::of(export).against(super::order).unwrap_err();
    assert!(other.to_string().contains("reviewed@1"), "{other}");
}

#[tokio::test]
async fn a_run_is_exported_whole_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let export = exported(windlass::open(&format!("sqlite://{}/jobs.db", folder.path().display())).unwrap()).await;
    let file = folder.path().join("run.json");
    std::fs::write(&file, export.to_json().unwrap()).unwrap();
    Replay::of_file(&file).unwrap().against(reviewed).unwrap();
}

#[tokio::test]
async fn a_run_is_exported_whole_redis() {
    let server = windlass_servers::Redis::start().unwrap();
    exported(windlass::open(&server.url()).unwrap()).await;
}

#[test]
fn what_is_no_exported_run_is_refused() {
    for (text, word) in [
        ("", "no exported run"),
        ("{}", "no exported run"),
        ("{\"format\":\"windlass.run\",\"version\":1}", "missing field"),
        ("{\"format\":\"other\",\"version\":1}", "its format"),
    ] {
        let refused = RunExport::from_json(text.as_bytes()).unwrap_err();
        assert!(
            matches!(refused, StoreError::Invalid { .. }) && refused.to_string().contains(word),
            "{text}: {refused}"
        );
    }
    let newer = RunExport::from_json(b"{\"format\":\"windlass.run\",\"version\":2}").unwrap_err();
    assert!(matches!(newer, StoreError::Incompatible { .. }), "{newer}");
    assert!(Replay::of_file("/nowhere/run.json").unwrap_err().to_string().contains("/nowhere/run.json"));
}

//! What applications do with jobs beside enqueueing them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::time::Duration;
use support::{Task, memory};
use windlass::core::job::State;
use windlass::core::schedule::{Overlap, Rule};
use windlass::core::store::Reason;
use windlass::{Error, Job, Options};

#[tokio::test]
async fn a_job_is_looked_at_explained_cancelled_and_retried() {
    let (_store, client) = memory();
    let id = client.enqueue(Task { n: 1 }).await.unwrap().id();
    assert_eq!(client.get(id).await.unwrap().unwrap().state, State::Ready);
    assert_eq!(client.explain(id).await.unwrap().reason, Reason::NoWorkerForQueue);
    assert_eq!(client.cancel(id).await.unwrap(), Some(State::Cancelled));
    assert_eq!(client.cancel(id).await.unwrap(), Some(State::Cancelled));
    assert_eq!(client.retry(id).await.unwrap(), Some(State::Ready));
    assert!(matches!(client.retry(id).await, Err(Error::IllegalTransition { .. })));
    let unknown = windlass::core::id::JobId::from_parts(0, 7);
    assert_eq!(client.get(unknown).await.unwrap(), None);
    assert!(client.cancel(unknown).await.unwrap_err().is_not_found());
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Late;

impl Job for Late {
    const KIND: &'static str = "late";
    type Output = ();

    fn options(&self) -> Options {
        Options::new().delay(Duration::from_secs(1))
    }
}

#[tokio::test]
async fn a_schedule_that_is_put_again_goes_on_where_it_was() {
    let (store, client) = memory();
    let first = client.schedule("tick", Rule::every_ms(60_000), Task { n: 1 }).await.unwrap();
    let again = client.schedule("tick", Rule::every_ms(60_000), Task { n: 2 }).await.unwrap();
    assert_eq!(first.next_tick, again.next_tick, "a restart does not set it back");
    let stored = store.schedules().await.unwrap().remove(0);
    assert_eq!(stored.spec.payload.to_json::<Task>().unwrap().n, 2);
    let skip = client.schedule_with("tick", Rule::every_ms(60_000), Task { n: 2 }, |mut schedule| {
        schedule.overlap = Overlap::Skip;
        schedule
    });
    assert_eq!(skip.await.unwrap().overlap, Overlap::Skip);
    for (name, rule, words) in [
        ("", Rule::every_ms(60_000), "schedule"),
        ("bad", Rule::cron("60 * * * *"), "60"),
        ("bad", Rule::every_ms(1), "at least one second"),
    ] {
        let error = client.schedule(name, rule, Task { n: 1 }).await.unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    assert!(client.schedule("late", Rule::every_ms(60_000), Late).await.unwrap_err().to_string().contains("delay"));
    assert_eq!(store.schedules().await.unwrap().len(), 1, "what was refused changed nothing");
    assert!(client.unschedule("tick").await.unwrap());
    assert!(!client.unschedule("tick").await.unwrap());
}

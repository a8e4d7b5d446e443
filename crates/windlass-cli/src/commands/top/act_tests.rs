use super::*;
use windlass::core::job::Retry;
use windlass::core::memory::MemoryStore;
use windlass::core::name::WorkerId;
use windlass::core::store::{ClaimRequest, Outcome, ReportRequest};
use windlass::{Client, Options};

#[derive(serde::Serialize, serde::Deserialize, windlass::Job)]
#[job(kind = "welcome", queue = "mail", group = "acme")]
struct Welcome {}

fn store() -> (Arc<dyn Store>, Client) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let client = Client::new(Arc::clone(&store));
    (store, client)
}

fn queue() -> QueueName {
    "mail".try_into().unwrap()
}

async fn inspected(store: &Arc<dyn Store>, action: Action) -> String {
    match act(store, action).await.unwrap() {
        Event::Inspected { lines, .. } => lines.join("\n"),
        other => panic!("{other:?}"),
    }
}

/// Enqueues a job that has failed for good.
async fn failed(store: &Arc<dyn Store>, client: &Client, request_id: u64) -> JobId {
    let id = client.enqueue(Welcome {}).await.unwrap().id();
    let worker = WorkerId::new("w").unwrap();
    let job = store.claim(ClaimRequest::new(worker.clone(), request_id, queue())).await.unwrap().jobs.remove(0);
    let outcomes = vec![Outcome::fail(job.lease, "no such user", Retry::Never)];
    store.report(ReportRequest { worker, outcomes }).await.unwrap();
    id
}

async fn state_of(store: &Arc<dyn Store>, id: JobId) -> State {
    store.get(vec![id]).await.unwrap().remove(0).unwrap().state
}

#[tokio::test]
async fn failed_jobs_are_tried_again_one_by_one_and_all() {
    let (store, client) = store();
    let ids = [failed(&store, &client, 1).await, failed(&store, &client, 2).await, failed(&store, &client, 3).await];
    let text = inspected(&store, Action::InspectJob(ids[0])).await;
    assert!(text.contains("welcome on mail") && text.contains("attempt 1: no such user"), "{text}");
    act(&store, Action::RetryJob(ids[0])).await.unwrap();
    assert_eq!((state_of(&store, ids[0]).await, state_of(&store, ids[1]).await), (State::Ready, State::Failed));
    let said = act(&store, Action::RetryAll(queue())).await.unwrap();
    assert!(matches!(said, Event::Said(words) if words.starts_with("2 failed jobs of mail")));
    assert_eq!(state_of(&store, ids[2]).await, State::Ready);
    // What cannot be done is said, too.
    assert!(act(&store, Action::RetryJob(ids[0])).await.is_err());
}

#[tokio::test]
async fn a_queue_tells_why_its_jobs_do_not_run() {
    let (store, client) = store();
    client.enqueue(Welcome {}).await.unwrap();
    client.enqueue_with(Welcome {}, Options::new().delay(std::time::Duration::from_secs(60))).await.unwrap();
    let text = inspected(&store, Action::InspectQueue(queue())).await;
    assert!(text.contains("1 ready, 1 scheduled") && text.contains("group      acme: 1 ready"), "{text}");
    assert!(text.contains("welcome: no worker for queue") && text.contains("welcome: delayed (until"), "{text}");
    act(&store, Action::Pause { queue: queue(), paused: true }).await.unwrap();
    let text = inspected(&store, Action::InspectQueue(queue())).await;
    assert!(text.contains("paused     yes") && text.contains("welcome: queue paused"), "{text}");
    act(&store, Action::Pause { queue: queue(), paused: false }).await.unwrap();
    assert!(inspected(&store, Action::InspectQueue(queue())).await.contains("paused     no"));
}

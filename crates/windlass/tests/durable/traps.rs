//! Defects of other workflow engines, none of which may be here.

use super::Charge;
use super::stores::{Opened, memory, on_every_store, until};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use windlass::core::name::{Kind, WorkerId};
use windlass::core::store::{
    RunClaim, RunCommit, RunMessage, RunRead, RunState, RunStep, RunView, Store, WaitFor, Wrap, Wrapped,
};
use windlass::core::time::HANG_GUARD;
use windlass::durable::{CallError, Error, ReusePolicy, Signal, Wf, select, typed, workflow};
use windlass::runs::Engine;
use windlass::{Client, Job, JobError};

on_every_store!(
    slow_signals_beyond_a_thousand_arrive_in_order,
    signals_during_continue_as_new_are_neither_lost_nor_fork_the_run,
    the_late_end_of_a_job_of_an_ended_run_does_not_reach_its_successor,
    recovery_finds_runs_of_all_kinds_and_more_than_ten,
    a_stale_engine_cannot_commit,
    one_bad_run_does_not_halt_the_others,
    due_timers_are_handed_out_in_bounded_claims,
    a_parent_does_not_wait_for_a_child_that_cannot_be_created,
    an_oversized_result_fails_its_call_for_good,
    waiting_for_a_result_does_not_read_the_history,
);

#[derive(Serialize, Deserialize, Signal)]
struct Number(u32);

#[workflow]
async fn collects(wf: Wf, count: u32) -> Result<Vec<u32>, Error> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        numbers.push(wf.recv::<Number>().await?.0);
    }
    Ok(numbers)
}

async fn slow_signals_beyond_a_thousand_arrive_in_order(on: Opened) {
    let run = on.client.start(collects, 2_500).await.unwrap();
    for n in 0..1_200 {
        run.signal(Number(n)).await.unwrap();
    }
    let running = on.start(on.worker("a").workflow(collects));
    for n in 1_200..2_500 {
        run.signal(Number(n)).await.unwrap();
    }
    let numbers = run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    assert!(numbers.iter().copied().eq(0..2_500), "{numbers:?}");
    running.drain().await;
}

/// The signals that were received so far, by all segments.
#[workflow]
async fn continues(wf: Wf, before: Vec<u32>) -> Result<Vec<u32>, Error> {
    let mut numbers = before;
    loop {
        numbers.push(wf.recv::<Number>().await?.0);
        match numbers.len() {
            200 => return Ok(numbers),
            len if len % 3 == 0 => wf.continue_as_new(continues, numbers).await,
            _ => {}
        }
    }
}

async fn signals_during_continue_as_new_are_neither_lost_nor_fork_the_run(on: Opened) {
    let running = on.start(on.worker("a").workflow(continues));
    let run = on.client.start(continues, Vec::new()).await.unwrap();
    for n in 0..200 {
        run.signal(Number(n)).await.unwrap();
    }
    let numbers = run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    assert!(numbers.iter().copied().eq(0..200), "{numbers:?}");
    assert_eq!(on.runs().await.len(), 1);
    assert!(on.view(&run).await.segment_from > 0);
    running.drain().await;
}

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = u32)]
struct Slow {
    n: u32,
}

#[workflow]
async fn calls_slow(wf: Wf, n: u32) -> Result<u32, Error> {
    Ok(select! {
        value = wf.call(Slow { n }) => value?,
        stop = wf.recv::<Number>() => stop?.0,
    })
}

async fn the_late_end_of_a_job_of_an_ended_run_does_not_reach_its_successor(on: Opened) {
    let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (begins, opens) = (Arc::clone(&begun), Arc::clone(&gate));
    // It ends when the gate opens, cancelled or not.
    let slow = move |job: Slow| {
        let (begins, opens) = (Arc::clone(&begins), Arc::clone(&opens));
        async move {
            if job.n == 1 {
                begins.add_permits(1);
                opens.acquire().await.map_err(|error| JobError::new(error.to_string()))?.forget();
            }
            Ok::<u32, JobError>(job.n)
        }
    };
    let running = on.start(on.worker("a").workflow(calls_slow).handle(slow));
    let first = on.client.start(calls_slow, 1).id("one").await.unwrap();
    begun.acquire().await.unwrap().forget();
    first.signal(Number(100)).await.unwrap();
    assert_eq!(first.result(HANG_GUARD).await.unwrap().unwrap(), Ok(100));
    let second = on.client.start(collects, 1).id("one").reuse(ReusePolicy::IfEnded).await.unwrap();
    let collecting = on.start(on.worker("a").workflow(collects));
    on.summary(&second, "recv").await;
    gate.add_permits(1);
    until("the late job has ended", || async {
        on.store.queues().await.unwrap().iter().all(|queue| queue.counts.active == 0).then_some(())
    })
    .await;
    second.signal(Number(7)).await.unwrap();
    assert_eq!(second.result(HANG_GUARD).await.unwrap().unwrap(), Ok(vec![7]));
    running.drain().await;
    collecting.drain().await;
}

#[workflow]
async fn first_kind(_wf: Wf, n: u32) -> Result<u32, Error> {
    Ok(n)
}

#[workflow]
async fn second_kind(_wf: Wf, n: u32) -> Result<u32, Error> {
    Ok(n)
}

#[workflow]
async fn third_kind(_wf: Wf, n: u32) -> Result<u32, Error> {
    Ok(n)
}

/// Nothing but the engine runs: no maintenance, and no other process.
async fn recovery_finds_runs_of_all_kinds_and_more_than_ten(on: Opened) {
    for n in 0..25 {
        on.client.start(first_kind, n).await.unwrap();
        on.client.start(second_kind, n).await.unwrap();
        on.client.start(third_kind, n).await.unwrap();
    }
    let kinds = ["first_kind@1", "second_kind@1", "third_kind@1"].map(|kind| Kind::new(kind).unwrap()).to_vec();
    let claim = RunClaim { max: 100, lease_ms: 1_000, ..RunClaim::new(WorkerId::new("vanishes").unwrap(), kinds) };
    assert_eq!(on.store.claim_runs(claim).await.unwrap().runs.len(), 75);
    let engine = Engine::new(Arc::clone(&on.store)).unwrap().poll(Duration::from_millis(50));
    let workflows = vec![typed(first_kind), typed(second_kind), typed(third_kind)];
    let engine = engine.workflows(workflows, Some("a".to_owned())).unwrap();
    engine.run(on.all("all are recovered", |run| run.state == RunState::Succeeded)).await;
}

async fn a_stale_engine_cannot_commit(on: Opened) {
    let run = on.client.start(collects, 1).await.unwrap();
    let claim = RunClaim::new(WorkerId::new("stale").unwrap(), vec![Kind::new("collects@1").unwrap()]);
    let claim = RunClaim { lease_ms: 1_000, ..claim };
    let stale = on.store.claim_runs(claim).await.unwrap().runs.remove(0);
    let running = on.start(on.worker("a").workflow(collects).lease(Duration::from_secs(1)));
    on.summary(&run, "recv").await;
    let step = RunStep { history: vec!["{}".into()], state: RunState::Succeeded, ..RunStep::nothing() };
    let commit = RunCommit::new(stale.lease, stale.history_len, step);
    let refused = on.store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap_err();
    assert_eq!(refused, windlass::Error::LeaseLost);
    run.signal(Number(7)).await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(vec![7]));
    running.drain().await;
}

#[workflow]
async fn panics_after_a_timer(wf: Wf, _: ()) -> Result<(), Error> {
    wf.sleep("1ms").await?;
    panic!("by plan");
}

#[workflow]
async fn sleeps_a_moment(wf: Wf, n: u32) -> Result<u32, Error> {
    wf.sleep("5ms").await?;
    Ok(n)
}

async fn one_bad_run_does_not_halt_the_others(on: Opened) {
    let panics = on.client.start(panics_after_a_timer, ()).await.unwrap();
    let unread = on.client.start(sleeps_a_moment, 0).await.unwrap();
    let message = RunMessage::new(unread.id(), "not a message");
    on.store.send_to_runs(vec![message]).await.unwrap().remove(0).unwrap();
    let running = on.start(on.worker("a").workflow(panics_after_a_timer).workflow(sleeps_a_moment));
    for n in 0..20 {
        let run = on.client.start(sleeps_a_moment, n).await.unwrap();
        assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(n));
    }
    assert!(on.stuck(&panics).await.contains("by plan"));
    assert!(on.stuck(&unread).await.contains("message 0 is not understood"));
    running.drain().await;
}

async fn due_timers_are_handed_out_in_bounded_claims(on: Opened) {
    for n in 0..30 {
        on.client.start(sleeps_a_moment, n).delay("1ms").await.unwrap();
    }
    let claim = RunClaim::new(WorkerId::new("bounded").unwrap(), vec![Kind::new("sleeps_a_moment@1").unwrap()]);
    let claimed = Mutex::new(0);
    until("all are claimed", || async {
        let runs = on.store.claim_runs(RunClaim { max: 4, ..claim.clone() }).await.unwrap().runs;
        assert!(runs.len() <= 4, "{}", runs.len());
        *claimed.lock() += runs.len();
        (*claimed.lock() == 30).then_some(())
    })
    .await;
}

#[workflow]
async fn parent(wf: Wf, id: String) -> Result<String, Error> {
    let taken = wf.child(collects, 1).id(id).await;
    let refused = wf.child_named("no\nname", serde_json::json!(1)).await;
    let class = |end: &CallError| end.class.name();
    Ok(format!("{} {}", taken.as_ref().err().map_or("none", class), refused.as_ref().err().map_or("none", class)))
}

async fn a_parent_does_not_wait_for_a_child_that_cannot_be_created(on: Opened) {
    let running = on.start(on.worker("a").workflow(parent).workflow(collects));
    on.client.start(collects, 1).id("taken").await.unwrap();
    let run = on.client.start(parent, "taken".to_owned()).await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok("taken invalid".to_owned()));
    running.drain().await;
}

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop", output = String)]
struct Huge {
    bytes: usize,
}

async fn huge(job: Huge) -> Result<String, JobError> {
    Ok("x".repeat(job.bytes))
}

#[workflow]
async fn calls_huge(wf: Wf, bytes: usize) -> Result<(String, u32, String), Error> {
    let error = wf.call(Huge { bytes }).attempts(5).await.err().ok_or("it has succeeded")?;
    Ok((error.class.name().to_owned(), error.attempts, error.message))
}

#[workflow]
async fn returns_huge(_wf: Wf, bytes: usize) -> Result<String, Error> {
    Ok("x".repeat(bytes))
}

async fn an_oversized_result_fails_its_call_for_good(on: Opened) {
    let running = on.start(on.worker("a").handle(huge).workflow(calls_huge).workflow(returns_huge));
    let run = on.client.start(calls_huge, 2 << 20).await.unwrap();
    let (class, attempts, message) = run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    assert_eq!((class.as_str(), attempts), ("too_large", 1), "{message}");
    let run = on.client.start(returns_huge, 2 << 20).await.unwrap();
    let failure = run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap_err();
    assert_eq!(failure.state, RunState::Failed);
    assert!(failure.message.contains("the result of the workflow"), "{failure}");
    running.drain().await;
}

/// Counts reads of runs, and refuses those of histories.
struct ReadsNoHistory(Arc<dyn Store>, Mutex<u32>);

#[async_trait::async_trait]
impl Wrap for ReadsNoHistory {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn read_runs(&self, reads: Vec<RunRead>) -> windlass::Result<Vec<Option<RunView>>> {
        assert!(reads.iter().all(|read| read.history_max == 0 && !read.input), "{reads:?}");
        *self.1.lock() += 1;
        self.0.read_runs(reads).await
    }
}

async fn waiting_for_a_result_does_not_read_the_history(on: Opened) {
    let running = on.start(on.worker("a").workflow(collects));
    let run = on.client.start(collects, 50).await.unwrap();
    let reads = Arc::new(Wrapped(ReadsNoHistory(Arc::clone(&on.store), Mutex::new(0))));
    let client = Client::new(Arc::<Wrapped<ReadsNoHistory>>::clone(&reads));
    let waiting = client.run(collects, "unknown");
    assert!(
        matches!(waiting.result(HANG_GUARD).await, Err(windlass::Error::NotFound { .. })),
        "a missing run is an error"
    );
    let waiting = client.run_by_id(run.id());
    let send = async {
        for n in 0..50 {
            run.signal(Number(n)).await.unwrap();
        }
    };
    let (result, ()) = tokio::join!(waiting.result_json(HANG_GUARD), send);
    result.unwrap().expect("it ends").unwrap();
    assert!(*reads.1.lock() > 0);
    running.drain().await;
}

/// Every run is damaged.
struct Damaged(Arc<dyn Store>);

#[async_trait::async_trait]
impl Wrap for Damaged {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    async fn read_runs(&self, reads: Vec<RunRead>) -> windlass::Result<Vec<Option<RunView>>> {
        let mut views = self.0.read_runs(reads).await?;
        for view in views.iter_mut().flatten() {
            view.run.damaged = Some("it has no kind".to_owned());
        }
        Ok(views)
    }

    async fn wait(&self, _: WaitFor) -> windlass::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn waiting_for_the_result_of_a_damaged_run_is_an_error() {
    let store = windlass::open("memory://").unwrap();
    let run = Client::new(Arc::clone(&store)).start(collects, 1).await.unwrap();
    let client = Client::new(Arc::new(Wrapped(Damaged(store))));
    let refused = client.run_by_id(run.id()).result_json(HANG_GUARD).await.unwrap_err();
    assert!(matches!(refused, windlass::Error::Corrupt { .. }), "{refused}");
    assert!(refused.to_string().contains("it has no kind"), "{refused}");
}

/// A wait that nothing ends looks every ten seconds, by the virtual clock.
#[tokio::test]
async fn waiting_for_a_result_does_not_poll() {
    let test = windlass::testing::TestBed::new();
    let run = test.client().start(collects, 1).await.unwrap();
    let reads = Arc::new(Wrapped(ReadsNoHistory(test.store(), Mutex::new(0))));
    let client = Client::new(Arc::<Wrapped<ReadsNoHistory>>::clone(&reads));
    assert!(client.run_by_id(run.id()).result_json(Duration::from_secs(100)).await.unwrap().is_none());
    assert!(*reads.1.lock() <= 12, "{} reads", reads.1.lock());
}

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "shop")]
struct FailsOnce {}

#[workflow]
async fn retries(wf: Wf, _: ()) -> Result<(), Error> {
    use windlass::core::retry::RetryPolicy;
    wf.call(FailsOnce {}).attempts(2).retry(RetryPolicy::Fixed { delay_ms: 7_000 }).await?;
    Ok(())
}

/// On the virtual clock: the second attempt comes seven seconds after the first, not after a multiple of that.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the virtual clock is tokio's")]
async fn the_first_retry_comes_after_its_delay() {
    let test = windlass::testing::TestBed::new();
    let times: Arc<Mutex<Vec<tokio::time::Instant>>> = Arc::default();
    let noted = Arc::clone(&times);
    let handler = move |_: FailsOnce| {
        let noted = Arc::clone(&noted);
        async move {
            noted.lock().push(tokio::time::Instant::now());
            if noted.lock().len() == 1 { Err(JobError::new("by plan")) } else { Ok(()) }
        }
    };
    let worker = windlass::Worker::builder(test.store()).queue("shop").handle(handler).workflow(retries);
    let running = super::support::Running::start(worker);
    let run = test.client().start(retries, ()).await.unwrap();
    run.result(HANG_GUARD).await.unwrap().expect("it ends").unwrap();
    let times = times.lock().clone();
    let delay = times[1] - times[0];
    assert!((Duration::from_secs(7)..Duration::from_millis(7_600)).contains(&delay), "{delay:?}");
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_marker_can_be_removed_while_runs_have_it() {
    #[workflow(name = "marked")]
    async fn with_marker(wf: Wf, order: u64) -> Result<u64, Error> {
        if wf.patched("charge first") {
            wf.call(Charge { order }).await?;
        }
        Ok(u64::from(wf.recv::<Number>().await?.0))
    }
    #[workflow(name = "marked")]
    async fn without_marker(wf: Wf, order: u64) -> Result<u64, Error> {
        wf.call(Charge { order }).await?;
        Ok(u64::from(wf.recv::<Number>().await?.0))
    }
    let on = memory();
    let first = on.start(on.worker("a").workflow(with_marker));
    let run = on.client.start(with_marker, 7).await.unwrap();
    on.summary(&run, "recv").await;
    first.drain().await;
    let second = on.start(on.worker("b").workflow(without_marker));
    run.signal(Number(8)).await.unwrap();
    assert_eq!(run.result(HANG_GUARD).await.unwrap().unwrap(), Ok(8));
    second.drain().await;
}

//! `windlass::testing`: hours of a job's life in milliseconds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use windlass::core::job::{FailureClass, JobSpec, State as JobState};
use windlass::core::payload::Payload;
use windlass::core::retry::RetryPolicy;
use windlass::core::schedule::{Rule, Schedule};
use windlass::core::store::{Enqueued, Reason, Setting};
use windlass::core::time::Timestamp;
use windlass::testing::{Faults, TestBed};
use windlass::{Ctx, Job, JobError, Options, State, Worker};

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    to: String,
}

impl Job for Welcome {
    const KIND: &'static str = "welcome";
    type Output = u32;
}

#[derive(Debug, Serialize, Deserialize)]
struct Invoice {
    cents: u64,
}

impl Job for Invoice {
    const KIND: &'static str = "invoice";
    const QUEUE: &'static str = "money";
    type Output = ();
}

fn ada() -> Welcome {
    Welcome { to: "ada".to_owned() }
}

async fn welcome(_job: Welcome, ctx: Ctx) -> Result<u32, JobError> {
    Ok(ctx.attempt())
}

/// Counts how often it was called.
async fn counted(_job: Welcome, ctx: Ctx, calls: State<Arc<AtomicU32>>) -> Result<u32, JobError> {
    calls.fetch_add(1, Ordering::SeqCst);
    Ok(ctx.attempt())
}

#[tokio::test]
async fn what_was_enqueued_can_be_asserted() {
    let test = TestBed::new();
    test.client().enqueue(ada()).await.unwrap();
    test.assert_enqueued::<Welcome>(|job| job.to == "ada");
    test.assert_enqueued_times::<Welcome>(1);
    test.assert_not_enqueued::<Invoice>();
    let later = Options::new().delay(HOUR).unique("once");
    test.client().enqueue_with(Invoice { cents: 5 }, later.clone()).await.unwrap();
    test.client().enqueue_with(Invoice { cents: 6 }, later).await.unwrap();
    let sent = test.enqueued::<Invoice>();
    assert_eq!(sent.len(), 1, "the second one was turned away");
    assert_eq!((sent[0].job.cents, sent[0].spec.queue.as_str()), (5, "money"));
    test.forget();
    test.assert_not_enqueued::<Invoice>();
}

#[tokio::test]
#[should_panic(expected = "no `welcome` was enqueued that is as it should be; this was enqueued:\n  \
                           welcome on default: {\"to\":\"ada\"}\n  invoice on money, in 3600000 ms: {\"cents\":5}")]
async fn a_failed_assertion_lists_what_is_there() {
    let test = TestBed::new();
    test.client().enqueue(ada()).await.unwrap();
    test.client().enqueue_with(Invoice { cents: 5 }, Options::new().delay(HOUR)).await.unwrap();
    test.assert_enqueued::<Welcome>(|job| job.to == "bob");
}

#[tokio::test]
#[should_panic(expected = "1 of `welcome` were enqueued; this was enqueued:")]
async fn a_job_that_should_not_be_there_is_noticed() {
    let test = TestBed::new();
    test.client().enqueue(ada()).await.unwrap();
    test.assert_not_enqueued::<Welcome>();
}

#[tokio::test]
async fn hours_of_back_off_take_no_time() {
    let test = TestBed::new();
    async fn stubborn(_job: Welcome, ctx: Ctx) -> Result<u32, JobError> {
        if ctx.attempt() < 12 { Err(JobError::new("not yet")) } else { Ok(ctx.attempt()) }
    }
    let policy = RetryPolicy::Exponential { base_ms: 60_000, factor: 2, cap_ms: 6 * 3_600_000, jitter_percent: 0 };
    let ticket = test.client().enqueue_with(ada(), Options::new().attempts(12).retry(policy)).await.unwrap();
    let done = test.run_until_idle(Worker::builder(test.store()).handle(stubborn)).await;
    assert_eq!((done.attempts, done.retried, done.succeeded, done.failed), (12, 11, 1, 0));
    assert!(done.left.is_empty());
    // 1 + 2 + 4 + … + 256 minutes, then 6 hours twice.
    let expected = Duration::from_secs(60 * 511) + 12 * HOUR;
    assert!(done.elapsed >= expected && done.elapsed < expected + Duration::from_secs(5), "{:?}", done.elapsed);
    assert_eq!(ticket.wait(HOUR).await.unwrap().success(), Some(12));
}

#[tokio::test]
async fn a_cron_schedule_lives_through_the_day_on_which_the_clocks_change() {
    // The clocks of Berlin go forward at 02:00 on 2026-03-29, which has 23 hours.
    let midnight: Timestamp = "2026-03-28T23:00:00Z".parse().unwrap();
    let test = TestBed::starting_at(midnight);
    let rule = Rule::Cron { expression: "30 * * * *".to_owned(), zone: "Europe/Berlin".to_owned() };
    let payload = Payload::json(&ada()).unwrap();
    let spec = JobSpec::new("default".try_into().unwrap(), "welcome".try_into().unwrap(), payload);
    let schedule = Schedule::new("hourly".try_into().unwrap(), rule, spec).arm(None, test.now()).unwrap();
    test.store().put_schedule(schedule).await.unwrap();
    let done = test.run_for(Worker::builder(test.store()).handle(welcome), 23 * HOUR).await;
    assert_eq!((done.enqueued, done.succeeded), (23, 23));
    test.assert_enqueued_times::<Welcome>(23);
    assert_eq!(test.now().ms_since(midnight) / 3_600_000, 23);
}

#[tokio::test]
async fn a_schedule_ticks_without_a_worker_too() {
    let test = TestBed::new();
    let spec =
        JobSpec::new("default".try_into().unwrap(), "welcome".try_into().unwrap(), Payload::json(&ada()).unwrap());
    let rule = Rule::Every { ms: 60_000 };
    let schedule = Schedule::new("minutely".try_into().unwrap(), rule, spec).arm(None, test.now()).unwrap();
    test.store().put_schedule(schedule).await.unwrap();
    test.advance(Duration::from_secs(59)).await;
    test.assert_not_enqueued::<Welcome>();
    test.advance(Duration::from_secs(241)).await;
    test.assert_enqueued_times::<Welcome>(5);
}

#[tokio::test]
async fn a_crash_is_found_when_the_lease_has_run_out_and_the_job_runs_again() {
    let test = TestBed::new();
    let calls = Arc::new(AtomicU32::new(0));
    test.inject(Faults::new().crash_worker_on_attempt(1));
    let ticket = test.client().enqueue(ada()).await.unwrap();
    let worker = Worker::builder(test.store()).lease(Duration::from_secs(30)).state(Arc::clone(&calls)).handle(counted);
    let done = test.run_until_idle(worker).await;
    assert_eq!((done.attempts, done.stalled, done.succeeded), (2, 1, 1));
    assert_eq!(calls.load(Ordering::SeqCst), 2, "all its work was done twice");
    let late = done.elapsed.saturating_sub(Duration::from_secs(30));
    assert!(done.elapsed >= Duration::from_secs(30) && late < Duration::from_secs(3), "{:?}", done.elapsed);
    let job = test.store().get(vec![ticket.id()]).await.unwrap().remove(0).unwrap();
    assert_eq!((job.state, job.stall_count, job.failures[0].class), (JobState::Succeeded, 1, FailureClass::Stalled));
}

#[tokio::test]
async fn a_handler_that_loses_its_lease_is_told() {
    let test = TestBed::new();
    let told = Arc::new(AtomicU32::new(0));
    async fn long(_job: Welcome, ctx: Ctx, told: State<Arc<AtomicU32>>) -> Result<u32, JobError> {
        /// Dropped when the handler is ended.
        struct Ended(Ctx, Arc<AtomicU32>);
        impl Drop for Ended {
            fn drop(&mut self) {
                self.1.fetch_add(u32::from(self.0.is_stopped()), Ordering::SeqCst);
            }
        }
        let _ended = Ended(ctx.clone(), Arc::clone(&told));
        // sleeps because: it takes longer than its lease, by the virtual clock
        tokio::time::sleep(2 * HOUR).await;
        Ok(ctx.attempt())
    }
    test.inject(Faults::new().lose_lease_on_attempt(1));
    let ticket = test.client().enqueue(ada()).await.unwrap();
    let done = test.run_until_idle(Worker::builder(test.store()).state(Arc::clone(&told)).handle(long)).await;
    assert_eq!((done.attempts, done.stalled, done.succeeded), (2, 1, 1));
    assert_eq!(told.load(Ordering::SeqCst), 1, "the first attempt was stopped, the second was not");
    assert!(done.elapsed >= 2 * HOUR);
    assert_eq!(ticket.wait(HOUR).await.unwrap().success(), Some(1), "a stall gives its attempt back");
}

#[tokio::test]
async fn a_lost_lease_takes_no_other_along() {
    let test = TestBed::new();
    async fn first(_job: Welcome) -> Result<u32, JobError> {
        // sleeps because: both are renewed together, again and again, by the virtual clock
        tokio::time::sleep(HOUR).await;
        Ok(1)
    }
    async fn second(_job: Invoice) {
        // sleeps because: both are renewed together, again and again, by the virtual clock
        tokio::time::sleep(HOUR).await;
    }
    test.inject(Faults::new().only::<Welcome>().lose_lease_on_attempt(1));
    test.client().enqueue(ada()).await.unwrap();
    let kept = test.client().enqueue_with(Invoice { cents: 1 }, Options::new().queue("default")).await.unwrap();
    let done = test.run_until_idle(Worker::builder(test.store()).handle(first).handle(second)).await;
    assert_eq!((done.attempts, done.stalled, done.succeeded), (3, 1, 2));
    let kept = test.store().get(vec![kept.id()]).await.unwrap().remove(0).unwrap();
    assert_eq!((kept.stall_count, kept.failures.len()), (0, 0));
}

#[tokio::test]
async fn an_attempt_that_hangs_is_ended_by_its_timeout() {
    let test = TestBed::new();
    test.inject(Faults::new().hang_on_attempt(1));
    let ticket = test.client().enqueue_with(ada(), Options::new().timeout(HOUR)).await.unwrap();
    let done = test.run_until_idle(Worker::builder(test.store()).handle(welcome)).await;
    assert_eq!((done.attempts, done.retried, done.succeeded), (2, 1, 1));
    assert!(done.elapsed >= HOUR);
    let job = test.store().get(vec![ticket.id()]).await.unwrap().remove(0).unwrap();
    assert_eq!(job.failures[0].class, FailureClass::Timeout);
}

#[tokio::test]
#[should_panic(expected = "an attempt of `welcome` hangs for a day; give the job a timeout")]
async fn slow_an_attempt_that_hangs_without_a_timeout_fails_the_test() {
    let test = TestBed::new();
    test.inject(Faults::new().hang_on_attempt(1));
    test.client().enqueue(ada()).await.unwrap();
    test.run_until_idle(Worker::builder(test.store()).handle(welcome)).await;
}

#[tokio::test]
async fn faults_concern_the_attempts_that_were_named() {
    let test = TestBed::new();
    let calls = Arc::new(AtomicU32::new(0));
    test.inject(Faults::new().panic_on_attempt(1).fail_on_attempt(2));
    let ticket = test.client().enqueue(ada()).await.unwrap();
    let worker = Worker::builder(test.store()).state(Arc::clone(&calls)).handle(counted);
    let done = test.run_until_idle(worker).await;
    assert_eq!((done.attempts, calls.load(Ordering::SeqCst)), (3, 1));
    let job = test.store().get(vec![ticket.id()]).await.unwrap().remove(0).unwrap();
    let classes: Vec<_> = job.failures.iter().map(|failure| failure.class).collect();
    assert_eq!(classes, [FailureClass::Panic, FailureClass::Error]);
}

#[tokio::test]
async fn every_third_attempt_of_one_kind_fails() {
    let test = TestBed::new();
    test.inject(Faults::new().only::<Welcome>().fail_every(3));
    test.client().enqueue_all((0..6).map(|_| ada())).await.unwrap();
    test.client().enqueue_all((0..6).map(|cents| Invoice { cents })).await.unwrap();
    async fn pay(_job: Invoice) {}
    let worker = Worker::builder(test.store()).queue("default").queue("money").handle(welcome).handle(pay);
    let done = test.run_until_idle(worker).await;
    // Attempts 3 and 6 fail; their second ones are the seventh and eighth.
    assert_eq!((done.attempts, done.retried, done.succeeded), (14, 2, 12));
}

#[tokio::test]
async fn a_store_that_is_away_is_waited_for() {
    let test = TestBed::new();
    test.client().enqueue(ada()).await.unwrap();
    test.inject(Faults::new().unavailable_for(Duration::from_secs(60)));
    let refused = test.client().enqueue(ada()).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    let done = test.run_until_idle(Worker::builder(test.store()).handle(welcome)).await;
    assert_eq!(done.succeeded, 1);
    let back = Duration::from_secs(60);
    assert!(done.elapsed >= back && done.elapsed < back + Duration::from_secs(5), "{:?}", done.elapsed);
}

#[tokio::test]
async fn lost_answers_lose_no_job() {
    for seed in 0..10 {
        let test = TestBed::seeded(seed);
        let calls = Arc::new(AtomicU32::new(0));
        test.client().enqueue_all((0..50).map(|_| ada())).await.unwrap();
        test.inject(Faults::new().lose_answers(seed, 0.3));
        let worker = Worker::builder(test.store()).slots(4).state(Arc::clone(&calls)).handle(counted);
        let done = test.run_until_idle(worker).await;
        assert_eq!((done.succeeded, done.left.len()), (50, 0), "seed {seed}");
        assert_eq!(calls.load(Ordering::SeqCst), 50, "seed {seed}: each was executed once");
    }
}

#[tokio::test]
async fn a_job_whose_first_answer_was_lost_is_answered_as_created() {
    for seed in 0..10 {
        let test = TestBed::seeded(seed);
        test.inject(Faults::new().lose_answers(seed, 0.3));
        for answer in test.client().enqueue_all((0..3).map(|_| ada())).await.into_iter().flatten() {
            let ticket = answer.unwrap();
            assert!(matches!(ticket.enqueued(), Enqueued::Created { .. }), "seed {seed}: {ticket:?}");
        }
    }
    // An id of the caller's may have been there before; who created it is not known.
    let test = TestBed::new();
    let mine = || Options::new().id("mine");
    test.client().enqueue_with(ada(), mine()).await.unwrap();
    let again = test.client().enqueue_with(ada(), mine()).await.unwrap();
    assert!(matches!(again.enqueued(), Enqueued::Existing { .. }), "{again:?}");
}

#[tokio::test]
async fn what_the_worker_may_not_claim_is_left_with_a_reason() {
    let test = TestBed::new();
    test.client().enqueue(ada()).await.unwrap();
    test.client().enqueue_with(Invoice { cents: 1 }, Options::new().queue("default").delay(HOUR)).await.unwrap();
    let done = test.run_until_idle(Worker::builder(test.store()).handle(welcome)).await;
    assert_eq!((done.succeeded, done.left.len()), (1, 1));
    assert!(matches!(&done.left[0].why, Reason::NoWorkerForQueue), "the worker has gone: {}", done.left[0]);
    let paused = Setting::Paused { queue: "default".try_into().unwrap(), paused: true };
    test.store().configure(paused).await.unwrap();
    test.client().enqueue(ada()).await.unwrap();
    let done = test.run_until_idle(Worker::builder(test.store()).handle(welcome)).await;
    assert_eq!((done.succeeded, done.left.len()), (0, 2));
    assert!(done.left.iter().all(|left| left.why == Reason::QueuePaused));
}

#[tokio::test]
#[should_panic(expected = "not idle after 101 attempts; say more with `attempts_limit`")]
async fn a_job_that_goes_on_for_ever_fails_the_test() {
    let test = TestBed::new().attempts_limit(100);
    async fn again(job: Welcome, ctx: Ctx) -> Result<u32, JobError> {
        ctx.client().enqueue(job).await?;
        Ok(1)
    }
    test.client().enqueue(ada()).await.unwrap();
    test.run_until_idle(Worker::builder(test.store()).slots(1).handle(again)).await;
}

#[tokio::test]
#[should_panic(expected = " of virtual time; say more with `time_limit`")]
async fn a_job_that_comes_too_late_fails_the_test() {
    let test = TestBed::new().time_limit(HOUR);
    test.client().enqueue_with(ada(), Options::new().delay(2 * HOUR)).await.unwrap();
    test.run_until_idle(Worker::builder(test.store()).handle(welcome)).await;
}

#[tokio::test]
async fn one_handler_is_called_with_what_it_asks_for() {
    let test = TestBed::new();
    async fn handler(job: Welcome, ctx: Ctx, add: State<u32>) -> Result<u32, JobError> {
        ctx.client().enqueue(Invoice { cents: 7 }).await?;
        if job.to == "eve" { Err(JobError::fatal("no")) } else { Ok(ctx.attempt() + *add) }
    }
    assert_eq!(test.run_one(handler, ada()).state(40_u32).attempt(2).await.unwrap(), 42);
    let refused = test.run_one(handler, Welcome { to: "eve".to_owned() }).state(0_u32).await.unwrap_err();
    assert_eq!(refused.to_string(), "no");
    test.assert_enqueued_times::<Invoice>(2);
    let missing = test.run_one(handler, ada()).await.unwrap_err();
    assert!(missing.to_string().contains("no state of type u32"), "{missing}");
}

#[tokio::test]
async fn the_same_seed_gives_the_same_ids() {
    let one = TestBed::seeded(5).client().enqueue(ada()).await.unwrap().id();
    let same = TestBed::seeded(5).client().enqueue(ada()).await.unwrap().id();
    let other = TestBed::seeded(6).client().enqueue(ada()).await.unwrap().id();
    assert_eq!(one, same);
    assert_ne!(one, other);
}

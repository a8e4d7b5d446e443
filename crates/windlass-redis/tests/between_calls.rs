//! Changes that take several calls to the server, while another process changes the same in between. An embedded store makes
//! each of them in one step, so the shared suite has no such case.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::Arc;
use support::hooked::HookedClock;
use support::{block, claim, enqueue, fresh_url, job, open_at, report_as, virtual_clock};
use windlass_core::Error;
use windlass_core::job::{Failure, FailureClass, Retry};
use windlass_core::name::ScheduleName;
use windlass_core::schedule::{Rule, Schedule};
use windlass_core::store::{
    ChangeMany, ChangeManyOp, Filter, Fire, FireOutcome, JobQueue, OutcomeKind, ScheduleStore as _,
};
use windlass_core::time::{Clock as _, Timestamp};
use windlass_redis::RedisStore;
use windlass_servers::Redis;

async fn fail_all(store: &RedisStore, at: Timestamp) {
    for claimed in claim(store, "w", 9).await {
        let failure = Failure { class: FailureClass::Error, message: "no".to_owned(), attempt: 0, at, detail: None };
        let fail = OutcomeKind::Fail { failure, retry: Retry::Never };
        report_as(store, "w", claimed.lease, fail).await.unwrap();
    }
}

#[test]
fn a_job_that_fails_again_while_failed_jobs_are_looked_for_is_retried_once() {
    let server = Redis::start().unwrap();
    block(async {
        let (url, clock) = (fresh_url(&server.url()), virtual_clock());
        let store = open_at(&url, &clock);
        enqueue(&store, vec![job(), job()]).await;
        fail_all(&store, clock.now()).await;
        clock.advance_ms(100);
        let filter = Filter::queue("q".try_into().unwrap());
        let mut request = ChangeMany { filter, op: ChangeManyOp::RetryFailed, max: 1, cursor: None };
        let first = store.change_many(request.clone()).await.unwrap();
        assert_eq!(first.changed, 1);
        clock.advance_ms(100);
        fail_all(&store, clock.now()).await;
        // The next step begins before that claim and finds the job after it: time passes with every call.
        clock.set(Timestamp::from_ms(clock.now().as_ms() - 15));
        let (other, hooked) = HookedClock::open(&url, &clock);
        hooked.set(move || clock.advance_ms(10));
        request.max = 9;
        request.cursor = first.cursor;
        assert_eq!(other.change_many(request).await.unwrap().changed, 1, "the one that was not retried yet");
    });
}

/// Makes a call to a store from within the clock of another one, which must not be async.
fn call_now<T: Send>(call: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| block(call)).join().unwrap())
}

fn fire(schedule: &Schedule) -> Fire {
    let tick = schedule.next_tick.unwrap();
    Fire {
        name: schedule.name.clone(),
        expected_tick: Some(tick),
        revision: schedule.revision,
        jobs: vec![job()],
        next_tick: Some(tick.plus_ms(1_000)),
        skip_if_running: false,
    }
}

#[test]
fn a_tick_that_fires_while_its_schedule_is_put_does_not_fire_again() {
    let server = Redis::start().unwrap();
    block(async {
        let (url, clock) = (fresh_url(&server.url()), virtual_clock());
        let store = Arc::new(open_at(&url, &clock));
        let tick = clock.now();
        let new = Schedule::new(ScheduleName::new("s").unwrap(), Rule::every_ms(1_000), job().spec);
        store.put_schedule(Schedule { next_tick: Some(tick), ..new }).await.unwrap();
        let copy = store.schedules().await.unwrap().remove(0);
        let (other, hooked) = HookedClock::open(&url, &clock);
        let (firing, mut due) = (Arc::clone(&store), Some(fire(&copy)));
        // Between the look at the stored schedule and the script that replaces it.
        hooked.set(move || {
            if let Some(fire) = due.take() {
                assert_eq!(call_now(firing.fire(fire)).unwrap(), FireOutcome::Fired { jobs: 1 });
            }
        });
        other.put_schedule(copy).await.unwrap();
        let stored = store.schedules().await.unwrap().remove(0);
        assert_eq!((stored.fired, stored.next_tick), (1, Some(tick.plus_ms(1_000))));
        assert_eq!(store.due_schedules(9).await.unwrap(), []);
    });
}

#[test]
fn a_put_gives_up_when_its_schedule_fires_between_all_of_its_calls() {
    let server = Redis::start().unwrap();
    block(async {
        let (url, clock) = (fresh_url(&server.url()), virtual_clock());
        let store = Arc::new(open_at(&url, &clock));
        let new = Schedule::new(ScheduleName::new("s").unwrap(), Rule::every_ms(1_000), job().spec);
        store.put_schedule(Schedule { next_tick: Some(clock.now()), ..new }).await.unwrap();
        let copy = store.schedules().await.unwrap().remove(0);
        let (other, hooked) = HookedClock::open(&url, &clock);
        let (firing, mut last) = (Arc::clone(&store), copy.clone());
        hooked.set(move || {
            assert_eq!(call_now(firing.fire(fire(&last))).unwrap(), FireOutcome::Fired { jobs: 1 });
            last = call_now(firing.schedules()).unwrap().remove(0);
        });
        let refused = other.put_schedule(copy).await;
        assert!(matches!(&refused, Err(Error::Unavailable { reason }) if reason.contains("`s`")), "{refused:?}");
    });
}

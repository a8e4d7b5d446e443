//! Changes of many jobs that take several calls to the server: other processes change jobs in between. An embedded store makes
//! each step of such a change at once, so the shared suite has no such case.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::Arc;
use support::{block, claim, enqueue, fresh_url, job, open_at, report_as, virtual_clock};
use windlass_core::job::{Failure, FailureClass, Retry};
use windlass_core::random::StrongRandom;
use windlass_core::store::{ChangeMany, ChangeManyOp, Filter, JobQueue, OutcomeKind};
use windlass_core::time::{Clock, Timestamp, VirtualClock};
use windlass_redis::{Options, RedisStore};
use windlass_servers::Redis;

/// A clock that is ten milliseconds later at every reading. The store reads it once per call to the server.
struct Ticking(Arc<VirtualClock>);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        let now = self.0.now();
        self.0.advance_ms(10);
        now
    }
}

async fn fail_all(store: &RedisStore, at: Timestamp) {
    for claimed in claim(store, "w", 9).await {
        let failure = Failure { class: FailureClass::Error, message: "no".to_owned(), attempt: 0, at };
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
        // The next step begins five milliseconds before this claim, and finds the job after it.
        clock.advance_ms(100);
        fail_all(&store, clock.now()).await;
        let begins = Timestamp::from_ms(clock.now().as_ms() - 5);
        clock.set(begins);
        let random = Arc::new(StrongRandom::from_system());
        let (options, scripts) = (Options::from_url(&url).unwrap(), windlass_redis::scripts::all());
        let ticking = RedisStore::open_with_scripts(options, Arc::new(Ticking(clock)), random, scripts).unwrap();
        request.max = 9;
        request.cursor = first.cursor;
        assert_eq!(ticking.change_many(request).await.unwrap().changed, 1, "the one that was not retried yet");
    });
}

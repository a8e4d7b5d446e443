//! The longest script of every change of 300,000 jobs, by the server's own log. It depends on the machine, so it is a measurement
//! and not a test: `tests/work` holds the bound by counted work.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use support::{block, claim, fresh_url, job_with, open_at, virtual_clock};
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, JobSpec, NewJob};
use windlass_core::name::{DedupKey, GroupName};
use windlass_core::payload::Payload;
use windlass_core::store::{ChangeMany, ChangeManyOp, EnqueueRequest, Filter, JobQueue, Sweep, SweepKind};
use windlass_redis::RedisStore;
use windlass_servers::Redis;

const DAY_MS: u64 = 86_400_000;

type Edit = fn(usize, &mut JobSpec);

struct Measured {
    server: Redis,
    store: RedisStore,
    what: &'static str,
}

impl Measured {
    /// Prints the longest script since the last call.
    async fn print(&self, verb: &str) {
        let client = redis::Client::open(self.server.url()).unwrap();
        let mut link = client.get_multiplexed_async_connection().await.unwrap();
        let entries: Vec<Vec<redis::Value>> =
            redis::cmd("SLOWLOG").arg("GET").arg(1_000).query_async(&mut link).await.unwrap();
        let us = entries.iter().map(|entry| redis::from_redis_value_ref::<u64>(&entry[2]).unwrap()).max();
        println!("{:>8} {verb:<14} {:>8.1} ms", self.what, us.unwrap_or(0) as f64 / 1_000.0);
        self.server.command(&["SLOWLOG", "RESET"]).unwrap();
    }

    async fn fill(&self, count: usize, edit: Edit, due: Due) {
        for from in (0..count).step_by(1_000) {
            let jobs: Vec<NewJob> =
                (from..count.min(from + 1_000)).map(|i| job_with(|spec| edit(i, spec)).due(due)).collect();
            assert!(self.store.enqueue(EnqueueRequest::new(jobs)).await.unwrap().iter().all(Result::is_ok));
        }
        self.print("enqueue").await;
    }

    async fn change(&self, verb: &str, op: ChangeManyOp) {
        let filter = Filter::queue("q".try_into().unwrap());
        let mut request = ChangeMany { filter, op, max: 10_000, cursor: None };
        loop {
            request.cursor = self.store.change_many(request.clone()).await.unwrap().cursor;
            if request.cursor.is_none() {
                return self.print(verb).await;
            }
        }
    }

    async fn sweep(&self, verb: &str, kind: SweepKind) {
        while self.store.sweep(Sweep { kind, max: 10_000 }).await.unwrap().more {}
        self.print(verb).await;
    }
}

fn measure(what: &'static str, count: usize, edit: Edit) {
    let server = Redis::start().unwrap();
    for words in [["slowlog-log-slower-than", "1000"], ["slowlog-max-len", "1000"]] {
        server.command(&["CONFIG", "SET", words[0], words[1]]).unwrap();
    }
    let clock = virtual_clock();
    let store = open_at(&fresh_url(&server.url()), &clock);
    let set = Measured { server, store, what };
    block(async {
        set.fill(count, edit, Due::Now).await;
        set.change("cancel", ChangeManyOp::CancelAll).await;
        set.change("clean", ChangeManyOp::Clean { older_than_ms: 0 }).await;
        set.fill(count, edit, Due::DelayMs(60_000)).await;
        set.change("promote", ChangeManyOp::PromoteAll).await;
        set.change("drain", ChangeManyOp::Drain { scheduled: true }).await;
        set.fill(count, edit, Due::DelayMs(1_000)).await;
        clock.advance_ms(1_000);
        set.sweep("promote sweep", SweepKind::Promote).await;
        for _ in 0..2 {
            while !claim(&set.store, "w", 1_000).await.is_empty() {}
            set.print("claim of 1,000").await;
            clock.advance_ms(DAY_MS);
            set.sweep("reap sweep", SweepKind::Reap).await;
        }
        set.change("retry", ChangeManyOp::RetryFailed).await;
        set.change("cancel", ChangeManyOp::CancelAll).await;
        clock.advance_ms(100 * DAY_MS);
        set.sweep("prune sweep", SweepKind::Prune).await;
        set.fill(count, edit, Due::Now).await;
        set.change("obliterate", ChangeManyOp::Obliterate { force: false }).await;
    });
}

#[test]
#[ignore = "takes minutes and measures the machine; run it by its name with --run-ignored only"]
fn slow_the_longest_scripts_of_300_000_jobs() {
    measure("plain", 300_000, |_, _| {});
    measure("rich", 300_000, |i, spec| {
        spec.group = Some(GroupName::new(format!("g{i}")).unwrap());
        let by = DedupBy::Key(DedupKey::new(format!("k{i}")).unwrap());
        spec.dedup = Some(Dedup { by, mode: DedupMode::Reject, ttl_ms: None });
    });
    measure("250 KB", 500, |_, spec| spec.payload = Payload::json(&"x".repeat(250_000)).unwrap());
}

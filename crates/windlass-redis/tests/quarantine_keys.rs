//! Dedup keys of damaged jobs: a key has one live holder, also when the one that held it was set aside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::LazyLock;
use support::raw::Raw;
use support::{block, claim, counts, enqueue_one, fresh_url, get, job_with, open_at, report, virtual_clock};
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, NewJob, State};
use windlass_core::store::{Change, ChangeOp, Enqueued, JobQueue};
use windlass_redis::RedisStore;
use windlass_servers::Redis;

static SERVER: LazyLock<Redis> = LazyLock::new(|| Redis::start().unwrap());

fn keyed(mode: DedupMode) -> NewJob {
    job_with(|spec| spec.dedup = Some(Dedup { by: DedupBy::Key("k".try_into().unwrap()), mode, ttl_ms: None }))
}

async fn put(store: &RedisStore, mode: DedupMode) -> Enqueued {
    enqueue_one(store, keyed(mode)).await.unwrap()
}

/// An ended job of the key, and one that waits behind an active holder whose life cannot be read.
async fn damaged_holder() -> (RedisStore, JobId, JobId) {
    let url = fresh_url(&SERVER.url());
    let store = open_at(&url, &virtual_clock());
    let ended = put(&store, DedupMode::KeepLast).await.id();
    let lease = claim(&store, "w", 1).await.remove(0).lease;
    report(&store, "w", lease).await.unwrap();
    let holder = put(&store, DedupMode::KeepLast).await.id();
    assert_eq!(claim(&store, "w", 1).await.len(), 1);
    let successor = put(&store, DedupMode::KeepLast).await;
    assert!(matches!(successor, Enqueued::Held { .. }));
    Raw::open(&url).set("life", holder.to_string(), "nonsense").await;
    (store, ended, successor.id())
}

#[test]
fn the_key_of_a_damaged_holder_is_its_successors_alone() {
    for mode in [DedupMode::Reject, DedupMode::Replace, DedupMode::KeepLast] {
        block(async {
            let (store, _, successor) = damaged_holder().await;
            let third = put(&store, mode).await;
            match mode {
                DedupMode::Reject => assert_eq!(third, Enqueued::Deduplicated { by: successor }),
                _ => assert!(matches!(third, Enqueued::Replaced { old, .. } if old == successor), "{third:?}"),
            }
            assert_eq!(counts(&store).await.ready, 1, "one job holds the key");
        });
    }
}

#[test]
fn a_retry_meets_the_successor_of_a_damaged_holder() {
    block(async {
        let (store, ended, successor) = damaged_holder().await;
        let retry = vec![Change { id: ended, op: ChangeOp::Retry(Due::Now) }];
        let refused = store.change(retry).await.unwrap().remove(0);
        assert_eq!(refused, Err(Error::KeyTaken { by: successor }));
        assert_eq!(get(&store, successor).await.unwrap().state, State::Ready);
    });
}

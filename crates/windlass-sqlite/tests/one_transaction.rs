//! Calls that share a transaction: each is answered as if it were alone, and what goes wrong leaves nothing half-done.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, poll};
use std::path::{Path, PathBuf};
use std::pin::pin;
use support::{
    block, claim, claim_request, complete, counts, enqueue, enqueue_one, get, job, job_with, open, raw, recount,
};
use windlass_core::engine::Host;
use windlass_core::id::JobId;
use windlass_core::job::{NewJob, State};
use windlass_core::schedule::{Rule, Schedule};
use windlass_core::store::{
    EnqueueRequest, Enqueued, Feed, FeedCursor, FeedRequest, JobQueue, Outcome, ReportRequest, ScheduleStore,
};
use windlass_core::{Error, Result};
use windlass_sqlite::SqliteStore;

/// A fresh store in a folder of its own.
fn fresh() -> (tempfile::TempDir, PathBuf, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = open(&path);
    (dir, path, store)
}

/// Runs calls in one transaction: they all queue while somebody else holds the file.
async fn together<R>(path: &Path, calls: Vec<BoxFuture<'_, R>>) -> Vec<R> {
    let holder = raw(path);
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut all = pin!(join_all(calls));
    assert!(poll!(&mut all).is_pending());
    holder.execute_batch("COMMIT").unwrap();
    all.await
}

fn plain(count: usize) -> Vec<NewJob> {
    (0..count).map(|_| job()).collect()
}

fn outcomes(jobs: &[windlass_core::store::ClaimedJob]) -> ReportRequest {
    let outcomes = jobs.iter().map(|job| Outcome { lease: job.lease, kind: complete() }).collect();
    ReportRequest { worker: "w".try_into().unwrap(), outcomes }
}

#[test]
fn jobs_that_are_claimed_and_end_in_one_transaction_end_once() {
    let (_dir, path, store) = fresh();
    block(async {
        for count in [1, 20] {
            let ids = enqueue(&store, plain(count)).await;
            let done = store.write(move |step| {
                let claimed = step.claim(&claim_request("w", 100))?.jobs;
                step.report(outcomes(&claimed))
            });
            assert_eq!(done.await.unwrap().into_iter().filter(Result::is_ok).count(), count);
            for id in ids {
                assert_eq!(get(&store, id).await.state, State::Succeeded);
            }
            assert_eq!(counts(&store).await, recount(&path));
        }
    });
}

#[test]
fn reports_and_claims_of_several_workers_share_a_transaction() {
    let (_dir, path, store) = fresh();
    block(async {
        enqueue(&store, plain(120)).await;
        let (first, second) = (claim(&store, "w", 20).await, claim(&store, "w", 20).await);
        let (_, commits) = store.group_commit();
        let both = store.report_and_claim(outcomes(&first), claim_request("w", 20));
        let calls: Vec<BoxFuture<'_, usize>> = vec![
            both.map(|both| both.unwrap().claimed.jobs.len()).boxed(),
            store.report(outcomes(&second)).map(|all| all.unwrap().into_iter().filter(Result::is_ok).count()).boxed(),
            claim(&store, "v", 20).map(|jobs| jobs.len()).boxed(),
            enqueue(&store, plain(20)).map(|ids| ids.len()).boxed(),
            claim(&store, "u", 200).map(|jobs| jobs.len()).boxed(),
        ];
        assert_eq!(together(&path, calls).await, [20, 20, 20, 20, 60]);
        assert_eq!(store.group_commit().1, commits + 1, "it was one transaction");
        let counts = counts(&store).await;
        assert_eq!((counts.ready, counts.active, counts.succeeded), (0, 100, 40));
        assert_eq!(counts, recount(&path));
    });
}

/// Ids that rise, as those of one maker do.
fn numbered(number: u128) -> NewJob {
    NewJob { id: JobId::from_parts(0, number), ..job() }
}

#[test]
fn an_id_that_another_process_has_taken_meanwhile_is_known() {
    let (_dir, path, store) = fresh();
    let other = open(&path);
    block(async {
        enqueue(&store, vec![numbered(10)]).await;
        enqueue(&store, vec![numbered(20)]).await;
        enqueue(&other, vec![numbered(30)]).await;
        let id = JobId::from_parts(0, 30);
        assert_eq!(enqueue_one(&store, numbered(30)).await, Ok(Enqueued::Existing { id }));
        let changed = NewJob { id, ..job_with(|spec| spec.priority = 5) };
        assert_eq!(enqueue_one(&store, changed).await, Err(Error::Duplicate { id }));
        // The same in one call with others that are new.
        enqueue(&other, vec![numbered(41)]).await;
        let answers = store.enqueue(EnqueueRequest::new((40..43).map(numbered).collect())).await.unwrap();
        let [Ok(Enqueued::Created { .. }), Ok(Enqueued::Existing { .. }), Ok(Enqueued::Created { .. })] = answers[..]
        else {
            panic!("{answers:?}");
        };
        assert_eq!(counts(&store).await.ready, 6);
        assert_eq!(counts(&store).await, recount(&path));
    });
}

/// From now on, whoever puts a schedule spoils the transaction.
fn forbid_schedules(path: &Path) {
    let trigger = "CREATE TRIGGER no_schedules BEFORE INSERT ON windlass_schedule BEGIN SELECT RAISE(ABORT, 'no'); END";
    raw(path).execute_batch(trigger).unwrap();
}

#[test]
fn jobs_of_a_transaction_that_was_taken_back_can_be_enqueued_again() {
    let (_dir, path, store) = fresh();
    forbid_schedules(&path);
    block(async {
        enqueue(&store, vec![numbered(10)]).await;
        let jobs = || (20..40).map(numbered).collect::<Vec<_>>();
        let schedule = Schedule::new("s".try_into().unwrap(), Rule::every_ms(60_000), job().spec);
        let calls: Vec<BoxFuture<'_, bool>> = vec![
            store.enqueue(EnqueueRequest::new(jobs())).map(|answer| answer.is_err()).boxed(),
            store.put_schedule(schedule).map(|answer| answer.is_err()).boxed(),
        ];
        assert_eq!(together(&path, calls).await, [true, true], "they fail together");
        assert_eq!(counts(&store).await.ready, 1);
        for answer in store.enqueue(EnqueueRequest::new(jobs())).await.unwrap() {
            assert!(matches!(answer, Ok(Enqueued::Created { .. })), "{answer:?}");
        }
        assert_eq!(enqueue_one(&store, numbered(30)).await.unwrap().id(), JobId::from_parts(0, 30));
        assert_eq!(counts(&store).await.ready, 21);
        assert_eq!(counts(&store).await, recount(&path));
        assert_eq!(claim(&store, "w", 100).await.len(), 21);
    });
}

#[test]
fn what_queues_behind_the_call_that_spoils_a_transaction_goes_on() {
    let (_dir, path, store) = fresh();
    block(async {
        let first = enqueue(&store, plain(3)).await[0];
        // The number of the next job is taken, which is noticed when the claim looks.
        raw(&path).execute("UPDATE windlass_meta SET value=value-1 WHERE key='seq'", []).unwrap();
        let calls: Vec<BoxFuture<'_, Result<()>>> = vec![
            enqueue_one(&store, job()).map(|answer| answer.map(drop)).boxed(),
            store.claim(claim_request("w", 1)).map(|answer| answer.map(drop)).boxed(),
            store.claim(claim_request("v", 1)).map(|answer| answer.map(drop)).boxed(),
        ];
        let answers = together(&path, calls).await;
        assert!(matches!(answers[..], [Err(Error::Corrupt { .. }), Err(Error::Corrupt { .. }), Ok(())]), "{answers:?}");
        assert_eq!(get(&store, first).await.lease.unwrap().worker.as_str(), "v");
        assert_eq!(counts(&store).await, recount(&path));
    });
}

#[test]
fn the_feed_of_a_large_transaction_is_written_in_rows_of_a_bounded_size() {
    let (_dir, path, store) = fresh();
    block(async {
        let calls = (0..100).map(|_| enqueue(&store, plain(50)).boxed()).collect();
        assert_eq!(together(&path, calls).await.len(), 100);
        assert_eq!(store.group_commit(), (100, 1), "it was one transaction");
        let sql = "SELECT max(length(events)), sum(length(events)) FROM windlass_feed";
        let (longest, all): (i64, i64) = raw(&path).query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let entry = all / 100;
        assert!(all > 2 * (64 << 10), "{all} bytes are too few to tell");
        assert!(longest <= (64 << 10) + entry, "a row has {longest} bytes, an entry {entry}");
        let page = store.read_feed(FeedRequest { after: Some(FeedCursor(0)), max: 1_000 }).await.unwrap();
        let sizes: Vec<_> = page.entries.iter().map(|entry| entry.events.len()).collect();
        assert_eq!(sizes, [50; 100]);
    });
}

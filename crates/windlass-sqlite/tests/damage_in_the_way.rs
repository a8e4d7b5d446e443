//! Damaged rows that are in the way of other jobs: those go on as if nothing were there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::path::PathBuf;
use support::{block, claim, complete, counts, enqueue, enqueue_one, get, job, job_with, open, raw, recount, report};
use windlass_core::Error;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, Failure, FailureClass, NewJob, Retry, State};
use windlass_core::name::Kind;
use windlass_core::store::{
    Change, ChangeMany, ChangeManyOp, ChangeOp, ClaimedJob, ClaimedRun, EnqueueRequest, Enqueued, Filter, JobQueue,
    ListRequest, NewRun, Outcome, OutcomeKind, ReportRequest, RunClaim, RunCommit, RunItem, RunMessage, RunRenewal,
    RunStep, RunStore, Store,
};
use windlass_core::time::Timestamp;
use windlass_sqlite::SqliteStore;

/// A store, past which its file can be damaged.
struct Scene {
    store: SqliteStore,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.db");
        Self { store: open(&path), path, _dir: dir }
    }

    /// Runs a statement whose `?1` is the row of a job.
    fn damage(&self, victim: JobId, sql: &str) {
        let conn = raw(&self.path);
        let find = "SELECT row FROM windlass_job WHERE id=?1";
        let row: i64 = conn.query_row(find, [victim.to_string()], |row| row.get(0)).unwrap();
        assert_eq!(conn.execute(sql, [row]).unwrap(), 1, "{sql}");
    }

    fn number(&self, sql: &str) -> i64 {
        raw(&self.path).query_row(sql, [], |row| row.get(0)).unwrap()
    }

    async fn assert_counted(&self) {
        assert_eq!(counts(&self.store).await, recount(&self.path));
    }

    /// A write has come across the job and has set it aside; readers show every damaged one as quarantined.
    async fn is_set_aside(&self, id: JobId) -> bool {
        let job = get(&self.store, id).await;
        job.state == State::Failed && job.failures.iter().any(|failure| failure.class == FailureClass::Quarantined)
    }

    /// Reports jobs in one call; each outcome must be taken.
    async fn report_all(&self, jobs: &[ClaimedJob], kind: OutcomeKind) {
        let outcomes = jobs.iter().map(|job| Outcome { lease: job.lease, kind: kind.clone() }).collect();
        let request = ReportRequest { worker: "w".try_into().unwrap(), outcomes };
        for answer in self.store.report(request).await.unwrap() {
            answer.unwrap();
        }
    }

    async fn change_all(&self, op: ChangeManyOp) -> u64 {
        let filter = Filter { queue: Some("q".try_into().unwrap()), ..Filter::default() };
        let changed = self.store.change_many(ChangeMany { op, filter, max: 100, cursor: None }).await.unwrap();
        assert_eq!(changed.cursor, None);
        changed.changed
    }
}

fn plain(count: usize) -> Vec<NewJob> {
    (0..count).map(|_| job()).collect()
}

fn keyed(key: &str, mode: DedupMode) -> NewJob {
    let by = DedupBy::Key(key.try_into().unwrap());
    job_with(|spec| spec.dedup = Some(Dedup { by, mode, ttl_ms: None }))
}

#[test]
fn a_row_that_says_to_be_a_jobs_in_its_next_state_gives_way() {
    let strays = [
        "INSERT INTO windlass_active SELECT row,queue,lane,'ghost',7,0,NULL,9,0,0,0,NULL,NULL,NULL FROM windlass_job \
         WHERE row=?1",
        "INSERT INTO windlass_ended SELECT row,lane,4,0,NULL,9,0,0,0,NULL,NULL,NULL FROM windlass_job WHERE row=?1",
    ];
    block(async {
        for (stray, count) in strays.into_iter().flat_map(|stray| [(stray, 1), (stray, 20)]) {
            let scene = Scene::new();
            enqueue(&scene.store, plain(1)).await;
            let bystander = claim(&scene.store, "v", 1).await.remove(0);
            let ids = enqueue(&scene.store, plain(count)).await;
            scene.damage(ids[count / 2], stray);
            let claimed = claim(&scene.store, "w", 100).await;
            if stray == strays[0] {
                let lease = get(&scene.store, ids[count / 2]).await.lease;
                assert_eq!(lease.unwrap().worker.as_str(), "w", "the lease is that of the claim");
            }
            scene.report_all(&claimed, complete()).await;
            for id in ids {
                let job = get(&scene.store, id).await;
                assert_eq!((job.state, job.attempt, job.quarantined), (State::Succeeded, 1, None), "{stray}");
            }
            report(&scene.store, "v", bystander.lease).await.unwrap();
            assert_eq!(counts(&scene.store).await.succeeded, count as u64 + 1);
            scene.assert_counted().await;
        }
    });
}

#[test]
fn a_row_that_says_to_be_a_new_jobs_gives_way() {
    block(async {
        for count in [1, 20] {
            let scene = Scene::new();
            let first = enqueue(&scene.store, plain(1)).await[0];
            let stray = format!(
                "INSERT INTO windlass_ready SELECT lane,grp,ord+{0},row+{0},9,0,0,0,NULL,NULL,NULL FROM windlass_ready \
                 WHERE row=?1",
                count / 2 + 1
            );
            scene.damage(first, &stray);
            let ids = enqueue(&scene.store, plain(count)).await;
            let claimed = claim(&scene.store, "w", 100).await;
            let leases: Vec<_> = claimed.iter().map(|job| (job.lease.job, job.lease.attempt)).collect();
            assert_eq!(leases, std::iter::once(first).chain(ids).map(|id| (id, 1)).collect::<Vec<_>>());
            scene.report_all(&claimed, complete()).await;
            scene.assert_counted().await;
        }
    });
}

#[test]
fn a_sequence_that_was_set_back_is_a_clear_error_and_nothing_is_half_written() {
    let sums = "SELECT (SELECT count(*) FROM windlass_job) + 1000 * (SELECT count(*) FROM windlass_ready) \
                + 1000000 * (SELECT count(*) FROM windlass_feed)";
    block(async {
        for count in [1, 20] {
            let scene = Scene::new();
            enqueue(&scene.store, plain(30)).await;
            let before = scene.number(sums);
            // Some of the numbers that come next are taken, the others are not.
            raw(&scene.path).execute("UPDATE windlass_meta SET value=value-5 WHERE key='seq'", []).unwrap();
            for _ in 0..2 {
                let refused = scene.store.enqueue(EnqueueRequest::new(plain(count))).await.unwrap_err();
                assert!(matches!(&refused, Error::Corrupt { what } if what.contains("sequence")), "{refused}");
                assert_eq!(scene.number(sums), before);
            }
            let claimed = claim(&scene.store, "w", 100).await;
            assert_eq!(claimed.len(), 30);
            scene.report_all(&claimed, complete()).await;

            raw(&scene.path).execute("UPDATE windlass_meta SET value=value+5 WHERE key='seq'", []).unwrap();
            enqueue(&scene.store, plain(count)).await;
            assert_eq!(claim(&scene.store, "w", 100).await.len(), count);
            scene.assert_counted().await;
        }
    });
}

#[test]
fn of_two_ready_jobs_in_one_place_each_is_claimed() {
    block(async {
        let scene = Scene::new();
        let ids = enqueue(&scene.store, plain(3)).await;
        // A sequence that was set back may give the same place twice.
        let place = "UPDATE windlass_TABLE SET ord=(SELECT max(ord) FROM windlass_job) WHERE row=?1";
        for table in ["job", "ready"] {
            scene.damage(ids[0], &place.replace("TABLE", table));
        }
        let mut claimed = Vec::new();
        for _ in 0..3 {
            claimed.extend(claim(&scene.store, "w", 1).await);
            scene.assert_counted().await;
        }
        assert_eq!(claimed.iter().map(|job| job.lease.job).collect::<Vec<_>>(), [ids[1], ids[0], ids[2]]);
        scene.report_all(&claimed, complete()).await;
    });
}

const NO_REST: &str = "UPDATE windlass_job SET rest='{' WHERE row=?1";
const NO_FLAGS: &str = "UPDATE windlass_job SET flags=x'01' WHERE row=?1";

#[test]
fn a_damaged_job_is_set_aside_by_a_change_to_all_and_the_others_are_changed() {
    let failed = || OutcomeKind::Fail {
        failure: Failure {
            class: FailureClass::Error,
            message: "no".to_owned(),
            attempt: 0,
            at: Timestamp::from_ms(0),
            detail: None,
        },
        retry: Retry::Never,
    };
    block(async {
        for sql in [NO_REST, NO_FLAGS] {
            let scene = Scene::new();
            let keys = ["a", "b", "c"].map(|key| keyed(key, DedupMode::Reject));
            let ids = enqueue(&scene.store, keys.into()).await;
            let claimed = claim(&scene.store, "w", 3).await;
            scene.report_all(&claimed, failed()).await;
            scene.damage(ids[1], sql);
            assert_eq!(scene.change_all(ChangeManyOp::RetryFailed).await, 2, "{sql}");
            assert!(scene.is_set_aside(ids[1]).await, "{sql}");
            assert_eq!((counts(&scene.store).await.ready, counts(&scene.store).await.failed), (2, 1));
            scene.assert_counted().await;

            let grouped = || job_with(|spec| spec.group = Some("g".try_into().unwrap())).due(Due::DelayMs(60_000));
            let ids = enqueue(&scene.store, vec![grouped(), grouped(), grouped()]).await;
            scene.damage(ids[1], sql);
            assert_eq!(scene.change_all(ChangeManyOp::PromoteAll).await, 2, "{sql}");
            assert!(scene.is_set_aside(ids[1]).await, "{sql}");
            assert_eq!((counts(&scene.store).await.ready, counts(&scene.store).await.scheduled), (4, 0));
            scene.assert_counted().await;
            assert_eq!(claim(&scene.store, "w", 10).await.len(), 4);
        }
    });
}

#[test]
fn a_damaged_job_holds_its_key_no_more() {
    block(async {
        for mode in [DedupMode::Reject, DedupMode::Replace, DedupMode::KeepLast] {
            let scene = Scene::new();
            let holder = enqueue(&scene.store, vec![keyed("k", mode)]).await[0];
            scene.damage(holder, NO_FLAGS);
            let next = keyed("k", mode);
            let id = next.id;
            assert_eq!(enqueue_one(&scene.store, next).await, Ok(Enqueued::Created { id }), "{mode:?}");
            assert!(scene.is_set_aside(holder).await, "{mode:?}");
            assert_eq!(claim(&scene.store, "w", 10).await[0].lease.job, id);
            scene.assert_counted().await;
        }
    });
}

#[test]
fn a_damaged_job_that_waits_behind_another_gives_way_to_the_next() {
    block(async {
        let scene = Scene::new();
        let last = || keyed("k", DedupMode::KeepLast);
        enqueue(&scene.store, vec![last()]).await;
        let active = claim(&scene.store, "w", 1).await.remove(0);
        let waiting = enqueue(&scene.store, vec![last()]).await[0];
        scene.damage(waiting, NO_FLAGS);
        let next = last();
        let id = next.id;
        assert_eq!(enqueue_one(&scene.store, next).await.unwrap().id(), id);
        assert!(scene.is_set_aside(waiting).await);
        report(&scene.store, "w", active.lease).await.unwrap();
        assert_eq!(claim(&scene.store, "w", 10).await[0].lease.job, id, "it waited behind the active one");
        scene.assert_counted().await;
    });
}

#[test]
fn several_jobs_whose_ids_cannot_be_read_are_found_in_one_call() {
    block(async {
        for garbage in ["!", "~"] {
            let scene = Scene::new();
            enqueue(&scene.store, plain(3)).await;
            let sql = format!("UPDATE windlass_job SET id='{garbage}'||row");
            assert_eq!(raw(&scene.path).execute(&sql, []).unwrap(), 3);
            let request = ListRequest { limit: 10, ..ListRequest::default() };
            let ids: Vec<_> = scene.store.list(request).await.unwrap().jobs.iter().map(|job| job.id).collect();
            let found = scene.store.get(ids.clone()).await.unwrap();
            assert_eq!(found.into_iter().flatten().map(|job| job.id).collect::<Vec<_>>(), ids, "{garbage}");
            let remove = |id: &JobId| Change { id: *id, op: ChangeOp::Remove };
            let nobody = Change { id: JobId::from_parts(u16::MAX, 0), op: ChangeOp::Remove };
            let changes = std::iter::once(nobody).chain(ids.iter().map(remove)).collect();
            let removed = scene.store.change(changes).await.unwrap();
            assert_eq!(removed.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, true, true], "{garbage}");
            scene.assert_counted().await;
        }
    });
}

#[test]
fn a_successor_that_a_damaged_holder_lets_go_stays_when_its_neighbours_are_claimed() {
    block(async {
        let scene = Scene::new();
        let with_priority = |priority, mut job: NewJob| {
            job.spec.priority = priority;
            job
        };
        let holder = enqueue_one(&scene.store, with_priority(-1, keyed("k", DedupMode::KeepLast))).await.unwrap().id();
        let leased = claim(&scene.store, "w", 1).await;
        let waiting = enqueue_one(&scene.store, with_priority(5, keyed("k", DedupMode::KeepLast))).await.unwrap();
        assert!(matches!(waiting, Enqueued::Held { .. }));
        scene.report_all(&leased, OutcomeKind::Release { started: false }).await;
        enqueue(&scene.store, vec![with_priority(0, job()), with_priority(10, job())]).await;
        scene.damage(holder, "UPDATE windlass_job SET rest='{' WHERE row=?1");
        // Priorities -1, 0 and 10 are read; the first is set aside, and 5 becomes ready between the two others.
        let claimed = claim(&scene.store, "w", 10).await;
        let mut ids: Vec<_> = claimed.iter().map(|job| job.lease.job).collect();
        ids.extend(claim(&scene.store, "w", 10).await.iter().map(|job| job.lease.job));
        assert!(ids.contains(&waiting.id()) && ids.len() == 3, "{ids:?}");
        assert!(scene.is_set_aside(holder).await);
        scene.assert_counted().await;
    });
}

#[test]
fn the_key_of_a_damaged_holder_is_its_successors_alone() {
    for mode in [DedupMode::Reject, DedupMode::Replace, DedupMode::KeepLast] {
        block(async {
            let scene = Scene::new();
            let holder = enqueue_one(&scene.store, keyed("k", DedupMode::KeepLast)).await.unwrap().id();
            claim(&scene.store, "w", 1).await;
            let successor = enqueue_one(&scene.store, keyed("k", DedupMode::KeepLast)).await.unwrap().id();
            scene.damage(holder, "UPDATE windlass_active SET token='x' WHERE row=?1");
            let third = enqueue_one(&scene.store, keyed("k", mode)).await.unwrap();
            match mode {
                DedupMode::Reject => assert_eq!(third, Enqueued::Deduplicated { by: successor }),
                _ => assert!(matches!(third, Enqueued::Replaced { old, .. } if old == successor), "{third:?}"),
            }
            assert!(scene.is_set_aside(holder).await);
            assert_eq!(counts(&scene.store).await.ready, 1, "one job holds the key");
            scene.assert_counted().await;
        });
    }
}

#[test]
fn a_retry_meets_the_successor_of_a_damaged_holder() {
    block(async {
        let scene = Scene::new();
        let ended = enqueue_one(&scene.store, keyed("k", DedupMode::KeepLast)).await.unwrap().id();
        scene.report_all(&claim(&scene.store, "w", 1).await, complete()).await;
        let holder = enqueue_one(&scene.store, keyed("k", DedupMode::KeepLast)).await.unwrap().id();
        claim(&scene.store, "w", 1).await;
        let successor = enqueue_one(&scene.store, keyed("k", DedupMode::KeepLast)).await.unwrap().id();
        scene.damage(holder, "UPDATE windlass_active SET token='x' WHERE row=?1");
        let retry = vec![Change { id: ended, op: ChangeOp::Retry(Due::Now) }];
        let refused = scene.store.change(retry).await.unwrap().remove(0);
        assert_eq!(refused, Err(Error::KeyTaken { by: successor }));
        assert_eq!(get(&scene.store, successor).await.state, State::Ready);
        scene.assert_counted().await;
    });
}

#[test]
fn a_damaged_item_of_a_long_inbox_hides_no_other() {
    let run = RunId::from_parts(0, 7);
    let kind = Kind::new("graph").unwrap();
    block(async {
        let mut scene = Scene::new();
        let (name, definition, input) = ("a".into(), "d".into(), "{}".into());
        let new = NewRun { name, definition, input, ..NewRun::new(run, kind.clone()) };
        scene.store.create_runs(vec![new]).await.unwrap().remove(0).unwrap();
        let message = |n: u32| RunMessage::new(run, n.to_string());
        let sent = scene.store.send_to_runs((0..1_500).map(message).collect()).await.unwrap();
        assert!(sent.iter().all(Result::is_ok));
        // What was just written is kept in memory; another process reads the file.
        scene.store.close().await.unwrap();
        assert_eq!(raw(&scene.path).execute("UPDATE windlass_inbox SET item='{' WHERE number=3", []).unwrap(), 1);
        scene.store = open(&scene.path);
        let claim = RunClaim { lease_ms: 60_000, ..RunClaim::new("e".try_into().unwrap(), vec![kind.clone()]) };
        let (mut bodies, mut taken) = (Vec::new(), 0);
        while let Some(claimed) = scene.store.claim_runs(claim.clone()).await.unwrap().runs.pop() {
            taken += claimed.inbox_taken;
            bodies.extend(claimed.inbox.into_iter().map(|found| match found.item {
                RunItem::Message { body, .. } => body,
                other => panic!("{other:?}"),
            }));
            let (lease, history_len, inbox_to) = (claimed.lease, claimed.history_len, claimed.inbox_to);
            let commit = RunCommit { inbox_to, ..RunCommit::new(lease, history_len, RunStep::nothing()) };
            scene.store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap();
        }
        let readable: Vec<String> = (0..1_500).filter(|n| *n != 3).map(|n: u32| n.to_string()).collect();
        assert_eq!((bodies.len(), taken), (readable.len(), 1_500));
        assert_eq!(bodies, readable);
    });
}

/// A claimed run with three messages that arrived since, of which the second one cannot be read.
async fn claimed_with_a_damaged_item(scene: &mut Scene) -> ClaimedRun {
    let (run, kind) = (RunId::from_parts(0, 7), Kind::new("graph").unwrap());
    let (name, definition, input) = ("a".into(), "d".into(), "{}".into());
    let new = NewRun { name, definition, input, ..NewRun::new(run, kind.clone()) };
    scene.store.create_runs(vec![new]).await.unwrap().remove(0).unwrap();
    let engine = "e".try_into().unwrap();
    let claim = RunClaim { run: Some(run), lease_ms: 60_000, ..RunClaim::new(engine, vec![kind]) };
    let claimed = scene.store.claim_runs(claim).await.unwrap().runs.remove(0);
    let message = |n: u32| RunMessage::new(run, n.to_string());
    assert!(scene.store.send_to_runs((0..3).map(message).collect()).await.unwrap().iter().all(Result::is_ok));
    scene.store.close().await.unwrap();
    assert_eq!(raw(&scene.path).execute("UPDATE windlass_inbox SET item='{' WHERE number=1", []).unwrap(), 1);
    scene.store = open(&scene.path);
    claimed
}

#[test]
fn a_renewal_passes_damaged_items() {
    block(async {
        let mut scene = Scene::new();
        let claimed = claimed_with_a_damaged_item(&mut scene).await;
        let renewal = RunRenewal { lease: claimed.lease, lease_ms: 60_000, inbox_from: claimed.inbox_to };
        let renewed = scene.store.renew_runs(vec![renewal]).await.unwrap().remove(0).unwrap();
        assert_eq!((renewed.inbox.len(), renewed.inbox_to, renewed.inbox_taken), (2, 3, 3));
    });
}

#[test]
fn a_renewal_of_a_run_whose_inbox_begins_behind_its_end_returns_no_items() {
    block(async {
        let mut scene = Scene::new();
        let claimed = claimed_with_a_damaged_item(&mut scene).await;
        scene.store.close().await.unwrap();
        assert_eq!(raw(&scene.path).execute("UPDATE windlass_run SET inbox_first=9", []).unwrap(), 1);
        scene.store = open(&scene.path);
        let renewal = RunRenewal { lease: claimed.lease, lease_ms: 60_000, inbox_from: claimed.inbox_to };
        let renewed = scene.store.renew_runs(vec![renewal]).await.unwrap().remove(0).unwrap();
        assert_eq!((renewed.inbox.len(), renewed.inbox_taken), (0, 0));
    });
}

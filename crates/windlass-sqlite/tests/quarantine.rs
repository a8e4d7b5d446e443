//! Stored bytes that cannot be read: never a panic, the damaged job is shown and can be removed, the others go on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use support::{
    LEASE_MS, block, claim, claim_request, counts, enqueue, enqueue_one, get, job, job_with, open_at, raw, recount,
    report, sweep, virtual_clock,
};
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{Due, JobSummary, State};
use windlass_core::schedule::{Rule, Schedule};
use windlass_core::store::{
    Change, ChangeOp, Feed, FeedCursor, FeedRequest, JobQueue, ListRequest, Reason, ScheduleStore, SweepKind,
};
use windlass_core::time::{Clock, VirtualClock};
use windlass_sqlite::SqliteStore;
use windlass_sqlite::rusqlite::types::Value;

/// In which state the job is when it is damaged.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Scheduled,
    Ready,
    Active,
    Ended,
}

use When::{Active, Ended, Ready, Scheduled};

/// What is done to a job's rows; `?1` is its row.
const DAMAGES: &[(&str, When, &str)] = &[
    ("rest is no JSON", Ready, "UPDATE windlass_job SET rest='{\"group' WHERE row=?1"),
    ("rest has an unknown field", Ready, "UPDATE windlass_job SET rest='{\"x\":1}' WHERE row=?1"),
    ("rest is not UTF-8", Ready, "UPDATE windlass_job SET rest=CAST(x'fffe' AS TEXT) WHERE row=?1"),
    ("the payload is gone", Ready, "UPDATE windlass_job SET payload=NULL WHERE row=?1"),
    ("the payload is a number", Ready, "UPDATE windlass_job SET payload=7 WHERE row=?1"),
    ("the content type is bytes", Ready, "UPDATE windlass_job SET content_type=x'00ff' WHERE row=?1"),
    ("the payload of a scheduled job is gone", Scheduled, "UPDATE windlass_job SET payload=NULL WHERE row=?1"),
    ("the budget is negative", Ready, "UPDATE windlass_job SET attempts_max=-1 WHERE row=?1"),
    ("the priority is too large", Ready, "UPDATE windlass_job SET priority=99999 WHERE row=?1"),
    ("the flags are bytes", Ready, "UPDATE windlass_job SET flags=x'01' WHERE row=?1"),
    ("the flags of an active job are bytes", Active, "UPDATE windlass_job SET flags=x'01' WHERE row=?1"),
    ("the birth is a text", Ready, "UPDATE windlass_job SET created_at='yesterday' WHERE row=?1"),
    ("the fingerprint is a text", Scheduled, "UPDATE windlass_job SET fingerprint='x' WHERE row=?1"),
    ("the dedup key is too short", Ready, "UPDATE windlass_job SET dedup=x'0102' WHERE row=?1"),
    ("the queue is another", Ready, "UPDATE windlass_job SET queue=4711 WHERE row=?1"),
    ("the lane is another", Ready, "UPDATE windlass_job SET lane=4711 WHERE row=?1"),
    ("the group is another", Ready, "UPDATE windlass_job SET grp=4711 WHERE row=?1"),
    ("the group of an ended job is a text", Ended, "UPDATE windlass_job SET grp='x' WHERE row=?1"),
    ("the place is another", Ready, "UPDATE windlass_job SET ord=4711 WHERE row=?1"),
    ("the place is a text", Ready, "UPDATE windlass_job SET ord='first' WHERE row=?1"),
    ("the place among the ready ones is another", Ready, "UPDATE windlass_ready SET ord=4711 WHERE row=?1"),
    ("the place among the ready ones is a text", Ready, "UPDATE windlass_ready SET ord='first' WHERE row=?1"),
    ("the attempt is a text", Ready, "UPDATE windlass_ready SET attempt='one' WHERE row=?1"),
    ("the due time is a text", Scheduled, "UPDATE windlass_scheduled SET due_at='soon' WHERE row=?1"),
    ("the attempt of a scheduled job is a text", Scheduled, "UPDATE windlass_scheduled SET attempt='x' WHERE row=?1"),
    ("the worker has control characters", Active, "UPDATE windlass_active SET worker='w'||char(7) WHERE row=?1"),
    ("the token is a text", Active, "UPDATE windlass_active SET token='secret' WHERE row=?1"),
    ("the lease ends at a text", Active, "UPDATE windlass_active SET expires_at='soon' WHERE row=?1"),
    ("the end is a text", Ended, "UPDATE windlass_ended SET finished_at='then' WHERE row=?1"),
    ("the attempt of an ended job is a text", Ended, "UPDATE windlass_ended SET attempt='x' WHERE row=?1"),
];

/// A store with three jobs, of which one is about to be damaged.
struct Scene {
    clock: Arc<VirtualClock>,
    store: SqliteStore,
    path: PathBuf,
    victim: JobId,
    others: Vec<JobId>,
    _dir: tempfile::TempDir,
}

impl Scene {
    async fn new(when: When) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.db");
        let clock = virtual_clock();
        let store = open_at(&path, &clock);
        let due = if when == Scheduled { Due::DelayMs(LEASE_MS) } else { Due::Now };
        let victim = enqueue(&store, vec![job().due(due)]).await[0];
        if matches!(when, Active | Ended) {
            let leased = claim(&store, "v", 1).await.remove(0);
            if when == Ended {
                report(&store, "v", leased.lease).await.unwrap();
            }
        }
        let others = enqueue(&store, vec![job(), job()]).await;
        Self { clock, store, path, victim, others, _dir: dir }
    }

    fn damage(&self, sql: &str) {
        let conn = raw(&self.path);
        let id = self.victim.to_string();
        let row: i64 = conn.query_row("SELECT row FROM windlass_job WHERE id=?1", [id], |row| row.get(0)).unwrap();
        assert_eq!(conn.execute(sql, [row]).unwrap(), 1, "{sql}");
    }

    async fn listed(&self) -> Vec<JobSummary> {
        self.store.list(ListRequest { limit: 100, ..ListRequest::default() }).await.unwrap().jobs
    }

    /// The others are claimed and completed, whatever became of the victim.
    async fn others_go_on(&self) {
        self.clock.advance_ms(2 * LEASE_MS);
        for kind in SweepKind::ALL {
            sweep(&self.store, kind).await;
        }
        for job in claim(&self.store, "w", 10).await {
            assert_ne!(job.lease.job, self.victim, "what cannot be read is not claimed");
            report(&self.store, "w", job.lease).await.unwrap();
        }
        for id in &self.others {
            assert_eq!(get(&self.store, *id).await.state, State::Succeeded);
        }
    }

    async fn remove(&self, id: JobId) {
        let removed = self.store.change(vec![Change { id, op: ChangeOp::Remove }]).await.unwrap().remove(0);
        assert_eq!(removed.unwrap().state, None);
        assert_eq!(self.store.get(vec![id]).await.unwrap(), vec![None]);
        assert_eq!(self.listed().await.len(), self.others.len());
        assert_eq!(counts(&self.store).await, recount(&self.path), "after the removal");
    }
}

async fn shown_as_quarantined(scene: &Scene, id: JobId) {
    let shown = scene.listed().await.into_iter().find(|job| job.id == id).expect("it is listed");
    assert!(shown.quarantined, "it is listed as quarantined");
    assert!(get(&scene.store, id).await.quarantined.is_some_and(|why| !why.is_empty()));
    let reason = scene.store.explain(id).await.unwrap().reason;
    assert!(matches!(&reason, Reason::Quarantined { detail } if !detail.is_empty()), "{reason:?}");
}

async fn check(name: &str, when: When, sql: &str) {
    println!("{name}");
    // Removed at once, by a write that is the first to come across it.
    let scene = Scene::new(when).await;
    scene.damage(sql);
    shown_as_quarantined(&scene, scene.victim).await;
    scene.remove(scene.victim).await;
    scene.others_go_on().await;

    // Come across by claims and sweeps, and removed when all else is done.
    let scene = Scene::new(when).await;
    scene.damage(sql);
    scene.others_go_on().await;
    shown_as_quarantined(&scene, scene.victim).await;
    let change = Change { id: scene.victim, op: ChangeOp::Retry(Due::Now) };
    let retried = scene.store.change(vec![change]).await.unwrap().remove(0);
    assert!(retried.is_err(), "it does not come back: {retried:?}");
    assert_eq!(counts(&scene.store).await, recount(&scene.path), "{name}");
    scene.remove(scene.victim).await;
}

#[test]
fn slow_a_damaged_job_is_shown_and_removed_and_the_others_go_on() {
    block(async {
        for (name, when, sql) in DAMAGES {
            check(name, *when, sql).await;
        }
    });
}

#[test]
fn a_job_whose_id_cannot_be_read_gets_one_to_be_named_by() {
    block(async {
        for when in [Scheduled, Ready, Active, Ended] {
            for go_on_first in [false, true] {
                let scene = Scene::new(when).await;
                scene.damage("UPDATE windlass_job SET id='what?' WHERE row=?1");
                if go_on_first {
                    scene.others_go_on().await;
                }
                let listed = scene.listed().await;
                let id = listed.iter().map(|job| job.id).find(|id| !scene.others.contains(id)).unwrap();
                assert_ne!(id, scene.victim);
                shown_as_quarantined(&scene, id).await;
                scene.remove(id).await;
                scene.others_go_on().await;
            }
        }
    });
}

#[test]
fn a_ready_row_that_is_no_jobs_or_another_jobs_goes_and_nobody_notices() {
    let strays = [
        "INSERT INTO windlass_ready SELECT lane,grp,-5,999999,0,0,0,0,NULL,NULL,NULL FROM windlass_ready WHERE row=?1",
        "INSERT INTO windlass_ready SELECT lane,grp,-5,'what',0,0,0,0,NULL,NULL,NULL FROM windlass_ready WHERE row=?1",
        "INSERT INTO windlass_ready SELECT lane,grp,-5,row,0,0,0,0,NULL,NULL,NULL FROM windlass_ready WHERE row=?1",
        "INSERT INTO windlass_ready SELECT lane,grp,'x',row,0,0,0,0,NULL,NULL,NULL FROM windlass_ready WHERE row=?1",
    ];
    block(async {
        for stray in strays {
            let scene = Scene::new(Ready).await;
            scene.damage(stray);
            scene.others_go_on_with_victim().await;
            assert_eq!(counts(&scene.store).await, recount(&scene.path), "{stray}");
        }
    });
}

#[test]
fn rows_of_no_job_do_not_stand_before_those_of_others() {
    let strays = [
        "INSERT INTO windlass_scheduled SELECT 9000+value,queue,lane,-1,0,0,0,0,NULL,NULL,NULL FROM windlass_job,\
         generate_series(1,200) WHERE row=?1",
        "INSERT INTO windlass_active SELECT 9000+value,queue,lane,'w',1,-1,NULL,0,0,0,0,NULL,NULL,NULL FROM windlass_job,\
         generate_series(1,200) WHERE row=?1",
    ];
    block(async {
        for (stray, when) in strays.into_iter().zip([Scheduled, Active]) {
            let scene = Scene::new(when).await;
            let stray = stray.replace("generate_series(1,200)", SERIES);
            let conn = raw(&scene.path);
            let row: i64 = conn.query_row("SELECT min(row) FROM windlass_job", [], |row| row.get(0)).unwrap();
            assert_eq!(conn.execute(&stray, [row]).unwrap(), 200);
            scene.clock.advance_ms(2 * LEASE_MS);
            let small = |kind| windlass_core::store::Sweep { kind, max: 10 };
            scene.store.sweep(small(SweepKind::Reap)).await.unwrap();
            let next_at = scene.store.claim(claim_request("w", 10)).await.unwrap();
            assert_eq!(next_at.jobs.len(), 3, "{stray}");
            assert_eq!(next_at.next_at, None, "{stray}");
        }
    });
}

#[test]
fn ready_rows_of_no_job_take_nobodys_turn() {
    let strays = "INSERT INTO windlass_ready SELECT lane,grp,-value,9000+value,0,0,0,0,NULL,NULL,NULL FROM windlass_ready,SERIES \
                  WHERE row=?1";
    block(async {
        let scene = Scene::new(Ready).await;
        let conn = raw(&scene.path);
        let row: i64 = conn.query_row("SELECT min(row) FROM windlass_ready", [], |row| row.get(0)).unwrap();
        assert_eq!(conn.execute(&strays.replace("SERIES", SERIES), [row]).unwrap(), 200);
        assert_eq!(claim(&scene.store, "w", 1).await[0].lease.job, scene.victim, "the first claim finds it");
        assert_eq!(counts(&scene.store).await, recount(&scene.path));
    });
}

#[test]
fn rows_of_no_job_do_not_keep_those_of_others_for_ever() {
    let strays = "INSERT INTO windlass_ended SELECT 9000+value,lane,3,-1,REMOVE_AT,0,0,0,0,NULL,NULL,NULL FROM windlass_job,\
                  SERIES WHERE row=?1";
    block(async {
        // Kept by the queue's rule, and by their own.
        for (remove_at, keep_for) in [("NULL", None), ("-1", Some(1_000))] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("jobs.db");
            let clock = virtual_clock();
            let store = open_at(&path, &clock);
            let ended = enqueue(&store, vec![job_with(|spec| spec.keep_for.succeeded_ms = keep_for)]).await[0];
            let leased = claim(&store, "w", 1).await.remove(0);
            report(&store, "w", leased.lease).await.unwrap();
            let conn = raw(&path);
            let row: i64 = conn.query_row("SELECT min(row) FROM windlass_job", [], |row| row.get(0)).unwrap();
            let strays = strays.replace("SERIES", SERIES).replace("REMOVE_AT", remove_at);
            assert_eq!(conn.execute(&strays, [row]).unwrap(), 200);
            clock.advance_ms(15 * 86_400_000);
            store.sweep(windlass_core::store::Sweep { kind: SweepKind::Prune, max: 10 }).await.unwrap();
            assert_eq!(store.get(vec![ended]).await.unwrap(), vec![None], "{remove_at}");
        }
    });
}

/// The numbers from 1 to 200.
const SERIES: &str =
    "(WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value+1 FROM n WHERE value<200) SELECT value FROM n)";

#[test]
fn a_job_that_stands_nowhere_is_shown_and_removed() {
    let damages = [
        (Ready, "DELETE FROM windlass_ready WHERE row=?1", "not in exactly one state"),
        (Ended, "UPDATE windlass_ended SET state=9 WHERE row=?1", "out of range"),
        (Ended, "UPDATE windlass_ended SET state=1 WHERE row=?1", "no end"),
    ];
    block(async {
        for (when, sql, expected) in damages {
            let scene = Scene::new(when).await;
            scene.damage(sql);
            scene.others_go_on().await;
            let why = get(&scene.store, scene.victim).await.quarantined.unwrap();
            assert!(why.contains(expected), "{why}");
            scene.remove(scene.victim).await;
        }
    });
}

#[test]
fn the_worker_of_a_damaged_job_is_told_that_its_lease_is_lost() {
    block(async {
        let scene = Scene::new(Ready).await;
        let leased = claim(&scene.store, "w", 1).await.remove(0);
        assert_eq!(leased.lease.job, scene.victim);
        scene.damage("UPDATE windlass_active SET stalls='x' WHERE row=?1");
        assert_eq!(report(&scene.store, "w", leased.lease).await, Err(Error::LeaseLost));
        shown_as_quarantined(&scene, scene.victim).await;
        scene.others_go_on().await;
    });
}

/// A job that becomes ready needs its group, which only its spec names; the other changes write the spec anew.
#[test]
fn a_change_that_needs_a_damaged_spec_sets_its_job_aside() {
    block(async {
        for op in [ChangeOp::Promote, ChangeOp::Reschedule(Due::Now), ChangeOp::Reprioritise(3)] {
            let mut scene = Scene::new(Ready).await;
            let grouped = job_with(|spec| spec.group = Some("g".try_into().unwrap()));
            scene.victim = enqueue(&scene.store, vec![grouped.due(Due::DelayMs(LEASE_MS))]).await[0];
            scene.damage("UPDATE windlass_job SET rest='{\"group' WHERE row=?1");
            let change = Change { id: scene.victim, op: op.clone() };
            let changed = scene.store.change(vec![change]).await.unwrap().remove(0);
            assert!(matches!(changed, Err(Error::Corrupt { .. })), "{op:?}: {changed:?}");
            assert_eq!(get(&scene.store, scene.victim).await.state, State::Failed, "{op:?}");
            shown_as_quarantined(&scene, scene.victim).await;
            assert_eq!(counts(&scene.store).await, recount(&scene.path), "{op:?}");
            scene.others_go_on().await;
        }
    });
}

#[test]
fn damaged_notes_do_not_hide_or_stop_their_job() {
    block(async {
        for column in ["failures", "progress", "outputs"] {
            let scene = Scene::new(Ready).await;
            let sql = format!("INSERT INTO windlass_extra(row,{column}) VALUES(?1,'{{garbage')");
            scene.damage(&sql);
            assert_eq!(get(&scene.store, scene.victim).await.quarantined, None);
            assert_eq!(scene.listed().await.len(), 3);
            for job in claim(&scene.store, "w", 10).await {
                report(&scene.store, "w", job.lease).await.unwrap();
            }
            assert_eq!(counts(&scene.store).await.succeeded, 3);
        }
    });
}

#[test]
fn a_damaged_feed_entry_is_read_as_an_empty_one() {
    block(async {
        let scene = Scene::new(Ready).await;
        for garbage in ["x'ffffff'", "'text'", "7", "x''"] {
            raw(&scene.path).execute(&format!("UPDATE windlass_feed SET events={garbage} WHERE number=1"), []).unwrap();
            let page = scene.store.read_feed(FeedRequest { after: Some(FeedCursor(0)), max: 10 }).await.unwrap();
            assert_eq!(page.entries.len(), 2, "{garbage}");
            assert_eq!((page.entries[0].events.len(), page.entries[1].events.len()), (0, 2), "{garbage}");
        }
        scene.others_go_on_with_victim().await;
    });
}

impl Scene {
    /// Nothing is wrong with any job.
    async fn others_go_on_with_victim(&self) {
        for job in claim(&self.store, "w", 10).await {
            report(&self.store, "w", job.lease).await.unwrap();
        }
        assert_eq!(counts(&self.store).await.succeeded, 3);
    }
}

fn schedule(name: &str, clock: &VirtualClock) -> Schedule {
    let mut schedule = Schedule::new(name.try_into().unwrap(), Rule::Every { ms: 60_000 }, job().spec);
    schedule.next_tick = Some(clock.now());
    schedule
}

#[test]
fn a_damaged_schedule_does_not_stop_the_others_and_can_be_replaced_or_removed() {
    block(async {
        let scene = Scene::new(Ready).await;
        let (store, clock) = (&scene.store, &scene.clock);
        for name in ["a", "b", "c"] {
            store.put_schedule(schedule(name, clock)).await.unwrap();
        }
        let conn = raw(&scene.path);
        conn.execute("UPDATE windlass_schedule SET body='{' WHERE name IN ('a','c')", []).unwrap();
        let names = |all: Vec<Schedule>| all.into_iter().map(|s| s.name.as_str().to_owned()).collect::<Vec<_>>();
        let due: Vec<_> = store.due_schedules(10).await.unwrap().into_iter().map(|due| due.schedule).collect();
        assert_eq!(names(due), ["b"]);
        assert_eq!(names(store.schedules().await.unwrap()), ["b"]);
        store.put_schedule(schedule("a", clock)).await.unwrap();
        assert!(store.remove_schedule("c".try_into().unwrap()).await.unwrap());
        assert!(!store.remove_schedule("c".try_into().unwrap()).await.unwrap());
        assert_eq!(names(store.schedules().await.unwrap()), ["a", "b"]);
    });
}

/// Runs everything once; whatever fails says that data is damaged, and the store lives.
async fn every_error_is_corrupt(store: &SqliteStore, what: &str) -> u32 {
    let mut errors = 0;
    let mut note = |outcome: Result<(), Error>| match outcome {
        Ok(()) => {}
        Err(Error::Corrupt { what: text }) => {
            assert!(!text.is_empty());
            errors += 1;
        }
        Err(error) => panic!("{what}: {error}"),
    };
    note(enqueue_one(store, job()).await.map(drop));
    note(store.claim(claim_request("w", 10)).await.map(drop));
    note(store.queues().await.map(drop));
    note(store.list(ListRequest { limit: 10, ..ListRequest::default() }).await.map(drop));
    for kind in SweepKind::ALL {
        note(store.sweep(windlass_core::store::Sweep { kind, max: 100 }).await.map(drop));
    }
    errors
}

#[test]
fn damaged_queues_and_lanes_are_a_clear_error_until_they_are_mended() {
    let damages = [
        ("windlass_queue", "settings", "'{\"cap'"),
        ("windlass_queue", "settings", "x'ff'"),
        ("windlass_queue", "name", "'q'||char(1)"),
        ("windlass_queue", "meter", "'[[1'"),
        ("windlass_queue", "ready", "'many'"),
        ("windlass_lane", "labels", "'[1,2'"),
        ("windlass_lane", "kind", "''"),
        ("windlass_lane", "head", "'x'"),
        ("windlass_group", "settings", "'?'"),
        ("windlass_group", "meter", "7.5"),
    ];
    block(async {
        for (table, column, garbage) in damages {
            let scene = Scene::new(Ready).await;
            let conn = raw(&scene.path);
            let whole = format!("SELECT {column} FROM {table}");
            let whole: Value = conn.query_row(&whole, [], |row| row.get(0)).unwrap();
            conn.execute(&format!("UPDATE {table} SET {column}={garbage}"), []).unwrap();
            let what = format!("{table}.{column}");
            assert!(every_error_is_corrupt(&scene.store, &what).await > 0, "{what}");
            conn.execute(&format!("UPDATE {table} SET {column}=?1"), [whole]).unwrap();
            assert_eq!(every_error_is_corrupt(&scene.store, &what).await, 0, "{what}, mended");
        }
    });
}

#[test]
fn damaged_numbers_are_no_reason_to_panic() {
    let damages = [
        "UPDATE windlass_queue SET ready=0, active=0, scheduled=-1",
        "UPDATE windlass_lane SET jobs=0, ready=0",
        "UPDATE windlass_lane SET jobs=-1, ready=-1",
        "UPDATE windlass_group SET ready=0, active=0",
        "UPDATE windlass_group SET ready=-1, active=-1, vtime=-1",
        "UPDATE windlass_group SET settings='{\"weight\":0}'",
        "UPDATE windlass_queue SET settings='{\"groups\":{\"weight\":0,\"rate\":{\"limit\":0,\"per_ms\":0}}}'",
        "UPDATE windlass_queue SET settings='{\"rate\":{\"limit\":1,\"per_ms\":0}}', meter='[[9223372036854775807,4294967295]]'",
        "UPDATE windlass_sub SET ready=-1, vtime=-1",
        "UPDATE windlass_meta SET value=-1 WHERE key='seq'",
        "UPDATE windlass_feed SET total=-1",
        "UPDATE windlass_minute SET enqueued=-1, claimed=-1, succeeded=-1, waited_ms=-1, ran_ms=-1",
    ];
    block(async {
        for sql in damages {
            let scene = Scene::new(Ready).await;
            let grouped = job_with(|spec| spec.group = Some("g".try_into().unwrap()));
            enqueue(&scene.store, vec![grouped]).await;
            let leased = claim(&scene.store, "w", 1).await;
            assert!(raw(&scene.path).execute(sql, []).unwrap() > 0, "{sql}");
            every_error_is_corrupt(&scene.store, sql).await;
            for job in leased {
                let _ = report(&scene.store, "w", job.lease).await;
            }
            if let Ok(claimed) = scene.store.claim(claim_request("w", 10)).await {
                for job in claimed.jobs {
                    let _ = report(&scene.store, "w", job.lease).await;
                }
            }
            every_error_is_corrupt(&scene.store, sql).await;
        }
    });
}

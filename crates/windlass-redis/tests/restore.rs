//! A store that was set back to a backup, while the workers who used it live on: what they know is of a future that the
//! store has forgotten. They lose what they hold or finish it once, and nobody is stuck.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use support::{
    LEASE_MS, block, claim, claim_request, complete, counts, enqueue, fresh_url, get, job, open_at, report,
    virtual_clock,
};
use windlass_core::Error;
use windlass_core::job::State;
use windlass_core::schedule::{Rule, Schedule, tick};
use windlass_core::store::{
    ClaimRequest, Feed, FeedCursor, FeedEvent, FeedRequest, JobQueue, ListRequest, Outcome, ReportRequest,
    ScheduleStore, Store, Sweep, SweepKind,
};
use windlass_core::time::{Clock, VirtualClock};
use windlass_redis::RedisStore;
use windlass_servers::{Fsync, Redis};

/// What a server keeps on its disk.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Snapshot,
    AppendOnly,
}

/// A server whose files can be copied and put back.
struct Scene {
    server: Redis,
    kept: Kept,
    backup: tempfile::TempDir,
    clock: Arc<VirtualClock>,
    store: RedisStore,
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        std::fs::copy(from, to).unwrap();
    }
}

impl Scene {
    fn new(kept: Kept) -> Self {
        let server = match kept {
            Kept::Snapshot => Redis::start().unwrap(),
            Kept::AppendOnly => Redis::builder().append_only(Fsync::Always).start().unwrap(),
        };
        let clock = virtual_clock();
        let store = open_at(&fresh_url(&server.url()), &clock);
        Self { server, kept, backup: tempfile::tempdir().unwrap(), clock, store }
    }

    fn file(&self) -> (PathBuf, PathBuf) {
        let name = match self.kept {
            Kept::Snapshot => "dump.rdb",
            Kept::AppendOnly => "appendonlydir",
        };
        (self.server.folder().join(name), self.backup.path().join(name))
    }

    /// Copies the files of the running server.
    fn back_up(&self) {
        if let Kept::Snapshot = self.kept {
            self.server.command(&["SAVE"]).unwrap();
        }
        let (live, backup) = self.file();
        copy(&live, &backup);
    }

    /// Puts the copy in the place of what the server has.
    fn restore(&self) {
        self.server.kill9();
        let (live, backup) = self.file();
        if live.is_dir() {
            std::fs::remove_dir_all(&live).unwrap();
        }
        copy(&backup, &live);
        self.server.restart().unwrap();
    }

    /// Every transition of the present history.
    async fn history(&self) -> Vec<FeedEvent> {
        let page = self.store.read_feed(FeedRequest { after: Some(FeedCursor(0)), max: 1_000 }).await.unwrap();
        assert!(!page.gap);
        page.entries.into_iter().flat_map(|entry| entry.events).collect()
    }

    async fn sweep(&self, kind: SweepKind) {
        self.store.sweep(Sweep { kind, max: 100 }).await.unwrap();
    }

    /// The first call after a restart may find a connection that is gone.
    async fn reconnect(&self) {
        for _ in 0..50 {
            match self.store.queues().await {
                Ok(_) => return,
                Err(Error::Unknown { .. } | Error::Unavailable { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("there is no way back to the server");
    }
}

const BOTH: [Kept; 2] = [Kept::Snapshot, Kept::AppendOnly];

#[test]
fn leases_of_the_backup_are_finished_once_or_lost() {
    block(async {
        for kept in BOTH {
            let scene = Scene::new(kept);
            let store = &scene.store;
            let ids = enqueue(store, vec![job(), job(), job()]).await;
            let before = claim(store, "w", 2).await;
            scene.back_up();
            // Done after the backup was made: the first two under leases that it has, the third under one it has not.
            report(store, "w", before[0].lease).await.unwrap();
            let after = claim(store, "w", 1).await.remove(0);
            report(store, "w", after.lease).await.unwrap();
            scene.restore();
            scene.reconnect().await;

            assert_eq!((counts(store).await.active, counts(store).await.ready), (2, 1), "{kept:?}");
            // The worker was told that this succeeded. Should it say so once more, that is taken, once.
            let again = report(store, "w", before[0].lease).await.unwrap();
            assert_eq!((again.state, again.repeated), (State::Succeeded, false));
            assert!(report(store, "w", before[0].lease).await.unwrap().repeated);
            // The store knows nothing of this lease, so the job is to be done once more.
            assert_eq!(report(store, "w", after.lease).await, Err(Error::LeaseLost));
            let anew = claim(store, "v", 9).await;
            assert_eq!(anew.iter().map(|job| job.lease.job).collect::<Vec<_>>(), [ids[2]]);
            assert_eq!(report(store, "w", after.lease).await, Err(Error::LeaseLost), "{kept:?}");
            report(store, "v", anew[0].lease).await.unwrap();
            // And this one belongs to a worker that is long gone.
            scene.clock.advance_ms(LEASE_MS + 1);
            scene.sweep(SweepKind::Reap).await;
            assert_eq!(report(store, "w", before[1].lease).await, Err(Error::LeaseLost));
            let anew = claim(store, "v", 9).await;
            assert_eq!(anew.len(), 1);
            report(store, "v", anew[0].lease).await.unwrap();
            for id in ids {
                assert_eq!(get(store, id).await.unwrap().state, State::Succeeded, "{kept:?}");
                let ends = scene.history().await.into_iter().filter(|event| {
                    matches!(event, FeedEvent::Job(done) if done.job == id && done.to == Some(State::Succeeded))
                });
                assert_eq!(ends.count(), 1, "{kept:?}: one end in one history");
            }
        }
    });
}

#[test]
fn a_worker_goes_on_whatever_the_store_remembers_of_it() {
    block(async {
        for kept in BOTH {
            let scene = Scene::new(kept);
            let store = &scene.store;
            enqueue(store, (0..6).map(|_| job()).collect()).await;
            let numbered = |request_id| ClaimRequest { request_id, ..claim_request("w", 1) };
            let first = store.claim(numbered(1)).await.unwrap().jobs;
            let second = store.claim(numbered(2)).await.unwrap().jobs;
            scene.back_up();
            let third = store.claim(numbered(3)).await.unwrap().jobs;
            store.claim(numbered(4)).await.unwrap();
            scene.restore();
            scene.reconnect().await;
            assert_eq!((first.len(), second.len(), third.len()), (1, 1, 1));

            // Its last claim before the backup, repeated because the answer was lost: the same jobs.
            let again = store.claim(numbered(2)).await.unwrap().jobs;
            assert_eq!(again[0].lease, second[0].lease, "{kept:?}");
            // One that the store has forgotten, repeated: jobs, as if it came for the first time.
            let repeated = store.claim(numbered(4)).await.unwrap().jobs;
            assert_eq!(repeated.len(), 1);
            assert_ne!(repeated[0].lease, third[0].lease);
            // And on. Only a number that is older than what the store knows is refused, as it always is.
            assert_eq!(store.claim(numbered(5)).await.unwrap().jobs.len(), 1);
            assert!(matches!(store.claim(numbered(3)).await, Err(Error::Invalid { .. })));
            let claim = numbered(6);
            let outcomes = vec![
                Outcome { lease: third[0].lease, kind: complete() },
                Outcome { lease: second[0].lease, kind: complete() },
            ];
            let report = ReportRequest { worker: claim.worker.clone(), outcomes };
            let both = store.report_and_claim(report, claim).await.unwrap();
            assert_eq!(both.reported[0], Err(Error::LeaseLost));
            assert!(both.reported[1].is_ok());
            assert_eq!(both.claimed.jobs.len(), 1, "{kept:?}");
        }
    });
}

#[test]
fn a_tick_has_one_job_in_one_history() {
    block(async {
        for kept in BOTH {
            let scene = Scene::new(kept);
            let (store, clock) = (&scene.store, &scene.clock);
            let spec = job().spec;
            let schedule = Schedule::new("s".try_into().unwrap(), Rule::every_ms(60_000), spec);
            store.put_schedule(schedule.arm(None, clock.now()).unwrap()).await.unwrap();
            let ticks = async |count: u64| {
                for _ in 0..count {
                    clock.advance_ms(60_000);
                    tick(store as &dyn ScheduleStore, 10).await.unwrap();
                }
            };
            ticks(2).await;
            let due = store.due_schedules(1).await.unwrap();
            assert!(due.is_empty());
            scene.back_up();
            clock.advance_ms(60_000);
            let planned = windlass_core::schedule::plan(&store.due_schedules(1).await.unwrap()[0]).unwrap().unwrap();
            ticks(1).await;
            let fired = store.schedules().await.unwrap().remove(0).fired;
            scene.restore();
            scene.reconnect().await;

            // Several look at the same moment, one of them with a plan from before the restore.
            tick(store as &dyn ScheduleStore, 10).await.unwrap();
            store.fire(planned).await.unwrap();
            tick(store as &dyn ScheduleStore, 10).await.unwrap();
            let after = store.schedules().await.unwrap().remove(0);
            assert!(after.fired <= fired, "{kept:?}: {} after {fired}", after.fired);
            ticks(2).await;
            let jobs = store.list(ListRequest { limit: 100, ..ListRequest::default() }).await.unwrap().jobs;
            let mut seen = std::collections::BTreeSet::new();
            for job in &jobs {
                let spec = get(store, job.id).await.unwrap().spec.clone();
                assert!(seen.insert(spec.metadata.clone()), "{kept:?}: two jobs of one tick: {spec:?}");
            }
            assert!(jobs.len() >= 5, "{kept:?}: ticks went on, {} jobs", jobs.len());
        }
    });
}

#[test]
fn a_follower_that_is_ahead_is_told_to_begin_anew() {
    block(async {
        for kept in BOTH {
            let scene = Scene::new(kept);
            let store = &scene.store;
            enqueue(store, vec![job()]).await;
            scene.back_up();
            for _ in 0..3 {
                enqueue(store, vec![job()]).await;
            }
            let ahead = store.read_feed(FeedRequest { after: None, max: 1 }).await.unwrap().next;
            assert_eq!(ahead, FeedCursor(4));
            scene.restore();
            scene.reconnect().await;
            let refused = store.read_feed(FeedRequest { after: Some(ahead), max: 10 }).await.unwrap_err();
            assert!(matches!(&refused, Error::Invalid { .. }), "{refused}");
            assert!(refused.to_string().contains("restored"), "{kept:?}: it says what to do: {refused}");
            // What it is told to do: begin at the end, and look at everything once.
            let end = store.read_feed(FeedRequest { after: None, max: 1 }).await.unwrap().next;
            assert_eq!(end, FeedCursor(1));
            enqueue(store, vec![job()]).await;
            let page = store.read_feed(FeedRequest { after: Some(end), max: 10 }).await.unwrap();
            assert_eq!((page.entries.len(), page.gap), (1, false));
            store.close().await.unwrap();
        }
    });
}

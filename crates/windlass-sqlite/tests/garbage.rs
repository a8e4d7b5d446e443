//! Random values in random columns of random rows: nothing panics, and the jobs that are whole come to their end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use support::{
    LEASE_MS, block, claim, claim_request, complete, enqueue, job_with, open_at, raw, report, virtual_clock,
};
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, NewJob, State};
use windlass_core::name::{Labels, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::store::{
    Beat, Change, ChangeOp, Feed, FeedCursor, FeedRequest, GroupsRequest, JobQueue, Kinds, ListRequest, LogAppend,
    LogLine, LogRequest, LogSink, LogStream, MetricsRequest, Outcome, RenewRequest, Renewal, ReportRequest,
    ScheduleStore, Sweep, SweepKind, WorkerRegistry,
};
use windlass_core::time::{Clock, VirtualClock};
use windlass_sqlite::SqliteStore;
use windlass_sqlite::rusqlite::types::Value;

/// Damage to these concerns what is damaged and nobody else.
const OF_ONE: &[&str] = &[
    "windlass_job",
    "windlass_scheduled",
    "windlass_ready",
    "windlass_active",
    "windlass_ended",
    "windlass_payload",
    "windlass_extra",
    "windlass_log",
    "windlass_dedup",
    "windlass_memo",
    "windlass_minute",
    "windlass_feed",
    "windlass_worker",
    "windlass_schedule",
];

/// Damage to these may stop a queue with a clear error.
const OF_MANY: &[&str] = &["windlass_queue", "windlass_lane", "windlass_group", "windlass_sub", "windlass_meta"];

/// One value to write: the table, column and row are taken modulo how many there are.
#[derive(Clone, Debug)]
struct Damage {
    table: usize,
    column: usize,
    row: usize,
    value: Value,
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => any::<i64>().prop_map(Value::Integer),
        3 => (-2i64..8).prop_map(Value::Integer),
        1 => Just(Value::Null),
        1 => any::<f64>().prop_map(Value::Real),
        3 => ".{0,12}".prop_map(Value::Text),
        3 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Blob),
    ]
}

fn damage() -> impl Strategy<Value = Damage> {
    let places = (any::<usize>(), any::<usize>(), any::<usize>());
    (places, value()).prop_map(|((table, column, row), value)| Damage { table, column, row, value })
}

/// Writes the value, unless a constraint forbids it. Answers the `row`s of the jobs that it hit, and 0 for a dedup key.
fn apply(path: &Path, damage: &Damage, tables: &[&str]) -> Vec<i64> {
    let conn = raw(path);
    let table = tables[damage.table % tables.len()];
    let mut ask = conn.prepare(&format!("SELECT name FROM pragma_table_info('{table}')")).unwrap();
    let columns: Vec<String> = ask.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let key = columns.iter().find(|column| *column == "row").unwrap_or(&columns[0]);
    let mut ask = conn.prepare(&format!("SELECT {key} FROM {table} ORDER BY {key}")).unwrap();
    let keys: Vec<Value> = ask.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    if keys.is_empty() {
        return Vec::new();
    }
    let (column, row) = (&columns[damage.column % columns.len()], &keys[damage.row % keys.len()]);
    let sql = format!("UPDATE OR IGNORE {table} SET {column}=?1 WHERE {key}=?2");
    // A type or a constraint may forbid it, which is as good.
    let _ = conn.execute(&sql, [&damage.value, row]);
    match (row, &damage.value) {
        _ if table == "windlass_dedup" => vec![0],
        // A row that says to be another job's hits both.
        (Value::Integer(row), Value::Integer(other)) if key == "row" && column == key => vec![*row, *other],
        (Value::Integer(row), _) if key == "row" => vec![*row],
        _ => Vec::new(),
    }
}

/// Some of everything that can be stored.
async fn fill(store: &SqliteStore, clock: &VirtualClock) -> Vec<JobId> {
    let keyed = |mode| {
        job_with(|spec| {
            spec.dedup = Some(Dedup { by: DedupBy::Key("k".try_into().unwrap()), mode, ttl_ms: Some(1_000) });
            spec.metadata = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        })
    };
    let grouped = |group: &str| job_with(|spec| spec.group = Some(group.try_into().unwrap()));
    let plain = || job_with(|_| {});
    let large = job_with(|spec| spec.payload = Payload::new("text/plain", vec![b'x'; 2_000]));
    let jobs: Vec<NewJob> = vec![keyed(DedupMode::KeepLast), plain(), grouped("a"), grouped("b"), large];
    let mut ids = enqueue(store, jobs).await;
    let leased = claim(store, "v", 2).await;
    let line = LogLine { at: clock.now(), stream: LogStream::Log, text: "hello".into() };
    let append = LogAppend { lease: leased[0].lease, first: 0, lines: vec![line] };
    store.append_logs(vec![append]).await.unwrap().remove(0).unwrap();
    report(store, "v", leased[1].lease).await.unwrap();
    ids.extend(enqueue(store, vec![keyed(DedupMode::KeepLast), plain().due(Due::DelayMs(1_000)), plain()]).await);
    store.heartbeat(beat()).await.unwrap();
    ids
}

fn beat() -> Beat {
    Beat {
        worker: WorkerId::new("v").unwrap(),
        queues: vec!["q".try_into().unwrap()],
        kinds: Kinds::Any,
        labels: Labels::default(),
        slots: 4,
        running: 1,
        about: String::new(),
        ttl_ms: 10_000,
    }
}

/// A thread of the store that has panicked answers nothing any more.
fn lives<T>(outcome: Result<T, Error>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(error @ (Error::Unknown { .. } | Error::Unavailable { .. })) => panic!("{error}"),
        Err(_) => None,
    }
}

/// Asks everything and changes everything that anybody might.
async fn use_everything(store: &SqliteStore, clock: &VirtualClock, ids: &[JobId]) {
    lives(store.list(ListRequest { limit: 100, ..ListRequest::default() }).await);
    lives(store.get(ids.to_vec()).await);
    for id in ids {
        lives(store.explain(*id).await);
        lives(store.read_logs(LogRequest { job: *id, from: 0, limit: 10 }).await);
    }
    lives(store.queues().await);
    let queue = || "q".try_into().unwrap();
    lives(store.groups(GroupsRequest { queue: queue(), after: None, limit: 10 }).await);
    lives(store.metrics(MetricsRequest { queue: queue(), from: clock.now(), to: clock.now() }).await);
    lives(store.read_feed(FeedRequest { after: Some(FeedCursor(0)), max: 100 }).await);
    lives(store.workers().await);
    lives(store.heartbeat(beat()).await);
    lives(store.schedules().await);
    lives(store.due_schedules(10).await);
    for kind in SweepKind::ALL {
        lives(store.sweep(Sweep { kind, max: 100 }).await);
    }
}

/// Claims and completes until there is nothing left; answers whether every claim succeeded.
async fn work(store: &SqliteStore) -> bool {
    for _ in 0..50 {
        let Some(claimed) = lives(store.claim(claim_request("w", 3)).await) else {
            return false;
        };
        if claimed.jobs.is_empty() {
            return true;
        }
        for job in claimed.jobs {
            let renewal = Renewal { lease: job.lease, lease_ms: Some(LEASE_MS), progress: None };
            lives(store.renew(RenewRequest { renewals: vec![renewal] }).await);
            let outcomes = vec![Outcome { lease: job.lease, kind: complete() }];
            lives(store.report(ReportRequest { worker: WorkerId::new("w").unwrap(), outcomes }).await);
        }
    }
    panic!("there is no end to the claims");
}

async fn survive(damages: &[Damage], tables: &[&str]) -> (bool, Vec<(JobId, State)>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let clock: Arc<VirtualClock> = virtual_clock();
    let store = open_at(&path, &clock);
    let ids = fill(&store, &clock).await;
    let row_of = |id: &JobId| -> i64 {
        let sql = "SELECT row FROM windlass_job WHERE id=?1";
        raw(&path).query_row(sql, [id.to_string()], |row| row.get(0)).unwrap()
    };
    let rows: Vec<(JobId, i64)> = ids.iter().map(|id| (*id, row_of(id))).collect();
    let hit: Vec<i64> = damages.iter().flat_map(|damage| apply(&path, damage, tables)).collect();
    use_everything(&store, &clock, &ids).await;
    work(&store).await;
    clock.advance_ms(2 * LEASE_MS);
    use_everything(&store, &clock, &ids).await;
    // What a damaged job held may come free only when it is set aside: once more.
    let served = work(&store).await;
    use_everything(&store, &clock, &ids).await;
    // The job that waits behind another depends on it and on their key.
    let (holder, follower) = (rows[0].1, rows[5].1);
    let follower = if hit.contains(&0) || hit.contains(&holder) { follower } else { 0 };
    let mut whole = Vec::new();
    for (id, row) in rows {
        if hit.contains(&row) || row == follower {
            lives(store.change(vec![Change { id, op: ChangeOp::Remove }]).await);
        } else if let Some(Some(Some(job))) = lives(store.get(vec![id]).await).map(|mut jobs| jobs.pop()) {
            whole.push((id, job.state));
        }
    }
    lives(store.sweep(Sweep { kind: SweepKind::Reap, max: 100 }).await);
    (served, whole)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn slow_damage_to_one_job_is_nobody_elses(damages in prop::collection::vec(damage(), 1..4)) {
        let (served, whole) = block(survive(&damages, OF_ONE));
        prop_assert!(served, "claims go on");
        for (id, state) in whole {
            prop_assert_eq!(state, State::Succeeded, "{} is whole", id);
        }
    }

    #[test]
    fn slow_damage_to_a_queue_is_an_error_and_no_panic(damages in prop::collection::vec(damage(), 1..4)) {
        block(survive(&damages, OF_MANY));
    }
}

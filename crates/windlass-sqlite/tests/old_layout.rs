//! Files that an earlier version wrote: they are brought up to date, and their runs go on.

#![allow(clippy::unwrap_used, reason = "a test that cannot begin should stop")]

use rusqlite::{Connection, params};
use std::path::Path;
use windlass_core::id::RunId;
use windlass_core::name::Kind;
use windlass_core::payload::Payload;
use windlass_core::store::{
    NewRun, RunClaim, RunCommit, RunCreated, RunItem, RunMessage, RunRead, RunReuse, RunState, RunStep, RunStore,
};
use windlass_sqlite::SqliteStore;

const RUNS: [(&str, i64); 2] = [("running", 0), ("succeeded", 1)];

fn id(n: u128) -> RunId {
    RunId::from_parts(0, n)
}

fn kind() -> Kind {
    Kind::new("graph").unwrap()
}

/// A file of layout 2 with two runs: one that goes on, with an end of a job and a message in its inbox, and one that has ended.
fn write_layout_2(path: &Path) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(include_str!("../migrations/1.sql")).unwrap();
    conn.execute_batch(include_str!("../migrations/2.sql")).unwrap();
    conn.execute("UPDATE windlass_meta SET value=2 WHERE key='layout'", []).unwrap();
    let definition = b"{}";
    let mut fingerprints = Vec::new();
    for (seq, (name, state)) in (1_i64..).zip(RUNS) {
        let new = old_run(u128::try_from(seq).unwrap(), name);
        let hash = new.definition_hash();
        fingerprints.push(new.fingerprint());
        conn.execute(
            "INSERT OR IGNORE INTO windlass_definition(hash,definition) VALUES(?1,?2)",
            params![hash, definition.as_slice()],
        )
        .unwrap();
        let finished = (state > 0).then_some(1_700_000_000_000_i64);
        conn.execute(
            "INSERT INTO windlass_run(seq,id,kind,name,definition_hash,fingerprint,state,stuck,summary,history_len,\
             inbox_first,inbox_next,ready,created_at,changed_at,finished_at,keep_ms) \
             VALUES(?1,?2,'graph',?3,?4,?5,?6,NULL,'1 of 2',2,?10,3,?7,5,6,?8,?9)",
            params![
                seq,
                new.id.to_string(),
                name,
                hash,
                new.fingerprint().cast_signed(),
                state,
                finished.is_none().then_some(9),
                finished,
                1_000_000_000_000_i64,
                if finished.is_none() { 1 } else { 3 }
            ],
        )
        .unwrap();
        conn.execute("INSERT INTO windlass_run_input(run,input) VALUES(?1,?2)", params![seq, b"in".as_slice()])
            .unwrap();
        let entries = [&3_u32.to_le_bytes()[..], b"one", &3_u32.to_le_bytes()[..], b"two"].concat();
        conn.execute("INSERT INTO windlass_history(run,first,entries) VALUES(?1,0,?2)", params![seq, entries]).unwrap();
    }
    for (number, item) in [
        (0, r#"{"item":"message","at":"2027-01-15T08:00:03.000Z","body":"read before"}"#),
        (
            1,
            r#"{"item":"job_ended","job":"0-0000000000000000000000000a","state":"failed","attempt":2,"at":"2027-01-15T08:00:03.000Z","error":"x"}"#,
        ),
        (2, r#"{"item":"message","at":"2027-01-15T08:00:03.000Z","body":"hello"}"#),
    ] {
        conn.execute("INSERT INTO windlass_inbox(run,number,item) VALUES(1,?1,?2)", params![number, item]).unwrap();
    }
}

fn old_run(n: u128, name: &str) -> NewRun {
    NewRun {
        name: name.to_owned(),
        definition: "{}".into(),
        input: "in".into(),
        keep_ms: Some(1_000_000_000_000),
        ..NewRun::new(id(n), kind())
    }
}

#[tokio::test]
async fn the_runs_of_layout_2_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    write_layout_2(&path);
    let store = SqliteStore::open(&path).unwrap();
    let reads = vec![RunRead { published: true, result: true, history_max: 9, ..RunRead::brief(id(1)) }];
    let view = store.read_runs(reads).await.unwrap().remove(0).unwrap();
    assert_eq!((view.run.segment_from, view.run.stall_count, view.run.parent), (0, 0, None));
    assert_eq!((view.run.inbox_len, view.run.unread_messages, view.history.len()), (2, 1, 2));
    assert_eq!((view.published, view.result), (Some([].into()), None));
    // The same runs created again are recognised.
    let again = store.create_runs(vec![old_run(1, "running"), old_run(2, "succeeded")]).await.unwrap();
    assert_eq!(again, [Ok(RunCreated::Existing), Ok(RunCreated::Existing)]);
    let claim = RunClaim { history_bytes_max: 100, ..RunClaim::new("e".try_into().unwrap(), vec![kind()]) };
    let claimed = store.claim_runs(claim).await.unwrap().runs.remove(0);
    assert_eq!((claimed.lease.run, claimed.input, claimed.history.len()), (id(1), Some("in".into()), 2));
    let bodies: Vec<_> = claimed.inbox.iter().map(|found| (found.number, found.item.is_message())).collect();
    assert_eq!(bodies, [(1, false), (2, true)]);
    let RunItem::JobEnded(end) = &claimed.inbox[0].item else { panic!("{:?}", claimed.inbox) };
    assert_eq!((end.error.as_deref(), end.class), (Some("x"), None));
    let result = Some(Payload::new("text/plain", "done"));
    let ends = RunStep { state: RunState::Succeeded, result: result.clone(), ..RunStep::nothing() };
    let commit = RunCommit {
        inbox_to: 2,
        inbox_taken: vec![2],
        requires_read_messages: true,
        ..RunCommit::new(claimed.lease, claimed.history_len, ends)
    };
    store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap();
    let read = RunRead { result: true, ..RunRead::brief(id(1)) };
    assert_eq!(store.read_runs(vec![read]).await.unwrap().remove(0).unwrap().result, result);
    let restarts = NewRun { input: "2".into(), reuse: RunReuse::IfEnded, ..old_run(2, "succeeded") };
    assert_eq!(store.create_runs(vec![restarts]).await.unwrap(), [Ok(RunCreated::Restarted)]);
    let message = RunMessage { id: Some("1".to_owned()), ..RunMessage::new(id(2), "x") };
    let sent = store.send_to_runs(vec![message.clone(), message]).await.unwrap();
    assert_eq!(sent, [Ok(()), Ok(())]);
    let view = store.read_runs(vec![RunRead::brief(id(2))]).await.unwrap().remove(0).unwrap();
    assert_eq!((view.run.inbox_len, view.run.segment_from, view.run.history_len), (1, 2, 2));
}

//! What is stored of runs: records of the first layout go on, and damaged parts of a run are shown, passed and removed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use support::raw::Raw;
use support::{LEASE_MS, block, claim, complete, fresh_url, job_with, open_at, report_as, virtual_clock};
use windlass_core::Error;
use windlass_core::id::RunId;
use windlass_core::job::Due;
use windlass_core::name::{Kind, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::store::{
    ClaimedRun, JobQueue, NewRun, OutcomeKind, RunClaim, RunCommit, RunItem, RunList, RunMessage, RunRead, RunState,
    RunStep, RunStore, Sweep, SweepKind,
};
use windlass_core::time::VirtualClock;
use windlass_redis::RedisStore;
use windlass_servers::Redis;

static SERVER: LazyLock<Redis> = LazyLock::new(|| Redis::start().unwrap());

struct Opened {
    clock: Arc<VirtualClock>,
    store: RedisStore,
    raw: Raw,
}

fn opened() -> Opened {
    let (url, clock) = (fresh_url(&SERVER.url()), virtual_clock());
    Opened { store: open_at(&url, &clock), raw: Raw::open(&url), clock }
}

fn id(n: u128) -> RunId {
    RunId::from_parts(0, n)
}

fn graph() -> Kind {
    Kind::new("graph").unwrap()
}

fn entry() -> Vec<Bytes> {
    vec![Bytes::from_static(b"{}")]
}

impl Opened {
    async fn create(&self, run: NewRun) {
        let run = NewRun { keep_ms: Some(1_000), ..run };
        self.store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    }

    async fn claim(&self, engine: &str, history_bytes_max: u32) -> Vec<ClaimedRun> {
        let engine = WorkerId::new(engine).unwrap();
        let request =
            RunClaim { max: 10, lease_ms: LEASE_MS, history_bytes_max, ..RunClaim::new(engine, vec![graph()]) };
        self.store.claim_runs(request).await.unwrap().runs
    }

    async fn commit(&self, run: &ClaimedRun, step: RunStep) {
        let commit = RunCommit { inbox_to: run.inbox_to, ..RunCommit::new(run.lease, run.history_len, step) };
        self.store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap();
    }

    async fn send(&self, message: RunMessage) -> Result<(), Error> {
        self.store.send_to_runs(vec![message]).await.unwrap().remove(0)
    }

    async fn record(&self, run: RunId) -> String {
        String::from_utf8(self.raw.get("runs", &run.to_string()).await).unwrap()
    }

    /// Ends what is left of a run, lets it be pruned, and checks that nothing of any run is left.
    async fn assert_empty_after_pruning(&self) {
        self.clock.advance_ms(2_000);
        for _ in 0..4 {
            self.store.sweep(Sweep { kind: SweepKind::Prune, max: 100 }).await.unwrap();
        }
        for key in ["runs", "inbox", "run_ready", "run_wake", "history", "run_list", "run_removable", "trash"] {
            assert_eq!(self.raw.items(key).await, Vec::new(), "{key}");
        }
    }
}

/// A run with every part that few runs have.
fn rich(run: RunId) -> NewRun {
    NewRun {
        name: "rich".to_owned(),
        parent: Some(id(99)),
        labels: BTreeMap::from([("env".to_owned(), "test".to_owned())]),
        job_results: true,
        step: RunStep {
            history: entry(),
            wake: Some(Due::Now),
            published: Some(BTreeMap::from([("done".to_owned(), Payload::json(&1).unwrap())])),
            ..RunStep::nothing()
        },
        ..NewRun::new(run, graph())
    }
}

#[test]
fn a_run_without_the_parts_that_few_runs_have_is_written_as_in_layout_1() {
    block(async {
        let opened = opened();
        opened
            .create(NewRun { step: RunStep { history: entry(), ..RunStep::nothing() }, ..NewRun::new(id(1), graph()) })
            .await;
        let record = opened.record(id(1)).await;
        assert!(record.starts_with("1 ") && record.ends_with("\ngraph\n\n\n-\n"), "{record}");
        opened.create(rich(id(2))).await;
        let record = opened.record(id(2)).await;
        assert!(record.starts_with("2 ") && record.contains(" j\ngraph\n"), "{record}");
        assert!(record.ends_with(&format!("\n^{}\n#{{\"env\":\"test\"}}", id(99))), "{record}");
    });
}

/// The record and the inbox item are texts of layout 1: an engine that held the run has no other one behind it.
#[test]
fn a_record_of_layout_1_goes_on() {
    block(async {
        let opened = opened();
        opened
            .create(NewRun { step: RunStep { history: entry(), ..RunStep::nothing() }, ..NewRun::new(id(1), graph()) })
            .await;
        opened.send(RunMessage::new(id(1), "hello")).await.unwrap();
        let held = "1 000000000001 R 1 0 1 0123456789abcdef 1700000001000 - - - 1700000000000 1700000000000 - 1000 \
                    6e46dd10defc9b56c29a6ec56b508c21 0123456789abcdef\ngraph\nold engine\na\\nb\n-\n1 of 2";
        opened.raw.set("runs", id(1).to_string(), held).await;
        let run = opened.store.read_runs(vec![RunRead::brief(id(1))]).await.unwrap().remove(0).unwrap().run;
        assert_eq!((run.engine.unwrap().as_str(), run.name.as_str(), run.damaged), ("old engine", "a\nb", None));
        assert_eq!((run.unread_messages, run.inbox_len, run.segment_from), (0, 1, 0));
        let request = RunClaim { run: Some(id(1)), ..RunClaim::new(WorkerId::new("e").unwrap(), vec![graph()]) };
        assert!(opened.store.claim_runs(request.clone()).await.unwrap().runs.is_empty());
        opened.clock.advance_ms(2_000);
        let run = opened.store.claim_runs(request).await.unwrap().runs.remove(0);
        assert_eq!((run.inbox.len(), run.stall_count), (1, 1));
        opened.commit(&run, RunStep { state: RunState::Succeeded, ..RunStep::nothing() }).await;
        assert!(opened.record(id(1)).await.contains(" S 1 1 1 "));
    });
}

#[test]
fn a_run_with_damaged_parts_is_set_aside_shown_and_removable() {
    block(async {
        let spoils: [fn(&str) -> String; 8] = [
            |text| text.replacen(" j ", " y ", 1),
            |text| text.replacen(" j ", " u ", 1),
            |text| text.replacen(" j ", " ux ", 1),
            // A segment that begins behind the end of the history.
            |text| text.replacen(" j ", " s2 ", 1),
            |text| text.replace("\n^", "\n^x"),
            |text| text.replace("\n^", "\n?"),
            |text| text.replacen('2', "1", 1),
            |text| format!("{text}\nmore"),
        ];
        for (n, spoil) in spoils.into_iter().enumerate() {
            let opened = opened();
            opened.create(rich(id(1))).await;
            opened.create(rich(id(2))).await;
            opened.send(RunMessage { id: Some("a".to_owned()), ..RunMessage::new(id(1), "hello") }).await.unwrap();
            let text = opened.record(id(1)).await;
            let spoiled = spoil(&text);
            assert_ne!(text, spoiled, "{n}");
            opened.raw.set("runs", id(1).to_string(), spoiled).await;
            let claimed = opened.claim("e", 0).await;
            assert_eq!(claimed.iter().map(|run| run.lease.run).collect::<Vec<_>>(), [id(2)], "{n}");
            let runs = opened.store.list_runs(RunList::new(10)).await.unwrap().runs;
            assert_eq!(runs.iter().filter(|run| run.damaged.is_some()).count(), 1, "{n}");
            let filtered = RunList { kind: Some("graph".to_owned()), ..RunList::new(10) };
            assert_eq!(opened.store.list_runs(filtered).await.unwrap().runs.len(), 1, "{n}");
            let refused = opened.send(RunMessage { terminates: true, ..RunMessage::new(id(1), "end") }).await;
            assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
            opened.store.remove_runs(vec![id(1)]).await.unwrap().remove(0).unwrap();
            opened.commit(&claimed[0], RunStep { state: RunState::Succeeded, ..RunStep::nothing() }).await;
            opened.assert_empty_after_pruning().await;
        }
    });
}

#[test]
fn a_parent_that_is_damaged_or_gone_does_not_keep_its_children_from_ending() {
    block(async {
        for gone in [false, true] {
            let opened = opened();
            opened.create(NewRun::new(id(99), graph())).await;
            opened.create(rich(id(1))).await;
            if gone {
                opened.raw.delete("runs", id(99).to_string()).await;
            } else {
                opened.raw.set("runs", id(99).to_string(), "nonsense").await;
            }
            let run = opened.claim("e", 0).await.remove(0);
            opened
                .commit(&run, RunStep { state: RunState::Failed, error: Some("no".to_owned()), ..RunStep::nothing() })
                .await;
            let view = opened.store.read_runs(vec![RunRead::brief(id(1))]).await.unwrap().remove(0).unwrap();
            assert_eq!((view.run.state, view.run.error.as_deref()), (RunState::Failed, Some("no")));
        }
    });
}

#[test]
fn damaged_values_of_a_run_are_left_out() {
    block(async {
        let opened = opened();
        opened.create(rich(id(1))).await;
        let run = opened.claim("e", 0).await.remove(0);
        let result = Some(Payload::json(&7).unwrap());
        opened.commit(&run, RunStep { state: RunState::Succeeded, result: result.clone(), ..RunStep::nothing() }).await;
        let read = RunRead { published: true, result: true, ..RunRead::brief(id(1)) };
        let view = opened.store.read_runs(vec![read]).await.unwrap().remove(0).unwrap();
        assert_eq!((view.result, view.published.unwrap().len()), (result, 1));
        let record = opened.record(id(1)).await;
        opened.raw.set("runs", id(1).to_string(), record.replace("\n#{", "\n#[")).await;
        for part in [":p", ":r"] {
            opened.raw.set("runs", format!("{}{part}", id(1)), "nonsense").await;
        }
        let view = opened.store.read_runs(vec![read]).await.unwrap().remove(0).unwrap();
        assert_eq!((view.result, view.published.unwrap().len()), (None, 0));
        assert_eq!((view.run.damaged, view.run.labels.len()), (None, 0));
        opened.assert_empty_after_pruning().await;
    });
}

#[test]
fn items_that_cannot_be_read_are_passed_and_unread_messages_that_are_lost_hold_nothing_up() {
    block(async {
        let opened = opened();
        let job = job_with(|spec| spec.run = Some(id(1)));
        let step = RunStep { jobs: vec![job], ..rich(id(1)).step };
        opened.create(NewRun { step, ..rich(id(1)) }).await;
        for body in ["one", "two", "three"] {
            opened.send(RunMessage { id: Some(body.to_owned()), ..RunMessage::new(id(1), body) }).await.unwrap();
        }
        let lease = claim(&opened.store, "w", 1).await.remove(0).lease;
        let OutcomeKind::Complete { outputs, .. } = complete() else { panic!() };
        let result = Some(Payload { content_type: "x/y".into(), bytes: Bytes::from_static(b"\xff\n\0") });
        report_as(&opened.store, "w", lease, OutcomeKind::Complete { result: result.clone(), outputs }).await.unwrap();
        let items = opened.raw.items("inbox").await;
        let field = |end: &[u8]| items.iter().find(|(_, item)| item.ends_with(end)).unwrap().0.clone();
        opened.raw.delete("inbox", field(b"\ntwo")).await;
        opened.raw.set("inbox", field(b"\nthree"), "nonsense").await;
        let run = opened.claim("e", 0).await.remove(0);
        assert_eq!(run.inbox.iter().map(|item| item.number).collect::<Vec<_>>(), [0, 3]);
        let RunItem::JobEnded(end) = &run.inbox[1].item else { panic!("{run:?}") };
        assert_eq!((&end.result, run.inbox_to, run.inbox_taken), (&result, 4, 4));
        // Two of the three messages are lost; a commit that wants none to be left takes the one that is there.
        let commit = RunCommit {
            inbox_taken: vec![0],
            requires_read_messages: true,
            ..RunCommit::new(run.lease, run.history_len, RunStep { history: entry(), ..RunStep::nothing() })
        };
        opened.store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap();
        let run = opened.claim("e", 0).await.remove(0);
        opened.commit(&run, RunStep { state: RunState::Succeeded, ..RunStep::nothing() }).await;
        opened.assert_empty_after_pruning().await;
    });
}

/// The history of a segment comes with a claim only if all of it is there.
#[test]
fn a_segment_with_a_lost_entry_does_not_come_with_a_claim() {
    block(async {
        let opened = opened();
        opened.create(rich(id(1))).await;
        let run = opened.claim("e", 1_000).await.remove(0);
        assert_eq!((run.input, run.history.len()), (Some(Bytes::new()), 1));
        opened.clock.advance_ms(2 * LEASE_MS);
        let entries = opened.raw.items("history").await;
        opened.raw.delete("history", entries[0].0.clone()).await;
        let run = opened.claim("f", 1_000).await.remove(0);
        assert_eq!((run.input, run.history.len(), run.stall_count), (None, 0, 1));
    });
}

/// A container that holds the ids of the last messages does not grow, and goes with the run.
#[test]
fn message_ids_are_forgotten_in_their_order() {
    block(async {
        let opened = opened();
        opened.create(NewRun::new(id(1), graph())).await;
        let message = |n: u32| RunMessage { id: Some(format!("id {n}")), ..RunMessage::new(id(1), "x") };
        let all: Vec<RunMessage> = (0..1_005).map(message).collect();
        assert!(opened.store.send_to_runs(all).await.unwrap().iter().all(Result::is_ok));
        assert_eq!(opened.raw.items("inbox").await.len(), 1_005 + 2_000);
        let run = opened.claim("e", 0).await.remove(0);
        for (n, len) in [(1_004, 1_005), (5, 1_005), (4, 1_006), (5, 1_007)] {
            opened.send(message(n)).await.unwrap();
            let read = opened.store.read_runs(vec![RunRead::brief(id(1))]).await.unwrap().remove(0).unwrap();
            assert_eq!(read.run.inbox_len, len, "id {n}");
        }
        opened.commit(&run, RunStep { state: RunState::Succeeded, ..RunStep::nothing() }).await;
        opened.assert_empty_after_pruning().await;
    });
}

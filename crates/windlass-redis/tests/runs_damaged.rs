//! Damaged runs: the one that is hit is set aside by claims, shown as damaged and removable, and every other one goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use std::sync::{Arc, LazyLock};
use support::raw::Raw;
use support::{LEASE_MS, block, claim, fresh_url, job_with, open_at, report, virtual_clock};
use windlass_core::Error;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{Due, NewJob};
use windlass_core::name::{Kind, WorkerId};
use windlass_core::store::{
    ClaimedRun, InboxItem, JobQueue, ListOrder, NewRun, RunClaim, RunCommit, RunItem, RunList, RunMessage, RunRead,
    RunRenewal, RunState, RunStep, RunStore, Sweep, SweepKind,
};
use windlass_core::time::VirtualClock;
use windlass_redis::RedisStore;
use windlass_servers::Redis;

static SERVER: LazyLock<Redis> = LazyLock::new(|| Redis::start().unwrap());

/// Three runs with a job each, whose jobs have ended: all have something to do.
struct Scene {
    clock: Arc<VirtualClock>,
    store: RedisStore,
    raw: Raw,
    runs: Vec<RunId>,
    jobs: Vec<JobId>,
}

fn job_of(run: RunId) -> NewJob {
    job_with(|spec| spec.run = Some(run))
}

fn step() -> RunStep {
    RunStep { history: vec![Bytes::from_static(b"{}")], ..RunStep::nothing() }
}

impl Scene {
    async fn new() -> Self {
        let (url, clock) = (fresh_url(&SERVER.url()), virtual_clock());
        let store = open_at(&url, &clock);
        let (mut runs, mut jobs) = (Vec::new(), Vec::new());
        for n in 1..=3 {
            let id = RunId::from_parts(0, n);
            let job = job_of(id);
            jobs.push(job.id);
            runs.push(NewRun {
                name: format!("run {n}"),
                definition: Bytes::from_static(b"{}"),
                keep_ms: Some(1_000),
                step: RunStep { jobs: vec![job], ..step() },
                ..NewRun::new(id, Kind::new("graph").unwrap())
            });
        }
        let ids = runs.iter().map(|run| run.id).collect();
        assert!(store.create_runs(runs).await.unwrap().iter().all(Result::is_ok));
        Self { raw: Raw::open(&url), clock, store, runs: ids, jobs }
    }

    async fn end_jobs(&self) {
        for job in claim(&self.store, "w", 9).await {
            report(&self.store, "w", job.lease).await.unwrap();
        }
    }

    async fn claim(&self) -> Vec<ClaimedRun> {
        let request = RunClaim {
            max: 10,
            lease_ms: LEASE_MS,
            ..RunClaim::new(WorkerId::new("engine").unwrap(), vec![Kind::new("graph").unwrap()])
        };
        self.store.claim_runs(request).await.unwrap().runs
    }

    /// Claims, ends what has heard of its job, and lets time pass, until there is nothing to do; the runs that came to an end.
    async fn work(&self) -> Vec<RunId> {
        let mut done = Vec::new();
        for _ in 0..6 {
            for run in self.claim().await {
                let heard = run.inbox.iter().any(|item| matches!(item.item, RunItem::JobEnded(_)));
                let state = if heard { RunState::Succeeded } else { RunState::Running };
                let &ClaimedRun { lease, history_len, inbox_to, .. } = &run;
                let step = RunStep { state, ..step() };
                let commit = RunCommit { inbox_to, ..RunCommit::new(lease, history_len, step) };
                let committed = self.store.commit_runs(vec![commit]).await.unwrap().remove(0);
                if heard && committed.is_ok() {
                    done.push(lease.run);
                }
            }
            self.clock.advance_ms(2 * LEASE_MS);
        }
        done.sort();
        done
    }

    async fn damaged(&self) -> Vec<RunId> {
        let list = RunList::new(100);
        let runs = self.store.list_runs(list).await.unwrap().runs;
        runs.into_iter().filter(|run| run.damaged.is_some()).map(|run| run.id).collect()
    }
}

#[test]
fn a_damaged_run_is_set_aside_shown_and_removable_and_the_others_go_on() {
    block(async {
        let spoils: [fn(&str) -> String; 6] = [
            |_| "nonsense".to_owned(),
            |_| String::new(),
            |text| text.replacen('1', "3", 1),
            |text| text.split_at(40).0.to_owned(),
            |text| text.replace(" R ", " X "),
            // Its place among all is lost, too.
            |text| format!("1 zz{text}"),
        ];
        for (n, spoil) in spoils.into_iter().enumerate() {
            let scene = Scene::new().await;
            let victim = scene.runs[1];
            let text = String::from_utf8(scene.raw.get("runs", &victim.to_string()).await).unwrap();
            if n % 2 == 0 {
                scene.end_jobs().await;
            }
            scene.raw.set("runs", victim.to_string(), spoil(&text)).await;
            scene.end_jobs().await;
            assert_eq!(scene.work().await, [scene.runs[0], scene.runs[2]], "{n}");
            assert_eq!(scene.damaged().await, [victim], "{n}");
            let read = scene.store.read_runs(vec![RunRead::brief(victim)]).await.unwrap().remove(0).unwrap();
            assert!(read.run.damaged.is_some());
            let message = RunMessage { interrupts: true, reopens: true, ..RunMessage::new(victim, "hello") };
            let refused = scene.store.send_to_runs(vec![message]).await.unwrap().remove(0);
            assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
            assert_eq!(scene.raw.members("run_ready", &victim.to_string()).await, Vec::<Vec<u8>>::new());
            scene.store.remove_runs(vec![victim]).await.unwrap().remove(0).unwrap();
            assert_eq!(scene.damaged().await, Vec::<RunId>::new(), "{n}");
            assert_eq!(scene.store.read_runs(vec![RunRead::brief(victim)]).await.unwrap(), [None]);
            scene.assert_empty_after_pruning().await;
        }
    });
}

impl Scene {
    /// Ended runs go in time, and nothing of any run is left in any key.
    async fn assert_empty_after_pruning(&self) {
        self.clock.advance_ms(2_000);
        for _ in 0..3 {
            self.store.sweep(Sweep { kind: SweepKind::Prune, max: 100 }).await.unwrap();
        }
        for key in ["runs", "inbox", "run_ready", "run_wake", "history", "run_list", "run_removable", "trash"] {
            assert_eq!(self.raw.items(key).await, Vec::new(), "{key}");
        }
    }
}

/// A run of a damaged record hears nothing; the end of its job is no fault of the job.
#[test]
fn a_job_of_a_damaged_run_ends_as_any_other() {
    block(async {
        let scene = Scene::new().await;
        scene.raw.set("runs", scene.runs[0].to_string(), "nonsense").await;
        scene.raw.delete("runs", scene.runs[1].to_string()).await;
        scene.end_jobs().await;
        let jobs = scene.store.get(scene.jobs.clone()).await.unwrap();
        assert!(jobs.iter().all(|job| job.as_ref().unwrap().state == windlass_core::job::State::Succeeded));
        assert_eq!(scene.work().await, [scene.runs[2]]);
    });
}

/// The other way round: a job that cannot be read is told to its run as failed.
#[test]
fn a_damaged_job_is_told_to_its_run() {
    block(async {
        for (key, leased) in [("jobs", false), ("jobs", true), ("life", true)] {
            let scene = Scene::new().await;
            let victim = scene.jobs[1].to_string();
            let mut leases = Vec::new();
            if leased {
                leases = claim(&scene.store, "w", 9).await;
            }
            if key == "jobs" && !leased {
                // Whole is only what says whose it is.
                let record = String::from_utf8(scene.raw.get(key, &victim).await).unwrap();
                let (head, _) = record.split_once('\n').unwrap();
                scene.raw.set(key, &victim, format!("{head}\nno")).await;
            } else {
                scene.raw.set(key, &victim, "nonsense").await;
            }
            for job in leases {
                let _ = report(&scene.store, "w", job.lease).await;
            }
            for _ in 0..2 {
                scene.clock.advance_ms(2 * LEASE_MS);
                scene.store.sweep(Sweep { kind: SweepKind::Reap, max: 100 }).await.unwrap();
                scene.end_jobs().await;
            }
            assert_eq!(scene.work().await, scene.runs, "{key} {leased}");
        }
    });
}

/// A message that is damaged is left out, and does not come again.
#[test]
fn a_damaged_item_is_left_out() {
    block(async {
        let scene = Scene::new().await;
        for body in ["one", "two", "three"] {
            let message = RunMessage::new(scene.runs[0], body);
            scene.store.send_to_runs(vec![message]).await.unwrap().remove(0).unwrap();
        }
        let items = scene.raw.items("inbox").await;
        let field = |end: &[u8]| items.iter().find(|(_, item)| item.ends_with(end)).unwrap().0.clone();
        scene.raw.set("inbox", field(b"two"), "nonsense").await;
        scene.raw.delete("inbox", field(b"one")).await;
        let run = scene.claim().await.remove(0);
        assert_eq!((run.inbox.len(), run.inbox_to, run.inbox_taken), (1, 3, 3));
    });
}

/// A renewal passes damaged items as a claim does.
#[test]
fn a_renewal_passes_damaged_items_and_is_refused_for_a_damaged_run() {
    block(async {
        let scene = Scene::new().await;
        let run = scene.runs[0];
        scene.end_jobs().await;
        let claimed = scene.claim().await.into_iter().find(|claimed| claimed.lease.run == run).unwrap();
        for body in ["one", "two", "three"] {
            let message = RunMessage::new(run, body);
            scene.store.send_to_runs(vec![message]).await.unwrap().remove(0).unwrap();
        }
        let items = scene.raw.items("inbox").await;
        let field = |end: &[u8]| items.iter().find(|(_, item)| item.ends_with(end)).unwrap().0.clone();
        scene.raw.set("inbox", field(b"two"), "nonsense").await;
        scene.raw.delete("inbox", field(b"three")).await;
        let renewal = RunRenewal { lease: claimed.lease, lease_ms: LEASE_MS, inbox_from: claimed.inbox_to };
        let renewed = scene.store.renew_runs(vec![renewal]).await.unwrap().remove(0).unwrap();
        assert!(
            matches!(&renewed.inbox[..], [InboxItem { item: RunItem::Message { body, .. }, .. }] if body == "one"),
            "{renewed:?}"
        );
        assert_eq!((renewed.inbox_to, renewed.inbox_taken), (claimed.inbox_to + 3, 3));
        scene.raw.set("runs", run.to_string(), "nonsense").await;
        let refused = scene.store.renew_runs(vec![renewal]).await.unwrap().remove(0);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    });
}

#[test]
fn a_damaged_item_of_a_long_inbox_hides_no_other() {
    block(async {
        let scene = Scene::new().await;
        let run = scene.runs[0];
        let message = |n: u32| RunMessage::new(run, format!("{n};"));
        let sent = scene.store.send_to_runs((0..1_500).map(message).collect()).await.unwrap();
        assert!(sent.iter().all(Result::is_ok));
        let items = scene.raw.items("inbox").await;
        let damaged =
            items.iter().find(|(_, item)| item.ends_with(b" 3;") || item.ends_with(b"\n3;")).unwrap().0.clone();
        scene.raw.set("inbox", damaged, "nonsense").await;
        let (mut messages, mut items) = (0, 0);
        // The first claim reads 1,000 items, the second one the others.
        for _ in 0..2 {
            let claimed = scene.claim().await.into_iter().find(|claimed| claimed.lease.run == run).unwrap();
            items += claimed.inbox_taken;
            messages += claimed.inbox.iter().filter(|item| item.item.is_message()).count();
            let &ClaimedRun { lease, history_len, inbox_to, .. } = &claimed;
            let commit = RunCommit { inbox_to, ..RunCommit::new(lease, history_len, RunStep::nothing()) };
            scene.store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap();
        }
        assert_eq!((messages, items), (1_499, 1_500));
    });
}

#[test]
fn a_long_history_goes_bit_by_bit() {
    block(async {
        let scene = Scene::new().await;
        scene.end_jobs().await;
        let run = scene.claim().await.remove(0);
        let mut history_len = run.history_len;
        for lease_ms in [Some(LEASE_MS), Some(LEASE_MS), None] {
            let state = if lease_ms.is_none() { RunState::Failed } else { RunState::Running };
            let step = RunStep { history: vec![Bytes::from_static(b"x"); 9_999], state, ..RunStep::nothing() };
            let commit = RunCommit { lease_ms, ..RunCommit::new(run.lease, history_len, step) };
            history_len = scene.store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap().history_len;
        }
        scene.store.remove_runs(vec![run.lease.run]).await.unwrap().remove(0).unwrap();
        let mut left = Vec::new();
        for _ in 0..9 {
            left.push(scene.raw.items("history").await.len());
            scene.store.sweep(Sweep { kind: SweepKind::Prune, max: 1 }).await.unwrap();
        }
        let expected: Vec<usize> = (0..9).map(|step| 2 + 29_998_usize.saturating_sub(4_000 * step)).collect();
        assert_eq!(left, expected, "4,000 at a time, and those of the two others stay");
    });
}

#[derive(Clone, Debug)]
enum How {
    Truncate(usize),
    Garbage(Vec<u8>),
    Flip(usize),
    Word(usize, &'static str),
    Delete,
}

fn spoil(text: &[u8], how: &How) -> Option<Vec<u8>> {
    let mut text = text.to_vec();
    match how {
        How::Truncate(to) => text.truncate(to % text.len().max(1)),
        How::Garbage(bytes) => text.clone_from(bytes),
        How::Flip(at) => {
            let bits = 8 * text.len().max(1);
            if let Some(byte) = text.get_mut(at % bits / 8) {
                *byte ^= 1 << (at % 8);
            }
        }
        How::Word(at, word) => {
            let mut words: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
            let count = words.len();
            words[at % count] = word.as_bytes();
            text = words.join(&b' ');
        }
        How::Delete => return None,
    }
    Some(text)
}

fn how() -> impl Strategy<Value = How> {
    let words = prop::sample::select(vec!["-", "0", "99999999999999999999999", "-7", "zz", "a", "", "S"]);
    prop_oneof![
        any::<usize>().prop_map(How::Truncate),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(How::Garbage),
        any::<usize>().prop_map(How::Flip),
        (any::<usize>(), words).prop_map(|(at, word)| How::Word(at, word)),
        Just(How::Delete),
    ]
}

/// Damages what is the second run's in one key: its record, its members, or what it is called there.
async fn damage(scene: &Scene, key: &str, whole: bool, how: &How) {
    let victim = scene.runs[1].to_string();
    let record = String::from_utf8(scene.raw.get("runs", &victim).await).unwrap();
    let seq = record.split(' ').nth(1).unwrap().to_owned();
    match key {
        "runs" if whole => {
            scene.raw.delete(key, &victim).await;
            if let Some(name) = spoil(victim.as_bytes(), how) {
                scene.raw.set(key, name, record).await;
            }
        }
        "runs" => match spoil(record.as_bytes(), how) {
            Some(text) => scene.raw.set(key, &victim, text).await,
            None => scene.raw.delete(key, &victim).await,
        },
        "inbox" | "history" => {
            for (field, value) in scene.raw.items(key).await {
                if !field.starts_with(seq.as_bytes()) {
                    continue;
                }
                let spoiled = spoil(if whole { &field } else { &value }, how);
                match (spoiled, whole) {
                    (Some(value), false) => scene.raw.set(key, &field, value).await,
                    (spoiled, _) => {
                        scene.raw.delete(key, &field).await;
                        if let Some(field) = spoiled {
                            scene.raw.set(key, field, value).await;
                        }
                    }
                }
            }
        }
        _ => {
            for member in scene.raw.members(key, &victim).await {
                scene.raw.remove(key, &member).await;
                if let Some(member) = spoil(&member, how) {
                    scene.raw.add(key, "0", member).await;
                }
            }
        }
    }
}

async fn one_round(key: &str, early: bool, whole: bool, how: &How) -> Result<(), TestCaseError> {
    let scene = Scene::new().await;
    if !early {
        scene.end_jobs().await;
    }
    damage(&scene, key, whole, how).await;
    scene.end_jobs().await;
    let done = scene.work().await;
    let others = [scene.runs[0], scene.runs[2]];
    prop_assert!(others.iter().all(|run| done.contains(run)), "{done:?}");
    let list = RunList { order: ListOrder::Descending, ..RunList::new(100) };
    let listed = scene.store.list_runs(list).await.unwrap().runs.len();
    prop_assert!(listed >= 2);
    for run in &scene.runs {
        let _ = scene.store.remove_runs(vec![*run]).await.unwrap();
        let read = RunRead { definition: true, input: true, history_max: 10, ..RunRead::brief(*run) };
        scene.store.read_runs(vec![read]).await.unwrap();
    }
    scene.clock.advance_ms(2_000);
    for kind in SweepKind::ALL {
        scene.store.sweep(Sweep { kind, max: 100 }).await.unwrap();
    }
    Ok(())
}

#[test]
fn random_damage_to_one_run_is_in_nobody_elses_way() {
    let cases = std::env::var("WINDLASS_DAMAGE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let config = Config { cases, rng_seed: RngSeed::Fixed(20_260_201), failure_persistence: None, ..Config::default() };
    let keys = vec!["runs", "inbox", "run_ready", "run_wake", "history", "run_list", "run_removable"];
    let what = (prop::sample::select(keys), any::<bool>(), any::<bool>(), how());
    let outcome = TestRunner::new(config).run(&what, |(key, early, whole, how)| {
        let mut outcome = Ok(());
        block(async { outcome = one_round(key, early, whole, &how).await });
        outcome
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// A run that wants to be woken and is in no index any more is found by whoever asks for it.
#[test]
fn a_lost_wake_up_can_be_made_good_by_a_message() {
    block(async {
        let scene = Scene::new().await;
        scene.end_jobs().await;
        let run = scene.claim().await.remove(0);
        let step = RunStep { wake: Some(Due::DelayMs(10)), ..step() };
        let &ClaimedRun { lease, history_len, inbox_to, .. } = &run;
        let commit = RunCommit { inbox_to, ..RunCommit::new(lease, history_len, step) };
        scene.store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap();
        scene.raw.remove("run_wake", lease.run.to_string()).await;
        scene.clock.advance_ms(20);
        assert!(scene.claim().await.iter().all(|run| run.lease.run != lease.run));
        let message = RunMessage::new(lease.run, String::new());
        scene.store.send_to_runs(vec![message]).await.unwrap().remove(0).unwrap();
        let claimed = scene.claim().await;
        assert!(claimed.iter().any(|run| run.lease.run == lease.run && run.woken));
    });
}

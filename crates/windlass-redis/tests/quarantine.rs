//! Damaged data, one kind after the other: the job that is hit is shown, explained and removable, everything else goes on,
//! and what is counted stays true.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::{Arc, LazyLock};
use support::raw::Raw;
use support::{
    LEASE_MS, block, claim, counts, enqueue, enqueue_one, fresh_url, get, job, job_with, open_at, report, virtual_clock,
};
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{Due, Lease, State};
use windlass_core::schedule::{Rule, Schedule, tick};
use windlass_core::store::{
    Change, ChangeMany, ChangeManyOp, ChangeOp, Filter, JobQueue, ListRequest, Reason, ScheduleStore, Sweep, SweepKind,
    WorkerRegistry,
};
use windlass_core::time::{Clock, VirtualClock};
use windlass_redis::RedisStore;
use windlass_servers::Redis;

static SERVER: LazyLock<Redis> = LazyLock::new(|| Redis::start().unwrap());

/// A store with one victim between two others, all in the same state.
struct Scene {
    url: String,
    clock: Arc<VirtualClock>,
    store: RedisStore,
    raw: Raw,
    ids: Vec<JobId>,
    leases: Vec<Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Scheduled,
    Ready,
    /// Ready for the second time: its life is written down.
    Back,
    Active,
    Ended,
}

use Stage::{Active, Back, Ended, Ready, Scheduled};

impl Scene {
    async fn new(stage: Stage) -> Self {
        let (url, clock) = (fresh_url(&SERVER.url()), virtual_clock());
        let store = open_at(&url, &clock);
        let due = if stage == Scheduled { Due::DelayMs(1_000) } else { Due::Now };
        let ids = enqueue(&store, (0..3).map(|_| job().due(due)).collect()).await;
        let mut leases = Vec::new();
        if let Back | Active | Ended = stage {
            leases = claim(&store, "v", 3).await.into_iter().map(|job| job.lease).collect();
        }
        for lease in &leases {
            match stage {
                Ended => drop(report(&store, "v", *lease).await.unwrap()),
                Back => {
                    let kind = windlass_core::store::OutcomeKind::Release { started: false };
                    support::report_as(&store, "v", *lease, kind).await.unwrap();
                }
                _ => {}
            }
        }
        let raw = Raw::open(&url);
        Self { url, clock, store, raw, ids, leases }
    }

    fn victim(&self) -> String {
        self.ids[1].to_string()
    }

    async fn damage_text(&self, key: &str, change: impl Fn(&str) -> String) {
        let text = String::from_utf8(self.raw.get(key, &self.victim()).await).unwrap();
        assert_ne!(text, "", "there is nothing in {key}");
        let spoilt = change(&text);
        assert_ne!(text, spoilt);
        self.raw.set(key, self.victim(), spoilt).await;
    }

    /// Another process, which has seen nothing of it before.
    fn anew(&self) -> RedisStore {
        open_at(&self.url, &self.clock)
    }

    /// Lets time pass, sweeps, and works until nothing is left; answers what was done.
    async fn work(&self, store: &RedisStore) -> Vec<JobId> {
        let mut done = Vec::new();
        for lease in &self.leases {
            if report(store, "v", *lease).await.is_ok_and(|reported| !reported.repeated) {
                done.push(lease.job);
            }
        }
        for _ in 0..2 {
            self.clock.advance_ms(2 * LEASE_MS);
            for kind in SweepKind::ALL {
                store.sweep(Sweep { kind, max: 100 }).await.unwrap();
            }
            for _ in 0..10 {
                for job in claim(store, "w", 1).await {
                    report(store, "w", job.lease).await.unwrap();
                    done.push(job.lease.job);
                }
            }
        }
        done
    }

    /// The counters are those of the indexes, and nothing waits or runs any more.
    async fn assert_counted(&self, store: &RedisStore) {
        let counted = counts(store).await;
        let ended = counted.succeeded + counted.failed + counted.cancelled;
        assert_eq!([counted.scheduled, counted.ready, counted.active, ended], self.raw.recount().await);
    }
}

/// What is done to the victim's record or life.
type Spoil = fn(&str) -> String;

fn word(text: &str, at: usize, with: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    if let [.., "*", created, worker] = words[..]
        && at > 10
    {
        // The short form of a life says nothing of this: here is the long one.
        words.truncate(10);
        words.extend(["3", "0", "1", "0", "0", "8000400000000001", created, "-", created, "-", "-", "-", "-", worker]);
    }
    words[at] = with;
    words.join(" ")
}

const RECORDS: &[(&str, Spoil)] = &[
    ("it is empty", |_| String::new()),
    ("it is cut in its head", |text| text[..7].to_owned()),
    ("it is of another version", |text| text.replacen("1 ", "2 ", 1)),
    ("it is noise", |_| "\u{1}\u{fffd}noise\n\n\n".to_owned()),
    ("its queue is not there", |text| word(text, 1, "77")),
    ("its lane is not there", |text| word(text, 2, "77")),
    ("its time is none", |text| word(text, 4, "ffffffffffffffff")),
    ("its rare fields are no JSON", |text| text.replacen('\n', "\n{", 1)),
    ("it has no payload", |text| text.split_inclusive('\n').take(1).collect()),
];

const LIVES: &[(&str, Spoil)] = &[
    ("it is empty", |_| String::new()),
    ("it is cut", |text| text[..20].to_owned()),
    ("its state is none", |text| word(text, 0, "x")),
    ("its queue is not there", |text| word(text, 7, "77")),
    ("its lane is not there", |text| word(text, 8, "77")),
    ("its attempts are too many", |text| word(text, 10, "99999999999999999999")),
    ("its place is short", |text| word(text, 15, "8")),
    ("its time is none", |text| word(text, 6, "soon")),
    ("its group is none", |text| word(text, 17, "x")),
    ("it was created before all time", |text| word(text, 18, "-")),
    ("its short form is none", |text| text.replacen("* ", "* x", 1).replacen(" 3 0 1 ", " ", 1)),
];

/// Everything an operator can do about the victim, then everything the others need.
async fn is_nobody_elses(scene: &Scene, what: &str) {
    let store = scene.anew();
    let id = scene.ids[1];
    // Readers do not fail, and tell.
    let listed = store.list(ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap().jobs;
    assert_eq!(listed.len(), 3, "{what}");
    store.get(scene.ids.clone()).await.unwrap();
    store.explain(id).await.unwrap();
    let done = scene.work(&store).await;
    for other in [scene.ids[0], scene.ids[2]] {
        let state = get(&store, other).await.unwrap().state;
        assert_eq!(state, State::Succeeded, "{what}: {done:?}");
    }
    let listed = store.list(ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap().jobs;
    let victim = listed.iter().find(|job| job.id == id).unwrap_or_else(|| panic!("{what}: it is not listed"));
    assert!(victim.quarantined, "{what}: {victim:?}");
    let reason = store.explain(id).await.unwrap().reason;
    assert!(matches!(&reason, Reason::Quarantined { detail } if !detail.is_empty()), "{what}: {reason:?}");
    for op in [ChangeOp::Promote, ChangeOp::Retry(Due::Now), ChangeOp::Cancel] {
        let refused = store.change(vec![Change { id, op }]).await.unwrap().remove(0).unwrap_err();
        assert!(matches!(refused, Error::Corrupt { .. }), "{what}: {refused}");
    }
    scene.assert_counted(&store).await;
    store.change(vec![Change { id, op: ChangeOp::Remove }]).await.unwrap().remove(0).unwrap();
    assert_eq!(get(&store, id).await, None, "{what}");
    scene.assert_counted(&store).await;
    enqueue(&store, vec![job()]).await;
    assert_eq!(claim(&store, "x", 9).await.len(), 1, "{what}");
}

#[test]
fn slow_a_record_that_cannot_be_read() {
    block(async {
        for stage in [Scheduled, Ready, Back] {
            for (what, spoil) in RECORDS {
                if stage == Back && *what == "its queue is not there" {
                    // Its life says where it is.
                    continue;
                }
                let scene = Scene::new(stage).await;
                scene.damage_text("jobs", spoil).await;
                is_nobody_elses(&scene, &format!("{stage:?}, the record: {what}")).await;
            }
        }
    });
}

#[test]
fn slow_a_life_that_cannot_be_read() {
    block(async {
        for stage in [Back, Active, Ended] {
            for (what, spoil) in LIVES {
                // What its end does not ask for does not keep an active job from ending.
                let where_it_is = ["its queue is not there", "its lane is not there"];
                let asked = [&["it is empty", "it is cut", "its state is none"][..], &where_it_is].concat();
                if stage == Active && !asked.contains(what) {
                    continue;
                }
                if stage == Ended && ["its place is short", "its group is none"].contains(what) {
                    // An ended job needs neither.
                    continue;
                }
                let scene = Scene::new(stage).await;
                scene.damage_text("life", spoil).await;
                is_nobody_elses(&scene, &format!("{stage:?}, the life: {what}")).await;
            }
        }
    });
}

#[test]
fn a_record_or_a_life_that_is_gone() {
    block(async {
        for stage in [Back, Active] {
            let scene = Scene::new(stage).await;
            scene.raw.delete("jobs", scene.victim()).await;
            let store = scene.anew();
            let job = get(&store, scene.ids[1]).await.unwrap();
            assert!(job.quarantined.is_some(), "{stage:?}");
            scene.work(&store).await;
            scene.assert_counted(&store).await;
            for other in [scene.ids[0], scene.ids[2]] {
                assert_eq!(get(&store, other).await.unwrap().state, State::Succeeded, "{stage:?}");
            }

            // Without its life it is as it was enqueued: what its index says is not so, and it is not claimed twice.
            let scene = Scene::new(stage).await;
            scene.raw.delete("life", scene.victim()).await;
            let store = scene.anew();
            scene.work(&store).await;
            for other in [scene.ids[0], scene.ids[2]] {
                assert_eq!(get(&store, other).await.unwrap().state, State::Succeeded, "{stage:?}");
            }
            store.change(vec![Change { id: scene.ids[1], op: ChangeOp::Remove }]).await.unwrap().remove(0).unwrap();
        }
    });
}

#[test]
fn index_entries_without_a_job() {
    block(async {
        for (stage, index) in [(Scheduled, "scheduled"), (Ready, "ready"), (Active, "leases"), (Ended, "ended")] {
            let scene = Scene::new(stage).await;
            scene.raw.delete("jobs", scene.victim()).await;
            scene.raw.run("HDEL", "life", &[scene.victim().as_bytes()]).await;
            assert_eq!(scene.raw.members(index, &scene.victim()).await.len(), 1);
            let store = scene.anew();
            assert_eq!(store.list(ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap().jobs.len(), 2);
            scene.work(&store).await;
            if stage != Ended {
                assert_eq!(scene.raw.members(index, &scene.victim()).await.len(), 0, "{index}: it was swept away");
            }
            if stage != Active {
                // A lease does not say whose queue's it was; that one is still counted as active.
                scene.assert_counted(&store).await;
            }
            for other in [scene.ids[0], scene.ids[2]] {
                assert_eq!(get(&store, other).await.unwrap().state, State::Succeeded, "{index}");
            }
            obliterate(&store).await;
            assert_eq!(store.queues().await.unwrap().len(), 0, "{index}");
        }
    });
}

/// Removes the queue; it must come to its end.
async fn obliterate(store: &RedisStore) {
    let mut cursor = None;
    for _ in 0..10 {
        let filter = Filter { queue: Some("q".try_into().unwrap()), ..Filter::default() };
        let op = ChangeManyOp::Obliterate { force: true };
        cursor = store.change_many(ChangeMany { op, filter, max: 100, cursor }).await.unwrap().cursor;
        if cursor.is_none() {
            return;
        }
    }
    panic!("there is no end to it");
}

#[test]
fn slow_entries_that_are_noise() {
    block(async {
        for index in
            ["scheduled", "ready", "leases", "ended", "removable", "cancelling", "dedup_until", "ring", "wake", "bells"]
        {
            for noise in ["", "~", "a1", "a1a1", "a1noise", "a10", "a1S0", "v\n", "q\n1\nno-slash", "\u{fffd}\u{fffd}"]
            {
                let scene = Scene::new(Ready).await;
                // Entries of an index by text all have the score 0.
                let by_score = ["leases", "removable", "dedup_until"].contains(&index);
                scene.raw.add(index, if by_score { "1" } else { "0" }, noise).await;
                let store = scene.anew();
                store.list(ListRequest { limit: 10, ..ListRequest::default() }).await.unwrap();
                assert_eq!(scene.work(&store).await.len(), 3, "{index} has {noise:?}");
                store.heartbeat(beat()).await.unwrap();
                enqueue(&store, vec![job()]).await;
                assert_eq!(claim(&store, "x", 9).await.len(), 1);
            }
        }
    });
}

fn beat() -> windlass_core::store::Beat {
    windlass_core::store::Beat {
        worker: "v".try_into().unwrap(),
        queues: vec!["q".try_into().unwrap()],
        kinds: windlass_core::store::Kinds::Any,
        labels: windlass_core::name::Labels::default(),
        slots: 1,
        running: 0,
        about: String::new(),
        ttl_ms: 10_000,
    }
}

#[test]
fn notes_about_workers_are_written_anew() {
    block(async {
        let scene = Scene::new(Active).await;
        let store = scene.anew();
        store.heartbeat(beat()).await.unwrap();
        for noise in ["", "noise", "1 2", "\u{1}"] {
            scene.raw.set("workers", "v", noise).await;
            for memo in ["cw", "rw", "cv", "rv"] {
                scene.raw.set("claims", memo, noise).await;
            }
            assert_eq!(store.workers().await.unwrap().len(), 0);
            store.explain(scene.ids[0]).await.unwrap();
            enqueue(&store, vec![job()]).await;
            let claimed = claim(&store, "w", 1).await;
            report(&store, "w", claimed[0].lease).await.unwrap();
            store.heartbeat(beat()).await.unwrap();
            assert_eq!(store.workers().await.unwrap().len(), 1, "{noise:?}");
        }
        scene.raw.set("workers", "never-again", "noise").await;
        store.sweep(Sweep { kind: SweepKind::Prune, max: 100 }).await.unwrap();
        assert_eq!(scene.raw.items("workers").await.len(), 1, "what nobody can read is not kept");
    });
}

#[test]
fn a_damaged_schedule_does_not_stop_the_others_and_can_be_replaced_or_removed() {
    block(async {
        let scene = Scene::new(Ended).await;
        let store = &scene.store;
        let every = |name: &str| {
            let schedule = Schedule::new(name.try_into().unwrap(), Rule::every_ms(60_000), job().spec);
            schedule.arm(None, scene.clock.now()).unwrap()
        };
        for name in ["a", "b", "c"] {
            store.put_schedule(every(name)).await.unwrap();
        }
        for (name, noise) in [("a", "noise"), ("c", "1 0 0 - - 0\n{")] {
            scene.raw.set("schedules", name, noise).await;
        }
        let names = |all: Vec<Schedule>| all.into_iter().map(|s| s.name.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(store.schedules().await.unwrap()), ["b"]);
        scene.clock.advance_ms(60_000);
        // However few are asked for, those in front do not hide it.
        let due = store.due_schedules(1).await.unwrap().into_iter().map(|due| due.schedule).collect();
        assert_eq!(names(due), ["b"]);
        assert_eq!(tick(store as &dyn ScheduleStore, 10).await.unwrap().jobs, 1);
        store.put_schedule(every("a")).await.unwrap();
        assert!(store.remove_schedule("c".try_into().unwrap()).await.unwrap());
        assert!(!store.remove_schedule("c".try_into().unwrap()).await.unwrap());
        assert_eq!(names(store.schedules().await.unwrap()), ["a", "b"]);
    });
}

#[test]
fn a_queue_that_cannot_be_read_stops_no_other() {
    block(async {
        let scene = Scene::new(Ready).await;
        let other = || job_with(|spec| spec.queue = "other".try_into().unwrap());
        enqueue(&scene.store, vec![other()]).await;
        let queue = scene.raw.get("meta", "Qq").await;
        let queue = String::from_utf8(queue).unwrap();
        let whole = scene.raw.get("meta", &format!("q{queue}")).await;
        scene.raw.set("meta", format!("q{queue}"), "noise").await;
        let store = scene.anew();
        assert_eq!(store.queues().await.unwrap().len(), 1);
        let mut both = support::claim_request("w", 9);
        both.queues = vec!["q".try_into().unwrap(), "other".try_into().unwrap()];
        assert_eq!(store.claim(both.clone()).await.unwrap().jobs.len(), 1, "the other queue is served");
        for kind in SweepKind::ALL {
            store.sweep(Sweep { kind, max: 100 }).await.unwrap();
        }
        // It is not made a second time: that would hide its jobs.
        let refused = enqueue_one(&store, job()).await.unwrap_err();
        assert!(matches!(&refused, Error::Corrupt { what } if what.contains("the queue `q`")), "{refused}");
        // Mended, everything is there.
        scene.raw.set("meta", format!("q{queue}"), whole).await;
        assert_eq!(scene.work(&store).await.len(), 3);
    });
}

#[test]
fn a_line_of_the_directory_that_cannot_be_read_stops_no_other_lane() {
    block(async {
        let scene = Scene::new(Ready).await;
        enqueue(&scene.store, vec![job_with(|spec| spec.kind = "other".try_into().unwrap())]).await;
        let queue = String::from_utf8(scene.raw.get("meta", "Qq").await).unwrap();
        let lines = String::from_utf8(scene.raw.get("meta", &format!("d{queue}")).await).unwrap();
        let spoilt = lines.replacen("work", "\u{7f}\u{1}", 1);
        assert_ne!(lines, spoilt);
        scene.raw.set("meta", format!("d{queue}"), spoilt).await;
        let store = scene.anew();
        assert_eq!(scene.work(&store).await.len(), 1, "the other kind is served");
        scene.raw.set("meta", format!("d{queue}"), lines).await;
        assert_eq!(scene.work(&scene.anew()).await.len(), 3, "mended, they are all there");
    });
}

#[test]
fn a_group_that_cannot_be_read_stops_no_other_group() {
    block(async {
        let scene = Scene::new(Ready).await;
        let grouped = |name: &str| job_with(|spec| spec.group = Some(name.try_into().unwrap()));
        let ids = enqueue(&scene.store, vec![grouped("a"), grouped("b"), grouped("a")]).await;
        let queue = String::from_utf8(scene.raw.get("meta", "Qq").await).unwrap();
        let group = String::from_utf8(scene.raw.get("groups", &format!("n{queue} a")).await).unwrap();
        scene.raw.set("groups", &group, "noise").await;
        let store = scene.anew();
        let done = scene.work(&store).await;
        assert!(scene.ids.iter().all(|id| done.contains(id)) && done.contains(&ids[1]), "{done:?}");
        for id in ids {
            store.explain(id).await.unwrap();
            let _ = store.change(vec![Change { id, op: ChangeOp::Remove }]).await.unwrap();
        }
        // A new job of that group makes it anew.
        enqueue_one(&store, grouped("a")).await.unwrap();
        assert_eq!(claim(&store, "x", 9).await.len(), 1);
    });
}

#[test]
fn a_log_that_says_to_be_endless_ends() {
    block(async {
        for damage in ["0 99999999999999999999", "0 999999999999999", "7 3", "noise", "-1 5"] {
            let scene = Scene::new(Active).await;
            let line = |text: &str| windlass_core::store::LogLine {
                at: scene.clock.now(),
                stream: windlass_core::store::LogStream::Log,
                text: text.to_owned().into(),
            };
            let append =
                |first| windlass_core::store::LogAppend { lease: scene.leases[1], first, lines: vec![line("one")] };
            use windlass_core::store::LogSink as _;
            let store = &scene.store;
            store.append_logs(vec![append(0)]).await.unwrap().remove(0).unwrap();
            scene.raw.set("extra", format!("{}:l", scene.victim()), damage).await;
            let _ = store.append_logs(vec![append(1)]).await.unwrap();
            let request = windlass_core::store::LogRequest { job: scene.ids[1], from: 0, limit: 10 };
            store.read_logs(request).await.unwrap();
            report(store, "v", scene.leases[1]).await.unwrap();
            store.change(vec![Change { id: scene.ids[1], op: ChangeOp::Remove }]).await.unwrap().remove(0).unwrap();
            for _ in 0..3 {
                store.sweep(Sweep { kind: SweepKind::Prune, max: 100 }).await.unwrap();
            }
            assert_eq!(scene.raw.items("trash").await.len(), 0, "{damage}: the bin is empty");
        }
    });
}

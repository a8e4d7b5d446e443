//! Two real processes on one file: what holds within one store holds across them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use support::{
    Other, block, claim, claim_request, counts, enqueue, enqueue_one, job, job_with, new_id, open, recount, report,
    tests,
};
use windlass_core::job::{Dedup, DedupBy, DedupMode, JobSpec, NewJob};
use windlass_core::rate::Rate;
use windlass_core::store::{
    ClaimedJob, Enqueued, Feed, FeedRequest, GroupSettings, JobQueue, QueueSettings, Setting, Store, WaitFor,
};
use windlass_sqlite::SqliteStore;

fn main() -> ExitCode {
    support::main(
        tests![
            slow_no_job_is_claimed_by_both,
            the_cap_of_a_queue_holds_for_both_together,
            the_cap_of_a_group_holds_for_both_together,
            the_rate_of_a_queue_holds_for_both_together,
            the_rate_of_a_group_holds_for_both_together,
            groups_take_turns_whoever_claims,
            of_two_jobs_with_one_key_one_wins,
            an_enqueue_in_one_process_wakes_a_worker_in_the_other,
            the_end_of_a_job_wakes_whoever_waits_for_it_in_the_other,
            the_feed_of_one_process_is_that_of_the_other,
        ],
        obey,
    )
}

/// A process that does what it is told and says what came of it, one line each.
fn obey(name: &str, path: &Path) {
    let store = open(path);
    let mut held: Vec<ClaimedJob> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let said = block(async {
            match verb {
                "claim" => take(&store, name, rest.parse().unwrap(), &mut held).await,
                "complete" => finish(&store, name, &mut held).await,
                "work" => work(&store, name).await,
                "enqueue" => {
                    let answer = enqueue_one(&store, keyed(rest)).await.unwrap();
                    format!("{} {}", matches!(answer, Enqueued::Created { .. }), answer.id())
                }
                "wait-work" => wait_for_work(&store, name).await,
                "wait-job" => {
                    println!("waiting");
                    store.wait(WaitFor::Job(rest.parse().unwrap())).await.unwrap();
                    support::get(&store, rest.parse().unwrap()).await.state.to_string()
                }
                "feed-end" => end_of_feed(&store).await.to_string(),
                other => panic!("cannot {other}"),
            }
        });
        println!("{said}");
    }
}

/// Claims, keeps, and says the groups of the jobs, or `-`.
async fn take(store: &SqliteStore, name: &str, max: u32, held: &mut Vec<ClaimedJob>) -> String {
    let jobs = claim(store, name, max).await;
    let group = |job: &ClaimedJob| job.spec.group.as_ref().map_or("-".to_owned(), |group| group.as_str().to_owned());
    let groups: Vec<String> = jobs.iter().map(group).collect();
    held.extend(jobs);
    groups.join(" ")
}

async fn finish(store: &SqliteStore, name: &str, held: &mut Vec<ClaimedJob>) -> String {
    for job in held.drain(..) {
        report(store, name, job.lease).await.unwrap();
    }
    "done".to_owned()
}

/// Claims and completes until nothing is left; says the jobs.
async fn work(store: &SqliteStore, name: &str) -> String {
    let mut done = Vec::new();
    loop {
        let jobs = claim(store, name, 25).await;
        if jobs.is_empty() {
            return done.join(" ");
        }
        for job in jobs {
            report(store, name, job.lease).await.unwrap();
            done.push(job.lease.job.to_string());
        }
    }
}

/// Finds nothing, says so, and waits as long as it takes: nothing but a signal ends the wait.
async fn wait_for_work(store: &SqliteStore, name: &str) -> String {
    let mut claimed = store.claim(claim_request(name, 1)).await.unwrap();
    assert_eq!(claimed.jobs, Vec::new());
    println!("waiting");
    while claimed.jobs.is_empty() {
        let queues = vec!["q".try_into().unwrap()];
        store.wait(WaitFor::Work { queues, mark: claimed.mark }).await.unwrap();
        claimed = store.claim(claim_request(name, 1)).await.unwrap();
    }
    claimed.jobs[0].lease.job.to_string()
}

async fn end_of_feed(store: &SqliteStore) -> u64 {
    store.read_feed(FeedRequest { after: None, max: 1 }).await.unwrap().next.0
}

fn keyed(key: &str) -> NewJob {
    job_with(|spec| {
        let by = DedupBy::Key(key.try_into().unwrap());
        spec.dedup = Some(Dedup { by, mode: DedupMode::Reject, ttl_ms: None });
    })
}

fn grouped(group: &str) -> NewJob {
    job_with(|spec: &mut JobSpec| spec.group = Some(group.try_into().unwrap()))
}

/// A store of this process and two others on the same file.
struct Three {
    store: SqliteStore,
    others: [Other; 2],
    path: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl Three {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.db");
        let store = open(&path);
        let others = [Other::start("one", &path), Other::start("two", &path)];
        Self { store, others, path, _dir: dir }
    }

    fn set(&self, settings: QueueSettings) {
        let setting = Setting::Queue { queue: "q".try_into().unwrap(), settings };
        block(self.store.configure(setting)).unwrap();
    }

    fn enqueue(&self, jobs: Vec<NewJob>) {
        block(enqueue(&self.store, jobs));
    }

    /// Tells both at once, and hears both.
    fn both(&mut self, line: &str) -> [String; 2] {
        self.others.iter_mut().for_each(|other| other.tell(line));
        let [one, two] = &mut self.others;
        [one.hear(), two.hear()]
    }

    /// Both claim at once; how many jobs of which group they got together.
    fn both_claim(&mut self, max: u32) -> BTreeMap<String, usize> {
        let said = self.both(&format!("claim {max}")).join(" ");
        let mut groups = BTreeMap::new();
        for group in said.split_whitespace() {
            *groups.entry(group.to_owned()).or_default() += 1;
        }
        groups
    }
}

fn slow_no_job_is_claimed_by_both() {
    let mut three = Three::start();
    for _ in 0..3 {
        three.enqueue((0..1_000).map(|_| job()).collect());
    }
    let said = three.both("work");
    let [one, two] = said.each_ref().map(|ids| ids.split_whitespace().collect::<BTreeSet<_>>());
    assert_eq!(one.intersection(&two).count(), 0);
    assert_eq!(one.len() + two.len(), 3_000);
    assert!(!one.is_empty() && !two.is_empty(), "both had a share: {} and {}", one.len(), two.len());
    let counts = block(counts(&three.store));
    assert_eq!(counts.succeeded, 3_000);
    assert_eq!(counts, recount(&three.path));
}

fn the_cap_of_a_queue_holds_for_both_together() {
    let mut three = Three::start();
    three.set(QueueSettings { cap: Some(5), ..QueueSettings::default() });
    three.enqueue((0..60).map(|_| job()).collect());
    for round in 0..6 {
        assert_eq!(three.both_claim(4).values().sum::<usize>(), 5, "round {round}");
        assert_eq!(three.both_claim(4).values().sum::<usize>(), 0, "round {round}");
        assert_eq!(three.both("complete"), ["done", "done"]);
    }
    assert_eq!(block(counts(&three.store)).succeeded, 30);
}

fn the_cap_of_a_group_holds_for_both_together() {
    let mut three = Three::start();
    let groups = GroupSettings { cap: Some(3), ..GroupSettings::default() };
    three.set(QueueSettings { groups, ..QueueSettings::default() });
    three.enqueue((0..60).map(|i| grouped(["a", "b", "c"][i % 3])).collect());
    for round in 0..4 {
        let got = three.both_claim(30);
        let expected: BTreeMap<String, usize> = ["a", "b", "c"].map(|group| (group.to_owned(), 3)).into();
        assert_eq!(got, expected, "round {round}");
        assert_eq!(three.both("complete"), ["done", "done"]);
    }
    assert_eq!(block(counts(&three.store)), recount(&three.path));
}

/// So long that no test sees its end.
const WINDOW: Rate = Rate { limit: 7, per_ms: 3_600_000 };

fn the_rate_of_a_queue_holds_for_both_together() {
    let mut three = Three::start();
    three.set(QueueSettings { rate: Some(WINDOW), ..QueueSettings::default() });
    three.enqueue((0..40).map(|_| job()).collect());
    let mut started = 0;
    for _ in 0..6 {
        started += three.both_claim(2).values().sum::<usize>();
        three.both("complete");
    }
    assert_eq!(started, 7);
}

fn the_rate_of_a_group_holds_for_both_together() {
    let mut three = Three::start();
    let groups = GroupSettings { rate: Some(WINDOW), ..GroupSettings::default() };
    three.set(QueueSettings { groups, ..QueueSettings::default() });
    three.enqueue((0..60).map(|i| grouped(["a", "b"][i % 2])).collect());
    let mut started = BTreeMap::new();
    for _ in 0..6 {
        for (group, count) in three.both_claim(5) {
            *started.entry(group).or_insert(0) += count;
        }
        three.both("complete");
    }
    assert_eq!(started, BTreeMap::from([("a".to_owned(), 7), ("b".to_owned(), 7)]));
}

fn groups_take_turns_whoever_claims() {
    let mut three = Three::start();
    three.enqueue((0..200).map(|_| grouped("crowd")).collect());
    three.enqueue((0..20).map(|_| grouped("few")).collect());
    let mut got: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..10 {
        for (group, count) in three.both_claim(1) {
            *got.entry(group).or_default() += count;
        }
    }
    let (crowd, few) = (got["crowd"], got["few"]);
    assert_eq!(crowd + few, 20);
    assert!(crowd.abs_diff(few) <= 1, "{got:?}");
}

fn of_two_jobs_with_one_key_one_wins() {
    let mut three = Three::start();
    for key in 0..50 {
        let said = three.both(&format!("enqueue key-{key}"));
        let [one, two] = said.each_ref().map(|line| line.split_once(' ').unwrap());
        assert_eq!(one.1, two.1, "both are told the same job");
        assert_eq!([one.0, two.0].iter().filter(|created| **created == "true").count(), 1, "{said:?}");
    }
    assert_eq!(block(counts(&three.store)).ready, 50);
}

fn an_enqueue_in_one_process_wakes_a_worker_in_the_other() {
    let mut three = Three::start();
    for _ in 0..5 {
        let other = &mut three.others[0];
        other.tell("wait-work");
        assert_eq!(other.hear(), "waiting");
        let id = block(enqueue(&three.store, vec![job()]))[0];
        assert_eq!(three.others[0].hear(), id.to_string());
        three.others[0].tell("complete");
        assert_eq!(three.others[0].hear(), "done");
    }
}

fn the_end_of_a_job_wakes_whoever_waits_for_it_in_the_other() {
    let mut three = Three::start();
    block(async {
        for _ in 0..5 {
            let id = enqueue(&three.store, vec![job()]).await[0];
            let leased = claim(&three.store, "w", 1).await.remove(0);
            let other = &mut three.others[1];
            other.tell(&format!("wait-job {id}"));
            assert_eq!(other.hear(), "waiting");
            report(&three.store, "w", leased.lease).await.unwrap();
            // It may be woken by something else and say that the job is still active; then it is told to wait again.
            let mut said = other.hear();
            while said == "active" {
                other.tell(&format!("wait-job {id}"));
                assert_eq!(other.hear(), "waiting");
                said = other.hear();
            }
            assert_eq!(said, "succeeded");
        }
        // A job that is not there, or not any more, is not waited for.
        let other = &mut three.others[1];
        let id = enqueue(&three.store, vec![job()]).await[0];
        assert_ne!(id, new_id());
        let leased = claim(&three.store, "w", 1).await.remove(0);
        report(&three.store, "w", leased.lease).await.unwrap();
        other.tell(&format!("wait-job {id}"));
        assert_eq!(other.hear(), "waiting");
        assert_eq!(other.hear(), "succeeded");
    });
}

fn the_feed_of_one_process_is_that_of_the_other() {
    let mut three = Three::start();
    three.both("enqueue a");
    three.both("enqueue b");
    three.enqueue(vec![job()]);
    let end = block(end_of_feed(&three.store));
    assert_eq!(end, 3, "one entry per step that changed something");
    assert_eq!(three.both("feed-end"), [end.to_string(), end.to_string()]);
}

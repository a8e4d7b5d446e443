//! What stays when a store is closed, and what two processes make of an empty file. Kills are in the crash test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use support::{Other, block, claim, complete, enqueue, get, job, job_with, open, open_at, quick, tests, virtual_clock};
use windlass_core::Error;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, Job, KeepFor, Progress, State, TraceContext};
use windlass_core::name::{Labels, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::rate::Rate;
use windlass_core::schedule::{Rule, Schedule};
use windlass_core::store::{
    Beat, Durability, Feed, FeedCursor, FeedPage, FeedRequest, GroupPage, GroupSettings, GroupsRequest, JobPage,
    JobQueue, Kinds, ListRequest, LogAppend, LogLine, LogPage, LogRequest, LogSink, LogStream, MetricsRequest,
    MinuteMetrics, Outcome, OutcomeKind, QueueSettings, QueueStatus, RenewRequest, Renewal, ReportRequest,
    ScheduleStore, Setting, Store, WorkerRegistry, WorkerStatus,
};
use windlass_core::time::{Clock, Timestamp};
use windlass_sqlite::{Options, SqliteStore, Synchronous};

fn main() -> ExitCode {
    support::main(
        tests![
            the_class_is_reported_as_the_settings_are,
            everything_is_there_again_after_a_close,
            a_closed_store_says_so,
            slow_two_processes_make_one_store_of_an_empty_file,
        ],
        |_, path| open_when_told(path),
    )
}

fn the_class_is_reported_as_the_settings_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let class = |options: Options| {
        block(async {
            let info = support::try_open(options).unwrap().info().await.unwrap();
            let detail = info.details.iter().find(|(name, _)| name == "synchronous").unwrap().1.clone();
            (info.store, info.durability, detail)
        })
    };
    assert_eq!(class(Options::new(&path)), ("sqlite".to_owned(), Durability::Power, "full".to_owned()));
    let normal = Options { synchronous: Synchronous::Normal, ..Options::new(&path) };
    assert_eq!(class(normal), ("sqlite".to_owned(), Durability::Process, "normal".to_owned()));
    assert_eq!(quick(&path).synchronous, Synchronous::Normal, "the tests that do not wait for the disk say so");
}

/// All that a store can be asked about.
#[derive(Debug, PartialEq)]
struct Everything {
    jobs: JobPage,
    details: Vec<Option<Job>>,
    queues: Vec<QueueStatus>,
    groups: GroupPage,
    metrics: Vec<MinuteMetrics>,
    logs: LogPage,
    workers: Vec<WorkerStatus>,
    schedules: Vec<Schedule>,
    feed: FeedPage,
}

async fn everything(store: &SqliteStore, now: Timestamp) -> Everything {
    let jobs = store.list(ListRequest { limit: 1_000, ..ListRequest::default() }).await.unwrap();
    let ids: Vec<_> = jobs.jobs.iter().map(|job| job.id).collect();
    let logged = ids.iter().copied().next().unwrap();
    let queue = || "q".try_into().unwrap();
    let mut logs = LogPage::default();
    for id in &ids {
        let page = store.read_logs(LogRequest { job: *id, from: 0, limit: 100 }).await.unwrap();
        logs = if page.lines.is_empty() { logs } else { page };
    }
    assert!(!logs.lines.is_empty(), "some job has a log, the first of {logged} and so on");
    Everything {
        details: store.get(ids).await.unwrap(),
        jobs,
        queues: store.queues().await.unwrap(),
        groups: store.groups(GroupsRequest { queue: queue(), after: None, limit: 100 }).await.unwrap(),
        metrics: store.metrics(MetricsRequest { queue: queue(), from: now, to: now }).await.unwrap(),
        logs,
        workers: store.workers().await.unwrap(),
        schedules: store.schedules().await.unwrap(),
        feed: store.read_feed(FeedRequest { after: Some(FeedCursor(0)), max: 10_000 }).await.unwrap(),
    }
}

/// Puts something of everything into a store.
async fn fill(store: &SqliteStore, now: Timestamp) {
    let group = || "tenant".try_into().unwrap();
    let rate = Some(Rate { limit: 10, per_ms: 60_000 });
    let groups = GroupSettings { cap: Some(3), rate, weight: None };
    let settings = QueueSettings { cap: Some(50), groups, ..QueueSettings::default() };
    store.configure(Setting::Queue { queue: "q".try_into().unwrap(), settings }).await.unwrap();
    let of_group = GroupSettings { weight: Some(7), ..GroupSettings::default() };
    let setting = Setting::Group { queue: "q".try_into().unwrap(), group: group(), settings: of_group };
    store.configure(setting).await.unwrap();
    let rich = job_with(|spec| {
        spec.payload = Payload::new("text/plain", "hëllo");
        spec.priority = -7;
        spec.lifo = true;
        spec.attempts = 9;
        spec.stalls = 4;
        spec.timeout_ms = Some(1_234);
        spec.group = Some(group());
        spec.custom_id = Some("invoice 7".try_into().unwrap());
        let by = DedupBy::Key("k".try_into().unwrap());
        spec.dedup = Some(Dedup { by, mode: DedupMode::KeepLast, ttl_ms: Some(99_000) });
        spec.keep_for = KeepFor { succeeded_ms: Some(5_000), failed_ms: None };
        spec.metadata = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        spec.trace = Some(TraceContext { parent: "00-1-2-01".to_owned(), state: None });
    });
    enqueue(store, vec![rich]).await;
    let leased = claim(store, "w", 1).await.remove(0);
    let line = LogLine { at: now, stream: LogStream::Stderr, text: vec![0xff, b'x'].into() };
    let append = LogAppend { lease: leased.lease, first: 0, lines: vec![line] };
    store.append_logs(vec![append]).await.unwrap().remove(0).unwrap();
    let progress = Some(Progress { percent: 40, message: "so far".to_owned() });
    let renewal = Renewal { lease: leased.lease, lease_ms: None, progress };
    store.renew(RenewRequest { renewals: vec![renewal] }).await.unwrap().remove(0).unwrap();

    enqueue(store, vec![job(), job(), job().due(Due::DelayMs(60_000))]).await;
    let labelled = job_with(|spec| spec.labels = Labels::parse(["gpu"]).unwrap());
    enqueue(store, vec![labelled]).await;
    let done = claim(store, "w", 1).await.remove(0);
    let outputs = BTreeMap::from([("url".to_owned(), "x://y".to_owned())]);
    let kind = OutcomeKind::Complete { result: Some(Payload::json("result").unwrap()), outputs };
    let outcomes = vec![Outcome { lease: done.lease, kind }];
    store.report(ReportRequest { worker: WorkerId::new("w").unwrap(), outcomes }).await.unwrap().remove(0).unwrap();

    store.heartbeat(beat()).await.unwrap();
    let rule = Rule::Every { ms: 60_000 };
    let mut schedule = Schedule::new("nightly".try_into().unwrap(), rule, job().spec);
    schedule.next_tick = Some(now.plus_ms(60_000));
    store.put_schedule(schedule).await.unwrap();
}

fn beat() -> Beat {
    Beat {
        worker: WorkerId::new("w").unwrap(),
        queues: vec!["q".try_into().unwrap()],
        kinds: Kinds::Any,
        labels: Labels::default(),
        slots: 4,
        running: 1,
        about: "a test".to_owned(),
        ttl_ms: 10_000,
    }
}

fn everything_is_there_again_after_a_close() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let clock = virtual_clock();
    block(async {
        let store = open_at(&path, &clock);
        fill(&store, clock.now()).await;
        let before = everything(&store, clock.now()).await;
        store.close().await.unwrap();
        let store = open_at(&path, &clock);
        assert_eq!(everything(&store, clock.now()).await, before);

        // The lease goes on, too: its holder may still report.
        let active = before.jobs.jobs.iter().find(|job| job.state == State::Active).unwrap().id;
        let again = store.claim(support::claim_request("w", 1)).await.unwrap().jobs;
        assert!(again.iter().all(|job| job.lease.job != active), "nobody else gets it");
        assert_eq!(get(&store, active).await.state, State::Active);
    });
}

fn a_closed_store_says_so() {
    let dir = tempfile::tempdir().unwrap();
    block(async {
        let store = open(&dir.path().join("jobs.db"));
        let leased = {
            enqueue(&store, vec![job()]).await;
            claim(&store, "w", 1).await.remove(0)
        };
        store.close().await.unwrap();
        store.close().await.unwrap();
        let outcomes = vec![Outcome { lease: leased.lease, kind: complete() }];
        let late = store.report(ReportRequest { worker: WorkerId::new("w").unwrap(), outcomes }).await;
        assert!(matches!(late, Err(Error::Unavailable { .. })), "{late:?}");
        assert!(matches!(store.queues().await, Err(Error::Unavailable { .. })));
    });
}

/// Opens the file when it is told to, and enqueues a job.
fn open_when_told(path: &Path) {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let store = open(path);
    let ids = block(enqueue(&store, vec![job()]));
    println!("{}", ids[0]);
}

fn slow_two_processes_make_one_store_of_an_empty_file() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.db");
        let mut others = [Other::start("open", &path), Other::start("open", &path), Other::start("open", &path)];
        for other in &mut others {
            assert_eq!(other.hear(), "ready");
        }
        for other in &mut others {
            other.tell("now");
        }
        let ids: Vec<_> = others.into_iter().flat_map(Other::end).collect();
        assert_eq!(ids.len(), 3);
        block(async {
            let store = open(&path);
            for id in ids {
                assert_eq!(get(&store, id.parse().unwrap()).await.state, State::Ready);
            }
        });
    }
}

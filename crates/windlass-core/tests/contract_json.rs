//! The JSON form of the contract: one example of every call and every answer, in a file that changes only on purpose.
//!
//! `WINDLASS_WRITE_GOLDEN=1` writes the file anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot begin should stop")]

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use windlass_core::Error;
use windlass_core::id::{JobId, RunId, Token};
use windlass_core::job::{
    Dedup, DedupBy, DedupMode, Due, Failure, FailureClass, Job, JobSpec, JobSummary, KeepFor, Lease, LeaseView, NewJob,
    Progress, Retry, State, TraceContext, Verb,
};
use windlass_core::name::{Kind, Labels, QueueName, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::rate::Rate;
use windlass_core::retry::RetryPolicy;
use windlass_core::schedule::{CatchUp, Overlap, Rule, Schedule};
use windlass_core::store::*;
use windlass_core::time::Timestamp;

fn job_id(n: u128) -> JobId {
    JobId::from_parts(0, n)
}

fn run_id(n: u128) -> RunId {
    RunId::from_parts(0, n)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_ms(1_800_000_000_000 + seconds * 1_000)
}

fn queue() -> QueueName {
    "mail".try_into().unwrap()
}

fn kind() -> Kind {
    "send".try_into().unwrap()
}

fn worker() -> WorkerId {
    "worker-1".try_into().unwrap()
}

fn lease() -> Lease {
    Lease { job: job_id(1), attempt: 1, token: Token::from_bits(0xfedc_ba98_7654_3210) }
}

fn run_lease() -> RunLease {
    RunLease { run: run_id(9), token: Token::from_bits(7) }
}

fn labels() -> Labels {
    Labels::parse(["gpu", "os=linux"]).unwrap()
}

/// A job with every field set.
fn full_spec() -> JobSpec {
    JobSpec {
        priority: -5,
        lifo: true,
        attempts: 7,
        stalls: 2,
        timeout_ms: Some(60_000),
        retry: RetryPolicy::Delays { delays_ms: vec![1_000, 5_000] },
        labels: labels(),
        group: Some("tenant-1".try_into().unwrap()),
        custom_id: Some("order-17".try_into().unwrap()),
        dedup: Some(Dedup {
            by: DedupBy::Key("order-17".try_into().unwrap()),
            mode: DedupMode::KeepLast,
            ttl_ms: Some(900),
        }),
        keep_for: KeepFor { succeeded_ms: Some(0), failed_ms: Some(86_400_000) },
        metadata: BTreeMap::from([("source".to_owned(), "shop".to_owned())]),
        trace: Some(TraceContext {
            parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
            state: Some("vendor=1".to_owned()),
        }),
        run: Some(run_id(9)),
        // Blanks and the order of members stay as they are.
        payload: Payload::new("application/json", r#"{"to": "ann",  "b":1, "a":12345678901234567890}"#),
        ..JobSpec::new(queue(), kind(), Payload::default())
    }
}

fn plain_spec() -> JobSpec {
    JobSpec::new(queue(), kind(), Payload::new("image/png", vec![0x89, b'P', 0xff]))
}

fn new_job() -> NewJob {
    NewJob { id: job_id(1), due: Due::DelayMs(500), spec: full_spec() }
}

fn failure() -> Failure {
    Failure { class: FailureClass::Panic, message: "no route".to_owned(), attempt: 1, at: at(2) }
}

fn job() -> Job {
    Job {
        id: job_id(1),
        spec: Arc::new(full_spec()),
        state: State::Active,
        attempt: 2,
        stalls: 1,
        retries: 1,
        due_at: Some(at(3)),
        lease: Some(LeaseView { worker: worker(), expires_at: at(30) }),
        cancel_requested: true,
        progress: Some(Progress { percent: 40, message: "half".to_owned() }),
        result: Some(Payload::json(&json!({ "sent": true })).unwrap()),
        outputs: BTreeMap::from([("url".to_owned(), "https://example.org".to_owned())]),
        failures: vec![failure()],
        created_at: at(0),
        claimed_at: Some(at(1)),
        finished_at: Some(at(4)),
        quarantined: Some("unreadable".to_owned()),
    }
}

fn summary() -> JobSummary {
    JobSummary {
        id: job_id(1),
        queue: queue(),
        kind: kind(),
        group: Some("tenant-1".try_into().unwrap()),
        custom_id: Some("order-17".to_owned()),
        state: State::Scheduled,
        priority: 0,
        attempt: 1,
        attempts_max: 3,
        due_at: Some(at(3)),
        worker: Some(worker()),
        created_at: at(0),
        claimed_at: Some(at(1)),
        finished_at: None,
        last_error: Some("no route".to_owned()),
        quarantined: false,
    }
}

fn queue_settings() -> QueueSettings {
    QueueSettings {
        paused: true,
        paused_kinds: BTreeSet::from([kind()]),
        cap: Some(10),
        rate: Some(Rate { limit: 100, per_ms: 1_000 }),
        len_max: Some(1_000_000),
        retention: Retention::default(),
        groups: group_settings(),
    }
}

fn group_settings() -> GroupSettings {
    GroupSettings { cap: Some(1), rate: Some(Rate { limit: 5, per_ms: 60_000 }), weight: Some(2) }
}

fn schedule() -> Schedule {
    Schedule {
        start: Some(at(0)),
        end: Some(at(1_000_000)),
        limit: Some(5),
        overlap: Overlap::Skip,
        catch_up: CatchUp::All { max: 3 },
        paused: true,
        next_tick: Some(at(60)),
        last_tick: Some(at(0)),
        last_job: Some(job_id(4)),
        fired: 1,
        revision: 2,
        ..Schedule::new("nightly".try_into().unwrap(), Rule::cron_in("Europe/Berlin", "0 3 * * *"), plain_spec())
    }
}

fn beat() -> Beat {
    Beat {
        worker: worker(),
        queues: vec![queue()],
        kinds: Kinds::Only(vec![kind()]),
        labels: labels(),
        slots: 8,
        running: 3,
        about: "host-1, 0.1.0".to_owned(),
        ttl_ms: 30_000,
    }
}

fn step() -> RunStep {
    RunStep {
        history: vec![br#"{"started":1}"#.as_slice().into(), vec![0, 255].into()],
        jobs: vec![new_job()],
        cancel: vec![job_id(2)],
        messages: vec![message()],
        wake: Some(Due::At(at(60))),
        state: RunState::Running,
        stuck: Some("no code".to_owned()),
        summary: "1 of 3".to_owned(),
    }
}

fn message() -> RunMessage {
    RunMessage {
        run: run_id(8),
        body: r#"{"approve":true}"#.to_owned(),
        interrupts: true,
        reopens: true,
        ended_with: Some(4),
    }
}

fn run() -> Run {
    Run {
        id: run_id(9),
        kind: "graph".try_into().unwrap(),
        name: "deploy".to_owned(),
        state: RunState::Failed,
        stuck: Some("no code".to_owned()),
        summary: "1 of 3".to_owned(),
        history_len: 4,
        inbox_len: 1,
        engine: Some(worker()),
        wake_at: Some(at(60)),
        created_at: at(0),
        changed_at: at(1),
        finished_at: Some(at(2)),
        damaged: Some("unreadable".to_owned()),
    }
}

fn claim() -> ClaimRequest {
    ClaimRequest {
        worker: worker(),
        request_id: 5,
        queues: vec![queue()],
        kinds: Kinds::Any,
        labels: labels(),
        max: 10,
        lease_ms: 30_000,
    }
}

fn claimed() -> Claimed {
    Claimed {
        jobs: vec![ClaimedJob {
            lease: lease(),
            expires_at: at(30),
            spec: Arc::new(plain_spec()),
            stalls: 1,
            retries: 1,
            created_at: at(0),
            ready_at: at(1),
        }],
        mark: WorkMark(u64::MAX),
        next_at: Some(at(5)),
        poll_after_ms: Some(20_000),
    }
}

fn report() -> ReportRequest {
    let result = Some(Payload::json(&json!({ "sent": 1 })).unwrap());
    let outputs = BTreeMap::from([("url".to_owned(), "https://example.org".to_owned())]);
    ReportRequest {
        worker: worker(),
        outcomes: vec![
            Outcome { lease: lease(), kind: OutcomeKind::Complete { result, outputs } },
            Outcome { lease: lease(), kind: OutcomeKind::Fail { failure: failure(), retry: Retry::AfterMs(5) } },
            Outcome { lease: lease(), kind: OutcomeKind::Fail { failure: failure(), retry: Retry::Never } },
            Outcome { lease: lease(), kind: OutcomeKind::Release { started: true } },
        ],
    }
}

fn reported() -> Vec<Result<Reported, Error>> {
    vec![Ok(Reported { state: State::Succeeded, repeated: true }), Err(Error::LeaseLost)]
}

fn changes() -> Vec<Change> {
    let ops = [
        ChangeOp::Cancel,
        ChangeOp::Promote,
        ChangeOp::Reschedule(Due::At(at(9))),
        ChangeOp::Reprioritise(-3),
        ChangeOp::UpdatePayload(Payload::default()),
        ChangeOp::Retry(Due::Now),
        ChangeOp::Remove,
    ];
    ops.into_iter().map(|op| Change { id: job_id(1), op }).collect()
}

fn filter() -> Filter {
    Filter {
        queue: Some(queue()),
        state: Some(State::Failed),
        kind: Some(kind()),
        group: Some("tenant-1".try_into().unwrap()),
        label: Some("gpu".try_into().unwrap()),
        text: Some("ann".to_owned()),
    }
}

fn every_error() -> Vec<Error> {
    let text = || "why".to_owned();
    vec![
        Error::Unavailable { reason: text() },
        Error::Unknown { reason: text() },
        Error::Timeout { reason: text() },
        Error::Full { what: text() },
        Error::Corrupt { what: text() },
        Error::Incompatible { what: text() },
        Error::invalid("max", "is 0"),
        Error::not_found("the job"),
        Error::LeaseLost,
        Error::IllegalTransition { from: State::Succeeded, verb: Verb::Promote },
        Error::Duplicate { id: job_id(1) },
        Error::KeyTaken { by: job_id(2) },
        Error::RunTaken { run: run_id(1) },
        Error::RunRefused { run: run_id(1), why: text() },
        Error::limit("max", 10, 11),
    ]
}

fn line(text: &[u8]) -> LogLine {
    LogLine { at: at(1), stream: LogStream::Stdout, text: text.to_vec().into() }
}

/// Every call with its answer.
fn job_queue() -> Vec<(Call, Answer)> {
    let enqueued = [
        Enqueued::Created { id: job_id(1) },
        Enqueued::Existing { id: job_id(1) },
        Enqueued::Deduplicated { by: job_id(2) },
        Enqueued::Replaced { id: job_id(1), old: job_id(2) },
        Enqueued::Held { id: job_id(1), behind: job_id(2) },
    ];
    let errors = every_error().into_iter().map(Err);
    let jobs = vec![new_job(), NewJob::new(job_id(2), plain_spec())];
    let renewal = Renewal {
        lease: lease(),
        lease_ms: Some(30_000),
        progress: Some(Progress { percent: 40, message: "half".to_owned() }),
    };
    vec![
        (
            Call::Enqueue { request: EnqueueRequest { jobs, atomic: true } },
            Answer::Enqueue(enqueued.into_iter().map(Ok).chain(errors).collect()),
        ),
        (Call::Claim { request: claim() }, Answer::Claim(claimed())),
        (
            Call::Renew { request: RenewRequest { renewals: vec![renewal] } },
            Answer::Renew(vec![Ok(Renewed { expires_at: at(30), cancel_requested: true }), Err(Error::LeaseLost)]),
        ),
        (Call::Report { request: report() }, Answer::Report(reported())),
        (
            Call::ReportAndClaim { report: report(), claim: claim() },
            Answer::ReportAndClaim(ReportedAndClaimed { reported: reported(), claimed: claimed() }),
        ),
        (
            Call::Change { changes: changes() },
            Answer::Change(vec![Ok(Changed { state: Some(State::Ready) }), Err(Error::not_found("the job"))]),
        ),
        (
            Call::ChangeMany {
                request: ChangeMany {
                    op: ChangeManyOp::Clean { older_than_ms: 5 },
                    filter: filter(),
                    max: 100,
                    cursor: Some("1.a".to_owned()),
                },
            },
            Answer::ChangeMany(ChangedMany { changed: 5, cursor: Some("1.b".to_owned()) }),
        ),
        (Call::Get { ids: vec![job_id(1), job_id(2)] }, Answer::Get(vec![Some(job()), None])),
        (
            Call::List {
                request: ListRequest {
                    filter: filter(),
                    order: ListOrder::Descending,
                    cursor: Some("a".to_owned()),
                    limit: 50,
                },
            },
            Answer::List(JobPage { jobs: vec![summary()], cursor: Some("b".to_owned()) }),
        ),
        (
            Call::Configure { setting: Setting::Queue { queue: queue(), settings: queue_settings() } },
            Answer::Configure(()),
        ),
        (
            Call::Queues {},
            Answer::Queues(vec![QueueStatus {
                name: queue(),
                counts: QueueCounts::from_array([1, 2, 3, 4, 5, 6]),
                settings: queue_settings(),
                lanes: 2,
            }]),
        ),
        (
            Call::Groups { request: GroupsRequest { queue: queue(), after: Some("a".try_into().unwrap()), limit: 10 } },
            Answer::Groups(GroupPage {
                groups: vec![GroupStatus {
                    name: "tenant-1".try_into().unwrap(),
                    ready: 1,
                    active: 2,
                    settings: group_settings(),
                    rate_limited_until: Some(at(7)),
                }],
                more: true,
            }),
        ),
        (
            Call::Metrics { request: MetricsRequest { queue: queue(), from: at(0), to: at(60) } },
            Answer::Metrics(vec![MinuteMetrics {
                minute: at(0),
                enqueued: 1,
                claimed: 2,
                succeeded: 3,
                failed: 4,
                cancelled: 5,
                retried: 6,
                stalled: 7,
                waited_ms: 8,
                ran_ms: 9,
            }]),
        ),
        (
            Call::Explain { id: job_id(1) },
            Answer::Explain(Explanation {
                id: job_id(1),
                state: State::Scheduled,
                reason: Reason::BackingOff { until: at(5), attempt: 1, error: "no route".to_owned() },
            }),
        ),
        (
            Call::Sweep { request: Sweep { kind: SweepKind::Reap, max: 100 } },
            Answer::Sweep(Swept { handled: 1, more: true, next_at: Some(at(5)) }),
        ),
    ]
}

fn logs_workers_schedules() -> Vec<(Call, Answer)> {
    let lines = vec![line(b"plain"), line(&[0xff, b'x'])];
    vec![
        (
            Call::AppendLogs { appends: vec![LogAppend { lease: lease(), first: 3, lines: lines.clone() }] },
            Answer::AppendLogs(vec![Ok(5), Err(Error::LeaseLost)]),
        ),
        (
            Call::ReadLogs { request: LogRequest { job: job_id(1), from: 3, limit: 100 } },
            Answer::ReadLogs(LogPage { first: 3, lines: lines.into_iter().map(|line| (2, line)).collect(), next: 5 }),
        ),
        (Call::Heartbeat { beat: beat() }, Answer::Heartbeat(BeatAnswer { cancelled: vec![job_id(1)] })),
        (Call::Deregister { worker: worker() }, Answer::Deregister(())),
        (
            Call::Workers {},
            Answer::Workers(vec![WorkerStatus { beat: beat(), since: at(0), seen_at: at(1), live: true }]),
        ),
        (Call::PutSchedule { schedule: schedule() }, Answer::PutSchedule(())),
        (Call::RemoveSchedule { name: "nightly".try_into().unwrap() }, Answer::RemoveSchedule(true)),
        (Call::Schedules {}, Answer::Schedules(vec![schedule()])),
        (
            Call::DueSchedules { max: 10 },
            Answer::DueSchedules(vec![DueSchedule {
                schedule: schedule(),
                now: at(61),
                last_job_state: Some(State::Succeeded),
            }]),
        ),
        (
            Call::Fire {
                request: Fire {
                    name: "nightly".try_into().unwrap(),
                    expected_tick: Some(at(60)),
                    revision: 2,
                    jobs: vec![NewJob::new(job_id(2), plain_spec())],
                    next_tick: Some(at(120)),
                    skip_if_running: true,
                },
            },
            Answer::Fire(FireOutcome::Fired { jobs: 1 }),
        ),
    ]
}

fn runs() -> Vec<(Call, Answer)> {
    let claimed = ClaimedRun {
        lease: run_lease(),
        expires_at: at(30),
        kind: "graph".try_into().unwrap(),
        name: "deploy".to_owned(),
        definition_hash: [0xab; 16],
        number: 7,
        created_at: at(0),
        history_len: 4,
        inbox: vec![
            RunItem::JobEnded(JobEnd {
                job: job_id(1),
                state: Some(State::Failed),
                attempt: 3,
                claimed_at: Some(at(1)),
                at: at(2),
                error: Some("no route".to_owned()),
                outputs: BTreeMap::from([("url".to_owned(), "x".to_owned())]),
            }),
            RunItem::Message { at: at(3), body: "{}".to_owned() },
        ],
        inbox_to: 6,
        inbox_len: 2,
        woken: true,
    };
    vec![
        (
            Call::CreateRuns {
                runs: vec![NewRun {
                    id: run_id(9),
                    kind: "graph".try_into().unwrap(),
                    name: "deploy".to_owned(),
                    definition: br#"{"jobs":{}}"#.as_slice().into(),
                    input: b"null".as_slice().into(),
                    keep_ms: Some(1_000),
                    step: step(),
                }],
            },
            Answer::CreateRuns(vec![Ok(RunCreated::Created), Ok(RunCreated::Existing)]),
        ),
        (
            Call::ClaimRuns {
                request: RunClaim {
                    engine: worker(),
                    kinds: vec!["graph".try_into().unwrap()],
                    run: Some(run_id(9)),
                    max: 16,
                    lease_ms: 10_000,
                },
            },
            Answer::ClaimRuns(RunsClaimed { runs: vec![claimed], now: at(4), next_at: Some(at(5)), mark: WorkMark(3) }),
        ),
        (
            Call::CommitRuns {
                commits: vec![RunCommit {
                    lease: run_lease(),
                    history_len: 4,
                    inbox_to: 6,
                    lease_ms: Some(10_000),
                    step: step(),
                }],
            },
            Answer::CommitRuns(vec![Ok(RunCommitted { history_len: 6, repeated: true })]),
        ),
        (Call::SendToRuns { messages: vec![message()] }, Answer::SendToRuns(vec![Ok(()), Err(Error::not_found("r"))])),
        (
            Call::ReadRuns {
                reads: vec![RunRead { run: run_id(9), definition: true, input: true, history_from: 1, history_max: 2 }],
            },
            Answer::ReadRuns(vec![
                Some(RunView {
                    run: run(),
                    definition: Some(br#"{"jobs":{}}"#.as_slice().into()),
                    input: Some(b"null".as_slice().into()),
                    history: vec![vec![0, 255].into()],
                }),
                None,
            ]),
        ),
        (
            Call::ListRuns {
                request: RunList {
                    state: Some(RunState::Running),
                    order: ListOrder::Ascending,
                    cursor: Some("a".to_owned()),
                    limit: 10,
                },
            },
            Answer::ListRuns(RunPage { runs: vec![run()], cursor: Some("b".to_owned()) }),
        ),
        (Call::RemoveRuns { runs: vec![run_id(9)] }, Answer::RemoveRuns(vec![Ok(())])),
    ]
}

fn every_event() -> Vec<FeedEvent> {
    let schedule = || "nightly".try_into().unwrap();
    let settings = [
        Setting::Queue { queue: queue(), settings: queue_settings() },
        Setting::Paused { queue: queue(), paused: true },
        Setting::KindPaused { queue: queue(), kind: kind(), paused: true },
        Setting::GroupCap { queue: queue(), group: "tenant-1".try_into().unwrap(), cap: 1 },
        Setting::Group { queue: queue(), group: "tenant-1".try_into().unwrap(), settings: group_settings() },
    ];
    let transition = Transition {
        job: job_id(1),
        queue: queue(),
        verb: Verb::UpdatePayload,
        from: Some(State::Ready),
        to: Some(State::Ready),
        attempt: 1,
    };
    let mut events = vec![
        FeedEvent::Job(transition),
        FeedEvent::Run(RunChange { run: run_id(9), state: Some(RunState::Succeeded), history_len: 5 }),
        FeedEvent::QueueRemoved { queue: queue() },
        FeedEvent::SchedulePut { schedule: schedule() },
        FeedEvent::ScheduleRemoved { schedule: schedule() },
        FeedEvent::ScheduleFired { schedule: schedule(), tick: at(60) },
    ];
    events.extend(settings.map(FeedEvent::Settings));
    events
}

fn feed_and_store() -> Vec<(Call, Answer)> {
    vec![
        (
            Call::ReadFeed { request: FeedRequest { after: Some(FeedCursor(u64::MAX)), max: 100 } },
            Answer::ReadFeed(FeedPage {
                gap: true,
                entries: vec![FeedEntry { cursor: FeedCursor(5), at: at(1), events: every_event() }],
                next: FeedCursor(5),
            }),
        ),
        (Call::SetFeedEvents { events: 20_000 }, Answer::SetFeedEvents(())),
        (Call::FeedEvents {}, Answer::FeedEvents(20_000)),
        (
            Call::Info {},
            Answer::Info(StoreInfo {
                store: "sqlite".to_owned(),
                layout: 3,
                durability: Durability::FailoverBestEffort,
                details: vec![("feed events".to_owned(), "20000".to_owned())],
            }),
        ),
        (Call::Now {}, Answer::Now(at(0))),
        (Call::Wait { what: WaitFor::Work { queues: vec![queue()], mark: WorkMark(3) } }, Answer::Wait(())),
        (Call::KeepTime { keeper: worker(), ttl_ms: 5_000 }, Answer::KeepTime(Timekeeping::Waits { ask_in_ms: 700 })),
        (Call::Close {}, Answer::Close(())),
    ]
}

fn examples() -> Vec<(Call, Answer)> {
    [job_queue(), logs_workers_schedules(), runs(), feed_and_store()].concat()
}

/// Further variants that the examples have no room for.
fn variants() -> Vec<(&'static str, Value)> {
    let reasons = [
        Reason::Delayed { until: at(5) },
        Reason::Due,
        Reason::HeldBehind { job: job_id(2) },
        Reason::QueuePaused,
        Reason::KindPaused { kind: kind() },
        Reason::QueueAtCap { cap: 1 },
        Reason::QueueRateLimited { until: at(5) },
        Reason::GroupAtCap { group: "g".try_into().unwrap(), cap: 1 },
        Reason::GroupRateLimited { group: "g".try_into().unwrap(), until: at(5) },
        Reason::NoWorkerForQueue,
        Reason::NoWorkerForKind { kind: kind() },
        Reason::NoWorkerWithLabels { missing: vec!["gpu".try_into().unwrap()] },
        Reason::WaitsItsTurn,
        Reason::Running { worker: worker(), until: at(5) },
        Reason::Cancelling { worker: worker() },
        Reason::LeaseExpired { worker: worker() },
        Reason::Ended { error: Some("no route".to_owned()) },
        Reason::Quarantined { why: "unreadable".to_owned() },
    ];
    let many = [
        ChangeManyOp::Drain { scheduled: true },
        ChangeManyOp::Obliterate { force: true },
        ChangeManyOp::RetryFailed,
        ChangeManyOp::PromoteAll,
        ChangeManyOp::CancelAll,
    ];
    let retries = [RetryPolicy::None, RetryPolicy::Fixed { delay_ms: 5 }, RetryPolicy::default(), RetryPolicy::ByKind];
    let waits = [WaitFor::Job(job_id(1)), WaitFor::Runs(WorkMark(3)), WaitFor::Feed(FeedCursor(3))];
    let value = |value: Result<Value, _>| value.unwrap();
    vec![
        ("reason", value(serde_json::to_value(reasons))),
        ("change_many", value(serde_json::to_value(many))),
        ("retry", value(serde_json::to_value(retries))),
        ("wait", value(serde_json::to_value(waits))),
        ("timekeeping", value(serde_json::to_value(Timekeeping::Keeps))),
        ("fire_outcome", value(serde_json::to_value([FireOutcome::Skipped, FireOutcome::Stale]))),
        ("rule", value(serde_json::to_value(Rule::every_ms(60_000)))),
        ("states", value(serde_json::to_value((State::ALL, RunState::ALL, SweepKind::ALL)))),
    ]
}

#[test]
fn every_call_and_answer_has_an_example() {
    let examples = examples();
    let calls: Vec<Method> = examples.iter().map(|(call, _)| call.method()).collect();
    let answers: Vec<Method> = examples.iter().map(|(_, answer)| answer.method()).collect();
    assert_eq!(calls, Method::ALL);
    assert_eq!(answers, Method::ALL);
}

#[test]
fn the_json_form_is_that_of_the_golden_file() {
    let mut text = String::new();
    for (call, answer) in examples() {
        writeln!(text, "call {}", String::from_utf8(call.to_json().unwrap()).unwrap()).unwrap();
        writeln!(text, "answer {}", String::from_utf8(answer.to_json().unwrap()).unwrap()).unwrap();
    }
    for (name, value) in variants() {
        writeln!(text, "{name} {value}").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/contract.txt");
    if std::env::var_os("WINDLASS_WRITE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    for (written, kept) in text.lines().zip(golden.lines()) {
        assert_eq!(written, kept, "the JSON form changed; programs in other languages rely on it");
    }
    assert_eq!(text.lines().count(), golden.lines().count());
}

#[test]
fn every_example_comes_back_from_its_json() {
    for (call, answer) in examples() {
        assert_eq!(Call::from_json(&call.to_json().unwrap()), Ok(call));
        assert_eq!(Answer::from_json(&answer.to_json().unwrap()), Ok(answer));
    }
}

#[test]
fn payloads_come_back_byte_for_byte() {
    let exact: &[&[u8]] = &[
        b"null",
        b"{\"a\": 1,\n \"a\":1e400}",
        b" 1",
        b"1 ",
        b"",
        b"{\"broken\":",
        b"\"\\ud800\"",
        b"\xff",
        "\"\u{2028}é\"".as_bytes(),
        &[b'['; 1_000],
    ];
    for bytes in exact {
        for content_type in ["application/json", "text/plain"] {
            let payload = Payload::new(content_type, bytes.to_vec());
            let text = serde_json::to_vec(&payload).unwrap();
            assert_eq!(serde_json::from_slice::<Payload>(&text).unwrap(), payload, "{}", text.escape_ascii());
        }
    }
}

#[test]
fn a_payload_is_read_from_every_form_it_was_ever_stored_in() {
    let read = |text: &str| serde_json::from_str::<Payload>(text);
    assert_eq!(read("{}").unwrap(), Payload::default());
    assert_eq!(read(r#"{"json":null}"#).unwrap(), Payload::default());
    let stored = r#"{"content_type":"application/json","bytes":[91,93]}"#;
    assert_eq!(read(stored).unwrap(), Payload::new("application/json", "[]"));
    assert!(read(r#"{"json":1,"base64":""}"#).is_err());
    assert!(read(r#"{"base64":"?"}"#).is_err());
}

#[test]
fn a_call_with_an_unknown_field_is_refused_and_an_answer_with_one_is_read() {
    let call = r#"{"enqueue":{"request":{"jobs":[{"id":"0-00000000000000000000000001","spec":{"queue":"q","kind":"k","dedup":{"by":"payload","mode":"reject","ttl":5}}}]}}}"#;
    let refused = Call::from_json(call.as_bytes()).unwrap_err();
    let Error::Invalid { field, .. } = refused else { panic!("{refused}") };
    assert_eq!(field, "request.jobs.0.spec.dedup.ttl");
    let answer = Answer::from_json(br#"{"sweep":{"handled":1,"more":false,"new":1}}"#);
    assert_eq!(answer, Ok(Answer::Sweep(Swept { handled: 1, more: false, next_at: None })));
}

#[test]
fn absent_fields_have_their_defaults() {
    let call = r#"{"enqueue":{"request":{"jobs":[{"id":"0-00000000000000000000000001","spec":{"queue":"mail","kind":"send"}}]}}}"#;
    let spec = JobSpec::new(queue(), kind(), Payload::default());
    let request = EnqueueRequest::new(vec![NewJob::new(job_id(1), spec)]);
    assert_eq!(Call::from_json(call.as_bytes()), Ok(Call::Enqueue { request }));
    let claim = r#"{"claim":{"request":{"worker":"worker-1","request_id":5,"queues":["mail"],"kinds":"any","max":1,"lease_ms":30000}}}"#;
    let request = ClaimRequest::new(worker(), 5, queue());
    assert_eq!(Call::from_json(claim.as_bytes()), Ok(Call::Claim { request }));
}

#[test]
fn the_code_of_every_error_is_that_of_its_json() {
    for error in every_error() {
        assert_eq!(serde_json::to_value(&error).unwrap()["code"], error.code());
    }
}

//! Values of the contract with every field set.

use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::Error;
use windlass_core::id::{JobId, RunId, Token};
use windlass_core::job::*;
use windlass_core::name::{Kind, Labels, QueueName, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::rate::Rate;
use windlass_core::retry::RetryPolicy;
use windlass_core::schedule::{CatchUp, Overlap, Rule, Schedule};
use windlass_core::store::*;
use windlass_core::time::Timestamp;

pub(crate) fn job_id(n: u128) -> JobId {
    JobId::from_parts(0, n)
}

pub(crate) fn run_id(n: u128) -> RunId {
    RunId::from_parts(0, n)
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_ms(1_800_000_000_000 + seconds * 1_000)
}

pub(crate) fn queue() -> QueueName {
    "mail".try_into().unwrap()
}

pub(crate) fn kind() -> Kind {
    "send".try_into().unwrap()
}

pub(crate) fn worker() -> WorkerId {
    "worker-1".try_into().unwrap()
}

pub(crate) fn lease() -> Lease {
    Lease { job: job_id(1), attempt: 1, token: Token::from_bits(0xfedc_ba98_7654_3210) }
}

pub(crate) fn run_lease() -> RunLease {
    RunLease { run: run_id(9), token: Token::from_bits(7) }
}

pub(crate) fn labels() -> Labels {
    Labels::parse(["gpu", "os=linux"]).unwrap()
}

/// A job with every field set.
pub(crate) fn full_spec() -> JobSpec {
    JobSpec {
        priority: -5,
        lifo: true,
        attempts: 7,
        stalls: 2,
        timeout_ms: Some(60_000),
        heartbeat_ms: Some(5_000),
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
        group_cap: Some(3),
        // Blanks and the order of members stay as they are.
        payload: Payload::new("application/json", r#"{"to": "ann",  "b":1, "a":12345678901234567890}"#),
        ..JobSpec::new(queue(), kind(), Payload::default())
    }
}

pub(crate) fn plain_spec() -> JobSpec {
    JobSpec::new(queue(), kind(), Payload::new("image/png", vec![0x89, b'P', 0xff]))
}

pub(crate) fn new_job() -> NewJob {
    NewJob { id: job_id(1), due: Due::DelayMs(500), spec: full_spec() }
}

pub(crate) fn failure() -> Failure {
    let detail = Some(serde_json::json!({ "code": 5 }));
    Failure { attempt: 1, at: at(2), detail, ..Failure::new(FailureClass::Panic, "no route") }
}

pub(crate) fn job() -> Job {
    Job {
        id: job_id(1),
        spec: Arc::new(full_spec()),
        state: State::Active,
        attempt: 2,
        stall_count: 1,
        retry_count: 1,
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

pub(crate) fn summary() -> JobSummary {
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

pub(crate) fn queue_settings() -> QueueSettings {
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

pub(crate) fn group_settings() -> GroupSettings {
    GroupSettings { cap: Some(1), rate: Some(Rate { limit: 5, per_ms: 60_000 }), weight: Some(2) }
}

pub(crate) fn schedule() -> Schedule {
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

pub(crate) fn beat() -> Beat {
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

pub(crate) fn step() -> RunStep {
    RunStep {
        history: vec![br#"{"started":1}"#.as_slice().into(), vec![0, 255].into()],
        jobs: vec![new_job()],
        cancel: vec![job_id(2)],
        cancel_unclaimed: vec![job_id(3)],
        messages: vec![message()],
        wake: Some(Due::At(at(60))),
        state: RunState::Running,
        stuck: Some("no code".to_owned()),
        summary: "1 of 3".to_owned(),
        published: Some(published()),
        labels: Some(run_labels()),
        segment: Some(RunSegment {
            kind: "order@2".try_into().unwrap(),
            input: b"null".as_slice().into(),
            entries_before: 1,
        }),
        ..RunStep::nothing()
    }
}

/// A step that ends its run.
pub(crate) fn last_step() -> RunStep {
    RunStep {
        state: RunState::Failed,
        result: Some(Payload::new("application/json", r#"{"b": 1}"#)),
        error: Some("late".to_owned()),
        ..RunStep::nothing()
    }
}

pub(crate) fn run_labels() -> BTreeMap<String, String> {
    BTreeMap::from([("tenant".to_owned(), "acme".to_owned())])
}

pub(crate) fn published() -> BTreeMap<String, Payload> {
    BTreeMap::from([("progress".to_owned(), Payload::new("application/json", "{\"of\": 3}"))])
}

pub(crate) fn message() -> RunMessage {
    RunMessage {
        run: run_id(8),
        id: Some("order-17".to_owned()),
        body: r#"{"approve":true}"#.to_owned(),
        interrupts: true,
        reopens: true,
        terminates: false,
        expected_history_len: Some(4),
        only_if_stuck: false,
    }
}

pub(crate) fn run() -> Run {
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
        parent: Some(run_id(3)),
        labels: run_labels(),
        segment_from: 2,
        stall_count: 1,
        unread_messages: 1,
        error: Some("late".to_owned()),
        damaged: Some("unreadable".to_owned()),
    }
}

pub(crate) fn claim() -> ClaimRequest {
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

pub(crate) fn claimed() -> Claimed {
    Claimed {
        jobs: vec![ClaimedJob {
            lease: lease(),
            expires_at: at(30),
            spec: Arc::new(plain_spec()),
            stall_count: 1,
            retry_count: 1,
            created_at: at(0),
            ready_at: at(1),
        }],
        mark: WorkMark(u64::MAX),
        next_at: Some(at(5)),
        poll_after_ms: Some(20_000),
    }
}

pub(crate) fn report() -> ReportRequest {
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

pub(crate) fn reported() -> Vec<Result<Reported, Error>> {
    vec![Ok(Reported { state: State::Succeeded, repeated: true }), Err(Error::LeaseLost)]
}

pub(crate) fn changes() -> Vec<Change> {
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

pub(crate) fn filter() -> Filter {
    Filter {
        queue: Some(queue()),
        state: Some(State::Failed),
        kind: Some(kind()),
        group: Some("tenant-1".try_into().unwrap()),
        label: Some("gpu".try_into().unwrap()),
        text: Some("ann".to_owned()),
    }
}

pub(crate) fn every_error() -> Vec<Error> {
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
        Error::UnreadMessages { run: run_id(1), unread: 2 },
        Error::limit("max", 10, 11),
    ]
}

pub(crate) fn line(text: &[u8]) -> LogLine {
    LogLine { at: at(1), stream: LogStream::Stdout, text: text.to_vec().into() }
}

//! One example of every call and every answer.

use super::values::*;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::id::Token;
use windlass_core::job::*;
use windlass_core::payload::Payload;
use windlass_core::store::*;

/// Every call with its answer.
pub(crate) fn job_queue() -> Vec<(Call, Answer)> {
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
    ]
}

/// Calls that read and configure.
pub(crate) fn jobs_and_queues() -> Vec<(Call, Answer)> {
    vec![
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
                    run_cap: Some(3),
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

pub(crate) fn logs_workers_schedules() -> Vec<(Call, Answer)> {
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

fn claimed_run() -> ClaimedRun {
    ClaimedRun {
        lease: run_lease(),
        expires_at: at(30),
        kind: "graph".try_into().unwrap(),
        name: "deploy".to_owned(),
        definition_hash: [0xab; 16],
        number: 7,
        created_at: at(0),
        history_len: 4,
        inbox: every_item(),
        inbox_to: 6,
        inbox_taken: 2,
        woken: true,
        state: RunState::Terminated,
        stuck: Some("no code".to_owned()),
        parent: Some(run_id(3)),
        labels: run_labels(),
        stall_count: 1,
        segment_from: 2,
        input: Some(b"null".as_slice().into()),
        history: vec![vec![0, 255].into()],
    }
}

fn every_item() -> Vec<InboxItem> {
    let job = JobEnd {
        job: job_id(1),
        state: Some(State::Failed),
        attempt: 3,
        claimed_at: Some(at(1)),
        at: at(2),
        error: Some("no route".to_owned()),
        class: Some(FailureClass::Timeout),
        detail: Some(serde_json::json!({ "code": 5 })),
        outputs: BTreeMap::from([("url".to_owned(), "x".to_owned())]),
        result: Some(Payload::new("image/png", vec![0, 255])),
    };
    let child = RunEnd {
        run: run_id(4),
        state: RunState::TimedOut,
        at: at(2),
        result: Some(Payload::new("application/json", r#"{"b": 1}"#)),
        error: Some("late".to_owned()),
    };
    let items = [
        RunItem::JobEnded(job),
        RunItem::Message { at: at(3), id: Some("order-17".to_owned()), body: "{}".to_owned() },
        RunItem::RunEnded(child),
        RunItem::ChildRefused { run: run_id(5), reason: "another run has the id".to_owned() },
    ];
    (2..).zip(items).map(|(number, item)| InboxItem { number, item }).collect()
}

fn new_run() -> NewRun {
    NewRun {
        id: run_id(9),
        kind: "graph".try_into().unwrap(),
        name: "deploy".to_owned(),
        definition: br#"{"jobs":{}}"#.as_slice().into(),
        input: b"null".as_slice().into(),
        keep_ms: Some(1_000),
        parent: Some(run_id(3)),
        labels: run_labels(),
        reuse: RunReuse::IfNotSucceeded,
        nonce: Some(Token::from_bits(5)),
        job_results: true,
        messages: vec![RunMessage {
            run: run_id(9),
            interrupts: false,
            reopens: false,
            expected_history_len: None,
            ..message()
        }],
        step: step(),
    }
}

fn child() -> NewRun {
    NewRun { parent: Some(run_id(9)), ..NewRun::new(run_id(4), "order@2".try_into().unwrap()) }
}

pub(crate) fn runs() -> Vec<(Call, Answer)> {
    vec![
        (
            Call::CreateRuns { runs: vec![new_run()] },
            Answer::CreateRuns(vec![Ok(RunCreated::Created), Ok(RunCreated::Existing), Ok(RunCreated::Restarted)]),
        ),
        (
            Call::ClaimRuns {
                request: RunClaim {
                    run: Some(run_id(9)),
                    even_stuck: true,
                    max: 16,
                    lease_ms: 10_000,
                    history_bytes_max: 65_536,
                    ..RunClaim::new(worker(), vec!["graph".try_into().unwrap()])
                },
            },
            Answer::ClaimRuns(RunsClaimed {
                runs: vec![claimed_run()],
                now: at(4),
                next_at: Some(at(5)),
                mark: WorkMark(3),
            }),
        ),
        (
            Call::RenewRuns { renewals: vec![RunRenewal { lease: run_lease(), lease_ms: 10_000, inbox_from: 6 }] },
            Answer::RenewRuns(vec![
                Ok(RunRenewed {
                    expires_at: at(5),
                    inbox: vec![InboxItem {
                        number: 6,
                        item: RunItem::Message { at: at(4), id: None, body: "stop".to_owned() },
                    }],
                    inbox_to: 7,
                    inbox_taken: 1,
                }),
                Err(Error::LeaseLost),
            ]),
        ),
        (
            Call::CommitRuns {
                commits: vec![RunCommit {
                    lease: run_lease(),
                    history_len: 4,
                    inbox_to: 6,
                    inbox_taken: vec![8, 9],
                    requires_read_messages: true,
                    lease_ms: Some(10_000),
                    step: RunStep { runs: vec![child()], ..step() },
                }],
            },
            Answer::CommitRuns(vec![
                Ok(RunCommitted { history_len: 6, repeated: true }),
                Err(Error::UnreadMessages { run: run_id(9), unread: 2 }),
            ]),
        ),
    ]
}

/// Messages to runs, and what is read of them.
pub(crate) fn messages_and_lists() -> Vec<(Call, Answer)> {
    vec![
        (Call::SendToRuns { messages: vec![message()] }, Answer::SendToRuns(vec![Ok(()), Err(Error::not_found("r"))])),
        (
            Call::ReadRuns {
                reads: vec![RunRead {
                    run: run_id(9),
                    definition: true,
                    input: true,
                    history_from: 1,
                    history_max: 2,
                    published: true,
                    result: true,
                    inbox_from: Some(3),
                }],
            },
            Answer::ReadRuns(vec![
                Some(RunView {
                    run: run(),
                    definition: Some(br#"{"jobs":{}}"#.as_slice().into()),
                    input: Some(b"null".as_slice().into()),
                    history: vec![vec![0, 255].into()],
                    published: Some(published()),
                    result: Some(Payload::new("text/plain", "done")),
                    inbox: vec![InboxItem {
                        number: 3,
                        item: RunItem::Message { at: at(4), id: None, body: "stop".to_owned() },
                    }],
                    inbox_to: 4,
                }),
                None,
            ]),
        ),
        (
            Call::ListRuns {
                request: RunList {
                    state: Some(RunState::Running),
                    kind: Some("order".to_owned()),
                    stuck: Some(true),
                    parent: Some(run_id(3)),
                    label: Some(RunLabel { name: "tenant".to_owned(), value: "acme".to_owned() }),
                    created_from: Some(at(1)),
                    created_before: Some(at(2)),
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

pub(crate) fn every_event() -> Vec<FeedEvent> {
    let schedule = || "nightly".try_into().unwrap();
    let settings = [
        Setting::Queue { queue: queue(), settings: queue_settings() },
        Setting::Paused { queue: queue(), paused: true },
        Setting::KindPaused { queue: queue(), kind: kind(), paused: true },
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

pub(crate) fn feed_and_store() -> Vec<(Call, Answer)> {
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
        (Call::Wait { target: WaitFor::Work { queues: vec![queue()], mark: WorkMark(3) } }, Answer::Wait(())),
        (
            Call::ClaimMaintenance { worker: worker(), ttl_ms: 5_000 },
            Answer::ClaimMaintenance(MaintenanceClaim::HeldByOther { retry_after_ms: 700 }),
        ),
        (Call::Close {}, Answer::Close(())),
    ]
}

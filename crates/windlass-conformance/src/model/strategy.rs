//! Which sequences are tried. Names come from small sets, so that steps meet each other; times come from a few values
//! around the limits, so that boundaries are hit exactly.

use super::op::{
    ChangePlan, ClaimPlan, Edge, FeedFrom, FirePlan, IdPlan, JobPlan, LeaseRef, Op, RenewPlan, ReportPlan, RequestPlan,
    RunStepPlan, STATES, SchedulePlan, TickPlan, WaitPlan, group, kind, label, queue, schedule, worker,
};
use super::strategy_spec::{due, payload, spec};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use windlass_core::job::{Failure, FailureClass, Progress, Retry};
use windlass_core::name::Labels;
use windlass_core::payload::Payload;
use windlass_core::rate::Rate;
use windlass_core::schedule::{Overlap, Rule};
use windlass_core::store::{
    Beat, ChangeManyOp, ChangeOp, Filter, GroupSettings, Kinds, ListOrder, LogLine, LogStream, OutcomeKind,
    QueueSettings, Retention, RetentionRule, Setting, SweepKind,
};
use windlass_core::time::Timestamp;

/// Sequences of up to `steps_max` steps.
pub(crate) fn sequence(steps_max: usize) -> impl Strategy<Value = Vec<Op>> {
    prop_oneof![
        60 => vec(op(), 1..=steps_max),
        1 => vec(big_op(), 2..=BIG_STEPS_MAX),
    ]
}

/// The longest sequence with large calls: each of its steps takes as long as a hundred others.
const BIG_STEPS_MAX: usize = 14;

/// Calls that are too much for one bounded step of a store.
fn big_op() -> impl Strategy<Value = Op> {
    let many = (change_many_op(), filter(true), select(vec![150u32, 500]));
    let claim = (claim_plan(), select(vec![200u32, 500]));
    let report = (0..3usize, 50..400usize, outcome_kind());
    let change = (1..200usize, change_plan());
    prop_oneof![
        6 => (job_plan(), big()).prop_map(|(plan, (count, bytes))| big_enqueue(&plan, count, bytes)),
        4 => claim.prop_map(|(plan, max)| Op::Claim(ClaimPlan { max, ..plan })),
        3 => report.prop_map(|(w, count, kind)| {
            let outcomes = (0..count).map(|k| (LeaseRef::Latest(k), kind.clone())).collect();
            Op::Report(ReportPlan { worker: worker(w), outcomes })
        }),
        4 => many.prop_map(|(op, filter, max)| Op::ChangeMany { op, filter, max }),
        2 => change.prop_map(|(count, plan)| {
            Op::Change((0..count).map(|job| ChangePlan { job, ..plan.clone() }).collect())
        }),
        3 => select(SweepKind::ALL.to_vec()).prop_map(|kind| Op::Sweep { kind, max: 1_000 }),
        2 => clock_op(),
        1 => setting().prop_map(Op::Configure),
    ]
}

/// How many jobs, and how large their payloads are: many, or some that are large.
fn big() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![3 => (100..450usize).prop_map(|count| (count, 0)), 1 => (80..110usize).prop_map(|count| (count, 20_000))]
}

fn big_enqueue(plan: &JobPlan, count: usize, bytes: usize) -> Op {
    let mut plan = JobPlan { id: IdPlan::Fresh, ..plan.clone() };
    (plan.spec.dedup, plan.spec.custom_id) = (None, None);
    if bytes > 0 {
        plan.spec.payload = Payload::new("text/plain", vec![b'x'; bytes]);
    }
    Op::Enqueue { jobs: vec![plan; count], atomic: false }
}

/// Jobs of a run.
fn run_jobs() -> impl Strategy<Value = Vec<JobPlan>> {
    let of_run = |mut plan: JobPlan| {
        plan.id = IdPlan::Fresh;
        (plan.spec.dedup, plan.spec.custom_id) = (None, None);
        plan
    };
    vec(job_plan().prop_map(of_run), 0..=3)
}

fn run_step_plan() -> impl Strategy<Value = RunStepPlan> {
    (0..3usize, run_jobs(), vec(job_ref(), 0..=2), prop::bool::weighted(0.1)).prop_map(
        |(run, mut jobs, cancel, ends)| {
            if ends {
                jobs.clear();
            }
            RunStepPlan { run, jobs, cancel, ends }
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        60 => hot_op(),
        24 => warm_op(),
        16 => cold_op(),
    ]
}

/// What workers and programs do all day.
fn hot_op() -> impl Strategy<Value = Op> {
    let enqueue = (vec(job_plan(), 1..=4), prop::bool::weighted(0.2));
    prop_oneof![
        20 => enqueue.prop_map(|(jobs, atomic)| Op::Enqueue { jobs, atomic }),
        20 => claim_plan().prop_map(Op::Claim),
        16 => report_plan().prop_map(Op::Report),
        6 => (report_plan(), claim_plan()).prop_map(|(report, claim)| Op::ReportAndClaim(report, claim)),
        6 => vec(renew_plan(), 1..=2).prop_map(Op::Renew),
        12 => clock_op(),
        3 => job_ref().prop_map(Op::Explain),
        8 => (select(SweepKind::ALL.to_vec()), select(vec![1u32, 2, 100])).prop_map(|(kind, max)| Op::Sweep { kind, max }),
    ]
}

/// What operators do.
fn warm_op() -> impl Strategy<Value = Op> {
    let many = (change_many_op(), filter(true), select(vec![1u32, 3, 100]));
    prop_oneof![
        10 => vec(change_plan(), 1..=3).prop_map(Op::Change),
        4 => many.prop_map(|(op, filter, max)| Op::ChangeMany { op, filter, max }),
        6 => setting().prop_map(Op::Configure),
        3 => append_logs(),
        3 => beat().prop_map(Op::Heartbeat),
        3 => schedule_plan().prop_map(|plan| Op::PutSchedule(Box::new(plan))),
        3 => fire_plan().prop_map(Op::Fire),
        3 => (1u32..=2).prop_map(|max| Op::Tick { max }),
        3 => run_jobs().prop_map(|jobs| Op::StartRun { jobs }),
        3 => run_step_plan().prop_map(Op::StepRun),
    ]
}

/// What is only asked, and what is rare.
fn cold_op() -> impl Strategy<Value = Op> {
    let list = (
        filter(false),
        select(vec![ListOrder::Ascending, ListOrder::Descending]),
        select(vec![0u32, 1, 3, 100, 2_000]),
    );
    let groups = (0..3usize, option::of(0..4usize), select(vec![0u32, 1, 100]));
    prop_oneof![
        2 => vec(job_ref(), 0..=3).prop_map(Op::Get),
        4 => list.prop_map(|(filter, order, limit)| Op::List { filter, order, limit }),
        1 => Just(Op::Queues),
        2 => groups.prop_map(|(q, after, limit)| Op::Groups { queue: queue(q), after: after.map(group), limit }),
        1 => (0..3usize, select(vec![0u64, 60_000, 1_000_000, 3 * 86_400_000]))
            .prop_map(|(q, back_ms)| Op::Metrics { queue: queue(q), back_ms }),
        2 => (job_ref(), 0u64..4, select(vec![0u32, 1, 100])).prop_map(|(job, from, limit)| Op::ReadLogs { job, from, limit }),
        1 => (0..3usize).prop_map(|w| Op::Deregister(worker(w))),
        1 => Just(Op::Workers),
        1 => (0..2usize).prop_map(|s| Op::RemoveSchedule(schedule(s))),
        1 => Just(Op::Schedules),
        1 => (0u32..=2).prop_map(|max| Op::DueSchedules { max }),
        2 => (select(vec![FeedFrom::Beginning, FeedFrom::End, FeedFrom::Beyond]), select(vec![0u32, 1, 100]))
            .prop_map(|(from, max)| Op::ReadFeed { from, max }),
        1 => select(vec![999u64, 1_000, 5_000, u64::MAX]).prop_map(|set| Op::FeedEvents { set }),
        1 => Just(Op::Info),
        1 => Just(Op::Now),
        1 => prop_oneof![
            (0..3usize).prop_map(|q| WaitPlan::Work(queue(q))),
            job_ref().prop_map(WaitPlan::Job),
            Just(WaitPlan::Feed),
        ].prop_map(Op::Wait),
    ]
}

fn clock_op() -> impl Strategy<Value = Op> {
    let short = select(vec![1u64, 9, 10, 99, 100, 500, 999, 1_000, 5_000, 30_000, 60_000]);
    let long = select(vec![3_600_000u64, 86_400_000, 90_000_000, 15 * 86_400_000]);
    prop_oneof![
        10 => short.prop_map(|ms| Op::Advance { ms }),
        1 => long.prop_map(|ms| Op::Advance { ms }),
        10 => (any::<bool>(), any::<bool>())
            .prop_map(|(of_a_rate, just_before)| Op::AdvanceTo(Edge { of_a_rate, just_before })),
        1 => select(vec![1u64, 50, 700]).prop_map(|ms| Op::JumpBack { ms }),
    ]
}

fn job_ref() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..8usize, 2 => 0..40usize]
}

fn lease_ref() -> impl Strategy<Value = LeaseRef> {
    prop_oneof![
        12 => (0..6usize).prop_map(LeaseRef::Latest),
        3 => (0..30usize).prop_map(LeaseRef::Latest),
        1 => job_ref().prop_map(LeaseRef::Forged),
    ]
}

pub(super) fn job_plan() -> impl Strategy<Value = JobPlan> {
    let id = prop_oneof![
        20 => Just(IdPlan::Fresh),
        1 => job_ref().prop_map(IdPlan::TakenFrom),
        2 => job_ref().prop_map(IdPlan::Again),
    ];
    (id, due(), spec()).prop_map(|(id, due, spec)| JobPlan { id, due, spec })
}

fn kinds() -> impl Strategy<Value = Kinds> {
    let some = subsequence(vec![0usize, 1, 2], 0..=3);
    prop_oneof![3 => Just(Kinds::Any), 2 => some.prop_map(|all| Kinds::Only(all.into_iter().map(kind).collect()))]
}

fn offered() -> impl Strategy<Value = Labels> {
    let some = subsequence(vec![0usize, 1, 2], 0..=3);
    prop_oneof![1 => some, 1 => Just(vec![0, 1, 2])].prop_map(|all| Labels::new(all.into_iter().map(label)))
}

fn lease_ms() -> impl Strategy<Value = u64> {
    prop_oneof![12 => select(vec![10u64, 100, 1_000, 30_000]), 1 => select(vec![0u64, 9, 86_400_001])]
}

fn claim_plan() -> impl Strategy<Value = ClaimPlan> {
    let request = prop_oneof![
        16 => Just(RequestPlan::Next),
        3 => Just(RequestPlan::Again),
        1 => Just(RequestPlan::AgainOtherwise),
        1 => Just(RequestPlan::Older),
    ];
    let queues = prop_oneof![4 => subsequence(vec![0usize, 1, 2], 1..=3).prop_shuffle(), 4 => Just(vec![0, 1, 2])];
    let max = prop_oneof![12 => 1u32..=8, 4 => Just(100), 1 => Just(0)];
    (0..3usize, request, queues, kinds(), offered(), max, lease_ms()).prop_map(
        |(w, request, queues, kinds, labels, max, lease_ms)| ClaimPlan {
            worker: worker(w),
            request,
            queues: queues.into_iter().map(queue).collect(),
            kinds,
            labels,
            max,
            lease_ms,
        },
    )
}

fn outcome_kind() -> impl Strategy<Value = OutcomeKind> {
    let outputs = btree_map(select(vec!["url".to_owned(), "n".to_owned()]), "[a-c]{0,3}", 0..=2);
    let complete =
        (option::of(payload()), outputs).prop_map(|(result, outputs)| OutcomeKind::Complete { result, outputs });
    let classes = select(vec![FailureClass::Error, FailureClass::Panic, FailureClass::Timeout]);
    let delays = select(vec![0u64, 0, 1, 100, 1_000, u64::MAX]);
    let retry = prop_oneof![5 => delays.prop_map(Retry::AfterMs), 1 => Just(Retry::Never)];
    let fail = (classes, retry).prop_map(|(class, retry)| {
        let failure = Failure { attempt: 77, at: Timestamp::from_ms(5), ..Failure::new(class, "boom") };
        OutcomeKind::Fail { failure, retry }
    });
    prop_oneof![
        4 => complete,
        4 => fail,
        3 => any::<bool>().prop_map(|started| OutcomeKind::Release { started }),
        1 => Just(OutcomeKind::Complete { result: None, outputs: [(String::new(), String::new())].into() }),
    ]
}

fn report_plan() -> impl Strategy<Value = ReportPlan> {
    (0..3usize, vec((lease_ref(), outcome_kind()), 1..=3))
        .prop_map(|(w, outcomes)| ReportPlan { worker: worker(w), outcomes })
}

fn renew_plan() -> impl Strategy<Value = RenewPlan> {
    let progress = (select(vec![0u8, 50, 100, 101]), "[a-b]{0,2}");
    let progress = progress.prop_map(|(percent, message)| Progress { percent, message });
    (lease_ref(), option::weighted(0.8, lease_ms()), option::of(progress))
        .prop_map(|(lease, lease_ms, progress)| RenewPlan { lease, lease_ms, progress })
}

fn change_plan() -> impl Strategy<Value = ChangePlan> {
    let op = prop_oneof![
        3 => Just(ChangeOp::Cancel),
        2 => Just(ChangeOp::Promote),
        2 => due().prop_map(ChangeOp::Reschedule),
        2 => (-2i16..=2).prop_map(ChangeOp::Reprioritise),
        2 => payload().prop_map(ChangeOp::UpdatePayload),
        3 => due().prop_map(ChangeOp::Retry),
        2 => Just(ChangeOp::Retry(windlass_core::job::Due::DelayMs(100))),
        1 => Just(ChangeOp::Remove),
    ];
    (job_ref(), prop::bool::weighted(0.4), op).prop_map(|(job, leased, op)| ChangePlan { job, leased, op })
}

fn change_many_op() -> impl Strategy<Value = ChangeManyOp> {
    prop_oneof![
        any::<bool>().prop_map(|scheduled| ChangeManyOp::Drain { scheduled }),
        select(vec![0u64, 1_000, 100_000]).prop_map(|older_than_ms| ChangeManyOp::Clean { older_than_ms }),
        any::<bool>().prop_map(|force| ChangeManyOp::Obliterate { force }),
        Just(ChangeManyOp::RetryFailed),
        Just(ChangeManyOp::PromoteAll),
        Just(ChangeManyOp::CancelAll),
    ]
}

fn filter(with_queue: bool) -> impl Strategy<Value = Filter> {
    let share = if with_queue { 0.95 } else { 0.5 };
    let text = select(vec!["boom".to_owned(), "c1".to_owned(), "x".to_owned(), String::new()]);
    (
        option::weighted(share, 0..3usize),
        option::weighted(0.3, select(STATES.to_vec())),
        option::weighted(0.2, 0..3usize),
        option::weighted(0.2, 0..4usize),
        option::weighted(0.1, 0..3usize),
        option::weighted(0.1, text),
    )
        .prop_map(|(q, state, k, g, l, text)| Filter {
            queue: q.map(queue),
            state,
            kind: k.map(kind),
            group: g.map(group),
            label: l.map(label),
            text,
        })
}

fn group_settings() -> impl Strategy<Value = GroupSettings> {
    let cap = prop_oneof![12 => 1u32..=3, 1 => Just(0)];
    let weight = prop_oneof![12 => 1u32..=3, 1 => Just(1_001)];
    (option::of(cap), option::weighted(0.6, rate()), option::weighted(0.3, weight))
        .prop_map(|(cap, rate, weight)| GroupSettings { cap, rate, weight })
}

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![10 => 1u32..=4, 1 => Just(101)]
        .prop_flat_map(|limit| select(vec![100u64, 1_000, 60_000]).prop_map(move |per_ms| Rate { limit, per_ms }))
}

fn queue_settings() -> impl Strategy<Value = QueueSettings> {
    let rule = (option::of(select(vec![0u64, 1_000, 60_000])), option::of(0u64..=3));
    let rule = rule.prop_map(|(age_ms, count)| RetentionRule { age_ms, count });
    let retention = (rule.clone(), rule.clone(), rule).prop_map(|(succeeded, failed, cancelled)| Retention {
        succeeded,
        failed,
        cancelled,
    });
    (
        prop::bool::weighted(0.1),
        btree_set((0..3usize).prop_map(kind), 0..=1),
        option::weighted(0.25, 1u32..=4),
        option::weighted(0.4, rate()),
        option::weighted(0.2, 2u64..=6),
        retention,
        group_settings(),
    )
        .prop_map(|(paused, paused_kinds, cap, rate, len_max, retention, groups)| QueueSettings {
            paused,
            paused_kinds,
            cap,
            rate,
            len_max,
            retention,
            groups,
        })
}

fn setting() -> impl Strategy<Value = Setting> {
    prop_oneof![
        3 => (0..3usize, queue_settings()).prop_map(|(q, settings)| Setting::Queue { queue: queue(q), settings }),
        2 => (0..3usize).prop_map(|q| Setting::Queue { queue: queue(q), settings: QueueSettings::default() }),
        2 => (0..3usize, prop::bool::weighted(0.4)).prop_map(|(q, paused)| Setting::Paused { queue: queue(q), paused }),
        2 => (0..3usize, 0..3usize, prop::bool::weighted(0.4))
            .prop_map(|(q, k, paused)| Setting::KindPaused { queue: queue(q), kind: kind(k), paused }),
        4 => (0..3usize, 0..4usize, group_settings())
            .prop_map(|(q, g, settings)| Setting::Group { queue: queue(q), group: group(g), settings }),
        1 => (0..3usize, 0..4usize)
            .prop_map(|(q, g)| Setting::Group { queue: queue(q), group: group(g), settings: GroupSettings::default() }),
    ]
}

fn append_logs() -> impl Strategy<Value = Op> {
    let line = (select(vec![LogStream::Log, LogStream::Stdout, LogStream::Stderr]), vec(any::<u8>(), 0..=3));
    let line = line.prop_map(|(stream, text)| LogLine { at: Timestamp::from_ms(9), stream, text: text.into() });
    let place = prop_oneof![6 => Just((0u64, 0u64)), 2 => Just((1, 0)), 1 => Just((0, 1))];
    (lease_ref(), place, vec(line, 0..=3)).prop_map(|(lease, (behind, ahead), lines)| Op::AppendLogs {
        lease,
        behind,
        ahead,
        lines,
    })
}

fn beat() -> impl Strategy<Value = Beat> {
    let ttl = prop_oneof![10 => select(vec![1_000u64, 60_000, 3_600_000]), 1 => Just(0)];
    (0..3usize, subsequence(vec![0usize, 1, 2], 0..=3), kinds(), offered(), 0u32..=2, ttl).prop_map(
        |(w, queues, kinds, labels, running, ttl_ms)| Beat {
            worker: worker(w),
            queues: queues.into_iter().map(queue).collect(),
            kinds,
            labels,
            slots: 4,
            running,
            about: "host".to_owned(),
            ttl_ms,
        },
    )
}

fn next_in_ms() -> impl Strategy<Value = Option<u64>> {
    option::weighted(0.9, select(vec![0u64, 1_000, 60_000]))
}

fn schedule_plan() -> impl Strategy<Value = SchedulePlan> {
    let rule = prop_oneof![
        4 => select(vec![1_000u64, 60_000]).prop_map(Rule::every_ms),
        1 => Just(Rule::cron("* * * * *")),
        1 => Just(Rule::every_ms(0)),
    ];
    let overlap = select(vec![Overlap::Allow, Overlap::Skip]);
    (0..2usize, rule, spec(), overlap, option::weighted(0.3, 1u64..=2), prop::bool::weighted(0.1), next_in_ms())
        .prop_map(|(s, rule, mut spec, overlap, limit, paused, next_in_ms)| {
            spec.custom_id = None;
            SchedulePlan { name: schedule(s), rule, spec, overlap, limit, paused, next_in_ms }
        })
}

fn fire_plan() -> impl Strategy<Value = FirePlan> {
    let tick = prop_oneof![5 => Just(TickPlan::Expected), 1 => Just(TickPlan::Wrong), 2 => Just(TickPlan::OutOfTurn)];
    (0..2usize, tick, prop::bool::weighted(0.1), vec(job_plan(), 0..=2), next_in_ms(), any::<bool>()).prop_map(
        |(s, tick, stale_revision, jobs, next_in_ms, skip_if_running)| FirePlan {
            name: schedule(s),
            tick,
            stale_revision,
            jobs,
            next_in_ms,
            skip_if_running,
        },
    )
}

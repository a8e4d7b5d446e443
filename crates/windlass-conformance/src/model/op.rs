//! One step of a random sequence. It names jobs, leases and times symbolically, so that it means something on every
//! store and still means something when the steps before it were shrunk away.

use windlass_core::id::RunId;
use windlass_core::job::{Due, JobSpec, NewJob, Progress, State};
use windlass_core::name::{GroupName, Kind, Label, Labels, QueueName, ScheduleName, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::schedule::{Overlap, Rule};
use windlass_core::store::{Beat, ChangeManyOp, Filter, Kinds, ListOrder, LogLine, OutcomeKind, Setting, SweepKind};

/// One of the jobs that were named so far: 0 is the latest; past the first one lies a job that never was.
pub(crate) type JobRef = usize;

/// One of the leases that were granted so far.
#[derive(Clone, Debug)]
pub(crate) enum LeaseRef {
    /// 0 is the latest; before the first one, as `Forged`.
    Latest(usize),
    /// Made up, for some job.
    Forged(JobRef),
}

/// Which id a job is enqueued under.
#[derive(Clone, Debug)]
pub(crate) enum IdPlan {
    /// One that was never used.
    Fresh,
    /// That of another job, with the content given here.
    TakenFrom(JobRef),
    /// The very same job again, id and content.
    Again(JobRef),
}

/// A job to enqueue.
#[derive(Clone)]
pub(crate) struct JobPlan {
    pub(crate) id: IdPlan,
    pub(crate) due: Due,
    pub(crate) spec: JobSpec,
}

impl std::fmt::Debug for JobPlan {
    /// Only what differs from a plain job: the sequence is read by people.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (spec, name) = (&self.spec, format!("{}/{}", self.spec.queue, self.spec.kind));
        let plain = JobSpec::new(spec.queue.clone(), spec.kind.clone(), Payload::default());
        let mut text = f.debug_struct(&name);
        macro_rules! differing {
            ($($field:ident),+) => {
                $(if spec.$field != plain.$field {
                    text.field(stringify!($field), &spec.$field);
                })+
            };
        }
        differing!(payload, priority, lifo, attempts, stalls, labels, group, custom_id, dedup, keep_for, run);
        text.field("id", &self.id).field("due", &self.due).finish()
    }
}

/// Which number a claim carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestPlan {
    /// The worker's next one.
    Next,
    /// The worker's last request again, whatever the plan says otherwise.
    Again,
    /// The worker's last number with the content of this plan.
    AgainOtherwise,
    /// The number before the worker's last one.
    Older,
}

/// A claim.
#[derive(Clone, Debug)]
pub(crate) struct ClaimPlan {
    pub(crate) worker: WorkerId,
    pub(crate) request: RequestPlan,
    pub(crate) queues: Vec<QueueName>,
    pub(crate) kinds: Kinds,
    pub(crate) labels: Labels,
    pub(crate) max: u32,
    pub(crate) lease_ms: u64,
}

/// A report.
#[derive(Clone, Debug)]
pub(crate) struct ReportPlan {
    pub(crate) worker: WorkerId,
    pub(crate) outcomes: Vec<(LeaseRef, OutcomeKind)>,
}

/// A change of one job.
#[derive(Clone, Debug)]
pub(crate) struct ChangePlan {
    pub(crate) job: JobRef,
    /// Counted among the jobs that were leased, which have come further than most.
    pub(crate) leased: bool,
    pub(crate) op: windlass_core::store::ChangeOp,
}

/// A step of a run: it is claimed, and what it decides is committed.
#[derive(Clone, Debug)]
pub(crate) struct RunStepPlan {
    /// How many runs were started after it.
    pub(crate) run: usize,
    pub(crate) jobs: Vec<JobPlan>,
    pub(crate) cancel: Vec<JobRef>,
    pub(crate) ends: bool,
}

/// A renewal.
#[derive(Clone, Debug)]
pub(crate) struct RenewPlan {
    pub(crate) lease: LeaseRef,
    pub(crate) lease_ms: Option<u64>,
    pub(crate) progress: Option<Progress>,
}

/// Which tick a fire expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TickPlan {
    /// The schedule's next one.
    Expected,
    /// Another one.
    Wrong,
    /// None: out of turn.
    OutOfTurn,
}

/// A schedule to put.
#[derive(Clone, Debug)]
pub(crate) struct SchedulePlan {
    pub(crate) name: ScheduleName,
    pub(crate) rule: Rule,
    pub(crate) spec: JobSpec,
    pub(crate) overlap: Overlap,
    pub(crate) limit: Option<u64>,
    pub(crate) paused: bool,
    /// From now.
    pub(crate) next_in_ms: Option<u64>,
}

/// A fire.
#[derive(Clone, Debug)]
pub(crate) struct FirePlan {
    pub(crate) name: ScheduleName,
    pub(crate) tick: TickPlan,
    pub(crate) stale_revision: bool,
    pub(crate) jobs: Vec<JobPlan>,
    pub(crate) next_in_ms: Option<u64>,
    pub(crate) skip_if_running: bool,
}

/// From where to read the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedFrom {
    Beginning,
    /// Only asks where the end is.
    End,
    /// A place that the feed has not reached.
    Beyond,
}

/// What to wait for.
#[derive(Clone, Debug)]
pub(crate) enum WaitPlan {
    Work(QueueName),
    Job(JobRef),
    Feed,
}

/// How the clock moves to the next moment at which something happens by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// At which a rate lets go, if there is one; else at which a lease ends or a job is due.
    pub(crate) of_a_rate: bool,
    /// One millisecond short of it.
    pub(crate) just_before: bool,
}

/// One step. Every method of the contract is here; [`crate::faults::Method::ALL`] is checked against what was called.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Enqueue {
        jobs: Vec<JobPlan>,
        atomic: bool,
    },
    Claim(ClaimPlan),
    Renew(Vec<RenewPlan>),
    Report(ReportPlan),
    ReportAndClaim(ReportPlan, ClaimPlan),
    Change(Vec<ChangePlan>),
    ChangeMany {
        op: ChangeManyOp,
        filter: Filter,
        max: u32,
    },
    Get(Vec<JobRef>),
    List {
        filter: Filter,
        order: ListOrder,
        limit: u32,
    },
    Configure(Setting),
    Queues,
    Groups {
        queue: QueueName,
        after: Option<GroupName>,
        limit: u32,
    },
    Metrics {
        queue: QueueName,
        back_ms: u64,
    },
    Explain(JobRef),
    Sweep {
        kind: SweepKind,
        max: u32,
    },
    AppendLogs {
        lease: LeaseRef,
        behind: u64,
        ahead: u64,
        lines: Vec<LogLine>,
    },
    ReadLogs {
        job: JobRef,
        from: u64,
        limit: u32,
    },
    Heartbeat(Beat),
    Deregister(WorkerId),
    Workers,
    PutSchedule(Box<SchedulePlan>),
    RemoveSchedule(ScheduleName),
    Schedules,
    DueSchedules {
        max: u32,
    },
    Fire(FirePlan),
    /// Looks at the schedules that are due, as a program would.
    Tick {
        max: u32,
    },
    ReadFeed {
        from: FeedFrom,
        max: u32,
    },
    /// Sets the length of the feed, and asks for it.
    FeedEvents {
        set: u64,
    },
    /// Creates a run together with its first jobs.
    StartRun {
        jobs: Vec<JobPlan>,
    },
    StepRun(RunStepPlan),
    Info,
    Now,
    Wait(WaitPlan),
    Advance {
        ms: u64,
    },
    AdvanceTo(Edge),
    JumpBack {
        ms: u64,
    },
}

/// What is known to all: the names that the steps so far have used.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// Every id that was ever named, in order.
    pub(crate) ids: Vec<windlass_core::id::JobId>,
    /// Every job that was ever asked for.
    pub(crate) asked: Vec<NewJob>,
    /// Every run that was ever started.
    pub(crate) runs: Vec<RunId>,
    fresh: u128,
}

impl World {
    pub(crate) fn job(&self, k: JobRef) -> windlass_core::id::JobId {
        let nobody = windlass_core::id::JobId::from_parts(0, u128::from(u32::MAX));
        self.ids.iter().rev().nth(k).copied().unwrap_or(nobody)
    }

    /// The jobs that the plans mean now.
    pub(crate) fn jobs(&self, plans: &[JobPlan]) -> Vec<NewJob> {
        let mut fresh = self.fresh;
        let resolve = |plan: &JobPlan| {
            fresh += 1;
            let own = windlass_core::id::JobId::from_parts(0, fresh);
            let plain = |id| NewJob { id, due: plan.due, spec: plan.spec.clone() };
            match plan.id {
                IdPlan::Fresh => plain(own),
                IdPlan::TakenFrom(job) => plain(if self.ids.is_empty() { own } else { self.job(job % self.ids.len()) }),
                IdPlan::Again(job) => match self.asked.len() {
                    0 => plain(own),
                    len => self.asked[len - 1 - job % len].clone(),
                },
            }
        };
        plans.iter().map(resolve).collect()
    }

    /// The run that is started next.
    pub(crate) fn next_run(&self) -> RunId {
        RunId::from_parts(0, self.runs.len() as u128 + 1)
    }

    /// One of the runs that were started so far: 0 is the latest; past the first one lies a run that never was.
    pub(crate) fn run(&self, k: usize) -> RunId {
        self.runs.iter().rev().nth(k).copied().unwrap_or(RunId::from_parts(0, u128::from(u32::MAX)))
    }

    /// The jobs that the plans of a step of this run mean now.
    pub(crate) fn jobs_of(&self, run: RunId, plans: &[JobPlan]) -> Vec<NewJob> {
        let mut jobs = self.jobs(plans);
        jobs.iter_mut().for_each(|job| job.spec.run = Some(run));
        jobs
    }

    /// The step was made: its names are known from now on.
    pub(crate) fn learn(&mut self, op: &Op) {
        if let Op::StartRun { .. } = op {
            self.runs.push(self.next_run());
        }
        let (Op::Enqueue { jobs, .. }
        | Op::Fire(FirePlan { jobs, .. })
        | Op::StartRun { jobs }
        | Op::StepRun(RunStepPlan { jobs, .. })) = op
        else {
            return;
        };
        let jobs = self.jobs(jobs);
        self.fresh += jobs.len() as u128;
        jobs.iter().for_each(|job| self.learn_id(job.effective_id()));
        self.asked.extend(jobs);
    }

    pub(crate) fn learn_id(&mut self, id: windlass_core::id::JobId) {
        if !self.ids.contains(&id) {
            self.ids.push(id);
        }
    }
}

/// The states in which a filter may ask for jobs.
pub(crate) const STATES: [State; 6] = State::ALL;

pub(crate) fn queue(k: usize) -> QueueName {
    QueueName::new(["mail", "a}b{c", "é*"][k % 3]).unwrap()
}

pub(crate) fn kind(k: usize) -> Kind {
    Kind::new(["email", "thumb@2", "invoice"][k % 3]).unwrap()
}

pub(crate) fn group(k: usize) -> GroupName {
    GroupName::new(["acme", "beta", "corp", "d:d"][k % 4]).unwrap()
}

pub(crate) fn label(k: usize) -> Label {
    Label::new(["gpu", "linux", "eu"][k % 3]).unwrap()
}

pub(crate) fn worker(k: usize) -> WorkerId {
    WorkerId::new(["w1", "w2", "w3"][k % 3]).unwrap()
}

pub(crate) fn schedule(k: usize) -> ScheduleName {
    ScheduleName::new(["nightly", "often"][k % 2]).unwrap()
}

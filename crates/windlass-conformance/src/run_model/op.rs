//! One step of a random sequence about runs. Runs, leases and jobs are named by how many were named
//! after them (0 is the latest), so that a step still means something when the steps before it were taken away.

use windlass_core::store::{RunReuse, RunState, SweepKind};

/// A message, to be sent or to be part of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessagePlan {
    pub(super) run: usize,
    pub(super) interrupts: bool,
    pub(super) reopens: bool,
    /// Only for an ended run: with its history as it is, or with one entry more.
    pub(super) ended: Option<bool>,
    pub(super) terminates: bool,
    pub(super) only_if_stuck: bool,
    /// The id of the message, of a few.
    pub(super) id: Option<u64>,
}

/// Under which id a step starts a job.
#[derive(Clone, Copy, Debug)]
pub(super) enum JobIdPlan {
    Fresh,
    /// The id of another job, with another content.
    Taken(usize),
    /// The same job once more.
    Again(usize),
}

/// A job of a step.
#[derive(Clone, Debug)]
pub(super) struct JobPlan {
    pub(super) id: JobIdPlan,
    pub(super) queue: usize,
    pub(super) group: Option<usize>,
    /// The cap for its group, if it has one.
    pub(super) group_cap: Option<u32>,
    pub(super) delay_ms: Option<u64>,
    pub(super) attempts: u32,
    pub(super) stalls: u32,
    /// How long it is kept after it has ended.
    pub(super) keep_ms: Option<u64>,
}

/// What an engine decides.
#[derive(Clone, Debug)]
pub(super) struct StepPlan {
    pub(super) entries: usize,
    pub(super) jobs: Vec<JobPlan>,
    pub(super) cancel: Vec<usize>,
    pub(super) cancel_unclaimed: Vec<usize>,
    pub(super) messages: Vec<MessagePlan>,
    pub(super) wake_ms: Option<u64>,
    pub(super) state: RunState,
    pub(super) stuck: bool,
    pub(super) runs: Vec<ChildPlan>,
    pub(super) publishes: bool,
    pub(super) labels: Option<usize>,
    /// Gives a result and an error, if it ends the run or should not.
    pub(super) has_end: bool,
    /// Begins a segment of this kind, after so many of the entries.
    pub(super) segment: Option<(usize, u32)>,
}

/// A run that a step creates.
#[derive(Clone, Debug)]
pub(super) struct ChildPlan {
    pub(super) id: IdPlan,
    pub(super) reuse: RunReuse,
    /// Ends in its first step.
    pub(super) ends: bool,
    /// Names another parent, which is refused.
    pub(super) is_stranger: bool,
}

/// Under which id a run is created.
#[derive(Clone, Copy, Debug)]
pub(super) enum IdPlan {
    Fresh,
    /// That of another one, and the same content.
    Again(usize),
    /// That of another one.
    Taken(usize),
}

/// Which length of the history a commit is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum LengthPlan {
    AsKnown,
    OneMore,
    OneLess,
}

/// A run to create.
#[derive(Clone, Debug)]
pub(super) struct RunPlan {
    pub(super) id: IdPlan,
    pub(super) kind: usize,
    pub(super) keep_ms: Option<u64>,
    pub(super) parent: Option<usize>,
    pub(super) reuse: RunReuse,
    pub(super) nonce: Option<u64>,
    pub(super) labels: Option<usize>,
    pub(super) job_results: bool,
    /// Ids of messages.
    pub(super) messages: Vec<u64>,
    pub(super) step: StepPlan,
}

/// How much of the inbox a commit has handled.
#[derive(Clone, Copy, Debug)]
pub(super) enum InboxPlan {
    AsClaimed,
    Nothing,
    Beyond,
}

/// Which items a commit takes, beside a prefix: those of the ones that the lease was shown whose bit is set.
pub(super) type TakenPlan = Option<u64>;

/// A commit.
#[derive(Clone, Debug)]
pub(super) struct CommitPlan {
    /// `None` for one that was made up.
    pub(super) lease: Option<usize>,
    pub(super) length: LengthPlan,
    pub(super) inbox: InboxPlan,
    pub(super) taken: TakenPlan,
    pub(super) requires_read: bool,
    pub(super) keep_ms: Option<u64>,
    pub(super) step: StepPlan,
}

/// A renewal of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenewalPlan {
    /// `None` for one that was made up.
    pub(super) lease: Option<usize>,
    /// From where on items are returned: behind those that the lease was shown, from the beginning, or from beyond the inbox.
    pub(super) from: InboxPlan,
    pub(super) lease_ms: u64,
}

/// How an attempt of a job ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum EndPlan {
    /// With so many outputs, and with a result or without.
    Complete {
        outputs: usize,
        result: bool,
    },
    /// `None` for a failure that is not retried.
    Fail {
        retry_ms: Option<u64>,
        detail: bool,
    },
    Release {
        started: bool,
    },
}

/// A claim of jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakePlan {
    pub(super) count: u32,
    pub(super) lease_ms: u64,
}

/// A change of a job.
#[derive(Clone, Copy, Debug)]
pub(super) enum JobChange {
    Cancel,
    Remove,
    Retry,
    Promote,
}

/// A filter of a list, beside the state.
#[derive(Clone, Copy, Debug)]
pub(super) enum FilterPlan {
    None,
    Kind(usize),
    Stuck(bool),
    Parent(usize),
    Label(usize),
}

/// One step. `by` is the engine that makes it; each has a handle of its own where the store can be opened twice.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create {
        by: usize,
        runs: Vec<RunPlan>,
    },
    Claim {
        by: usize,
        run: Option<usize>,
        kinds: Vec<usize>,
        max: u32,
        lease_ms: u64,
        history_bytes_max: u32,
    },
    Renew {
        by: usize,
        renewals: Vec<RenewalPlan>,
    },
    Commit {
        by: usize,
        commits: Vec<CommitPlan>,
    },
    /// The commits of the call before, as they were.
    CommitAgain {
        by: usize,
    },
    Send {
        by: usize,
        messages: Vec<MessagePlan>,
    },
    /// More messages than one claim or renewal returns, or larger ones.
    Flood {
        run: usize,
        /// `run` is then a lease: the messages go to its run, and the lease is renewed afterwards.
        is_lease: bool,
        count: usize,
        bytes: usize,
    },
    Remove(Vec<usize>),
    List {
        state: Option<RunState>,
        filter: FilterPlan,
        descending: bool,
        limit: u32,
    },
    TakeJobs(TakePlan),
    /// Ends attempts, and claims in the same call or not.
    EndJobs {
        ends: Vec<(usize, EndPlan)>,
        take: Option<TakePlan>,
    },
    ChangeJobs(Vec<(usize, JobChange)>),
    /// Cancels all jobs of a queue.
    CancelQueue(usize),
    Sweep(SweepKind),
    Advance {
        ms: u64,
    },
}

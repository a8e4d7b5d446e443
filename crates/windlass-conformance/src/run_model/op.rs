//! One step of a random sequence about runs, and how it is chosen. Runs, leases and jobs are named by how many were named
//! after them (0 is the latest), so that a step still means something when the steps before it were taken away.

use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::RunState;

/// A message, to be sent or to be part of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessagePlan {
    pub(super) run: usize,
    pub(super) interrupts: bool,
    pub(super) reopens: bool,
    /// Only for an ended run: with its history as it is, or with one entry more.
    pub(super) ended: Option<bool>,
}

/// What an engine decides.
#[derive(Clone, Debug)]
pub(super) struct StepPlan {
    pub(super) entries: usize,
    pub(super) jobs: usize,
    pub(super) cancel: Vec<usize>,
    pub(super) messages: Vec<MessagePlan>,
    pub(super) wake_ms: Option<u64>,
    pub(super) state: RunState,
    pub(super) stuck: bool,
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

/// How much of the inbox a commit has handled.
#[derive(Clone, Copy, Debug)]
pub(super) enum InboxPlan {
    AsClaimed,
    Nothing,
    Beyond,
}

/// A commit.
#[derive(Clone, Debug)]
pub(super) struct CommitPlan {
    /// `None` for one that was made up.
    pub(super) lease: Option<usize>,
    pub(super) length: LengthPlan,
    pub(super) inbox: InboxPlan,
    pub(super) keep_ms: Option<u64>,
    pub(super) step: StepPlan,
}

/// One step.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create {
        id: IdPlan,
        kind: usize,
        step: StepPlan,
    },
    Claim {
        run: Option<usize>,
        kinds: Vec<usize>,
        max: u32,
        lease_ms: u64,
    },
    Commit(CommitPlan),
    /// The commit before, as it was.
    CommitAgain,
    Send(Vec<MessagePlan>),
    Remove(Vec<usize>),
    List {
        state: Option<RunState>,
        descending: bool,
        limit: u32,
    },
    TakeJob,
    EndJob {
        taken: usize,
        fails: bool,
    },
    CancelJob(usize),
    RemoveJob(usize),
    Advance {
        ms: u64,
    },
}

/// Chooses steps; the same seed chooses the same ones.
pub(super) struct Chooser(StrongRandom);

impl Chooser {
    pub(super) fn new(seed: u64) -> Self {
        Self(StrongRandom::seeded(seed))
    }

    fn below(&self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    fn near(&self) -> usize {
        // Mostly one of the latest; at times one that never was.
        usize::try_from(if self.below(4) == 0 { self.below(9) } else { self.below(3) }).unwrap_or_default()
    }

    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn small(&self, n: u64) -> usize {
        usize::try_from(self.below(n)).unwrap_or_default()
    }

    fn message(&self) -> MessagePlan {
        let reopens = self.one_in(3);
        let ended = (reopens && self.one_in(2)).then(|| !self.one_in(4));
        MessagePlan { run: self.near(), interrupts: self.one_in(4), reopens, ended }
    }

    fn step(&self) -> StepPlan {
        let state = match self.below(12) {
            0 => RunState::Succeeded,
            1 => RunState::Failed,
            2 => RunState::Cancelled,
            _ => RunState::Running,
        };
        // One that ends its run and starts jobs is refused; that need not happen often.
        let jobs = if state.is_terminal() && !self.one_in(6) { 0 } else { self.small(3) };
        StepPlan {
            entries: self.small(3),
            jobs,
            cancel: (0..self.below(4) / 2).map(|_| self.near()).collect(),
            messages: (0..self.below(6) / 4).map(|_| self.message()).collect(),
            wake_ms: (self.one_in(3)).then(|| self.below(3) * 200),
            state,
            stuck: self.one_in(6),
        }
    }

    fn commit(&self) -> CommitPlan {
        CommitPlan {
            lease: (!self.one_in(20)).then(|| self.small(3)),
            length: match self.below(16) {
                0 => LengthPlan::OneMore,
                1 | 2 => LengthPlan::OneLess,
                _ => LengthPlan::AsKnown,
            },
            inbox: match self.below(10) {
                0 => InboxPlan::Beyond,
                1..4 => InboxPlan::Nothing,
                _ => InboxPlan::AsClaimed,
            },
            keep_ms: self.one_in(4).then_some(300),
            step: self.step(),
        }
    }

    fn create(&self) -> Op {
        let id = match self.below(8) {
            0 => IdPlan::Again(self.near()),
            1 => IdPlan::Taken(self.near()),
            _ => IdPlan::Fresh,
        };
        Op::Create { id, kind: self.small(2), step: self.step() }
    }

    fn claim(&self) -> Op {
        let kinds = match self.below(4) {
            0 => vec![0],
            1 => vec![1],
            2 => vec![1, 0],
            _ => vec![0, 1],
        };
        let max = if self.one_in(2) { 100 } else { 1 + u32::try_from(self.below(2)).unwrap_or_default() };
        Op::Claim { run: self.one_in(3).then(|| self.near()), kinds, max, lease_ms: 200 + self.below(2) * 200 }
    }

    fn list(&self) -> Op {
        let state = RunState::ALL.get(self.small(6)).copied();
        Op::List { state, descending: self.one_in(2), limit: 1 + u32::try_from(self.below(4)).unwrap_or_default() }
    }

    pub(super) fn next(&self) -> Op {
        match self.below(40) {
            0..6 => self.create(),
            6..14 => self.claim(),
            14..22 => Op::Commit(self.commit()),
            22 => Op::CommitAgain,
            23..28 => Op::Send((0..=self.below(2)).map(|_| self.message()).collect()),
            28 | 29 => Op::Remove((0..=self.below(2)).map(|_| self.near()).collect()),
            30 | 31 => self.list(),
            32 | 33 => Op::TakeJob,
            34 | 35 => Op::EndJob { taken: self.near(), fails: self.one_in(3) },
            36 => Op::CancelJob(self.near()),
            37 => Op::RemoveJob(self.near()),
            _ => Op::Advance { ms: self.below(5) * 100 },
        }
    }
}

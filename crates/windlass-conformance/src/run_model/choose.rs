//! Chooses the steps of a random sequence about runs.

use super::op::{
    ChildPlan, CommitPlan, EndPlan, FilterPlan, IdPlan, InboxPlan, JobChange, JobIdPlan, JobPlan, LengthPlan,
    MessagePlan, Op, RenewalPlan, RunPlan, StepPlan, TakePlan,
};
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{RunReuse, RunState, SweepKind};

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
        if self.one_in(4) { self.small(9) } else { self.small(3) }
    }

    fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn small(&self, n: u64) -> usize {
        usize::try_from(self.below(n)).unwrap_or_default()
    }

    fn number(&self, n: u64) -> u32 {
        u32::try_from(self.below(n)).unwrap_or_default()
    }

    fn message(&self) -> MessagePlan {
        let reopens = self.one_in(3);
        let ended = (reopens && self.one_in(2)).then(|| !self.one_in(4));
        let terminates = !reopens && self.one_in(8) || self.one_in(80);
        let id = self.one_in(2).then(|| self.below(4));
        let only_if_stuck = reopens && ended.is_none() && self.one_in(2) || self.one_in(80);
        MessagePlan { run: self.near(), interrupts: self.one_in(4), reopens, ended, terminates, only_if_stuck, id }
    }

    fn job(&self) -> JobPlan {
        let id = match self.below(40) {
            0 => JobIdPlan::Taken(self.near()),
            1 => JobIdPlan::Again(self.near()),
            _ => JobIdPlan::Fresh,
        };
        JobPlan {
            id,
            queue: self.small(4) / 2,
            group: (!self.one_in(3)).then(|| self.small(2)),
            group_cap: self.one_in(2).then(|| 1 + self.number(3)),
            delay_ms: self.one_in(4).then(|| self.below(3) * 100),
            attempts: 1 + self.number(2),
            stalls: self.number(2),
            keep_ms: self.one_in(6).then(|| 100 + self.below(2) * 300),
        }
    }

    fn step(&self) -> StepPlan {
        let state = match self.below(16) {
            0 => RunState::Succeeded,
            1 => RunState::Failed,
            2 => RunState::Cancelled,
            3 => RunState::TimedOut,
            _ => RunState::Running,
        };
        // One that ends its run and starts jobs is refused; that need not happen often.
        let jobs = if state.is_terminal() && !self.one_in(6) { 0 } else { self.below(3) };
        let runs = if state.is_terminal() && !self.one_in(6) { 0 } else { self.below(6) / 4 };
        let entries = self.small(3);
        let segment = self.one_in(8).then(|| (self.small(2), self.number(entries as u64 + 1)));
        StepPlan {
            entries,
            jobs: (0..jobs).map(|_| self.job()).collect(),
            cancel: (0..self.below(4) / 2).map(|_| self.near()).collect(),
            cancel_unclaimed: (0..self.below(6) / 4).map(|_| self.near()).collect(),
            messages: (0..self.below(6) / 4).map(|_| self.message()).collect(),
            wake_ms: (self.one_in(3)).then(|| self.below(3) * 200),
            state,
            stuck: self.one_in(6),
            runs: (0..runs).map(|_| self.child()).collect(),
            publishes: self.one_in(4),
            labels: self.one_in(4).then(|| self.small(3)),
            has_end: if state.is_terminal() { self.one_in(2) } else { self.one_in(40) },
            segment: if state.is_terminal() && !self.one_in(6) { None } else { segment },
        }
    }

    fn reuse(&self) -> RunReuse {
        [RunReuse::Never, RunReuse::IfEnded, RunReuse::IfNotSucceeded][self.small(3)]
    }

    fn child(&self) -> ChildPlan {
        let id = match self.below(4) {
            0 => IdPlan::Again(self.near()),
            1 => IdPlan::Taken(self.near()),
            _ => IdPlan::Fresh,
        };
        ChildPlan { id, reuse: self.reuse(), ends: self.one_in(4), is_stranger: self.one_in(30) }
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
            taken: self.one_in(2).then(|| self.0.next_u64()),
            requires_read: self.one_in(4),
            keep_ms: self.one_in(4).then_some(300),
            step: self.step(),
        }
    }

    fn renewal(&self) -> RenewalPlan {
        RenewalPlan {
            lease: (!self.one_in(20)).then(|| self.small(3)),
            from: match self.below(10) {
                0 => InboxPlan::Beyond,
                1 | 2 => InboxPlan::Nothing,
                _ => InboxPlan::AsClaimed,
            },
            lease_ms: if self.one_in(20) { 0 } else { 100 + self.below(4) * 100 },
        }
    }

    fn run(&self) -> RunPlan {
        let id = match self.below(8) {
            0 => IdPlan::Again(self.near()),
            1 => IdPlan::Taken(self.near()),
            _ => IdPlan::Fresh,
        };
        let keep_ms = self.one_in(2).then(|| self.below(3) * 200);
        RunPlan {
            id,
            kind: self.small(2),
            keep_ms,
            parent: self.one_in(4).then(|| self.near()),
            reuse: self.reuse(),
            nonce: self.one_in(3).then(|| self.below(2)),
            labels: self.one_in(3).then(|| self.small(3)),
            job_results: self.one_in(2),
            messages: (0..self.below(6) / 3).map(|_| self.below(6)).collect(),
            step: self.step(),
        }
    }

    fn claim(&self) -> Op {
        let kinds = match self.below(4) {
            0 => vec![0],
            1 => vec![1],
            2 => vec![1, 0],
            _ => vec![0, 1],
        };
        let max = if self.one_in(2) { 100 } else { 1 + self.number(2) };
        let run = self.one_in(3).then(|| self.near());
        let history_bytes_max = [0, 40, 1_000][self.small(3)];
        Op::Claim { by: self.small(2), run, kinds, max, lease_ms: 200 + self.below(2) * 200, history_bytes_max }
    }

    fn list(&self) -> Op {
        let state = RunState::ALL.get(self.small(12)).copied();
        let filter = match self.below(6) {
            0 => FilterPlan::Kind(self.small(2)),
            1 => FilterPlan::Stuck(self.one_in(2)),
            2 => FilterPlan::Parent(self.near()),
            3 => FilterPlan::Label(self.small(3)),
            _ => FilterPlan::None,
        };
        Op::List { state, filter, descending: self.one_in(2), limit: 1 + self.number(4) }
    }

    /// How many a call has: mostly one.
    fn several(&self) -> u64 {
        if self.one_in(3) { 2 + self.below(3) } else { 1 }
    }

    fn take(&self) -> TakePlan {
        TakePlan { count: 1 + self.number(4), lease_ms: if self.one_in(3) { 150 } else { 30_000 } }
    }

    fn end(&self) -> EndPlan {
        match self.below(10) {
            0..5 => EndPlan::Complete { outputs: self.small(4).saturating_sub(1), result: self.one_in(4) },
            5..8 => EndPlan::Fail { retry_ms: self.one_in(2).then(|| self.below(3) * 100), detail: self.one_in(3) },
            _ => EndPlan::Release { started: self.one_in(2) },
        }
    }

    fn change(&self) -> JobChange {
        match self.below(8) {
            0..3 => JobChange::Cancel,
            3 | 4 => JobChange::Remove,
            5 | 6 => JobChange::Retry,
            _ => JobChange::Promote,
        }
    }

    /// What happens to jobs.
    fn job_op(&self) -> Op {
        match self.below(16) {
            0..5 => Op::TakeJobs(self.take()),
            5..11 => {
                let ends = (0..self.several()).map(|_| (self.near(), self.end())).collect();
                Op::EndJobs { ends, take: self.one_in(3).then(|| self.take()) }
            }
            11..15 => Op::ChangeJobs((0..self.several()).map(|_| (self.near(), self.change())).collect()),
            _ => Op::CancelQueue(self.small(2)),
        }
    }

    fn flood(&self) -> Op {
        let (count, bytes) = if self.one_in(8) { (4, 1_500_000) } else { (800 + self.small(600), 0) };
        Op::Flood { run: self.small(2), is_lease: self.one_in(2), count, bytes }
    }

    pub(super) fn next(&self) -> Op {
        let by = self.small(2);
        match self.below(48) {
            _ if self.one_in(400) => self.flood(),
            0..6 => Op::Create { by, runs: (0..self.several()).map(|_| self.run()).collect() },
            6..14 => self.claim(),
            14..22 => Op::Commit { by, commits: (0..self.several()).map(|_| self.commit()).collect() },
            22 => Op::CommitAgain { by },
            23..27 => Op::Send { by, messages: (0..=self.below(2)).map(|_| self.message()).collect() },
            27 | 28 => Op::Remove((0..=self.below(2)).map(|_| self.near()).collect()),
            29 | 30 => self.list(),
            31..39 => self.job_op(),
            39 => Op::Sweep(SweepKind::ALL[self.small(3)]),
            40 => Op::Sweep(SweepKind::Reap),
            41..45 => Op::Renew { by, renewals: (0..self.several()).map(|_| self.renewal()).collect() },
            _ => Op::Advance { ms: self.below(5) * 100 },
        }
    }
}

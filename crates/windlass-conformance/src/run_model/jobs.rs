//! What happens to the jobs of runs. What becomes of a job is the machine's business, and is read from the store; what its
//! run is told of it is compared.

use super::Seen;
use super::caps::{Caps, claimable};
use super::drive::{Checked, Driver, equal, nth_latest};
use super::op::{EndPlan, JobChange, Op, TakePlan};
use crate::ctx::{complete, queue_name, worker_id};
use windlass_core::id::JobId;
use windlass_core::job::{Due, Failure, FailureClass, Job, Retry, State};
use windlass_core::name::Labels;
use windlass_core::payload::Payload;
use windlass_core::store::{
    Change, ChangeMany, ChangeManyOp, ChangeOp, ClaimRequest, ClaimedJob, Filter, JobEnd, Kinds, Outcome, OutcomeKind,
    ReportRequest, Sweep, SweepKind,
};
use windlass_core::time::Timestamp;

impl Driver {
    /// Does a step about jobs, and notes the ends of jobs in the inboxes of their runs.
    pub(super) async fn work(&mut self, op: &Op, seen: &mut Seen) -> Checked {
        let now = self.ctx.now().await;
        // The jobs whose ends come in this order.
        let mut ordered: Vec<JobId> = Vec::new();
        match op {
            Op::TakeJobs(plan) => {
                let claim = self.next_claim(*plan);
                let claimed = self.ctx.store.claim(claim).await.unwrap().jobs;
                // Jobs that a claim makes ready may bring a cap, which holds for the claim.
                let caps = self.caps_now().await;
                let may = claimable(&self.views, &caps, now);
                if may < claimable(&self.views, &Caps::new(), now).min(plan.count as usize) {
                    seen.insert("a claim limited by the cap of a group".to_owned());
                }
                equal("jobs to be claimed", may.min(plan.count as usize), claimed.len())?;
                self.note_taken(claimed);
            }
            Op::EndJobs { ends, take } => ordered = self.end_jobs(ends, *take, now, seen).await?,
            Op::ChangeJobs(changes) => ordered = self.change_jobs(changes, seen).await,
            Op::CancelQueue(k) => self.cancel_queue(["q", "p"][k % 2]).await,
            Op::Sweep(kind) => self.sweep(*kind, now, seen).await?,
            _ => return Err(format!("nobody does {op:?}")),
        }
        let batch = self.book.next_number();
        self.note_ends(&ordered, batch, now, seen).await;
        Ok(())
    }

    fn next_claim(&mut self, plan: TakePlan) -> ClaimRequest {
        self.requests += 1;
        ClaimRequest {
            worker: worker_id("w"),
            request_id: self.requests,
            queues: vec![queue_name("q"), queue_name("p")],
            kinds: Kinds::Any,
            labels: Labels::default(),
            max: plan.count,
            lease_ms: plan.lease_ms,
        }
    }

    fn note_taken(&mut self, claimed: Vec<ClaimedJob>) {
        self.taken.extend(claimed.into_iter().map(|job| job.lease));
    }

    fn outcome(&mut self, plan: EndPlan) -> OutcomeKind {
        match plan {
            EndPlan::Complete { outputs: 0, result: false } => complete(),
            EndPlan::Complete { outputs, result } => OutcomeKind::Complete {
                result: result.then(|| Payload::new("text/plain", self.words("result").into_bytes())),
                outputs: (0..outputs).map(|k| (format!("key{k}"), self.words("\"output\"\n"))).collect(),
            },
            EndPlan::Fail { retry_ms, detail } => {
                let words = self.words("no\n\"\\");
                let detail = detail.then(|| serde_json::json!({ "words \\ \n": self.words("\\ \"") }));
                let failure = Failure { detail, ..Failure::new(FailureClass::Error, words) };
                OutcomeKind::Fail { failure, retry: retry_ms.map_or(Retry::Never, Retry::AfterMs) }
            }
            EndPlan::Release { started } => OutcomeKind::Release { started },
        }
    }

    async fn end_jobs(
        &mut self,
        ends: &[(usize, EndPlan)],
        take: Option<TakePlan>,
        now: Timestamp,
        seen: &mut Seen,
    ) -> Result<Vec<JobId>, String> {
        let mut outcomes = Vec::new();
        for (k, plan) in ends {
            let Some(at) = self.taken.len().checked_sub(k + 1) else { continue };
            let lease = self.taken.remove(at);
            outcomes.push(Outcome { lease, kind: self.outcome(*plan) });
        }
        let report = ReportRequest { worker: worker_id("w"), outcomes: outcomes.clone() };
        let reported = match take {
            Some(take) => {
                let claim = self.next_claim(take);
                let both = self.ctx.store.report_and_claim(report, claim).await.unwrap();
                let claimed: Vec<JobId> = both.claimed.jobs.iter().map(|job| job.lease.job).collect();
                self.note_taken(both.claimed.jobs);
                let left = claimable(&self.jobs_now().await, &self.caps_now().await, now);
                if claimed.len() < take.count as usize {
                    equal("jobs that are left by a claim", 0, left)?;
                }
                both.reported
            }
            None => self.ctx.store.report(report).await.unwrap(),
        };
        for (outcome, answer) in outcomes.iter().zip(&reported) {
            seen.insert(format!("an outcome {}", if answer.is_ok() { "accepted" } else { "refused" }));
            let ended = answer.as_ref().ok().filter(|reported| !reported.repeated).map(|reported| reported.state);
            self.check_outcome(outcome, ended).await?;
        }
        Ok(outcomes.into_iter().map(|outcome| outcome.lease.job).collect())
    }

    /// What was reported is what the job shows.
    async fn check_outcome(&self, outcome: &Outcome, state: Option<State>) -> Checked {
        let Some(job) = self.ctx.get(outcome.lease.job).await else { return Ok(()) };
        match (&outcome.kind, state) {
            (OutcomeKind::Complete { result, outputs }, Some(State::Succeeded)) => {
                equal("what the handler returned", (result, outputs), (&job.result, &job.outputs))
            }
            (OutcomeKind::Fail { failure, .. }, Some(State::Failed)) => {
                let last = job.failures.last().map(|last| (&last.message, &last.detail));
                equal("what went wrong", Some((&failure.message, &failure.detail)), last)
            }
            _ => Ok(()),
        }
    }

    async fn change_jobs(&mut self, plans: &[(usize, JobChange)], seen: &mut Seen) -> Vec<JobId> {
        let mut changes: Vec<Change> = Vec::new();
        for (k, change) in plans {
            let Some(id) = nth_latest(&self.jobs, *k).map(|job| job.id) else { continue };
            let op = match change {
                JobChange::Cancel => ChangeOp::Cancel,
                JobChange::Remove => ChangeOp::Remove,
                JobChange::Retry => ChangeOp::Retry(Due::Now),
                JobChange::Promote => ChangeOp::Promote,
            };
            // One change of each job, so that how it stands afterwards tells what happened.
            if changes.iter().all(|change| change.id != id) {
                changes.push(Change { id, op });
            }
        }
        let answers = self.ctx.store.change(changes.clone()).await.unwrap();
        for answer in &answers {
            seen.insert(format!("a job {}", if answer.is_ok() { "changed" } else { "refused" }));
        }
        changes.into_iter().map(|change| change.id).collect()
    }

    async fn cancel_queue(&self, queue: &str) {
        let filter = Filter::queue(queue_name(queue));
        let mut request = ChangeMany { op: ChangeManyOp::CancelAll, filter, max: 2, cursor: None };
        for _ in 0..10_000 {
            request.cursor = self.ctx.store.change_many(request.clone()).await.unwrap().cursor;
            if request.cursor.is_none() {
                return;
            }
        }
        panic!("{request:?} never ends");
    }

    async fn sweep(&mut self, kind: SweepKind, now: Timestamp, seen: &mut Seen) -> Checked {
        let waking = self.book.waking(now);
        let lease_end = |job: &Job| job.lease.as_ref().map(|lease| lease.expires_at);
        let expired = self.views.values().filter_map(lease_end).filter(|at| *at <= now).count();
        if kind != SweepKind::Reap {
            self.ctx.sweep(kind).await;
            if kind == SweepKind::Prune && self.book.prune(now) > 0 {
                seen.insert("pruned".to_owned());
            }
            return Ok(());
        }
        let swept = self.ctx.store.sweep(Sweep { kind, max: 1_000 }).await.unwrap();
        // Which of the two a store does first is its business. A run that was told of a job is not woken any more.
        let batch = self.book.next_number();
        self.note_ends(&[], batch, now, seen).await;
        let fewest = expired + self.book.waking(now);
        self.book.wake(batch, now);
        if waking > 0 {
            seen.insert("woken by a sweep".to_owned());
        }
        if !(fewest as u64..=(expired + waking) as u64).contains(&swept.handled) {
            return Err(format!("{swept:?}, but {expired} leases and {waking} runs were due"));
        }
        let left = self.jobs_now().await.values().filter_map(lease_end).chain(self.book.next_look()).min();
        equal("when to reap again", left, swept.next_at)
    }

    /// Tells the book which jobs have ended by this step: those that were listed in this order, then the others in any.
    async fn note_ends(&mut self, ordered: &[JobId], batch: u64, now: Timestamp, seen: &mut Seen) {
        let jobs = self.jobs_now().await;
        let ids: Vec<JobId> = self.book.jobs.keys().copied().filter(|id| !ordered.contains(id)).collect();
        for (id, listed) in ordered.iter().map(|id| (*id, true)).chain(ids.into_iter().map(|id| (id, false))) {
            let Some(note) = self.book.jobs.get_mut(&id) else { continue };
            let (was_open, job) = (note.is_open(), jobs.get(&id));
            note.state = job.map(|job| job.state);
            if let Some(job) = job {
                (note.attempt, note.claimed_at) = (job.attempt, job.claimed_at);
            }
            if !was_open || note.is_open() {
                continue;
            }
            let (state, attempt, claimed_at) = (note.state, note.attempt, note.claimed_at);
            let error = job.filter(|job| job.state == State::Failed).and_then(|job| job.failures.last());
            let outputs = job.filter(|job| job.state == State::Succeeded).map(|job| job.outputs.clone());
            let end = JobEnd {
                job: id,
                state,
                attempt,
                claimed_at,
                at: now,
                error: error.map(|failure| failure.message.clone()),
                class: error.map(|failure| failure.class),
                detail: error.and_then(|failure| failure.detail.clone()),
                outputs: outputs.unwrap_or_default(),
                result: job.filter(|job| job.state == State::Succeeded).and_then(|job| job.result.clone()),
            };
            seen.insert(format!("the end of a job: {state:?}"));
            let batch = if listed { self.book.next_number() } else { batch };
            self.book.job_ended(end, batch);
        }
    }
}

//! Makes what the plans of a random sequence name: messages, jobs, steps, runs and commits.

use super::drive::{Driver, Made, kind, nth_latest};
use super::op::{
    ChildPlan, CommitPlan, IdPlan, InboxPlan, JobIdPlan, JobPlan, LengthPlan, MessagePlan, RunPlan, StepPlan,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use windlass_core::id::{JobId, RunId, Token};
use windlass_core::job::{Due, KeepFor, NewJob};
use windlass_core::name::GroupName;
use windlass_core::payload::Payload;
use windlass_core::store::{NewRun, RunCommit, RunLease, RunMessage, RunSegment, RunState, RunStep};

/// One of a few sets of labels.
fn labels(k: usize) -> BTreeMap<String, String> {
    [Some("acme"), Some("beta"), None][k % 3].map(|value| ("tenant".to_owned(), value.to_owned())).into_iter().collect()
}

impl Driver {
    pub(super) fn words(&mut self, prefix: &str) -> String {
        self.said += 1;
        format!("{prefix} {}", self.said)
    }

    pub(super) fn message(&mut self, plan: MessagePlan) -> RunMessage {
        let MessagePlan { run, interrupts, reopens, ended, terminates, only_if_stuck, id } = plan;
        let run = self.run(run);
        let length = self.book.runs.get(&run).map_or(0, |entry| entry.history.len() as u64);
        let expected_history_len = ended.map(|is_current| if is_current { length } else { length + 1 });
        let id = id.map(|id| format!("id {id}"));
        RunMessage {
            id,
            interrupts,
            reopens,
            terminates,
            only_if_stuck,
            expected_history_len,
            ..RunMessage::new(run, self.words("message"))
        }
    }

    fn made_job(&mut self, run: RunId, plan: &JobPlan) -> NewJob {
        let old = match plan.id {
            JobIdPlan::Fresh => None,
            JobIdPlan::Taken(k) | JobIdPlan::Again(k) => nth_latest(&self.jobs, k).cloned(),
        };
        if let (JobIdPlan::Again(_), Some(old)) = (plan.id, &old) {
            return old.clone();
        }
        let payload = Payload::new("text/plain", self.words("payload").into_bytes());
        let mut job = self.ctx.job_with(["q", "p"][plan.queue % 2], |spec| {
            spec.run = Some(run);
            spec.payload = payload;
            spec.group = plan.group.map(|k| GroupName::new(["acme", "beta"][k % 2]).unwrap());
            spec.group_cap = plan.group_cap.filter(|_| spec.group.is_some());
            (spec.attempts, spec.stalls) = (plan.attempts, plan.stalls);
            spec.keep_for = KeepFor { succeeded_ms: plan.keep_ms, failed_ms: plan.keep_ms };
        });
        job.due = plan.delay_ms.map_or(Due::Now, Due::DelayMs);
        job.id = old.map_or(job.id, |old| old.id);
        job
    }

    fn made_step(&mut self, run: RunId, plan: &StepPlan) -> RunStep {
        let jobs: Vec<NewJob> = plan.jobs.iter().map(|job| self.made_job(run, job)).collect();
        // The jobs that the step starts are the latest.
        let known: Vec<JobId> = self.jobs.iter().chain(&jobs).map(|job| job.id).collect();
        RunStep {
            history: (0..plan.entries).map(|_| Bytes::from(self.words("entry"))).collect(),
            jobs,
            cancel: plan.cancel.iter().filter_map(|k| nth_latest(&known, *k)).copied().collect(),
            cancel_unclaimed: plan.cancel_unclaimed.iter().filter_map(|k| nth_latest(&known, *k)).copied().collect(),
            messages: plan.messages.iter().map(|message| self.message(*message)).collect(),
            wake: plan.wake_ms.map(Due::DelayMs),
            state: plan.state,
            stuck: plan.stuck.then(|| self.words("stuck")),
            summary: self.words("summary"),
            runs: plan.runs.iter().map(|child| self.made_child(run, child)).collect(),
            published: plan.publishes.then(|| self.made_values()),
            labels: plan.labels.map(labels),
            result: plan.has_end.then(|| Payload::new("text/plain", self.words("result").into_bytes())),
            error: plan.has_end.then(|| self.words("error")),
            segment: plan.segment.map(|(kind_of, entries_before)| RunSegment {
                kind: kind(kind_of),
                input: self.words("input").into(),
                entries_before,
            }),
        }
    }

    pub(super) fn made_run(&mut self, plan: &RunPlan) -> NewRun {
        let old = self.old_run(plan.id);
        // The first step of a run begins no segment.
        let plan_of_step = StepPlan { segment: plan.step.segment.filter(|(_, n)| *n > 2), ..plan.step.clone() };
        if let (IdPlan::Again(_), Some(old)) = (plan.id, &old) {
            let messages = self.messages_of(old.id, plan);
            let step = self.made_step(old.id, &plan_of_step);
            return NewRun { step, reuse: plan.reuse, messages, ..old.clone() };
        }
        let id = old.map_or_else(|| self.ctx.ids.next_run(), |old| old.id);
        let (name, input) = (self.words("name"), Bytes::from(self.words("input")));
        let step = self.made_step(id, &plan_of_step);
        let parent = plan.parent.map(|k| self.run(k));
        NewRun {
            name,
            definition: "{}".into(),
            input,
            keep_ms: plan.keep_ms,
            step,
            parent,
            reuse: plan.reuse,
            nonce: plan.nonce.map(Token::from_bits),
            labels: plan.labels.map(labels).unwrap_or_default(),
            job_results: plan.job_results,
            messages: self.messages_of(id, plan),
            ..NewRun::new(id, kind(plan.kind))
        }
    }

    fn messages_of(&mut self, run: RunId, plan: &RunPlan) -> Vec<RunMessage> {
        let message =
            |id: &u64| RunMessage { id: Some(format!("id {id}")), ..RunMessage::new(run, self.words("message")) };
        plan.messages.iter().map(message).collect()
    }

    fn old_run(&self, plan: IdPlan) -> Option<NewRun> {
        match plan {
            IdPlan::Fresh => None,
            IdPlan::Again(k) | IdPlan::Taken(k) => nth_latest(&self.runs, k).cloned(),
        }
    }

    fn made_child(&mut self, parent: RunId, plan: &ChildPlan) -> NewRun {
        let old = self.old_run(plan.id);
        let state = if plan.ends { RunState::Succeeded } else { RunState::Running };
        let step = RunStep { state, wake: Some(Due::Now), summary: self.words("summary"), ..RunStep::nothing() };
        let parent = Some(if plan.is_stranger { self.ctx.ids.next_run() } else { parent });
        match (plan.id, old) {
            (IdPlan::Again(_), Some(old)) => NewRun { parent, step, reuse: plan.reuse, messages: Vec::new(), ..old },
            (_, old) => {
                let id = old.map_or_else(|| self.ctx.ids.next_run(), |old| old.id);
                let input = Bytes::from(self.words("input"));
                NewRun { parent, step, reuse: plan.reuse, input, ..NewRun::new(id, kind(0)) }
            }
        }
    }

    fn made_values(&mut self) -> BTreeMap<String, Payload> {
        let value = Payload::new("text/plain", self.words("value").into_bytes());
        BTreeMap::from([("shown".to_owned(), value)])
    }

    pub(super) fn made_commit(&mut self, plan: &CommitPlan) -> Made {
        let lease = plan.lease.and_then(|k| self.leases.len().checked_sub(k + 1));
        let forged = RunLease { run: self.run(0), token: Token::from_bits(7) };
        let at = lease.map(|at| &self.leases[at]);
        let (token, known, claimed) = at.map_or((forged, 0, 0), |it| (it.lease, it.history_len, it.inbox_to));
        let is_terminated = at.is_some_and(|it| it.state == RunState::Terminated);
        let numbers = at.map_or(&[][..], |it| &it.numbers);
        let bit = |mask: u64, number: &u64| mask >> (number % 64) & 1 == 1;
        let taken = plan.taken.map(|mask| numbers.iter().copied().filter(|number| bit(mask, number)).collect());
        let mut inbox_taken: Vec<u64> = taken.unwrap_or_default();
        if matches!(plan.inbox, InboxPlan::Beyond) && plan.taken.is_some() {
            inbox_taken.push(claimed + 1_000_000);
        }
        let history_len = match plan.length {
            LengthPlan::AsKnown => known,
            LengthPlan::OneMore => known + 1,
            LengthPlan::OneLess => known.saturating_sub(1),
        };
        let inbox_to = match plan.inbox {
            InboxPlan::AsClaimed => claimed,
            InboxPlan::Beyond if plan.taken.is_none() => claimed + 1_000_000,
            InboxPlan::Nothing | InboxPlan::Beyond => 0,
        };
        let mut of_step = plan.step.clone();
        let mut keep_ms = plan.keep_ms;
        if is_terminated && plan.step.entries < 2 {
            // Mostly what a terminated run takes.
            of_step = StepPlan {
                state: RunState::Terminated,
                jobs: Vec::new(),
                runs: Vec::new(),
                has_end: false,
                stuck: false,
                segment: None,
                ..of_step
            };
            keep_ms = None;
        }
        let step = self.made_step(token.run, &of_step);
        let commit = RunCommit::new(token, history_len, step);
        let requires_read_messages = plan.requires_read;
        (lease, RunCommit { inbox_to, inbox_taken, requires_read_messages, lease_ms: keep_ms, ..commit })
    }
}

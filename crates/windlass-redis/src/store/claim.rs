//! Claim, renew, report.

use super::RedisStore;
use super::enqueue::unreadable_queue;
use crate::link::Call;
use crate::record::{Head, class_name, message_text, result_text};
use crate::reply::{Items, hex_time, maybe_time, number, odd, sound, state, text, time};
use crate::scripts::AT;
use bytes::Bytes;
use std::sync::Arc;
use windlass_core::engine::{Effects, Ended};
use windlass_core::id::{JobId, Token};
use windlass_core::job::{JobSpec, Lease, Retry, State};
use windlass_core::name::{QueueName, WorkerId};
use windlass_core::store::{
    ClaimRequest, Claimed, ClaimedJob, Outcome, OutcomeKind, RenewRequest, Renewal, Renewed, ReportRequest, Reported,
    ReportedAndClaimed, check_batch,
};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// Plans of one claim that may turn out to be stale: queues do not change that often.
const PLANS_MAX: usize = 16;

/// How long one who waits may rely on being told: a message can be lost with its connection.
const TOLD_FOR_MS: u64 = 20_000;

/// What a claim came to.
enum Answered {
    /// It was done.
    Done(Items),
    /// It was planned by what is not so any more.
    Stale,
}

impl RedisStore {
    pub(super) async fn claim_jobs(&self, request: ClaimRequest) -> Result<Claimed> {
        request.check()?;
        let mark = self.caller.signals.mark();
        self.look_again(&request.queues).await?;
        for _ in 0..PLANS_MAX {
            self.check_readable(&request.queues).await?;
            let mut call = self.caller.script(AT.claim);
            let listens = self.add_claim(&mut call, &request);
            if let Answered::Done(mut items) = answered(Items::of(self.caller.run(call).await?)?, &request)? {
                return Ok(Claimed { mark, ..self.claimed(&mut items, listens).await? });
            }
            self.look_at(&request.queues).await?;
        }
        Err(never_settles())
    }

    /// Looks at the queues that could not be read: one may have been repaired meanwhile.
    async fn look_again(&self, queues: &[QueueName]) -> Result<()> {
        let again = self.directory.to_look_at_again(queues, || self.caller.link.now());
        if !again.is_empty() {
            self.look_at(&again).await?;
        }
        Ok(())
    }

    /// An error when none of the queues of a claim can be read, because its worker would wait for ever. A claim that also names
    /// other queues goes on with those.
    async fn check_readable(&self, queues: &[QueueName]) -> Result<()> {
        let is_damaged = || queues.iter().all(|name| self.directory.is_unreadable(name));
        if is_damaged() {
            // One may have been mended meanwhile.
            self.look_at(queues).await?;
        }
        match queues {
            [first, ..] if is_damaged() => Err(unreadable_queue(first)),
            _ => Ok(()),
        }
    }

    /// Answers whether its worker is put on the list of those who wait, should there be too little.
    fn add_claim(&self, call: &mut Call<'_>, request: &ClaimRequest) -> bool {
        call.arg(request.worker.as_str());
        // As long as the longest, so that they compare as texts.
        call.arg_fmt(format_args!("{:020}", request.request_id));
        call.arg_fmt(format_args!("{:016x}", request.fingerprint()));
        call.arg_fmt(Token::from_bits(self.random.next_u64()));
        call.arg_fmt(request.lease_ms).arg_fmt(request.max);
        // Whoever does not listen is not put on the list of those who wait.
        let listens = self.listener.is_on();
        call.arg(if listens { format!("{}/{}", self.handle, request.worker) } else { String::new() });
        call.arg_fmt(request.queues.len());
        for name in &request.queues {
            let (version, lanes) = self.directory.plan(name, request);
            call.arg(name.as_str()).arg(version).arg_fmt(lanes.len());
            for lane in lanes {
                call.arg_fmt(lane);
            }
        }
        listens
    }

    /// The jobs of a claim: next time, token, then three items each.
    async fn claimed(&self, items: &mut Items, listens: bool) -> Result<Claimed> {
        let next_at = maybe_time(&items.text()?)?;
        let token: Token = items.text()?.parse()?;
        let mut jobs = Vec::with_capacity(items.left() / 3);
        let mut unreadable = Vec::new();
        while items.left() > 0 {
            let id: JobId = text(&items.bytes()?)?.parse()?;
            let (lease, record) = (items.bytes()?, items.bytes()?);
            let parts: Vec<&str> = text(&lease)?.split(' ').collect();
            let [attempt, stalls, retries, ready_at, expires_at] = parts[..] else {
                return Err(odd("a lease is too short"));
            };
            let (created_at, spec) = match self.spec_of(&record).await {
                Ok(found) => found,
                Err(Error::Corrupt { what }) => {
                    unreadable.push((id, token, what));
                    continue;
                }
                Err(error) => return Err(error),
            };
            jobs.push(ClaimedJob {
                lease: Lease { job: id, attempt: number(attempt)?, token },
                expires_at: time(expires_at)?,
                spec: Arc::new(spec),
                stall_count: number(stalls)?,
                retry_count: number(retries)?,
                created_at,
                ready_at: hex_time(ready_at)?,
            });
        }
        if !unreadable.is_empty() {
            // They must not keep the others from their turn. Should this fail, their leases run out.
            self.set_aside(unreadable).await?;
        }
        let poll_after_ms = listens.then_some(TOLD_FOR_MS);
        Ok(Claimed { jobs, next_at, poll_after_ms, ..Claimed::default() })
    }

    /// What a claimed record says; `Corrupt` when it cannot be read.
    async fn spec_of(&self, record: &Bytes) -> Result<(Timestamp, JobSpec)> {
        let head = Head::read(record)?;
        let lane = match self.directory.lane(head.lane) {
            Some(lane) => lane,
            None => {
                self.look_at(&[]).await?;
                self.directory.lane(head.lane).ok_or_else(|| odd("its lane is not there"))?
            }
        };
        Ok((head.created_at, head.spec(&lane)?))
    }

    pub(super) async fn renew_leases(&self, request: RenewRequest) -> Result<Vec<Result<Renewed>>> {
        check_batch(request.renewals.len())?;
        let (checks, sound) = sound(&request.renewals, Renewal::check);
        let mut call = self.caller.script(AT.renew);
        call.arg_fmt(sound.len());
        for renewal in sound {
            call.arg_fmt(renewal.lease.job).arg_fmt(renewal.lease.token);
            match renewal.lease_ms {
                Some(ms) => call.arg_fmt(ms),
                None => call.arg("-"),
            };
            match &renewal.progress {
                Some(progress) => call.arg(serde_json::to_vec(progress).map_err(|e| odd(&e.to_string()))?),
                None => call.arg(""),
            };
        }
        let mut items = self.caller.items(call).await?;
        Ok(checks.into_iter().map(|check| check.and_then(|()| renewed(&items.text()?))).collect())
    }

    pub(super) async fn report_outcomes(&self, request: ReportRequest) -> Result<Vec<Result<Reported>>> {
        check_batch(request.outcomes.len())?;
        let (checks, sound) = sound(&request.outcomes, |outcome| outcome.kind.check());
        let mut call = self.caller.script(AT.report);
        call.arg("0");
        add_report(&mut call, &request.worker, &sound)?;
        let mut items = Items::of(self.caller.run_durably(call).await?)?;
        items.text()?;
        self.reported(&mut items, checks, &request.outcomes)
    }

    pub(super) async fn report_and_claim_jobs(
        &self,
        report: ReportRequest,
        claim: ClaimRequest,
    ) -> Result<ReportedAndClaimed> {
        check_batch(report.outcomes.len())?;
        claim.check()?;
        let mark = self.caller.signals.mark();
        self.look_again(&claim.queues).await?;
        for plan in 0..PLANS_MAX {
            let (checks, sound) = sound(&report.outcomes, |outcome| outcome.kind.check());
            let mut call = self.caller.script(AT.report);
            call.arg("1");
            let listens = self.add_claim(&mut call, &claim);
            add_report(&mut call, &report.worker, &sound)?;
            let items = Items::of(self.caller.run_durably(call).await?)?;
            if let Answered::Done(mut items) = answered(items, &claim)? {
                let reported = self.reported(&mut items, checks, &report.outcomes)?;
                let claimed = Claimed { mark, ..self.claimed(&mut items, listens).await? };
                return Ok(ReportedAndClaimed { reported, claimed });
            }
            self.look_at(&claim.queues).await?;
            if plan > 0 {
                // Outcomes must not wait for a plan that does not settle: their leases run.
                let reported = self.report_outcomes(report).await?;
                return Ok(ReportedAndClaimed { reported, claimed: self.claim_jobs(claim).await? });
            }
        }
        Err(never_settles())
    }

    /// The answers to a report, in the order of its outcomes.
    fn reported(
        &self,
        items: &mut Items,
        checks: Vec<Result<()>>,
        outcomes: &[Outcome],
    ) -> Result<Vec<Result<Reported>>> {
        let told = items.text()?;
        let mut told = told.split_terminator(',');
        let mut effects = Effects::default();
        let mut answers = Vec::with_capacity(checks.len());
        for (check, outcome) in checks.into_iter().zip(outcomes) {
            let answer = match check {
                Ok(()) => reported(told.next().ok_or_else(|| odd("not every outcome was answered"))?),
                Err(error) => Err(error),
            };
            if let Ok(Reported { state: State::Succeeded | State::Failed | State::Cancelled, .. }) = answer {
                effects.ended.push(Ended::Job(outcome.lease.job));
            }
            answers.push(answer);
        }
        // Those of this process need not wait for the message.
        self.caller.signals.announce(&effects);
        Ok(answers)
    }
}

fn never_settles() -> Error {
    Error::Unavailable { reason: "the queues change faster than a claim can be planned".to_owned() }
}

/// What the first word of an answer says about the claim.
fn answered(mut items: Items, request: &ClaimRequest) -> Result<Answered> {
    let word = items.text()?;
    match word.split_once(' ').unwrap_or((&word, "")) {
        ("ok", _) => Ok(Answered::Done(items)),
        ("stale", _) => Ok(Answered::Stale),
        ("reused", _) => Err(Error::request_id_reused()),
        ("old", last) => Err(Error::request_id_too_low(request, number(last)?)),
        _ => Err(odd(&word)),
    }
}

fn add_report(call: &mut Call<'_>, worker: &WorkerId, sound: &[&Outcome]) -> Result<()> {
    call.reserve(sound.len() + 8, 40 * sound.len() + 64);
    call.arg(worker.as_str()).arg_fmt(sound.len());
    // Most are mere successes, many under one token: those need nothing but their ids.
    for run in sound.chunk_by(|one, next| is_mere(one) && is_mere(next) && one.lease.token == next.lease.token) {
        let [first, ..] = run else { continue };
        if is_mere(first) {
            call.arg("S").arg_fmt(first.lease.token).arg_fmt(run.len());
            for outcome in run {
                call.arg_fmt(outcome.lease.job);
            }
        } else {
            add_outcome(call, first)?;
        }
    }
    Ok(())
}

/// A success with nothing to show for it.
fn is_mere(outcome: &Outcome) -> bool {
    matches!(&outcome.kind, OutcomeKind::Complete { result: None, outputs } if outputs.is_empty())
}

fn add_outcome(call: &mut Call<'_>, outcome: &Outcome) -> Result<()> {
    let kind = match &outcome.kind {
        OutcomeKind::Complete { .. } => "c",
        OutcomeKind::Fail { .. } => "f",
        OutcomeKind::Release { .. } => "r",
    };
    call.arg(kind).arg_fmt(outcome.lease.token).arg_fmt(outcome.lease.job);
    match &outcome.kind {
        OutcomeKind::Complete { result, outputs } => {
            call.arg("").arg(result_text(result.as_ref(), outputs)?);
        }
        OutcomeKind::Fail { failure, retry } => {
            let mut failure = failure.clone();
            failure.cut();
            match retry {
                Retry::AfterMs(ms) => call.arg_fmt(format_args!("{} {ms}", class_name(failure.class))),
                Retry::Never => call.arg_fmt(format_args!("{} -", class_name(failure.class))),
            };
            call.arg(message_text(&failure));
        }
        OutcomeKind::Release { started } => {
            call.arg(if *started { "1" } else { "0" }).arg("");
        }
    }
    Ok(())
}

fn reported(answer: &str) -> Result<Reported> {
    if answer == "lost" {
        return Err(Error::LeaseLost);
    }
    let repeated = answer.ends_with('=');
    Ok(Reported { state: state(answer.trim_end_matches('='))?, repeated })
}

fn renewed(answer: &str) -> Result<Renewed> {
    if answer == "lost" {
        return Err(Error::LeaseLost);
    }
    let (expires_at, cancelled) = answer.split_once(' ').ok_or_else(|| odd(answer))?;
    Ok(Renewed { expires_at: time(expires_at)?, cancel_requested: cancelled == "1" })
}

//! Report and renew: everything that speaks for a lease.

use super::Step;
use super::enqueue::check_batch;
use super::rows::{Record, ReportMemo};
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::job::{Event, Failure, FailureClass, Lease, PROGRESS_BYTES_MAX, Progress, RESULT_BYTES_MAX, Retry, State};
use crate::name::WorkerId;
use crate::payload::Payload;
use crate::retry::RETRY_DELAY_MS_MAX;
use crate::store::{
    ClaimRequest, Outcome, OutcomeKind, RenewRequest, Renewal, Renewed, ReportRequest, Reported, ReportedAndClaimed,
    check_lease_ms,
};
use std::collections::BTreeMap;

/// The most outputs of a job.
const OUTPUTS_MAX: usize = 1_000;

impl<T: Tables> Step<'_, T> {
    /// See [`JobQueue::report`](crate::store::JobQueue::report).
    pub fn report(&mut self, request: ReportRequest) -> Result<Vec<Result<Reported>>> {
        check_batch(request.outcomes.len())?;
        let mut memo = ReportMemo::with_capacity(request.outcomes.len());
        let mut answers = Vec::with_capacity(request.outcomes.len());
        for outcome in request.outcomes {
            let lease = outcome.lease;
            let mut answer = self.report_one(outcome, &request.worker);
            // The same outcome twice in one report, of a job that the first one made go.
            // Looked for only then: the memo is as long as the report.
            if matches!(answer, Err(Error::LeaseLost))
                && let Some(state) = told(&memo, lease)
            {
                answer = Ok(Reported { state, repeated: true });
            }
            if let Ok(reported) = &answer {
                memo.push((lease.job, lease.token, reported.state));
            }
            answers.push(answer);
        }
        if !memo.is_empty() {
            self.tables.put_report_memo(&request.worker, memo, self.now)?;
        }
        Ok(answers)
    }

    /// See [`JobQueue::report_and_claim`](crate::store::JobQueue::report_and_claim).
    pub fn report_and_claim(&mut self, report: ReportRequest, claim: &ClaimRequest) -> Result<ReportedAndClaimed> {
        check_batch(report.outcomes.len())?;
        claim.check()?;
        // Asked before anything is applied: a claim that is refused must not have reported.
        self.same_claim(claim)?;
        let reported = self.report(report)?;
        Ok(ReportedAndClaimed { reported, claimed: self.claim(claim)? })
    }

    fn report_one(&mut self, outcome: Outcome, worker: &WorkerId) -> Result<Reported> {
        let lease = outcome.lease;
        check_outcome(&outcome.kind)?;
        let Some(record) = self.leased(lease)? else {
            return self.reported_before(lease, worker);
        };
        if !record.life.is_held_by(lease.token) {
            return match record.life.answer_again(lease.token) {
                Some(state) => Ok(Reported { state, repeated: true }),
                None => self.reported_before(lease, worker),
            };
        }
        let state = self.end_attempt(&record, outcome)?;
        Ok(Reported { state, repeated: false })
    }

    fn end_attempt(&mut self, record: &Record, outcome: Outcome) -> Result<State> {
        let token = outcome.lease.token;
        match outcome.kind {
            OutcomeKind::Complete { result, outputs } => {
                if !record.life.cancel_requested && (result.is_some() || !outputs.is_empty()) {
                    let mut extra = self.readable(record.row)?;
                    extra.result = result;
                    extra.outputs = outputs;
                    self.tables.put_extra(record.row, extra)?;
                }
                self.end_by(record, &Event::Complete { token })
            }
            OutcomeKind::Fail { failure, retry } => {
                let failure = Failure { attempt: record.life.attempt, at: self.now, ..failure };
                self.push_failure(record.row, failure)?;
                self.end_by(record, &Event::Fail { token, retry })
            }
            OutcomeKind::Release { started } => {
                if started && record.life.attempt >= record.life.attempts_max {
                    let message = "released by its worker after it had started, with no attempt left".to_owned();
                    let (attempt, at) = (record.life.attempt, self.now);
                    self.push_failure(record.row, Failure { class: FailureClass::Released, message, attempt, at })?;
                }
                self.end_by(record, &Event::Release { token, started })
            }
        }
    }

    fn end_by(&mut self, record: &Record, event: &Event) -> Result<State> {
        match self.transition(record, event)? {
            Some(after) => Ok(after.state()),
            None => Err(Error::corrupt("an outcome removed its job")),
        }
    }

    /// The record that a lease speaks for, if it is there. One that cannot be read is set aside, and its lease is lost.
    fn leased(&mut self, lease: Lease) -> Result<Option<Record>> {
        match self.tables.find_job(lease.job)? {
            Some(row) => self.readable_record(row),
            None => Ok(None),
        }
    }

    /// The answer to an outcome that is not the current lease's: what its worker was told in its last report.
    fn reported_before(&mut self, lease: Lease, worker: &WorkerId) -> Result<Reported> {
        let memo = self.tables.report_memo(worker)?;
        told(&memo, lease).map(|state| Reported { state, repeated: true }).ok_or(Error::LeaseLost)
    }

    /// See [`JobQueue::renew`](crate::store::JobQueue::renew).
    pub fn renew(&mut self, request: RenewRequest) -> Result<Vec<Result<Renewed>>> {
        check_batch(request.renewals.len())?;
        Ok(request.renewals.into_iter().map(|renewal| self.renew_one(renewal)).collect())
    }

    fn renew_one(&mut self, renewal: Renewal) -> Result<Renewed> {
        let token = renewal.lease.token;
        if let Some(lease_ms) = renewal.lease_ms {
            check_lease_ms(lease_ms)?;
        }
        if let Some(progress) = &renewal.progress {
            check_progress(progress)?;
        }
        let mut record = self.leased(renewal.lease)?.ok_or(Error::LeaseLost)?;
        if !record.life.is_held_by(token) {
            return Err(Error::LeaseLost);
        }
        if let Some(progress) = renewal.progress {
            let mut extra = self.readable(record.row)?;
            extra.progress = Some(progress);
            self.tables.put_extra(record.row, extra)?;
            record = self.transition(&record, &Event::Progress { token })?.unwrap_or(record);
        }
        if let Some(lease_ms) = renewal.lease_ms {
            record = self.transition(&record, &Event::Renew { token, lease_ms })?.unwrap_or(record);
        }
        let expires_at = record.life.held.as_ref().map_or(self.now, |held| held.expires_at);
        Ok(Renewed { expires_at, cancel_requested: record.life.cancel_requested })
    }
}

/// What a worker was told about a lease.
fn told(memo: &ReportMemo, lease: Lease) -> Option<State> {
    memo.iter().find(|(job, token, _)| *job == lease.job && *token == lease.token).map(|(_, _, state)| *state)
}

fn check_outcome(kind: &OutcomeKind) -> Result<()> {
    match kind {
        OutcomeKind::Complete { result, outputs } => check_result(result.as_ref(), outputs),
        OutcomeKind::Fail { retry: Retry::AfterMs(ms), .. } if *ms > RETRY_DELAY_MS_MAX => {
            Err(Error::limit("retry", RETRY_DELAY_MS_MAX, *ms))
        }
        OutcomeKind::Fail { .. } | OutcomeKind::Release { .. } => Ok(()),
    }
}

fn check_result(result: Option<&Payload>, outputs: &BTreeMap<String, String>) -> Result<()> {
    if let Some(result) = result {
        result.check("result", RESULT_BYTES_MAX)?;
    }
    if outputs.len() > OUTPUTS_MAX {
        return Err(Error::limit("outputs", OUTPUTS_MAX as u64, outputs.len() as u64));
    }
    let named = outputs.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
    let bytes = named + result.map_or(0, |result| result.bytes.len() as u64);
    if bytes > RESULT_BYTES_MAX {
        return Err(Error::limit("result and outputs, in bytes,", RESULT_BYTES_MAX, bytes));
    }
    match outputs.keys().find(|key| key.is_empty() || key.chars().any(char::is_control)) {
        Some(key) => Err(Error::invalid("outputs", format!("`{}` is no name for an output", key.escape_debug()))),
        None => Ok(()),
    }
}

fn check_progress(progress: &Progress) -> Result<()> {
    if progress.percent > 100 {
        return Err(Error::limit("progress.percent", 100, u64::from(progress.percent)));
    }
    if progress.message.len() > PROGRESS_BYTES_MAX {
        let got = progress.message.len() as u64;
        return Err(Error::limit("progress.message, in bytes,", PROGRESS_BYTES_MAX as u64, got));
    }
    Ok(())
}

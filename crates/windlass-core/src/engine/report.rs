//! Report and renew: everything that speaks for a lease.

use super::Step;
use super::rows::{Record, ReportMemo};
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::job::{Event, Failure, FailureClass, Lease, State};
use crate::name::WorkerId;
use crate::store::{
    ClaimRequest, Outcome, OutcomeKind, RenewRequest, Renewal, Renewed, ReportRequest, Reported, ReportedAndClaimed,
    check_batch,
};

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
        outcome.kind.check()?;
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
                let life = &record.life;
                if started && life.attempt >= life.attempts_max && life.stalls >= life.stalls_max {
                    let message =
                        "released by its worker after it had started, with no attempt and no stall left".to_owned();
                    let (attempt, at) = (record.life.attempt, self.now);
                    self.push_failure(
                        record.row,
                        Failure { attempt, at, ..Failure::new(FailureClass::Released, message) },
                    )?;
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
        renewal.check()?;
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

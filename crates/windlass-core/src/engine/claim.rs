//! Claim.

use super::Step;
use super::rows::{ClaimMemo, LaneId, QueueId, Record, Row};
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::id::Token;
use crate::job::{Event, JobSpec, Lease, State};
use crate::name::QueueName;
use crate::store::{ClaimRequest, Claimed, ClaimedJob};
use crate::time::Timestamp;
use std::cmp::Ordering;
use std::sync::Arc;

/// Due jobs that a claim promotes at least, so that small claims keep up with large schedules.
const PROMOTE_MIN: usize = 64;

/// A claim under way.
struct Taking<'r> {
    request: &'r ClaimRequest,
    token: Token,
    jobs: Vec<ClaimedJob>,
    rows: Vec<Row>,
}

impl Taking<'_> {
    fn left(&self) -> usize {
        self.request.max as usize - self.jobs.len()
    }
}

impl<T: Tables> Step<'_, T> {
    /// See [`JobQueue::claim`](crate::store::JobQueue::claim). The mark is filled in by the host.
    pub fn claim(&mut self, request: &ClaimRequest) -> Result<Claimed> {
        request.check()?;
        if let Some(memo) = self.same_claim(request)? {
            let claimed = self.claim_again(&memo)?;
            return Ok(Claimed { next_at: self.next_at(&request.queues)?, ..claimed });
        }
        let mut taking =
            Taking { request, token: Token::from_bits(self.random.next_u64()), jobs: Vec::new(), rows: Vec::new() };
        for name in &request.queues {
            if taking.left() == 0 {
                break;
            }
            if let Some(queue) = self.tables.find_queue(name)? {
                self.claim_on(queue, &mut taking)?;
            }
        }
        let Taking { token, jobs, rows, .. } = taking;
        if !rows.is_empty() {
            let (request_id, fingerprint) = (request.request_id, request.fingerprint());
            let memo = ClaimMemo { request_id, fingerprint, token: token.bits(), rows };
            self.tables.put_claim_memo(&request.worker, memo, self.now)?;
        }
        Ok(Claimed { jobs, next_at: self.next_at(&request.queues)?, ..Claimed::default() })
    }

    /// What the same claim was answered before, if this is not a new one; refuses an id that was used for another.
    pub(super) fn same_claim(&mut self, request: &ClaimRequest) -> Result<Option<ClaimMemo>> {
        let Some(memo) = self.tables.claim_memo(&request.worker)? else {
            return Ok(None);
        };
        match memo.request_id.cmp(&request.request_id) {
            Ordering::Less => Ok(None),
            Ordering::Equal if memo.fingerprint == request.fingerprint() => Ok(Some(memo)),
            Ordering::Equal => Err(Error::request_id_reused()),
            Ordering::Greater => Err(Error::request_id_too_low(request, memo.request_id)),
        }
    }

    /// The answer to a claim whose first answer was lost: what of it is still leased.
    fn claim_again(&mut self, memo: &ClaimMemo) -> Result<Claimed> {
        let token = Token::from_bits(memo.token);
        let mut claimed = Claimed::default();
        for row in &memo.rows {
            let Some(record) = self.readable_record(*row)?.filter(|record| record.life.is_held_by(token)) else {
                continue;
            };
            let spec = self.tables.spec(*row);
            if let Some(spec) = self.or_set_aside(*row, spec)? {
                claimed.jobs.push(self.with_spec(&record, token, spec));
            }
        }
        Ok(claimed)
    }

    fn claim_on(&mut self, queue: QueueId, taking: &mut Taking<'_>) -> Result<()> {
        let promote = taking.left().max(PROMOTE_MIN);
        self.wake_groups(queue, promote)?;
        self.promote_due(queue, promote)?;
        loop {
            let room = self.room_on(queue, taking.left())?;
            let lanes = self.claimable_lanes(queue, taking.request)?;
            let mut spoilt = false;
            for row in self.select(queue, &lanes, room)? {
                match self.lease(row, taking)? {
                    Some(job) => {
                        taking.jobs.push(job);
                        taking.rows.push(row);
                    }
                    None => spoilt = true,
                }
            }
            // Only quarantined jobs are picked and not leased; each is picked once, so this ends.
            if !spoilt {
                return Ok(());
            }
        }
    }

    /// How many jobs may start on a queue now.
    fn room_on(&mut self, queue: QueueId, max: usize) -> Result<usize> {
        let now = self.now;
        let queue = self.tables.queue(queue)?;
        let settings = &queue.settings;
        if settings.paused {
            return Ok(0);
        }
        let active = queue.counts[State::Active.index()];
        let by_cap = settings.cap.map_or(u64::MAX, |cap| u64::from(cap).saturating_sub(active));
        let by_rate = settings.rate.map_or(u64::MAX, |rate| u64::from(queue.meter.room(rate, now)));
        Ok(usize::try_from(by_cap.min(by_rate)).unwrap_or(usize::MAX).min(max))
    }

    /// The lanes with work that the worker may do and nobody has paused.
    fn claimable_lanes(&mut self, queue: QueueId, request: &ClaimRequest) -> Result<Vec<LaneId>> {
        let paused = self.tables.queue(queue)?.settings.paused_kinds.clone();
        self.lanes_where(queue, |lane| {
            lane.ready > 0
                && request.kinds.contain(&lane.kind)
                && lane.labels.is_subset_of(&request.labels)
                && !paused.contains(&lane.kind)
        })
    }

    /// Leases a job that was picked; `None` when it turned out to be unreadable and was set aside.
    fn lease(&mut self, row: Row, taking: &Taking<'_>) -> Result<Option<ClaimedJob>> {
        let Some(record) = self.readable_record(row)? else {
            return Ok(None);
        };
        let spec = self.tables.spec(row);
        let Some(spec) = self.or_set_aside(row, spec)? else {
            return Ok(None);
        };
        let Taking { request, token, .. } = taking;
        let event = Event::Claim { worker: request.worker.clone(), token: *token, lease_ms: request.lease_ms };
        let leased = self.transition(&record, &event);
        let Some(record) = self.or_set_aside(row, leased)?.flatten() else {
            return Ok(None);
        };
        Ok(Some(self.with_spec(&record, *token, spec)))
    }

    fn with_spec(&self, record: &Record, token: Token, spec: Arc<JobSpec>) -> ClaimedJob {
        ClaimedJob {
            lease: Lease { job: record.id, attempt: record.life.attempt, token },
            expires_at: record.life.held.as_ref().map_or(self.now, |held| held.expires_at),
            spec,
            stall_count: record.life.stalls,
            retry_count: record.life.retries,
            created_at: record.created_at,
            ready_at: record.ready_at,
        }
    }

    /// When time alone may bring work on these queues.
    fn next_at(&mut self, queues: &[QueueName]) -> Result<Option<Timestamp>> {
        let now = self.now;
        let mut next = None;
        for name in queues {
            let Some(id) = self.tables.find_queue(name)? else {
                continue;
            };
            let (due, wake) = (self.tables.next_due(id)?, self.tables.next_wake(id)?);
            let queue = self.tables.queue(id)?;
            let rate = queue.settings.rate.and_then(|rate| queue.meter.next_at(rate, now));
            next = [next, due, wake, rate].into_iter().flatten().min();
        }
        Ok(next)
    }
}

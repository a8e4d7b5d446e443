//! Listing, and looking up.

use super::Step;
use super::rows::{Extra, QueueId, Record, Row};
use super::scan::{Cursor, JobScan, SCAN_MAX, question, spec_contains};
use super::tables::{Position, Tables, Walk};
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{FailureClass, Job, JobSpec, JobSummary, LeaseView};
use crate::name::{Kind, Labels, QueueName};
use crate::store::{Filter, JobPage, ListOrder, ListRequest, check_batch};
use std::sync::Arc;

impl<T: Tables> Step<'_, T> {
    /// See [`JobQueue::get`](crate::store::JobQueue::get).
    pub fn get(&mut self, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
        check_batch(ids.len())?;
        ids.iter().map(|id| self.get_one(*id)).collect()
    }

    fn get_one(&mut self, id: JobId) -> Result<Option<Job>> {
        let Some(row) = self.tables.find_job(id)? else {
            return Ok(None);
        };
        let Some((record, damage)) = self.look(row)? else {
            return Ok(None);
        };
        let extra = self.readable(row)?;
        let (spec, damage) = match self.tables.spec(row) {
            Ok(spec) => (spec, damage),
            Err(Error::Corrupt { what }) => (Arc::new(self.stand_in(&record)?), damage.or(Some(what))),
            Err(error) => return Err(error),
        };
        let life = record.life;
        Ok(Some(Job {
            id,
            spec,
            state: life.state,
            attempt: life.attempt,
            stall_count: life.stalls,
            retry_count: life.retries,
            due_at: life.due_at,
            lease: life.held.map(|held| LeaseView { worker: held.worker, expires_at: held.expires_at }),
            cancel_requested: life.cancel_requested,
            progress: extra.progress,
            result: extra.result,
            outputs: extra.outputs,
            quarantined: damage.or_else(|| quarantine_reason(&extra.failures).filter(|_| record.quarantined)),
            failures: extra.failures,
            created_at: record.created_at,
            claimed_at: life.claimed_at,
            finished_at: life.finished_at,
        }))
    }

    /// The rest of a job, or nothing of it when it cannot be read: a damaged note must not hide the job.
    pub(super) fn readable(&mut self, row: Row) -> Result<Extra> {
        match self.tables.extra(row) {
            Err(Error::Corrupt { .. }) => Ok(Extra::default()),
            other => other,
        }
    }

    /// What is known of a job whose spec cannot be read.
    fn stand_in(&mut self, record: &Record) -> Result<JobSpec> {
        let (queue, kind, labels) = if self.is_orphan(record)? {
            (QueueName::new("?")?, Kind::new("?")?, Labels::default())
        } else {
            let queue = self.tables.queue(record.queue)?.name.clone();
            let lane = self.tables.lane(record.lane)?;
            (queue, lane.kind.clone(), lane.labels.clone())
        };
        let spec = JobSpec::new(queue, kind, crate::payload::Payload::default());
        Ok(JobSpec { labels, priority: record.priority, lifo: record.lifo, ..spec })
    }

    /// See [`JobQueue::list`](crate::store::JobQueue::list).
    pub fn list(&mut self, request: &ListRequest) -> Result<JobPage> {
        request.check()?;
        let question = question(&request.filter, request.order);
        let cursor = request.cursor.as_deref().map(|text| Cursor::decode(text, &question)).transpose()?;
        let scan = JobScan::new(request.filter.clone(), request.order == ListOrder::Descending, cursor);
        let mut page = JobPage::default();
        let limit = request.limit as usize;
        let end = self.scan(&scan, SCAN_MAX, |step, record| {
            page.jobs.push(step.summary(record)?);
            Ok(page.jobs.len() < limit)
        })?;
        page.cursor = end.map(|cursor| cursor.encode(&question));
        Ok(page)
    }

    /// Visits the jobs that match, until `visit` answers false, `scan_max` jobs were looked at, or there are no more.
    /// Answers where it stopped.
    pub(super) fn scan(
        &mut self,
        scan: &JobScan<Position>,
        scan_max: usize,
        mut visit: impl FnMut(&mut Self, &Record) -> Result<bool>,
    ) -> Result<Option<Cursor<Position>>> {
        let mut scanned = 0;
        for queue in self.queues_of(scan)? {
            let lanes = self.lanes_where(queue, |lane| scan.has_lane(&lane.kind, &lane.labels))?;
            for state in scan.states(queue.0) {
                let mut after = scan.start(queue.0, state);
                loop {
                    let limit = (scan_max - scanned).min(256);
                    let walk = Walk { queue, lanes: &lanes, state, descending: scan.descending, after, limit };
                    let found = self.tables.walk(walk)?;
                    let last = found.len() < limit;
                    for (position, row) in found {
                        after = Some(position);
                        scanned += 1;
                        let Some(record) = self.matching(&scan.filter, row)? else {
                            continue;
                        };
                        if !visit(self, &record)? {
                            return Ok(Some(Cursor { queue: queue.0, state, position: after }));
                        }
                    }
                    if last {
                        break;
                    }
                    if scanned >= scan_max {
                        return Ok(Some(Cursor { queue: queue.0, state, position: after }));
                    }
                }
            }
        }
        Ok(None)
    }

    fn queues_of(&mut self, scan: &JobScan<Position>) -> Result<Vec<QueueId>> {
        let mut queues = match &scan.filter.queue {
            Some(name) => self.tables.find_queue(name)?.into_iter().collect(),
            None => self.tables.queues()?,
        };
        queues.retain(|queue| scan.is_ahead(queue.0));
        queues.sort();
        if scan.descending {
            queues.reverse();
        }
        Ok(queues)
    }

    /// The record at `row`, if it matches.
    fn matching(&mut self, filter: &Filter, row: Row) -> Result<Option<Record>> {
        let Some((record, _)) = self.look(row)? else {
            return Ok(None);
        };
        if filter.group.is_none() && filter.text.is_none() {
            return Ok(Some(record));
        }
        let spec = match self.tables.spec(row) {
            Ok(spec) => spec,
            Err(Error::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        if filter.group.is_some() && filter.group != spec.group {
            return Ok(None);
        }
        let found = match &filter.text {
            Some(text) => self.has_text(&spec, row, text)?,
            None => true,
        };
        Ok(found.then_some(record))
    }

    fn has_text(&mut self, spec: &JobSpec, row: Row, text: &str) -> Result<bool> {
        if spec_contains(spec, text) {
            return Ok(true);
        }
        Ok(self.readable(row)?.failures.last().is_some_and(|failure| failure.message.contains(text)))
    }

    fn summary(&mut self, record: &Record) -> Result<JobSummary> {
        let extra = self.readable(record.row)?;
        let (spec, damaged) = match self.tables.spec(record.row) {
            Ok(spec) => (spec, false),
            Err(Error::Corrupt { .. }) => (Arc::new(self.stand_in(record)?), true),
            Err(error) => return Err(error),
        };
        let life = &record.life;
        Ok(JobSummary {
            id: record.id,
            queue: spec.queue.clone(),
            kind: spec.kind.clone(),
            group: spec.group.clone(),
            custom_id: spec.custom_id.clone().map(String::from),
            state: life.state,
            priority: record.priority,
            attempt: life.attempt,
            attempts_max: life.attempts_max,
            due_at: life.due_at,
            worker: life.held.as_ref().map(|held| held.worker.clone()),
            created_at: record.created_at,
            claimed_at: life.claimed_at,
            finished_at: life.finished_at,
            last_error: extra.failures.last().map(|failure| failure.message.clone()),
            quarantined: record.quarantined || damaged,
        })
    }
}

fn quarantine_reason(failures: &[crate::job::Failure]) -> Option<String> {
    let last = failures.last().filter(|failure| failure.class == FailureClass::Quarantined);
    last.map(|failure| failure.message.clone())
}

//! Looking jobs up, and listing them.

use super::RedisStore;
use crate::record::{Life, failures, read, result};
use crate::reply::{Items, odd, state_letter, text};
use crate::scripts::AT;
use bytes::Bytes;
use std::sync::Arc;
use windlass_core::Result;
use windlass_core::engine::{Cursor, JobScan, SCAN_MAX, question, spec_contains};
use windlass_core::id::JobId;
use windlass_core::job::{Failure, FailureClass, Job, JobSpec, JobSummary, State};
use windlass_core::store::{Filter, JobPage, ListOrder, ListRequest, check_batch};

/// Jobs that one script looks at.
const STRETCH: usize = 256;

/// A job that a walk came across.
pub(super) struct Found {
    pub(super) id: JobId,
    pub(super) life: Life,
    spec: Arc<JobSpec>,
    failures: Vec<Failure>,
    damaged: bool,
    place: Bytes,
}

impl Found {
    /// Waits behind an active job with the same dedup key.
    pub(super) fn is_held(&self) -> bool {
        self.life.state == State::Scheduled && self.life.due_at.is_none()
    }

    fn matches(&self, filter: &Filter) -> bool {
        if filter.group.is_none() && filter.text.is_none() {
            return true;
        }
        if self.damaged || filter.group.is_some() && filter.group != self.spec.group {
            return false;
        }
        filter.text.as_ref().is_none_or(|text| self.has_text(text))
    }

    fn has_text(&self, text: &str) -> bool {
        spec_contains(&self.spec, text) || self.failures.last().is_some_and(|failure| failure.message.contains(text))
    }

    fn summary(&self) -> JobSummary {
        let (life, spec) = (&self.life, &self.spec);
        JobSummary {
            id: self.id,
            queue: spec.queue.clone(),
            kind: spec.kind.clone(),
            group: spec.group.clone(),
            custom_id: spec.custom_id.clone().map(String::from),
            state: life.state,
            priority: spec.priority,
            attempt: life.attempt,
            attempts_max: life.attempts,
            due_at: life.due_at,
            worker: life.lease.as_ref().map(|lease| lease.worker.clone()),
            created_at: life.created_at,
            claimed_at: life.claimed_at,
            finished_at: life.finished_at,
            last_error: self.failures.last().map(|failure| failure.message.clone()),
            quarantined: life.is_quarantined() || self.damaged,
        }
    }
}

impl RedisStore {
    pub(super) async fn get_jobs(&self, ids: Vec<JobId>) -> Result<Vec<Option<Job>>> {
        check_batch(ids.len())?;
        let mut stored = Vec::with_capacity(ids.len());
        while stored.len() < ids.len() {
            self.get_some(&ids[stored.len()..], &mut stored).await?;
        }
        let lanes: Vec<&Bytes> = stored.iter().filter_map(|(_, five)| five[0].as_ref()).collect();
        self.know_lanes(&lanes).await?;
        stored.into_iter().map(|(id, five)| self.job(id, &five)).collect()
    }

    /// Looks up the first of these jobs, as many as one script reads; at least one.
    async fn get_some(&self, ids: &[JobId], stored: &mut Vec<(JobId, [Option<Bytes>; 5])>) -> Result<()> {
        let mut call = self.caller.script(AT.get);
        for id in ids {
            call.arg_fmt(id);
        }
        let mut items = self.caller.items(call).await?;
        items.time()?;
        if items.left() == 0 || items.left() > 5 * ids.len() {
            return Err(odd("a script has looked up other jobs than it was asked for"));
        }
        for id in &ids[..items.left() / 5] {
            let mut five = [const { None }; 5];
            for part in &mut five {
                *part = items.maybe()?;
            }
            stored.push((*id, five));
        }
        Ok(())
    }

    /// Looks at the queues again when a record names a lane that is not known.
    async fn know_lanes(&self, records: &[&Bytes]) -> Result<()> {
        let unknown = |record: &&&Bytes| {
            crate::record::Head::read(record).is_ok_and(|head| self.directory.lane(head.lane).is_none())
        };
        if records.iter().any(|record| unknown(&record)) {
            self.look_at(&[]).await?;
        }
        Ok(())
    }

    fn job(&self, id: JobId, [record, life, outcome, progress, failed]: &[Option<Bytes>; 5]) -> Result<Option<Job>> {
        if record.is_none() && life.is_none() {
            return Ok(None);
        }
        let read = read(record.as_ref(), life.as_ref(), &self.directory, true)?;
        let failures = failures(failed.as_ref());
        let (result, outputs) = result(outcome.as_ref());
        let life = read.life;
        let reason = failures.last().filter(|failure| failure.class == FailureClass::Quarantined);
        let set_aside = reason.map(|failure| failure.message.clone()).filter(|_| life.is_quarantined());
        Ok(Some(Job {
            id,
            spec: read.spec,
            state: life.state,
            attempt: life.attempt,
            stall_count: life.stalls,
            retry_count: life.retries,
            due_at: life.due_at,
            lease: life.lease,
            cancel_requested: life.cancel_requested,
            progress: progress.as_ref().and_then(|json| serde_json::from_slice(json).ok()),
            result,
            outputs,
            quarantined: set_aside.or(read.damage),
            failures,
            created_at: life.created_at,
            claimed_at: life.claimed_at,
            finished_at: life.finished_at,
        }))
    }

    pub(super) async fn list_jobs(&self, request: ListRequest) -> Result<JobPage> {
        request.check()?;
        let question = question(&request.filter, request.order);
        let cursor = request.cursor.as_deref().map(|text| Cursor::decode(text, &question)).transpose()?;
        let scan = JobScan::new(request.filter, request.order == ListOrder::Descending, cursor);
        let mut page = JobPage::default();
        let limit = request.limit as usize;
        let end = self
            .scan(&scan, SCAN_MAX, |job| {
                page.jobs.push(job.summary());
                page.jobs.len() < limit
            })
            .await?;
        page.cursor = end.map(|cursor| cursor.encode(&question));
        Ok(page)
    }

    /// Visits the jobs that match, until `visit` answers false, `scan_max` jobs were looked at, or there are no more.
    /// Answers where it stopped.
    pub(super) async fn scan(
        &self,
        scan: &JobScan<Bytes>,
        scan_max: usize,
        mut visit: impl FnMut(&Found) -> bool + Send,
    ) -> Result<Option<Cursor<Bytes>>> {
        let names: Vec<_> = scan.filter.queue.iter().cloned().collect();
        let mut queues = self.look_at(&names).await?;
        queues.sort_by_key(|(_, queue)| queue.id);
        if scan.descending {
            queues.reverse();
        }
        let mut scanned = 0;
        for (name, queue) in queues.iter().filter(|(_, queue)| scan.is_ahead(queue.id)) {
            let lanes = scanned_lanes(scan, queue);
            for state in scan.states(queue.id) {
                let mut after = scan.start(queue.id, state);
                loop {
                    let limit = (scan_max - scanned).min(STRETCH);
                    let stretch = Stretch { queue: name.as_str(), state, after: after.as_deref(), limit };
                    let Walked { found, more, last, looked_at } = self.walk(scan, &stretch, lanes.as_deref()).await?;
                    for job in found.iter().filter(|job| job.matches(&scan.filter)) {
                        if !visit(job) {
                            let position = Some(job.place.clone());
                            return Ok(Some(Cursor { queue: queue.id, state, position }));
                        }
                    }
                    scanned += looked_at;
                    if !more {
                        break;
                    }
                    after = Some(last);
                    if scanned >= scan_max {
                        return Ok(Some(Cursor { queue: queue.id, state, position: after }));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn walk(&self, scan: &JobScan<Bytes>, stretch: &Stretch<'_>, lanes: Option<&[u64]>) -> Result<Walked> {
        let whole = scan.filter.text.is_some();
        let mut call = self.caller.script(AT.walk);
        call.arg(stretch.queue).arg(state_letter(stretch.state)).arg(if scan.descending { "1" } else { "0" });
        call.arg(stretch.after.unwrap_or_default()).arg_fmt(stretch.limit).arg(if whole { "1" } else { "0" });
        match lanes {
            Some(lanes) => {
                call.arg_fmt(lanes.len());
                for lane in lanes {
                    call.arg_fmt(lane);
                }
            }
            None => {
                call.arg("*");
            }
        }
        let mut items = self.caller.items(call).await?;
        let (more, last) = (items.text()? == "1", items.bytes()?);
        let looked_at = usize::try_from(items.number()?).unwrap_or(usize::MAX);
        let stored: Vec<Entry> = items.all(Entry::read)?.into_iter().flatten().collect();
        let records: Vec<&Bytes> = stored.iter().filter_map(|entry| entry.record.as_ref()).collect();
        self.know_lanes(&records).await?;
        let mut found = Vec::with_capacity(stored.len());
        for entry in stored {
            let read = read(entry.record.as_ref(), entry.life.as_ref(), &self.directory, whole)?;
            let (failures, damaged) = (failures(entry.failed.as_ref()), read.damage.is_some());
            found.push(Found { id: entry.id, life: read.life, spec: read.spec, failures, damaged, place: entry.place });
        }
        Ok(Walked { found, more, last, looked_at })
    }
}

/// What to walk through.
struct Stretch<'a> {
    queue: &'a str,
    state: State,
    after: Option<&'a [u8]>,
    limit: usize,
}

/// One stretch of a walk.
struct Walked {
    found: Vec<Found>,
    /// There may be more behind it.
    more: bool,
    /// The last place that was looked at.
    last: Bytes,
    looked_at: usize,
}

/// What a walk answers for one job.
struct Entry {
    place: Bytes,
    id: JobId,
    record: Option<Bytes>,
    life: Option<Bytes>,
    failed: Option<Bytes>,
}

impl Entry {
    /// `None` for an entry that belongs to no job: whoever walks there to change something takes it away.
    fn read(items: &mut Items) -> Result<Option<Self>> {
        let (place, id) = (items.bytes()?, items.bytes()?);
        let (record, life, failed) = (items.maybe()?, items.maybe()?, items.maybe()?);
        let Some(id) = text(&id).ok().and_then(|id| id.parse().ok()) else { return Ok(None) };
        let is_there = record.is_some() || life.is_some();
        Ok(is_there.then_some(Self { place, id, record, life, failed }))
    }
}

/// The lanes that match; `None` when all do.
fn scanned_lanes(scan: &JobScan<Bytes>, queue: &crate::directory::Queue) -> Option<Vec<u64>> {
    if scan.filter.kind.is_none() && scan.filter.label.is_none() {
        return None;
    }
    let lanes = queue.lanes.iter().filter(|lane| scan.has_lane(&lane.kind, &lane.labels));
    Some(lanes.map(|lane| lane.id).collect())
}

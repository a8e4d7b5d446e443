//! Enqueue.

use super::Step;
use super::dedup::Verdict;
use super::rows::{Extra, Fresh, Lane, LaneId, Ord64, Queue, QueueId, Record, Row};
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{JobSpec, KeepFor, Life, NewJob, State, Verb};
use crate::name::QueueName;
use crate::rate::Meter;
use crate::store::{EnqueueRequest, Enqueued, QueueSettings, check_batch};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The most lanes with labels of a queue, and the most without: label sets do not keep plain jobs out.
pub(super) const LANES_MAX: usize = 1_024;

/// A job that was checked and whose hashes are known. The caller does both before the step, because other callers wait for a
/// step.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The job to enqueue.
    pub job: NewJob,
    /// The id under which it is stored: a custom id is hashed.
    pub id: JobId,
    /// The hash of its content.
    pub fingerprint: u64,
}

impl Prepared {
    /// Checks a job.
    pub fn new(job: NewJob) -> Result<Self> {
        job.check()?;
        Ok(Self::of(job))
    }

    /// Checks a whole call; a job that is refused keeps its place.
    pub fn batch(jobs: Vec<NewJob>) -> Result<Vec<Result<Self>>> {
        check_batch(jobs.len())?;
        Ok(jobs.into_iter().map(Self::new).collect())
    }

    /// The same for jobs that were checked.
    pub(super) fn known(jobs: Vec<NewJob>) -> Vec<Result<Self>> {
        jobs.into_iter().map(|job| Ok(Self::of(job))).collect()
    }

    /// A job that was checked.
    pub fn of(job: NewJob) -> Self {
        Self { id: job.effective_id(), fingerprint: job.fingerprint(), job }
    }

    /// The same for jobs that come from outside, and therefore belong to no run.
    pub fn outside(jobs: Vec<NewJob>) -> Result<Vec<Result<Self>>> {
        check_batch(jobs.len())?;
        let prepare = |job: NewJob| job.spec.check_outside().and_then(|()| Self::new(job));
        Ok(jobs.into_iter().map(prepare).collect())
    }
}

impl<T: Tables> Step<'_, T> {
    /// See [`JobQueue::enqueue`](crate::store::JobQueue::enqueue).
    pub fn enqueue(&mut self, request: EnqueueRequest) -> Result<Vec<Result<Enqueued>>> {
        let EnqueueRequest { jobs, atomic } = request;
        self.enqueue_prepared(Prepared::outside(jobs)?, atomic)
    }

    /// The same, for jobs that were prepared before the step.
    pub fn enqueue_prepared(&mut self, jobs: Vec<Result<Prepared>>, atomic: bool) -> Result<Vec<Result<Enqueued>>> {
        if atomic && let Some(refusals) = self.refusals(&jobs) {
            return Ok(refusals);
        }
        Ok(jobs.into_iter().map(|job| job.and_then(|job| self.enqueue_one(job))).collect())
    }

    pub(super) fn enqueue_one(&mut self, prepared: Prepared) -> Result<Enqueued> {
        let Prepared { job, id, fingerprint } = prepared;
        if let Some(existing) = self.same_job(id, fingerprint)? {
            return Ok(existing);
        }
        match self.dedup_verdict(&job.spec)? {
            Verdict::Free => self.create(job, id, fingerprint, None).map(|()| Enqueued::Created { id }),
            Verdict::Taken { by } => Ok(Enqueued::Deduplicated { by }),
            Verdict::Replaces { old } => {
                self.room_for(&job.spec, 1)?;
                self.lane_for(&job.spec)?;
                self.give_way(old)?;
                self.create(job, id, fingerprint, None)?;
                Ok(Enqueued::Replaced { id, old })
            }
            Verdict::Behind { active, waiting } => {
                self.room_for(&job.spec, u64::from(waiting.is_some()))?;
                self.lane_for(&job.spec)?;
                if let Some(waiting) = waiting {
                    self.give_way(waiting)?;
                }
                self.create(job, id, fingerprint, Some(active))?;
                Ok(match waiting {
                    Some(old) => Enqueued::Replaced { id, old },
                    None => Enqueued::Held { id, behind: active },
                })
            }
        }
    }

    /// The answer to a job that is there already.
    fn same_job(&mut self, id: JobId, fingerprint: u64) -> Result<Option<Enqueued>> {
        let Some(row) = self.tables.find_job(id)? else {
            return Ok(None);
        };
        match self.tables.record(row) {
            Ok(Some(record)) if record.fingerprint == fingerprint => Ok(Some(Enqueued::Existing { id })),
            Ok(Some(_)) | Err(Error::Corrupt { .. }) => Err(Error::Duplicate { id }),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&mut self, job: NewJob, id: JobId, fingerprint: u64, behind: Option<JobId>) -> Result<()> {
        self.room_for(&job.spec, u64::from(behind.is_some()))?;
        let (queue, lane) = self.lane_for(&job.spec)?;
        let due_at = if behind.is_some() { None } else { Some(job.due.resolve(self.now)) };
        let spec = &job.spec;
        let life = Life::new(due_at, self.now, spec.attempts, spec.stalls);
        let seq = self.tables.next_seq()?;
        let record = Record {
            row: Row(seq),
            id,
            queue,
            lane,
            group: None,
            grouped: spec.group.is_some(),
            priority: spec.priority,
            lifo: spec.lifo,
            ord: Ord64::new(spec.priority, seq, spec.lifo),
            life,
            created_at: self.now,
            ready_at: self.now,
            fingerprint,
            dedup: spec.dedup_hash(),
            keeps_itself: spec.keep_for != KeepFor::default(),
            remove_at: None,
            quarantined: false,
            run: spec.run,
        };
        self.take_dedup(&record, spec, behind)?;
        let row = record.row;
        self.insert(Fresh { record, spec: Arc::new(job.spec) })?;
        match job.due.resolve(self.now) {
            due_at if behind.is_some() && due_at > self.now => {
                self.tables.put_extra(row, Extra { held_due_at: Some(due_at), ..Extra::default() })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a job on a queue that is at its maximum length; `leaving` jobs make room for it.
    fn room_for(&mut self, spec: &JobSpec, leaving: u64) -> Result<()> {
        if spec.run.is_some() {
            return Ok(());
        }
        let Some(id) = self.tables.find_queue(&spec.queue)? else {
            return Ok(());
        };
        let queue = self.tables.queue(id)?;
        match queue.settings.len_max {
            Some(max) if waiting(queue) >= max.saturating_add(leaving) => Err(Error::queue_full(&spec.queue, max)),
            _ => Ok(()),
        }
    }

    /// The queue of this name, made if it is not there.
    pub(super) fn queue_for(&mut self, name: &QueueName) -> Result<QueueId> {
        if let Some(id) = self.tables.find_queue(name)? {
            return Ok(id);
        }
        let id = QueueId(self.tables.next_seq()?);
        let plain = self.make_group(id, None)?;
        self.tables.insert_queue(Queue {
            id,
            name: name.clone(),
            settings: QueueSettings::default(),
            counts: [0; 6],
            vtime: 0,
            meter: Meter::default(),
            plain,
            named_ready: 0,
        })?;
        Ok(id)
    }

    fn lane_for(&mut self, spec: &JobSpec) -> Result<(QueueId, LaneId)> {
        let queue = self.queue_for(&spec.queue)?;
        if let Some(lane) = self.tables.find_lane(queue, &spec.kind, &spec.labels)? {
            return Ok((queue, lane));
        }
        // Below the bound of either, neither kind of lane can have reached its own.
        if self.tables.lanes(queue)?.len() >= LANES_MAX {
            self.make_room_for_lane(queue, spec)?;
        }
        let id = LaneId(self.tables.next_seq()?);
        let (kind, labels) = (spec.kind.clone(), spec.labels.clone());
        self.tables.insert_lane(Lane { id, queue, kind, labels, jobs: 0, ready: 0, head: Ord64::default() })?;
        Ok((queue, id))
    }

    /// Makes room for the lane of a job by forgetting one that has no jobs, if lanes with labels, or those without, are at their
    /// bound.
    fn make_room_for_lane(&mut self, queue: QueueId, spec: &JobSpec) -> Result<()> {
        let has_labels = !spec.labels.is_empty();
        let count = self.lanes_where(queue, |lane| lane.labels.is_empty() != has_labels)?.len();
        if count < LANES_MAX {
            return Ok(());
        }
        let empty = self.lanes_where(queue, |lane| lane.jobs == 0 && lane.labels.is_empty() != has_labels)?;
        match empty.first() {
            Some(lane) => self.tables.remove_lane(*lane),
            None => Err(too_many_lanes(spec, count as u64 + 1)),
        }
    }

    /// Removes a job whose place another one takes.
    fn give_way(&mut self, id: JobId) -> Result<()> {
        let Some(row) = self.tables.find_job(id)? else { return Ok(()) };
        match self.readable_record(row)? {
            Some(record) => self.remove(&record, Verb::Remove),
            None => Ok(()),
        }
    }

    /// For an atomic batch: the answers, if any of its items would be refused; deduplication is not counted in.
    fn refusals(&mut self, jobs: &[Result<Prepared>]) -> Option<Vec<Result<Enqueued>>> {
        let verdicts = self.verdicts(jobs);
        if verdicts.iter().all(Result::is_ok) {
            return None;
        }
        Some(verdicts.into_iter().map(|verdict| Err(verdict.err().unwrap_or_else(Error::batch_refused))).collect())
    }

    /// Whether each job of an atomic batch would be refused.
    pub(super) fn verdicts(&mut self, jobs: &[Result<Prepared>]) -> Vec<Result<()>> {
        let mut plan = BatchPlan::default();
        jobs.iter().map(|job| self.refusal(job, &mut plan)).collect()
    }

    fn refusal(&mut self, job: &Result<Prepared>, plan: &mut BatchPlan) -> Result<()> {
        let Prepared { job, id, fingerprint } = job.as_ref().map_err(Error::clone)?;
        let (id, fingerprint) = (*id, *fingerprint);
        match plan.ids.get(&id) {
            Some(seen) if *seen == fingerprint => return Ok(()),
            Some(_) => return Err(Error::Duplicate { id }),
            None => {}
        }
        if self.same_job(id, fingerprint)?.is_some() {
            return Ok(());
        }
        let spec = &job.spec;
        let (mut length, mut len_max, mut lanes, mut known) = (0, None, 0, false);
        if let Some(queue) = self.tables.find_queue(&spec.queue)? {
            let state = self.tables.queue(queue)?;
            (length, len_max) = (waiting(state), state.settings.len_max);
            // An empty lane counts as none: an earlier job of the batch may take its place.
            known = match self.tables.find_lane(queue, &spec.kind, &spec.labels)? {
                Some(lane) => self.tables.lane(lane)?.jobs > 0,
                None => false,
            };
            if !known {
                let has_labels = !spec.labels.is_empty();
                lanes = self.lanes_where(queue, |lane| lane.jobs > 0 && lane.labels.is_empty() != has_labels)?.len();
            }
        }
        let len_max = len_max.filter(|_| spec.run.is_none());
        if known && len_max.is_none() {
            // It takes nothing that another one could miss.
            plan.ids.insert(id, fingerprint);
            return Ok(());
        }
        let queue = plan.queues.entry(spec.queue.clone()).or_default();
        match len_max {
            Some(max) if length + queue.jobs >= max => return Err(Error::queue_full(&spec.queue, max)),
            _ => {}
        }
        if !known && queue.lanes.insert((spec.kind.clone(), spec.labels.clone())) {
            let new = if spec.labels.is_empty() { &mut queue.new_plain } else { &mut queue.new_labelled };
            *new += 1;
            if lanes + *new > LANES_MAX {
                return Err(too_many_lanes(spec, LANES_MAX as u64 + 1));
            }
        }
        queue.jobs += 1;
        plan.ids.insert(id, fingerprint);
        Ok(())
    }
}

/// What an atomic batch would add.
#[derive(Default)]
struct BatchPlan {
    ids: HashMap<JobId, u64>,
    queues: BTreeMap<QueueName, QueuePlan>,
}

#[derive(Default)]
struct QueuePlan {
    jobs: u64,
    lanes: BTreeSet<(crate::name::Kind, crate::name::Labels)>,
    /// New lanes among them without labels, and with labels.
    new_plain: usize,
    new_labelled: usize,
}

fn too_many_lanes(spec: &JobSpec, got: u64) -> Error {
    Error::too_many_lanes(!spec.labels.is_empty(), LANES_MAX as u64, got)
}

/// Jobs that wait, scheduled ones included.
fn waiting(queue: &Queue) -> u64 {
    queue.counts[State::Scheduled.index()] + queue.counts[State::Ready.index()]
}

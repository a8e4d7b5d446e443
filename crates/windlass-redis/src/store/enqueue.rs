//! Enqueue.

use super::RedisStore;
use super::caller::Caller;
use super::gather::{GATHERED, Gather};
use crate::directory::lane_key;
use crate::link::Call;
use crate::record::{is_plain, new_job_fields, new_job_rest};
use crate::reply::{Items, number, odd};
use crate::scripts::AT;
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use std::collections::HashMap;
use windlass_core::engine::Prepared;
use windlass_core::id::JobId;
use windlass_core::job::NewJob;
use windlass_core::name::QueueName;
use windlass_core::store::{EnqueueRequest, Enqueued};
use windlass_core::{Error, Result};

/// Plain jobs of one script: a server does nothing else meanwhile. An atomic call is one script, however long.
const PIECE: usize = 500;
/// A job with a group, a dedup key or a due time is as much work as so many plain ones.
const WORK_OF_OTHERS: usize = 3;
/// Calls under way at once.
const UNDER_WAY_MAX: usize = 2;
/// Bytes of one script, one large job excepted.
pub(super) const PIECE_BYTES: usize = 8 << 20;
/// Bytes of an atomic call: a server closes the connection of a longer one.
pub(super) const ATOMIC_BYTES_MAX: u64 = 256 << 20;

/// The queue, kind and labels of jobs, each told once per call.
#[derive(Default)]
pub(super) struct Lanes {
    numbers: HashMap<(String, String), usize>,
    all: Vec<(String, String)>,
}

impl Lanes {
    pub(super) fn number(&mut self, job: &NewJob) -> usize {
        let lane = (job.spec.queue.as_str().to_owned(), lane_key(&job.spec.kind, &job.spec.labels));
        if let Some((last, number)) = self.all.last().zip(Some(self.all.len()))
            && *last == lane
        {
            return number;
        }
        let next = self.all.len() + 1;
        let number = *self.numbers.entry(lane.clone()).or_insert(next);
        if number == next {
            self.all.push(lane);
        }
        number
    }

    /// Adds them to a call, as `lua/lib/create.lua` reads them.
    pub(super) fn add(&self, call: &mut Call<'_>) {
        call.arg_fmt(self.all.len());
        for (queue, key) in &self.all {
            call.arg(queue).arg(key);
        }
    }
}

/// A job as it is told.
struct Told {
    id: JobId,
    lane: usize,
    /// Nothing for one with nothing but defaults.
    fields: Option<String>,
    rest: Vec<u8>,
}

/// Adds lanes and jobs to a call, as `lua/lib/create.lua` reads them.
pub(super) fn add_jobs<'a>(call: &mut Call<'_>, jobs: impl IntoIterator<Item = &'a Prepared>) -> Result<()> {
    let mut lanes = Lanes::default();
    let mut told = Vec::new();
    let mut bytes = 0;
    for Prepared { job, id, fingerprint } in jobs {
        let (id, fingerprint, lane) = (*id, *fingerprint, lanes.number(job));
        let (fields, mut rest) = (new_job_fields(job, fingerprint, lane), new_job_rest(job)?);
        if fields.is_none() {
            rest.splice(0..0, format!("{fingerprint:016x}\n").into_bytes());
        }
        bytes += fields.as_ref().map_or(0, String::len) + rest.len() + 32;
        told.push(Told { id, lane, fields, rest });
    }
    call.reserve(2 * lanes.all.len() + 4 * told.len() + 2, bytes);
    lanes.add(call);
    call.arg_fmt(told.len());
    let in_a_row = |one: &Told, next: &Told| one.fields.is_none() && next.fields.is_none() && one.lane == next.lane;
    for row in told.chunk_by(in_a_row) {
        match row {
            [Told { id, fields: Some(fields), rest, .. }] => {
                call.arg("J").arg_fmt(id).arg(fields).arg(rest);
            }
            row => {
                call.arg("P").arg_fmt(row.first().map_or(0, |job| job.lane)).arg_fmt(row.len());
                for Told { id, rest, .. } in row {
                    call.arg_fmt(id).arg(rest);
                }
            }
        }
    }
    Ok(())
}

#[async_trait]
impl Gather for Prepared {
    type Answer = Enqueued;
    const ITEMS: &'static str = "jobs";

    async fn send(caller: &Caller, jobs: &[&Self]) -> Result<Vec<Result<Enqueued>>> {
        enqueue_piece(caller, jobs, false).await
    }

    fn piece_of(jobs: &[&Self]) -> usize {
        piece_of(jobs)
    }
}

impl RedisStore {
    pub(super) async fn enqueue_jobs(&self, request: EnqueueRequest) -> Result<Vec<Result<Enqueued>>> {
        let EnqueueRequest { jobs, atomic } = request;
        let checked = Prepared::outside(jobs)?;
        self.caller.signals.check_open()?;
        if atomic && checked.iter().any(Result::is_err) {
            return self.refuse_all(checked).await;
        }
        if !atomic && checked.len() <= GATHERED {
            return self.enqueues.send_sound(checked).await;
        }
        let sent: Vec<&Prepared> = checked.iter().flatten().collect();
        let bytes = sent.iter().map(|job| job.job.spec.payload.bytes.len() as u64).sum();
        if atomic && bytes > ATOMIC_BYTES_MAX {
            return Err(Error::limit("an atomic batch, in bytes,", ATOMIC_BYTES_MAX, bytes));
        }
        // While one piece is on its way back, the next is at work. They go in their order.
        let (mut rest, mut calls) = (&sent[..], FuturesOrdered::new());
        let (mut answers, mut went, mut failed) = (Vec::with_capacity(sent.len()), sent.is_empty(), None);
        loop {
            while !rest.is_empty() && calls.len() < UNDER_WAY_MAX {
                let (piece, behind) = rest.split_at(if atomic { rest.len() } else { piece_of(rest) });
                calls.push_back(enqueue_counted(&self.caller, piece, atomic));
                rest = behind;
            }
            match calls.next().await {
                None => break,
                Some((_, Ok(some))) => {
                    went = true;
                    answers.extend(some);
                }
                Some((count, Err(error))) => {
                    answers.extend(std::iter::repeat_with(|| Err(error.clone())).take(count));
                    failed = failed.or(Some(error));
                }
            }
        }
        drop(calls);
        // When one piece went well, its callers must know.
        if let Some(error) = failed.filter(|_| !went) {
            return Err(error);
        }
        let mut answers = answers.into_iter();
        let missing = || Err(odd("an answer is missing"));
        Ok(checked.into_iter().map(|job| job.and_then(|_| answers.next().unwrap_or_else(missing))).collect())
    }

    /// An atomic call with a job that no store takes: the others are asked for, and nothing is done.
    async fn refuse_all(&self, checked: Vec<Result<Prepared>>) -> Result<Vec<Result<Enqueued>>> {
        let mut call = self.caller.script(AT.enqueue);
        call.arg("2");
        add_jobs(&mut call, checked.iter().flatten())?;
        let mut items = self.caller.items(call).await?;
        let answer = |job: Result<Prepared>| {
            let job = job?;
            Err(match enqueued(&items.text()?, job.id, &job.job.spec.queue) {
                Err(error) => error,
                Ok(_) => Error::batch_refused(),
            })
        };
        Ok(checked.into_iter().map(answer).collect())
    }
}

/// Enqueues jobs in one script; how many they are, and what became of them.
async fn enqueue_counted(caller: &Caller, jobs: &[&Prepared], atomic: bool) -> (usize, Result<Vec<Result<Enqueued>>>) {
    (jobs.len(), enqueue_piece(caller, jobs, atomic).await)
}

/// Enqueues jobs in one script.
pub(super) async fn enqueue_piece(caller: &Caller, jobs: &[&Prepared], atomic: bool) -> Result<Vec<Result<Enqueued>>> {
    let plain = jobs.iter().all(|job| is_plain(&job.job));
    let keys = if plain { caller.keys.plain() } else { caller.keys.all() };
    let (mut first, mut items) = call_enqueue(caller, keys, jobs, atomic).await?;
    if first == "keys" {
        // The first jobs of a store: the script looks at all keys before it makes one.
        (first, items) = call_enqueue(caller, caller.keys.all(), jobs, atomic).await?;
    }
    if first == "all" {
        return Ok(jobs.iter().map(|job| Ok(Enqueued::Created { id: job.id })).collect());
    }
    let mut words = std::iter::once(Ok(first)).chain(std::iter::repeat_with(|| items.text()));
    let mut next = || words.next().unwrap_or_else(|| Err(odd("an answer is missing")));
    jobs.iter().map(|job| Ok(enqueued(&next()?, job.id, &job.job.spec.queue))).collect()
}

/// Calls the script; its first word, and what follows.
async fn call_enqueue(caller: &Caller, keys: &[String], jobs: &[&Prepared], atomic: bool) -> Result<(String, Items)> {
    let mut call = caller.script_over(AT.enqueue, keys);
    call.arg(if atomic { "1" } else { "0" });
    add_jobs(&mut call, jobs.iter().copied())?;
    let mut items = Items::of(caller.run_durably(call).await?)?;
    Ok((items.text()?, items))
}

/// How many of these jobs go into one script.
pub(super) fn piece_of(jobs: &[&Prepared]) -> usize {
    let (mut bytes, mut work) = (0, 0);
    let fits = |job: &&&Prepared| {
        bytes += job.job.spec.payload.bytes.len();
        work += if is_plain(&job.job) { 1 } else { WORK_OF_OTHERS };
        bytes <= PIECE_BYTES && work <= PIECE
    };
    jobs.iter().take_while(fits).count().max(1)
}

/// A queue whose counters or settings are damaged.
pub(super) fn unreadable_queue(queue: &QueueName) -> Error {
    Error::corrupt(format!(
        "the queue `{queue}` cannot be read: its entry in `meta` is damaged; restore it, or set its settings again"
    ))
}

/// What became of a job, from the word of the script.
pub(super) fn enqueued(answer: &str, id: JobId, queue: &QueueName) -> Result<Enqueued> {
    let (word, rest) = answer.split_once(' ').unwrap_or((answer, ""));
    match word {
        "created" => Ok(Enqueued::Created { id }),
        "existing" => Ok(Enqueued::Existing { id }),
        "deduplicated" => Ok(Enqueued::Deduplicated { by: rest.parse()? }),
        "replaced" => Ok(Enqueued::Replaced { id, old: rest.parse()? }),
        "held" => Ok(Enqueued::Held { id, behind: rest.parse()? }),
        "duplicate" => Err(Error::Duplicate { id }),
        "full" => Err(Error::queue_full(queue, number(rest)?)),
        "lanes" => {
            let got = number(rest)?;
            Err(Error::too_many_lanes(true, got - 1, got))
        }
        "kinds" => {
            let got = number(rest)?;
            Err(Error::too_many_lanes(false, got - 1, got))
        }
        "damaged" => Err(unreadable_queue(queue)),
        "bystander" => Err(Error::batch_refused()),
        _ => Err(odd(answer)),
    }
}

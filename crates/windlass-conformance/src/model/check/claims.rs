//! A naive oracle of what a claim may return: priority and sequence within a group (12), nothing that a worker may not
//! run in the way of what it may (13), caps and rates (14). It knows no lanes and no rings: it looks at every job.

use super::super::answer::{Answer, Granted};
use super::feed::Replay;
use super::limits::{Limits, Room};
use super::{Step, Verdict, ensure};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::id::JobId;
use windlass_core::job::{Job, State, Verb};
use windlass_core::name::{GroupName, QueueName};
use windlass_core::store::{ClaimRequest, FeedEvent};

/// A claim promotes at least so many due jobs of a queue.
const PROMOTED_MIN: usize = 64;

pub(super) fn check(step: &Step<'_>, replay: &Replay, limits: &mut Limits, jumped: bool) -> Verdict {
    let (Answer::Claimed(granted) | Answer::ReportedAndClaimed(_, granted)) = step.answer else { return Ok(()) };
    let Some((request, new)) = step.claim else { return Ok(()) };
    let granted: Vec<&Granted> = granted.iter().filter(|job| job.lease >= step.leases_before).collect();
    if *new {
        let mut left = request.max as usize;
        for queue in &request.queues {
            let mine: Vec<&Granted> = granted.iter().filter(|job| job.spec.queue == *queue).copied().collect();
            check_queue(&Claim { step, request, queue, granted: &mine, left, jumped }, replay, limits)?;
            left -= mine.len();
        }
        let ranks: Vec<_> =
            granted.iter().map(|job| request.queues.iter().position(|queue| *queue == job.spec.queue)).collect();
        ensure!(ranks.iter().all(Option::is_some) && ranks.is_sorted(), "queues out of order: {ranks:?}");
    }
    for job in granted {
        limits.note_start(job.spec.queue.clone(), job.spec.group.clone(), step.now);
    }
    Ok(())
}

/// The part of a claim that concerns one queue.
struct Claim<'a> {
    step: &'a Step<'a>,
    request: &'a ClaimRequest,
    queue: &'a QueueName,
    granted: &'a [&'a Granted],
    left: usize,
    jumped: bool,
}

impl Claim<'_> {
    fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.step.after.values().filter(|job| job.spec.queue == *self.queue)
    }

    /// What was ready when the claim chose: what still is, and what it took.
    fn was_ready(&self, job: &Job) -> bool {
        job.state == State::Ready || self.granted.iter().any(|granted| granted.job == job.id)
    }

    fn active_before(&self, of: impl Fn(&Job) -> bool) -> u64 {
        let active = self.jobs().filter(|job| job.state == State::Active && !self.was_ready(job) && of(job));
        active.count() as u64
    }

    /// The room, unless a clock that jumped back may have made it smaller.
    fn careful(&self, room: Room, rated: bool) -> Room {
        if self.jumped && rated { Room { least: 0, ..room } } else { room }
    }
}

fn check_queue(claim: &Claim<'_>, replay: &Replay, limits: &Limits) -> Verdict {
    let settings = limits.queue(claim.queue);
    let due = claim.jobs().filter(|job| job.due_at.is_some_and(|due| due <= claim.step.now)).count();
    let is_promotion = |event: &FeedEvent| match event {
        FeedEvent::Job(job) => job.verb == Verb::Promote && job.queue == *claim.queue,
        _ => false,
    };
    let promoted = claim.step.events.iter().filter(|(_, event)| is_promotion(event)).count();
    ensure!(
        claim.left == 0 || due == 0 || promoted >= PROMOTED_MIN,
        "a claim left {due} due jobs of {} and promoted {promoted}",
        claim.queue
    );
    let wanted = |job: &&Job| {
        claim.was_ready(job)
            && !settings.paused
            && !settings.paused_kinds.contains(&job.spec.kind)
            && claim.request.kinds.contain(&job.spec.kind)
            && job.spec.labels.is_subset_of(&claim.request.labels)
    };
    let eligible: Vec<&Job> = claim.jobs().filter(wanted).collect();
    let groups: BTreeSet<Option<&GroupName>> = eligible.iter().map(|job| job.spec.group.as_ref()).collect();
    let (mut least, mut most) = (0u64, 0u64);
    let mut taken: BTreeMap<Option<&GroupName>, Vec<JobId>> = BTreeMap::new();
    for job in claim.granted {
        taken.entry(job.spec.group.as_ref()).or_default().push(job.job);
    }
    for group in groups {
        let own = limits.group(claim.queue, group);
        let active = claim.active_before(|job| job.spec.group.as_ref() == group);
        let room = limits.room((claim.queue, group), (own.cap, own.rate), active, claim.step.now);
        let room = claim.careful(room, own.rate.is_some());
        let mut line: Vec<&Job> = eligible.iter().filter(|job| job.spec.group.as_ref() == group).copied().collect();
        line.sort_by_key(|job| place(job, replay));
        let taken = taken.remove(&group).unwrap_or_default();
        ensure!(taken.len() as u64 <= room.most, "group {group:?} of {} took {} of {room:?}", claim.queue, taken.len());
        let expected: Vec<JobId> = line.iter().map(|job| job.id).take(taken.len()).collect();
        ensure!(taken == expected, "out of order in group {group:?} of {}: {taken:?}, not {expected:?}", claim.queue);
        least = least.saturating_add(room.least.min(line.len() as u64));
        most = most.saturating_add(room.most.min(line.len() as u64));
    }
    ensure!(taken.is_empty(), "not eligible on {}: {taken:?}", claim.queue);
    let whole =
        limits.room((claim.queue, None), (settings.cap, settings.rate), claim.active_before(|_| true), claim.step.now);
    let whole = claim.careful(whole, settings.rate.is_some());
    let left = claim.left as u64;
    let (least, most) = (least.min(whole.least).min(left), most.min(whole.most).min(left));
    let got = claim.granted.len() as u64;
    ensure!((least..=most).contains(&got), "{got} jobs of {} were granted, not {least} to {most}", claim.queue);
    Ok(())
}

/// Lower first; last-in-first-out jobs head their priority.
fn place(job: &Job, replay: &Replay) -> (i16, bool, i128) {
    let place = i128::from(replay.places.get(&job.id).copied().unwrap_or(0));
    (job.spec.priority, !job.spec.lifo, if job.spec.lifo { -place } else { place })
}

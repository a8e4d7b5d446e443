//! The state of a service as its Sentinels describe it: applies messages and reports, and returns the connections to end.
//! Pure: the caller passes the time in.
//!
//! Before a promotion all connections are *fenced*: they are ended, answers that are still under way count as unknown, and
//! no connection is made. The fence is lifted by the announcement of the new primary, when every Sentinel that has announced
//! a promotion has aborted it, or after [`FENCE`].

use super::message::{Announcement, Replica, Report};
use crate::options::Node;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::Error;

/// How long connections stay fenced if no message about the failover follows.
pub(super) const FENCE: Duration = Duration::from_secs(3);
/// For this long an announced primary is preferred to the reports: the other Sentinels may not have it yet.
const PREFERRED: Duration = Duration::from_secs(10);
/// A report of a failover that was fenced within this time does not fence it again.
const FENCED_ONCE: Duration = Duration::from_secs(30);
/// The most Sentinels that are listened to.
const SENTINELS_MAX: usize = 16;

/// The connections to end.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    EndAll,
    /// All that lead to another node than this one.
    EndOthers(Node),
}

#[derive(Debug)]
struct Sentinel {
    node: Node,
    /// The last question that it has answered, or failed to.
    answered: u64,
    report: Option<Result<Report, Error>>,
}

#[derive(Debug)]
struct Primary {
    node: Node,
    epoch: Option<u64>,
    /// When a message, and not only a report, has named it.
    announced_at: Option<Instant>,
}

#[derive(Debug)]
struct Fence {
    /// The primary that is about to be replaced.
    replaced: Node,
    /// The Sentinels that have selected a replica and have not aborted their failover.
    leaders: HashSet<Node>,
    ends: Instant,
}

#[derive(Debug, Default)]
pub(super) struct View {
    sentinels: Vec<Sentinel>,
    primary: Option<Primary>,
    /// The primary before this one.
    previous: Option<Node>,
    fence: Option<Fence>,
    /// When the last fence began, while no new primary and no abort has followed it.
    fenced_at: Option<Instant>,
    /// Counts fences and new primaries.
    generation: u64,
    /// Counts the questions to all Sentinels.
    question: u64,
}

impl View {
    /// Adds a Sentinel; false if it is there already, or there are too many.
    pub(super) fn add(&mut self, node: &Node) -> bool {
        let is_new = self.sentinels.len() < SENTINELS_MAX && self.sentinels.iter().all(|one| one.node != *node);
        if is_new {
            self.sentinels.push(Sentinel { node: node.clone(), answered: 0, report: None });
        }
        is_new
    }

    /// Removes a Sentinel that is listened to under another address.
    pub(super) fn remove(&mut self, node: &Node) {
        self.sentinels.retain(|one| one.node != *node);
    }

    /// True if another Sentinel than the one at this address has reported this id.
    pub(super) fn has_id(&self, id: &str, besides: &Node) -> bool {
        self.sentinels.iter().any(|one| {
            one.node != *besides && matches!(&one.report, Some(Ok(report)) if report.id.as_deref() == Some(id))
        })
    }

    /// A connection that was begun under another generation may lead to a primary that was replaced.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// When the fence ends by itself; `None` without a fence.
    pub(super) fn fence(&self, now: Instant) -> Option<Instant> {
        self.fence.as_ref().map(|fence| fence.ends).filter(|ends| *ends > now)
    }

    /// Begins a question to all Sentinels and returns its number.
    pub(super) fn ask(&mut self) -> u64 {
        self.question += 1;
        self.question
    }

    /// How many Sentinels have not yet answered a question, and how many have reported.
    pub(super) fn progress(&self, question: u64) -> (usize, usize) {
        let open = self.sentinels.iter().filter(|one| one.answered < question).count();
        let reported =
            self.sentinels.iter().filter(|one| one.answered >= question && matches!(one.report, Some(Ok(_))));
        (open, reported.count())
    }

    /// Applies a message of a Sentinel, with the epoch that it reported right after it.
    pub(super) fn apply_announcement(
        &mut self,
        from: &Node,
        announcement: &Announcement,
        epoch: Option<u64>,
        now: Instant,
    ) -> Effect {
        match announcement {
            Announcement::Promoting { replaced } if self.concerns(from, replaced) => {
                self.promoting(from, replaced, now)
            }
            Announcement::Promoting { .. } | Announcement::Replicas => Effect::Nothing,
            Announcement::Promoted(node) => self.promoted(node, epoch, Some(now)),
            Announcement::Aborted { replaced } => {
                self.aborted(from, replaced);
                Effect::Nothing
            }
        }
    }

    /// Applies what a Sentinel answered to a question, or that it did not answer.
    pub(super) fn apply_answer(
        &mut self,
        from: &Node,
        question: u64,
        result: Result<Report, Error>,
        now: Instant,
    ) -> Effect {
        let effect = match &result {
            Ok(report) => self.apply_report(from, report, now),
            Err(_) => Effect::Nothing,
        };
        if let Some(sentinel) = self.sentinels.iter_mut().find(|one| one.node == *from) {
            sentinel.answered = sentinel.answered.max(question);
            sentinel.report = Some(result);
        }
        effect
    }

    /// True if a failover of this node is one of the primary. A Sentinel that was left behind may watch over another node
    /// under the same name. One node may have several addresses: that the Sentinel has the same epoch settles it, too.
    fn concerns(&self, from: &Node, replaced: &Node) -> bool {
        let Some(primary) = &self.primary else { return true };
        let report =
            self.sentinels.iter().find(|one| one.node == *from).and_then(|one| one.report.as_ref()?.as_ref().ok());
        let has_epoch = |report: &Report| report.epoch >= primary.epoch && report.primary.as_ref() == Some(replaced);
        primary.node == *replaced || report.is_none_or(has_epoch)
    }

    /// Fences all connections. Every message of the same failover extends the fence.
    pub(super) fn promoting(&mut self, from: &Node, replaced: &Node, now: Instant) -> Effect {
        let fenced = self.fence.take().filter(|fence| fence.ends > now);
        let is_fenced = fenced.is_some();
        let mut leaders = fenced.map(|fence| fence.leaders).unwrap_or_default();
        leaders.insert(from.clone());
        self.fence = Some(Fence { replaced: replaced.clone(), leaders, ends: now + FENCE });
        self.fenced_at = Some(now);
        if is_fenced {
            return Effect::Nothing;
        }
        self.generation += 1;
        Effect::EndAll
    }

    /// Lifts the fence if no Sentinel is left that may promote a replica.
    fn aborted(&mut self, from: &Node, replaced: &Node) {
        let Some(fence) = self.fence.as_mut().filter(|fence| fence.replaced == *replaced) else { return };
        if fence.leaders.remove(from) && fence.leaders.is_empty() {
            self.lift_fence();
        }
    }

    fn lift_fence(&mut self) {
        self.fence = None;
        self.fenced_at = None;
    }

    fn promoted(&mut self, node: &Node, epoch: Option<u64>, announced_at: Option<Instant>) -> Effect {
        let known = self.primary.as_ref().and_then(|primary| primary.epoch);
        let is_stale = epoch.is_some() && epoch < known;
        let is_new = self.primary.as_ref().is_none_or(|primary| primary.node != *node);
        // A Sentinel that receives the configuration later than the others publishes the last switch once more. That must
        // not lift the fence of the next one.
        if is_stale || (!is_new && epoch <= known) {
            return Effect::Nothing;
        }
        self.lift_fence();
        if is_new {
            self.generation += 1;
            self.previous = self.primary.take().map(|primary| primary.node);
        }
        self.primary = Some(Primary { node: node.clone(), epoch: epoch.or(known), announced_at });
        Effect::EndOthers(node.clone())
    }

    /// A report names what messages should have announced: they may have been missed.
    fn apply_report(&mut self, from: &Node, report: &Report, now: Instant) -> Effect {
        let switched = self.apply_primary(report, now);
        if let (Some(previous), Some(up)) = (&self.previous, &report.replicas_up)
            && up.iter().any(|one| one.node == *previous && one.is_attached)
        {
            self.previous = None;
        }
        let was_fenced = self.fenced_at.is_some_and(|at| now.duration_since(at) < FENCED_ONCE);
        if let Some(fence) = self.fence.as_mut().filter(|_| report.is_promoting) {
            fence.leaders.insert(from.clone());
        }
        match &report.primary {
            Some(node) if report.is_promoting && !was_fenced => match self.promoting(from, node, now) {
                Effect::Nothing => switched,
                fenced => fenced,
            },
            _ => switched,
        }
    }

    fn apply_primary(&mut self, report: &Report, now: Instant) -> Effect {
        let (Some(node), Some(epoch)) = (&report.primary, report.epoch) else { return Effect::Nothing };
        match &mut self.primary {
            None => {
                self.primary = Some(Primary { node: node.clone(), epoch: Some(epoch), announced_at: None });
                Effect::Nothing
            }
            Some(known) if known.node == *node => {
                known.epoch = known.epoch.max(Some(epoch));
                Effect::Nothing
            }
            // Announced without an epoch: a report that differs may be older.
            Some(known) if known.epoch.is_none() && is_preferred(known, now) => Effect::Nothing,
            Some(known) if known.epoch < Some(epoch) => self.promoted(node, Some(epoch), None),
            Some(_) => Effect::Nothing,
        }
    }

    /// The primary that was announced a moment ago: the reports need not be waited for.
    pub(super) fn announced(&self, now: Instant) -> Option<Node> {
        self.primary.as_ref().filter(|primary| is_preferred(primary, now)).map(|primary| primary.node.clone())
    }

    /// The nodes that may be the primary, the likeliest first: by epoch, then by the number of Sentinels that name it. An
    /// answer with a lower epoch is outdated; it is the last resort, and none after an announcement.
    pub(super) fn candidates(&self, now: Instant) -> Vec<Node> {
        let mut named: Vec<(Option<u64>, usize, &Node)> = Vec::new();
        for (epoch, node) in self.reports().filter_map(|report| Some((report.epoch, report.primary.as_ref()?))) {
            match named.iter_mut().find(|(_, _, other)| *other == node) {
                Some((highest, votes, _)) => (*highest, *votes) = ((*highest).max(epoch), *votes + 1),
                None => named.push((epoch, 1, node)),
            }
        }
        if let Some(Primary { node, epoch, .. }) = self.primary.as_ref()
            && named.iter().all(|(_, _, other)| *other != node)
        {
            named.push((*epoch, 0, node));
        }
        named.sort_by_key(|(epoch, votes, _)| Reverse((*epoch, *votes)));
        let highest = named.first().and_then(|(epoch, ..)| *epoch);
        if self.announced(now).is_some() {
            named.retain(|(epoch, ..)| *epoch == highest);
        }
        named.into_iter().map(|(_, _, node)| node.clone()).collect()
    }

    /// How many replicas a change must reach so that each node that could be promoted has it: those that at least one Sentinel
    /// does not consider down. A replica without a link to the primary counts, because it may be the one that was just
    /// promoted. The primary that was just replaced does not count before it is attached to the new one: it will copy
    /// everything then. The primary itself does not count: after its promotion a Sentinel lists it among the replicas of the
    /// old one until these follow it.
    pub(super) fn replicas_up(&self) -> Option<u32> {
        let is_of_primary = |report: &&Report| {
            self.primary.is_none() || report.primary.as_ref() == self.primary.as_ref().map(|one| &one.node)
        };
        let is_replaced = |one: &Replica| !one.is_attached && self.previous.as_ref() == Some(&one.node);
        let mut listed = self
            .reports()
            .filter(is_of_primary)
            .filter_map(|report| Some((report.primary.as_ref(), report.replicas_up.as_ref()?)))
            .peekable();
        listed.peek()?;
        let replicas = listed.flat_map(|(primary, up)| up.iter().filter(move |one| primary != Some(&one.node)));
        let nodes: HashSet<&Node> = replicas.filter(|one| !is_replaced(one)).map(|one| &one.node).collect();
        u32::try_from(nodes.len()).ok()
    }

    /// True if a Sentinel that answers names this one.
    pub(super) fn is_named(&self, sentinel: &Node) -> bool {
        self.reports().any(|report| report.others.iter().any(|(_, node)| node == sentinel))
    }

    fn reports(&self) -> impl Iterator<Item = &Report> {
        self.sentinels.iter().filter_map(|one| one.report.as_ref()?.as_ref().ok())
    }

    /// Why no Sentinel has named a primary: what the user can mend, if there is such an answer.
    pub(super) fn error(&self) -> Option<Error> {
        let errors = || self.sentinels.iter().filter_map(|one| one.report.as_ref()?.as_ref().err());
        errors().find(|error| !error.is_retryable()).or_else(|| errors().next()).cloned()
    }
}

fn is_preferred(primary: &Primary, now: Instant) -> bool {
    primary.announced_at.is_some_and(|at| now.duration_since(at) < PREFERRED)
}

#[cfg(test)]
mod tests;

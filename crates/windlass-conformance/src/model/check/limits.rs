//! Settings as they were asked for, and every start that happened, to be counted again.

use super::super::answer::Answer;
use super::super::op::Op;
use super::Step;
use std::collections::BTreeMap;
use windlass_core::name::{GroupName, QueueName};
use windlass_core::rate::{LOG_LIMIT_MAX, Rate};
use windlass_core::store::{FeedEvent, GroupSettings, QueueSettings, Setting};
use windlass_core::time::Timestamp;

/// The settings of a queue and of its groups.
pub(super) type Settings = BTreeMap<QueueName, (QueueSettings, BTreeMap<GroupName, GroupSettings>)>;

#[derive(Debug)]
struct Start {
    queue: QueueName,
    group: Option<GroupName>,
    at: Timestamp,
}

/// Settings and starts.
#[derive(Debug, Default)]
pub(super) struct Limits {
    settings: Settings,
    starts: Vec<Start>,
    /// Starts before this one may be forgotten, because the queue's settings changed after them.
    floors: BTreeMap<QueueName, usize>,
    /// Starts before this one are forgotten, because the queue was removed after them.
    origins: BTreeMap<QueueName, usize>,
    /// How much longer than its rate asks for a start of the queue may be held, by the rates that the queue and its groups have
    /// had: what was counted in buckets stays so when the rate changes.
    slacks: BTreeMap<QueueName, u64>,
}

/// Above this limit the oldest of sixteen buckets counts whole, so a start may be held a little longer.
fn slack(rate: Option<Rate>) -> u64 {
    rate.filter(|rate| rate.limit > LOG_LIMIT_MAX).map_or(0, |rate| rate.per_ms / 16 + 1)
}

/// How many more may start: at least, at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Limits {
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn note_settings(&mut self, step: &Step<'_>) {
        for (_, event) in step.events {
            if let FeedEvent::QueueRemoved { queue } = event {
                self.settings.remove(queue);
                self.floors.insert(queue.clone(), self.starts.len());
                self.origins.insert(queue.clone(), self.starts.len());
            }
        }
        let (Op::Configure(setting), Answer::Nothing) = (step.op, step.answer) else { return };
        self.floors.insert(setting.queue().clone(), self.starts.len());
        let new = match setting {
            Setting::Queue { settings, .. } => slack(settings.rate).max(slack(settings.groups.rate)),
            Setting::Group { settings, .. } => slack(settings.rate),
            Setting::Paused { .. } | Setting::KindPaused { .. } => 0,
        };
        let known = self.slacks.entry(setting.queue().clone()).or_default();
        *known = new.max(*known);
        let (queue, groups) = self.settings.entry(setting.queue().clone()).or_default();
        match setting {
            Setting::Queue { settings, .. } => *queue = settings.clone(),
            Setting::Paused { paused, .. } => queue.paused = *paused,
            Setting::KindPaused { kind, paused: true, .. } => drop(queue.paused_kinds.insert(kind.clone())),
            Setting::KindPaused { kind, paused: false, .. } => drop(queue.paused_kinds.remove(kind)),
            Setting::Group { group, settings, .. } if settings.is_default() => drop(groups.remove(group)),
            Setting::Group { group, settings, .. } => drop(groups.insert(group.clone(), *settings)),
        }
    }

    pub(super) fn queue(&self, queue: &QueueName) -> QueueSettings {
        self.settings.get(queue).map(|(settings, _)| settings.clone()).unwrap_or_default()
    }

    pub(super) fn group(&self, queue: &QueueName, group: Option<&GroupName>) -> GroupSettings {
        let Some(group) = group else { return GroupSettings::default() };
        let Some((settings, groups)) = self.settings.get(queue) else { return GroupSettings::default() };
        groups.get(group).copied().unwrap_or_default().or(settings.groups)
    }

    /// What a cap and a rate leave, before the starts of this step. `of` tells whose starts count.
    pub(super) fn room(
        &self,
        (queue, of): (&QueueName, Option<&GroupName>),
        limits: (Option<u32>, Option<Rate>),
        active: u64,
        now: Timestamp,
    ) -> Room {
        let by_cap = limits.0.map_or(u64::MAX, |cap| u64::from(cap).saturating_sub(active));
        let Some(rate) = limits.1 else { return Room { least: by_cap, most: by_cap } };
        let floor = self.floors.get(queue).copied().unwrap_or(0);
        let mine = |start: &&Start| start.queue == *queue && (of.is_none() || start.group.as_ref() == of);
        let slack = self.slacks.get(queue).copied().unwrap_or(0);
        let since = |ms: u64| now.minus_ms(ms);
        let surely = self.starts.iter().skip(floor).filter(mine).filter(|start| start.at > since(rate.per_ms)).count();
        let origin = self.origins.get(queue).copied().unwrap_or(0);
        let perhaps =
            self.starts.iter().skip(origin).filter(mine).filter(|start| start.at > since(rate.per_ms + slack)).count();
        let left = |used: usize| u64::from(rate.limit).saturating_sub(used as u64).min(by_cap);
        Room { least: left(perhaps), most: left(surely) }
    }

    /// The moments after `now` at which a start leaves the window of a rate that holds now.
    pub(super) fn edges(&self, now: Timestamp) -> Vec<Timestamp> {
        let mut edges = Vec::new();
        for start in &self.starts {
            let rates = [self.queue(&start.queue).rate, self.group(&start.queue, start.group.as_ref()).rate];
            edges.extend(rates.into_iter().flatten().map(|rate| start.at.plus_ms(rate.per_ms)).filter(|at| *at > now));
        }
        edges
    }

    pub(super) fn note_start(&mut self, queue: QueueName, group: Option<GroupName>, at: Timestamp) {
        self.starts.push(Start { queue, group, at });
    }
}

//! Queues, groups and metrics as they are now, their settings, and the work that time brings.

use super::RedisStore;
use super::change::event;
use crate::directory::{settings_of, settings_text};
use crate::reply::{Items, maybe, maybe_time, number, odd, one, text};
use crate::scripts::AT;
use windlass_core::engine::GroupLimits;
use windlass_core::job::State;
use windlass_core::name::{GroupName, QueueName};
use windlass_core::rate::{Meter, Rate};
use windlass_core::store::{
    FeedEvent, GroupPage, GroupSettings, GroupStatus, GroupsRequest, MINUTES_KEPT, MetricsRequest, MinuteMetrics,
    QueueSettings, QueueStatus, RetentionRule, Setting, Sweep, SweepKind, Swept, WORKER_KEPT_MS,
};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// Tries to change settings that somebody else changes, too.
const SETTING_TRIES: usize = 32;

/// A group as the store keeps it.
pub(super) struct Group {
    pub(super) ready: u64,
    pub(super) active: u64,
    pub(super) limits: GroupLimits,
    pub(super) meter: Meter,
    /// `None` for the jobs that name none.
    pub(super) name: Option<GroupName>,
}

impl Group {
    pub(super) fn read(record: &str) -> Result<Self> {
        let parts: Vec<&str> = record.splitn(13, ' ').collect();
        let part = |i: usize| parts.get(i).copied().ok_or_else(|| odd("a group is too short"));
        let rate = match (maybe(part(7)?)?, maybe(part(8)?)?) {
            (Some(limit), Some(per_ms)) => Some(Rate { limit, per_ms }),
            _ => None,
        };
        // Behind a slash stands the cap that jobs of runs have set.
        let (cap, run_cap) = part(6)?.split_once('/').unwrap_or((part(6)?, "-"));
        let limits = GroupLimits { cap: maybe(cap)?, rate, weight: maybe(part(9)?)?, run_cap: maybe(run_cap)? };
        let name = part(12)?.strip_prefix('+').map(GroupName::new).transpose()?;
        Ok(Self { ready: number(part(1)?)?, active: number(part(2)?)?, limits, meter: meter(part(10)?)?, name })
    }
}

/// What was started lately, from `time:count,…`.
pub(super) fn meter(stored: &str) -> Result<Meter> {
    if stored == "-" {
        return Ok(Meter::default());
    }
    let start = |pair: &str| {
        let (at, count) = pair.split_once(':').ok_or_else(|| odd("a meter is damaged"))?;
        Ok((number::<i64>(at)?, number::<u32>(count)?))
    };
    stored.split(',').map(start).collect::<Result<Vec<_>>>().map(Meter::from_starts)
}

/// Steps of one review, at most. A step reviews 500 parked groups.
const REVIEW_STEPS_MAX: usize = 10_000;

impl RedisStore {
    pub(super) async fn queue_statuses(&self) -> Result<Vec<QueueStatus>> {
        let all = self.look(&[], true).await?;
        let mut statuses: Vec<_> = all.into_iter().map(|(name, queue)| queue.status(name)).collect();
        statuses.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(statuses)
    }

    pub(super) async fn group_page(&self, request: GroupsRequest) -> Result<GroupPage> {
        request.check()?;
        let mut call = self.caller.script(AT.groups);
        call.arg(request.queue.as_str()).arg(request.after.as_ref().map_or("", GroupName::as_str));
        call.arg_fmt(request.limit);
        let mut items = self.caller.items(call).await?;
        found(&mut items, &request.queue)?;
        let now = items.time()?;
        let defaults = settings_of(&items.text()?)?.groups;
        let more = items.left() == request.limit as usize;
        let mut groups = Vec::with_capacity(items.left());
        while items.left() > 0 {
            let record = items.bytes()?;
            let Ok(Group { ready, active, limits, meter, name: Some(name) }) = text(&record).and_then(Group::read)
            else {
                continue;
            };
            let (settings, run_cap, rate) = (limits.settings(), limits.run_cap, limits.or(defaults).rate);
            let rate_limited_until = rate.and_then(|rate| meter.next_at(rate, now));
            groups.push(GroupStatus { name, ready, active, settings, run_cap, rate_limited_until });
        }
        Ok(GroupPage { groups, more })
    }

    pub(super) async fn minutes(&self, request: MetricsRequest) -> Result<Vec<MinuteMetrics>> {
        let (from, to) = request.check()?;
        let mut call = self.caller.script(AT.metrics);
        call.arg(request.queue.as_str()).arg_fmt(from).arg_fmt(to);
        let mut items = self.caller.items(call).await?;
        found(&mut items, &request.queue)?;
        let minutes = items.all(|items| {
            let (at, stored) = (items.text()?, items.bytes()?);
            // A minute that is damaged is one of which nothing is known.
            Ok(text(&stored).and_then(|stored| minute(&at, stored)).ok())
        })?;
        Ok(minutes.into_iter().flatten().collect())
    }

    pub(super) async fn set(&self, setting: Setting) -> Result<()> {
        setting.check()?;
        if let Setting::Group { queue, group, settings } = &setting {
            return self.set_group(queue, group, *settings, &setting).await;
        }
        for _ in 0..SETTING_TRIES {
            let name = setting.queue();
            let known = self.look_at(std::slice::from_ref(name)).await?;
            let (mut settings, stored) = known
                .first()
                .map_or_else(Default::default, |(_, queue)| (queue.settings.clone(), queue.settings_text.clone()));
            merge(&mut settings, &setting);
            settings.check()?;
            let whole = matches!(setting, Setting::Queue { .. });
            let mut call = self.caller.script(AT.configure);
            call.arg(name.as_str()).arg("queue").arg(event(&FeedEvent::Settings(setting.clone()))?);
            call.arg(settings_text(&settings)?).arg(if whole { "*" } else { &stored });
            let answer = one(self.caller.run_durably(call).await?)?;
            if answer != "changed" {
                return self.review_parked(name, answer).await;
            }
        }
        Err(Error::Unavailable { reason: "the settings are changed by too many at once".to_owned() })
    }

    async fn set_group(
        &self,
        queue: &QueueName,
        group: &GroupName,
        settings: GroupSettings,
        setting: &Setting,
    ) -> Result<()> {
        let dash = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let mut call = self.caller.script(AT.configure);
        call.arg(queue.as_str()).arg("group").arg(event(&FeedEvent::Settings(setting.clone()))?).arg(group.as_str());
        call.arg(dash(settings.cap.map(u64::from))).arg(dash(settings.rate.map(|rate| u64::from(rate.limit))));
        call.arg(dash(settings.rate.map(|rate| rate.per_ms))).arg(dash(settings.weight.map(u64::from)));
        one(self.caller.run_durably(call).await?).map(drop)
    }

    /// Goes on with the review of parked groups where the last script has stopped. Its settings hold already.
    async fn review_parked(&self, queue: &QueueName, mut answer: String) -> Result<()> {
        for _ in 0..REVIEW_STEPS_MAX {
            match answer.split_once(' ') {
                None if answer == "ok" => return Ok(()),
                Some(("more", group)) => {
                    let mut call = self.caller.script(AT.configure);
                    call.arg(queue.as_str()).arg("review").arg("").arg(group);
                    answer = one(self.caller.run_durably(call).await?)?;
                }
                _ => return Err(odd(&answer)),
            }
        }
        let reason = "the settings hold, and groups were parked faster than they could be reviewed; repeat the call";
        Err(Error::Unavailable { reason: reason.to_owned() })
    }

    /// Handles up to `max` items, in as many scripts as it takes: each does a bounded amount of work.
    pub(super) async fn sweep_once(&self, sweep: Sweep) -> Result<Swept> {
        sweep.check()?;
        let max = u64::from(sweep.max);
        let rules = match sweep.kind {
            SweepKind::Prune => self.retention_rules().await?,
            SweepKind::Reap | SweepKind::Promote => Vec::new(),
        };
        let mut swept = Swept { handled: 0, more: false, next_at: None };
        loop {
            let asked = max - swept.handled;
            let step = match sweep.kind {
                SweepKind::Reap => self.sweep_step(AT.reap, asked).await?,
                SweepKind::Promote => self.sweep_step(AT.promote, asked).await?,
                SweepKind::Prune => self.prune_step(asked, &rules).await?,
            };
            swept.handled += step.handled;
            swept.next_at = step.next_at;
            swept.more = swept.handled >= max;
            if swept.more || !step.more {
                return Ok(swept);
            }
        }
    }

    async fn sweep_step(&self, script: usize, max: u64) -> Result<Swept> {
        let mut call = self.caller.script(script);
        call.arg_fmt(max);
        let mut items = self.caller.items(call).await?;
        let (handled, next_at) = (items.number()?, maybe_time(&items.text()?)?);
        Ok(Swept { handled, more: items.text()? == "1", next_at })
    }

    /// What is kept for how long, of all queues.
    async fn retention_rules(&self) -> Result<Vec<(QueueName, State, RetentionRule)>> {
        let mut rules = Vec::new();
        for (name, queue) in self.look_at(&[]).await? {
            for state in [State::Succeeded, State::Failed, State::Cancelled] {
                let rule = queue.settings.retention.rule(state);
                if rule.age_ms.is_some() || rule.count.is_some() {
                    rules.push((name.clone(), state, rule));
                }
            }
        }
        Ok(rules)
    }

    async fn prune_step(&self, max: u64, rules: &[(QueueName, State, RetentionRule)]) -> Result<Swept> {
        let dash = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let mut call = self.caller.script(AT.prune);
        call.arg_fmt(max).arg_fmt(MINUTES_KEPT).arg_fmt(WORKER_KEPT_MS).arg_fmt(rules.len());
        for (name, state, rule) in rules {
            let letter = crate::reply::state_letter(*state);
            call.arg(name.as_str()).arg(letter).arg(dash(rule.age_ms)).arg(dash(rule.count));
        }
        let mut items = self.caller.items(call).await?;
        Ok(Swept { handled: items.number()?, more: items.text()? == "1", next_at: None })
    }
}

/// Refuses a queue that is not there.
fn found(items: &mut Items, queue: &QueueName) -> Result<()> {
    match items.text()?.as_str() {
        "ok" => Ok(()),
        "missing" => Err(Error::queue_not_found(queue)),
        other => Err(odd(other)),
    }
}

fn merge(settings: &mut QueueSettings, setting: &Setting) {
    match setting {
        Setting::Queue { settings: new, .. } => settings.clone_from(new),
        Setting::Paused { paused, .. } => settings.paused = *paused,
        Setting::KindPaused { kind, paused: true, .. } => drop(settings.paused_kinds.insert(kind.clone())),
        Setting::KindPaused { kind, .. } => drop(settings.paused_kinds.remove(kind)),
        Setting::Group { .. } => {}
    }
}

fn minute(number_text: &str, stored: &str) -> Result<MinuteMetrics> {
    let minute: i64 = number(number_text)?;
    let numbers = stored.split(' ').map(number).collect::<Result<Vec<u64>>>()?;
    let [enqueued, claimed, succeeded, failed, cancelled, retried, stalled, waited_ms, ran_ms] = numbers[..] else {
        return Err(odd("a minute is damaged"));
    };
    Ok(MinuteMetrics {
        minute: Timestamp::from_ms(minute.saturating_mul(60_000)),
        enqueued,
        claimed,
        succeeded,
        failed,
        cancelled,
        retried,
        stalled,
        waited_ms,
        ran_ms,
    })
}

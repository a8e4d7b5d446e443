//! Groups: who is in the ring, who is parked, and how the counts follow the records.
//!
//! A group stands in the ring of every lane in which it has ready jobs, unless it is parked: at its cap until a job of
//! it ends, at its rate until the time in `wake_at`.
//!
//! The virtual time of a group in a lane is the later one of its own and that of its place in the lane's ring. The place
//! is earlier while the group was served in other lanes since; a claim that reads the place corrects it. The place is
//! later when the group joined the lane while it had ready jobs in other lanes: it starts at the lane's present, so that
//! jobs that no worker may run do not earn their group turns in the lanes that are served.

use super::Step;
use super::rows::{Group, GroupId, GroupLimits, LaneId, Parked, QueueId, Record, Sub};
use super::tables::Tables;
use crate::error::Result;
use crate::job::{JobSpec, State};
use crate::name::GroupName;
use crate::rate::Meter;
use crate::store::GroupSettings;
use crate::time::Timestamp;

/// What one turn costs a group of weight 1, in virtual time.
pub(super) const TURN: u64 = 1 << 20;

impl<T: Tables> Step<'_, T> {
    /// The group of a job that becomes ready, made if it is not there. A cap that the job brings holds for the group: that of a new
    /// job in any case, and that of a job that was there before if the group has none, as after it was idle and forgotten.
    pub(super) fn group_of_spec(&mut self, queue: QueueId, spec: &JobSpec, is_new: bool) -> Result<GroupId> {
        let id = self.group_for(queue, spec.group.as_ref())?;
        if spec.group_cap.is_some() {
            let known = self.tables.group(id)?.limits.run_cap;
            if known != spec.group_cap && (is_new || known.is_none()) {
                self.tables.group_mut(id)?.limits.run_cap = spec.group_cap;
                self.review_group(id)?;
            }
        }
        Ok(id)
    }

    /// The group of this name, made if it is not there.
    pub(super) fn group_for(&mut self, queue: QueueId, name: Option<&GroupName>) -> Result<GroupId> {
        let Some(name) = name else {
            return Ok(self.tables.queue(queue)?.plain);
        };
        if let Some(id) = self.tables.find_group(queue, name)? {
            return Ok(id);
        }
        self.make_group(queue, Some(name.clone()))
    }

    pub(super) fn make_group(&mut self, queue: QueueId, name: Option<GroupName>) -> Result<GroupId> {
        let id = GroupId(self.tables.next_seq()?);
        self.tables.insert_group(Group {
            id,
            queue,
            name,
            limits: GroupLimits::default(),
            ready: 0,
            active: 0,
            vtime: 0,
            meter: Meter::default(),
            parked: Parked::No,
            wake_at: None,
        })?;
        Ok(id)
    }

    /// What holds for a group: its own settings, then the cap that jobs of runs have set, then its queue's settings. Jobs that name no group have no limits of a group.
    pub(super) fn group_limits(&mut self, id: GroupId) -> Result<GroupSettings> {
        let group = self.tables.group(id)?;
        let (queue, own) = (group.queue, group.limits);
        if group.name.is_none() {
            return Ok(GroupSettings::default());
        }
        Ok(own.or(self.tables.queue(queue)?.settings.groups))
    }

    /// The job of `record` is ready or active now.
    pub(super) fn enter_group(&mut self, record: &Record) -> Result<()> {
        let Some(id) = record.group else {
            return Ok(());
        };
        if record.state() == State::Active {
            let group = self.tables.group_mut(id)?;
            group.active = group.active.saturating_add(1);
            return if record.grouped { self.review_group(id) } else { Ok(()) };
        }
        let group = self.tables.group(id)?;
        if group.ready == 0 && group.parked == Parked::Rate {
            // While it was idle, the time to look at it again was that of forgetting it.
            self.review_group(id)?;
        }
        let sub = self.tables.sub(record.lane, id)?;
        let joins_at = if sub.ready == 0 { self.joins_at(record, id)? } else { None };
        let group = self.tables.group_mut(id)?;
        if group.ready == 0 {
            group.vtime = joins_at.unwrap_or(group.vtime);
        }
        group.ready = group.ready.saturating_add(1);
        let (vtime, parked) = (joins_at.unwrap_or(group.vtime), group.parked);
        if group.ready == 1 && group.name.is_some() {
            let queue = self.tables.queue_mut(record.queue)?;
            queue.named_ready = queue.named_ready.saturating_add(1);
        }
        let in_ring = sub.vtime.or((parked == Parked::No).then_some(vtime));
        self.tables.put_sub(record.lane, id, Sub { ready: sub.ready.saturating_add(1), vtime: in_ring })?;
        let lane = self.tables.lane_mut(record.lane)?;
        lane.head = if lane.ready == 0 { record.ord } else { lane.head.min(record.ord) };
        lane.ready = lane.ready.saturating_add(1);
        Ok(())
    }

    /// The job of `record` is not ready or active any more.
    pub(super) fn leave_group(&mut self, record: &Record, to: Option<State>) -> Result<()> {
        let Some(id) = record.group else {
            return Ok(());
        };
        match record.state() {
            State::Ready => {
                let group = self.tables.group_mut(id)?;
                let last = group.ready == 1 && group.name.is_some();
                group.ready = group.ready.saturating_sub(1);
                if last {
                    let queue = self.tables.queue_mut(record.queue)?;
                    queue.named_ready = queue.named_ready.saturating_sub(1);
                }
                let sub = self.tables.sub(record.lane, id)?;
                self.tables.put_sub(record.lane, id, Sub { ready: sub.ready.saturating_sub(1), ..sub })?;
                let lane = self.tables.lane_mut(record.lane)?;
                lane.ready = lane.ready.saturating_sub(1);
            }
            State::Active => {
                let group = self.tables.group_mut(id)?;
                group.active = group.active.saturating_sub(1);
                self.review_group(id)?;
            }
            State::Scheduled | State::Succeeded | State::Failed | State::Cancelled => {}
        }
        if matches!(to, Some(State::Ready | State::Active)) { Ok(()) } else { self.drop_idle_group(id) }
    }

    /// Parks a group or brings it back, as its limits and its state say now.
    pub(super) fn review_group(&mut self, id: GroupId) -> Result<()> {
        let now = self.now;
        let limits = self.group_limits(id)?;
        let group = self.tables.group(id)?;
        let was = group.parked;
        let (parked, wake_at) = standing(group, limits, now);
        if was == parked && group.wake_at == wake_at {
            return Ok(());
        }
        self.tables.park_group(id, parked, wake_at)?;
        if (was == Parked::No) != (parked == Parked::No) {
            self.move_in_ring(id)?;
        }
        Ok(())
    }

    /// The virtual time at which a group that has no ready job in the lane of `record` joins it; `None` when that is the
    /// group's own. A group must not catch up on turns that it could not use.
    fn joins_at(&mut self, record: &Record, id: GroupId) -> Result<Option<u64>> {
        let vnow = self.tables.queue(record.queue)?.vtime;
        let own = self.tables.group(id)?.vtime;
        if own >= vnow {
            return Ok(None);
        }
        Ok(Some(own.max(self.present_in(record.lane, vnow)?)))
    }

    /// The present of a lane: the queue's virtual time, or that of the lane's next group when it lags behind because few
    /// workers serve the lane. A group that joins must not wait until such a lane has caught up.
    fn present_in(&mut self, lane: LaneId, vnow: u64) -> Result<u64> {
        match self.tables.ring(lane, None, 1)?.first() {
            Some((place, next)) => Ok(self.tables.group(*next)?.vtime.max(*place).min(vnow)),
            None => Ok(vnow),
        }
    }

    /// Puts a group into the rings of its lanes, or takes it out, as `parked` says.
    fn move_in_ring(&mut self, id: GroupId) -> Result<()> {
        let queue = self.tables.group(id)?.queue;
        let queue = self.tables.queue(queue)?;
        let (vnow, name) = (queue.vtime, queue.name.clone());
        let group = self.tables.group(id)?;
        let (back, has_work) = (group.parked == Parked::No, group.ready > 0);
        let (own, lanes) = (group.vtime, self.tables.group_lanes(id)?);
        let mut places = vec![back.then_some(own); lanes.len()];
        if back && own < vnow {
            for (lane, place) in lanes.iter().zip(&mut places) {
                *place = Some(own.max(self.present_in(*lane, vnow)?));
            }
            let soonest = places.iter().flatten().min().copied();
            self.tables.group_mut(id)?.vtime = soonest.unwrap_or(vnow);
        }
        for (lane, vtime) in lanes.into_iter().zip(places) {
            let sub = self.tables.sub(lane, id)?;
            self.tables.put_sub(lane, id, Sub { vtime, ..sub })?;
        }
        if back && has_work {
            self.ring(&name);
        }
        Ok(())
    }

    /// Forgets a group that has nothing left to be remembered for.
    pub(super) fn drop_idle_group(&mut self, id: GroupId) -> Result<()> {
        let now = self.now;
        let limits = self.group_limits(id)?;
        let group = self.tables.group(id)?;
        if group.name.is_none() || group.ready > 0 || group.active > 0 || !group.limits.settings().is_default() {
            return Ok(());
        }
        match limits.rate {
            Some(rate) if !group.meter.is_idle(rate, now) => {
                // It must not forget its starts by being away for a moment; look again when they do not count any more.
                let (parked, wake_at) = (group.parked, now.plus_ms(rate.per_ms.saturating_mul(2)));
                self.tables.park_group(id, parked, Some(wake_at))
            }
            _ => self.tables.remove_group(id),
        }
    }
}

/// Whether a group may be served, and when to look again if it may not.
fn standing(group: &Group, limits: GroupSettings, now: Timestamp) -> (Parked, Option<Timestamp>) {
    if limits.cap.is_some_and(|cap| group.active >= u64::from(cap)) {
        return (Parked::Cap, None);
    }
    match limits.rate.and_then(|rate| group.meter.next_at(rate, now)) {
        Some(next) => (Parked::Rate, Some(next)),
        None => (Parked::No, None),
    }
}

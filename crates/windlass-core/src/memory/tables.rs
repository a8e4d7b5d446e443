//! The tables of the memory store: maps, and ordered sets as indexes.

use super::jobs::Jobs;
use super::rest::Rest;
use super::runs::Runs;
use crate::engine::{Group, GroupId, GroupTables, LaneId, NumberMap, Parked, QueueId, QueueMap, QueueTables, Sub};
use crate::error::{Error, Result};
use crate::name::GroupName;
use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// All of it.
#[derive(Debug, Default)]
pub struct MemoryTables {
    seq: u64,
    queues: QueueMap,
    groups: NumberMap<GroupId, Group>,
    group_names: BTreeMap<QueueId, BTreeMap<GroupName, GroupId>>,
    parked: BTreeSet<(QueueId, GroupId)>,
    wakes: BTreeSet<(QueueId, Timestamp, GroupId)>,
    subs: NumberMap<(LaneId, GroupId), Sub>,
    rings: BTreeSet<(LaneId, u64, GroupId)>,
    group_lanes: BTreeSet<(GroupId, LaneId)>,
    pub(super) jobs: Jobs,
    pub(super) runs: Runs,
    pub(super) rest: Rest,
}

impl QueueTables for MemoryTables {
    fn next_seq(&mut self) -> Result<u64> {
        self.seq += 1;
        Ok(self.seq)
    }

    fn queue_map(&mut self) -> Result<&mut QueueMap> {
        Ok(&mut self.queues)
    }

    fn remove_queue(&mut self, id: QueueId) -> Result<()> {
        let groups: Vec<GroupId> =
            self.groups.values().filter(|group| group.queue == id).map(|group| group.id).collect();
        for group in groups {
            self.remove_group(group)?;
        }
        self.group_names.remove(&id);
        self.rest.minutes.retain(|(queue, _), _| *queue != id);
        self.queues.remove(id);
        Ok(())
    }

    fn remove_lane(&mut self, id: LaneId) -> Result<()> {
        self.queues.remove_lane(id);
        Ok(())
    }
}

impl GroupTables for MemoryTables {
    fn find_group(&mut self, queue: QueueId, name: &GroupName) -> Result<Option<GroupId>> {
        Ok(self.group_names.get(&queue).and_then(|names| names.get(name)).copied())
    }

    fn insert_group(&mut self, group: Group) -> Result<()> {
        if let Some(name) = &group.name {
            self.group_names.entry(group.queue).or_default().insert(name.clone(), group.id);
        }
        self.groups.insert(group.id, group);
        Ok(())
    }

    fn group(&mut self, id: GroupId) -> Result<&Group> {
        self.groups.get(&id).ok_or_else(|| Error::missing_record("group", id.0))
    }

    fn group_mut(&mut self, id: GroupId) -> Result<&mut Group> {
        self.groups.get_mut(&id).ok_or_else(|| Error::missing_record("group", id.0))
    }

    fn park_group(&mut self, id: GroupId, parked: Parked, wake_at: Option<Timestamp>) -> Result<()> {
        let group = self.groups.get_mut(&id).ok_or_else(|| Error::missing_record("group", id.0))?;
        if let Some(at) = group.wake_at {
            self.wakes.remove(&(group.queue, at, id));
        }
        if let Some(at) = wake_at {
            self.wakes.insert((group.queue, at, id));
        }
        if parked == Parked::No {
            self.parked.remove(&(group.queue, id));
        } else {
            self.parked.insert((group.queue, id));
        }
        group.parked = parked;
        group.wake_at = wake_at;
        Ok(())
    }

    fn remove_group(&mut self, id: GroupId) -> Result<()> {
        self.park_group(id, Parked::No, None)?;
        if let Some(group) = self.groups.remove(&id)
            && let Some(name) = group.name
            && let Some(names) = self.group_names.get_mut(&group.queue)
        {
            names.remove(&name);
        }
        Ok(())
    }

    fn groups(&mut self, queue: QueueId, after: Option<&GroupName>, limit: usize) -> Result<Vec<GroupId>> {
        let Some(names) = self.group_names.get(&queue) else { return Ok(Vec::new()) };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(names.range::<GroupName, _>((from, Bound::Unbounded)).take(limit).map(|(_, id)| *id).collect())
    }

    fn parked_groups(&mut self, queue: QueueId) -> Result<Vec<GroupId>> {
        let of_queue = self.parked.range((queue, GroupId(0))..=(queue, GroupId(u64::MAX)));
        Ok(of_queue.map(|(_, group)| *group).collect())
    }

    fn waking_groups(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<GroupId>> {
        let waking =
            self.wakes.range((queue, Timestamp::from_ms(i64::MIN), GroupId(0))..=(queue, until, GroupId(u64::MAX)));
        Ok(waking.take(limit).map(|(.., group)| *group).collect())
    }

    fn next_wake(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        let wakes = self.wakes.range((queue, Timestamp::from_ms(i64::MIN), GroupId(0))..);
        Ok(wakes.take(1).find(|(of, ..)| *of == queue).map(|(_, at, _)| *at))
    }

    fn sub(&mut self, lane: LaneId, group: GroupId) -> Result<Sub> {
        Ok(self.subs.get(&(lane, group)).copied().unwrap_or_default())
    }

    fn put_sub(&mut self, lane: LaneId, group: GroupId, sub: Sub) -> Result<()> {
        let before = if sub.ready == 0 {
            self.group_lanes.remove(&(group, lane));
            self.subs.remove(&(lane, group))
        } else {
            let before = self.subs.insert((lane, group), sub);
            if before.is_none() {
                self.group_lanes.insert((group, lane));
            }
            before
        };
        let old = before.and_then(|before| before.vtime);
        let new = sub.vtime.filter(|_| sub.ready > 0);
        if old != new {
            if let Some(vtime) = old {
                self.rings.remove(&(lane, vtime, group));
            }
            if let Some(vtime) = new {
                self.rings.insert((lane, vtime, group));
            }
        }
        Ok(())
    }

    fn ring(&mut self, lane: LaneId, after: Option<(u64, GroupId)>, limit: usize) -> Result<Vec<(u64, GroupId)>> {
        let from = match after {
            Some((vtime, group)) => Bound::Excluded((lane, vtime, group)),
            None => Bound::Included((lane, 0, GroupId(0))),
        };
        let to = Bound::Included((lane, u64::MAX, GroupId(u64::MAX)));
        Ok(self.rings.range((from, to)).take(limit).map(|(_, vtime, group)| (*vtime, *group)).collect())
    }

    fn group_lanes(&mut self, group: GroupId) -> Result<Vec<LaneId>> {
        let of_group = self.group_lanes.range((group, LaneId(0))..=(group, LaneId(u64::MAX)));
        Ok(of_group.map(|(_, lane)| *lane).collect())
    }
}

//! Groups and their places in the rings. There may be millions, so only those in use are kept in memory. What is indexed
//! is written at once, so that ranges are always true.

use super::db::Db;
use super::keys::Table;
use super::tables::KvTables;
use super::{OrderedKv, keys};
use crate::engine::{Group, GroupId, GroupTables, LaneId, NumberMap, Parked, QueueId, Sub};
use crate::error::{Error, Result};
use crate::name::GroupName;
use crate::time::Timestamp;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

/// Groups that stay in memory between steps.
const KEPT_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: NumberMap<GroupId, Group>,
    dirty: BTreeSet<GroupId>,
}

impl Groups {
    /// A group that exists, read if it is not in memory.
    fn load(&mut self, db: &mut Db<impl OrderedKv>, id: GroupId) -> Result<&mut Group> {
        match self.groups.entry(id) {
            Entry::Occupied(kept) => Ok(kept.into_mut()),
            Entry::Vacant(place) => {
                let group = db.get(&keys::group(id))?.ok_or_else(|| Error::missing_record("group", id.0))?;
                Ok(place.insert(group))
            }
        }
    }

    /// Writes what has changed, and lets go of everything when it has become much.
    pub(super) fn flush(&mut self, db: &mut Db<impl OrderedKv>) -> Result<()> {
        for id in std::mem::take(&mut self.dirty) {
            if let Some(group) = self.groups.get(&id) {
                db.put(&keys::group(id), group)?;
            }
        }
        if self.groups.len() > KEPT_MAX {
            self.groups.clear();
        }
        Ok(())
    }
}

impl<K: OrderedKv> GroupTables for KvTables<K> {
    fn find_group(&mut self, queue: QueueId, name: &GroupName) -> Result<Option<GroupId>> {
        self.db.get(&keys::group_name(queue, name.clone()))
    }

    fn insert_group(&mut self, group: Group) -> Result<()> {
        if let Some(name) = &group.name {
            self.db.put(&keys::group_name(group.queue, name.clone()), &group.id)?;
        }
        self.groups.dirty.insert(group.id);
        self.groups.groups.insert(group.id, group);
        Ok(())
    }

    fn group(&mut self, id: GroupId) -> Result<&Group> {
        self.groups.load(&mut self.db, id).map(|group| &*group)
    }

    fn group_mut(&mut self, id: GroupId) -> Result<&mut Group> {
        self.groups.dirty.insert(id);
        self.groups.load(&mut self.db, id)
    }

    fn park_group(&mut self, id: GroupId, parked: Parked, wake_at: Option<Timestamp>) -> Result<()> {
        let group = self.group_mut(id)?;
        let (queue, old_wake) = (group.queue, group.wake_at);
        (group.parked, group.wake_at) = (parked, wake_at);
        let wake = |at| keys::wake(queue, at, id);
        self.db.move_entry(old_wake.map(wake), wake_at.map(wake))?;
        self.db.set(&keys::parked(queue, id), (parked != Parked::No).then_some(&()))
    }

    fn remove_group(&mut self, id: GroupId) -> Result<()> {
        self.park_group(id, Parked::No, None)?;
        self.groups.dirty.remove(&id);
        if let Some(group) = self.groups.groups.remove(&id)
            && let Some(name) = group.name
        {
            self.db.delete(&keys::group_name(group.queue, name))?;
        }
        self.db.delete(&keys::group(id))
    }

    fn groups(&mut self, queue: QueueId, after: Option<&GroupName>, limit: usize) -> Result<Vec<GroupId>> {
        let names = keys::group_names(queue).under();
        let names = match after {
            Some(after) => names.above(&keys::group_name(queue, after.clone())),
            None => names,
        };
        self.db.values(names, limit)
    }

    fn parked_groups(&mut self, queue: QueueId) -> Result<Vec<GroupId>> {
        let parked: Vec<(QueueId, GroupId)> =
            self.db.keys(Table::Parked, keys::parked_of(queue).under(), usize::MAX)?;
        Ok(parked.into_iter().map(|(_, group)| group).collect())
    }

    fn waking_groups(&mut self, queue: QueueId, until: Timestamp, limit: usize) -> Result<Vec<GroupId>> {
        let due = keys::wakes(queue).under().through(&keys::wakes_at(queue, until));
        let due: Vec<(QueueId, Timestamp, GroupId)> = self.db.keys(Table::Wake, due, limit)?;
        Ok(due.into_iter().map(|(.., group)| group).collect())
    }

    fn next_wake(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        let first: Vec<(QueueId, Timestamp)> = self.db.keys(Table::Wake, keys::wakes(queue).under(), 1)?;
        Ok(first.first().map(|(_, at)| *at))
    }

    fn sub(&mut self, lane: LaneId, group: GroupId) -> Result<Sub> {
        Ok(self.db.get(&keys::sub(group, lane))?.unwrap_or_default())
    }

    fn put_sub(&mut self, lane: LaneId, group: GroupId, after: Sub) -> Result<()> {
        let before = self.sub(lane, group)?;
        self.db.set(&keys::sub(group, lane), Some(&after).filter(|after| after.ready > 0))?;
        let place = |vtime| keys::place(lane, vtime, group);
        let vtime = after.vtime.filter(|_| after.ready > 0);
        self.db.move_entry(before.vtime.map(place), vtime.map(place))
    }

    fn ring(&mut self, lane: LaneId, after: Option<(u64, GroupId)>, limit: usize) -> Result<Vec<(u64, GroupId)>> {
        let ring = keys::ring(lane).under();
        let ring = match after {
            Some((vtime, group)) => ring.above(&keys::place(lane, vtime, group)),
            None => ring,
        };
        let places: Vec<(LaneId, u64, GroupId)> = self.db.keys(Table::Ring, ring, limit)?;
        Ok(places.into_iter().map(|(_, vtime, group)| (vtime, group)).collect())
    }

    fn group_lanes(&mut self, group: GroupId) -> Result<Vec<LaneId>> {
        let subs: Vec<(GroupId, LaneId)> = self.db.keys(Table::Sub, keys::subs_of(group).under(), usize::MAX)?;
        Ok(subs.into_iter().map(|(_, lane)| lane).collect())
    }
}

//! Groups and their places in the rings. There may be millions, so only those in use are kept in memory. What is indexed
//! is written at once, so that ranges are always true.

use super::db::Db;
use super::keys::{Parts, Table};
use super::tables::gone;
use super::{OrderedKv, keys};
use crate::engine::{Group, GroupId, LaneId, NumberMap, Parked, Queue, QueueId, Sub};
use crate::error::Result;
use crate::name::GroupName;
use crate::time::Timestamp;
use std::collections::BTreeSet;

/// Groups that stay in memory between steps.
const KEPT_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: NumberMap<GroupId, Group>,
    dirty: BTreeSet<GroupId>,
}

impl Groups {
    fn load(&mut self, db: &mut Db<impl OrderedKv>, id: GroupId) -> Result<()> {
        if self.groups.contains_key(&id) {
            return Ok(());
        }
        let group = db.get(&keys::group(id))?.ok_or_else(|| gone("group", id.0))?;
        self.groups.insert(id, group);
        Ok(())
    }

    pub(super) fn insert(&mut self, db: &mut Db<impl OrderedKv>, group: Group) -> Result<()> {
        if let Some(name) = &group.name {
            db.put(&keys::group_name(group.queue, name.clone()), &group.id)?;
        }
        self.dirty.insert(group.id);
        self.groups.insert(group.id, group);
        Ok(())
    }

    pub(super) fn get(&mut self, db: &mut Db<impl OrderedKv>, id: GroupId) -> Result<&Group> {
        self.load(db, id)?;
        self.groups.get(&id).ok_or_else(|| gone("group", id.0))
    }

    pub(super) fn get_mut(&mut self, db: &mut Db<impl OrderedKv>, id: GroupId) -> Result<&mut Group> {
        self.load(db, id)?;
        self.dirty.insert(id);
        self.groups.get_mut(&id).ok_or_else(|| gone("group", id.0))
    }

    pub(super) fn park(
        &mut self,
        db: &mut Db<impl OrderedKv>,
        id: GroupId,
        (parked, wake_at): (Parked, Option<Timestamp>),
    ) -> Result<()> {
        let group = self.get_mut(db, id)?;
        let (queue, old_wake) = (group.queue, group.wake_at);
        (group.parked, group.wake_at) = (parked, wake_at);
        if old_wake != wake_at {
            if let Some(at) = old_wake {
                db.delete(&keys::wake(queue, at, id))?;
            }
            if let Some(at) = wake_at {
                db.put(&keys::wake(queue, at, id), &())?;
            }
        }
        let key = keys::parked(queue, id);
        if parked == Parked::No { db.delete(&key) } else { db.put(&key, &()) }
    }

    pub(super) fn remove(&mut self, db: &mut Db<impl OrderedKv>, id: GroupId) -> Result<()> {
        self.park(db, id, (Parked::No, None))?;
        self.dirty.remove(&id);
        if let Some(group) = self.groups.remove(&id)
            && let Some(name) = group.name
        {
            db.delete(&keys::group_name(group.queue, name))?;
        }
        db.delete(&keys::group(id))
    }

    /// Removes all groups of a queue, that of the jobs without one included.
    pub(super) fn remove_of(&mut self, db: &mut Db<impl OrderedKv>, queue: &Queue) -> Result<()> {
        let named = self.of_queue(db, queue.id, None, usize::MAX)?;
        for group in named.into_iter().chain([queue.plain]) {
            self.remove(db, group)?;
        }
        Ok(())
    }

    pub(super) fn of_queue(
        &self,
        db: &mut Db<impl OrderedKv>,
        queue: QueueId,
        after: Option<&GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupId>> {
        let names = keys::group_names(queue).under();
        let names = match after {
            Some(after) => names.above(&keys::group_name(queue, after.clone())),
            None => names,
        };
        db.some(names, limit)?.iter().map(|(_, value)| super::codec::decode(value)).collect()
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

pub(super) fn parked(db: &mut Db<impl OrderedKv>, queue: QueueId) -> Result<Vec<GroupId>> {
    let group = |key: &[u8]| {
        let mut parts = Parts::of(Table::Parked, key)?;
        parts.take::<QueueId>()?;
        parts.take()
    };
    db.all(keys::parked_of(queue).under())?.iter().map(|(key, _)| group(key)).collect()
}

fn wake(key: &[u8]) -> Result<(Timestamp, GroupId)> {
    let mut parts = Parts::of(Table::Wake, key)?;
    parts.take::<QueueId>()?;
    Ok((parts.take()?, parts.take()?))
}

pub(super) fn waking(
    db: &mut Db<impl OrderedKv>,
    queue: QueueId,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<GroupId>> {
    let due = keys::wakes(queue).under().through(&keys::wakes_at(queue, until));
    db.some(due, limit)?.iter().map(|(key, _)| Ok(wake(key)?.1)).collect()
}

pub(super) fn next_wake(db: &mut Db<impl OrderedKv>, queue: QueueId) -> Result<Option<Timestamp>> {
    let first = db.first(keys::wakes(queue).under())?;
    first.map(|(key, _)| Ok(wake(&key)?.0)).transpose()
}

pub(super) fn sub(db: &mut Db<impl OrderedKv>, lane: LaneId, group: GroupId) -> Result<Sub> {
    Ok(db.get(&keys::sub(group, lane))?.unwrap_or_default())
}

pub(super) fn put_sub(db: &mut Db<impl OrderedKv>, lane: LaneId, group: GroupId, after: Sub) -> Result<()> {
    let before = sub(db, lane, group)?;
    let key = keys::sub(group, lane);
    if after.ready == 0 {
        db.delete(&key)?;
    } else {
        db.put(&key, &after)?;
    }
    let place = after.vtime.filter(|_| after.ready > 0);
    if before.vtime != place {
        if let Some(vtime) = before.vtime {
            db.delete(&keys::place(lane, vtime, group))?;
        }
        if let Some(vtime) = place {
            db.put(&keys::place(lane, vtime, group), &())?;
        }
    }
    Ok(())
}

pub(super) fn ring(
    db: &mut Db<impl OrderedKv>,
    lane: LaneId,
    after: Option<(u64, GroupId)>,
    limit: usize,
) -> Result<Vec<(u64, GroupId)>> {
    let ring = keys::ring(lane).under();
    let ring = match after {
        Some((vtime, group)) => ring.above(&keys::place(lane, vtime, group)),
        None => ring,
    };
    let place = |key: &[u8]| {
        let mut parts = Parts::of(Table::Ring, key)?;
        parts.take::<LaneId>()?;
        Ok((parts.take()?, parts.take()?))
    };
    db.some(ring, limit)?.iter().map(|(key, _)| place(key)).collect()
}

pub(super) fn lanes_of(db: &mut Db<impl OrderedKv>, group: GroupId) -> Result<Vec<LaneId>> {
    let lane = |key: &[u8]| {
        let mut parts = Parts::of(Table::Sub, key)?;
        parts.take::<GroupId>()?;
        parts.take()
    };
    db.all(keys::subs_of(group).under())?.iter().map(|(key, _)| lane(key)).collect()
}

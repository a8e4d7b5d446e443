//! Groups and their places in the rings. There may be millions, so only those in use are kept in memory.

use super::{SqliteTables, limit};
use crate::db::{Db, Source};
use crate::values::{Col, Json, Name, json};
use rusqlite::{Row, params};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use windlass_core::engine::{Group, GroupId, GroupTables, LaneId, NumberMap, Parked, QueueId, Sub};
use windlass_core::name::GroupName;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

macro_rules! ring {
    ($beyond:literal) => {
        concat!(
            "SELECT g.id,g.queue,g.name,g.settings,g.ready,g.active,g.vtime,g.meter,g.parked,g.wake_at,\
             s.vtime,s.ready,s.grp FROM windlass_sub s LEFT JOIN windlass_group g ON g.id=s.grp \
             WHERE s.lane=?1 AND s.vtime IS NOT NULL ",
            $beyond,
            " ORDER BY s.vtime,s.grp LIMIT ?2"
        )
    };
}
const RING: &str = ring!("");
const RING_AFTER: &str = ring!("AND (s.vtime,s.grp)>(?3,?4)");

/// Groups, and places in rings, that stay in memory between transactions.
const KEPT_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: NumberMap<GroupId, Group>,
    names: HashMap<(QueueId, GroupName), GroupId>,
    dirty: BTreeMap<GroupId, Dirt>,
    subs: NumberMap<(LaneId, GroupId), Sub>,
    dirty_subs: BTreeSet<(LaneId, GroupId)>,
    /// Queues in which no group waits for its time: spares every claim two queries.
    nobody_wakes: BTreeSet<QueueId>,
}

/// How much of a group has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dirt {
    /// Nothing that is indexed.
    Plain,
    /// Also what is indexed.
    All,
    /// It is not in the file yet.
    New,
}

fn parked_code(parked: Parked) -> i64 {
    match parked {
        Parked::No => 0,
        Parked::Cap => 1,
        Parked::Rate => 2,
    }
}

fn read_group(row: &Row<'_>) -> rusqlite::Result<Group> {
    Ok(Group {
        id: GroupId(row.get::<_, Col<u64>>(0)?.0),
        queue: QueueId(row.get::<_, Col<u64>>(1)?.0),
        name: row.get::<_, Option<Name<_>>>(2)?.map(|name| name.0),
        limits: row.get::<_, Option<Json<_>>>(3)?.map(|limits| limits.0).unwrap_or_default(),
        ready: row.get::<_, Col<u64>>(4)?.0,
        active: row.get::<_, Col<u64>>(5)?.0,
        vtime: row.get::<_, Col<u64>>(6)?.0,
        meter: row.get::<_, Option<Json<_>>>(7)?.map(|meter| meter.0).unwrap_or_default(),
        parked: match row.get::<_, i64>(8)? {
            1 => Parked::Cap,
            2 => Parked::Rate,
            _ => Parked::No,
        },
        wake_at: row.get::<_, Option<Col<_>>>(9)?.map(|at| at.0),
    })
}

impl Groups {
    /// A group that exists, read if it is not in memory.
    fn load<C: Source>(&mut self, db: &mut Db<C>, id: GroupId) -> Result<&mut Group> {
        if !self.groups.contains_key(&id) {
            let sql =
                "SELECT id,queue,name,settings,ready,active,vtime,meter,parked,wake_at FROM windlass_group WHERE id=?1";
            self.keep(db.one(sql, [Col(id.0)], read_group)?.ok_or_else(|| Error::missing_record("group", id.0))?);
        }
        self.groups.get_mut(&id).ok_or_else(|| Error::missing_record("group", id.0))
    }

    fn keep(&mut self, group: Group) {
        if let Some(name) = &group.name {
            self.names.insert((group.queue, name.clone()), group.id);
        }
        self.groups.insert(group.id, group);
    }

    fn soil(&mut self, id: GroupId, dirt: Dirt) {
        let known = self.dirty.entry(id).or_insert(dirt);
        *known = dirt.max(*known);
    }

    pub(super) fn remove_of_queue<C: Source>(&mut self, db: &mut Db<C>, queue: QueueId) -> Result<()> {
        self.groups.retain(|_, group| group.queue != queue);
        self.names.retain(|(of, _), _| *of != queue);
        let groups = &self.groups;
        self.dirty.retain(|id, _| groups.contains_key(id));
        db.run("DELETE FROM windlass_group WHERE queue=?1", [Col(queue.0)])
    }

    fn flush_subs<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        for (lane, group) in std::mem::take(&mut self.dirty_subs) {
            let sub = self.subs.get(&(lane, group)).copied().unwrap_or_default();
            if sub.ready == 0 {
                db.run("DELETE FROM windlass_sub WHERE grp=?1 AND lane=?2", [Col(group.0), Col(lane.0)])?;
                self.subs.remove(&(lane, group));
            } else {
                let sql = "INSERT INTO windlass_sub(grp,lane,ready,vtime) VALUES(?1,?2,?3,?4) \
                           ON CONFLICT DO UPDATE SET ready=excluded.ready,vtime=excluded.vtime";
                db.run(sql, params![Col(group.0), Col(lane.0), Col(sub.ready), sub.vtime.map(Col)])?;
            }
        }
        Ok(())
    }

    fn flush_groups<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        for (id, dirt) in std::mem::take(&mut self.dirty) {
            let Some(group) = self.groups.get(&id) else { continue };
            let settings = Some(&group.limits).filter(|limits| !limits.is_default()).map(json).transpose()?;
            let meter = Some(&group.meter).filter(|meter| !meter.is_empty()).map(json).transpose()?;
            let (ready, active, vtime) = (Col(group.ready), Col(group.active), Col(group.vtime));
            let (parked, wake_at) = (parked_code(group.parked), group.wake_at.map(Col));
            match dirt {
                Dirt::Plain => db.run(
                    "UPDATE windlass_group SET settings=?2,ready=?3,active=?4,vtime=?5,meter=?6 WHERE id=?1",
                    params![Col(id.0), settings, ready, active, vtime, meter],
                )?,
                Dirt::All => db.run(
                    "UPDATE windlass_group SET settings=?2,ready=?3,active=?4,vtime=?5,meter=?6,parked=?7,wake_at=?8 \
                     WHERE id=?1",
                    params![Col(id.0), settings, ready, active, vtime, meter, parked, wake_at],
                )?,
                Dirt::New => {
                    let name = group.name.as_ref().map(GroupName::as_str);
                    db.run(
                        "INSERT INTO windlass_group(id,settings,ready,active,vtime,meter,parked,wake_at,queue,name) \
                         VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)",
                        params![
                            Col(id.0),
                            settings,
                            ready,
                            active,
                            vtime,
                            meter,
                            parked,
                            wake_at,
                            Col(group.queue.0),
                            name
                        ],
                    )?;
                }
            };
        }
        Ok(())
    }

    pub(super) fn flush<C: Source>(&mut self, db: &mut Db<C>) -> Result<()> {
        self.flush_groups(db)?;
        self.flush_subs(db)
    }

    /// Lets go of what is written, when it has become much.
    pub(super) fn shrink(&mut self) {
        if self.groups.len() > KEPT_MAX {
            self.groups.clear();
            self.names.clear();
        }
        if self.subs.len() > KEPT_MAX {
            self.subs.clear();
        }
    }
}

impl<C: Source> GroupTables for SqliteTables<C> {
    fn find_group(&mut self, queue: QueueId, name: &GroupName) -> Result<Option<GroupId>> {
        if let Some(id) = self.groups.names.get(&(queue, name.clone())) {
            return Ok(Some(*id));
        }
        let sql = "SELECT id FROM windlass_group WHERE queue=?1 AND name=?2";
        self.db.others().one(sql, params![Col(queue.0), name.as_str()], |row| Ok(GroupId(row.get::<_, Col<u64>>(0)?.0)))
    }

    // Written with the next flush: most new groups have changed by then.
    fn insert_group(&mut self, group: Group) -> Result<()> {
        self.groups.soil(group.id, Dirt::New);
        self.groups.keep(group);
        Ok(())
    }

    fn group(&mut self, id: GroupId) -> Result<&Group> {
        self.groups.load(self.db.others(), id).map(|group| &*group)
    }

    fn group_mut(&mut self, id: GroupId) -> Result<&mut Group> {
        self.groups.soil(id, Dirt::Plain);
        self.groups.load(self.db.others(), id)
    }

    fn park_group(&mut self, id: GroupId, parked: Parked, wake_at: Option<Timestamp>) -> Result<()> {
        let group = self.group_mut(id)?;
        (group.parked, group.wake_at) = (parked, wake_at);
        let queue = group.queue;
        self.groups.soil(id, Dirt::All);
        if wake_at.is_some() {
            self.groups.nobody_wakes.remove(&queue);
        }
        Ok(())
    }

    fn remove_group(&mut self, id: GroupId) -> Result<()> {
        if let Some(group) = self.groups.groups.remove(&id)
            && let Some(name) = group.name
        {
            self.groups.names.remove(&(group.queue, name));
        }
        if self.groups.dirty.remove(&id) != Some(Dirt::New) {
            self.db.others().run("DELETE FROM windlass_group WHERE id=?1", [Col(id.0)])?;
        }
        Ok(())
    }

    fn groups(&mut self, queue: QueueId, after: Option<&GroupName>, max: usize) -> Result<Vec<GroupId>> {
        let sql =
            "SELECT id FROM windlass_group WHERE queue=?1 AND name IS NOT NULL AND name>?2 ORDER BY name LIMIT ?3";
        let after = after.map_or("", GroupName::as_str);
        self.groups.flush_groups(self.db.others())?;
        self.db.others().all(sql, params![Col(queue.0), after, limit(max)], read_id)
    }

    fn parked_groups(&mut self, queue: QueueId) -> Result<Vec<GroupId>> {
        self.groups.flush_groups(self.db.others())?;
        self.db.others().all(
            "SELECT id FROM windlass_group WHERE queue=?1 AND parked<>0 ORDER BY id",
            [Col(queue.0)],
            read_id,
        )
    }

    fn waking_groups(&mut self, queue: QueueId, until: Timestamp, max: usize) -> Result<Vec<GroupId>> {
        if self.next_wake(queue)?.is_none_or(|at| at > until) {
            return Ok(Vec::new());
        }
        let sql = "SELECT id FROM windlass_group WHERE wake_at IS NOT NULL AND queue=?1 AND wake_at<=?2 ORDER BY wake_at,id LIMIT ?3";
        self.db.others().all(sql, params![Col(queue.0), Col(until), limit(max)], read_id)
    }

    fn next_wake(&mut self, queue: QueueId) -> Result<Option<Timestamp>> {
        if self.groups.nobody_wakes.contains(&queue) {
            return Ok(None);
        }
        self.groups.flush_groups(self.db.others())?;
        let sql = "SELECT wake_at FROM windlass_group WHERE wake_at IS NOT NULL AND queue=?1 ORDER BY wake_at LIMIT 1";
        let next = self.db.others().one(sql, [Col(queue.0)], |row| Ok(row.get::<_, Col<_>>(0)?.0))?;
        if next.is_none() {
            self.groups.nobody_wakes.insert(queue);
        }
        Ok(next)
    }

    fn sub(&mut self, lane: LaneId, group: GroupId) -> Result<Sub> {
        if let Some(sub) = self.groups.subs.get(&(lane, group)) {
            return Ok(*sub);
        }
        let sql = "SELECT ready,vtime FROM windlass_sub WHERE grp=?1 AND lane=?2";
        let found = self.db.others().one(sql, [Col(group.0), Col(lane.0)], |row| {
            Ok(Sub { ready: row.get::<_, Col<u64>>(0)?.0, vtime: row.get::<_, Option<Col<u64>>>(1)?.map(|v| v.0) })
        })?;
        let sub = found.unwrap_or_default();
        self.groups.subs.insert((lane, group), sub);
        Ok(sub)
    }

    fn put_sub(&mut self, lane: LaneId, group: GroupId, sub: Sub) -> Result<()> {
        let sub = if sub.ready == 0 { Sub::default() } else { sub };
        self.groups.subs.insert((lane, group), sub);
        self.groups.dirty_subs.insert((lane, group));
        Ok(())
    }

    fn ring(&mut self, lane: LaneId, after: Option<(u64, GroupId)>, max: usize) -> Result<Vec<(u64, GroupId)>> {
        self.groups.flush_subs(self.db.others())?;
        // The groups are read along, because whoever walks a ring looks at each of them.
        let read = |row: &Row<'_>| {
            let sub =
                Sub { vtime: row.get::<_, Option<Col<u64>>>(10)?.map(|v| v.0), ready: row.get::<_, Col<u64>>(11)?.0 };
            let id = GroupId(row.get::<_, Col<u64>>(12)?.0);
            Ok((id, sub, read_group(row).ok()))
        };
        let found = match after {
            None => self.db.others().all(RING, params![Col(lane.0), limit(max)], read)?,
            Some((vtime, group)) => {
                self.db.others().all(RING_AFTER, params![Col(lane.0), limit(max), Col(vtime), Col(group.0)], read)?
            }
        };
        let mut places = Vec::with_capacity(found.len());
        for (id, sub, group) in found {
            places.push((sub.vtime.unwrap_or(0), id));
            self.groups.subs.entry((lane, id)).or_insert(sub);
            // What is in memory is newer.
            if let Some(group) = group.filter(|group| !self.groups.groups.contains_key(&group.id)) {
                self.groups.keep(group);
            }
        }
        Ok(places)
    }

    fn group_lanes(&mut self, group: GroupId) -> Result<Vec<LaneId>> {
        self.groups.flush_subs(self.db.others())?;
        let sql = "SELECT lane FROM windlass_sub WHERE grp=?1 ORDER BY lane";
        self.db.others().all(sql, [Col(group.0)], |row| Ok(LaneId(row.get::<_, Col<u64>>(0)?.0)))
    }
}

fn read_id(row: &Row<'_>) -> rusqlite::Result<GroupId> {
    Ok(GroupId(row.get::<_, Col<u64>>(0)?.0))
}

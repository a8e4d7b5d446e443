//! Groups and their places in the rings. There may be millions, so only those in use are kept in memory.

use super::{gone, limit};
use crate::db::Db;
use crate::values::{Col, Json, Name, json};
use rusqlite::{Connection, Row, params};
use std::borrow::Borrow;
use std::collections::BTreeSet;
use windlass_core::Result;
use windlass_core::engine::{Group, GroupId, LaneId, NumberMap, Parked, QueueId, Sub};
use windlass_core::name::GroupName;
use windlass_core::time::Timestamp;

/// Groups, and places in rings, that stay in memory between transactions.
const KEPT_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: NumberMap<GroupId, Group>,
    dirty: BTreeSet<GroupId>,
    subs: NumberMap<(LaneId, GroupId), Sub>,
    /// With the place in the ring as it is written, so that a change of the number alone leaves the ring's index alone.
    dirty_subs: BTreeSet<(LaneId, GroupId)>,
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
        settings: row.get::<_, Json<_>>(3)?.0,
        ready: row.get::<_, Col<u64>>(4)?.0,
        active: row.get::<_, Col<u64>>(5)?.0,
        vtime: row.get::<_, Col<u64>>(6)?.0,
        meter: row.get::<_, Json<_>>(7)?.0,
        parked: match row.get::<_, i64>(8)? {
            1 => Parked::Cap,
            2 => Parked::Rate,
            _ => Parked::No,
        },
        wake_at: row.get::<_, Option<Col<_>>>(9)?.map(|at| at.0),
    })
}

impl Groups {
    fn load<C: Borrow<Connection>>(&mut self, db: &mut Db<C>, id: GroupId) -> Result<()> {
        if self.groups.contains_key(&id) {
            return Ok(());
        }
        let sql =
            "SELECT id,queue,name,settings,ready,active,vtime,meter,parked,wake_at FROM windlass_group WHERE id=?1";
        let group = db.one(sql, [Col(id.0)], read_group)?.ok_or_else(|| gone("group", id.0))?;
        self.groups.insert(id, group);
        Ok(())
    }

    pub(super) fn find<C: Borrow<Connection>>(
        &mut self,
        db: &mut Db<C>,
        queue: QueueId,
        name: &GroupName,
    ) -> Result<Option<GroupId>> {
        let sql = "SELECT id FROM windlass_group WHERE queue=?1 AND name=?2";
        db.one(sql, params![Col(queue.0), name.as_str()], |row| Ok(GroupId(row.get::<_, Col<u64>>(0)?.0)))
    }

    pub(super) fn insert<C: Borrow<Connection>>(&mut self, db: &mut Db<C>, group: Group) -> Result<()> {
        db.run(
            "INSERT INTO windlass_group(id,queue,name,settings,ready,active,vtime,meter,parked,wake_at) \
             VALUES(?1,?2,?3,?4,0,0,?5,?6,0,NULL)",
            params![
                Col(group.id.0),
                Col(group.queue.0),
                group.name.as_ref().map(GroupName::as_str),
                json(&group.settings)?,
                Col(group.vtime),
                json(&group.meter)?
            ],
        )?;
        self.groups.insert(group.id, group);
        Ok(())
    }

    pub(super) fn get<C: Borrow<Connection>>(&mut self, db: &mut Db<C>, id: GroupId) -> Result<&Group> {
        self.load(db, id)?;
        self.groups.get(&id).ok_or_else(|| gone("group", id.0))
    }

    pub(super) fn get_mut<C: Borrow<Connection>>(&mut self, db: &mut Db<C>, id: GroupId) -> Result<&mut Group> {
        self.load(db, id)?;
        self.dirty.insert(id);
        self.groups.get_mut(&id).ok_or_else(|| gone("group", id.0))
    }

    pub(super) fn park<C: Borrow<Connection>>(
        &mut self,
        db: &mut Db<C>,
        id: GroupId,
        to: (Parked, Option<Timestamp>),
    ) -> Result<()> {
        let group = self.get_mut(db, id)?;
        (group.parked, group.wake_at) = to;
        Ok(())
    }

    pub(super) fn remove<C: Borrow<Connection>>(&mut self, db: &mut Db<C>, id: GroupId) -> Result<()> {
        self.groups.remove(&id);
        self.dirty.remove(&id);
        db.run("DELETE FROM windlass_group WHERE id=?1", [Col(id.0)])?;
        Ok(())
    }

    pub(super) fn remove_of_queue<C: Borrow<Connection>>(&mut self, db: &mut Db<C>, queue: QueueId) -> Result<()> {
        self.groups.retain(|_, group| group.queue != queue);
        let groups = &self.groups;
        self.dirty.retain(|id| groups.contains_key(id));
        db.run("DELETE FROM windlass_group WHERE queue=?1", [Col(queue.0)])?;
        Ok(())
    }

    pub(super) fn of_queue<C: Borrow<Connection>>(
        &mut self,
        db: &mut Db<C>,
        queue: QueueId,
        after: Option<&GroupName>,
        max: usize,
    ) -> Result<Vec<GroupId>> {
        let sql =
            "SELECT id FROM windlass_group WHERE queue=?1 AND name IS NOT NULL AND name>?2 ORDER BY name LIMIT ?3";
        let after = after.map_or("", GroupName::as_str);
        db.all(sql, params![Col(queue.0), after, limit(max)], read_id)
    }

    pub(super) fn parked<C: Borrow<Connection>>(&mut self, db: &mut Db<C>, queue: QueueId) -> Result<Vec<GroupId>> {
        self.flush_groups(db)?;
        db.all("SELECT id FROM windlass_group WHERE queue=?1 AND parked<>0 ORDER BY id", [Col(queue.0)], read_id)
    }

    pub(super) fn waking<C: Borrow<Connection>>(
        &mut self,
        db: &mut Db<C>,
        until: Timestamp,
        max: usize,
    ) -> Result<Vec<GroupId>> {
        self.flush_groups(db)?;
        let sql =
            "SELECT id FROM windlass_group WHERE wake_at IS NOT NULL AND wake_at<=?1 ORDER BY wake_at,id LIMIT ?2";
        db.all(sql, params![Col(until), limit(max)], read_id)
    }

    pub(super) fn next_wake<C: Borrow<Connection>>(&mut self, db: &mut Db<C>) -> Result<Option<Timestamp>> {
        self.flush_groups(db)?;
        let sql = "SELECT wake_at FROM windlass_group WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1";
        db.one(sql, [], |row| Ok(row.get::<_, Col<_>>(0)?.0))
    }

    pub(super) fn sub<C: Borrow<Connection>>(&mut self, db: &mut Db<C>, lane: LaneId, group: GroupId) -> Result<Sub> {
        if let Some(sub) = self.subs.get(&(lane, group)) {
            return Ok(*sub);
        }
        let sql = "SELECT ready,vtime FROM windlass_sub WHERE grp=?1 AND lane=?2";
        let found = db.one(sql, [Col(group.0), Col(lane.0)], |row| {
            Ok(Sub { ready: row.get::<_, Col<u64>>(0)?.0, vtime: row.get::<_, Option<Col<u64>>>(1)?.map(|v| v.0) })
        })?;
        let sub = found.unwrap_or_default();
        self.subs.insert((lane, group), sub);
        Ok(sub)
    }

    pub(super) fn put_sub(&mut self, lane: LaneId, group: GroupId, sub: Sub) {
        let sub = if sub.ready == 0 { Sub::default() } else { sub };
        self.subs.insert((lane, group), sub);
        self.dirty_subs.insert((lane, group));
    }

    pub(super) fn ring<C: Borrow<Connection>>(
        &mut self,
        db: &mut Db<C>,
        lane: LaneId,
        after: Option<(u64, GroupId)>,
        max: usize,
    ) -> Result<Vec<(u64, GroupId)>> {
        self.flush_subs(db)?;
        let read = |row: &Row<'_>| Ok((row.get::<_, Col<u64>>(0)?.0, GroupId(row.get::<_, Col<u64>>(1)?.0)));
        match after {
            None => {
                let sql = "SELECT vtime,grp FROM windlass_sub WHERE lane=?1 AND vtime IS NOT NULL ORDER BY vtime,grp LIMIT ?2";
                db.all(sql, params![Col(lane.0), limit(max)], read)
            }
            Some((vtime, group)) => {
                let sql = "SELECT vtime,grp FROM windlass_sub WHERE lane=?1 AND vtime IS NOT NULL AND (vtime,grp)>(?2,?3) \
                           ORDER BY vtime,grp LIMIT ?4";
                db.all(sql, params![Col(lane.0), Col(vtime), Col(group.0), limit(max)], read)
            }
        }
    }

    pub(super) fn lanes<C: Borrow<Connection>>(&mut self, db: &mut Db<C>, group: GroupId) -> Result<Vec<LaneId>> {
        self.flush_subs(db)?;
        let sql = "SELECT lane FROM windlass_sub WHERE grp=?1 ORDER BY lane";
        db.all(sql, [Col(group.0)], |row| Ok(LaneId(row.get::<_, Col<u64>>(0)?.0)))
    }

    fn flush_subs<C: Borrow<Connection>>(&mut self, db: &mut Db<C>) -> Result<()> {
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

    fn flush_groups<C: Borrow<Connection>>(&mut self, db: &mut Db<C>) -> Result<()> {
        for id in std::mem::take(&mut self.dirty) {
            let Some(group) = self.groups.get(&id) else {
                continue;
            };
            db.run(
                "UPDATE windlass_group SET settings=?2,ready=?3,active=?4,vtime=?5,meter=?6,parked=?7,wake_at=?8 WHERE id=?1",
                params![
                    Col(id.0),
                    json(&group.settings)?,
                    Col(group.ready),
                    Col(group.active),
                    Col(group.vtime),
                    json(&group.meter)?,
                    parked_code(group.parked),
                    group.wake_at.map(Col)
                ],
            )?;
        }
        Ok(())
    }

    pub(super) fn flush<C: Borrow<Connection>>(&mut self, db: &mut Db<C>) -> Result<()> {
        self.flush_groups(db)?;
        self.flush_subs(db)
    }

    /// Lets go of what is written, when it has become much.
    pub(super) fn shrink(&mut self) {
        if self.groups.len() > KEPT_MAX {
            self.groups.clear();
        }
        if self.subs.len() > KEPT_MAX {
            self.subs.clear();
        }
    }
}

fn read_id(row: &Row<'_>) -> rusqlite::Result<GroupId> {
    Ok(GroupId(row.get::<_, Col<u64>>(0)?.0))
}

//! Which ready jobs come next: fair turns between groups, priority and sequence within one.
//!
//! Each lane has a ring of groups, ordered by virtual time. In a claim, the virtual time of a group is the latest one of its
//! own and those of its places in the rings of the claim's lanes, so no ring of the claim shows a later one. So: take
//! groups from the rings in ring order, put each with its virtual time into a heap, and serve the heap's first group as
//! soon as no ring can still hold an earlier one. Rings are read in chunks, so that a claim of n jobs reads O(n) of them,
//! however many groups there are.

use super::Step;
use super::groups::TURN;
use super::rows::{GroupId, LaneId, Ord64, Parked, QueueId, Row, Sub};
use super::tables::Tables;
use crate::error::Result;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// One lane's ring, as far as it was read; one that was read to its end is dropped.
struct Ring {
    lane: LaneId,
    /// The last place that was read; whatever comes now lies beyond it.
    read_to: Option<(u64, GroupId)>,
}

/// A group that is being served.
struct Served {
    vtime: u64,
    /// Virtual time of one turn.
    turn: u64,
    /// How many more jobs it may start.
    room: u64,
    heads: Vec<Head>,
    /// The heads by the place before which none of their jobs stands.
    order: BinaryHeap<Reverse<(Ord64, usize)>>,
    /// Ring places that lag behind.
    stale: Vec<LaneId>,
    taken: u32,
}

/// The ready jobs of a group in one lane, as far as they were read.
struct Head {
    lane: LaneId,
    jobs: VecDeque<(Ord64, Row)>,
    read_to: Option<Ord64>,
    more: bool,
}

impl Head {
    /// No job that was not taken stands before this place; `None` when there is none.
    fn bound(&self) -> Option<Ord64> {
        match self.jobs.front() {
            Some((ord, _)) => Some(*ord),
            None => self.read_to.filter(|_| self.more).map(|ord| Ord64(ord.0.saturating_add(1))),
        }
    }
}

/// One claim's choice.
struct Choice {
    rings: Vec<Ring>,
    heap: BinaryHeap<Reverse<(u64, GroupId)>>,
    groups: HashMap<GroupId, Served>,
    lanes: Vec<LaneId>,
    chunk: usize,
    picked: Vec<Row>,
    max: usize,
    /// No named group has a ready job.
    only_plain: bool,
}

impl<T: Tables> Step<'_, T> {
    /// The next `max` jobs of these lanes, in the order in which they should start. Turns, caps and rates are charged.
    pub(super) fn select(&mut self, queue: QueueId, lanes: &[LaneId], max: usize) -> Result<Vec<Row>> {
        if lanes.is_empty() || max == 0 {
            return Ok(Vec::new());
        }
        let chunk = (2 * max / lanes.len() + 2).min(max + 1);
        let ring = |lane: &LaneId| Ring { lane: *lane, read_to: None };
        let mut choice = Choice {
            rings: lanes.iter().map(ring).collect(),
            heap: BinaryHeap::new(),
            groups: HashMap::new(),
            lanes: lanes.to_vec(),
            chunk,
            picked: Vec::new(),
            max,
            only_plain: self.tables.queue(queue)?.named_ready == 0,
        };
        if choice.only_plain {
            // Nobody to share with: every ready job is of the one group, and the rings need not be asked.
            let plain = self.tables.queue(queue)?.plain;
            choice.rings.clear();
            self.meet(&mut choice, lanes[0], u64::MAX, plain)?;
        }
        while choice.picked.len() < max {
            self.read_rings(&mut choice)?;
            let Some(Reverse((vtime, id))) = choice.heap.pop() else { break };
            self.serve(&mut choice, id)?;
            // Where the last turn began. Newcomers start no earlier, or they would catch up on turns before their time.
            let began = choice.groups.get(&id).map_or(vtime, |served| served.vtime.saturating_sub(served.turn));
            let queue = self.tables.queue_mut(queue)?;
            // Never back: a lane that few workers serve lags behind the others.
            queue.vtime = queue.vtime.max(vtime).max(began);
        }
        self.settle(queue, choice)
    }

    /// Reads the rings until none of them can hold a group that comes before the heap's first.
    fn read_rings(&mut self, choice: &mut Choice) -> Result<()> {
        let mut i = 0;
        while let Some(ring) = choice.rings.get(i) {
            let first = choice.heap.peek().map(|Reverse(first)| *first);
            if first.is_some() && ring.read_to >= first {
                i += 1;
                continue;
            }
            let (lane, read_to) = (ring.lane, ring.read_to);
            let places = self.tables.ring(lane, read_to, choice.chunk)?;
            if places.len() < choice.chunk {
                choice.rings.swap_remove(i);
            } else {
                choice.rings[i].read_to = places.last().copied();
            }
            for (vtime, id) in places {
                self.meet(choice, lane, vtime, id)?;
            }
        }
        Ok(())
    }

    /// A group was found in a ring.
    fn meet(&mut self, choice: &mut Choice, lane: LaneId, ring_vtime: u64, id: GroupId) -> Result<()> {
        if let Some(served) = choice.groups.get_mut(&id) {
            if ring_vtime < served.vtime {
                served.stale.push(lane);
            }
            return Ok(());
        }
        // Its limits may have been lowered since it took its place.
        self.review_group(id)?;
        if self.tables.group(id)?.parked != Parked::No {
            return Ok(());
        }
        let limits = self.group_limits(id)?;
        let now = self.now;
        let group = self.tables.group(id)?;
        let by_cap = limits.cap.map_or(u64::MAX, |cap| u64::from(cap).saturating_sub(group.active));
        let by_rate = limits.rate.map_or(u64::MAX, |rate| u64::from(group.meter.room(rate, now)));
        let own = group.vtime;
        let mine = if choice.only_plain || choice.lanes.len() == 1 {
            choice.lanes.clone()
        } else {
            let all = self.tables.group_lanes(id)?;
            all.into_iter().filter(|lane| choice.lanes.binary_search(lane).is_ok()).collect()
        };
        let vtime = self.vtime_in(choice, own, ring_vtime, (id, &mine))?;
        let head = |lane| Head { lane, jobs: VecDeque::new(), read_to: None, more: true };
        let heads: Vec<Head> = mine.into_iter().map(head).collect();
        let mut order = BinaryHeap::with_capacity(heads.len());
        for (i, head) in heads.iter().enumerate() {
            order.push(Reverse((self.tables.lane(head.lane)?.head, i)));
        }
        let stale = if ring_vtime < vtime { vec![lane] } else { Vec::new() };
        let turn = TURN / u64::from(limits.weight.unwrap_or(1).max(1));
        let room = by_cap.min(by_rate);
        choice.groups.insert(id, Served { vtime, turn, room, heads, order, stale, taken: 0 });
        choice.heap.push(Reverse((vtime, id)));
        Ok(())
    }

    /// The virtual time of a group, `own` by itself, that was found in a ring at `ring_vtime` and has ready jobs in the
    /// given lanes of the claim.
    fn vtime_in(
        &mut self,
        choice: &Choice,
        own: u64,
        ring_vtime: u64,
        (id, lanes): (GroupId, &[LaneId]),
    ) -> Result<u64> {
        if choice.only_plain {
            return Ok(own);
        }
        let mut latest = own.max(ring_vtime);
        if choice.lanes.len() > 1 {
            for lane in lanes {
                latest = latest.max(self.tables.sub(*lane, id)?.vtime.unwrap_or(0));
            }
        }
        Ok(latest)
    }

    /// Gives a group its turn, or all that are left if nobody else is there, and puts it back if it may have more.
    fn serve(&mut self, choice: &mut Choice, id: GroupId) -> Result<()> {
        let left = choice.max - choice.picked.len();
        let alone = choice.heap.is_empty() && choice.rings.is_empty();
        let turns = if alone { left } else { 1 };
        let share = left / (choice.heap.len() + 1);
        let Some(served) = choice.groups.get_mut(&id) else { return Ok(()) };
        for _ in 0..turns {
            if served.room == 0 {
                return Ok(());
            }
            let Some(row) = self.next_of(id, served, share)? else {
                return Ok(());
            };
            choice.picked.push(row);
            served.room -= 1;
            served.taken += 1;
            served.vtime = served.vtime.saturating_add(served.turn);
        }
        choice.heap.push(Reverse((served.vtime, id)));
        Ok(())
    }

    /// The first job of a group over all its lanes. A lane is looked into only when it may hold that job.
    fn next_of(&mut self, id: GroupId, served: &mut Served, share: usize) -> Result<Option<Row>> {
        let chunk = share / served.heads.len().max(1) + 1;
        while let Some(Reverse((bound, i))) = served.order.pop() {
            let head = &mut served.heads[i];
            if head.jobs.is_empty() && head.more {
                let jobs = self.tables.ready(head.lane, id, head.read_to, chunk)?;
                head.more = jobs.len() == chunk;
                head.read_to = jobs.last().map(|(ord, _)| *ord).or(head.read_to);
                head.jobs = jobs.into();
            }
            match head.jobs.front() {
                Some((ord, _)) if *ord > bound => served.order.push(Reverse((*ord, i))),
                Some(_) => {
                    let row = head.jobs.pop_front().map(|(_, row)| row);
                    if let Some(next) = head.bound() {
                        served.order.push(Reverse((next, i)));
                    }
                    return Ok(row);
                }
                None => {}
            }
        }
        Ok(None)
    }

    /// Writes down what the claim has cost everybody.
    fn settle(&mut self, queue: QueueId, choice: Choice) -> Result<Vec<Row>> {
        let now = self.now;
        let several = choice.groups.len() > 1;
        let state = self.tables.queue_mut(queue)?;
        if let Some(rate) = state.settings.rate {
            state.meter.take(rate, now, u32::try_from(choice.picked.len()).unwrap_or(u32::MAX));
        }
        for (id, served) in choice.groups {
            if served.taken > 0 {
                let rate = self.group_limits(id)?.rate;
                let group = self.tables.group_mut(id)?;
                group.vtime = served.vtime;
                if let Some(rate) = rate {
                    group.meter.take(rate, now, served.taken);
                }
            }
            for head in &served.heads {
                self.move_head(head, id)?;
            }
            // A single group needs no order among groups; correcting its place in a thousand lanes would be for nothing.
            if several {
                let touched =
                    served.heads.iter().filter(|head| head.read_to.is_some() && served.taken > 0).map(|h| h.lane);
                for lane in touched.chain(served.stale.iter().copied()) {
                    let sub = self.tables.sub(lane, id)?;
                    if sub.vtime.is_some_and(|vtime| vtime < served.vtime) {
                        self.tables.put_sub(lane, id, Sub { vtime: Some(served.vtime), ..sub })?;
                    }
                }
            }
        }
        Ok(choice.picked)
    }

    /// Tightens the hint of a lane of which the claim has seen the first job that stays.
    fn move_head(&mut self, head: &Head, id: GroupId) -> Result<()> {
        let Some(bound) = head.read_to.and(head.bound()) else {
            return Ok(());
        };
        let alone = self.tables.sub(head.lane, id)?.ready == self.tables.lane(head.lane)?.ready;
        if alone && self.tables.lane(head.lane)?.head < bound {
            self.tables.lane_mut(head.lane)?.head = bound;
        }
        Ok(())
    }
}

//! Groups: what they count, where they stand in the rings, and that none is remembered for nothing.

use super::jobs::Jobs;
use super::raw::Raw;
use super::{Discord, enc, hex12};
use std::collections::{BTreeMap, BTreeSet};

/// `queue ready active time parked wake cap rate per weight meter lanes name`; behind the cap may stand `/` and the one that jobs of
/// runs have set, for which no group is remembered.
struct Group<'a> {
    id: u64,
    queue: u64,
    ready: u64,
    active: u64,
    parked: bool,
    wake: Option<u64>,
    has_settings: bool,
    lanes: BTreeSet<u64>,
    name: Option<&'a str>,
}

impl<'a> Group<'a> {
    fn read(id: u64, text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.splitn(13, ' ').collect();
        let own = |text: &&str| text.split('/').next().and_then(|text| text.parse::<u64>().ok());
        let number = |at: usize| parts.get(at).and_then(own);
        let lanes = parts.get(11)?.split(',').filter_map(|lane| lane.parse().ok());
        Some(Self {
            id,
            queue: number(0)?,
            ready: number(1)?,
            active: number(2)?,
            parked: *parts.get(4)? != "N",
            wake: number(5),
            has_settings: [6, 7, 9].into_iter().any(|at| number(at).is_some()),
            lanes: lanes.collect(),
            name: parts.get(12)?.strip_prefix('+'),
        })
    }
}

/// Ready jobs of a group in a lane.
type Subs = BTreeMap<(u64, u64), u64>;

pub(super) fn check(raw: &Raw, jobs: &Jobs, discord: &mut Discord) {
    let groups = read(raw, discord);
    let (mut ready, mut active, mut subs) = (BTreeMap::<u64, u64>::new(), BTreeMap::<u64, u64>::new(), Subs::new());
    for job in jobs.all.iter().filter(|job| matches!(job.state, 'r' | 'a')) {
        let Some(group) = job.group.filter(|group| groups.contains_key(group)) else {
            discord.say(format_args!("groups: {job:?} is of no group"));
            continue;
        };
        let counted = if job.state == 'r' { &mut ready } else { &mut active };
        *counted.entry(group).or_default() += 1;
        if job.state == 'r' {
            *subs.entry((job.lane, group)).or_default() += 1;
        }
    }
    for group in groups.values() {
        let count = |counts: &BTreeMap<u64, u64>| counts.get(&group.id).copied().unwrap_or(0);
        let should = (count(&ready), count(&active));
        if (group.ready, group.active) != should {
            let (id, is) = (group.id, (group.ready, group.active));
            discord.say(format_args!("group {id}: ready and active are {is:?}, a recount says {should:?}"));
        }
        let idle = group.name.is_some() && should == (0, 0) && !group.has_settings && group.wake.is_none();
        if idle {
            discord.say(format_args!("group {}: is remembered for nothing", group.id));
        }
    }
    check_rings(raw, &groups, &subs, discord);
    check_names(raw, &groups, discord);
}

fn read<'a>(raw: &'a Raw, discord: &mut Discord) -> BTreeMap<u64, Group<'a>> {
    let mut groups = BTreeMap::new();
    for (field, text) in raw.hash("groups") {
        let Ok(id) = field.parse() else { continue };
        match Group::read(id, text) {
            Some(group) => drop(groups.insert(id, group)),
            None => discord.say(format_args!("group {id}: cannot be read: {text:?}")),
        }
    }
    groups
}

/// Fields `s<lane>:<group>`, and the rings, which hold exactly those of groups that are not parked.
fn check_rings(raw: &Raw, groups: &BTreeMap<u64, Group<'_>>, subs: &Subs, discord: &mut Discord) {
    let (mut counted, mut ring) = (BTreeMap::new(), BTreeMap::new());
    for (field, text) in raw.hash("groups") {
        let Some((lane, group)) = field.strip_prefix('s').and_then(|rest| rest.split_once(':')) else { continue };
        let (Ok(lane), Ok(group)) = (lane.parse::<u64>(), group.parse::<u64>()) else { continue };
        let (ready, time) = text.split_once(' ').unwrap_or((text, "-"));
        counted.insert(field.clone(), ready.parse::<u64>().unwrap_or(0));
        let time = time.parse::<u64>().ok();
        if let Some(time) = time {
            ring.insert(format!("{}{time:016x}{}", enc(lane), enc(group)), 0);
        }
        let parked = groups.get(&group).is_some_and(|group| group.parked);
        if parked == time.is_some() {
            discord.say(format_args!("ring: group {group} is parked: {parked}, in the ring of lane {lane}: {time:?}"));
        }
    }
    let should: BTreeMap<String, u64> =
        subs.iter().map(|((lane, group), ready)| (format!("s{lane}:{group}"), *ready)).collect();
    discord.compare("groups", &counted, &should);
    discord.compare("ring", raw.set("ring"), &ring);
    for group in groups.values().filter(|group| group.name.is_some()) {
        let lanes: BTreeSet<u64> = subs.keys().filter(|(_, of)| *of == group.id).map(|(lane, _)| *lane).collect();
        if lanes != group.lanes {
            discord.say(format_args!("group {}: lanes are {:?}, a recount says {lanes:?}", group.id, group.lanes));
        }
    }
}

/// Names, wake times, parked groups, and how many named groups of a queue have ready jobs.
fn check_names(raw: &Raw, groups: &BTreeMap<u64, Group<'_>>, discord: &mut Discord) {
    let (mut names, mut wake, mut parked, mut numbers) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut named = BTreeMap::<u64, u64>::new();
    for group in groups.values() {
        let (id, queue) = (group.id, enc(group.queue));
        if let Some(name) = group.name {
            names.insert(format!("{queue}{name}\n{id}"), 0);
            numbers.insert(format!("n{} {name}", group.queue), id.to_string());
            *named.entry(group.queue).or_default() += u64::from(group.ready > 0);
        }
        if let Some(at) = group.wake {
            wake.insert(format!("{queue}{}{}", hex12(at), enc(id)), 0);
        }
        if group.parked {
            parked.insert(format!("{queue}{}", enc(id)), 0);
        }
    }
    discord.compare("group_names", raw.set("group_names"), &names);
    discord.compare("wake", raw.set("wake"), &wake);
    discord.compare("parked", raw.set("parked"), &parked);
    let is = raw.hash("groups").iter().filter(|(field, _)| field.starts_with('n'));
    let is: BTreeMap<String, String> = is.map(|(field, id)| (field.clone(), id.clone())).collect();
    discord.compare("groups", &is, &numbers);
    for (field, text) in raw.hash("meta") {
        let Some(queue) = field.strip_prefix('q').and_then(|queue| queue.parse::<u64>().ok()) else { continue };
        let is = text.split(' ').nth(8).and_then(|count| count.parse().ok());
        let should = named.get(&queue).copied().unwrap_or(0);
        if is != Some(should) {
            discord.say(format_args!("queue {queue}: {is:?} named groups are ready, a recount says {should}"));
        }
    }
}

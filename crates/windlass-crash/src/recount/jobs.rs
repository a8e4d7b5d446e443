//! The jobs, and what follows from each of them alone.

use super::raw::Raw;
use super::{Discord, enc, hex12};
use std::collections::{BTreeMap, BTreeSet};

/// A job, from its life or, when nobody has touched it, from its record.
#[derive(Debug)]
pub(super) struct Job {
    id: String,
    pub(super) state: char,
    pub(super) queue: u64,
    pub(super) lane: u64,
    row: u64,
    ord: String,
    due: Option<u64>,
    finished: u64,
    expires: u64,
    worker: Option<String>,
    cancel: bool,
    pub(super) group: Option<u64>,
    flags: String,
    remove_at: Option<u64>,
}

/// The flags alone: behind them may stand `@` and a run.
fn flags_of(text: &str) -> String {
    text.split('@').next().unwrap_or(text).to_owned()
}

impl Job {
    /// `state mark token last-state row claimed time queue lane attempt attempts stalls max retries cancel place ready group
    /// created flags removal token state worker`; the one time is the end of the lease, of the job, or when it is due. Of a job
    /// with nothing but defaults, `* created worker` behind the attempt.
    fn of_life(id: &str, text: &str, plain: &BTreeMap<u64, u64>) -> Option<Self> {
        let mut parts: Vec<&str> = text.splitn(24, ' ').collect();
        let (place, group);
        if let [.., "*", created, worker] = parts[..]
            && parts.len() == 13
        {
            let row = u64::from_str_radix(parts[4], 16).ok()?;
            place = format!("8000{:012x}", (1_u64 << 46) + row);
            group = plain.get(&u64::from_str_radix(parts[7], 16).ok()?)?.to_string();
            parts.truncate(10);
            parts.extend(["3", "0", "1", "0", "0", &place, created, &group, created, "-", "-", "-", "-", worker]);
        }
        let hex = |at: usize| u64::from_str_radix(parts.get(at)?, 16).ok();
        let number = |at: usize| parts.get(at).and_then(|text| text.parse::<u64>().ok());
        let state = parts.first()?.chars().next()?;
        let time = number(6);
        Some(Self {
            id: id.to_owned(),
            state,
            queue: hex(7)?,
            lane: hex(8)?,
            row: hex(4)?,
            cancel: *parts.get(14)? == "1",
            ord: (*parts.get(15)?).to_owned(),
            due: time.filter(|_| state == 's'),
            finished: time.filter(|_| matches!(state, 'S' | 'F' | 'C')).unwrap_or(0),
            expires: time.filter(|_| state == 'a').unwrap_or(0),
            group: number(17).filter(|_| matches!(state, 'r' | 'a')),
            flags: flags_of(parts.get(19)?),
            remove_at: number(20),
            worker: (state == 'a').then(|| parts.get(23).map(|worker| (*worker).to_owned())).flatten(),
        })
    }

    /// `1 queue lane row created fingerprint`, and perhaps ` due priority flags attempts stalls key mode ttl keep keep group`.
    fn of_record(
        id: &str,
        record: &str,
        groups: &BTreeMap<String, String>,
        plain: &BTreeMap<u64, u64>,
    ) -> Option<Self> {
        let head = record.split('\n').next()?;
        let parts: Vec<&str> = head.splitn(17, ' ').collect();
        let hex = |at: usize| u64::from_str_radix(parts.get(at)?, 16).ok();
        let (queue, lane, row) = (hex(1)?, hex(2)?, hex(3)?);
        let due = parts.get(6).copied().unwrap_or("-");
        let priority: i32 = parts.get(7).map_or(Some(0), |text| text.parse().ok())?;
        let flags = flags_of(parts.get(8).unwrap_or(&"-"));
        let group = match parts.get(16).and_then(|name| name.strip_prefix('+')) {
            Some(name) => groups.get(&format!("n{queue} {name}")).and_then(|id| id.parse().ok()),
            None => plain.get(&queue).copied(),
        };
        let middle = 1_u64 << 46;
        let place = if flags.contains('l') { middle - row } else { middle + row };
        let state = if due == "-" { 'r' } else { 's' };
        Some(Self {
            id: id.to_owned(),
            state,
            queue,
            lane,
            row,
            ord: format!("{:04x}{place:012x}", priority + 32_768),
            due: due.parse().ok(),
            finished: 0,
            expires: 0,
            worker: None,
            cancel: false,
            group: group.filter(|_| state == 'r'),
            flags,
            remove_at: None,
        })
    }

    fn is_ended(&self) -> bool {
        matches!(self.state, 'S' | 'F' | 'C')
    }

    /// Where it must stand, and nowhere else: index, member, score.
    fn places(&self) -> Vec<(&'static str, String, u64)> {
        let Self { id, row, .. } = self;
        match self.state {
            'a' => {
                let mut places = vec![("leases", format!("{}{id}", hex12(*row)), self.expires)];
                if let (true, Some(worker)) = (self.cancel, &self.worker) {
                    places.push(("cancelling", format!("{worker}\n{}{id}", hex12(*row)), 0));
                }
                places
            }
            'r' => {
                let group = self.group.map(enc).unwrap_or_default();
                vec![("ready", format!("{}{group}{}{id}", enc(self.lane), self.ord), 0)]
            }
            's' => {
                let due = self.due.map_or_else(|| "z".repeat(12), hex12);
                vec![("scheduled", format!("{}{due}{}{}{id}", enc(self.queue), hex12(*row), enc(self.lane)), 0)]
            }
            _ => {
                let removable = if self.remove_at.is_some() { '1' } else { '0' };
                let (queue, finished, lane) = (enc(self.queue), hex12(self.finished), enc(self.lane));
                let member = format!("{queue}{}{removable}{finished}{}{lane}{id}", self.state, hex12(*row));
                let mut places = vec![("ended", member, 0)];
                places.extend(self.remove_at.map(|at| ("removable", format!("{}{id}", hex12(*row)), at)));
                places
            }
        }
    }
}

/// All jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub(super) all: Vec<Job>,
    ids: BTreeMap<String, usize>,
}

impl Jobs {
    pub(super) fn read(raw: &Raw, discord: &mut Discord) -> Self {
        let (records, lives) = (raw.hash("jobs"), raw.hash("life"));
        let plain = plain_groups(raw);
        let ids: BTreeSet<&String> = records.keys().chain(lives.keys()).collect();
        let mut jobs = Self::default();
        for id in ids {
            let record = records.get(id);
            if record.is_none() {
                discord.say(format_args!("life: {id} has no record"));
            }
            let of_record = || Job::of_record(id, record?, raw.hash("groups"), &plain);
            match lives.get(id).map_or_else(of_record, |life| Job::of_life(id, life, &plain)) {
                Some(job) => {
                    jobs.ids.insert(id.clone(), jobs.all.len());
                    jobs.all.push(job);
                }
                None => discord.say(format_args!("jobs: {id} cannot be read")),
            }
        }
        jobs
    }

    fn get(&self, id: &str) -> Option<&Job> {
        self.all.get(*self.ids.get(id)?)
    }

    /// No index entry without its job, and no job without its entry.
    pub(super) fn check_indexes(&self, raw: &Raw, discord: &mut Discord) {
        let mut should: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
        for (index, member, score) in self.all.iter().flat_map(Job::places) {
            should.entry(index).or_default().insert(member, score);
        }
        for index in ["leases", "cancelling", "ready", "scheduled", "ended", "removable"] {
            discord.compare(index, raw.set(index), should.entry(index).or_default());
        }
    }

    /// The counters of queues and lanes.
    pub(super) fn check_queues(&self, raw: &Raw, discord: &mut Discord) {
        let meta = raw.hash("meta");
        let (mut queues, mut lanes) = (BTreeMap::<u64, [u64; 6]>::new(), BTreeMap::<u64, (u64, u64, u64)>::new());
        for job in &self.all {
            let state = "sraSFC".find(job.state).unwrap_or(0);
            queues.entry(job.queue).or_default()[state] += 1;
            let lane = lanes.entry(job.lane).or_default();
            lane.0 = job.queue;
            lane.1 += u64::from(job.state == 'r');
            lane.2 += 1;
        }
        for (queue, counts) in queues {
            let is =
                meta.get(&format!("q{queue}")).map(|text| text.splitn(7, ' ').take(6).collect::<Vec<_>>().join(" "));
            let should = counts.map(|count| count.to_string()).join(" ");
            if is.as_deref() != Some(&should) {
                discord.say(format_args!("queue {queue}: counts {is:?}, a recount says {should}"));
            }
        }
        for (lane, (queue, ready, jobs)) in lanes {
            let is = meta.get(&format!("l{lane}")).map_or("", String::as_str);
            if !is.starts_with(&format!("{queue} {ready} {jobs} ")) {
                discord.say(format_args!("lane {lane}: counts {is:?}, a recount says {queue} {ready} {jobs}"));
            }
        }
    }

    /// What hangs on a job: results, failures, dedup keys.
    pub(super) fn check_attached(&self, raw: &Raw, discord: &mut Discord) {
        for field in raw.hash("extra").keys() {
            let (id, flag) = match field.rsplit_once(':') {
                Some((id, "l")) => (id, 'o'),
                Some((id, _)) => (id, 'x'),
                None => (field.as_str(), 'x'),
            };
            if !self.get(id).is_some_and(|job| job.flags.contains(flag)) {
                discord.say(format_args!("extra: {field:?} hangs on nothing"));
            }
        }
        let mut until = BTreeMap::new();
        let mut owners = BTreeSet::new();
        for (key, text) in raw.hash("dedup") {
            let parts: Vec<&str> = text.split(' ').collect();
            let [owner, till, sticky, _] = parts[..] else {
                discord.say(format_args!("dedup: {key:?} is {text:?}"));
                continue;
            };
            owners.insert(owner);
            if let Ok(till) = till.parse::<u64>() {
                until.insert(key.clone(), till);
            } else if sticky == "0" && self.get(owner).is_none_or(Job::is_ended) {
                discord.say(format_args!("dedup: {key:?} is held by {owner}, which has ended or is gone"));
            }
        }
        discord.compare("dedup_until", raw.set("dedup_until"), &until);
        for job in self.all.iter().filter(|job| job.flags.contains('d') && !job.is_ended()) {
            // One without a time waits behind the one that has the key.
            let is_held = job.state == 's' && job.due.is_none();
            if !owners.contains(job.id.as_str()) && !is_held {
                discord.say(format_args!("dedup: {} has lost its key", job.id));
            }
        }
    }
}

/// The group of jobs that name none, by queue.
fn plain_groups(raw: &Raw) -> BTreeMap<u64, u64> {
    let queues = raw.hash("meta").iter().filter_map(|(field, text)| {
        let queue = field.strip_prefix('q')?.parse().ok()?;
        Some((queue, text.split(' ').nth(7)?.parse().ok()?))
    });
    queues.collect()
}

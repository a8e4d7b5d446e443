//! What does not fit together: jobs and runs in no index, entries without a job, counters that are not what they count.
//!
//! A page is looked at in one atomic step (`look.lua`), so that a store at work shows nothing that is not there.

use super::{Depth, Finding, about, bytes, count};
use crate::link::{Call, Script};
use crate::reply::{Items, maybe};
use crate::scripts::{Flags, script};
use crate::store::RedisStore;
use std::sync::LazyLock;
use windlass_core::Result;
use windlass_core::job::State;
use windlass_core::schedule::Schedule;
use windlass_core::store::{JobQueue as _, RetentionRule};

/// So many entries of a container are looked at, unless all are to be.
const ENTRIES_MAX: u64 = 10_000;
/// Entries of a page: what the server does in one go, in about a millisecond.
const PAGE: &str = "100";
/// A record with more is large.
const LARGE_BYTES: &str = "1048576";
/// So many examples of each are named.
const EXAMPLES: usize = 3;
/// Maintenance removes what is due within minutes; what is still there this long after was forgotten.
const LATE_MS: u64 = 3_600_000;
/// A queue may hold so many more ended jobs than it should, while they come faster than they are removed.
const OVER: u64 = 10_000;

static LOOK: LazyLock<Script> = LazyLock::new(|| script("doctor", Flags::Reads, include_str!("look.lua")));

/// What a page, or many of them, had to tell.
#[derive(Default)]
struct Seen {
    entries: u64,
    whole: bool,
    oldest: Option<u64>,
    /// The kind of finding, then its words.
    wrong: Vec<(String, Vec<String>)>,
}

async fn call(store: &RedisStore, what: &str, cursor: &str) -> Result<Items> {
    let mut call = Call::new(&LOOK, store.caller.keys.all());
    call.arg("").arg("").arg("").arg(what).arg(cursor).arg(PAGE).arg(LARGE_BYTES);
    Items::of(store.caller.link.call(&call).await?)
}

async fn pages(store: &RedisStore, depth: Depth, what: &str) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut cursor = "0".to_owned();
    while depth.whole || seen.entries < ENTRIES_MAX {
        let mut page = call(store, what, &cursor).await?;
        cursor = page.text()?;
        seen.entries += page.number()?;
        let oldest = maybe(&page.text()?)?;
        seen.oldest = [seen.oldest, oldest].into_iter().flatten().min();
        seen.wrong.extend(page.all(|page| {
            let mut one = page.list()?;
            let word = |one: &mut Items| Ok(String::from_utf8_lossy(&one.bytes()?).into_owned());
            Ok((one.text()?, one.all(word)?))
        })?);
        if cursor == "0" {
            seen.whole = true;
            break;
        }
    }
    Ok(seen)
}

impl Seen {
    fn of(&self, kind: &str) -> Vec<&[String]> {
        self.wrong.iter().filter(|(found, _)| found == kind).map(|(_, words)| words.as_slice()).collect()
    }
}

/// Some of them, with why.
fn examples(rows: &[&[String]]) -> String {
    let one = |words: &&[String]| match words {
        [id, rest @ ..] if !rest.is_empty() => format!("{id} ({})", rest.join(", ")),
        words => words.join(" "),
    };
    rows.iter().take(EXAMPLES).map(one).collect::<Vec<_>>().join("; ")
}

/// The records of jobs: large ones, unreadable ones, lost ones. Answers how old the oldest is that has not ended.
pub(super) async fn records(store: &RedisStore, depth: Depth, findings: &mut Vec<Finding>) -> Result<Option<u64>> {
    let mut jobs = pages(store, depth, "jobs").await?;
    let lives = pages(store, depth, "lives").await?;
    jobs.wrong.extend(lives.wrong);
    let large = jobs.of("large");
    if let Some(first) = large.first() {
        let size = first.get(1).and_then(|size| size.parse().ok()).map_or_else(String::new, bytes);
        let id = first.first().map_or("", String::as_str);
        findings.push(
            Finding::warning(
                "payloads",
                format!("{} over 1 MiB, such as {id} with {size}", count(large.len() as u64, "job")),
            )
            .hint("keep what is large elsewhere and its name in the payload: all of it is in memory"),
        );
    }
    let broken = jobs.of("broken");
    if !broken.is_empty() {
        let text = format!("{} cannot be read: {}", count(broken.len() as u64, "job"), examples(&broken));
        findings.push(Finding::warning("quarantine", text).hint("the first call that meets one sets it aside; then: windlass jobs list --state failed, and windlass jobs remove ID --yes"));
    }
    let lost = jobs.of("lost");
    if !lost.is_empty() {
        let text = format!("{} will never be found by a worker: {}", count(lost.len() as u64, "job"), examples(&lost));
        findings.push(Finding::error("orphans", text).hint(
            "somebody wrote to the store's keys, or a key is gone: restore a backup, or save the payload with `windlass jobs show ID --json`, remove the job and enqueue it anew",
        ));
    }
    if !jobs.whole {
        let text = format!("the first {} jobs were looked at", jobs.entries);
        findings.push(Finding::info("orphans", text).hint("windlass doctor --deep looks at all"));
    }
    let now = u64::try_from(store_now(store).await?).unwrap_or(0);
    Ok(jobs.oldest.map(|made| now.saturating_sub(made)))
}

async fn store_now(store: &RedisStore) -> Result<i64> {
    use windlass_core::store::Store as _;
    Ok(store.now().await?.as_ms())
}

/// Everything that points at jobs, and all that counts them.
pub(super) async fn look(store: &RedisStore, depth: Depth, findings: &mut Vec<Finding>) -> Result<()> {
    let before = findings.len();
    let mut looked = 0;
    for index in ["ready", "scheduled", "leases", "ended"] {
        let seen = pages(store, depth, index).await?;
        looked += seen.entries;
        let stray = seen.of("stray");
        if !stray.is_empty() {
            let text = format!("{} of `{index}` belong to no job there: {}", stray.len(), examples(&stray));
            findings.push(Finding::warning("orphans", text).hint(
                "the claim or sweep that meets one takes it out and puts the counters right; nothing else is needed",
            ));
        }
    }
    let groups = pages(store, depth, "groups").await?;
    looked += groups.entries;
    let wrong = groups.of("group");
    if !wrong.is_empty() {
        let text = format!("{} out of step: {}", count(wrong.len() as u64, "group"), examples(&wrong));
        findings.push(Finding::warning("groups", text).hint(
            "somebody wrote to the store's keys; if nobody did, it is a mistake of the store: please report this line",
        ));
    }
    looked += runs(store, depth, findings).await?;
    counters(store, findings).await?;
    schedules(store, findings).await;
    if findings.len() == before && looked > 0 {
        findings
            .push(Finding::ok("orphans", format!("{looked} index entries fit their jobs, and the counters fit them")));
    }
    Ok(())
}

/// Runs that cannot be read, or that nobody would find. Answers how many entries were looked at.
async fn runs(store: &RedisStore, depth: Depth, findings: &mut Vec<Finding>) -> Result<u64> {
    let seen = pages(store, depth, "runs").await?;
    let wrong = seen.of("run");
    if !wrong.is_empty() {
        let text = format!("{} out of step: {}", count(wrong.len() as u64, "run"), examples(&wrong));
        findings.push(Finding::warning("runs", text).hint(
            "somebody wrote to the store's keys, or a key is gone; a damaged run is never claimed: look at it, remove it, and start it anew; a message wakes one that is lost",
        ));
    }
    Ok(seen.entries)
}

/// Counters of queues beside a recount, in one atomic step.
async fn counters(store: &RedisStore, findings: &mut Vec<Finding>) -> Result<()> {
    let mut items = call(store, "counts", "0").await?;
    let now = items.number()?;
    let (jobs, ready, scheduled, leases, ended) =
        (items.number()?, items.number()?, items.number()?, items.number()?, items.number()?);
    let (late, first) = (items.number()?, maybe::<u64>(&items.text()?)?);
    let partial = items.number()? == 1;
    let (mut active, mut off) = (0, Vec::new());
    while items.left() > 0 {
        let row = Row::read(items.list()?)?;
        active += row.says[2];
        off.extend(row.differences());
    }
    if active != leases && !partial {
        off.push(format!("the queues count {active} active jobs, and there are {leases} leases"));
    }
    let indexed = ready + scheduled + leases + ended;
    if indexed != jobs {
        off.push(format!("there are {jobs} jobs, and {indexed} entries that say where one stands"));
    }
    if !off.is_empty() {
        let more = off.len().saturating_sub(EXAMPLES);
        off.truncate(EXAMPLES);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        findings.push(Finding::warning("counters", format!("{}{more}", off.join("; "))).hint(
            "somebody wrote to the store's keys, or a key is gone; --deep names the jobs, sweeps take out what is stray",
        ));
    }
    if late > 0 {
        let longest = about(now.saturating_sub(first.unwrap_or(now)));
        findings.push(
            Finding::error(
                "leases",
                format!("{} ran out more than 5 minutes ago, up to {longest}", count(late, "lease")),
            )
            .hint("no maintenance is running: start a worker, any one does it"),
        );
    }
    Ok(())
}

/// A queue: what it says, what was counted, and when the oldest of each ended state ended.
struct Row {
    name: String,
    /// Scheduled, ready, active, succeeded, failed, cancelled.
    says: [u64; 6],
    scheduled: u64,
    ready: u64,
    ended: [u64; 3],
    oldest: [Option<u64>; 3],
}

impl Row {
    fn read(mut items: Items) -> Result<Self> {
        let name = items.text()?;
        let mut says = [0; 6];
        for one in &mut says {
            *one = items.number()?;
        }
        let (scheduled, ready) = (items.number()?, items.number()?);
        let mut ended = [0; 3];
        for one in &mut ended {
            *one = items.number()?;
        }
        let mut oldest = [None; 3];
        for one in &mut oldest {
            *one = maybe(&items.text()?)?;
        }
        Ok(Self { name, says, scheduled, ready, ended, oldest })
    }

    fn differences(&self) -> Vec<String> {
        let [scheduled, ready, _, succeeded, failed, cancelled] = self.says;
        let pairs = [
            ("scheduled", scheduled, self.scheduled),
            ("ready", ready, self.ready),
            ("succeeded", succeeded, self.ended[0]),
            ("failed", failed, self.ended[1]),
            ("cancelled", cancelled, self.ended[2]),
        ];
        let off = pairs.into_iter().filter(|(_, says, has)| says != has);
        off.map(|(state, says, has)| format!("`{}` counts {says} {state} jobs and has {has}", self.name)).collect()
    }

    /// Ended jobs that should be gone by the queue's own rules.
    fn overdue(&self, rules: [RetentionRule; 3], now: u64) -> Vec<String> {
        let mut all = Vec::new();
        for (at, state) in ["succeeded", "failed", "cancelled"].into_iter().enumerate() {
            let (has, rule) = (self.ended[at], rules[at]);
            if let Some(most) = rule.count.filter(|most| has > most.saturating_add((*most).max(OVER))) {
                all.push(format!("`{}` holds {has} {state} jobs and should keep {most}", self.name));
            }
            let age = self.oldest[at].map_or(0, |ended| now.saturating_sub(ended));
            if let Some(most) = rule.age_ms.filter(|most| age > most.saturating_add(LATE_MS)) {
                let (age, most) = (about(age), about(most));
                all.push(format!(
                    "`{}` holds {state} jobs that ended {age} ago and should keep them {most}",
                    self.name
                ));
            }
        }
        all
    }
}

/// The growth alarm: ended jobs that nobody removes.
pub(super) async fn retention(store: &RedisStore, findings: &mut Vec<Finding>) -> Result<()> {
    let mut items = call(store, "counts", "0").await?;
    let now = items.number()?;
    for _ in 0..8 {
        items.text()?;
    }
    let queues = store.queues().await?;
    while items.left() > 0 {
        let row = Row::read(items.list()?)?;
        let Some(queue) = queues.iter().find(|queue| queue.name.as_str() == row.name) else { continue };
        let rule = |state| queue.settings.retention.rule(state);
        let rules = [rule(State::Succeeded), rule(State::Failed), rule(State::Cancelled)];
        for text in row.overdue(rules, now) {
            findings.push(
                Finding::warning("growth", text)
                    .hint("no maintenance removes them: start a worker, any one does it; or windlass queues clean"),
            );
        }
    }
    Ok(())
}

/// Schedules that are stored and cannot be read: they never tick.
async fn schedules(store: &RedisStore, findings: &mut Vec<Finding>) {
    let stored = super::ask::ask(&store.caller.link, &["HGETALL", store.caller.keys.schedules()]).await;
    let Some(Ok(mut items)) = stored.map(Items::of_map) else { return };
    while let (Ok(name), Ok(text)) = (items.bytes(), items.bytes()) {
        if is_schedule(&text) {
            continue;
        }
        let name = String::from_utf8_lossy(&name);
        findings.push(Finding::error("schedules", format!("`{name}` is damaged and never ticks")).hint(format!(
            "windlass schedules add {name} … replaces it, windlass schedules remove {name} --yes removes it"
        )));
    }
}

/// Six words of the scripts, then the schedule as JSON (`lua/put_schedule.lua`).
fn is_schedule(stored: &[u8]) -> bool {
    let parts = std::str::from_utf8(stored).ok().and_then(|text| text.split_once('\n'));
    parts.is_some_and(|(line, json)| line.split(' ').count() == 6 && serde_json::from_str::<Schedule>(json).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_retention_should_have_removed_is_named() {
        let hour = 3_600_000;
        let rule = |age_ms, count| RetentionRule { age_ms, count };
        let rules = [rule(Some(24 * hour), Some(10_000)), rule(None, None), rule(None, Some(100_000))];
        let mut row = Row {
            name: "q".to_owned(),
            says: [0; 6],
            scheduled: 0,
            ready: 0,
            ended: [20_000, 1_000_000, 200_000],
            oldest: [Some(75 * hour), Some(0), None],
        };
        assert_eq!(row.overdue(rules, 100 * hour), Vec::<String>::new());
        row.ended = [20_001, 1_000_000, 200_001];
        row.oldest[0] = Some(75 * hour - 1);
        assert_eq!(row.overdue(rules, 100 * hour).len(), 3, "{:?}", row.overdue(rules, 100 * hour));
        row.ended = [0, 0, 0];
        row.says = [1, 0, 9, 0, 0, 2];
        assert_eq!(
            row.differences(),
            ["`q` counts 1 scheduled jobs and has 0", "`q` counts 2 cancelled jobs and has 0"]
        );
    }
}

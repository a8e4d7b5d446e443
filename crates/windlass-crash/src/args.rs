//! What the program is asked to do.

use crate::storm::Fault;
use std::path::PathBuf;
use std::str::FromStr;
use windlass_core::random::{Random, StrongRandom};

/// How it is called.
pub fn usage() -> String {
    let width = Fault::all().map(|fault| fault.name().len()).max().unwrap_or(0);
    let faults = Fault::all().map(|fault| format!("\n  {:width$}  {}", fault.name(), fault.about()));
    format!("{USAGE}\nfaults of a storm:{}", faults.collect::<String>())
}

const USAGE: &str = "\
usage: windlass-crash [--store NAME] [--seconds N] [--kills N] [--jobs N] [--workers N] [--seed N] [--dir PATH]
                      [--signal NAME] [--skew-s N] [--bug NAME]
       windlass-crash workflows [--store NAME] [--seconds N] [--kills N] [--jobs N] [--workers N] [--seed N] [--dir PATH]
       windlass-crash storm [--fault NAME] [--rounds N] [--seed N] [--json true]
  --store NAME  sqlite (the usual), or redis: a private server with an append-only file
  --seconds N   how long processes are killed (60)
  --kills N     go on after that until so many were killed, and four times as many jobs have succeeded (0)
  --jobs N      enqueue no more than about so many jobs (no limit)
  --workers N   worker processes at any time (3)
  --seed N      repeats the moments of a run (random, printed)
  --dir PATH    where database and ledgers go, and stay (a temporary folder)
  --signal NAME kill (the usual), or stop: workers are stopped beyond their leases and then go on
  --skew-s N    the clocks of workers go wrong by so many seconds, ahead and behind by turns (needs libfaketime)
  --bug NAME    acknowledge-first or report-first: break the rules on purpose, to see the audit notice
workflows: the workers execute durable workflows; --jobs bounds the runs
storm: breaks private Redis servers under a working fleet, and prints a table of what was lost
  --fault NAME  one of those below; all if it is not named; may be repeated
  --rounds N    how often each is done (3)
  --json true   lines of JSON instead of the table";

/// A rule that a child breaks on purpose, so that a test can see the audit notice. The store has no such switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// An enqueuer acknowledges its jobs before the store has accepted them.
    AcknowledgeFirst,
    /// A worker reports completion before it has done the work.
    ReportFirst,
}

impl Bug {
    const ALL: [(&str, Self); 2] = [("acknowledge-first", Self::AcknowledgeFirst), ("report-first", Self::ReportFirst)];

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        if self == Self::AcknowledgeFirst { Self::ALL[0].0 } else { Self::ALL[1].0 }
    }
}

/// What the processes work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// A file.
    Sqlite,
    /// A private server.
    Redis,
}

/// What happens to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT when its leases have run out.
    Stop,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What the processes work on.
    pub store: StoreKind,
    /// What happens to workers.
    pub blow: Blow,
    /// By how much the clocks of workers are wrong.
    pub skew_s: u32,
    /// How long processes are killed.
    pub seconds: u64,
    /// Processes to kill at least, however long it takes.
    pub kills: u64,
    /// Enqueue no more than about so many jobs.
    pub jobs: u64,
    /// Worker processes at any time.
    pub workers: u32,
    /// Draws the moments and the victims.
    pub seed: u64,
    /// Where everything is kept; a temporary folder if it is not named.
    pub dir: Option<PathBuf>,
    /// A rule to break.
    pub bug: Option<Bug>,
}

impl Default for Config {
    fn default() -> Self {
        let (store, blow, jobs) = (StoreKind::Sqlite, Blow::Kill, u64::MAX);
        Self { store, blow, skew_s: 0, seconds: 60, kills: 0, jobs, workers: 3, seed: 0, dir: None, bug: None }
    }
}

/// One child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where everything is kept.
    pub dir: PathBuf,
    /// The server of the store; without one it is a file in the folder.
    pub url: Option<String>,
    /// Its name: of its ledger and, for a worker, in the store.
    pub name: String,
    /// Draws what it does.
    pub seed: u64,
    /// A rule to break.
    pub bug: Option<Bug>,
}

/// A storm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StormConfig {
    /// Which faults.
    pub faults: Vec<Fault>,
    /// How often each.
    pub rounds: u32,
    /// Draws the moments.
    pub seed: u64,
    /// Prints lines of JSON.
    pub json: bool,
}

/// What this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Starts, kills and audits the others.
    Parent(Config),
    /// Starts and kills workers that execute durable workflows.
    Workflows(Config),
    /// Breaks servers.
    Storm(StormConfig),
    /// Claims, works, reports.
    Worker(Part),
    /// A worker of the library: claims, works, reports, keeps time.
    LibraryWorker(Part),
    /// A worker of the library that executes durable workflows.
    WorkflowWorker(Part),
    /// Enqueues.
    Enqueuer(Part),
}

/// Reads the arguments. The parts of children are hidden: only the parent names them.
pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Role, String> {
    let mut args = args.into_iter().peekable();
    if args.next_if(|arg| arg == "storm").is_some() {
        return parse_storm(args).map(Role::Storm);
    }
    let parts = ["child-worker", "child-library-worker", "child-workflow-worker", "child-enqueuer"];
    let executes_workflows = args.next_if(|arg| arg == "workflows").is_some();
    let part = args.next_if(|arg| parts.contains(&arg.as_str()));
    let mut config = Config::default();
    let (mut seed, mut name, mut url) = (None, String::new(), None);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--store" => config.store = one_of(&value, &[("sqlite", StoreKind::Sqlite), ("redis", StoreKind::Redis)])?,
            "--signal" => config.blow = one_of(&value, &[("kill", Blow::Kill), ("stop", Blow::Stop)])?,
            "--skew-s" => config.skew_s = number(&flag, &value)?,
            "--seconds" => config.seconds = number(&flag, &value)?,
            "--kills" => config.kills = number(&flag, &value)?,
            "--jobs" => config.jobs = number(&flag, &value)?,
            "--workers" => config.workers = number(&flag, &value)?,
            "--seed" => seed = Some(number(&flag, &value)?),
            "--dir" => config.dir = Some(value.into()),
            "--bug" => config.bug = Some(one_of(&value, &Bug::ALL)?),
            "--name" if part.is_some() => name = value,
            "--url" if part.is_some() => url = Some(value),
            unknown => return Err(format!("unknown flag {unknown}")),
        }
    }
    if config.workers == 0 {
        return Err("--workers is 0; somebody must do the work".to_owned());
    }
    config.seed = seed.unwrap_or_else(|| StrongRandom::from_system().next_u64());
    let Some(part) = part else {
        return Ok(if executes_workflows { Role::Workflows(config) } else { Role::Parent(config) });
    };
    let dir = config.dir.ok_or("a child needs --dir")?;
    let child = Part { dir, url, name, seed: config.seed, bug: config.bug };
    Ok(match part.as_str() {
        "child-worker" => Role::Worker(child),
        "child-library-worker" => Role::LibraryWorker(child),
        "child-workflow-worker" => Role::WorkflowWorker(child),
        _ => Role::Enqueuer(child),
    })
}

fn parse_storm(mut args: impl Iterator<Item = String>) -> Result<StormConfig, String> {
    let seed = StrongRandom::from_system().next_u64();
    let mut config = StormConfig { faults: Vec::new(), rounds: 3, seed, json: false };
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--fault" => config.faults.push(value.parse()?),
            "--rounds" => config.rounds = number(&flag, &value)?,
            "--seed" => config.seed = number(&flag, &value)?,
            "--json" => config.json = one_of(&value, &[("true", true), ("false", false)])?,
            unknown => return Err(format!("unknown flag {unknown}")),
        }
    }
    if config.faults.is_empty() {
        config.faults = Fault::all().collect();
    }
    Ok(config)
}

fn one_of<T: Copy>(value: &str, names: &[(&str, T)]) -> Result<T, String> {
    let found = names.iter().find(|(name, _)| *name == value).map(|(_, what)| *what);
    let all = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("`{value}` is not one of {}", all()))
}

fn number<T: FromStr>(flag: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{flag} is `{value}`; give a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<Role, String> {
        parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn flags_are_read_and_what_cannot_be_meant_is_refused() {
        let Ok(Role::Parent(config)) = words("--seconds 5 --kills 3 --workers 2 --seed 9 --bug report-first") else {
            panic!("not a parent");
        };
        assert_eq!((config.seconds, config.kills, config.workers, config.seed), (5, 3, 2, 9));
        assert_eq!(config.bug, Some(Bug::ReportFirst));
        let Ok(Role::Storm(storm)) = words("storm --fault script-flush --rounds 7") else { panic!("not a storm") };
        assert_eq!((storm.faults, storm.rounds), (vec![Fault::ScriptFlush], 7));
        assert!(matches!(words("child-worker --dir x --name w"), Ok(Role::Worker(_))));
        assert!(Fault::all().all(|fault| usage().contains(&format!("\n  {} ", fault.name()))));
        for bad in [
            "--second 5",
            "--seconds",
            "--seconds five",
            "--workers 0",
            "--bug typo",
            "--name x",
            "child-worker",
            "--store postgres",
            "--signal hup",
            "storm --fault rain",
            "storm --seconds 5",
        ] {
            assert!(words(bad).is_err(), "{bad}");
        }
    }
}

//! What the program is asked to do.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use windlass_core::random::{Random, StrongRandom};

/// How it is called.
pub const USAGE: &str = "\
usage: windlass-crash [--seconds N] [--jobs N] [--workers N] [--seed N] [--dir PATH] [--bug NAME]
  --seconds N   how long processes are killed (60)
  --jobs N      enqueue no more than about so many jobs (no limit)
  --workers N   worker processes at any time (3)
  --seed N      repeats the moments of a run (random, printed)
  --dir PATH    where database and ledgers go, and stay (a temporary folder)
  --bug NAME    acknowledge-first or report-first: break the rules on purpose, to see the audit notice";

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
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, bug)| bug == self).map_or("?", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Bug {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, bug)| *bug).ok_or_else(|| format!("`{text}` is no bug that can be asked for"))
    }
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long processes are killed.
    pub seconds: u64,
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

/// One child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where everything is kept.
    pub dir: PathBuf,
    /// Its name: of its ledger and, for a worker, in the store.
    pub name: String,
    /// Draws what it does.
    pub seed: u64,
    /// A rule to break.
    pub bug: Option<Bug>,
}

/// What this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Starts, kills and audits the others.
    Parent(Config),
    /// Claims, works, reports.
    Worker(Part),
    /// Enqueues.
    Enqueuer(Part),
}

/// Reads the arguments. The parts of children are hidden: only the parent names them.
pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Role, String> {
    let mut args = args.into_iter().peekable();
    let part = args.next_if(|arg| arg == "child-worker" || arg == "child-enqueuer");
    let mut config = Config { seconds: 60, jobs: u64::MAX, workers: 3, seed: 0, dir: None, bug: None };
    let (mut seed, mut name) = (None, String::new());
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--seconds" => config.seconds = number(&flag, &value)?,
            "--jobs" => config.jobs = number(&flag, &value)?,
            "--workers" => config.workers = number(&flag, &value)?,
            "--seed" => seed = Some(number(&flag, &value)?),
            "--dir" => config.dir = Some(value.into()),
            "--bug" => config.bug = Some(value.parse()?),
            "--name" if part.is_some() => name = value,
            unknown => return Err(format!("unknown flag {unknown}")),
        }
    }
    if config.workers == 0 {
        return Err("--workers is 0; somebody must do the work".to_owned());
    }
    config.seed = seed.unwrap_or_else(|| StrongRandom::from_system().next_u64());
    let Some(part) = part else { return Ok(Role::Parent(config)) };
    let dir = config.dir.ok_or("a child needs --dir")?;
    let child = Part { dir, name, seed: config.seed, bug: config.bug };
    Ok(if part == "child-worker" { Role::Worker(child) } else { Role::Enqueuer(child) })
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
        let Ok(Role::Parent(config)) = words("--seconds 5 --workers 2 --seed 9 --bug report-first") else {
            panic!("not a parent");
        };
        assert_eq!((config.seconds, config.workers, config.seed), (5, 2, 9));
        assert_eq!(config.bug, Some(Bug::ReportFirst));
        assert!(matches!(words("child-worker --dir x --name w"), Ok(Role::Worker(_))));
        for bad in
            ["--second 5", "--seconds", "--seconds five", "--workers 0", "--bug typo", "--name x", "child-worker"]
        {
            assert!(words(bad).is_err(), "{bad}");
        }
    }
}

//! The children: started, killed, and started again under a new name.

use crate::Result;
use crate::args::{Bug, Config};
use crate::child::Dice;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What a child does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Worker,
    Enqueuer,
}

/// A child that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) name: String,
    kind: Kind,
    child: Child,
}

impl Running {
    /// SIGKILL: nothing of it gets to say goodbye.
    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// All children that run.
pub(crate) struct Fleet {
    program: PathBuf,
    dir: PathBuf,
    bug: Option<Bug>,
    seeds: Dice,
    started: u32,
    running: Vec<Running>,
}

impl Fleet {
    pub(crate) fn new(config: &Config, dir: &Path) -> Result<Self> {
        let (program, dir) = (std::env::current_exe()?, dir.to_owned());
        let seeds = Dice::new(config.seed ^ 0x5eed);
        Ok(Self { program, dir, bug: config.bug, seeds, started: 0, running: Vec::new() })
    }

    /// Starts a child under a name that no other has had.
    pub(crate) fn start(&mut self, kind: Kind) -> Result<()> {
        self.started += 1;
        let (part, letter) = match kind {
            Kind::Worker => ("child-worker", 'w'),
            Kind::Enqueuer => ("child-enqueuer", 'e'),
        };
        let name = format!("{letter}{:05}", self.started);
        let mut command = Command::new(&self.program);
        command.arg(part).arg("--dir").arg(&self.dir).args(["--name", &name]);
        command.args(["--seed", &self.seeds.seed().to_string()]);
        if let Some(bug) = self.bug {
            command.args(["--bug", &bug.to_string()]);
        }
        // The child ends when this end of its standard input is gone, so that none outlives its parent.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        self.running.push(Running { name, kind, child });
        Ok(())
    }

    /// Names of those that run.
    pub(crate) fn names(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.running.iter().filter(move |running| running.kind == kind).map(|running| running.name.as_str())
    }

    /// Kills one and starts another in its place.
    pub(crate) fn replace(&mut self, name: &str) -> Result<()> {
        if let Some(place) = self.running.iter().position(|running| running.name == name) {
            let mut victim = self.running.swap_remove(place);
            victim.kill()?;
            self.start(victim.kind)?;
        }
        Ok(())
    }

    /// Kills all of one kind.
    pub(crate) fn kill_all(&mut self, kind: Kind) -> Result<()> {
        for running in self.running.iter_mut().filter(|running| running.kind == kind) {
            running.kill()?;
        }
        self.running.retain(|running| running.kind != kind);
        Ok(())
    }

    /// A child ends by being killed and in no other way.
    pub(crate) fn check(&mut self) -> Result<()> {
        for running in &mut self.running {
            if let Some(status) = running.child.try_wait()? {
                return Err(format!("the child {} ended by itself: {status}", running.name).into());
            }
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for running in &mut self.running {
            let _ = running.kill();
        }
    }
}

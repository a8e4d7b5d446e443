//! The children: started, killed, and started again under a new name.

use crate::Result;
use crate::args::Config;
use crate::child::Dice;
use crate::child::pass_ms;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where Debian and its kin keep it; `LD_PRELOAD` takes the first that is there.
const FAKETIME: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
];

/// What a child does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Worker,
    Enqueuer,
    LibraryWorker,
    WorkflowWorker,
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

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

/// All children that run.
pub(crate) struct Fleet {
    program: PathBuf,
    dir: PathBuf,
    url: Option<String>,
    config: Config,
    seeds: Dice,
    started: u32,
    running: Vec<Running>,
}

impl Fleet {
    pub(crate) fn new(config: &Config, dir: &Path, url: Option<&str>) -> Result<Self> {
        let (program, dir, url) = (std::env::current_exe()?, dir.to_owned(), url.map(str::to_owned));
        let seeds = Dice::new(config.seed ^ 0x5eed);
        Ok(Self { program, dir, url, config: config.clone(), seeds, started: 0, running: Vec::new() })
    }

    /// Starts a child under a name that no other has had.
    pub(crate) fn start(&mut self, kind: Kind) -> Result<()> {
        self.started += 1;
        let (part, letter) = match kind {
            Kind::Worker => ("child-worker", 'w'),
            Kind::Enqueuer => ("child-enqueuer", 'e'),
            Kind::LibraryWorker => ("child-library-worker", 'l'),
            Kind::WorkflowWorker => ("child-workflow-worker", 'f'),
        };
        let name = format!("{letter}{:05}", self.started);
        let mut command = Command::new(&self.program);
        command.arg(part).arg("--dir").arg(&self.dir).args(["--name", &name]);
        command.args(["--seed", &self.seeds.seed().to_string()]);
        if let Some(url) = &self.url {
            command.args(["--url", url]);
        }
        if let Some(bug) = self.config.bug {
            command.args(["--bug", bug.name()]);
        }
        if kind == Kind::Worker && self.config.skew_s > 0 {
            self.skew(&mut command)?;
        }
        // The child ends when this end of its standard input is gone, so that none outlives its parent.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        self.running.push(Running { name, kind, child });
        Ok(())
    }

    /// Has the child's clock go wrong, ahead and behind by turns.
    fn skew(&self, command: &mut Command) -> Result<()> {
        let library = FAKETIME.into_iter().find(|path| Path::new(path).is_file());
        let library = library.ok_or("libfaketime is missing; install it (Debian: `apt install faketime`)")?;
        let sign = if self.started.is_multiple_of(2) { '-' } else { '+' };
        command.env("LD_PRELOAD", library).env("FAKETIME", format!("{sign}{}s", self.config.skew_s));
        // Timers go by this one, and it cannot be set.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Ok(())
    }

    /// Stops one where it stands for so long.
    pub(crate) async fn freeze(&self, name: &str, ms: u64) -> Result<()> {
        self.stop(name)?;
        pass_ms(ms).await;
        self.resume(name)
    }

    /// Stops one where it stands (SIGSTOP).
    pub(crate) fn stop(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::STOP)
    }

    /// Continues one that was stopped.
    pub(crate) fn resume(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::CONT)
    }

    fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        self.running.iter().find(|running| running.name == name).map_or(Ok(()), |running| running.signal(signal))
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

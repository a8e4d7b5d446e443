//! The demo's workers: processes of our own, started, frozen, thawed, killed and started again.
//!
//! A child dies with its parent: its standard input is a pipe whose other end only the parent holds. One that is frozen
//! cannot notice; it is in a process group of its own, which the system wakes and hangs up when its parent is gone.

use super::desk::Chances;
use crate::failure::Failure;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, ChildStdin, Command};
use windlass::core::time::Timestamp;

/// How often a worker may end by itself before the demo gives up.
const ENDS_MAX: u32 = 3;
/// How long a worker has to drain in the end; its own limit is shorter.
const STOP_TIME: Duration = Duration::from_secs(10);

/// What the workers' words end in.
const LOG: &str = "log";

/// What every worker is told.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    pub(super) url: String,
    pub(super) dir: PathBuf,
    /// Tells this run from others on the same store.
    pub(super) run: String,
    pub(super) slots: u32,
    pub(super) lease: Duration,
    pub(super) latency: Duration,
    pub(super) chances: Chances,
}

/// How a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Running,
    Frozen {
        until: Timestamp,
    },
    Killed {
        restart_at: Timestamp,
    },
    /// It has drained and gone.
    Left,
}

/// One worker, in all its lives.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) number: u32,
    /// The name of its present life: no two lives may share one.
    pub(super) name: String,
    pub(super) condition: Condition,
    pub(super) lives: u32,
    child: Child,
    /// Closed when it may go: waiting for a child would close it, and the child would take that for our end.
    leash: Option<ChildStdin>,
    /// How often it ended although nobody asked it to.
    ends: u32,
}

/// What happened to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Thawed(u32),
    Restarted(u32),
    /// And what it said last.
    EndedByItself(u32, String),
}

/// All of them.
#[derive(Debug)]
pub(super) struct Fleet {
    orders: Orders,
    pub(super) members: Vec<Member>,
    /// The names of those that were killed, which could not say that they leave.
    pub(super) killed: Vec<String>,
    pub(super) freezes: u64,
}

impl Fleet {
    pub(super) fn start(orders: Orders, workers: u32) -> Result<Self, Failure> {
        let mut members = Vec::new();
        for number in 1..=workers {
            let name = orders.name(number, 1);
            let (child, leash) = orders.start(&name)?;
            members.push(Member { number, name, condition: Condition::Running, lives: 1, child, leash, ends: 0 });
        }
        Ok(Self { orders, members, killed: Vec::new(), freezes: 0 })
    }

    /// The places of those that run.
    pub(super) fn running(&self) -> Vec<usize> {
        let runs = |at: &usize| self.members[*at].condition == Condition::Running;
        (0..self.members.len()).filter(runs).collect()
    }

    pub(super) fn kill(&mut self, at: usize, restart_at: Timestamp) {
        self.members[at].signal(Signal::KILL);
        self.members[at].condition = Condition::Killed { restart_at };
        self.killed.push(self.members[at].name.clone());
    }

    /// Stops it for a trial: it counts as frozen only when [`keep_frozen`](Self::keep_frozen) says so.
    pub(super) fn stop_for_a_trial(&mut self, at: usize) {
        self.members[at].signal(Signal::STOP);
    }

    pub(super) fn go_on(&mut self, at: usize) {
        self.members[at].signal(Signal::CONT);
    }

    pub(super) fn keep_frozen(&mut self, at: usize, until: Timestamp) {
        self.members[at].condition = Condition::Frozen { until };
        self.freezes += 1;
    }

    /// Thaws and restarts those whose time has come, and notices those that ended by themselves.
    pub(super) fn tend(&mut self, now: Timestamp) -> Result<Vec<Turn>, Failure> {
        let mut turns = Vec::new();
        for member in &mut self.members {
            match member.condition {
                Condition::Frozen { until } if now >= until => {
                    member.signal(Signal::CONT);
                    member.condition = Condition::Running;
                    turns.push(Turn::Thawed(member.number));
                }
                Condition::Killed { restart_at } if now >= restart_at => {
                    member.live_again(&self.orders)?;
                    turns.push(Turn::Restarted(member.number));
                }
                Condition::Running if member.child.try_wait()?.is_some() => {
                    let said = member.note_end(&self.orders)?;
                    member.condition = Condition::Killed { restart_at: now.plus_ms(500) };
                    turns.push(Turn::EndedByItself(member.number, said));
                }
                Condition::Running | Condition::Frozen { .. } | Condition::Killed { .. } | Condition::Left => {}
            }
        }
        Ok(turns)
    }

    /// Thaws all that are frozen, and starts all that are dead.
    pub(super) fn revive(&mut self) -> Result<Vec<Turn>, Failure> {
        self.tend(Timestamp::MAX)
    }

    /// Asks all to drain and go, and ends those that do not.
    pub(super) async fn stop(&mut self) -> Result<(), Failure> {
        for member in &mut self.members {
            member.signal(Signal::CONT);
            member.signal(Signal::TERM);
        }
        let all = async {
            for member in &mut self.members {
                member.child.wait().await?;
                member.leash = None;
                member.condition = Condition::Left;
            }
            Ok::<(), std::io::Error>(())
        };
        if let Ok(left) = tokio::time::timeout(STOP_TIME, all).await {
            return Ok(left?);
        }
        for member in &mut self.members {
            member.child.kill().await?;
        }
        Ok(())
    }
}

impl Member {
    /// Only to a child that has not been waited for: a number that is free again may be somebody else's.
    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended this very moment.
            let _ = kill_process(pid, signal);
        }
    }

    fn live_again(&mut self, orders: &Orders) -> Result<(), Failure> {
        self.lives += 1;
        self.name = orders.name(self.number, self.lives);
        // The one that is replaced is dead; whatever is left of it goes with its handle.
        (self.child, self.leash) = orders.start(&self.name)?;
        self.condition = Condition::Running;
        Ok(())
    }

    /// Counts it, and answers what it said last.
    fn note_end(&mut self, orders: &Orders) -> Result<String, Failure> {
        self.ends += 1;
        let said = last_line(&orders.log(&self.name)).unwrap_or_else(|| "it said nothing".to_owned());
        if self.ends < ENDS_MAX {
            return Ok(said);
        }
        Err(Failure::failed(format!("worker {} ended by itself {} times: {said}", self.number, self.ends))
            .hint("a worker must be able to open the store: see `windlass doctor`"))
    }
}

/// What was written last, by whichever worker.
pub(super) fn last_words(dir: &Path) -> Option<String> {
    let logs = std::fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == LOG));
    let mut said: Vec<_> = logs
        .filter_map(|path| Some((std::fs::metadata(&path).and_then(|about| about.modified()).ok()?, last_line(&path)?)))
        .collect();
    said.sort();
    said.pop().map(|(_, line)| line)
}

fn last_line(path: &Path) -> Option<String> {
    let text = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// This very program, also when its file was replaced meanwhile: a build beside a demo does that.
fn ourselves() -> std::io::Result<PathBuf> {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() { Ok(link) } else { std::env::current_exe() }
}

impl Orders {
    fn name(&self, number: u32, life: u32) -> String {
        format!("demo-{}-w{number}-{life}", self.run)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join(name).with_extension(LOG)
    }

    fn start(&self, name: &str) -> Result<(Child, Option<ChildStdin>), Failure> {
        let log = std::fs::File::create(self.log(name))?;
        let mut command = Command::new(ourselves()?);
        command.arg0("windlass");
        // Not among the arguments, which everybody on the machine can read: there may be a password in it.
        command.env("WINDLASS_STORE", &self.url);
        command.args(["demo-worker", "--name", name, "--dir"]).arg(&self.dir);
        for (flag, value) in [
            ("--slots", self.slots.to_string()),
            ("--lease-ms", self.lease.as_millis().to_string()),
            ("--latency-ms", self.latency.as_millis().to_string()),
            ("--fail-rate", self.chances.fail_rate.to_string()),
            ("--hang-rate", self.chances.hang_rate.to_string()),
            ("--seed", self.chances.seed.to_string()),
        ] {
            command.arg(flag).arg(value);
        }
        // Out of reach of the Ctrl-C that is meant for the parent.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn()?;
        let leash = child.stdin.take();
        Ok((child, leash))
    }
}

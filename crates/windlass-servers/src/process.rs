//! A child process that does not outlive us, whatever becomes of us.
//!
//! The kernel's own means (a signal on the parent's death) counts the thread that made the child as its parent: a server
//! that was started from a thread of a runtime would end with that thread. So a watchdog does it: a shell whose standard
//! input is a pipe that we hold open. When we are gone the read ends, and it kills the server and removes its folder. It is
//! in a process group of its own, so that what kills our group does not kill the watchdog first.
//!
//! The child's id stays ours until it was waited for, and the watchdog is ended before that; so neither can hit another
//! process that was given the same id.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::wait::{self, Deadline};

/// What the watchdog runs; its arguments are the id of the child and the child's folder.
const WATCH: &str = "read -r _; kill -9 \"$1\"; rm -rf \"$2\"";

/// A running child and its watchdog.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    watchdog: Child,
    is_paused: bool,
}

impl Process {
    /// Starts the command in a folder that is all its own.
    pub(crate) fn spawn(command: &mut Command, folder: &Path) -> io::Result<Self> {
        let mut child = command.current_dir(folder).stdin(Stdio::null()).spawn()?;
        match watch(child.id(), folder) {
            Ok(watchdog) => Ok(Self { child, watchdog, is_paused: false }),
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Stops it where it stands; returns once it does.
    pub(crate) fn pause(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        // Without NOWAIT a child that ended meanwhile would be gone for `ended`.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?;
        self.is_paused = true;
        Ok(())
    }

    pub(crate) fn resume(&mut self) -> io::Result<()> {
        self.signal(Signal::CONT)?;
        self.is_paused = false;
        Ok(())
    }

    /// Asks it to end and waits; says whether it did in time.
    pub(crate) fn terminate(&mut self, within: Duration) -> io::Result<bool> {
        if self.ended()?.is_some() {
            return Ok(true);
        }
        self.signal(Signal::TERM)?;
        // A process that is paused would not hear it; one that heard it may be gone by now.
        let _ = self.resume();
        let deadline = Deadline::after(within);
        while self.ended()?.is_none() {
            if deadline.is_over() {
                return Ok(false);
            }
            wait::pause();
        }
        Ok(true)
    }

    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        // Once it was waited for, its id may be somebody else's.
        if self.ended()?.is_some() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended"));
        }
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.watchdog);
        end(&mut self.child);
    }
}

fn watch(pid: u32, folder: &Path) -> io::Result<Child> {
    Command::new("sh")
        .args(["-c", WATCH, "watchdog", &pid.to_string()])
        .arg(folder)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Both fail only when there is nothing left to end.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

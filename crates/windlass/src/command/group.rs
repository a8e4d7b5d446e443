//! The process group of a step, which ends as a whole.
//!
//! Its leader is a watcher: a shell that waits on a pipe from the worker and, when the worker is gone, kills the group it is
//! in. So no command outlives a worker that is killed, and the group's number is not given to anybody else while the watcher
//! is there. (`PR_SET_PDEATHSIG` would do neither: it concerns the child alone, comes when a thread ends rather than the
//! process, is for Linux, and needs unsafe code.)

use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::process::Stdio;
use tokio::process::{Child, ChildStdin, Command};

/// It does not end by what the group is told before it is killed.
const WATCH: &str = "trap '' TERM INT HUP QUIT; read -r _; kill -s KILL 0";

/// Killed when it is dropped.
#[derive(Debug)]
pub(super) struct Group {
    id: Pid,
    /// Not waited for while the group is used: so its number stays taken.
    _watcher: Child,
    /// Closed when the worker ends, however it does.
    _worker_lives: Option<ChildStdin>,
}

impl Group {
    pub(super) fn start() -> io::Result<Self> {
        let mut watch = Command::new("/bin/sh");
        watch.args(["-c", WATCH, "windlass-watcher"]).env_clear().current_dir("/").process_group(0);
        let mut watcher = watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let raw = watcher.id().and_then(|id| i32::try_from(id).ok());
        let id = raw.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("the watcher has no process id"))?;
        let worker_lives = watcher.stdin.take();
        Ok(Self { id, _watcher: watcher, _worker_lives: worker_lives })
    }

    /// Puts a command that is to be started into the group.
    pub(super) fn take_in(&self, command: &mut Command) {
        command.process_group(self.id.as_raw_nonzero().get());
    }

    /// Asks all of it to end.
    pub(super) fn terminate(&self) {
        self.tell(Signal::TERM);
    }

    /// Ends all of it.
    pub(super) fn kill(&self) {
        self.tell(Signal::KILL);
    }

    fn tell(&self, signal: Signal) {
        if let Err(error) = kill_process_group(self.id, signal) {
            tracing::debug!(group = %self.id.as_raw_nonzero(), %error, "a process group could not be told");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

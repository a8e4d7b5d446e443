//! One step: a process and all that it starts, from its begin to its end.

use super::Commands;
use super::environment::Environment;
use super::error::CommandError;
use super::group::Group;
use super::mask::Mask;
use super::output::Output;
use super::shell::limiter;
use crate::context::Ctx;
use crate::worker::Stop;
use futures::FutureExt;
use futures::future::FusedFuture;
use rustix::io::Errno;
use rustix::process::Signal;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::watch;

/// How long commands have when the worker goes, or somebody else may have the job. The worker waits a little longer.
const LEAVING: Duration = Duration::from_millis(500);
/// How long what was killed may take to be gone, and its last lines to be stored.
const GONE: Duration = Duration::from_millis(200);

/// What is run.
pub(super) struct Step {
    pub(super) title: String,
    pub(super) line: Vec<OsString>,
    pub(super) folder: PathBuf,
    pub(super) environment: Environment,
}

/// What it runs in.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) commands: &'a Commands,
    pub(super) mask: &'a Mask,
    pub(super) ctx: &'a Ctx,
}

/// Why a step is ended before it ends itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// The job was cancelled, its lease is lost, or the worker goes.
    Told,
    /// Its time is over.
    TimedOut { limit_ms: u64 },
}

impl Step {
    /// Runs it until it ends, or `halt` says that it has to.
    pub(super) async fn run(
        self,
        around: Around<'_>,
        halt: Pin<&mut impl Future<Output = Halt>>,
    ) -> Result<(), CommandError> {
        let Around { commands, mask, ctx } = around;
        let failed = |error: io::Error| match Errno::from_io_error(&error) {
            Some(Errno::TOOBIG) => CommandError::TooMuchEnvironment(self.title.clone()),
            _ => CommandError::Start { step: self.title.clone(), error },
        };
        let group = Group::start().map_err(failed)?;
        let mut child = self.spawn(commands, &group).map_err(failed)?;
        let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed(io::Error::other("it has no pipes")));
        };
        let mut output = Output::new(ctx, mask, commands.error_lines);
        let (ended, endings) = watch::channel(false);
        let end = {
            let mut reading = pin!(output.read(out, err, endings).fuse());
            let running = async {
                let exited = async {
                    let status = child.wait().await;
                    // What it has left running, and would hold the pipes open.
                    group.kill();
                    ended.send_replace(true);
                    status
                };
                tokio::join!(exited, &mut reading).0
            };
            let end = tokio::select! {
                biased;
                // First: a command that says a lot would not let it have its turn.
                why = halt => Err(why),
                status = running => Ok(status),
            };
            if end.is_err() {
                finish(around, &group, &mut child, reading, &ended).await;
            }
            end
        };
        let tail = output.last_lines();
        let step = self.title;
        match end {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(CommandError::Failed { step, end: words_of(status), tail }),
            Ok(Err(error)) => Err(CommandError::Start { step, error }),
            Err(Halt::Told) => Err(CommandError::Stopped),
            Err(Halt::TimedOut { limit_ms }) => {
                Err(CommandError::TimedOut { place: format!("step `{step}`"), limit_ms, tail })
            }
        }
    }

    fn spawn(&self, commands: &Commands, group: &Group) -> io::Result<Child> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(limiter(&commands.limits)).arg("windlass").args(&self.line);
        command.env_clear().envs(&self.environment).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        group.take_in(&mut command);
        command.spawn()
    }
}

/// Ends it: with its grace, and then without. What it says on its way is still read.
async fn finish(
    around: Around<'_>,
    group: &Group,
    child: &mut Child,
    mut reading: Pin<&mut impl FusedFuture<Output = ()>>,
    ended: &watch::Sender<bool>,
) {
    let Around { commands, ctx, .. } = around;
    group.terminate();
    let hurry = async {
        ctx.active.stopped_for(Stop::Leaving).await;
        tokio::time::sleep(LEAVING).await;
    };
    tokio::select! {
        () = gone(child, reading.as_mut()) => {}
        () = tokio::time::sleep(commands.grace) => {}
        () = hurry => {}
    }
    group.kill();
    ended.send_replace(true);
    // Its last lines may wait for a store that is away.
    let _ = tokio::time::timeout(GONE, gone(child, reading)).await;
}

/// Returns when its shell has ended and nobody holds its pipes.
async fn gone(child: &mut Child, mut reading: Pin<&mut impl FusedFuture<Output = ()>>) {
    // Its status does not matter any more.
    let _ = child.wait().await;
    if !reading.is_terminated() {
        reading.as_mut().await;
    }
}

fn words_of(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed with exit code {code}"),
        (None, Some(signal)) => {
            let known = [
                (Signal::HUP, "SIGHUP"),
                (Signal::INT, "SIGINT"),
                (Signal::QUIT, "SIGQUIT"),
                (Signal::ILL, "SIGILL"),
                (Signal::ABORT, "SIGABRT"),
                (Signal::BUS, "SIGBUS"),
                (Signal::FPE, "SIGFPE"),
                (Signal::KILL, "SIGKILL"),
                (Signal::SEGV, "SIGSEGV"),
                (Signal::PIPE, "SIGPIPE"),
                (Signal::TERM, "SIGTERM"),
                (Signal::XCPU, "SIGXCPU: its processor time is over"),
                (Signal::XFSZ, "SIGXFSZ: a file became too large"),
            ];
            let name = known.iter().find(|(known, _)| known.as_raw() == signal).map(|(_, name)| format!(" ({name})"));
            format!("was ended by signal {signal}{}", name.unwrap_or_default())
        }
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

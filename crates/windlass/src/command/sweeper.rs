//! Who removes the folder of a job when its worker is killed: a shell that waits on a pipe from the worker, in a process group
//! of its own, so that nothing that is said to the worker or to the job's commands ends it. (The watcher of `group.rs` cannot:
//! it ends with the group that it kills, and as long as that lives, files are written.)

use super::environment;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Commands that have not ended yet may write into it once more, and some take the right to write from their folders.
const SWEEP: &str = "trap '' TERM INT HUP QUIT; read -r _; \
    for _ in 1 2 3 4 5; do rm -rf -- \"$1\" && break; chmod -R u+rwX -- \"$1\"; sleep 1; done";

/// Ended when it is dropped: whoever does that has removed the folder.
#[derive(Debug)]
pub(super) struct Sweeper {
    /// Its standard input closes when the worker ends, however it does.
    shell: Child,
}

impl Sweeper {
    /// For a folder that was made for the job: nothing of it is anybody else's.
    pub(super) fn start(folder: &Path) -> io::Result<Self> {
        let mut sweep = Command::new("/bin/sh");
        sweep.args(["-c", SWEEP, "windlass-sweeper"]).arg(folder).env_clear().env("PATH", environment::PATH);
        sweep.current_dir("/").process_group(0);
        let shell = sweep.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { shell })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // One that has ended already is waited for all the same.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

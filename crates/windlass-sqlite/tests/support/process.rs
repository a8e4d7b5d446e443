//! Second processes: the test program starts itself again in another part.

use libtest_mimic::{Arguments, Trial};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

const ROLE: &str = "WINDLASS_TEST_ROLE";
const DATABASE: &str = "WINDLASS_TEST_PATH";

/// A test and its name.
pub(crate) type Test = (&'static str, fn());

/// Lists tests under the names of their functions.
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as fn())),*] };
}
pub(crate) use tests;

/// The whole of a test program that starts itself again: its tests, and the part of the other process.
pub(crate) fn main(tests: &[Test], child: fn(&str, &Path)) -> ExitCode {
    if let (Ok(role), Ok(path)) = (std::env::var(ROLE), std::env::var(DATABASE)) {
        child(&role, Path::new(&path));
        return ExitCode::SUCCESS;
    }
    let run = |test: fn()| {
        move || {
            test();
            Ok(())
        }
    };
    let trials = tests.iter().map(|(name, test)| Trial::test(*name, run(*test))).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Another process, which is told lines and says lines.
pub(crate) struct Other {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Other {
    /// A command that plays `role` on the database at `path`.
    pub(crate) fn command(role: &str, path: &Path) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self::play(&mut command, role, path);
        command
    }

    /// Makes any command that runs this program play `role`.
    pub(crate) fn play(command: &mut Command, role: &str, path: &Path) {
        command.env(ROLE, role).env(DATABASE, path);
    }

    pub(crate) fn start(role: &str, path: &Path) -> Self {
        Self::spawn(&mut Self::command(role, path))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// The next line that it says; empty when it has ended.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Everything that it still says, once it has ended well.
    pub(crate) fn end(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let lines = self.said.by_ref().lines().map(Result::unwrap).collect();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the other process ended with {status}");
        lines
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // Both fail when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

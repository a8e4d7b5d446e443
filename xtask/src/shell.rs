//! Running other programs: where the project is, which cargo to call, and how to read what it prints.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

/// The folder of the workspace. Read at run time, because a binary may outlive a move of its folder.
pub(crate) fn root() -> PathBuf {
    let own =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().map_or(own.clone(), PathBuf::from)
}

/// A program that runs in the workspace's folder.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    // What `cargo run` set for us is about this crate. Handed down, it would look like a changed environment to
    // build scripts, and half the graph would be built again.
    for (key, _) in std::env::vars_os() {
        let key = key.to_string_lossy().into_owned();
        if key.starts_with("CARGO_PKG_") || key.starts_with("CARGO_MANIFEST_") {
            command.env_remove(key);
        }
    }
    command
}

/// The cargo that runs us, with these arguments.
pub(crate) fn cargo<S: AsRef<str>>(args: &[S]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = program(&cargo);
    command.args(args.iter().map(AsRef::as_ref));
    command
}

/// Whether the command can be started and ends well; says nothing.
pub(crate) fn succeeds(mut command: Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs the command with our own output; says so when it cannot be started.
pub(crate) fn inherit(mut command: Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("error: cannot start {}: {error}", command.get_program().display());
            false
        }
    }
}

/// Runs the command, passing on what it prints as it comes, and returns all of it for reading.
pub(crate) fn tee(mut command: Command) -> std::io::Result<(ExitStatus, Vec<String>)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    // Two readers, or a child that fills one pipe while we read the other would wait for ever.
    let (mut lines, errors) = thread::scope(|scope| {
        let errors = scope.spawn(|| copy(stderr, std::io::stderr()));
        let lines = copy(stdout, std::io::stdout());
        (lines, errors.join().unwrap_or_default())
    });
    lines.extend(errors);
    Ok((child.wait()?, lines))
}

fn copy(source: Option<impl Read>, mut to: impl Write) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(source) = source else { return lines };
    let mut source = BufReader::new(source);
    let mut buffer = Vec::new();
    // A test may print anything; bytes that are not text must not end the reading.
    while matches!(source.read_until(b'\n', &mut buffer), Ok(read) if read > 0) {
        // Our own output may be gone (a closed pager); the child still has to be read to its end.
        let _ = to.write_all(&buffer).and_then(|()| to.flush());
        lines.push(String::from_utf8_lossy(&buffer).trim_end().to_owned());
        buffer.clear();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{copy, root};

    #[test]
    fn the_root_holds_the_workspace_manifest() {
        let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn bytes_that_are_not_text_are_passed_on_and_do_not_end_the_reading() {
        let source: &[u8] = b"one\n\xff\xfe\nthree";
        let mut passed_on = Vec::new();
        let lines = copy(Some(source), &mut passed_on);
        assert_eq!(passed_on, source);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2], "three");
    }
}

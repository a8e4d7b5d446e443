//! Runs every example: each must end by itself, well, and within the time limit.
//!
//! Found by cargo's conventions, without asking cargo: `examples/*.rs` and `examples/*/main.rs` of each crate, and of
//! the workspace member `examples/` also its binaries `src/bin/*.rs`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::shell::{cargo, inherit, program, root};
use crate::tally::Tally;

const LIMIT: Duration = Duration::from_secs(60);
/// Examples that would take longer than that without arguments. The whole suite on `own_store` is a test target.
const ARGUMENTS: [(&str, &[&str]); 1] = [("own_store", &["lifecycle::"])];
const POLL: Duration = Duration::from_millis(20);

/// One example: its package, and what cargo calls it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Example {
    package: String,
    /// `--example` or `--bin`.
    target: &'static str,
    name: String,
}

/// Builds all examples, then runs them one after another; each counts as one test.
pub(crate) fn run_all() -> Tally {
    let examples = find(&root());
    if examples.is_empty() {
        println!("no examples yet");
        return Tally::default();
    }
    let mut tally = Tally::default();
    for example in &examples {
        let Example { package, target, name } = example;
        let arguments = ["--quiet", "--package", package, target, name];
        // Built first, so that the limit is for the example alone.
        let mut build = cargo(&["build"]);
        build.args(arguments);
        let mut run = cargo(&["run"]);
        run.args(arguments);
        if let Some((_, arguments)) = ARGUMENTS.iter().find(|(known, _)| known == name) {
            run.arg("--").args(*arguments);
        }
        println!("-- {package} {target} {name}");
        let ok = inherit(build) && within(LIMIT, run).is_ok_and(|status| accept(name, status));
        tally.add(Tally::step(ok));
    }
    tally
}

fn accept(name: &str, status: Option<ExitStatus>) -> bool {
    match status {
        Some(status) if status.success() => true,
        Some(status) => {
            eprintln!("error: example {name} ended with {status}");
            false
        }
        None => {
            eprintln!("error: example {name} did not end within {} s", LIMIT.as_secs());
            false
        }
    }
}

/// The status of the command, or `None` when it had to be killed at the limit.
#[expect(clippy::disallowed_methods, reason = "a real process on the real clock; std can only poll for its end")]
fn within(limit: Duration, mut command: Command) -> std::io::Result<Option<ExitStatus>> {
    // A group of its own, so that what the example started ends with it.
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn()?;
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(POLL);
    }
    kill_group(&mut child)?;
    Ok(None)
}

fn kill_group(child: &mut Child) -> std::io::Result<()> {
    let mut kill = program("kill");
    kill.args(["-KILL", "--", &format!("-{}", child.id())]);
    inherit(kill);
    child.kill()?;
    child.wait().map(drop)
}

fn find(root: &Path) -> Vec<Example> {
    let mut examples = Vec::new();
    for member in entries(&root.join("crates")) {
        collect(&member, &member.join("examples"), "--example", &mut examples);
    }
    let member = root.join("examples");
    collect(&member, &member, "--example", &mut examples);
    collect(&member, &member.join("examples"), "--example", &mut examples);
    collect(&member, &member.join("src/bin"), "--bin", &mut examples);
    examples.sort();
    examples
}

fn collect(member: &Path, folder: &Path, target: &'static str, into: &mut Vec<Example>) {
    let Some(package) = package_name(&member.join("Cargo.toml")) else {
        return;
    };
    for entry in entries(folder) {
        let is_source = entry.extension().is_some_and(|extension| extension == "rs");
        if is_source || entry.join("main.rs").is_file() {
            let name = entry.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            into.push(Example { package: package.clone(), target, name });
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default()
}

fn package_name(manifest: &Path) -> Option<String> {
    let text = fs::read_to_string(manifest).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("name = \""))?;
    Some(name.trim_end().trim_end_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Example, accept, find, within};
    use std::fs;
    use std::process::Command;
    use std::time::Duration;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failing_example_and_one_that_never_ends_are_refused() {
        let limit = Duration::from_secs(20);
        assert!(accept("good", within(limit, shell("exit 0")).unwrap()));
        assert!(!accept("bad", within(limit, shell("exit 3")).unwrap()));
        let short = Duration::from_millis(50);
        assert!(!accept("endless", within(short, shell("while :; do :; done")).unwrap()));
    }

    #[test]
    fn examples_are_found_by_convention() {
        let root = std::env::temp_dir().join(format!("xtask-examples-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("crates/a/Cargo.toml", "[package]\nname = \"package-a\"\n");
        write("crates/a/examples/one.rs", "");
        write("crates/a/examples/two/main.rs", "");
        write("crates/a/examples/data.json", "");
        write("crates/b/notes.txt", "");
        write("examples/Cargo.toml", "[package]\nname = \"examples\"\n");
        write("examples/src/bin/three.rs", "");
        let found = find(&root);
        fs::remove_dir_all(&root).unwrap();
        let example =
            |package: &str, target, name: &str| Example { package: package.to_owned(), target, name: name.to_owned() };
        let expected = [
            example("examples", "--bin", "three"),
            example("package-a", "--example", "one"),
            example("package-a", "--example", "two"),
        ];
        assert_eq!(found, expected);
    }
}

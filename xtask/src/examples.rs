//! Runs every example: each must end by itself, and with success.
//!
//! Found by cargo's conventions, without asking cargo: `examples/*.rs` and `examples/*/main.rs` of each crate, and of
//! the workspace member `examples/` also its binaries `src/bin/*.rs`.
//!
//! # Limits
//!
//! How long an example takes depends on the load of the machine; how much it computes does not. So the limit is on the
//! processor time of the example and its children ([`Limits::work`]). It ends an example that computes for ever.
//! [`Limits::hang_guard`] ends one that waits for ever: it is in real time, and so long that load does not matter.
//!
//! The limits are for the example alone. Cargo builds it first and names the executable, which is then started without
//! cargo: `cargo run` waits for the lock of the build folder, for as long as any other cargo holds it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::shell::{cargo, inherit, program, root};
use crate::tally::Tally;

/// What an example may use.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Processor time of the example and its children.
    work: Duration,
    /// Real time, for an example that never ends.
    hang_guard: Duration,
}

const LIMITS: Limits = Limits { work: Duration::from_secs(60), hang_guard: Duration::from_secs(30 * 60) };
/// Examples that would compute for longer than that without arguments. The whole suite on `own_store` is a test target.
const ARGUMENTS: [(&str, &[&str]); 1] = [("own_store", &["lifecycle::"])];
const POLL: Duration = Duration::from_millis(20);
/// Polls between two looks at the processor time.
const LOOK_EVERY: u32 = 10;
/// The unit of times in `/proc`, which Linux has fixed for programs on every machine that we support.
const TICKS_PER_S: u64 = 100;

/// One example: its package, and what cargo calls it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Example {
    package: String,
    /// `--example` or `--bin`.
    target: &'static str,
    name: String,
}

/// How an example ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    ByItself(ExitStatus),
    /// Killed: it used more processor time than it may.
    TooMuchWork,
    /// Killed at the hang guard.
    Hung,
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
        println!("-- {} {} {}", example.package, example.target, example.name);
        let ok = build(example).is_some_and(|executable| {
            let mut run = program(&executable);
            if let Some((_, arguments)) = ARGUMENTS.iter().find(|(known, _)| *known == example.name) {
                run.args(*arguments);
            }
            within(LIMITS, run).is_ok_and(|ended| accept(&example.name, &ended))
        });
        tally.add(Tally::step(ok));
    }
    tally
}

/// Builds the executables of all examples: some tests start them as processes.
pub(crate) fn build_all() -> bool {
    cargo(&["build", "--quiet", "--workspace", "--examples"]).status().is_ok_and(|status| status.success())
}

/// Builds an example and returns the path of its executable. For the whole workspace, as the tests are built: features of its
/// package alone would build most dependencies once more.
fn build(example: &Example) -> Option<String> {
    let Example { target, name, .. } = example;
    let mut build = cargo(&["build", "--quiet", "--message-format=json-render-diagnostics", "--workspace"]);
    build.args([target, name.as_str()]).stderr(Stdio::inherit());
    let output = build.output().ok()?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages.lines().rev().find_map(executable_of);
    if executable.is_none() {
        eprintln!("error: example {name} was not built");
    }
    executable.filter(|_| output.status.success())
}

/// The path that a message of cargo names as an executable, if it does. The last such message is about the target that
/// was asked for.
fn executable_of(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("\"executable\":\"")?;
    let mut path = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(path),
            // A path has no control characters worth supporting: what is left are quotes and backslashes.
            '\\' => path.push(chars.next()?),
            other => path.push(other),
        }
    }
}

fn accept(name: &str, ended: &Ended) -> bool {
    let wrong = match ended {
        Ended::ByItself(status) if status.success() => return true,
        Ended::ByItself(status) => format!("ended with {status}"),
        Ended::TooMuchWork => {
            format!("used more than {} s of processor time; give it less to do", LIMITS.work.as_secs())
        }
        Ended::Hung => format!("did not end within {} s: it hangs", LIMITS.hang_guard.as_secs()),
    };
    eprintln!("error: example {name} {wrong}");
    false
}

/// Runs the command until it ends or reaches a limit.
#[expect(clippy::disallowed_methods, reason = "a real process on the real clock; std can only poll for its end")]
fn within(limits: Limits, mut command: Command) -> std::io::Result<Ended> {
    // A group of its own, so that what the example started ends with it.
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn()?;
    let start = Instant::now();
    for poll in 0u32.. {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::ByItself(status));
        }
        if start.elapsed() >= limits.hang_guard {
            break;
        }
        if poll % LOOK_EVERY == 0 && work_of(child.id()) > limits.work {
            kill_group(&mut child)?;
            return Ok(Ended::TooMuchWork);
        }
        thread::sleep(POLL);
    }
    kill_group(&mut child)?;
    Ok(Ended::Hung)
}

/// The processor time of all processes of a group, and of their children that have ended. Zero where there is no
/// `/proc`: then the hang guard alone ends an example.
fn work_of(group: u32) -> Duration {
    let stats = entries(Path::new("/proc")).into_iter().filter_map(|entry| fs::read_to_string(entry.join("stat")).ok());
    let ticks = stats.filter_map(|stat| ticks_of(&stat, group)).sum::<u64>();
    Duration::from_millis(ticks.saturating_mul(1_000 / TICKS_PER_S))
}

/// The ticks in a line of `/proc/PID/stat`, if the process is of the group.
fn ticks_of(stat: &str, group: u32) -> Option<u64> {
    // The name of the program stands in parentheses and may hold anything; behind it come the fields from the third on.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let (utime, stime, cutime, cstime) = (number(14)?, number(15)?, number(16)?, number(17)?);
    (number(5)? == u64::from(group)).then_some(utime + stime + cutime + cstime)
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
    use super::{Ended, Example, LIMITS, Limits, accept, executable_of, find, ticks_of, within};
    use std::fs;
    use std::process::Command;
    use std::time::Duration;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn only_an_example_that_succeeds_is_accepted() {
        let accepted = |script| accept("example", &within(LIMITS, shell(script)).unwrap());
        assert!(accepted("exit 0"));
        assert!(!accepted("exit 3"));
        assert!(!accept("example", &Ended::TooMuchWork));
        assert!(!accept("example", &Ended::Hung));
    }

    #[test]
    fn an_example_that_computes_for_ever_is_ended_by_its_work() {
        let limits = Limits { work: Duration::from_millis(50), ..LIMITS };
        for script in ["while :; do :; done", "(while :; do :; done) & wait"] {
            assert_eq!(within(limits, shell(script)).unwrap(), Ended::TooMuchWork, "{script}");
        }
    }

    /// What load does to an example: it takes longer, and works as much as ever.
    #[test]
    fn an_example_that_is_slow_without_working_is_not_ended() {
        let limits = Limits { work: Duration::from_millis(500), ..LIMITS };
        let ended = within(limits, shell("sleep 0.7")).unwrap();
        assert!(matches!(ended, Ended::ByItself(status) if status.success()), "{ended:?}");
    }

    #[test]
    fn an_example_that_waits_for_ever_is_ended_by_the_hang_guard() {
        let limits = Limits { hang_guard: Duration::from_millis(50), ..LIMITS };
        assert_eq!(within(limits, shell("sleep 1000")).unwrap(), Ended::Hung);
    }

    #[test]
    fn the_ticks_of_a_group_are_read_behind_any_name() {
        let stat = "7 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 1 20 300 4000 20 0 1 0 99 0 0";
        assert_eq!(ticks_of(stat, 42), Some(4_321));
        assert_eq!(ticks_of(stat, 7), None);
        assert_eq!(ticks_of("7 (cut) S 1 42", 42), None);
    }

    #[test]
    fn the_executable_is_read_from_what_cargo_says() {
        let message = r#"{"reason":"compiler-artifact","executable":"/a \"b\"/own_store","fresh":true}"#;
        assert_eq!(executable_of(message).as_deref(), Some("/a \"b\"/own_store"));
        assert_eq!(executable_of(r#"{"reason":"compiler-artifact","executable":null}"#), None);
    }

    #[test]
    fn examples_are_found_by_convention() {
        let root = std::env::temp_dir().join(format!("xtask-examples-{}", std::process::id()));
        // A killed run may have left files under the same process id.
        let _ = fs::remove_dir_all(&root);
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

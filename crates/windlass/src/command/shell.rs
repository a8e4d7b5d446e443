//! What runs a script, and under which limits.

use super::Limits;
use super::environment::Environment;
use super::error::CommandError;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The path of the script, where it does not come last.
const SCRIPT: &str = "{0}";

/// The program and its arguments, the script's file among them.
pub(super) fn command_line(
    shell: &str,
    script: &Path,
    folder: &Path,
    environment: &Environment,
) -> Result<Vec<OsString>, CommandError> {
    let words: Vec<&str> = match shell.trim() {
        // Whatever PATH says.
        "sh" => vec!["/bin/sh", "-e"],
        "bash" => vec!["bash", "--noprofile", "--norc", "-eo", "pipefail"],
        other => other.split_whitespace().collect(),
    };
    let is_there = |program: &&str| is_program(program, folder, environment.get("PATH").map(OsString::as_os_str));
    if !words.first().is_some_and(is_there) {
        return Err(CommandError::Shell(shell.escape_debug().to_string()));
    }
    let named = words.contains(&SCRIPT);
    let word = |word: &str| if word == SCRIPT { script.as_os_str().to_owned() } else { OsString::from(word) };
    let mut line: Vec<OsString> = words.into_iter().map(word).collect();
    if !named {
        line.push(script.as_os_str().to_owned());
    }
    Ok(line)
}

fn is_program(name: &str, folder: &Path, path: Option<&OsStr>) -> bool {
    let runs =
        |path: &Path| path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    if name.contains('/') {
        return runs(&folder.join(name));
    }
    std::env::split_paths(path.unwrap_or_default()).any(|place| runs(&folder.join(place).join(name)))
}

/// A script for `sh` that sets the limits and becomes the command that it is given.
///
/// A process cannot be limited from outside before it has begun, except by code that runs between fork and exec, which is
/// unsafe; a shell in between is not, and needs no more than an exec.
pub(super) fn limiter(limits: &Limits) -> String {
    let Limits { cpu_seconds, address_space, file_size, open_files, processes } = *limits;
    let asked = [
        ("cpu_seconds", cpu_seconds, 1, "-t"),
        ("address_space", address_space, 1_024, "-v"),
        ("file_size", file_size, 512, "-f"),
        ("open_files", open_files, 1, "-n"),
    ];
    let mut script = "ulimit -c 0\n".to_owned();
    let mut limit = |name: &str, set: String| {
        let refused = format!("echo 'windlass: the limit {name} cannot be set; is it more than the worker has?' >&2");
        // A String takes whatever is written.
        let _ = writeln!(script, "{{ {set}; }} 2>/dev/null || {{ {refused}; exit 126; }}");
    };
    for (name, value, unit, option) in asked {
        if let Some(value) = value {
            limit(name, format!("ulimit {option} {}", value.div_ceil(unit)));
        }
    }
    if let Some(value) = processes {
        // Shells do not agree on its letter.
        limit("processes", format!("ulimit -u {value} || ulimit -p {value}"));
    }
    script.push_str("exec \"$@\"\n");
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(shell: &str) -> Result<String, String> {
        let environment = Environment::from([("PATH".to_owned(), OsString::from("/usr/local/bin:/usr/bin:/bin"))]);
        let line = command_line(shell, Path::new("/x y/step-1"), Path::new("/"), &environment);
        let words = line.map_err(|error| error.to_string())?;
        Ok(words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn a_shell_is_a_name_or_a_command_line_that_takes_a_file() {
        assert_eq!(line("sh").unwrap(), "/bin/sh|-e|/x y/step-1");
        assert_eq!(line("bash").unwrap(), "bash|--noprofile|--norc|-eo|pipefail|/x y/step-1");
        assert_eq!(line("env -i sh {0} now").unwrap(), "env|-i|sh|/x y/step-1|now");
        assert_eq!(line("/bin/sh -x").unwrap(), "/bin/sh|-x|/x y/step-1");
        for unknown in ["zsch", "", "/bin/none"] {
            assert!(line(unknown).unwrap_err().contains(&format!("there is no shell `{unknown}`")));
        }
    }
}

//! What the steps need on the machine: found, installed, or asked for in plain words.

use std::process::{Command, Stdio};

use crate::shell::{cargo, inherit, program, succeeds};

/// A program, or what one needs, that comes from the distribution.
struct Packaged {
    name: &'static str,
    /// How to see that it is there.
    probe: &'static [&'static str],
    /// Debian's names of the packages that bring it.
    packages: &'static [&'static str],
    why: &'static str,
    /// A variable that names another copy of it, which is then not ours to look for.
    instead: Option<&'static str>,
}

/// Private servers for the tests of further stores join this table with those stores. A service that comes with such a
/// package is not used: tests start their own servers.
const PACKAGED: [Packaged; 5] = [
    Packaged {
        name: "cc",
        probe: &["cc", "--version"],
        packages: &["gcc", "libc6-dev"],
        why: "SQLite is compiled from its bundled C source",
        instead: None,
    },
    Packaged {
        name: "redis-server",
        probe: &["redis-server", "--version"],
        packages: &["redis-server", "redis-tools"],
        why: "the tests of the Redis store start private servers",
        instead: Some("WINDLASS_TEST_REDIS_BIN"),
    },
    Packaged {
        name: "openssl",
        probe: &["openssl", "version"],
        packages: &["openssl"],
        why: "the tests of the Redis store make certificates for it",
        instead: None,
    },
    Packaged {
        name: "the definitions of locales",
        // What compiles them comes with the C library.
        probe: &["test", "-e", "/usr/share/i18n/locales/cs_CZ"],
        packages: &["locales"],
        why: "the tests of the Redis store start servers under other locales",
        instead: None,
    },
    Packaged {
        name: "faketime",
        probe: &["faketime", "--version"],
        packages: &["faketime"],
        why: "a crash test gives workers a wrong clock",
        instead: None,
    },
];

/// Parts of the toolchain that rustup can leave out.
const COMPONENTS: [(&str, &str); 2] = [("fmt", "rustfmt"), ("clippy", "clippy")];

/// Makes sure of everything but nextest, without which the tests can still run.
pub(crate) fn prepare() -> bool {
    let mut ok = prepare_packaged();
    for (subcommand, component) in COMPONENTS {
        if !succeeds(cargo(&[subcommand, "--version"])) {
            eprintln!("error: {component} is missing; run `rustup component add {component}`");
            ok = false;
        }
    }
    ok
}

/// Makes sure of what comes from the distribution; quick when it is there.
pub(crate) fn prepare_packaged() -> bool {
    let mut ok = true;
    for packaged in &PACKAGED {
        // All of them, so that one run names all that is missing.
        ok &= ensure_packaged(packaged);
    }
    ok
}

fn ensure_packaged(packaged: &Packaged) -> bool {
    if found(packaged) {
        return true;
    }
    let names = packaged.packages.join(" ");
    println!("{} is missing ({})", packaged.name, packaged.why);
    if !is_root() || !succeeds(of_words(&["apt-get", "--version"])) {
        eprintln!("error: install it with `sudo apt-get install -y {names}`, or what your system calls these packages");
        return false;
    }
    // A fresh image has no package lists.
    let mut install = of_words(&["apt-get", "install", "-y", "--no-install-recommends"]);
    install.args(packaged.packages).env("DEBIAN_FRONTEND", "noninteractive");
    let installed = inherit(of_words(&["apt-get", "update"])) && inherit(install) && found(packaged);
    if !installed {
        eprintln!("error: `apt-get install -y {names}` did not bring {}", packaged.name);
    }
    installed
}

fn found(packaged: &Packaged) -> bool {
    let is_elsewhere = packaged.instead.and_then(std::env::var_os).is_some_and(|place| !place.is_empty());
    is_elsewhere || succeeds(of_words(packaged.probe))
}

fn of_words(words: &[&str]) -> Command {
    let mut command = program(words[0]);
    command.args(&words[1..]);
    command
}

fn is_root() -> bool {
    let id = of_words(&["id", "-u"]).stdin(Stdio::null()).output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Whether `cargo nextest` is there.
pub(crate) fn has_nextest() -> bool {
    succeeds(cargo(&["nextest", "--version"]))
}

/// Installs a cargo subcommand unless it is there. A failure is the caller's to judge.
pub(crate) fn ensure_subcommand(subcommand: &str) -> bool {
    if succeeds(cargo(&[subcommand, "--version"])) {
        return true;
    }
    let package = format!("cargo-{subcommand}");
    println!("{package} is missing: installing it, which takes some minutes once");
    let mut install = cargo(&["install", package.as_str(), "--locked"]);
    // In a folder of its own: the workspace's profiles and target folder are not meant for it.
    install.current_dir(std::env::temp_dir()).env_remove("CARGO_TARGET_DIR");
    inherit(install) && succeeds(cargo(&[subcommand, "--version"]))
}

#[cfg(test)]
mod tests {
    use super::{Packaged, found};

    fn probe(probe: &'static [&'static str]) -> Packaged {
        Packaged { name: "a program", probe, packages: &["none"], why: "a test", instead: None }
    }

    #[test]
    fn a_probe_tells_what_is_there_from_what_is_not() {
        assert!(found(&probe(&["true"])));
        assert!(!found(&probe(&["false"])));
        assert!(!found(&probe(&["windlass-no-such-program", "--version"])));
    }

    #[test]
    fn a_variable_that_names_another_copy_counts_when_it_is_set() {
        let missing = probe(&["windlass-no-such-program", "--version"]);
        assert!(!found(&Packaged { instead: Some("WINDLASS_NO_SUCH_VARIABLE"), ..missing }));
        assert!(found(&Packaged { instead: Some("PATH"), ..missing }));
    }
}

//! Help texts, completions and manual pages.
//!
//! The help of every command is a golden file in `tests/help`. When a text was changed on purpose, write the files anew
//! and read the difference before it is committed:
//!
//! ```sh
//! WINDLASS_UPDATE_HELP=1 cargo test -p windlass-cli --test help && git diff crates/windlass-cli/tests/help
//! ```

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use support::Scene;

/// All commands, as the manual pages name them: `jobs list` and so on; the first is the binary itself.
fn commands(scene: &Scene) -> Vec<Vec<String>> {
    scene.run(&["man", "--dir", "man"]).ok().shows(&["pages in man"]);
    let pages = std::fs::read_dir(scene.path("man")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = pages.map(|name| name.to_str().unwrap().trim_end_matches(".1").to_owned()).collect();
    names.sort();
    assert!(names.len() > 30, "{names:?}");
    names.iter().map(|name| name.split('-').skip(1).map(str::to_owned).collect()).collect()
}

#[test]
fn every_help_text_is_as_it_was_agreed_on() {
    let scene = Scene::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let update = std::env::var_os("WINDLASS_UPDATE_HELP").is_some();
    let mut known = BTreeSet::new();
    for command in commands(&scene) {
        let name =
            format!("{}.txt", ["windlass".to_owned()].iter().chain(&command).cloned().collect::<Vec<_>>().join("-"));
        let args: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        // What wraps leaves blanks at the ends of lines.
        let text: String = scene.run(&args).ok().out.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        if update {
            std::fs::write(folder.join(&name), &text).unwrap();
        }
        let golden = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert_eq!(text, golden, "{name}: see the head of this test");
        assert!(
            command.is_empty() || text.contains("Examples:") || text.contains("Commands:"),
            "{name} has no examples"
        );
        known.insert(name);
    }
    let stored = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(stored.collect::<BTreeSet<_>>(), known, "a golden file of no command");
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let scene = Scene::new();
    let all = commands(&scene);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = scene.run(&["completions", shell]).ok().out;
        for name in all.iter().flatten() {
            assert!(text.contains(name.as_str()), "{shell}: {name}");
        }
    }
    let root = scene.run(&["man"]).ok().out;
    for command in &all {
        let name = command.iter().fold("windlass".to_owned(), |name, part| format!("{name}-{part}"));
        let page = std::fs::read_to_string(scene.path(&format!("man/{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(&name.replace('-', "\\-")), "{name}: {page}");
        assert!(command.len() != 1 || root.contains(&command[0]), "{name} is not on the main page");
    }
    scene.run(&["completions", "bsh"]).fails(2, &["bash"]);
}

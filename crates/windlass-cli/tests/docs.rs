//! Every command that the documents show is one that the binary takes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::path::{Path, PathBuf};
use support::Scene;

const SOME_ID: &str = "0-01k9z3v8q2f7t8x6m5n4p3r2s1";

#[test]
fn every_command_in_the_documents_is_understood() {
    let scene = Scene::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for path in documents(&root) {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in commands(&text) {
            let words = split(&line);
            // With --help everything is read and nothing is done.
            let args: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
            let ran = scene.run(&args);
            assert_eq!(ran.code, 0, "{}: `windlass {line}`\n{}", path.display(), ran.err);
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen} commands were found");
}

fn documents(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.join("README.md")];
    for folder in ["docs", "docs/guide"] {
        let files = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        all.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    all
}

/// What follows `windlass` on the lines of shell blocks.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut shell = false;
    for line in text.lines() {
        if line.starts_with("```") {
            shell = line == "```sh";
        } else if shell {
            let parts = line.split(" | ").flat_map(|part| part.split(" > ").next());
            let parts = parts.map(|part| part.split(" # ").next().unwrap().trim());
            let parts = parts.map(|part| part.strip_prefix("cargo run --release -- ").unwrap_or(part));
            found.extend(parts.filter_map(command));
        }
    }
    found
}

fn command(part: &str) -> Option<String> {
    let part = part.trim_start_matches(|c: char| c.is_ascii_uppercase() || c == '_');
    let part = part.strip_prefix('=').and_then(|rest| rest.split_once(' ')).map_or(part, |(_, rest)| rest);
    let rest = part.strip_prefix("windlass ").or_else(|| part.strip_prefix("demo").map(|_| part))?;
    let id = |word: &str| if word == "ID" { SOME_ID.to_owned() } else { word.to_owned() };
    Some(rest.split(' ').map(id).collect::<Vec<_>>().join(" "))
}

/// Words as a shell splits them, as far as the documents need it.
fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(open) if open == c => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == ' ' => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

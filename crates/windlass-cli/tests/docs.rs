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

/// What the file says between a heading and the next, as blocks of this language.
fn blocks(text: &str, heading: &str, language: &str) -> Vec<String> {
    let text = text.split_once(heading).unwrap().1;
    let text = text.split("\n## ").next().unwrap();
    let fences = text.split("```").skip(1).step_by(2);
    fences.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n').map(str::to_owned)).collect()
}

/// Ended with the test.
struct Working(std::process::Child);

impl Drop for Working {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_workflow_of_the_readme_works_word_for_word() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let scene = Scene::new();
    std::fs::write(scene.path("ci.yml"), &blocks(&text, "\n## A workflow\n", "yaml")[0]).unwrap();
    let shell = blocks(&text, "\n## A workflow\n", "sh").remove(0);
    assert!(shell.contains("export WINDLASS_STORE=sqlite://jobs.db"), "the scene's store is another one");
    let mut workers = Vec::new();
    for line in commands(&format!("```sh\n{shell}```")) {
        let words = split(&line);
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        if args[0] == "worker" {
            assert!(shell.contains("in another terminal"), "it does not come back");
            workers.push(Working(scene.start(&args)));
        } else {
            scene.run(&args).ok();
        }
    }
    assert_eq!(workers.len(), 1);
}

#[test]
fn schedules_in_the_guide_can_be_applied() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/workflows.md")).unwrap();
    let scheduled: Vec<String> =
        blocks(&text, "\n## The file\n", "yaml").into_iter().filter(|block| block.contains("\non:\n")).collect();
    assert!(!scheduled.is_empty());
    for block in scheduled {
        let scene = Scene::new();
        std::fs::write(scene.path("nightly.yml"), block).unwrap();
        scene.run(&["schedules", "apply", "nightly.yml"]).ok();
    }
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

use super::*;
use windlass::graph::yaml;

/// A graph from `job: needs`, one on each line.
fn graph(lines: &[(&str, &[&str])]) -> Graph {
    let jobs: String =
        lines.iter().map(|(name, needs)| format!("  {name}: {{ run: x, needs: [{}] }}\n", needs.join(", "))).collect();
    yaml::read("g.yml", &format!("jobs:\n{jobs}")).unwrap_or_else(|problems| panic!("{problems}")).graph
}

fn waiting(_: usize) -> NodeSummary {
    NodeSummary { state: NodeState::Waiting, note: String::new() }
}

#[track_caller]
fn drawn(lines: &[(&str, &[&str])], expected: &str) {
    let picture = bare(&draw(&graph(lines), Canvas { width: 100, ascii: false }, &waiting));
    assert_eq!(picture, expected.trim_matches('\n'), "\n{picture}\n");
}

/// Without colours.
fn bare(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn a_chain_is_one_line() {
    drawn(&[("a", &[]), ("b", &["a"]), ("c", &["b", "a"])], "○ a ── ○ b ── ○ c");
}

#[test]
fn a_fan_opens_and_closes() {
    drawn(
        &[("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["a"]), ("e", &["b", "c", "d"])],
        "
     ┌─ ○ b ─┐
○ a ─┼─ ○ c ─┼─ ○ e
     └─ ○ d ─┘
",
    );
}

#[test]
fn lines_turn_off_before_others_end_in_their_row() {
    drawn(
        &[("a", &[]), ("b", &[]), ("x", &["a", "b"]), ("y", &["a"]), ("z", &["b"]), ("w", &["x", "y", "z"])],
        "
○ a ───┬─ ○ y ─┐
○ b ─┬─┴─ ○ x ─┼─ ○ w
     └─── ○ z ─┘
",
    );
    // All in a ring: where there is no such order, columns are shifted. What goes past a column is drawn through it.
    drawn(
        &[
            ("a", &[]),
            ("b", &[]),
            ("c", &[]),
            ("x", &["a", "b"]),
            ("y", &["a", "c"]),
            ("z", &["b", "c"]),
            ("far", &["x"]),
            ("end", &["far", "y", "c"]),
        ],
        "
○ a ─┐           ┌─── ○ far ─┐
     ├─┬─── ○ x ─┘           ├─ ○ end
○ b ─│─┤           ┌─────────┘
     └─│─┬─ ○ y ───┘
○ c ───│─┤
       └─┴─ ○ z
",
    );
}

#[test]
fn what_has_nothing_to_do_with_each_other_stands_below_each_other() {
    drawn(&[("a", &[]), ("b", &["a"]), ("c", &[])], "○ a ── ○ b\n○ c");
}

const CI: &[(&str, &[&str])] = &[
    ("lint", &[]),
    ("build", &[]),
    ("docs", &["lint"]),
    ("test", &["lint", "build"]),
    ("a-job-with-a-very-long-name-that-goes-on", &["build", "test"]),
];

#[test]
fn marks_and_notes_are_shown_and_ascii_will_do() {
    let marks = [NodeState::Succeeded, NodeState::Failed, NodeState::Running, NodeState::Skipped, NodeState::Cancelled];
    let look = |node: usize| NodeSummary {
        state: marks[node],
        note: if node == 2 { "×3 12s".into() } else { String::new() },
    };
    let graph = graph(CI);
    let picture = draw(&graph, Canvas { width: 100, ascii: false }, &look);
    assert!(picture.contains("\u{1b}["), "{picture}");
    let shown = bare(&picture);
    for part in ["✓ lint", "✗ build", "● docs ×3 12s", "– test", "⊘ a-job-with"] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    let plain = bare(&draw(&graph, Canvas { width: 100, ascii: true }, &look));
    assert!(plain.is_ascii(), "{plain}");
    for part in ["+ lint", "x build", "* docs x3 12s", "- test", "/ a-job-with"] {
        assert!(plain.contains(part), "{part}:\n{plain}");
    }
}

#[test]
fn what_does_not_fit_is_cut_then_listed() {
    let graph = graph(CI);
    let shown = |width| bare(&draw(&graph, Canvas { width, ascii: false }, &waiting));
    assert!(shown(80).contains("a-job-with-a-very-long-name-that-goes-on"), "{}", shown(80));
    assert!(shown(60).contains("a-job-with-…that-goes-on"), "{}", shown(60));
    for width in [30, 40, 50, 60, 80] {
        assert!(shown(width).lines().all(|line| line.chars().count() <= width), "{width}:\n{}", shown(width));
    }
    let list = "1  ○ lint\n   ○ build\n2  ○ docs  ← lint\n   ○ test  ← lint, build\n3  ○ a-job-with-a-very-long-name-t";
    assert!(shown(34).starts_with(list), "{}", shown(34));
}

#[test]
fn what_is_too_large_is_counted() {
    let names: Vec<String> = (0..100).map(|n| format!("j{n}")).collect();
    let needs: Vec<Vec<&str>> = (0..100).map(|n| if n < 50 { vec![] } else { vec![names[n - 50].as_str()] }).collect();
    let lines: Vec<(&str, &[&str])> =
        names.iter().zip(&needs).map(|(name, needs)| (name.as_str(), &needs[..])).collect();
    let look = |node: usize| NodeSummary {
        state: if node < 3 { NodeState::Failed } else { NodeState::Waiting },
        note: String::new(),
    };
    let shown = bare(&draw(&graph(&lines), Canvas { width: 100, ascii: false }, &look));
    assert_eq!(
        shown,
        "level 1      50 jobs  ○ 47 waiting  ✗ 3 failed  j0, …\nlevel 2      50 jobs  ○ 50 waiting  j50, …"
    );
}

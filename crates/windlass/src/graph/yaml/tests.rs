use super::*;
use serde_json::json;
use windlass_core::graph::{Accepts, Source, Work};

pub(super) fn good(text: &str) -> Workflow {
    schema_tests::assert_fits(text);
    read("ci.yml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(super) fn payload(workflow: &Workflow, at: usize) -> serde_json::Value {
    match &workflow.graph.nodes[at].work {
        Work::Job(job) => job.payload.clone(),
        other => panic!("{other:?}"),
    }
}

const CI: &str = r##"
name: CI
on:
  schedule:
    - cron: '0 4 * * *'
      timezone: Europe/Berlin
inputs:
  deploy: { type: boolean, default: false }
env: { RUST_LOG: info }
timeout: 1h
jobs:
  lint:
    run: cargo clippy # all of it
  test:
    name: Tests
    needs: lint
    labels: [linux, "${{ matrix.os }}"]
    retries: 2
    timeout: 10m
    strategy:
      fail-fast: false
      max-parallel: 2
      matrix:
        os: [debian, alpine]
        version: [1, 2]
        exclude: [{ os: alpine, version: 1 }]
        include: [{ os: debian, extra: yes }]
    env: { OS: "${{ matrix.os }}" }
    steps:
      - name: build
        run: |
          echo "#"
          make
      - run: make test
        shell: bash
    outputs: [coverage]
  publish:
    needs: { test: [succeeded, skipped], lint: any }
    if: inputs.deploy && needs.test.outputs.coverage > 80
    kind: publish
    with: { coverage: "${{ needs.test.outputs.coverage }}", dry: false }
    queue: releases
    priority: -5
    continue-on-error: true
"##;

#[test]
fn a_workflow_is_read() {
    let workflow = good(CI);
    let graph = &workflow.graph;
    assert_eq!(
        (graph.name.as_str(), graph.timeout_ms, graph.env["RUST_LOG"].as_str()),
        ("CI", Some(3_600_000), "info")
    );
    assert_eq!(workflow.inputs["deploy"].default, Some(json!(false)));
    assert_eq!(workflow.triggers.len(), 1);
    let [lint, test, publish] = &graph.nodes[..] else { panic!("{graph:?}") };
    assert_eq!(payload(&workflow, 0), json!({"steps": [{"run": "cargo clippy"}]}));
    assert_eq!((lint.needs.len(), test.title.as_deref()), (0, Some("Tests")));
    let steps = json!([{"name": "build", "run": "echo \"#\"\nmake\n"}, {"run": "make test", "shell": "bash"}]);
    assert_eq!(payload(&workflow, 1), json!({"steps": steps, "outputs": ["coverage"]}));
    let Work::Job(job) = &test.work else { panic!() };
    assert_eq!((job.attempts, job.timeout_ms, job.queue.as_str()), (3, Some(600_000), "default"));
    assert_eq!(job.labels[1].as_str(), "${{ matrix.os }}");
    let matrix = test.matrix.as_ref().unwrap();
    assert_eq!((matrix.fail_fast, matrix.parallel_max), (false, Some(2)));
    let Source::Rows(rows) = &matrix.source else { panic!() };
    let expected = json!([
        {"os": "debian", "version": 1, "extra": "yes"},
        {"os": "debian", "version": 2, "extra": "yes"},
        {"os": "alpine", "version": 2},
    ]);
    assert_eq!(json!(rows), expected);
    assert_eq!(publish.needs[0].accepts, Accepts { succeeded: true, failed: false, skipped: true, cancelled: false });
    assert_eq!((publish.needs[0].node, publish.needs[1].accepts), (1, Accepts::ANY));
    assert!(publish.continue_on_error && publish.condition.is_some());
    assert_eq!(payload(&workflow, 2), json!({"coverage": "${{ needs.test.outputs.coverage }}", "dry": false}));
    let Work::Job(job) = &publish.work else { panic!() };
    assert_eq!((job.kind.as_str(), job.queue.as_str(), job.priority, job.attempts), ("publish", "releases", -5, 1));
}

#[test]
fn the_file_names_what_names_itself_not() {
    assert_eq!(good("jobs: { a: { run: x } }").graph.name, "ci");
    // A mark of an editor at the beginning does not matter, and places are right behind it.
    assert_eq!(good("\u{feff}jobs: { a: { run: x } }").graph.nodes.len(), 1);
    let problems = read("x.yml", "\u{feff}jobs: { a: { rum: x, run: y } }").unwrap_err();
    assert_eq!(problems.place(&problems.all[0]), (1, 15));
}

#[test]
fn words_are_texts() {
    let workflow = good("jobs: { a: { kind: k, with: { on: no, n: 007, f: 1.5, t: true, z: ~, v: '1', b: off } } }");
    assert_eq!(
        payload(&workflow, 0),
        json!({"on": "no", "n": "007", "f": 1.5, "t": true, "z": null, "v": "1", "b": "off"})
    );
}

#[test]
fn rows_can_come_from_a_job() {
    let text = "jobs:\n  plan: { run: x }\n  each:\n    needs: plan\n    strategy: { matrix: \"${{ fromJSON(needs.plan.outputs.list) }}\" }\n    run: y\n    env: { A: \"${{ matrix.anything }}\" }";
    assert!(matches!(good(text).graph.nodes[1].matrix.as_ref().unwrap().source, Source::From(_)));
}

#[test]
fn retries_are_a_number_or_a_policy() {
    let text = "jobs: { a: { run: x, retry: { count: 4, delay: 5s, factor: 3, max-delay: 1m, jitter: 0 } } }";
    let Work::Job(job) = &good(text).graph.nodes[0].work else { panic!() };
    assert_eq!(job.attempts, 5);
    let shown = serde_json::to_value(&job.retry).unwrap();
    assert_eq!(
        shown,
        json!({"policy": "exponential", "base_ms": 5000, "factor": 3, "cap_ms": 60000, "jitter_percent": 0})
    );
}

/// Every fault: the text, what is said, what is marked, what is advised.
pub(super) const FAULTS: &[(&str, &str, &str, &str)] = &[
    ("", "the file is empty", "", ""),
    ("[]", "a map was expected here, and this is a list", "[]", ""),
    ("jobs: {}", "the workflow has no jobs", "jobs", ""),
    ("name: x", "a workflow needs jobs", "", "write jobs:"),
    ("job: {}", "a workflow has no `job`", "job", "did you mean `jobs`?"),
    ("jobs: { a: { rum: x, run: y } }", "a job has no `rum`", "rum", "did you mean `run`?"),
    ("jobs: { a: { run: x, zebra: y } }", "a job has no `zebra`", "zebra", "there are name, needs"),
    ("jobs: { a: { run: x, needs: b } }", "there is no job `b`", "b", ""),
    (
        "jobs: { test: { run: x }, b: { run: x, needs: [tset] } }",
        "there is no job `tset`",
        "tset",
        "did you mean `test`?",
    ),
    ("jobs: { a: { run: x, needs: a } }", "jobs wait for each other: a → a", "a", ""),
    (
        "jobs: { a: { run: x, needs: c }, b: { run: x, needs: a }, c: { run: x, needs: b } }",
        "jobs wait for each other: a → b → c → a",
        "c",
        "",
    ),
    ("jobs: { a: { run: x }, a: { run: y } }", "`a` stands here twice", "a", ""),
    ("jobs: { a: { run: x, needs: [b, b] }, b: { run: x } }", "`b` is needed twice", "[b, b]", ""),
    ("jobs: { 1a: { run: x } }", "`1a` is no name for a job", "1a", "begin with a letter"),
    ("jobs: { a: {} }", "the job `a` does nothing", "a", "run (a script)"),
    ("jobs: { a: { run: x, kind: y } }", "says both `run` and `kind`", "a", "write one of"),
    ("jobs: { a: { run: x, with: {} } }", "`with` is for kind", "with", ""),
    ("jobs: { a: { kind: x, shell: sh } }", "`shell` is for run and steps", "shell", ""),
    ("jobs: { a: { run: x, timeout: 5 } }", "a time needs its unit", "5", "5s, 5m or 5h"),
    ("jobs: { a: { run: x, timeout: soon } }", "a time was expected", "soon", "30s, 5m or 2h"),
    ("jobs: { a: { run: x, timeout: 0s } }", "longer than nothing", "0s", ""),
    ("jobs: { a: { run: x, retries: -1 } }", "a whole number from 0 to 1000", "-1", ""),
    ("jobs: { a: { run: x, retries: 1, retry: {} } }", "say the same thing", "retry", "keep one"),
    ("jobs: { a: { run: x, priority: 99999 } }", "from -32768 to 32767", "99999", ""),
    ("jobs: { a: { run: x, continue-on-error: maybe } }", "true or false", "maybe", ""),
    (
        "jobs: { a: { run: x, if: 'needs.b.result' } }",
        "the job does not need `b`",
        "needs.b.result",
        "add `b` to its needs",
    ),
    ("jobs: { a: { run: x, if: 'inputs.x' } }", "there is no input `x`", "inputs.x", "declare it"),
    ("jobs: { a: { run: x, if: \"env.A = 'b'\" } }", "`=` assigns", "=", "compare with =="),
    ("jobs: { a: { run: x, if: matrix.os == 'x' } }", "there is no matrix here", "matrix.os", ""),
    (
        "jobs: { a: { run: x, strategy: { matrix: { os: [a] } }, env: { A: 'x ${{ matrix.so }}' } } }",
        "the matrix has no `so`",
        "matrix.so",
        "did you mean `os`?",
    ),
    ("jobs: { a: { run: 'echo ${{ inputs.x }}' } }", "never put into a script", "${{ inputs.x }}", "under env"),
    ("jobs: { a: { steps: [] } }", "there are no steps", "[]", ""),
    ("jobs: { a: { steps: [{ rnu: x }] } }", "a step has no `rnu`", "rnu", "did you mean `run`?"),
    ("jobs: { a: { run: x, strategy: {} } }", "a strategy needs a matrix", "{}", ""),
    (
        "jobs: { a: { run: x, needs: { b: sometimes } }, b: { run: y } }",
        "does not end like this",
        "sometimes",
        "succeeded",
    ),
    ("jobs: { a: { run: x, artifacts: { up: {} } } }", "artifacts has no `up`", "up", "there are upload"),
    ("jobs: { a: { run: x, artifacts: { upload: { 'a b': x } } } }", "no name for an artifact", "'a b'", "letter"),
    ("jobs: { a: { run: x, artifacts: { upload: { a: '' } } } }", "a path was expected", "''", ""),
    ("jobs: { a: { run: x, artifacts: { upload: { a: [] } } } }", "there are no files", "[]", ""),
    ("jobs: { a: { run: x, artifacts: { download: [a, a] } } }", "`a` is downloaded twice", "a", ""),
    ("jobs: { a: { run: x, artifacts: { download: [1] } } }", "no name for an artifact", "1", ""),
    ("jobs: { a: { kind: x, artifacts: {} } }", "`artifacts` is for run and steps", "artifacts", ""),
    ("jobs: { a: { run: x, artifacts: { upload: { a: '${{ inputs.x }}' } } } }", "no input `x`", "inputs.x", ""),
    ("jobs: { a: { run: x, concurrency: { max: 2 } } }", "concurrency needs a group", "{ max: 2 }", ""),
    ("jobs: { a: { run: x, concurrency: { group: a, max: 0 } } }", "a whole number from 1", "0", ""),
    ("jobs: { a: { run: x, concurrency: { group: a, more: 0 } } }", "concurrency has no `more`", "more", "group, max"),
    ("jobs: { a: { run: x, concurrency: '${{ inputs.x }}' } }", "there is no input `x`", "inputs.x", ""),
    ("jobs: { a: { run: x, concurrency: \"a\\0b\" } }", "control character", "\"a\\0b\"", ""),
    ("outputs: { a: needs.a.result }\njobs: { a: { run: x } }", "a workflow needs nothing", "needs.a.result", "jobs.a"),
    ("outputs: { o: jobs.b.result }\njobs: { a: { run: x } }", "there is no job `b`", "jobs.b.result", ""),
    ("outputs: { o: jobs.a.status }\njobs: { a: { run: x } }", "cannot be read", "jobs.a.status", "jobs.a.result"),
    ("outputs: { o: }\njobs: { a: { run: x } }", "an output needs a value", "", "jobs.<job>.outputs.<key>"),
    (
        "outputs: { o: { valeu: x } }\njobs: { a: { run: x } }",
        "an output has no `valeu`",
        "valeu",
        "did you mean `value`?",
    ),
    ("jobs: { a: { run: x, if: jobs.a.result } }", "for the outputs of a workflow", "jobs.a.result", "needs.a"),
    ("jobs: { a: { uses: ./b.yml } }", "other files cannot be read", "./b.yml", "from a file"),
    (
        "inputs: { a: { default: '${{ env.A }}' } }\njobs: { a: { run: x } }",
        "a default is no template",
        "'${{ env.A }}'",
        "",
    ),
    ("on: { schedule: [{ cron: '60 * * * *' }] }\njobs: { a: { run: x } }", "", "'60 * * * *'", ""),
    ("on: { push: {} }\njobs: { a: { run: x } }", "`on` has no `push`", "push", "there are schedule"),
    (
        "inputs: { a: { type: int } }\njobs: { a: { run: x } }",
        "`int` is no type of an input",
        "int",
        "did you mean `number`? there are string, number and boolean",
    ),
    ("inputs: { a: { type: zebra } }\njobs: { a: { run: x } }", "no type of an input", "zebra", "there are string"),
    (
        "on: { schedule: [{ cron: '0 4 * * *', timezone: Europe/Berln }] }\njobs: { a: { run: x } }",
        "there is no time zone `Europe/Berln`",
        "Europe/Berln",
        "",
    ),
    (
        "jobs: { a: { run: x, artifacts: { upload: { x: /etc/passwd } } } }",
        "leads out of the folder in which the job runs",
        "/etc/passwd",
        "relative",
    ),
    ("jobs: { a: { run: x, artifacts: { upload: { x: [ok, a/../b] } } } }", "leads out of the folder", "a/../b", ""),
    ("jobs: { a: { run: x, artifacts: { download: { x: .. } } } }", "leads out of the folder", "..", ""),
    ("jobs: { a: { run: x, shell: 5 } }", "`5` is no shell", "5", "write sh, bash"),
    ("jobs: { a: { steps: [{ run: x, shell: true }] } }", "`true` is no shell", "true", "write sh, bash"),
    ("jobs: { a: { run: x, env: { 'E F': 1 } } }", "`E F` is no name for a variable", "'E F'", "letters, digits and _"),
    ("env: { A-B: 1 }\njobs: { a: { run: x } }", "`A-B` is no name for a variable", "A-B", ""),
    ("jobs: { a: { steps: [{ run: x, env: { 1A: 1 } }] } }", "`1A` is no name for a variable", "1A", ""),
    ("jobs: { a: { run: x, outputs: [1a] } }", "`1a` is no name for an output", "1a", "begin with a letter"),
    (
        "jobs: { a: { run: x, strategy: { matrix: { i: [1, 2] } }, artifacts: { upload: { g: g } } } }",
        "every row of the matrix uploads `g`",
        "g",
        "g-${{ matrix.i }}",
    ),
    (
        "jobs: { a: { run: x, strategy: { matrix: \"${{ fromJSON('[1]') }}\" }, artifacts: { upload: { g: g } } } }",
        "every row of the matrix uploads `g`",
        "g",
        "g-${{ matrix.<name> }}",
    ),
    (
        "jobs: { a: { run: x, strategy: { matrix: { i: [1, 2], j: [1, 2] } }, artifacts: { upload: { 'g-${{ matrix.j }}': g } } } }",
        "two rows of the matrix upload `g-1`",
        "'g-${{ matrix.j }}'",
        "in which rows differ",
    ),
    (
        "jobs: { a: { run: x, strategy: { matrix: { i: [1, a b] } }, artifacts: { upload: { 'g-${{ matrix.i }}': g } } } }",
        "for one row of the matrix: ",
        "'g-${{ matrix.i }}'",
        "",
    ),
    (
        "jobs: { a: { run: x, artifacts: { upload: { 'g-${{ matrix.i }}': g } } } }",
        "there is no matrix here",
        "matrix.i",
        "",
    ),
    (
        "jobs: { a: { run: x, artifacts: { upload: { g: a } } }, b: { run: x, artifacts: { upload: { h: a, g: b } } } }",
        "`a` uploads `g`, too, and one would replace the other",
        "g",
        "a name of its own",
    ),
    ("inputs: { a: { type: number, default: x } }\njobs: { a: { run: x } }", "no value of the input's type", "x", ""),
    ("jobs:\n\ta: {}", "a tab in the indentation", "\t", "indent with blanks"),
    ("jobs: !x {}", "tags are not part", "!x", "remove the word"),
    ("a: &a [*a]", "would never end", "*a", ""),
    ("a: *b", "this is no YAML", "", ""),
    ("jobs: {}\n---\njobs: {}", "a second document", "", "one workflow"),
    ("{ [a]: b }", "a key must be a text", "[", ""),
    ("jobs: [", "this is no YAML", "", ""),
    ("env: { A: [1] }\njobs: { a: { run: x } }", "a text was expected here, and this is a list", "[1]", ""),
    ("queue: \"a\\0b\"\njobs: { a: { run: x } }", "control character", "\"a\\0b\"", ""),
];

#[test]
fn what_is_wrong_is_drawn() {
    for (text, message, marked, help) in FAULTS {
        let problems = read("ci.yml", text).expect_err(text);
        let said = problems.all.iter().find(|problem| problem.message.contains(message));
        let problem = said.unwrap_or_else(|| panic!("{text}\n{problems}"));
        assert_eq!(&problems.text[problem.span.clone()].lines().next().unwrap_or(""), marked, "{text}\n{problems}");
        assert!(problem.help.clone().unwrap_or_default().contains(help), "{text}\n{problems}");
        assert!(problems.to_string().contains("ci.yml:"), "{problems}");
    }
}

#[test]
fn several_faults_are_told_at_once_with_line_and_column() {
    let text = "jobs:\n  build:\n    run: make\n  test:\n    needs: biuld\n    timeout: 5\n    run: make test\n";
    let problems = read("ci.yml", text).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "error: there is no job `biuld`\n  --> ci.yml:5:12\n  |\n5 |     needs: biuld\n  |            ^^^^^ did you mean `build`?\n\n\
         error: a time needs its unit\n  --> ci.yml:6:14\n  |\n6 |     timeout: 5\n  |              ^ write 5s, 5m or 5h\n"
    );
}

#[test]
fn one_fault_does_not_hide_the_others() {
    let text = "
on: { schedule: [{ corn: x }, { cron: x }] }
inputs: { a: { type: int }, a: {} }
env: { A: [1], B: [2] }
jobs:
  a: { runn: x, timeout: 10, retries: -1, needs: b, shell: 5 }
  b: { steps: [{ rnu: x }, { env: { A: [] } }], needs: a, priority: x, artifacts: { upload: { a: /x, b: /y } } }
  b: { run: x }
  c: { run: x, timeout: 10, timeout: 11 }
";
    let problems = read("ci.yml", text).unwrap_err();
    let said: Vec<&str> = problems.all.iter().map(|problem| problem.message.as_str()).collect();
    let expected = [
        "a schedule has no `corn`",
        "cron: ",
        "`int` is no type of an input",
        "`a` stands here twice",
        "a text was expected here",
        "a text was expected here",
        "a job has no `runn`",
        "a time needs its unit",
        "a whole number from 0",
        "jobs wait for each other: a → b → a",
        "`5` is no shell",
        "a step has no `rnu`",
        "a step needs a `run`",
        "a text was expected here",
        "a whole number from -32768",
        "this leads out of the folder",
        "this leads out of the folder",
        "`b` stands here twice",
        "a time needs its unit",
        "`timeout` stands here twice",
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (said, expected) in said.iter().zip(expected) {
        assert!(said.contains(expected), "{said}: {expected}");
    }
}

#[test]
fn a_long_line_is_cut_around_its_fault() {
    let long = |before: usize, key: &str, after: usize| {
        let text = format!("jobs: {{ a: {{ run: {}, {key}: y, name: {} }} }}", "x".repeat(before), "z".repeat(after));
        let drawn = read("ci.yml", &text).unwrap_err().to_string();
        let lines: Vec<Vec<char>> = drawn.lines().map(|line| line.chars().collect()).collect();
        let (shown, marks) = (lines[3].clone(), lines[4].clone());
        assert!(shown.len() < 110, "{drawn}");
        let marked: String = shown.iter().zip(&marks).filter(|(_, mark)| **mark == '^').map(|(c, _)| c).collect();
        (marked, shown.into_iter().collect::<String>())
    };
    let (marked, shown) = long(5_000, "zebra", 5_000);
    assert!(marked == "zebra" && shown.contains("| …x") && shown.ends_with("z…"), "{shown}");
    let (marked, shown) = long(1, "zebra", 5_000);
    assert!(marked == "zebra" && shown.contains("| jobs: ") && shown.ends_with("z…"), "{shown}");
    let (marked, shown) = long(5_000, "zebra", 1);
    assert!(marked == "zebra" && shown.contains("| …x") && shown.ends_with("z } }"), "{shown}");
    let (marked, _) = long(5_000, &"é".repeat(5_000), 1);
    assert_eq!(marked, "é".repeat(100));
}

#[test]
fn what_replaces_nothing_may_be_uploaded() {
    let one = |jobs: &str| good(&format!("inputs: {{ x: {{ type: boolean }} }}\njobs:\n{jobs}"));
    // One row, rows that differ, names that are known later.
    one("  a: { run: x, strategy: { matrix: { i: [1] } }, artifacts: { upload: { g: g } } }\n");
    one(
        "  a:\n    run: x\n    strategy: { matrix: { i: [1, 1.2] } }\n    artifacts:\n      upload:\n        g-${{ matrix.i }}: g\n",
    );
    one(
        "  a: { run: x, artifacts: { upload: { 'g-${{ inputs.x }}': g } } }\n  b: { run: x, artifacts: { upload: { 'g-${{ inputs.x }}': g }, download: { 'g-${{ inputs.x }}': } } }\n",
    );
    // One instead of the other.
    one(
        "  a: { if: inputs.x, run: x, artifacts: { upload: { g: g } } }\n  b: { if: '!inputs.x', run: x, artifacts: { upload: { g: g } } }\n",
    );
    one(
        "  a: { run: x, artifacts: { upload: { g: g } } }\n  b: { needs: { a: failed }, run: x, artifacts: { upload: { g: g } } }\n",
    );
    one(
        "  a: { run: x, artifacts: { upload: { g: g } } }\n  b: { needs: a, if: failure(), run: x, artifacts: { upload: { g: g } } }\n",
    );
    // A condition of one alone shuts out nobody.
    let text = "inputs: { x: }\njobs:\n  a: { run: x, artifacts: { upload: { g: g } } }\n  b: { if: inputs.x, run: x, artifacts: { upload: { g: g } } }\n";
    assert!(read("ci.yml", text).unwrap_err().to_string().contains("`a` uploads `g`, too"));
}

#[test]
fn size_and_depth_are_bounded() {
    // Each level repeats the one before ten times.
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..9 {
        let before = format!("*a{}", n - 1);
        laughs += &format!("a{n}: &a{n} [{}]\n", vec![before; 10].join(", "));
    }
    assert!(read("x", &laughs).unwrap_err().to_string().contains("more than 400000 values"));
    let deep = format!("jobs: {}{}", "[".repeat(100), "]".repeat(100));
    assert!(read("x", &deep).unwrap_err().to_string().contains("nested deeper than 64"));
    let columns = |n: usize| format!("c{n}: [{}]", vec!["x"; 100].join(", "));
    let wide = format!("jobs: {{ a: {{ run: x, strategy: {{ matrix: {{ {}, {} }} }} }} }}", columns(0), columns(1));
    assert!(read("x", &wide).unwrap_err().to_string().contains("more than 1000 rows"));
    let chain: String = (1..10_000).map(|n| format!("  j{n}: {{ run: x, needs: j{} }}\n", n - 1)).collect();
    assert_eq!(good(&format!("jobs:\n  j0: {{ run: x }}\n{chain}")).graph.nodes.len(), 10_000);
    let one_more = format!("jobs:\n  j0: {{ run: x }}\n  more: {{ run: x }}\n{chain}");
    assert!(read("x", &one_more).unwrap_err().to_string().contains("10001 jobs, and 10000 are allowed"));
}

#[test]
fn anchors_may_be_repeated() {
    let workflow = good("jobs:\n  a: &job { run: x, retries: 1 }\n  b: *job\n");
    assert_eq!(workflow.graph.nodes[0].work, workflow.graph.nodes[1].work);
}

#[test]
fn inputs_have_their_types_and_defaults() {
    let text = "inputs: { t: , n: { type: number }, b: { type: boolean, default: true }, r: { required: true }, d: { required: true, default: x } }\njobs: { a: { run: x } }";
    let workflow = good(text);
    let given = |pairs: &[(&str, &str)]| {
        workflow.resolve_inputs(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    };
    assert_eq!(given(&[("r", "1")]), Ok(json!({"b": true, "d": "x", "r": "1"})));
    let all = given(&[("r", ""), ("t", "true"), ("n", "1.5"), ("b", "false"), ("d", "7")]);
    assert_eq!(all, Ok(json!({"b": false, "d": "7", "n": 1.5, "r": "", "t": "true"})));
    assert_eq!(given(&[("r", ""), ("n", "-3")]).unwrap()["n"], json!(-3));
    assert_eq!(given(&[("r", ""), ("n", "18446744073709551615")]).unwrap()["n"], json!(u64::MAX));
    for (pairs, words) in [
        (&[][..], "the input `r` must be given"),
        (&[("r", ""), ("n", "NaN")], "`NaN` is no value for the input `n`; write a number"),
        (&[("r", ""), ("n", "18446744073709551616")], "a larger one would lose digits"),
        (&[("r", ""), ("b", "yes")], "write true or false"),
        (&[("r", ""), ("zebra", "")], "there is no input `zebra`; there are b, d, n, r, t"),
    ] {
        let error = given(pairs).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let none = good("jobs: { a: { run: x } }").resolve_inputs([("x".to_owned(), String::new())].into());
    assert_eq!(none.unwrap_err().to_string(), "there is no input `x`; the workflow takes none");
}

#[test]
fn artifacts_are_for_the_runner_of_commands() {
    let text = "jobs:\n  a: { run: x, artifacts: { upload: { dist: target/x, logs: [a.log, '*.txt'] }, download: { in: sub, out: } } }\n  b: { run: x, artifacts: { download: [dist, logs] } }\n  c: { run: x, artifacts: { download: dist } }\n";
    let workflow = good(text);
    let expected = json!({
        "upload": {"dist": ["target/x"], "logs": ["a.log", "*.txt"]},
        "download": {"in": "sub", "out": "."},
    });
    assert_eq!(payload(&workflow, 0)["artifacts"], expected);
    assert_eq!(payload(&workflow, 1)["artifacts"], json!({"download": {"dist": ".", "logs": "."}}));
    assert_eq!(payload(&workflow, 2)["artifacts"], json!({"download": {"dist": "."}}));
}

#[test]
fn concurrency_is_a_group_and_how_many() {
    let text = "inputs: { s: }\njobs:\n  a: { run: x, concurrency: deploy }\n  b: { kind: x, concurrency: { group: \"to-${{ inputs.s }}\", max: 2 } }\n  c: { run: x }\n";
    let workflow = good(text);
    let groups = workflow.graph.nodes.iter().map(|node| match &node.work {
        Work::Job(job) => (job.group.as_ref().map(|group| group.as_str().to_owned()), job.group_max),
        other => panic!("{other:?}"),
    });
    let group = |name: &str, most| (Some(name.to_owned()), Some(most));
    assert_eq!(groups.collect::<Vec<_>>(), [group("deploy", 1), group("to-${{ inputs.s }}", 2), (None, None)]);
}

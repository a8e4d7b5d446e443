//! Commands: what they see, what they say and what they hand on.

#![cfg(all(unix, feature = "commands"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde_json::json;
use std::fs;
use support::commands::{run, run_with, script, script_with};
use support::memory;
use windlass::command::{Commands, KIND, Limits};
use windlass::core::job::State;
use windlass::core::store::LogStream;
use windlass::{Options, Waited, Worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_step_is_a_process_of_its_own_and_says_its_name() {
    let steps = json!({ "steps": [
        { "run": "X=1; cd /; echo one # it's \"open" },
        { "run": "echo 'two # (' \"${X-unset}\"\n[ \"$PWD\" = \"$HOME\" ]", "name": "second" },
    ]});
    let ran = run(Commands::new(), steps).await;
    assert_eq!(ran.said(), "one\ntwo # ( unset");
    let names: Vec<_> = ran.lines.iter().filter(|(stream, _)| *stream == LogStream::Log).collect();
    assert_eq!(names.len(), 2);
    assert_eq!(ran.log(), "▸ X=1; cd /; echo one # it's \"open\none\n▸ second\ntwo # ( unset");
    assert_eq!(run(Commands::new(), script("echo alone")).await.log(), "alone", "one step needs no name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_step_that_fails_is_the_last_and_the_job_is_tried_again() {
    let steps = json!({ "steps": [
        { "run": "seq 30; echo oh no >&2; false; echo not reached", "name": "test" },
        { "run": "echo never" },
    ]});
    let ran = run_with(Commands::new().error_lines(3), steps, Options::new().attempts(2)).await;
    assert_eq!(ran.error(), "step `test` failed with exit code 1; its last lines:\n29\n30\noh no");
    assert_eq!(ran.job.failures.len(), 2);
    assert!(!ran.log().contains("reached") && !ran.log().contains("never"));
    let ran = run(Commands::new(), script("kill -9 $$")).await;
    assert_eq!(ran.error(), "step `kill -9 $$` was ended by signal 9 (SIGKILL)");
    let ran = run(Commands::new(), script("if true; then (")).await;
    assert!(ran.error().contains("exit code 2") && ran.error().contains("yntax error"), "{}", ran.error());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shells_are_strict_and_an_unknown_one_is_not_tried_twice() {
    assert_eq!(run(Commands::new(), script("false | true; echo on")).await.said(), "on");
    let bash = json!({ "shell": "bash" });
    let ran = run(Commands::new(), script_with("false | true; echo on", bash.clone())).await;
    assert!(ran.error().contains("exit code 1"), "pipefail");
    assert_eq!(run(Commands::new(), script_with("a=(1 2); echo ${a[1]}", bash)).await.said(), "2");
    let awk = json!({ "shell": "awk -f" });
    assert_eq!(run(Commands::new(), script_with("BEGIN { print 1 + 2 }", awk)).await.said(), "3");
    let unknown = script_with("echo x", json!({ "shell": "bsh" }));
    let ran = run_with(Commands::new(), unknown, Options::new().attempts(3)).await;
    assert!(ran.error().starts_with("there is no shell `bsh` on this worker; write sh, bash"), "{}", ran.error());
    assert_eq!(ran.job.attempt, 1, "fatal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_environment_is_clean_and_says_where_a_command_is() {
    let names = "env | cut -d= -f1 | grep -vE '^(_|PWD|OLDPWD|SHLVL)$' | sort | tr '\\n' ' '";
    // The locale is passed on as far as the worker itself has one; a machine may have none.
    let locale = ["LANG", "LC_ALL"].into_iter().filter(|name| std::env::var_os(name).is_some());
    let own = ["PATH", "TMPDIR", "WINDLASS", "WINDLASS_ATTEMPT", "WINDLASS_JOB", "WINDLASS_NEEDS", "WINDLASS_OUTPUT"];
    let expected: String = ["HOME"].into_iter().chain(locale).chain(own).map(|name| format!("{name} ")).collect();
    let said = run(Commands::new(), script(names)).await.said();
    assert_eq!(said, expected);
    let passed = run(Commands::new().pass("CARGO_PKG_NAME").pass("NOT_SET"), script(names)).await.said();
    assert_eq!(passed.replace("CARGO_PKG_NAME ", ""), said);
    assert_ne!(passed, said);
    let about = json!({ "run": { "id": "r1", "workflow": "ci", "node": "build", "instance": 0,
        "matrix": { "os": "linux", "n-1": 2 } }, "cache": { "any": 1 } });
    let asks =
        "echo $WINDLASS $WINDLASS_RUN $WINDLASS_WORKFLOW $WINDLASS_NODE $WINDLASS_ATTEMPT $MATRIX_OS $MATRIX_N_1";
    let ran = run(Commands::new(), script_with(&format!("{asks}; echo $WINDLASS_JOB"), about)).await;
    assert_eq!(ran.said(), format!("1 r1 ci build 1 linux 2\n{}", ran.job.id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nearest_word_counts_and_none_becomes_a_command() {
    let steps = json!({
        "steps": [{ "run": "echo $A $B $C", "env": { "C": "step", "N": 1 } }, { "run": "echo $A $B ${C-unset}" }],
        "env": { "B": "job" },
    });
    let commands = Commands::new().secret("A", "a").secret("B", "unseen");
    assert_eq!(run(commands, steps).await.said(), "*** job step\n*** job unset");
    let evil = "$(touch pwned) `touch pwned`; touch pwned\n'\"";
    let about = json!({ "env": { "E": evil }, "run": { "matrix": { "m": evil } },
        "needs": { "build-1": { "result": "succeeded", "outputs": { "the.key": evil, "n": 7 } } } });
    let asks = "echo \"$E\" \"$MATRIX_M\" \"$NEEDS_BUILD_1_THE_KEY\" $NEEDS_BUILD_1_N; cat \"$WINDLASS_NEEDS\"; ls";
    let said = run(Commands::new(), script_with(asks, about)).await.said();
    let needs = json!({ "build-1": { "outputs": { "n": 7, "the.key": evil }, "result": "succeeded" } });
    assert_eq!(said, format!("{evil} {evil} {evil} 7\n{needs}"), "and there is no file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_that_cannot_be_are_refused_for_good() {
    for (payload, words) in [
        (script_with("true", json!({ "env": { "A-B": "x" } })), "`A-B` is no name for a variable"),
        (script_with("true", json!({ "env": { "A": "x\0y" } })), "the variable `A` holds a NUL"),
        (json!({ "steps": [{ "run": "true", "env": { "1": "x" } }] }), "`1` is no name for a variable"),
        (json!({ "steps": [{ "run": "echo \0" }] }), "holds a NUL"),
        (script_with("true", json!({ "env": { "A": "x".repeat(200_000) } })), "environment is larger"),
    ] {
        let ran = run_with(Commands::new(), payload, Options::new().attempts(3)).await;
        assert!(ran.error().contains(words), "{}", ran.error());
        assert_eq!(ran.job.attempt, 1);
    }
    let (store, _) = memory();
    for (commands, words) in [
        (Commands::new().secret("A B", "x"), "`A B` is no name"),
        (Commands::new().pass(""), "`` is no name"),
        (Commands::new().secret("A", "\0"), "holds a NUL"),
    ] {
        let refused = Worker::builder(store.clone()).commands(commands).build().unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_runs_in_a_folder_inside_of_the_job_s() {
    let base = tempfile::tempdir().unwrap();
    let fresh = || Commands::new().work_dir(base.path().join("made"));
    let steps = json!({
        "steps": [
            { "run": "mkdir -p a/b; ln -s /tmp out; echo x > $TMPDIR/x", "working-directory": "." },
            { "run": "pwd" },
            { "run": "pwd", "working-directory": "a" },
        ],
        "working-directory": "a/../a/b",
    });
    let ran = run(fresh(), steps.clone()).await;
    let said = ran.said();
    let said: Vec<_> =
        said.lines().map(|line| line.split_once("/windlass-").unwrap().1.split_once('/').unwrap().1).collect();
    assert_eq!(said, ["work/a/b", "work/a"]);
    for (folder, words) in [
        ("missing", "there is no folder `missing`"),
        ("..", "`..` leads out of the job's folder"),
        ("/tmp", "`/tmp` leads out of the job's folder"),
        ("out", "`out` leads out of the job's folder"),
    ] {
        let mut steps = steps.clone();
        steps["steps"][2]["working-directory"] = json!(folder);
        let ran = run(fresh(), steps).await;
        assert!(ran.error().contains(words), "{}", ran.error());
    }
    let left = fs::read_dir(base.path().join("made")).unwrap().count();
    assert_eq!(left, 0, "folders are removed, also of jobs that failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_of_the_user_s_is_used_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    fs::create_dir(place.join("sub")).unwrap();
    let commands = || Commands::new().in_folder(folder.path());
    let ran = run(commands(), script("pwd; touch kept; echo $HOME; [ -n \"$TMPDIR\" ] && echo $TMPDIR")).await;
    let said = ran.said();
    let [pwd, home, temporary] = said.lines().collect::<Vec<_>>()[..] else { panic!("three lines: {said}") };
    assert_eq!(pwd, place.to_str().unwrap());
    assert_eq!(home, std::env::var("HOME").unwrap_or_else(|_| pwd.to_owned()));
    assert!(!fs::exists(temporary).unwrap());
    assert!(place.join("kept").exists());
    for folder in ["sub", "sub/..", "/"] {
        let ran = run(commands(), script_with("pwd", json!({ "working-directory": folder }))).await;
        assert_eq!(ran.said(), place.join(folder).canonicalize().unwrap().to_str().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_come_as_they_were_written() {
    let script_text = "echo 1; sleep 0.05; echo 2 >&2; sleep 0.05; printf '3\\r\\n\\n\\377\\033[31mred\\033[0m\\nlast'";
    let ran = run(Commands::new(), script(script_text)).await;
    let (out, err) = (LogStream::Stdout, LogStream::Stderr);
    let expected: Vec<(LogStream, &[u8])> =
        vec![(out, b"1"), (err, b"2"), (out, b"3"), (out, b""), (out, b"\xff\x1b[31mred\x1b[0m"), (out, b"last")];
    assert_eq!(ran.lines.iter().map(|(stream, text)| (*stream, &text[..])).collect::<Vec<_>>(), expected);
    let ran = run(Commands::new(), script("head -c 150000 /dev/zero | tr '\\0' x; echo; echo end")).await;
    let lengths: Vec<usize> = ran.lines.iter().map(|(_, text)| text.len()).collect();
    assert_eq!(lengths, [65_536, 65_536, 150_000 - 2 * 65_536, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_are_handed_on() {
    let writes = "echo version=1.2 >> $WINDLASS_OUTPUT; printf 'notes<<EOF\\na\\n=b\\nEOF\\n' >> $WINDLASS_OUTPUT";
    let ran = run(Commands::new(), script(writes)).await;
    let outputs: Vec<(&str, &str)> =
        ran.job.outputs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!((ran.job.state, outputs), (State::Succeeded, vec![("notes", "a\n=b"), ("version", "1.2")]));
    for (run_text, words) in [
        ("echo a=1 > $WINDLASS_OUTPUT; echo what >> $WINDLASS_OUTPUT", "line 2 of WINDLASS_OUTPUT is neither"),
        ("echo version=1 > $WINDLASS_OUTPUT", "lacks `notes`, which the job declares"),
        ("true", "lacks `version` and `notes`"),
        ("echo verzion=1 > $WINDLASS_OUTPUT", "has `verzion`, which the job does not declare; did you mean `version`?"),
        ("rm $WINDLASS_OUTPUT; mkfifo $WINDLASS_OUTPUT", "is not a file any more"),
    ] {
        let ran = run(Commands::new(), script_with(run_text, json!({ "outputs": ["version", "notes"] }))).await;
        assert!(ran.error().contains(words), "{}", ran.error());
        assert!(ran.job.outputs.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_given_to_commands_and_seen_nowhere() {
    let commands = || Commands::new().secret("TOKEN", "hunter2").secret("KEY", "-----BEGIN\nMIIB\n-----END\n");
    assert!(!format!("{:?}", commands()).contains("hunter2"));
    let steps = json!({ "steps": [
        { "run": "[ ${#TOKEN} = 7 ]; echo \"a${TOKEN}b\" >&2; printf 'x%s' \"$TOKEN\"; echo; echo \"$KEY\"" },
        { "run": "echo the end of $TOKEN; exit 3", "name": "with hunter2" },
    ]});
    let ran = run(commands(), steps).await;
    assert_eq!(ran.error(), "step `with ***` failed with exit code 3; its last lines:\nthe end of ***");
    for line in ["a***b", "x***", "***", "▸ with ***"] {
        assert!(ran.lines.iter().any(|(_, text)| text == line.as_bytes()), "{line} in {}", ran.log());
    }
    for secret in ["hunter2", "MIIB", "BEGIN"] {
        assert!(!format!("{}{:?}", ran.log(), ran.job.failures).contains(secret));
    }
    let ran = run(commands(), script("echo url=http://me:$TOKEN@host >> $WINDLASS_OUTPUT")).await;
    assert!(ran.error().contains("gives `url` a value that contains a secret"), "{}", ran.error());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_limits_hold() {
    let limits = Limits {
        cpu_seconds: Some(100),
        address_space: Some(4 << 30),
        file_size: Some(1 << 20),
        open_files: Some(40),
        processes: Some(30_000),
    };
    let asks = script_with("ulimit -Hc; ulimit -t; ulimit -v; ulimit -n; ulimit -u", json!({ "shell": "bash" }));
    let said = run(Commands::new().limits(limits), asks).await.said();
    assert_eq!(said, "0\n100\n4194304\n40\n30000");
    assert_eq!(run(Commands::new(), script("ulimit -Hc")).await.said(), "0");
    let ran = run(Commands::new().limits(limits), script("exec head -c 2000000 /dev/zero > big")).await;
    assert!(ran.error().contains("a file became too large") || ran.error().contains("exit code"), "{}", ran.error());
    let cpu = Limits { cpu_seconds: Some(1), ..Limits::default() };
    let ran = run(Commands::new().limits(cpu), script("while :; do :; done")).await;
    assert!(ran.error().contains("was ended by signal"), "{}", ran.error());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_is_none_says_so() {
    let ran = run(Commands::new(), json!({ "steps": "x" })).await;
    assert!(ran.error().contains("its payload is not one that this worker can read"), "{}", ran.error());
    assert_eq!(run(Commands::new(), json!({ "steps": [] })).await.ended, Waited::Succeeded(()));
}

#[cfg(feature = "yaml")]
#[test]
fn workflows_make_jobs_of_this_kind() {
    let text = "name: ci\njobs:\n  a:\n    run: echo x\n    shell: bash\n";
    let workflow = format!("{:?}", windlass::graph::yaml::read("ci.yaml", text).unwrap());
    assert!(workflow.contains(KIND), "{workflow}");
}

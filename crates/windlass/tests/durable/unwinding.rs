//! Programs whose panics do not unwind.

use std::process::Command;
use windlass::Worker;

/// The check of the library is compiled with the settings of the program. Here it is compiled by itself, with both settings.
#[test]
fn slow_the_library_sees_whether_panics_unwind() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("main.rs"), folder.path().join("main"));
    let constant = concat!(env!("CARGO_MANIFEST_DIR"), "/src/durable/panic_strategy.rs");
    std::fs::write(&source, format!("include!({constant:?});\nfn main() {{ print!(\"{{UNWINDS}}\"); }}\n")).unwrap();
    for (strategy, unwinds) in [("unwind", "true"), ("abort", "false")] {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "-C", &format!("panic={strategy}"), "-o"]).arg(&program).arg(&source);
        assert!(rustc.status().unwrap().success());
        let output = Command::new(&program).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), unwinds, "{strategy}");
    }
}

/// The tests themselves unwind.
#[tokio::test]
async fn a_worker_with_workflows_is_built_where_panics_unwind() {
    Worker::builder(windlass::open("memory://").unwrap()).workflow(super::order).build().unwrap();
}

//! What the compiler says about mistakes: whoever reads it knows what to do.
//!
//! `TRYBUILD=overwrite cargo nextest run -p windlass-macros` writes the answers anew; read them before you keep them. The
//! test stands here and not beside its cases because it builds all that its crate depends on from nothing, and this one
//! can do without the stores.

/// The compiler whose words are kept; others say the same in other words.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn slow_compile_errors_say_what_to_do() {
    let version = std::process::Command::new("rustc").arg("--version").output().map(|output| output.stdout);
    let version = String::from_utf8_lossy(&version.unwrap_or_default()).into_owned();
    if !version.starts_with(COMPILER) {
        println!("not compared: the answers are those of {COMPILER}, this is {version}");
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.pass("../windlass/tests/compile/pass/*.rs");
    cases.compile_fail("../windlass/tests/compile/*.rs");
}

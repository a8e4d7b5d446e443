//! Tells the program under which cargo profile it is built: `windlass bench` prints it. Cargo names it nowhere but in the path.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // target/PROFILE/build/windlass-cli-HASH/out
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let profile = Path::new(&out).ancestors().nth(3).and_then(Path::file_name).and_then(|name| name.to_str());
    println!("cargo::rustc-env=WINDLASS_PROFILE={}", profile.unwrap_or("unknown"));
}

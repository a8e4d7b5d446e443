//! `windlass-crash`: see the library. Prints one line of JSON; exits with 1 when work was lost, doubled or made up.

use std::process::ExitCode;
use windlass_crash::{parse, play, usage};

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|arg| arg == "--help" || arg == "-h") {
        println!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let role = match parse(std::env::args().skip(1)) {
        Ok(role) => role,
        Err(message) => {
            eprintln!("error: {message}\n{}", usage());
            return ExitCode::from(2);
        }
    };
    match play(role) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    }
}

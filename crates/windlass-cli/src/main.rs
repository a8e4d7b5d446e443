//! The `windlass` command.

#![forbid(unsafe_code)]

mod app;
mod cli;
mod commands;
mod config;
mod draw_graph;
mod failure;
mod follow_code;
mod follow_run;
mod job_args;
mod json_arg;
mod many;
mod table;
mod terminal;
mod ui;
mod workflow_file;

use std::process::ExitCode;

use app::App;
use clap::Parser;
use cli::Cli;
use failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error),
    };
    let json = cli.global.json;
    match run(cli) {
        Ok(code) => code,
        Err(failure) => failure::report(&failure, json),
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let app = App::new(&cli)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(commands::run(cli.command, &app));
    // Whatever a command left behind must not keep the process from ending.
    runtime.shutdown_background();
    code.map_err(|failure| app.advise(failure))
}

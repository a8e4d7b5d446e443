//! What can be said on the command line.

use crate::commands;
use clap::{Args, Parser, Subcommand};

/// Background jobs that are never lost: operate any store, run the demo, measure.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = true, after_help = AFTER, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER: &str = "\
Examples:
  windlass demo                                          see it all, live, in this terminal
  windlass enqueue mail welcome '{\"to\":\"ada\"}'           one job
  windlass run ci.yml --local                            run a workflow, here and now
  windlass jobs list --state failed                      what went wrong
  windlass explain 0-01k9z3v8q2f7t8x6m5n4p3r2s1           why a job is not running
  windlass lint ci.yml && windlass plan ci.yml           look at a workflow before it is run
  windlass doctor                                        what is wrong, and what to do
  WINDLASS_STORE=sqlite://jobs.db windlass top           watch a store

Exit codes: 0 ok, 1 the work failed, 2 usage, 3 store unavailable, 4 not found, 5 conflict,
130 interrupted";

/// What every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The store, by its URL
    #[arg(
        help = "The store: sqlite://jobs.db, sqlite:///var/lib/app/jobs.db, redis://host:6379, rediss://…, redis+sentinel://…, redis+cluster://…, memory://",
        long,
        global = true,
        env = "WINDLASS_STORE",
        value_name = "URL",
        hide_env_values = true
    )]
    pub(crate) store: Option<String>,
    /// Machine-readable output: one JSON object a line; errors as JSON on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The commands, one file each.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(commands::demo::Demo),
    #[command(hide = true)]
    DemoWorker(commands::demo::DemoWorker),
    Enqueue(Box<commands::enqueue::Enqueue>),
    #[command(subcommand)]
    Jobs(commands::jobs::Jobs),
    #[command(subcommand)]
    Queues(commands::queues::Queues),
    #[command(subcommand)]
    Groups(commands::groups::Groups),
    Workers(commands::workers::Workers),
    #[command(subcommand)]
    Feed(commands::feed::Feed),
    #[command(subcommand)]
    Schedules(commands::schedules::Schedules),
    Lint(commands::lint::Lint),
    Plan(commands::plan::Plan),
    Schema(commands::schema::Schema),
    Run(Box<commands::run::Run>),
    #[command(subcommand)]
    Runs(commands::runs::Runs),
    Replay(commands::replay::Replay),
    Worker(Box<commands::worker::Worker>),
    Explain(commands::explain::Explain),
    Doctor(commands::doctor::Doctor),
    Top(commands::top::Top),
    Bench(commands::bench::Bench),
    Completions(commands::completions::Completions),
    Man(commands::man::Man),
}

impl Command {
    /// The doctor, if it is asked for: it takes the store's URL by itself, too.
    pub(crate) fn doctor(&self) -> Option<&commands::doctor::Doctor> {
        match self {
            Self::Doctor(doctor) => Some(doctor),
            _ => None,
        }
    }
}

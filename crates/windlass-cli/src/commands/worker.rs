//! `windlass worker`: runs the commands of workflows, and advances runs.

use crate::app::App;
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use windlass::Worker as LibraryWorker;
use windlass::command::{Commands, Limits};
use windlass::core::artifact::ArtifactStore;
use windlass::durable::start_workflow;
use windlass::runs::start_run;
use windlass_operate::text::count;
use windlass_operate::values::Span;

const AFTER: &str = "\
It advances runs of workflows, promotes what is due and takes back what dead workers held. With --allow-commands it also \
runs the commands of workflows: whoever may write to the store may then run anything as the user of this process. Handlers \
of other kinds are written in Rust, with the crate `windlass`.

SIGTERM or Ctrl-C: no new jobs, those that run are finished, for at most --drain; once more: at once.

Examples:
  windlass worker --allow-commands --queue default --labels linux,aws
  windlass worker --allow-commands --secret DEPLOY_KEY --pass CARGO_HOME --slots 4
  windlass worker                                        advances runs, and runs no command";

/// Run a worker: it takes jobs that run commands, and advances runs.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Worker {
    #[command(flatten)]
    commands: CommandArgs,
    /// Run commands of workflows; without it only runs are advanced
    #[arg(long)]
    allow_commands: bool,
    /// Look for work on this queue; may be repeated
    #[arg(long = "queue", value_name = "QUEUE", default_value = "default", value_delimiter = ',')]
    queues: Vec<String>,
    /// What this worker offers; jobs that require it may come here
    #[arg(long, value_name = "LABEL,…", value_delimiter = ',')]
    labels: Vec<String>,
    /// How many jobs run at once
    #[arg(long, value_name = "N", default_value_t = 4)]
    slots: usize,
    /// How long a job is taken to be in good hands without a word; it is renewed at a third of that
    #[arg(long, value_name = "TIME", default_value = "30s")]
    lease: Span,
    /// How long jobs that run may go on after the worker was asked to stop
    #[arg(long, value_name = "TIME", default_value = "25s")]
    drain: Span,
    /// Where each job gets a folder of its own; the system's place for temporary files when not said
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// Leave runs to other workers
    #[arg(long)]
    no_runs: bool,
}

/// How long a command may take to end when nothing else is said.
const GRACE: Duration = Duration::from_secs(5);

/// What commands are given, here and in a local run.
#[derive(Clone, Debug, Args)]
pub(crate) struct CommandArgs {
    /// Give this variable of the environment to commands, and hide its value in all that they say; may be repeated
    #[arg(long = "secret", value_name = "NAME")]
    secrets: Vec<String>,
    /// Give this variable of the environment to commands; may be repeated
    #[arg(long = "pass", value_name = "NAME")]
    passed: Vec<String>,
    /// How long a command may take to end when it is told to [default: 5s]
    #[arg(long, value_name = "TIME")]
    grace: Option<Span>,
    /// Where jobs hand files on to each other: a folder that all workers see
    #[arg(long, value_name = "URL")]
    artifacts: Option<String>,
    /// The most processor time of a step, in seconds
    #[arg(long, value_name = "SECONDS")]
    limit_cpu: Option<u64>,
    /// The most memory of a process of a step, in MiB
    #[arg(long, value_name = "MIB")]
    limit_memory: Option<u64>,
}

/// Opens a place for artifacts.
pub(crate) fn open_artifacts(url: &str) -> Result<Arc<dyn ArtifactStore>, Failure> {
    windlass::artifacts::open(url).map_err(|error| Failure::invalid(format!("--artifacts: {error}")))
}

impl CommandArgs {
    /// Whether it is said where artifacts go.
    pub(crate) fn has_artifacts(&self) -> bool {
        self.artifacts.is_some()
    }

    /// The first of these flags that was given.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        let flags = [
            ("--secret", !self.secrets.is_empty()),
            ("--pass", !self.passed.is_empty()),
            ("--grace", self.grace.is_some()),
            ("--artifacts", self.artifacts.is_some()),
            ("--limit-cpu", self.limit_cpu.is_some()),
            ("--limit-memory", self.limit_memory.is_some()),
        ];
        flags.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }

    /// What runs the commands. `command` is the one that was typed, for advice.
    pub(crate) fn commands(&self, command: &str) -> Result<Commands, Failure> {
        let mut commands = Commands::new().grace(self.grace.map_or(GRACE, Span::duration));
        for name in &self.secrets {
            let value = std::env::var(name).map_err(|_| {
                Failure::invalid(format!("the secret {name} is not in the environment"))
                    .hint(format!("set it: {name}=… {command} …"))
            })?;
            commands = commands.secret(name, value);
        }
        for name in &self.passed {
            commands = commands.pass(name);
        }
        if let Some(url) = &self.artifacts {
            commands = commands.artifacts(open_artifacts(url)?);
        }
        let limits = Limits {
            cpu_seconds: self.limit_cpu,
            address_space: self.limit_memory.map(|mib| mib.saturating_mul(1 << 20)),
            ..Limits::default()
        };
        Ok(commands.limits(limits))
    }
}

impl Worker {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        if self.no_runs && !self.allow_commands {
            return Err(Failure::invalid("with --no-runs and without --allow-commands there is nothing to do")
                .hint("say --allow-commands"));
        }
        let given = self.commands.first_given().or(self.work_dir.as_ref().map(|_| "--work-dir"));
        if let Some(flag) = given.filter(|_| !self.allow_commands) {
            return Err(Failure::invalid(format!("{flag} needs --allow-commands: without it, no command is run"))
                .hint(format!("add --allow-commands, or leave {flag} out")));
        }
        let commands = match self.allow_commands {
            true => Some(self.commands.commands("windlass worker --allow-commands")?),
            false => None,
        };
        let store = app.store()?;
        // The store is asked before anything is promised.
        store.now().await?;
        let mut builder = LibraryWorker::builder(Arc::clone(&store))
            .slots(self.slots)
            .drain_time(self.drain.duration())
            .lease(self.lease.duration());
        for queue in &self.queues {
            builder = builder.queue(queue);
        }
        for label in &self.labels {
            builder = builder.label(label);
        }
        builder = if self.no_runs { builder.without_runs() } else { builder.handle(start_run).handle(start_workflow) };
        if let Some(mut commands) = commands {
            if let Some(folder) = &self.work_dir {
                commands = commands.work_dir(folder);
            }
            builder = builder.commands(commands);
        }
        let worker = builder.build()?;
        app.ui.note(self.headline());
        let done = worker.run().await;
        store.close().await?;
        done?;
        Ok(ExitCode::SUCCESS)
    }

    fn headline(&self) -> String {
        let mut line = format!("working on {}", self.queues.join(", "));
        if !self.labels.is_empty() {
            line += &format!(", offers {}", self.labels.join(", "));
        }
        line += &format!("; {} at once", count(self.slots as u64, "job"));
        if !self.allow_commands {
            line += "; runs no commands without --allow-commands";
        }
        line + "; Ctrl-C stops"
    }
}

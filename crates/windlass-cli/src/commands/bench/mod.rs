//! `windlass bench`: how fast it is here, beside the least that the store costs.

mod cost;
mod drain;
mod durable;
mod durable_latency;
mod durable_sleepers;
mod enqueue;
mod graph;
mod groups;
mod haul;
mod latency;
mod mixed;
mod noop;
mod scale;
mod stand;

use crate::app::App;
use crate::failure::Failure;
use clap::{Args, CommandFactory, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use stand::{Common, Stand};
use std::process::ExitCode;
use windlass_bench::Line;

/// Measure enqueue, drain, latency, scale, graphs and durable workflows beside the bare minimum of the store
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Bench {
    #[command(subcommand)]
    scenario: Option<Scenario>,
}

const AFTER: &str = "\
Examples:
  windlass bench drain                                            on a temporary SQLite file
  windlass bench drain --store sqlite://bench.db --jobs 200000 --json
  windlass bench enqueue --bulk --store memory://
  windlass bench drain --store redis://127.0.0.1                  under a prefix that goes with it
  windlass bench graph --store memory://                          workflows, beside drain
  windlass bench durable --store redis://127.0.0.1                durable workflows of three calls
  windlass bench all --quick                                      a look at everything

Both sides of a ratio are measured one after the other in one run, and the medians of three rounds are shown: the speed
of a machine moves from minute to minute, the ratio hardly does. 1 is the floor: the least that the store costs, with
nothing around it. The store must be empty (or --force), and the jobs are removed afterwards.";

/// The cargo profile of this program; `debug` for the default one.
const PROFILE: &str = env!("WINDLASS_PROFILE");
const NOT_COMPARABLE: &str = "built with another profile than `dist`: its ratios cannot be compared with published ones; \
                              build it with cargo build --profile dist";

#[derive(Debug, Subcommand)]
enum Scenario {
    Enqueue(enqueue::Enqueue),
    Drain(drain::Drain),
    Latency(latency::Latency),
    Mixed(mixed::Mixed),
    Scale(scale::Scale),
    Groups(groups::Groups),
    Graph(graph::Graph),
    Durable(durable::Durable),
    All(All),
}

/// All of them, one after the other
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  windlass bench all --quick\n  windlass bench all --store sqlite://bench.db --json"
)]
struct All {
    #[command(flatten)]
    common: Common,
}

impl Bench {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        match self.scenario {
            None => list(app)?,
            Some(Scenario::All(all)) => {
                for scenario in all.scenarios() {
                    scenario.show(app).await?;
                }
            }
            Some(Scenario::Graph(graph)) => {
                for part in graph.parts() {
                    Scenario::Graph(part).show(app).await?;
                }
            }
            Some(scenario) => scenario.show(app).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl All {
    fn scenarios(&self) -> Vec<Scenario> {
        let common = || self.common.clone();
        let graphs = graph::Graph::new(common()).parts().into_iter().map(Scenario::Graph);
        let others = [
            Scenario::Enqueue(enqueue::Enqueue::new(common(), false)),
            Scenario::Enqueue(enqueue::Enqueue::new(common(), true)),
            Scenario::Drain(drain::Drain::new(common())),
            Scenario::Latency(latency::Latency::new(common())),
            Scenario::Mixed(mixed::Mixed::new(common())),
            Scenario::Scale(scale::Scale::new(common())),
            Scenario::Groups(groups::Groups::new(common())),
        ];
        let durable = Scenario::Durable(durable::Durable::new(common()));
        others.into_iter().chain(graphs).chain([durable]).collect()
    }
}

impl Scenario {
    fn common(&self) -> &Common {
        match self {
            Self::Enqueue(enqueue) => &enqueue.common,
            Self::Drain(drain) => &drain.common,
            Self::Latency(latency) => &latency.common,
            Self::Mixed(mixed) => &mixed.common,
            Self::Scale(scale) => &scale.common,
            Self::Groups(groups) => &groups.common,
            Self::Graph(graph) => &graph.common,
            Self::Durable(durable) => &durable.common,
            Self::All(all) => &all.common,
        }
    }

    /// Measures on a store that is left as it was, whatever happens, and shows what was found.
    async fn show(&self, app: &App) -> Result<(), Failure> {
        // Where the cost of growth is the question, the wait for the disk would hide it.
        let durable = match self {
            Self::Scale(_) | Self::Groups(_) => false,
            Self::Graph(graph) => !graph.is_about_growth(),
            _ => true,
        };
        let stand = Stand::open(app, self.common(), durable).await?;
        let measured = tokio::select! {
            measured = self.measure(&stand) => measured,
            _ = tokio::signal::ctrl_c() => {
                stand.end().await;
                Err(Failure::interrupted())
            }
        };
        let cleared = match self {
            Self::Graph(_) => graph::Graph::clear(&stand).await,
            _ => stand.clear().await,
        };
        let line = measured?.with("profile", PROFILE);
        cleared?;
        if PROFILE != "dist" {
            app.ui.note(NOT_COMPARABLE);
        }
        if app.ui.json { app.ui.json(&line) } else { app.ui.line(format_args!("{}\n", table(&line))) }
    }

    async fn measure(&self, stand: &Stand) -> Result<Line, Failure> {
        match self {
            Self::Enqueue(enqueue) => enqueue.measure(stand).await,
            Self::Drain(drain) => drain.measure(stand).await,
            Self::Latency(latency) => latency.measure(stand).await,
            Self::Mixed(mixed) => mixed.measure(stand).await,
            Self::Scale(scale) => scale.measure(stand).await,
            Self::Groups(groups) => groups.measure(stand).await,
            Self::Graph(graph) => graph.measure(stand).await,
            Self::Durable(durable) => durable.measure(stand).await,
            Self::All(_) => Err(Failure::invalid("all of them are no single scenario")),
        }
    }
}

fn table(line: &Line) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, figure) in line.figures() {
        table.add_row([(*name).to_owned(), figure.text()]);
    }
    if let Some(figures) = table.column_mut(1) {
        figures.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What can be measured, as the help says it.
fn list(app: &App) -> Result<(), Failure> {
    let command = Scenarios::command();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for scenario in command.get_subcommands() {
        let (name, about) = (scenario.get_name(), scenario.get_about().map(ToString::to_string).unwrap_or_default());
        if app.ui.json {
            app.ui.json(&serde_json::json!({ "scenario": name, "about": about }))?;
        } else {
            table.add_row([name, about.as_str()]);
        }
    }
    if !app.ui.json {
        app.ui.line(table)?;
        app.ui.note("windlass bench SCENARIO --help says more");
    }
    Ok(())
}

/// The scenarios as a command of their own, to be listed.
#[derive(Debug, clap::Parser)]
struct Scenarios {
    #[command(subcommand)]
    _scenario: Scenario,
}

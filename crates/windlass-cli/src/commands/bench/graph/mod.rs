//! `windlass bench graph`.

mod lot;
mod shape;

use super::haul::Haul;
use super::noop::Noop;
use super::scale::sizes;
use super::stand::{Common, Stand};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use lot::Lot;
use shape::Shape;
use windlass_bench::{Figure, Line, Stopwatch, median};

/// Run graphs of jobs that do nothing, through the real worker and its engine
///
/// From the first start until the store has said that the last run has ended; that every run has succeeded and every node
/// was run exactly once is checked. `ratio` is to `drain` of the same store, measured in turn: the same jobs without a
/// graph. Without a PART, all of them, a line each.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  windlass bench graph --store memory://\n  windlass bench graph chains --store sqlite://bench.db --json\n  windlass bench graph size --jobs 100000\n  windlass bench graph plan"
)]
pub(crate) struct Graph {
    #[command(flatten)]
    pub(super) common: Common,
    /// Which graphs
    #[arg(value_name = "PART", value_enum)]
    part: Option<Part>,
    /// How many jobs the worker runs at once
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    slots: u32,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Graphs of 1,000 nodes, 1 → 998 → 1: 20 at once, and one alone
    Diamond,
    /// 1,000 chains of 10 nodes at once
    Chains,
    /// 2,000 graphs of 1 node after 10 others
    Flows,
    /// What a node costs in diamonds of 10, 100, 1,000 and 10,000 nodes, with 20,000 nodes in all
    Size,
    /// Reading and checking a workflow of 10,000 nodes and 50,000 needs; no store takes part
    Plan,
}

/// How much is drained to compare with.
const DRAINED: u32 = 100_000;
/// The largest graph.
const LARGEST: u32 = 10_000;

impl Graph {
    pub(super) fn new(common: Common) -> Self {
        Self { common, part: None, slots: 1_000 }
    }

    /// One for each line.
    pub(super) fn parts(self) -> Vec<Self> {
        let parts = self.part.map_or_else(|| Part::value_variants().to_vec(), |part| vec![part]);
        let (common, slots) = (self.common, self.slots);
        parts.into_iter().map(|part| Self { common: common.clone(), part: Some(part), slots }).collect()
    }

    /// The growth of costs is the question: the wait for the disk would hide it.
    pub(super) fn is_about_growth(&self) -> bool {
        self.part == Some(Part::Size)
    }

    pub(super) async fn measure(&self, stand: &Stand) -> Result<Line, Failure> {
        match self.part {
            Some(Part::Diamond) => {
                let lot = self.lot(Shape::Diamond, 1_000, 20_000)?;
                let alone = self.times(stand, &lot.clone().runs(1)).await?;
                let per_s = f64::from(lot.nodes()) / median(alone);
                Ok(self.beside_drain(stand, "diamond", &lot).await?.with("alone_per_s", per_s))
            }
            Some(Part::Chains) => self.beside_drain(stand, "chains", &self.lot(Shape::Chain, 10, 10_000)?).await,
            Some(Part::Flows) => self.beside_drain(stand, "flows", &self.lot(Shape::Flow, 11, 22_000)?).await,
            Some(Part::Size) => self.size(stand).await,
            Some(Part::Plan) => self.plan(stand),
            None => Err(Failure::invalid("all parts are no single line")),
        }
    }

    /// Removes what was left, whether or not it has ended.
    pub(super) async fn clear(stand: &Stand) -> Result<(), Failure> {
        lot::clear(stand).await
    }

    fn lot(&self, shape: Shape, nodes: u32, jobs: u32) -> Result<Lot, Failure> {
        Ok(Lot::new(shape, nodes, self.common.jobs(jobs))?.slots(self.slots))
    }

    async fn times(&self, stand: &Stand, lot: &Lot) -> Result<Vec<f64>, Failure> {
        let mut times = Vec::new();
        for _ in 0..self.common.rounds() {
            times.push(lot.work_off(stand).await?);
        }
        Ok(times)
    }

    async fn beside_drain(&self, stand: &Stand, part: &str, lot: &Lot) -> Result<Line, Failure> {
        let (mut ours, mut drain) = (Vec::new(), Vec::new());
        for _ in 0..self.common.rounds() {
            ours.push(f64::from(lot.jobs()) / lot.work_off(stand).await?);
            drain.push(self.drain(stand).await?);
        }
        let (ours, drain) = (median(ours), median(drain));
        let line = self.line(stand, part, lot.jobs()).with("slots", self.slots);
        let line = line.with("runs", lot.count()).with("nodes", lot.nodes()).with("node_us", 1e6 / ours);
        Ok(line.with("jobs_per_s", ours).with("drain_per_s", drain).with("ratio", ours / drain))
    }

    fn line(&self, stand: &Stand, part: &str, jobs: u32) -> Line {
        Line::new("graph", &stand.ground.kind).with("part", part).with("jobs", jobs)
    }

    /// What `windlass bench drain` does.
    async fn drain(&self, stand: &Stand) -> Result<f64, Failure> {
        let jobs = self.common.jobs(DRAINED);
        stand.fresh_queue().await?;
        stand.fill(jobs).await?;
        let ended = Haul { jobs, slots: self.slots }.work_off(stand, |worker| worker.handle(nothing)).await?;
        stand.check_succeeded(jobs).await?;
        stand.clear().await?;
        Ok(f64::from(jobs) / ended.seconds)
    }

    async fn size(&self, stand: &Stand) -> Result<Line, Failure> {
        let jobs = self.common.jobs(20_000);
        let sizes = sizes(10, jobs.min(LARGEST));
        let lots = sizes.iter().map(|nodes| self.lot(Shape::Diamond, *nodes, 20_000));
        let lots = lots.collect::<Result<Vec<Lot>, Failure>>()?;
        let mut rounds = Vec::new();
        for _ in 0..self.common.rounds() {
            let mut round = Vec::new();
            for lot in &lots {
                round.push(lot.work_off(stand).await? / f64::from(lot.jobs()) * 1e6);
            }
            rounds.push(round);
        }
        let at = |n: usize| median(rounds.iter().filter_map(|round| round.get(n).copied()).collect());
        let costs: Vec<f64> = (0..lots.len()).map(at).collect();
        let growth = costs.last().zip(costs.first()).map_or(1.0, |(last, first)| last / first);
        let sizes = Figure::Counts(sizes.into_iter().map(u64::from).collect());
        let line = self.line(stand, "size", jobs).with("slots", self.slots).with("nodes", sizes);
        Ok(line.with("node_us", Figure::Reals(costs)).with("growth", growth))
    }

    fn plan(&self, stand: &Stand) -> Result<Line, Failure> {
        let nodes = self.common.jobs(LARGEST).min(LARGEST);
        let text = Shape::Dense.text(nodes);
        let (mut read, mut check, mut needs) = (Vec::new(), Vec::new(), 0);
        for _ in 0..self.common.rounds() {
            let watch = Stopwatch::start();
            let graph = shape::read(&text)?;
            read.push(watch.seconds() * 1e3);
            let watch = Stopwatch::start();
            graph.check().map_err(|fault| Failure::failed(fault.to_string()))?;
            check.push(watch.seconds() * 1e3);
            needs = graph.nodes.iter().map(|node| node.needs.len()).sum();
        }
        let line = self.line(stand, "plan", nodes).with("needs", needs).with("bytes", text.len());
        Ok(line.with("read_ms", median(read)).with("check_ms", median(check)))
    }
}

async fn nothing(_: Noop) {}

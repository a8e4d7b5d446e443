//! What the server of a store spends while something is measured. Stores without a server have nothing to say.

use crate::floor::{Bare, FloorError};
use crate::line::Line;
use crate::server::{Reading, Server, Spent};
use crate::time::median;

/// Reads the server's figures from when it was made.
#[derive(Debug)]
pub struct Meter<'a>(Option<(&'a Server, Reading)>);

impl<'a> Meter<'a> {
    pub(crate) fn start(server: Option<&'a Server>) -> Result<Self, FloorError> {
        let Some(server) = server else { return Ok(Self(None)) };
        // What was removed before is freed in the background, and would be counted here.
        server.memory()?;
        Ok(Self(Some((server, server.read()?))))
    }

    /// What was spent on each of `jobs` jobs since.
    pub fn stop(&self, jobs: u32) -> Result<Option<Spent>, FloorError> {
        let since = |(server, before): &(&Server, Reading)| Ok(server.read()?.since(before, jobs as usize));
        self.0.as_ref().map(since).transpose()
    }
}

/// What the rounds of a scenario have spent, ours and the floor's.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    ours: Vec<Spent>,
    floor: Vec<Spent>,
    bytes: Vec<f64>,
}

impl Spending {
    /// Notes what a round of the store has spent.
    pub fn note(&mut self, ours: Option<Spent>) {
        self.ours.extend(ours);
    }

    /// Notes what a round of the floor has spent; answers its jobs per second.
    pub fn note_floor(&mut self, floor: Bare) -> f64 {
        self.floor.extend(floor.spent);
        floor.per_s
    }

    /// Notes how many bytes a job that waits takes.
    pub fn note_bytes(&mut self, bytes: Option<f64>) {
        self.bytes.extend(bytes);
    }

    /// The medians; nothing of what there is none.
    pub(crate) fn onto(&self, mut line: Line) -> Line {
        let of = |all: &[Spent], pick: fn(&Spent) -> f64| median(all.iter().map(pick).collect());
        if !self.ours.is_empty() {
            line = line.with("redis_cpu_us_per_job", of(&self.ours, |spent| spent.cpu_us));
            line = line.with("redis_commands_per_job", of(&self.ours, |spent| spent.commands));
            line = line.with("redis_reads_per_job", of(&self.ours, |spent| spent.reads));
        }
        if !self.floor.is_empty() {
            line = line.with("floor_cpu_us_per_job", of(&self.floor, |spent| spent.cpu_us));
            line = line.with("floor_commands_per_job", of(&self.floor, |spent| spent.commands));
        }
        if !self.bytes.is_empty() {
            line = line.with("bytes_per_job", median(self.bytes.clone()));
        }
        line
    }
}

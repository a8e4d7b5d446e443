//! The stores alone, without the runtime.

mod growth;
mod load;
mod redis;
mod scenarios;

use std::path::PathBuf;
use windlass_bench::{Line, Stopwatch};
use windlass_servers::Redis;

pub(crate) use scenarios::ALL;

/// How to measure.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) quick: bool,
    pub(crate) dir: Option<PathBuf>,
    /// A server that is there already; else each scenario starts its own.
    pub(crate) redis: Option<String>,
    /// Only this store, where a scenario has several.
    pub(crate) only: Option<String>,
}

impl Settings {
    /// `n`, or a tenth of it.
    fn jobs(&self, n: usize) -> usize {
        if self.quick { n / 10 } else { n }
    }

    fn rounds(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    /// A fresh folder on the file system that is to be measured.
    fn folder(&self) -> tempfile::TempDir {
        match &self.dir {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir(),
        }
        .unwrap()
    }

    fn wants(&self, store: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == store)
    }

    /// The URL of a server, and the server when it is our own: it goes with its handle.
    fn server(&self) -> (String, Option<Redis>) {
        match &self.redis {
            Some(url) => (url.clone(), None),
            None => {
                let private = Redis::start().unwrap();
                (private.url(), Some(private))
            }
        }
    }

    /// The median of what `measure` says.
    fn median(&self, mut measure: impl FnMut() -> f64) -> f64 {
        windlass_bench::median((0..self.rounds()).map(|_| measure()).collect())
    }
}

/// Seconds that `work` takes.
fn seconds(work: impl FnOnce()) -> f64 {
    let watch = Stopwatch::start();
    work();
    watch.seconds()
}

/// `n` as a number to divide.
fn real(n: usize) -> f64 {
    n as f64
}

fn print(line: &Line) {
    println!("{}", serde_json::to_string(line).unwrap());
}

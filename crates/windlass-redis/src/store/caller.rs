//! How the store speaks to its scripts.

use crate::keys::Keys;
use crate::link::{Call, Link, Script, Value};
use crate::options::{Options, Topology};
use crate::reply::Items;
use std::fmt;
use std::sync::Arc;
use windlass_core::Result;
use windlass_core::engine::Signals;
use windlass_core::time::Clock;

/// What a call needs; shared with the tasks that call for others.
pub(crate) struct Caller {
    pub(crate) link: Link,
    pub(crate) keys: Keys,
    /// Those of this version, unless a test brings others.
    pub(super) scripts: &'static [Script],
    /// The server's, unless a test brings its own.
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) signals: Signals,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("link", &self.link).finish_non_exhaustive()
    }
}

impl Caller {
    pub(super) fn options(&self) -> &Options {
        self.link.options()
    }

    /// Begins a call with the arguments that every script has.
    pub(super) fn script(&self, at: usize) -> Call<'static> {
        self.script_over(at, self.keys.all())
    }

    pub(super) fn script_over(&self, at: usize, keys: &[String]) -> Call<'static> {
        let mut call = Call::new(&self.scripts[at], keys);
        match &self.clock {
            Some(clock) => call.arg_fmt(clock.now().as_ms()),
            None => call.arg(""),
        };
        call.arg(self.keys.bell());
        // On a cluster a plain message would be told to every node.
        let cluster = matches!(self.options().topology, Topology::Cluster { .. });
        call.arg(if cluster { "SPUBLISH" } else { "PUBLISH" });
        call
    }

    pub(super) async fn run(&self, call: Call<'static>) -> Result<Value> {
        self.signals.check_open()?;
        self.link.call(&call).await
    }

    /// The same for a change that replicas are to have before it is acknowledged, if the store was opened so.
    pub(super) async fn run_durably(&self, call: Call<'static>) -> Result<Value> {
        self.signals.check_open()?;
        self.link.durable_call(&call).await
    }

    pub(super) async fn items(&self, call: Call<'static>) -> Result<Items> {
        Items::of(self.run(call).await?)
    }
}

//! The whole suite on a cluster: three primaries with a replica each, the stores spread over their slots.

#![allow(clippy::unwrap_used, reason = "a test that cannot begin should stop")]

mod support;

use support::suite::{On, run_all};
use windlass_servers::Cluster;

#[test]
fn slow_the_whole_suite_passes_on_a_cluster() {
    // A busy machine is no reason to change a primary in the middle of a case.
    let cluster = Cluster::builder(3, 1).config("cluster-node-timeout", "60000").start().unwrap();
    run_all(On { url: cluster.url(), scripts: Box::new(windlass_redis::scripts::all) });
}

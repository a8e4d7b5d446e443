//! How fast the link is. Nothing is asserted: run it in release and read.

use crate::server::Server;
use std::sync::LazyLock;
use std::time::Instant;
use tokio::task::JoinSet;
use windlass_redis::link::{Call, Link, Script};
use windlass_redis::options::Options;

static SCRIPTS: LazyLock<Vec<Script>> =
    LazyLock::new(|| vec![Script::new("incr", "return redis.call('INCRBY', KEYS[1], ARGV[1])")]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_speed_of_calls() {
    let server = Server::start(&[]);
    let link = Link::open(Options::from_url(&server.url()).unwrap(), &SCRIPTS).unwrap();
    for tasks in [1_u32, 8, 64, 256] {
        let each = 40_000 / tasks;
        let begun = Instant::now();
        let mut all = JoinSet::new();
        for _ in 0..tasks {
            let link = link.clone();
            all.spawn(async move {
                for _ in 0..each {
                    let mut call = Call::new(&SCRIPTS[0], &["{windlass}:n"]);
                    call.arg_fmt(1);
                    link.call(&call).await.unwrap();
                }
            });
        }
        while let Some(done) = all.join_next().await {
            done.unwrap();
        }
        let took = begun.elapsed();
        let calls = f64::from(tasks * each);
        println!(
            "{tasks} tasks: {:.0} calls/s, {:.1} µs each",
            calls / took.as_secs_f64(),
            took.as_secs_f64() * 1e6 * f64::from(tasks) / calls
        );
    }
}

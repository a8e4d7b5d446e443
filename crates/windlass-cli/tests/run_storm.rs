//! Workers and engines are killed at any moment, and every run still ends as it should.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::process::Child;
use std::time::Duration;
use support::{Scene, wait};
use windlass::core::random::{Random, StrongRandom};
use windlass::core::store::{RunList, RunState};
use windlass::runs::Runs;
use windlass_servers::Redis;

/// Every node adds to what those before it left, so that a wrong result shows in the last output.
const GRAPH: &str = "
jobs:
  a: { outputs: [n], run: 'sleep 0.05; echo n=1 >> $WINDLASS_OUTPUT' }
  b: { needs: a, outputs: [n], run: 'sleep 0.05; echo n=$((NEEDS_A_N + 10)) >> $WINDLASS_OUTPUT' }
  c: { needs: a, outputs: [n], run: 'sleep 0.05; echo n=$((NEEDS_A_N + 100)) >> $WINDLASS_OUTPUT' }
  d:
    needs: [b, c]
    outputs: [n]
    run: 'sleep 0.05; echo n=$((NEEDS_B_N + NEEDS_C_N)) >> $WINDLASS_OUTPUT'
";

struct Fleet<'s> {
    scene: &'s Scene,
    store: String,
    workers: Vec<Child>,
}

impl Fleet<'_> {
    fn start(&mut self) {
        let args = ["worker", "--allow-commands", "--slots", "4", "--lease", "3s", "--store", &self.store];
        let mut command = self.scene.command(&args);
        // Nobody reads what they say, and a full pipe would stop them.
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        self.workers.push(command.spawn().unwrap());
    }

    fn kill(&mut self, at: usize) {
        let mut worker = self.workers.swap_remove(at);
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Starts runs, kills workers, and answers how many were killed when all runs had ended rightly.
fn storm(scene: &Scene, url: &str) -> u64 {
    std::fs::write(scene.path("graph.yml"), GRAPH).unwrap();
    let (wanted, kills_max) = (number("WINDLASS_STORM_RUNS", 20), number("WINDLASS_STORM_KILLS", 8));
    let random = StrongRandom::from_system();
    let mut fleet = Fleet { scene, store: url.to_owned(), workers: Vec::new() };
    (0..3).for_each(|_| fleet.start());
    for _ in 0..wanted {
        scene.run(&["run", "graph.yml", "--detach", "--store", url]).ok();
    }
    let store = windlass::open(url).unwrap();
    let runs = Runs::new(std::sync::Arc::clone(&store));
    let mut kills = 0;
    let ended = wait(async {
        loop {
            let all = RunList::new(1_000);
            let all = store.list_runs(all).await.unwrap().runs;
            if kills >= kills_max && all.iter().all(|run| run.state.is_terminal()) {
                break all;
            }
            if kills < kills_max {
                let at = usize::try_from(random.next_u64() % 3).unwrap();
                fleet.kill(at);
                fleet.start();
                kills += 1;
            }
            // sleeps because: between two kills somebody must get to work.
            tokio::time::sleep(Duration::from_millis(100 + random.next_u64() % 500)).await;
        }
    });
    assert_eq!(ended.len() as u64, wanted);
    wait(async {
        for run in ended {
            let status = runs.status(run.id).await.unwrap().unwrap();
            assert_eq!(run.state, RunState::Succeeded, "{run:?}: {:?}", status.progress);
            assert_eq!(status.progress.nodes[3].outputs["n"], "112", "{:?}", status.progress);
            for node in &status.progress.nodes {
                assert_eq!(node.instances.len(), 1, "each node is enqueued once");
            }
        }
        store.close().await.unwrap();
    });
    kills
}

#[test]
fn killed_workers_and_engines_only_delay_runs() {
    let scene = Scene::new();
    let url = format!("sqlite://{}", scene.path("storm.db").display());
    let kills = storm(&scene, &url);
    println!("sqlite: {kills} kills, wrong results 0");
}

#[test]
fn killed_workers_and_engines_only_delay_runs_on_redis() {
    let (scene, server) = (Scene::new(), Redis::start().unwrap());
    let kills = storm(&scene, &server.url());
    println!("redis: {kills} kills, wrong results 0");
}

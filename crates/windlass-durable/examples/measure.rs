//! Figures of the executor: `cargo run --release -p windlass-durable --example measure`.
#![expect(clippy::disallowed_methods, reason = "it measures real time")]
#![allow(missing_docs, reason = "a program")]

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::id::{JobId, RunId};
use windlass_core::time::Timestamp;
use windlass_durable::{
    AnyWorkflow, Body, CallError, Item, ItemBody, Job, Limits, NoHost, Opening, Record, Run, Start, Stuck, join_all,
    select, untyped,
};

#[derive(Serialize, Deserialize)]
struct Charge {
    id: u64,
    text: String,
}

impl Job for Charge {
    const KIND: &'static str = "charge";
    type Output = u64;
}

fn charge(id: u64) -> Charge {
    Charge { id, text: "a payload of some length".into() }
}

fn opening(workflow: &Arc<dyn AnyWorkflow>, n: u64, history: Vec<Record>) -> Opening {
    Opening {
        workflow: workflow.clone(),
        id: RunId::from_parts(0, u128::MAX / 3),
        input: n.to_string().into(),
        created_at: at(0),
        host: Arc::new(NoHost { build: "1.4.0+9f2c17aa".into() }),
        limits: Limits::default(),
        first: 0,
        history,
    }
}

/// A time of today's size.
fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(1_763_496_000_000 + ms)
}

fn ended(job: JobId, at: Timestamp) -> Item {
    let outcome = Body::of(&7).map_err(|error| CallError::failed(error.to_string()));
    Item { number: None, at, body: ItemBody::JobEnded { job, outcome } }
}

/// Runs a workflow to its end, each call ending at once.
fn history(workflow: &Arc<dyn AnyWorkflow>, n: u64, batch: usize) -> Result<(Vec<Record>, Duration), Stuck> {
    let start = Instant::now();
    let mut run = Run::open(opening(workflow, n, Vec::new()))?;
    let (mut history, mut items, mut now) = (Vec::new(), VecDeque::new(), 0);
    loop {
        let turn = run.turn(items.drain(..items.len().min(batch)).collect(), at(now))?;
        history.extend(turn.records);
        for start in turn.starts {
            now += 1;
            let Start::Job { job, .. } = start else { continue };
            items.push_back(ended(job, at(now)));
        }
        if turn.ended.is_some() || items.is_empty() {
            return Ok((history, start.elapsed()));
        }
    }
}

fn best<R>(times: usize, mut measured: impl FnMut() -> R) -> Duration {
    let once = |_| {
        let start = Instant::now();
        let result = measured();
        let elapsed = start.elapsed();
        drop(result);
        elapsed
    };
    (0..times).map(once).min().unwrap_or_default()
}

/// Runs to the end, then measures a cold replay from bytes.
fn replay(name: &str, workflow: &Arc<dyn AnyWorkflow>, n: u64, batch: usize) -> Result<(), Stuck> {
    let (history, live) = history(workflow, n, batch)?;
    let bytes: Vec<Vec<u8>> = history.iter().map(Record::encode).collect();
    let size: usize = bytes.iter().map(Vec::len).sum();
    let cold = best(5, || {
        let history = windlass_durable::decode_history(&bytes).unwrap_or_default();
        Run::open(opening(workflow, n, history))
    });
    let (records, per_record) = (history.len(), size / history.len());
    let rate = records as f64 / cold.as_secs_f64() / 1e6;
    println!(
        "{name:>5} {n:>6} calls {records:>7} records {per_record:>4} B/record: live {live:>9.2?}, cold {cold:>9.2?} = {rate:.2} M records/s"
    );
    Ok(())
}

/// The cost of one more step of a run that is kept in memory.
fn cached(workflow: &Arc<dyn AnyWorkflow>, before: u64) -> Result<(), Stuck> {
    let mut run = Run::open(opening(workflow, u64::MAX, Vec::new()))?;
    let mut turn = run.turn(Vec::new(), at(0))?;
    let mut start = Instant::now();
    for i in 0..before + 1_000 {
        if i == before {
            start = Instant::now();
        }
        let Some(Start::Job { job, .. }) = turn.starts.first() else { break };
        turn = run.turn(vec![ended(*job, at(1))], at(1))?;
    }
    println!("{:>7} events: {:.2?} per step", 2 * before, start.elapsed() / 1_000);
    Ok(())
}

fn main() -> Result<(), Stuck> {
    let sequence = untyped("sequence@1", |wf, n| async move {
        let mut sum = 0u64;
        for i in 0..n.as_u64().unwrap_or_default() {
            sum += wf.call(charge(i)).await?;
        }
        Ok(json!(sum))
    });
    let wide = untyped("wide@1", |wf, n| async move {
        let all = join_all((0..n.as_u64().unwrap_or_default()).map(|i| wf.call(charge(i)))).await;
        Ok(json!(all.len()))
    });
    println!("-- cold replay: decode and replay");
    for n in [10, 100, 1_000, 5_000, 50_000] {
        replay("seq", &sequence, n, 1)?;
    }
    for n in [1_000, 10_000, 100_000] {
        replay("join", &wide, n, 1_000)?;
    }
    println!("-- one more step of a cached run");
    for before in [5, 5_000, 50_000] {
        cached(&sequence, before)?;
    }
    println!("-- a sleeping run in memory");
    let sleeper = untyped("sleeper@1", |wf, _| async move {
        select! { time = wf.sleep("30d") => time?, call = wf.call(charge(1)) => drop(call?) }
        Ok(json!(0))
    });
    let mut run = Run::open(opening(&sleeper, 0, Vec::new()))?;
    let turn = run.turn(Vec::new(), at(0))?;
    let stored: usize = turn.records.iter().map(|record| record.encode().len()).sum();
    println!("{} B estimated in memory, {stored} B of history", run.memory_bytes());
    Ok(())
}

//! Runs polled by plain threads, their local steps woken by a tokio runtime: no wake is lost, and every history replays.
#![expect(clippy::disallowed_methods, reason = "the test is the owner of its tasks, and its runs take real time")]

use super::support::{body, mix, opening};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};
use windlass_core::id::RunId;
use windlass_core::time::{HANG_GUARD, Timestamp};
use windlass_durable::{
    AnyWorkflow, Body, BoxFuture, End, Entry, Error, Host, Item, ItemBody, Job, Opening, Record, Run, Signal, Start,
    Stuck, Wf, join_all, select, untyped,
};

const RUNS: u64 = 300;

#[derive(Serialize, Deserialize)]
struct Work(u64);

impl Job for Work {
    const KIND: &'static str = "work";
    type Output = u64;
}

#[derive(Serialize, Deserialize, Signal)]
#[signal(crate = windlass_durable)]
struct Go(u64);

struct Entrant {
    run: Option<Run>,
    history: Vec<Record>,
    end: Option<Result<End, Stuck>>,
    input: Body,
}

#[derive(Default)]
struct Queue {
    ids: VecDeque<RunId>,
    queued: HashSet<RunId>,
    stop: bool,
    ended: u64,
}

struct Engine {
    /// For hosts and tasks, which must not keep the engine.
    weak: Weak<Self>,
    handle: tokio::runtime::Handle,
    workflow: Arc<dyn AnyWorkflow>,
    runs: HashMap<RunId, Mutex<Entrant>>,
    /// Not under the lock of the run: items come while it is polled.
    inboxes: Mutex<HashMap<RunId, VecDeque<Item>>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    start: Instant,
    evictions: AtomicUsize,
}

struct EngineHost(Weak<Engine>, tokio::runtime::Handle);

impl Host for EngineHost {
    fn build(&self) -> &str {
        "b1"
    }

    fn seed(&self, _run: RunId, number: u64) -> u64 {
        mix(number)
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        let _runtime = self.1.enter();
        poll();
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time)) // sleeps because: it is the timer of steps
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.1.spawn_blocking(work);
    }

    fn notify(&self, run: RunId) {
        if let Some(engine) = self.0.upgrade() {
            engine.enqueue(run);
        }
    }
}

impl Engine {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(i64::try_from(self.start.elapsed().as_millis()).unwrap())
    }

    fn enqueue(&self, id: RunId) {
        let mut queue = self.queue.lock().unwrap();
        if queue.queued.insert(id) {
            queue.ids.push_back(id);
            self.changed.notify_all();
        }
    }

    fn send(&self, id: RunId, item: ItemBody) {
        let item = Item { number: Some(1), at: self.now(), body: item };
        self.inboxes.lock().unwrap().entry(id).or_default().push_back(item);
        self.enqueue(id);
    }

    /// Calls `act` after so many milliseconds.
    fn later(&self, ms: u64, act: impl FnOnce(&Self) + Send + 'static) {
        let weak = self.weak.clone();
        self.handle.spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await; // sleeps because: the runs are woken in real time
            if let Some(engine) = weak.upgrade() {
                act(&engine);
            }
        });
    }

    fn work(&self) {
        while let Some(id) = self.next() {
            // One thread polls a run at a time; one that comes second goes on with another run.
            let Ok(mut entrant) = self.runs[&id].try_lock() else {
                std::thread::yield_now();
                self.enqueue(id);
                continue;
            };
            if entrant.end.is_some() {
                continue;
            }
            if let Err(stuck) = self.advance(id, &mut entrant) {
                entrant.end = Some(Err(stuck));
                entrant.run = None;
            }
            if entrant.end.is_some() {
                self.queue.lock().unwrap().ended += 1;
                self.changed.notify_all();
            }
        }
    }

    fn next(&self) -> Option<RunId> {
        let queue = self.queue.lock().unwrap();
        let mut queue = self.changed.wait_while(queue, |queue| !queue.stop && queue.ids.is_empty()).unwrap();
        let id = queue.ids.pop_front().filter(|_| !queue.stop)?;
        queue.queued.remove(&id);
        Some(id)
    }

    fn opening(&self, id: RunId, entrant: &Entrant) -> Opening {
        let host = Arc::new(EngineHost(self.weak.clone(), self.handle.clone()));
        let base = opening(&self.workflow, entrant.history.clone());
        Opening { id, input: entrant.input.to_bytes(), host, ..base }
    }

    fn advance(&self, id: RunId, entrant: &mut Entrant) -> Result<(), Stuck> {
        let mut run = match entrant.run.take() {
            Some(run) => run,
            None => Run::open(self.opening(id, entrant))?,
        };
        let items = self.inboxes.lock().unwrap().get_mut(&id).map(|items| items.drain(..).collect());
        let mut turn = run.turn(items.unwrap_or_default(), self.now())?;
        loop {
            // "Commit", then carry out.
            entrant.history.extend(turn.records);
            turn.starts.into_iter().for_each(|start| self.start_job(id, start));
            if let Some(end) = turn.ended {
                entrant.end = Some(Ok(end));
                return Ok(());
            }
            if !run.has_steps() {
                break;
            }
            turn = run.poll_steps(self.now())?;
            if turn.records.is_empty() {
                break;
            }
        }
        if let Some(at) = run.next_timer() {
            self.later(at.ms_since(self.now()) + 1, move |engine| engine.enqueue(id));
        }
        // Now and then it is evicted; a local step in flight is then repeated.
        if mix(entrant.history.len() as u64 ^ u64::from(self.start.elapsed().subsec_nanos())).is_multiple_of(8) {
            self.evictions.fetch_add(1, Ordering::Relaxed);
            drop(run);
            self.enqueue(id);
        } else {
            entrant.run = Some(run);
        }
        Ok(())
    }

    fn start_job(&self, id: RunId, start: Start) {
        let Start::Job { job, spec, number, .. } = start else { panic!() };
        let outcome = Ok(Body::from_json(&spec.payload.bytes).unwrap());
        self.later(mix(number) % 3, move |engine| engine.send(id, ItemBody::JobEnded { job, outcome }));
    }
}

async fn code(wf: Wf, n: serde_json::Value) -> Result<serde_json::Value, Error> {
    let n = n.as_u64().unwrap();
    let text = format!("run {n}");
    let len = wf.run_ok("len", async || {
        tokio::time::sleep(Duration::from_millis(n % 3)).await; // sleeps because: the step waits for a timer
        text.len() as u64
    });
    let len = len.await?;
    let three = (0..3u64).map(|i| {
        wf.run_ok(format!("s{i}"), move || async move {
            for _ in 0..i {
                tokio::task::yield_now().await;
            }
            i
        })
    });
    let three: u64 = join_all(three).await.into_iter().map(Result::unwrap).sum();
    let called = wf.call(Work(n)).await?;
    let go = select! {
        never = wf.run_ok("never", std::future::pending::<u64>) => never?,
        go = wf.recv::<Go>() => go?.0,
    };
    let spawned = wf.run("spawned", async || tokio::spawn(async move { n }).await).await?;
    let blocking = wf.run_blocking("blocking", move || Ok::<_, Error>(n)).await?;
    wf.sleep("2ms").await?;
    Ok(json!(len + three + called + go + spawned + blocking))
}

#[test]
fn slow_threads_and_a_runtime_lose_no_wake() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let entrant = |i: u64| {
        let entrant = Entrant { run: None, history: Vec::new(), end: None, input: body(&i) };
        (RunId::from_parts(0, u128::from(i) + 1), Mutex::new(entrant))
    };
    let engine = Arc::new_cyclic(|weak| Engine {
        weak: weak.clone(),
        handle: runtime.handle().clone(),
        workflow: untyped("t@1", code),
        runs: (0..RUNS).map(entrant).collect(),
        inboxes: Mutex::default(),
        queue: Mutex::default(),
        changed: Condvar::new(),
        start: Instant::now(),
        evictions: AtomicUsize::new(0),
    });
    let thread = |i: usize| {
        let engine = engine.clone();
        std::thread::Builder::new().name(format!("workflows-{i}")).spawn(move || engine.work()).unwrap()
    };
    let threads: Vec<_> = (0..3).map(thread).collect();
    for id in engine.runs.keys().copied() {
        engine.enqueue(id);
        let go = ItemBody::Signal { name: Go::NAME.into(), body: body(&Go(5)), id: String::new() };
        engine.later(mix(engine.now().as_ms().unsigned_abs()) % 40, move |engine| engine.send(id, go));
    }
    {
        let queue = engine.queue.lock().unwrap();
        let waited = engine.changed.wait_timeout_while(queue, HANG_GUARD, |queue| queue.ended < RUNS).unwrap();
        assert!(!waited.1.timed_out(), "a wake was lost");
    }
    engine.queue.lock().unwrap().stop = true;
    engine.changed.notify_all();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(engine.evictions.load(Ordering::Relaxed) > 0);
    for i in 0..RUNS {
        let id = RunId::from_parts(0, u128::from(i) + 1);
        let entrant = engine.runs[&id].lock().unwrap();
        let want = format!("run {i}").len() as u64 + 3 + 5 + 3 * i;
        assert_eq!(entrant.end, Some(Ok(End::Ok(body(&want)))), "run {i}");
        assert!(matches!(entrant.history.last(), Some(Record { entry: Entry::End { .. }, .. })));
        Run::open(engine.opening(id, &entrant)).unwrap();
    }
}

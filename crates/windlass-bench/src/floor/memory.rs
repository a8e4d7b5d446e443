//! The floor in memory: queues behind a mutex.

use super::{Bare, Beat, Floor, FloorError, Load, PAYLOAD_BYTES, Way};
use crate::time::{Pace, Samples, Stopwatch};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// A mutex-guarded queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFloor;

type Queue = Mutex<VecDeque<Box<[u8]>>>;

fn fill(queue: &Queue, load: Load) {
    for from in (0..load.jobs).step_by(load.batch) {
        let batch = load.batch.min(load.jobs - from);
        queue.lock().extend((0..batch).map(|_| vec![b'x'; PAYLOAD_BYTES].into_boxed_slice()));
    }
}

impl Floor for MemoryFloor {
    fn enqueue(&self, load: Load) -> Result<Bare, FloorError> {
        let queue = Queue::default();
        let watch = Stopwatch::start();
        fill(&queue, load);
        Ok(Bare::from(load.jobs as f64 / watch.seconds()))
    }

    /// One job at a time: taken from one queue, put into another.
    fn drain(&self, load: Load) -> Result<Bare, FloorError> {
        let (ready, ended) = (Queue::default(), Queue::default());
        fill(&ready, load);
        let watch = Stopwatch::start();
        loop {
            let Some(job) = ready.lock().pop_front() else { break };
            ended.lock().push_back(black_box(job));
        }
        Ok(Bare::from(load.jobs as f64 / watch.seconds()))
    }

    /// From one thread to another that sleeps until it comes.
    fn way(&self, beat: Beat) -> Result<Way, FloorError> {
        let (send, received) = channel::<u32>();
        let pace = Arc::new(Pace::start(beat.rate));
        let take = {
            let pace = Arc::clone(&pace);
            move || received_us(&pace, &received)
        };
        let taker = std::thread::Builder::new().name("windlass-bench-floor".to_owned()).spawn(take)?;
        for n in 0..beat.count {
            pace.wait(n);
            send.send(n).map_err(|_| gone())?;
        }
        drop(send);
        let all = taker.join().map_err(|_| gone())?;
        Ok(Way { step: "hand_over", steps: 1, step_us: Samples::new(all) })
    }
}

fn received_us(pace: &Pace, received: &Receiver<u32>) -> Vec<f64> {
    received.iter().map(|n| pace.late_us(n)).collect()
}

fn gone() -> FloorError {
    FloorError::Other("its thread ended early".to_owned())
}

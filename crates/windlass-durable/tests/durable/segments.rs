//! Workflows that continue as new.

use super::support::{A, B, JsonResult, Ping, State, World, value, wf, world};
use serde_json::json;
use windlass_durable::{End, Entry, Error, Event, Record, Wf, select, typed, workflow};

#[workflow(crate = windlass_durable)]
async fn counter(wf: Wf, n: u64) -> Result<u64, Error> {
    let ping = wf.recv::<Ping>().await?;
    if n >= 5 {
        return Ok(n + ping.0);
    }
    wf.call(A(n)).await?;
    wf.continue_as_new(counter, n + 1).await
}

#[test]
fn unreceived_signals_go_over_to_the_next_segment() {
    for (evict, chunk) in [(false, 500), (true, 500), (true, 1)] {
        let mut world = World::new(typed(counter), &0u64);
        (world.evict, world.chunk) = (evict, chunk);
        world.shadow = true;
        (0..6).for_each(|i| world.signal(2, &Ping(i)));
        assert_eq!(value(world.go()), json!(10), "{}", world.print());
        assert_eq!(world.segments.len(), 6);
        // The numbers of the history keep growing, and a segment starts with the copies.
        let lens: Vec<usize> = (0..5).map(|segment| world.records(segment).len()).collect();
        assert!(lens.iter().all(|len| *len > 0));
        let first = usize::try_from(world.segments[1].first).unwrap();
        let is_copy = |record: &Record| matches!(record.entry, Entry::Event { event: Event::Signal { .. }, .. });
        assert!(is_copy(&world.history[first]));
    }
}

#[test]
fn open_calls_are_cancelled_and_messages_of_receivers_are_kept() {
    #[workflow(crate = windlass_durable)]
    async fn twice(wf: Wf, second: bool) -> Result<u64, Error> {
        if second {
            return Ok(wf.recv::<Ping>().await?.0);
        }
        // Polled, handed a message, and not polled since.
        let mut held = Box::pin(wf.recv::<Ping>());
        let _ = futures::poll!(&mut held);
        let mut open = Box::pin(wf.call(B(1)));
        let _ = futures::poll!(&mut open);
        wf.sleep("50ms").await?;
        wf.continue_as_new(twice, true).await
    }
    let mut world = World::new(typed(twice), &false);
    world.activity = std::sync::Arc::new(|job| (1_000, Ok(job.input.clone())));
    world.signal(1, &Ping(7));
    assert_eq!(value(world.go()), json!(7), "{}", world.print());
    assert_eq!((world.cancelled, world.cancelled_outside), (1, 1));
}

#[test]
fn continuing_wins_over_what_else_the_code_does() {
    async fn code(wf: Wf) -> JsonResult {
        let next = async {
            if wf.now().as_ms() >= 0 {
                wf.continue_as_new(counter, 5).await;
            }
            Ok::<_, Error>(())
        };
        select! {
            next = next => next?,
            time = wf.sleep("1h") => { time?; }
        }
        Ok(json!(0))
    }
    let mut continued = world(wf(code));
    let first = continued.step();
    assert_eq!(first, Ok(true));
    let Some(Record { entry: Entry::End { end: End::Continued { kind, .. }, .. }, .. }) = continued.history.last()
    else {
        panic!("{}", continued.print())
    };
    assert_eq!(kind, "counter@1");
    continued.workflow = typed(counter);
    continued.signal(1, &Ping(1));
    assert_eq!(continued.go(), State::Ended(End::Ok(super::support::body(&6))));
}

//! Workflows that continue as new.

use super::support::{A, B, JsonResult, Ping, State, World, body, opening, value, wf, world};
use serde_json::json;
use windlass_core::time::Timestamp;
use windlass_durable::{
    Chunk, End, Entry, Error, Event, Item, ItemBody, Opening, Record, Run, Stuck, Turn, Wf, select, typed, workflow,
};

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
    assert_eq!(continued.go(), State::Ended(End::Ok(body(&6))));
}

#[workflow(crate = windlass_durable)]
async fn fills(wf: Wf, sleeps: u32) -> Result<(), Error> {
    wf.sleep("5ms").await?;
    for _ in 0..sleeps {
        wf.sleep("0s").await?;
    }
    wf.continue_as_new(fills, 0).await
}

/// The turn that ends a segment of `fills`, with so many signals that nothing receives.
fn last_turn(signals: u64) -> Result<Turn, Stuck> {
    let mut run = Run::open(Opening { input: "3".into(), ..opening(&typed(fills), Vec::new()) })?;
    let signal = |number| {
        let body = ItemBody::Signal { name: "ping".to_owned(), body: body(&1), id: String::new() };
        Item { number: Some(number), at: Timestamp::from_ms(1), body }
    };
    run.turn((0..signals).map(signal).collect(), Timestamp::from_ms(10))
}

#[test]
fn the_records_of_the_next_segment_stand_in_one_commit_of_their_own() {
    let turn = last_turn(7).unwrap();
    let from = turn.next.clone().unwrap().from;
    let chunks: Vec<Chunk> = turn.chunks(4).collect();
    let last = chunks.last().unwrap();
    assert_eq!((last.first, last.records.len(), last.has_more), (from, 8, false));
    assert!(chunks[..chunks.len() - 1].iter().all(|chunk| chunk.records.len() <= 4 && chunk.has_more));
    assert_eq!(chunks.iter().map(|chunk| chunk.takes.len()).sum::<usize>(), 7);
}

#[test]
fn a_segment_with_too_many_signals_for_one_commit_is_stuck() {
    drop(last_turn(9_998).unwrap());
    let stuck = last_turn(9_999).unwrap_err();
    let text = "continue_as_new with 9999 signals that were not received; at most 9998 go into the next segment";
    assert!(stuck.to_string().starts_with(text), "{stuck}");
}

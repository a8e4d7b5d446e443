//! Random workflows of a small algebra: whatever the crash points, chunks and batches, the same history and the same result.
//!
//! `WINDLASS_TEST_DURABLE_CASES=20000 cargo test --release -p windlass-durable property` runs longer;
//! `WINDLASS_TEST_DURABLE_SEED` sets the first seed.

mod retake;
mod tree;

use self::tree::{N, Sig, depth, prop, tree};
use super::support::{Rng, State, World, body, hash, opening};
use serde_json::json;
use std::sync::Arc;
use windlass_core::time::Timestamp;
use windlass_durable::{CallError, Entry, Event, ItemBody, Opening, PromiseToken, Record, Run, typed};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seeds(offset: u64) -> std::ops::Range<u64> {
    let first = setting("WINDLASS_TEST_DURABLE_SEED", 0) + offset;
    let cases = setting("WINDLASS_TEST_DURABLE_CASES", 500);
    println!("seeds {first} to {}", first + cases - 1);
    first..first + cases
}

fn world(seed: u64, n: &N) -> World {
    let mut world = World::new(typed(prop), &(json!(n), 2));
    world.activity = Arc::new(|job| {
        let h = hash(&job.key.to_string());
        let fails = job.key.name == "job3" && h.is_multiple_of(3);
        let outcome = if fails { Err(CallError::failed("no")) } else { Ok(body(&(h % 1000))) };
        (1 + i64::try_from(h % 40).unwrap(), outcome)
    });
    let mut rng = Rng(seed ^ 99);
    for i in 0..12 {
        let at = i64::try_from(rng.below(300)).unwrap();
        if rng.below(2) == 0 { world.signal(at, &Sig::<0>(i)) } else { world.signal(at, &Sig::<1>(i)) }
    }
    let at = 20 + i64::try_from(rng.below(200)).unwrap();
    match rng.below(8) {
        0 | 1 => world.cancel(at),
        2 => drop(world.at(at, ItemBody::TimedOut)),
        _ => {}
    }
    world
}

/// Resolves promises from outside, once their tokens are known.
fn resolve(world: &mut World, resolved: &mut usize) {
    let found = world.started.iter().filter(|job| job.key.name == "resolves");
    let tokens: Vec<PromiseToken> = found.skip(*resolved).map(|job| job.input.read().unwrap()).collect();
    *resolved += tokens.len();
    for PromiseToken { token, .. } in tokens {
        // After everything else of that moment, whenever the test looked.
        let key = (world.now + 7, (1 << 62) + token % (1 << 60));
        world.schedule.insert(key, ItemBody::Resolved { token, body: body(&(token % 100)) });
    }
}

fn go(world: &mut World) -> State {
    let mut resolved = 0;
    for _ in 0..100_000 {
        match world.step() {
            Ok(true) => resolve(world, &mut resolved),
            Ok(false) => return State::Waiting,
            Err(stuck) => return State::Stuck(stuck),
        }
        if let Some(end) = world.ended() {
            return State::Ended(end);
        }
    }
    panic!("no end: {:?}\n{}", world.run, world.print());
}

/// Every prefix of a segment replays, and emits exactly what follows of its last event.
fn check_prefixes(world: &World, index: usize, with_rest: bool) -> Result<(), String> {
    let (segment, records) = (&world.segments[index], world.records(index));
    let is_start = |record: &Record| matches!(record.entry, Entry::Event { event: Event::Started { .. }, .. });
    // What the segment before carried over belongs to one commit.
    let lead = records.iter().position(is_start).unwrap_or(0);
    let tail = segment.next.map_or(usize::MAX, |next| usize::try_from(next - segment.first).unwrap());
    for cut in lead + 1..=records.len() {
        let history = records[..cut].to_vec();
        let base = opening(&world.workflow, history);
        let opening = Opening { first: segment.first, input: segment.input.to_bytes(), id: world.id, ..base };
        let mut run = Run::open(opening).map_err(|stuck| format!("cut {cut}: {stuck}"))?;
        if !with_rest {
            continue;
        }
        let turn = run.turn(Vec::new(), Timestamp::from_ms(i64::MIN)).map_err(|stuck| format!("cut {cut}: {stuck}"))?;
        let rest = records.iter().enumerate().skip(cut).take_while(|(at, record)| *at >= tail || !record.is_event());
        let rest: Vec<Record> = rest.map(|(_, record)| record.clone()).collect();
        if turn.records != rest {
            return Err(format!("cut {cut}: got {:?}\nwant {rest:?}", turn.records));
        }
    }
    Ok(())
}

#[test]
fn slow_batches_chunks_and_crashes_change_nothing() {
    let (mut records, mut ended, mut waiting, mut retakes, mut continued) = (0, 0, 0, 0, 0);
    for seed in seeds(0) {
        let n = tree(&mut Rng(seed), depth(seed), false, false);
        let mut world = world(seed, &n);
        let state = go(&mut world);
        match &state {
            State::Stuck(_) => panic!("{seed}: {state:?}\n{n:?}\n{}", world.print()),
            State::Ended(_) => ended += 1,
            State::Waiting => waiting += 1,
        }
        continued += world.segments.len() - 1;
        for index in 0..world.segments.len() {
            records += world.records(index).len();
            check_prefixes(&world, index, true).unwrap_or_else(|e| panic!("{seed}: {e}\n{n:?}\n{}", world.print()));
        }
        for (again, crash) in (0..).zip([u64::MAX, 30, 8, 3, 2, 4]) {
            retakes += 1;
            retake::check(&world, seed * 10 + again, crash, false)
                .unwrap_or_else(|e| panic!("{seed}/{again}: {e}\n{n:?}\n{}", world.print()));
        }
    }
    println!("{ended} ended, {waiting} wait for ever, {continued} continued, {records} records, {retakes} retakes");
    assert!(ended > 0 && waiting > 0 && continued > 0);
}

/// A commit that takes more items than it holds events loses items when it is killed. This keeps the test above honest.
#[test]
fn slow_a_first_commit_that_takes_all_items_is_found() {
    let found = (0..200).filter(|seed| {
        let n = tree(&mut Rng(*seed), depth(*seed), false, false);
        let mut world = world(*seed, &n);
        go(&mut world);
        (0..6).any(|again| retake::check(&world, seed * 10 + again, 3, true).is_err())
    });
    assert!(found.count() > 10);
}

/// With local steps: killed after every commit, in chunks of one record, with shadows.
#[test]
fn slow_crashes_with_steps_leave_replayable_histories() {
    let mut steps = 0;
    for seed in seeds(1_000_000) {
        let n = tree(&mut Rng(seed), depth(seed), true, false);
        let mut first = world(seed, &n);
        let state = go(&mut first);
        assert!(!matches!(state, State::Stuck(_)), "{seed}: {state:?}\n{n:?}\n{}", first.print());
        let is_step = |record: &&Record| matches!(record.entry, Entry::Event { event: Event::Stepped { .. }, .. });
        steps += first.history.iter().filter(is_step).count();
        for (chunk, every) in [(500, 1), (1, 1), (1, 3), (2, 2)] {
            let mut again = world(seed, &n);
            again.chunk = chunk;
            again.shadow = chunk == 500;
            again.eager_steps = chunk == 500;
            let mut rng = Rng(seed);
            again.crash = Box::new(move |_| rng.below(every) == 0);
            let other = go(&mut again);
            // A crash begins slow steps anew, so that they end later than others.
            let text = format!("{n:?}");
            let is_slow = [3, 4, 5].iter().any(|k| text.contains(&format!("Step({k})")));
            if chunk == 500 && !is_slow {
                assert_eq!(state, other, "{seed}");
                assert!(first.history == again.history, "{seed}\n{n:?}\n{}\n----\n{}", first.print(), again.print());
            }
            // A kill between the ends of two steps repeats the second, so that ends may swap; history decides, and holds.
            assert!(!matches!(other, State::Stuck(_)), "{seed}: {other:?}\n{n:?}\n{}", again.print());
            for index in 0..again.segments.len() {
                check_prefixes(&again, index, false)
                    .unwrap_or_else(|e| panic!("{seed}: {e}\n{n:?}\n{}", again.print()));
            }
        }
    }
    println!("{steps} local steps, each killed in 4 ways");
    assert!(steps > 0);
}

//! Turns, their commits, and the order of items and timers.

use super::support::{A, B, body, opening, value, wf, world};
use serde_json::json;
use windlass_core::time::Timestamp;
use windlass_durable::{Chunk, Entry, Error, Item, ItemBody, Run, Start, Turn, join, join_all};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn ended(number: u64, start: &Start, ms: i64) -> Item {
    let Start::Job { job, .. } = start else { panic!() };
    Item { number: Some(number), at: at(ms), body: ItemBody::JobEnded { job: *job, outcome: Ok(body(&1)) } }
}

/// A turn of many calls, killed between its commits; each call is made once.
#[test]
fn slow_a_huge_turn_survives_kills_between_its_commits() {
    let n = 100_000u64;
    let workflow = wf(move |wf| async move {
        let all = join_all((0..n).map(|i| wf.call(A(i)))).await;
        Ok(json!(all.into_iter().map(Result::unwrap).sum::<u64>()))
    });
    let mut huge = world(workflow);
    huge.shadow = false;
    huge.batch = 1000;
    huge.crash = Box::new(|commit| [1, 2, 77, 199, 200, 201, 333].contains(&commit));
    assert_eq!(value(huge.go()), json!(n * (n - 1) / 2));
    assert_eq!(huge.count("A") as u64, n);
}

/// After an outage of a day a loop of sleeps catches up: a timer counts from the time of the event that began it.
#[test]
fn timers_catch_up_after_an_outage() {
    let workflow = wf(|wf| async move {
        for _ in 0..24 {
            wf.sleep("1h").await?;
        }
        Ok(json!(wf.now().as_ms()))
    });
    let mut run = Run::open(opening(&workflow, Vec::new())).unwrap();
    let turn = run.turn(Vec::new(), at(0)).unwrap();
    assert_eq!(turn.wake, Some(at(3_600_000)));
    let turn = run.turn(Vec::new(), at(30 * 3_600_000)).unwrap();
    assert_eq!((turn.records.len(), turn.wake), (48, None));
    assert_eq!(turn.ended, Some(windlass_durable::End::Ok(body(&(24 * 3_600_000)))));
}

#[test]
fn due_timers_are_applied_between_items_by_their_times() {
    let workflow = wf(|wf| async move {
        let (a, b) = join!(wf.call(A(1)), async {
            wf.sleep("10ms").await?;
            Ok::<_, Error>(wf.now().as_ms())
        });
        Ok(json!([a?, b?]))
    });
    let mut run = Run::open(opening(&workflow, Vec::new())).unwrap();
    let start = run.turn(Vec::new(), at(0)).unwrap().starts.remove(0);
    let turn = run.turn(vec![ended(1, &start, 20)], at(30)).unwrap();
    let times = turn.records.iter().filter_map(|record| match record.entry {
        Entry::Event { at, .. } => Some(at.as_ms()),
        _ => None,
    });
    assert_eq!(times.collect::<Vec<i64>>(), [10, 20]);
    assert_eq!(turn.takes, [(2, 1)]);
}

#[test]
fn an_item_that_nobody_waits_for_is_taken_without_a_record() {
    let workflow = wf(|wf| async move { Ok(json!(wf.call(A(1)).await? + wf.call(B(1)).await?)) });
    let mut run = Run::open(opening(&workflow, Vec::new())).unwrap();
    let start = run.turn(Vec::new(), at(0)).unwrap().starts.remove(0);
    let unknown = windlass_core::id::RunId::from_parts(0, 77);
    let child = ItemBody::ChildEnded { run: unknown, outcome: Ok(body(&1)) };
    let token = ItemBody::Resolved { token: 5, body: body(&1) };
    let mut items = vec![Item { number: Some(4), at: at(1), body: child.clone() }, ended(5, &start, 1)];
    items.push(ended(6, &start, 1));
    items.push(Item { number: Some(7), at: at(1), body: token });
    let turn = run.turn(items, at(1)).unwrap();
    assert_eq!(turn.records.len(), 2);
    assert_eq!(turn.takes, [(0, 4), (1, 5), (2, 6), (2, 7)]);
    let turn = run.turn(vec![Item { number: Some(8), at: at(2), body: child }], at(2)).unwrap();
    assert!(turn.records.is_empty() && !turn.is_empty());
    let chunks: Vec<Chunk> = turn.chunks(500).collect();
    assert_eq!((chunks.len(), &chunks[0].takes[..]), (1, &[8][..]));
}

#[test]
fn a_commit_holds_what_belongs_to_its_records() {
    let workflow = wf(|wf| async move {
        wf.call(A(0)).await?;
        let open: Vec<_> = (0..5).map(|i| Box::pin(wf.call(B(i)))).collect();
        for mut call in open {
            let _ = futures::poll!(&mut call);
        }
        wf.call(A(1)).await?;
        Ok(json!(0))
    });
    let mut run = Run::open(opening(&workflow, Vec::new())).unwrap();
    let start = run.turn(Vec::new(), at(0)).unwrap().starts.remove(0);
    let turn: Turn = run.turn(vec![ended(3, &start, 1)], at(1)).unwrap();
    // The end of the first call, five calls, another call, and the cancellation of five.
    assert_eq!((turn.first, turn.records.len(), turn.starts.len(), turn.cancels.len()), (2, 8, 6, 5));
    let chunks: Vec<Chunk> = turn.chunks(4).collect();
    let parts: Vec<_> = chunks
        .iter()
        .map(|c| (c.first, c.records.len(), c.starts.len(), c.cancel_jobs.len(), c.takes.len(), c.has_more))
        .collect();
    // The cancellation counts five, so it stands alone.
    assert_eq!(parts, [(2, 4, 3, 0, 1, true), (6, 3, 3, 0, 0, true), (9, 1, 0, 5, 0, false)]);
    let ids: Vec<_> = chunks[2].cancel_jobs.clone();
    let made = chunks.iter().flat_map(|c| &c.starts).filter_map(|start| match start {
        Start::Job { job, spec, .. } if spec.kind.as_str() == "B" => Some(*job),
        _ => None,
    });
    assert_eq!(ids, made.collect::<Vec<_>>());
}

#[test]
fn ids_follow_from_run_number_and_time_alone() {
    let workflow = wf(|wf| async move { Ok(json!(wf.call(A(1)).await?)) });
    let ids = || {
        let mut run = Run::open(opening(&workflow, Vec::new())).unwrap();
        let turn = run.turn(Vec::new(), at(99)).unwrap();
        let Start::Job { job, number, .. } = turn.starts[0] else { panic!() };
        (job, number)
    };
    assert_eq!(ids(), ids());
    let id = ids().0;
    assert_eq!(id, windlass_durable::derived_job_id(opening(&workflow, Vec::new()).id, 1, at(0)));
    assert_eq!((id.bits() >> 80, id.bits() >> 76 & 0xf, id.bits() >> 62 & 0b11), (0, 7, 0b10));
}

#[test]
fn pending_operations_and_memory_are_shown() {
    let workflow = wf(|wf| async move {
        let (a, b) = join!(wf.call(A(1)), wf.sleep("1h"));
        a?;
        b?;
        Ok(json!(0))
    });
    let mut run = Run::open(opening(&workflow, Vec::new())).unwrap();
    let _ = run.turn(Vec::new(), at(0)).unwrap();
    let pending = run.pending(10);
    assert_eq!(pending.len(), 2);
    assert_eq!((pending[0].name.as_ref(), pending[0].number), ("A", Some(1)));
    assert!(pending[0].place.to_string().contains("turns.rs:"));
    assert_eq!((pending[1].until, run.pending(1).len()), (Some(at(3_600_000)), 1));
    assert!((1_000..20_000).contains(&run.memory_bytes()), "{}", run.memory_bytes());
}

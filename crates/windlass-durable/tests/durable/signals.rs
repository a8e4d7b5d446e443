//! Signals and promises.

use super::support::{A, Ping, body, stuck, value, wf, world};
use serde_json::json;
use windlass_durable::{ItemBody, PromiseToken, Stuck, join_all, select};

#[test]
fn slow_ten_thousand_signals_arrive_in_order() {
    for (batch, kill) in [(1, 0), (1000, 0), (1000, 7)] {
        let workflow = wf(|wf| async move {
            let mut signals = wf.signals::<Ping>();
            for i in 0..10_000 {
                assert_eq!(signals.next().await?.0, i);
            }
            Ok(json!(0))
        });
        let mut storm = world(workflow);
        storm.shadow = false;
        storm.batch = batch;
        storm.crash = Box::new(move |commit| commit == kill);
        (0..10_000).for_each(|i| storm.signal(10, &Ping(i)));
        value(storm.go());
    }
}

#[test]
fn each_signal_wakes_one_receiver() {
    let workflow = wf(|wf| async move {
        let all = join_all((0..2_000).map(|_| wf.recv::<Ping>())).await;
        Ok(json!(all.into_iter().map(|ping| ping.unwrap().0).collect::<Vec<_>>()))
    });
    let mut many = world(workflow);
    many.shadow = false;
    (0..2_000).for_each(|i| many.signal(10, &Ping(i)));
    assert_eq!(value(many.go()), json!((0..2_000).collect::<Vec<u64>>()));
}

#[test]
fn a_dropped_receiver_takes_no_message_with_it() {
    let workflow = wf(|wf| async move {
        let mut got = Vec::new();
        while got.len() < 5 {
            select! { ping = wf.recv::<Ping>() => got.push(ping?.0), t = wf.sleep("1ms") => t? }
        }
        Ok(json!(got))
    });
    let mut drops = world(workflow);
    (0..5u64).for_each(|i| drops.signal(i64::try_from(i).unwrap() * 3, &Ping(i)));
    assert_eq!(value(drops.go()), json!([0, 1, 2, 3, 4]));
    // It was handed to a receiver that is dropped unpolled: the next one gets it.
    let workflow = wf(|wf| async move {
        let mut first = Box::pin(wf.recv::<Ping>());
        let _ = futures::poll!(&mut first);
        wf.call(A(1)).await?;
        drop(first);
        Ok(json!(wf.recv::<Ping>().await?.0))
    });
    let mut handed = world(workflow);
    handed.signal(0, &Ping(7));
    assert_eq!(value(handed.go()), json!(7));
}

#[test]
fn a_signal_that_does_not_decode_stays_in_the_inbox() {
    let workflow = wf(|wf| async move { Ok(json!(wf.recv::<Ping>().await?.0)) });
    let mut wrong = world(workflow);
    wrong.at(5, ItemBody::Signal { name: "ping".into(), body: body("text"), id: "m1".into() });
    let reason = stuck(wrong.go());
    assert!(matches!(reason, Stuck::Decode(_)));
    assert!(reason.to_string().contains("signals.rs:"), "{reason}");
    assert_eq!(wrong.inbox.len(), 1);
}

#[test]
fn a_promise_may_be_resolved_early_and_once() {
    let workflow = wf(|wf| async move {
        let promise = wf.promise::<u64>();
        wf.call_named("ask", json!(promise.token())).await?;
        Ok(json!(promise.await?))
    });
    let mut asks = world(workflow);
    asks.step().unwrap();
    let PromiseToken { run, token } = asks.started[0].input.read().unwrap();
    assert_eq!(run, asks.id);
    asks.at(1, ItemBody::Resolved { token, body: body(&42) });
    asks.at(1, ItemBody::Resolved { token, body: body(&43) });
    assert_eq!(value(asks.go()), json!(42));
}

#[test]
fn tokens_of_promises_come_back_from_their_text() {
    let token = PromiseToken { run: windlass_core::id::RunId::from_parts(0, 5), token: 0xab };
    assert_eq!(token.to_string().parse::<PromiseToken>().unwrap(), token);
    for wrong in ["", "r0-00000000000000000000000005", "x.00000000000000ab", "r0-00000000000000000000000005.ab"] {
        assert!(wrong.parse::<PromiseToken>().is_err(), "{wrong}");
    }
}

//! `#[derive(Job)]` says what the trait would.

#![cfg(feature = "macros")]
#![allow(clippy::unwrap_used, reason = "a failed check is a panic")]

use serde::{Deserialize, Serialize};
use windlass::Job;
use windlass::core::job::{DedupBy, Due};
use windlass::core::payload::Payload;
use windlass::core::retry::RetryPolicy;

#[derive(Serialize, Deserialize, Job)]
struct SendInvoice {
    number: u32,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "welcome", queue = "mail", output = String, attempts = 5, stalls = 2, priority = -3, timeout = "30s", lifo)]
#[job(group = &self.tenant, unique = format!("{}:{}", self.tenant, self.to), retry = RetryPolicy::None)]
struct Welcome {
    tenant: String,
    to: String,
}

#[test]
fn the_defaults_are_those_of_the_trait() {
    assert_eq!((SendInvoice::KIND, SendInvoice::QUEUE), ("send_invoice", "default"));
    let payload = Payload::json(&SendInvoice { number: 1 }).unwrap();
    let options = SendInvoice { number: 1 }.options();
    let (spec, due) = options.into_spec(SendInvoice::QUEUE, SendInvoice::KIND, payload).unwrap();
    assert_eq!((spec.attempts, spec.stalls, spec.priority, due), (3, 1, 0, Due::Now));
    let (): <SendInvoice as Job>::Output = ();
}

#[test]
fn every_key_is_passed_on() {
    let job = Welcome { tenant: "acme".to_owned(), to: "ada".to_owned() };
    let payload = Payload::json(&job).unwrap();
    let (spec, _) = job.options().into_spec(Welcome::QUEUE, Welcome::KIND, payload).unwrap();
    assert_eq!((spec.kind.as_str(), spec.queue.as_str()), ("welcome", "mail"));
    assert_eq!((spec.attempts, spec.stalls, spec.priority, spec.timeout_ms), (5, 2, -3, Some(30_000)));
    assert!(spec.lifo);
    assert_eq!(spec.group.unwrap().as_str(), "acme");
    assert!(matches!(&spec.dedup.unwrap().by, DedupBy::Key(key) if key.as_str() == "acme:ada"));
    assert_eq!(spec.retry, RetryPolicy::None);
    let _: <Welcome as Job>::Output = String::new();
}

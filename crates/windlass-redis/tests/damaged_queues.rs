//! A queue that is damaged, beside others in one call: the others go on. On embedded stores a damaged queue is an error of every
//! call, and their own tests show it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::sync::Arc;
use support::raw::Raw;
use support::{block, claim_request, enqueue, enqueue_one, fresh_url, get, job, job_with, open_at, virtual_clock};
use windlass_core::Error;
use windlass_core::job::NewJob;
use windlass_core::name::QueueName;
use windlass_core::store::{ClaimRequest, EnqueueRequest, JobQueue, QueueSettings, ReportRequest, Setting};
use windlass_core::time::{HANG_GUARD, VirtualClock};
use windlass_redis::RedisStore;
use windlass_servers::Redis;

fn other() -> NewJob {
    job_with(|spec| spec.queue = "other".try_into().unwrap())
}

/// A store with a job on `q` and one on `other`.
struct Scene {
    url: String,
    clock: Arc<VirtualClock>,
    raw: Raw,
    /// The number of `q`, and that of its plain group.
    queue: String,
    plain: String,
}

impl Scene {
    async fn new(server: &Redis) -> Self {
        let (url, clock) = (fresh_url(&server.url()), virtual_clock());
        let raw = Raw::open(&url);
        enqueue(&open_at(&url, &clock), vec![job(), other()]).await;
        let queue = String::from_utf8(raw.get("meta", "Qq").await).unwrap();
        let counts = String::from_utf8(raw.get("meta", &format!("q{queue}")).await).unwrap();
        let plain = counts.split(' ').nth(7).unwrap().to_owned();
        Self { url, clock, raw, queue, plain }
    }

    /// Another process, which has seen nothing of it before.
    fn store(&self) -> RedisStore {
        open_at(&self.url, &self.clock)
    }

    /// Damages `q` in one of the ways in which a new job of it cannot be counted.
    async fn damage(&self, way: usize) {
        match way {
            0 => self.raw.set("meta", format!("q{}", self.queue), "noise").await,
            _ => self.raw.set("groups", &self.plain, "noise").await,
        }
    }
}

const WAYS: usize = 2;

fn both(max: u32) -> ClaimRequest {
    ClaimRequest { queues: vec!["q".try_into().unwrap(), "other".try_into().unwrap()], ..claim_request("w", max) }
}

fn is_damage_of_q<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Corrupt { what }) if what.contains("`q`"))
}

#[test]
fn a_damaged_queue_refuses_its_own_jobs_and_no_others_of_the_same_call() {
    let server = Redis::start().unwrap();
    block(async {
        for way in 0..WAYS {
            let scene = Scene::new(&server).await;
            let store = scene.store();
            scene.damage(way).await;
            // Few jobs are gathered with those of others, many are not.
            for count in [3, 120] {
                let jobs: Vec<NewJob> = (0..count).map(|i| if i % 3 == 0 { job() } else { other() }).collect();
                let ids: Vec<_> = jobs.iter().map(NewJob::effective_id).collect();
                let answers = store.enqueue(EnqueueRequest::new(jobs)).await.unwrap();
                for (i, answer) in answers.iter().enumerate() {
                    assert_eq!(is_damage_of_q(answer), i % 3 == 0, "{way}, {i} of {count}: {answer:?}");
                    assert_eq!(get(&store, ids[i]).await.is_some(), i % 3 != 0, "{way}, {i} of {count}");
                }
            }
            // Two callers at the same time.
            let (bad, good) = tokio::join!(enqueue_one(&store, job()), enqueue_one(&store, other()));
            assert!(is_damage_of_q(&bad), "{bad:?}");
            good.unwrap();
        }
    });
}

#[test]
fn an_atomic_call_with_a_job_of_a_damaged_queue_changes_nothing() {
    let server = Redis::start().unwrap();
    block(async {
        for way in 0..WAYS {
            let scene = Scene::new(&server).await;
            let store = scene.store();
            scene.damage(way).await;
            let (first, second) = (job(), other());
            let id = second.effective_id();
            let answers = store.enqueue(EnqueueRequest { jobs: vec![first, second], atomic: true }).await.unwrap();
            assert!(is_damage_of_q(&answers[0]), "{answers:?}");
            assert!(matches!(&answers[1], Err(Error::Invalid { field, .. }) if field == "atomic"), "{answers:?}");
            assert_eq!(get(&store, id).await, None);
        }
    });
}

#[test]
fn a_damaged_queue_keeps_no_worker_from_its_other_queues() {
    let server = Redis::start().unwrap();
    block(async {
        for way in 0..WAYS {
            let scene = Scene::new(&server).await;
            scene.damage(way).await;
            let claimed = scene.store().claim(both(9)).await.unwrap().jobs;
            assert_eq!(claimed.len(), 1, "{way}");
            assert_eq!(claimed[0].spec.queue.as_str(), "other");
        }
    });
}

/// The version is compared, and nothing else.
#[test]
fn a_damaged_version_stops_no_claim() {
    let server = Redis::start().unwrap();
    block(async {
        let scene = Scene::new(&server).await;
        scene.raw.set("meta", format!("v{}", scene.queue), [128]).await;
        assert_eq!(scene.store().claim(both(9)).await.unwrap().jobs.len(), 2);
    });
}

#[test]
fn settings_that_cannot_be_read_keep_no_worker_from_its_other_queues() {
    let server = Redis::start().unwrap();
    block(async {
        for settings in ["0 - - - - - - - -\n{noise", "0 - - - - - - - -\n", "\u{0}\nnull"] {
            let scene = Scene::new(&server).await;
            let field = format!("s{}", scene.queue);
            scene.raw.set("meta", &field, settings).await;
            let store = scene.store();
            let claimed = store.claim(both(9)).await.unwrap().jobs;
            assert_eq!(claimed.len(), 1, "{settings:?}");
            assert_eq!(claimed[0].spec.queue.as_str(), "other");
            // Nothing else would be said of it, time and again.
            for _ in 0..2 {
                let refused = store.claim(claim_request("x", 9)).await;
                assert!(is_damage_of_q(&refused), "{settings:?}: {refused:?}");
            }
            // The settings are written anew, and both claims find the job.
            let queue: QueueName = "q".try_into().unwrap();
            store.configure(Setting::Queue { queue, settings: QueueSettings::default() }).await.unwrap();
            assert_eq!(store.claim(both(9)).await.unwrap().jobs.len(), 1, "{settings:?}");
        }
    });
}

/// A repair of the field alone does not change the version of the queue, so no claim is answered `stale`.
#[test]
fn a_queue_whose_settings_were_repaired_in_the_store_is_claimed_again_beside_others() {
    let server = Redis::start().unwrap();
    block(async {
        for with_report in [false, true] {
            let scene = Scene::new(&server).await;
            let field = format!("s{}", scene.queue);
            let settings = "0 - - - - - - - -\n{}";
            scene.raw.set("meta", &field, "0 - - - - - - - -\n{noise").await;
            let store = scene.store();
            assert_eq!(store.claim(both(9)).await.unwrap().jobs.len(), 1, "of the other queue");
            scene.raw.set("meta", &field, settings).await;
            let claimed = async {
                loop {
                    let report = ReportRequest { worker: both(9).worker, outcomes: Vec::new() };
                    let claimed = match with_report {
                        true => store.report_and_claim(report, both(9)).await.unwrap().claimed,
                        false => store.claim(both(9)).await.unwrap(),
                    };
                    if !claimed.jobs.is_empty() {
                        return claimed.jobs;
                    }
                }
            };
            let claimed = tokio::time::timeout(HANG_GUARD, claimed).await.expect("the repaired queue is claimed");
            assert_eq!(claimed[0].spec.queue.as_str(), "q");
        }
    });
}

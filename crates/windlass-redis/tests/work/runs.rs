//! Runs: removals, commits and renewals.

use super::support::{block, job_with};
use super::{Counted, sweep};
use bytes::Bytes;
use windlass_core::id::RunId;
use windlass_core::job::NewJob;
use windlass_core::name::{Kind, WorkerId};
use windlass_core::store::{
    JobQueue, NewRun, RunClaim, RunCommit, RunMessage, RunRenewal, RunState, RunStep, RunStore, SweepKind,
};
use windlass_redis::RedisStore;

async fn create_run(store: &RedisStore, id: RunId, step: RunStep) {
    let (kind, nothing) = (Kind::new("graph").unwrap(), Bytes::new());
    let (definition, input) = (nothing.clone(), nothing);
    let run = NewRun { definition, input, keep_ms: Some(1_000), step, ..NewRun::new(id, kind) };
    store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
}

/// Runs that have ended, each with so many entries.
async fn ended_runs(store: &RedisStore, count: u128, entries: usize) -> Vec<RunId> {
    let ids: Vec<RunId> = (1..=count).map(|n| RunId::from_parts(0, n)).collect();
    for id in &ids {
        let history = vec![Bytes::from_static(b"entry"); entries];
        create_run(store, *id, RunStep { history, state: RunState::Succeeded, ..RunStep::nothing() }).await;
    }
    ids
}

#[test]
fn slow_the_removal_of_runs_is_bounded_by_work() {
    for pruned in [true, false] {
        let set = Counted::new();
        block(async {
            let ids = ended_runs(&set.store, 40, 900).await;
            set.clock.advance_ms(1_000);
            if !pruned {
                for answer in set.store.remove_runs(ids).await.unwrap() {
                    answer.unwrap();
                }
            }
            sweep(&set.store, SweepKind::Prune).await;
            for name in ["runs", "run_list", "run_removable", "history", "trash"] {
                assert_eq!(set.ask("EXISTS", name), "0", "{name}");
            }
        });
    }
}

/// Runs with so many ready jobs each, and the commits that cancel all of these, or all that no worker has claimed.
async fn cancelling_commits(store: &RedisStore, count: u128, jobs: usize, is_unclaimed: bool) -> Vec<RunCommit> {
    let mut commits = Vec::new();
    for id in (1..=count).map(|n| RunId::from_parts(0, n)) {
        let jobs: Vec<NewJob> = (0..jobs).map(|_| job_with(|spec| spec.run = Some(id))).collect();
        let cancel = jobs.iter().map(NewJob::effective_id).collect();
        create_run(store, id, RunStep { jobs, ..RunStep::nothing() }).await;
        let engine = WorkerId::new("e").unwrap();
        let claim =
            RunClaim { run: Some(id), lease_ms: 60_000, ..RunClaim::new(engine, vec![Kind::new("graph").unwrap()]) };
        let lease = store.claim_runs(claim).await.unwrap().runs.remove(0).lease;
        let step = match is_unclaimed {
            false => RunStep { cancel, ..RunStep::nothing() },
            true => RunStep { cancel_unclaimed: cancel, ..RunStep::nothing() },
        };
        commits.push(RunCommit::new(lease, 0, step));
    }
    commits
}

/// An engine cancels up to 500 jobs in a step, and commits the steps of many runs in one call.
#[test]
fn commits_that_cancel_many_jobs_are_bounded_by_work() {
    for is_unclaimed in [false, true] {
        let set = Counted::new();
        block(async {
            let commits = cancelling_commits(&set.store, 20, 100, is_unclaimed).await;
            for answer in set.store.commit_runs(commits).await.unwrap() {
                answer.unwrap();
            }
            assert_eq!(set.store.queues().await.unwrap()[0].counts.cancelled, 2_000);
        });
    }
}

/// Creates runs, claims them, and sends so many messages of so many bytes to each; the renewals that return these.
async fn renewals_of_messages(
    store: &RedisStore,
    runs: std::ops::Range<u128>,
    count: usize,
    bytes: usize,
) -> Vec<RunRenewal> {
    let mut renewals = Vec::new();
    for run in runs.map(|n| RunId::from_parts(0, n)) {
        create_run(store, run, RunStep::nothing()).await;
        let engine = WorkerId::new("e").unwrap();
        let claim =
            RunClaim { run: Some(run), lease_ms: 60_000, ..RunClaim::new(engine, vec![Kind::new("graph").unwrap()]) };
        let lease = store.claim_runs(claim).await.unwrap().runs.remove(0).lease;
        let message = RunMessage::new(run, "x".repeat(bytes));
        let mut left = count;
        while left > 0 {
            let some = left.min(if bytes > 1_000 { 2 } else { 500 });
            assert!(store.send_to_runs(vec![message.clone(); some]).await.unwrap().iter().all(Result::is_ok));
            left -= some;
        }
        renewals.push(RunRenewal { lease, lease_ms: 60_000, inbox_from: 0 });
    }
    renewals
}

/// An engine renews all of its runs in one call, and each of them may have got many or large messages.
#[test]
fn renewals_of_many_runs_with_many_or_large_messages_are_bounded_by_work() {
    let set = Counted::new();
    block(async {
        let mut renewals = renewals_of_messages(&set.store, 1..9, 1_000, 1).await;
        renewals.extend(renewals_of_messages(&set.store, 10..14, 20, 1 << 20).await);
        renewals.extend(renewals_of_messages(&set.store, 20..320, 1, 1).await);
        let (mut found, mut rounds) = (0, 0);
        while found < 8 * 1_000 + 4 * 20 + 300 {
            let answers = set.store.renew_runs(renewals.clone()).await.unwrap();
            let before = found;
            for (renewal, answer) in renewals.iter_mut().zip(answers) {
                let renewed = answer.unwrap();
                assert_eq!(renewal.inbox_from + renewed.inbox.len() as u64, renewed.inbox_to);
                found += renewed.inbox.len();
                renewal.inbox_from = renewed.inbox_to;
            }
            assert!(found > before, "every call returns some of the {found} items that are left");
            rounds += 1;
        }
        assert!(rounds < 30, "{rounds} calls");
    });
}

//! The end: no more jobs, everybody awake, everything done, everybody gone; and then the books are compared.

use super::args::Demo;
use super::board::{News, Phase};
use super::fleet::last_words;
use super::follow;
use super::place::Place;
use super::run::{Next, Stage, long_kept, open_queues};
use super::summary::Summary;
use crate::failure::Failure;
use std::sync::atomic::Ordering;
use std::time::Duration;
use windlass::core::name::WorkerId;
use windlass::core::store::{Durability, QueueSettings};
use windlass_audit::{Entry, Evidence, StoredJob, audit, read_ledgers};
use windlass_operate::doctor::durability_text as promise;

/// How long the last jobs may take, beside what their leases and their number take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Jobs that are looked up at once.
const LOOK_UP_MAX: usize = 1_000;

/// Ends the demo; answers what is to be said about it. Once more Ctrl-C breaks it off.
pub(super) async fn wind_down(stage: &mut Stage, demo: &Demo) -> Result<Vec<String>, Failure> {
    stage.enter(Phase::Finishing);
    stage.valve.closed.store(true, Ordering::Relaxed);
    let turns = stage.fleet.revive()?;
    stage.board.note_turns(turns);
    // Whoever paused a queue wants to see its jobs end now.
    open_queues(&stage.store, long_kept()).await?;
    until_no_more(stage).await?;
    let all_ended = until_ended(stage, demo).await?;
    stage.enter(Phase::Stopping);
    stage.screen.show(&stage.board)?;
    stage.fleet.stop().await?;
    let open = stage.board.open();
    Ok(if all_ended {
        Vec::new()
    } else {
        vec![format!("{open} jobs have not ended in time; they count as still waiting")]
    })
}

async fn until_no_more(stage: &mut Stage) -> Result<(), Failure> {
    loop {
        match stage.next().await? {
            Next::News(News::NoMore) => return Ok(()),
            next => check(&next)?,
        }
    }
}

/// Waits until no queue has a job that has not ended.
async fn until_ended(stage: &mut Stage, demo: &Demo) -> Result<bool, Failure> {
    let patience = PATIENCE + demo.lease * 3 + demo.latency * 30;
    let deadline = tokio::time::sleep(patience);
    tokio::pin!(deadline);
    loop {
        let next = tokio::select! {
            next = stage.next() => next?,
            () = &mut deadline => return Ok(false),
        };
        check(&next)?;
        if matches!(next, Next::Tick) {
            let turns = stage.fleet.tend(stage.board.now)?;
            stage.board.note_turns(turns);
            // What the board shows may be older than the last enqueue.
            if stage.board.open() == 0 && has_ended(stage).await? {
                return Ok(true);
            }
        }
    }
}

async fn has_ended(stage: &mut Stage) -> Result<bool, Failure> {
    let (queues, workers) = (stage.store.queues().await?, stage.store.workers().await?);
    stage.board.take(News::Status { queues, workers });
    Ok(stage.board.open() == 0)
}

/// A user who asks for the end once more wants it at once.
fn check(next: &Next) -> Result<(), Failure> {
    match next {
        Next::Interrupted => Err(Failure::interrupted()),
        Next::Pressed(input) if input.is_interrupt() => Err(Failure::interrupted()),
        Next::Pressed(_) | Next::News(_) | Next::Tick => Ok(()),
    }
}

/// Collects what the parent, the workers and the store hold about the acknowledged jobs.
async fn evidence(stage: &Stage, place: &Place) -> Result<Evidence, Failure> {
    let acknowledged = stage.board.acknowledged();
    let mut entries = read_ledgers(place.dir())?;
    entries.extend(acknowledged.iter().map(|id| Entry::Acknowledged(*id)));
    let mut jobs = Vec::new();
    for ids in acknowledged.chunks(LOOK_UP_MAX) {
        jobs.extend(stage.store.get(ids.to_vec()).await?.iter().flatten().map(StoredJob::from));
    }
    Ok(Evidence { entries, jobs, completions: stage.board.completions(), is_shared: true })
}

/// Compares the evidence.
pub(super) async fn account(stage: &mut Stage, place: &Place) -> Result<Summary, Failure> {
    stage.tasks.shutdown().await;
    while let Ok(news) = stage.news.try_recv() {
        stage.board.take(news);
    }
    // Whatever the follower has not told yet is read from where the board stands.
    loop {
        let (page, failures) = follow::read(&stage.store, stage.board.cursor).await?;
        let done = page.entries.is_empty() && !page.gap;
        stage.board.take(News::Feed { page, failures });
        if done {
            break;
        }
    }
    let evidence = evidence(stage, place).await?;
    // A store that stays is not to keep the demo's jobs for long, nor workers that are known to be dead.
    open_queues(&stage.store, QueueSettings::default()).await?;
    for name in &stage.fleet.killed {
        stage.store.deregister(WorkerId::new(name.as_str())?).await?;
    }
    let info = stage.store.info().await?;
    stage.store.close().await?;
    let mut findings = audit(&evidence);
    if stage.board.gap {
        findings
            .faults
            .push("entries of the feed were missed; completions are known from the ledgers alone".to_owned());
    }
    let tenths = stage.board.elapsed_ms() / 100;
    let (durability, meaning) = promise(&info);
    let promised = matches!(info.durability, Durability::Process | Durability::Power);
    let summary = Summary {
        deduplicated: stage.board.deduplicated,
        not_enqueued: stage.board.not_enqueued,
        kills: stage.fleet.killed.len() as u64,
        freezes: stage.fleet.freezes,
        seconds: f64::from(u32::try_from(tenths).unwrap_or(u32::MAX)) / 10.0,
        seed: stage.board.seed,
        store: place.shown_url(),
        durability,
        excuse: Some(meaning).filter(|_| !promised),
        ..Summary::of(&findings)
    };
    let worker_error = if summary.is_clean() { None } else { last_words(place.dir()) };
    Ok(Summary { worker_error, ..summary })
}

//! The worker registry.

use super::RedisStore;
use crate::link::Command;
use crate::reply::{Items, odd, text};
use crate::scripts::AT;
use async_trait::async_trait;
use windlass_core::Result;
use windlass_core::id::JobId;
use windlass_core::name::WorkerId;
use windlass_core::store::{Beat, BeatAnswer, WorkerRegistry, WorkerStatus};
use windlass_core::time::Timestamp;

/// A worker from `since seen ttl beat`; `None` when it cannot be read: one damaged note must not hide the others.
fn worker(stored: &str, now: Timestamp) -> Option<WorkerStatus> {
    let mut parts = stored.splitn(4, ' ');
    let mut time = || parts.next()?.parse().ok().map(Timestamp::from_ms);
    let (since, seen_at) = (time()?, time()?);
    let ttl_ms: u64 = parts.next()?.parse().ok()?;
    let beat = serde_json::from_str(parts.next()?).ok()?;
    Some(WorkerStatus { beat, since, seen_at, live: now.ms_since(seen_at) <= ttl_ms })
}

/// The workers of the registry, by id; each comes behind its id.
pub(super) fn workers(items: &mut Items, now: Timestamp) -> Result<Vec<WorkerStatus>> {
    let found = items.all(|items| {
        items.bytes()?;
        Ok(text(&items.bytes()?).ok().and_then(|stored| worker(stored, now)))
    })?;
    let mut all: Vec<WorkerStatus> = found.into_iter().flatten().collect();
    all.sort_by(|a, b| a.beat.worker.cmp(&b.beat.worker));
    Ok(all)
}

#[async_trait]
impl WorkerRegistry for RedisStore {
    async fn heartbeat(&self, beat: Beat) -> Result<BeatAnswer> {
        beat.check()?;
        let mut call = self.caller.script(AT.heartbeat);
        call.arg(beat.worker.as_str()).arg_fmt(beat.ttl_ms);
        call.arg(serde_json::to_vec(&beat).map_err(|e| odd(&e.to_string()))?);
        let mut items = self.caller.items(call).await?;
        // What is no id is no job, and must not keep the worker from being heard.
        let id = |items: &mut Items| Ok(text(&items.bytes()?).ok().and_then(|id| id.parse::<JobId>().ok()));
        Ok(BeatAnswer { cancelled: items.all(id)?.into_iter().flatten().collect() })
    }

    async fn deregister(&self, worker: WorkerId) -> Result<()> {
        let mut call = self.caller.script(AT.deregister);
        call.arg(worker.as_str()).arg_fmt(format_args!("{}/{worker}", self.handle));
        self.caller.run(call).await.map(drop)
    }

    async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        let now = self.time().await?;
        let stored = self.caller.link.command(&Command::new("HGETALL").arg(self.caller.keys.workers())).await?;
        workers(&mut Items::of_map(stored)?, now)
    }
}

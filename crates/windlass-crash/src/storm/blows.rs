//! The blows: each breaks something, and returns when the store is back.

use super::Storm;
use super::bed::{Bed, at};
use super::fault::Fault;
use crate::Result;
use crate::child::pass_ms;
use crate::recount::Discord;
use std::time::Duration;
use windlass_core::time::{Clock, SystemClock, Timestamp};
use windlass_servers::Delay;

/// How often one round flushes, kills connections or cuts.
const BEATS: u64 = 25;
/// How long a new primary may take.
pub(super) const FAILOVER_WITHIN: Duration = Duration::from_secs(30);
/// How long a crew may take to work off what is there.
const DRAIN_MS: u64 = 10_000;

/// A blow that is over.
pub(super) struct Struck {
    pub(super) back_at: Timestamp,
    /// What was found in the middle of it.
    pub(super) discord: Discord,
}

impl Storm {
    pub(super) async fn strike(&mut self) -> Result<Struck> {
        let mut discord = Discord::default();
        match self.fault {
            Fault::ScriptFlush => self.beat(&[&["SCRIPT", "FLUSH", "SYNC"]]).await?,
            Fault::ClientKill | Fault::Neighbours => {
                self.beat(&[&["CLIENT", "KILL", "TYPE", "normal"], &["CLIENT", "KILL", "TYPE", "pubsub"]]).await?;
            }
            Fault::Pause => {
                at(&self.bed, |bed| Ok(bed.single()?.pause()?)).await?;
                pass_ms(1_500).await;
                at(&self.bed, |bed| Ok(bed.single()?.resume()?)).await?;
            }
            Fault::RestartAlways | Fault::RestartEverysec | Fault::Reconnect => self.restart().await?,
            Fault::Loading => self.load_slowly().await?,
            Fault::MemoryFull => self.fill_memory().await?,
            Fault::Cuts => self.cut().await?,
            Fault::Swallowed | Fault::HalfOpen | Fault::SlowLink => self.spoil_line().await?,
            Fault::SentinelKill | Fault::SentinelKillWait => {
                at(&self.bed, |bed| {
                    let old = bed.sentinel()?.kill9_primary()?;
                    Ok(bed.sentinel()?.wait_for_new_primary(old, FAILOVER_WITHIN)?)
                })
                .await?;
            }
            Fault::SentinelFailover | Fault::SentinelFailoverWait => {
                at(&self.bed, |bed| {
                    let old = bed.sentinel()?.fail_over()?;
                    Ok(bed.sentinel()?.wait_for_new_primary(old, FAILOVER_WITHIN)?)
                })
                .await?;
            }
            Fault::ClusterKill | Fault::ClusterKillWait => {
                at(&self.bed, |bed| Ok(bed.cluster()?.fail_over_slot(Bed::slot())?)).await?;
                if self.fault == Fault::ClusterKillWait {
                    // Without a replica nothing can be acknowledged, so the store is not back before there is one.
                    self.mend().await?;
                }
            }
            Fault::ClusterFailover => {
                at(&self.bed, |bed| Ok(bed.cluster()?.manual_failover(Bed::slot())?)).await?;
            }
            Fault::SlotMigration => discord = self.migrate().await?,
            Fault::HalfStore => discord = self.halve().await?,
            Fault::PlannedOneReplica
            | Fault::PlannedWaitOne
            | Fault::PlannedWaitAll
            | Fault::FailoverTo
            | Fault::KilledOneReplica
            | Fault::KilledWaitOne
            | Fault::KilledWaitAll
            | Fault::OutdatedSentinel
            | Fault::OutdatedSentinelKilled
            | Fault::FrozenSentinel
            | Fault::FrozenTimekeeper => {
                return Err(format!("{} has a storm of its own", self.fault).into());
            }
        }
        Ok(Struck { back_at: SystemClock.now(), discord })
    }

    async fn restart(&self) -> Result<()> {
        at(&self.bed, |bed| {
            bed.single()?.kill9();
            Ok(())
        })
        .await?;
        pass_ms(self.dice.below(400)).await;
        at(&self.bed, |bed| Ok(bed.single()?.restart()?)).await
    }

    /// Replies that do not arrive, or late.
    async fn spoil_line(&self) -> Result<()> {
        let faults = self.bed.proxy()?.faults();
        if self.fault == Fault::SlowLink {
            let delay = Duration::from_millis(50);
            faults.delay(Delay { to_server: delay, to_client: delay });
            pass_ms(1_500).await;
            return Ok(faults.pass()?);
        }
        faults.swallow_replies(true);
        // Long enough for everybody to ask something. Each has one call under way, so on a connection that goes on no
        // later reply is mistaken for the one that got lost.
        pass_ms(if self.fault == Fault::HalfOpen { 300 } else { 700 }).await;
        faults.swallow_replies(false);
        if self.fault == Fault::Swallowed {
            faults.cut_all();
        }
        Ok(())
    }

    /// Brings back what is still away, once the crew has gone on without it.
    pub(super) async fn mend(&self) -> Result<()> {
        match self.fault {
            Fault::SentinelKill | Fault::SentinelKillWait | Fault::SentinelFailover | Fault::SentinelFailoverWait => {
                at(&self.bed, |bed| {
                    let sentinel = bed.sentinel()?;
                    for node in sentinel.nodes().iter().filter(|node| !node.is_up()) {
                        node.restart()?;
                    }
                    Ok(sentinel.wait_until_healthy()?)
                })
                .await
            }
            Fault::ClusterKill | Fault::ClusterKillWait | Fault::ClusterFailover | Fault::SlotMigration => {
                at(&self.bed, |bed| {
                    let cluster = bed.cluster()?;
                    for node in cluster.nodes().iter().filter(|node| !node.is_up()) {
                        node.restart()?;
                    }
                    Ok(cluster.wait_until_healthy()?)
                })
                .await
            }
            _ => Ok(()),
        }
    }

    /// The same commands again and again.
    async fn beat(&self, commands: &'static [&'static [&'static str]]) -> Result<()> {
        for _ in 0..BEATS {
            at(&self.bed, move |bed| {
                commands.iter().try_for_each(|command| Ok(bed.single()?.command(command).map(drop)?))
            })
            .await?;
            pass_ms(self.dice.below(30)).await;
        }
        Ok(())
    }

    /// Cuts at every place: inside and after requests, before, inside and after replies.
    async fn cut(&self) -> Result<()> {
        let faults = self.bed.proxy()?.faults().clone();
        for _ in 0..BEATS {
            match self.dice.below(5) {
                0 | 1 => faults.cut_before_reply_to("EVALSHA", usize::try_from(self.dice.below(4) + 1)?),
                2 => faults.cut_after_bytes_from_server(usize::try_from(self.dice.below(2_000))?),
                3 => faults.cut_after_bytes_to_server(usize::try_from(self.dice.below(4_000))?),
                _ => drop(faults.cut_all()),
            }
            pass_ms(self.dice.below(40)).await;
        }
        Ok(faults.pass()?)
    }

    /// A restart that takes a tenth of a second for every key.
    async fn load_slowly(&self) -> Result<()> {
        {
            // So that what is loaded is keys and not every write since.
            let _still = self.crews.first().ok_or("no crew")?.watch.still().await;
            at(&self.bed, |bed| Ok(bed.single()?.command(&["BGREWRITEAOF"])?)).await?;
            let rewriting = |bed: &Bed| {
                let info = bed.single()?.command(&["INFO", "persistence"])?;
                let flags = ["aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"];
                Ok(flags.iter().any(|flag| info.contains(flag)))
            };
            while at(&self.bed, rewriting).await? {
                pass_ms(10).await;
            }
            at(&self.bed, |bed| {
                bed.single()?.kill9();
                Ok(())
            })
            .await?;
        }
        let began = SystemClock.now();
        at(&self.bed, |bed| Ok(bed.single()?.restart()?)).await?;
        if SystemClock.now().ms_since(began) < 1_000 {
            return Err("the server has loaded its data at once, so nothing was shown".into());
        }
        Ok(())
    }

    /// With a full memory nothing is enqueued, and everything that is there is worked off.
    async fn fill_memory(&mut self) -> Result<()> {
        at(&self.bed, |bed| {
            // Less than it has.
            bed.single()?.command(&["CONFIG", "SET", "maxmemory", "100kb"])?;
            // A new connection must be able to work, too.
            Ok(bed.single()?.command(&["CLIENT", "KILL", "TYPE", "normal"])?)
        })
        .await?;
        let crew = self.crews.first_mut().ok_or("no crew")?;
        let (refused, end) = (crew.watch.unanswered().full, SystemClock.now().plus_ms(DRAIN_MS));
        while crew.watch.unanswered().full < refused + 5 || crew.waiting().await != Some(0) {
            crew.check()?;
            if SystemClock.now() >= end {
                let (left, error) = (crew.waiting().await, crew.watch.last_error());
                return Err(format!("with a full memory {left:?} jobs are not worked off: {error}").into());
            }
            pass_ms(10).await;
        }
        at(&self.bed, |bed| Ok(bed.single()?.command(&["CONFIG", "SET", "maxmemory", "0"])?)).await?;
        Ok(())
    }

    /// Half of the keys are here and half are there for a while.
    async fn migrate(&self) -> Result<Discord> {
        let slot = Bed::slot();
        let to = at(&self.bed, move |bed| {
            let to = bed.other_primary(slot)?;
            bed.cluster()?.begin_migration(slot, to)?.step(1)?;
            Ok(to)
        })
        .await?;
        let crew = self.crews.first().ok_or("no crew")?;
        let mut discord = Discord::default();
        let mut left = true;
        while left {
            pass_ms(50 + self.dice.below(100)).await;
            let found = crew.recount().await?;
            discord.count += found.count;
            discord.named.extend(found.named);
            left = at(&self.bed, move |bed| Ok(bed.cluster()?.begin_migration(slot, to)?.step(4)?)).await? > 0;
        }
        at(&self.bed, move |bed| Ok(bed.cluster()?.migrate_slot(slot, to, 4)?)).await?;
        Ok(discord)
    }
}

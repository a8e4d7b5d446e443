//! Half a store: the source of a slot move dies when some of the keys are moved.
//!
//! The workers and enqueuers go on calling. Every call must be refused as damaged, and nothing may be written on either node.
//! Then the steps of the guide ("Half a store" in `docs/redis.md`) must bring the keys together.

use super::Storm;
use super::bed::{Bed, at};
use super::crew::Crew;
use crate::Result;
use crate::child::{Dice, pass_ms};
use crate::recount::Discord;
use windlass_core::Error;
use windlass_core::time::{Clock, SystemClock};
use windlass_redis::Options;
use windlass_redis::doctor::{Depth, examine};
use windlass_servers::SplitSlot;

/// Keys of which one is moved and one is not: a store that lacks any of them is refused, a store that has nothing else than
/// other keys may be a new one.
const ALWAYS_THERE: [&str; 4] = ["meta", "jobs", "feed", "groups"];
/// How many calls of each worker and enqueuer are refused before the repair, on average.
const REFUSALS: u64 = 3;
/// How long these are waited for.
const REFUSED_WITHIN_MS: u64 = 20_000;
/// How long the importing node may name the dead owner to `doctor`.
const EXAMINED_WITHIN_MS: u64 = 30_000;

impl Storm {
    /// Splits the store, has it refused, and merges it. Returns what was accepted or written meanwhile.
    pub(super) async fn halve(&mut self) -> Result<Discord> {
        let crew = self.crews.first_mut().ok_or("no crew")?;
        crew.watch.expect_damage(true);
        let drawn = Dice::new(self.dice.seed());
        let split = at(&self.bed, move |bed| bed.split_store(&drawn)).await?;
        let before = at(&self.bed, move |bed| bed.digests(split)).await?;
        let mut discord = Discord::default();
        expect_refusals(crew, &mut discord).await?;
        if !is_half(&crew.url).await? {
            discord.say("doctor does not report half a store");
        }
        // From here on as the guide says. First, all workers and clients are stopped.
        let _still = crew.watch.still().await;
        if at(&self.bed, move |bed| bed.digests(split)).await? != before {
            discord.say("something was written to half a store");
        }
        at(&self.bed, move |bed| Ok(bed.cluster()?.merge_slot(split)?)).await?;
        if is_half(&crew.url).await? {
            discord.say("doctor reports half a store after the repair");
        }
        crew.watch.expect_damage(false);
        Ok(discord)
    }
}

impl Bed {
    /// Moves a random part of the keys, and kills the source.
    fn split_store(&self, dice: &Dice) -> Result<SplitSlot> {
        let slot = Self::slot();
        let migration = self.cluster()?.begin_migration(slot, self.other_primary(slot)?)?;
        let count = ALWAYS_THERE.len() as u64;
        let goes = dice.below(count);
        let stays = (goes + 1 + dice.below(count - 1)) % count;
        let is = |key: &str, at: u64| {
            usize::try_from(at)
                .is_ok_and(|at| ALWAYS_THERE.get(at).is_some_and(|name| key.ends_with(&format!(":{name}"))))
        };
        let mut keys = migration.keys_left()?;
        keys.retain(|key| is(key, goes) || (!is(key, stays) && dice.below(2) == 0));
        migration.move_keys(&keys)?;
        Ok(migration.kill_source()?)
    }

    /// A digest of all data of the two nodes that have a part of the store.
    fn digests(&self, split: SplitSlot) -> Result<Vec<String>> {
        let nodes = [split.owner, split.target];
        nodes.iter().map(|node| Ok(self.cluster()?.node(*node)?.command(&["DEBUG", "DIGEST"])?)).collect()
    }
}

/// Waits until the workers and enqueuers have been refused several times.
async fn expect_refusals(crew: &mut Crew, discord: &mut Discord) -> Result<()> {
    let wanted = crew.watch.unanswered().refused + REFUSALS * crew.size();
    let end = SystemClock.now().plus_ms(REFUSED_WITHIN_MS);
    while crew.watch.unanswered().refused < wanted {
        crew.check()?;
        if SystemClock.now() >= end {
            discord.say(format_args!("half a store is not refused; the last error is: {}", crew.watch.last_error()));
            return Ok(());
        }
        pass_ms(10).await;
    }
    Ok(())
}

/// Whether `doctor` reports half a store.
async fn is_half(url: &str) -> Result<bool> {
    let (options, end) = (Options::from_url(url)?, SystemClock.now().plus_ms(EXAMINED_WITHIN_MS));
    loop {
        match examine(&options, Depth::default()).await {
            Ok(found) => return Ok(found.findings.iter().any(|finding| finding.check == "half")),
            Err(Error::Unavailable { .. }) if SystemClock.now() < end => pass_ms(20).await,
            Err(error) => return Err(error.into()),
        }
    }
}

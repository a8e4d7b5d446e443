//! Feeds the items of a run once more, in other batches and chunks, with crashes before and after commits.

use crate::support::{Rng, World, mix, opening};
use windlass_core::time::Timestamp;
use windlass_durable::{Entry, Item, ItemBody, Opening, Record, Run};

pub(super) fn check(world: &World, seed: u64, crash: u64, first_takes_all: bool) -> Result<(), String> {
    let want = world.records(0);
    let got = Retake { rng: Rng(mix(seed)), world, crash, first_takes_all }.run()?;
    if got == want {
        return Ok(());
    }
    let at = got.iter().zip(want).position(|(a, b)| a != b).unwrap_or(got.len().min(want.len()));
    let lens = (got.len(), want.len());
    Err(format!("differs at {at} of {lens:?}:\n got  {:?}\n want {:?}", got.get(at), want.get(at)))
}

struct Retake<'w> {
    rng: Rng,
    world: &'w World,
    crash: u64,
    /// The first commit of a turn takes all of its items.
    first_takes_all: bool,
}

impl Retake<'_> {
    fn run(mut self) -> Result<Vec<Record>, String> {
        let tape = tape(self.world);
        let (mut history, mut taken): (Vec<Record>, usize) = (Vec::new(), 0);
        let mut run: Option<Run> = None;
        for _ in 0..1_000_000 {
            let mut open = match run.take() {
                Some(run) => run,
                None => self.open(&history)?,
            };
            let (items, is_noisy) = self.items(&tape, taken);
            let is_last = taken + items.len() >= tape.len() && !is_noisy;
            let now = if is_last { i64::MAX } else { items.last().map_or(i64::MIN, |item| item.at.as_ms()) };
            let turn = open.turn(items, Timestamp::from_ms(now)).map_err(|stuck| stuck.to_string())?;
            if turn.ended.is_none() && self.rng.below(2) == 0 && open.poke().map_err(|stuck| stuck.to_string())? != 0 {
                return Err("a poll without a reason made a record".into());
            }
            if self.rng.below(self.crash) == 0 {
                // Killed before the commit.
                continue;
            }
            let all: Vec<u64> = turn.takes.iter().map(|(_, number)| *number).collect();
            let records_max = 1 + self.rng.usize(5);
            let mut is_killed = false;
            for (n, chunk) in turn.chunks(records_max).enumerate() {
                history.extend(chunk.records);
                let takes = if self.first_takes_all && n == 0 { all.clone() } else { chunk.takes };
                // A commit takes the next items: the numbers of the tape are its positions.
                taken = takes.iter().fold(taken, |taken, number| taken.max(usize::try_from(*number).unwrap() + 1));
                if self.rng.below(self.crash) == 0 {
                    is_killed = true;
                    break;
                }
            }
            let has_ended = matches!(history.last(), Some(Record { entry: Entry::End { .. }, .. }));
            if has_ended || !is_killed && is_last && taken >= tape.len() {
                return Ok(history);
            }
            run = Some(open).filter(|_| !is_killed);
        }
        Err("no end".into())
    }

    fn open(&self, history: &[Record]) -> Result<Run, String> {
        let base = opening(&self.world.workflow, history.to_vec());
        let input = self.world.segments[0].input.to_bytes();
        Run::open(Opening { input, id: self.world.id, ..base }).map_err(|stuck| stuck.to_string())
    }

    /// The next items; now and then an end comes a second time, for which nobody waits.
    fn items(&mut self, tape: &[Item], taken: usize) -> (Vec<Item>, bool) {
        let n = self.rng.usize(4) + if self.rng.below(5) == 0 { 20 } else { 0 };
        let mut items = tape[taken..(taken + n).min(tape.len())].to_vec();
        let again = (self.rng.below(4) == 0 && taken > 0).then(|| tape[self.rng.usize(taken as u64)].clone());
        let is_end = |item: &Item| {
            matches!(item.body, ItemBody::JobEnded { .. } | ItemBody::ChildEnded { .. } | ItemBody::Resolved { .. })
        };
        match again.filter(|again| is_end(again) && !items.is_empty()) {
            Some(again) => {
                items.insert(0, Item { number: None, at: items[0].at, ..again });
                (items, true)
            }
            None => (items, false),
        }
    }
}

/// The items that the first segment took, numbered by their positions.
fn tape(world: &World) -> Vec<Item> {
    let len = world.segments[0].next.map_or(usize::MAX, |_| world.segments[0].taken);
    let numbered = world.tape.iter().take(len).cloned().enumerate();
    numbered.map(|(at, item)| Item { number: Some(at as u64), ..item }).collect()
}

//! Fair turns: groups that always have work are served alike, by their weights, however the claims are cut.

use crate::ctx::Ctx;
use windlass_core::job::JobSpec;
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{EnqueueRequest, GroupSettings, Setting};

const SEEDS: u64 = 40;

/// Of two groups with work, none is more than one turn of the lighter one ahead of the other.
pub(super) async fn fair_turns(ctx: &Ctx) {
    for seed in 0..SEEDS {
        one(ctx, seed).await;
    }
}

struct Line {
    name: Option<windlass_core::name::GroupName>,
    weight: u64,
    left: u64,
    served: u64,
}

async fn one(ctx: &Ctx, seed: u64) {
    let random = StrongRandom::seeded(seed);
    let up_to = |n: u64| random.next_u64() % n + 1;
    let queue = format!("fair-{seed}");
    let lanes = if seed < SEEDS / 2 { 1 } else { 3 };
    let mut lines = Vec::new();
    for k in 0..up_to(5) + 1 {
        let name = (k > 0).then(|| windlass_core::name::GroupName::new(format!("g{k}")).unwrap());
        let weight = if seed.is_multiple_of(2) || name.is_none() { 1 } else { up_to(3) };
        if let (Some(group), true) = (&name, weight > 1) {
            let settings = GroupSettings { weight: u32::try_from(weight).ok(), ..GroupSettings::default() };
            let setting = Setting::Group { queue: crate::ctx::queue_name(&queue), group: group.clone(), settings };
            ctx.store.configure(setting).await.unwrap();
        }
        let left = 10 + up_to(30);
        let edit = |spec: &mut JobSpec| {
            spec.group.clone_from(&name);
            // A group takes its turns over all lanes together.
            spec.kind = super::op::kind(usize::try_from(up_to(lanes) - 1).unwrap());
        };
        let jobs = (0..left).map(|_| ctx.job_with(&queue, edit)).collect();
        let answers = ctx.store.enqueue(EnqueueRequest::new(jobs)).await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        lines.push(Line { name, weight, left, served: 0 });
    }
    loop {
        let claimed = ctx.claim("w1", &queue, u32::try_from(up_to(7)).unwrap()).await;
        if claimed.is_empty() {
            break;
        }
        for job in &claimed {
            let line = lines.iter_mut().find(|line| line.name == job.spec.group).unwrap();
            line.left -= 1;
            line.served += 1;
            check(&lines, seed);
        }
    }
    assert!(lines.iter().all(|line| line.left == 0), "seed {seed}: something was never served");
}

fn check(lines: &[Line], seed: u64) {
    // A group that has just been emptied had work until now.
    for (i, a) in lines.iter().enumerate() {
        for b in lines.iter().skip(i + 1).filter(|b| a.left > 0 && b.left > 0) {
            // served / weight, with both sides multiplied by the weights.
            let ahead = (a.served * b.weight).abs_diff(b.served * a.weight);
            let turn = a.weight.max(b.weight);
            assert!(
                ahead <= turn,
                "seed {seed}: {:?} was served {} of weight {}, {:?} {} of weight {}",
                a.name,
                a.served,
                a.weight,
                b.name,
                b.served,
                b.weight
            );
        }
    }
}

//! Renews leases of runs, and compares what the renewals return.

use super::Seen;
use super::compare::check_inbox;
use super::drive::{Checked, Driver, equal, word};
use super::entry::Word;
use super::op::{InboxPlan, RenewalPlan};
use std::collections::BTreeSet;
use windlass_core::id::Token;
use windlass_core::store::{RunLease, RunRenewal, RunRenewed};
use windlass_core::time::Timestamp;

/// A renewal that was made.
struct Made {
    renewal: RunRenewal,
    /// The number of the lease; `None` for one that was made up.
    lease: Option<usize>,
    from: InboxPlan,
}

impl Driver {
    fn made_renewal(&self, plan: RenewalPlan) -> Made {
        let lease = plan.lease.and_then(|k| self.leases.len().checked_sub(k + 1));
        let forged = RunLease { run: self.run(0), token: Token::from_bits(7) };
        let (token, behind) = lease.map_or((forged, 0), |at| (self.leases[at].lease, self.leases[at].inbox_to));
        let inbox_from = match plan.from {
            InboxPlan::AsClaimed => behind,
            InboxPlan::Nothing => 0,
            InboxPlan::Beyond => behind + 1_000_000,
        };
        let renewal = RunRenewal { lease: token, lease_ms: plan.lease_ms, inbox_from };
        Made { renewal, lease, from: plan.from }
    }

    pub(super) async fn renew(&mut self, by: usize, plans: &[RenewalPlan], seen: &mut Seen) -> Checked {
        let now = self.ctx.now().await;
        let made: Vec<Made> = plans.iter().map(|plan| self.made_renewal(*plan)).collect();
        let answers = self.store(by).renew_runs(made.iter().map(|made| made.renewal).collect()).await.unwrap();
        equal("the answers", made.len(), answers.len())?;
        let mut renewed = BTreeSet::new();
        for (made, answer) in made.iter().zip(answers) {
            let held = self.book.runs.get(&made.renewal.lease.run).and_then(|entry| entry.held.as_ref());
            let has_ended = held.is_some_and(|held| held.expires_at <= now);
            let should = self.book.renew(&made.renewal, made.lease, now);
            seen.insert(format!("Renew {should:?}"));
            equal("the renewal", should, word(&answer))?;
            if should != Word::Ok {
                continue;
            }
            if has_ended {
                seen.insert("renewed after the lease had ended".to_owned());
            }
            if !renewed.insert(made.lease) {
                seen.insert("renewed twice in one call".to_owned());
            }
            let answer = answer.map_err(|error| format!("the renewal fails: {error}"))?;
            self.renewed(made, &answer, now, seen)?;
        }
        Ok(())
    }

    /// A renewal returns the items behind those that it skips, and the lease was then shown these as well.
    fn renewed(&mut self, made: &Made, answer: &RunRenewed, now: Timestamp, seen: &mut Seen) -> Checked {
        let entry = self.book.runs.get_mut(&made.renewal.lease.run).ok_or("it is not in the book")?;
        equal("the end of the lease", now.plus_ms(made.renewal.lease_ms), answer.expires_at)?;
        let skipped = entry.before(made.renewal.inbox_from);
        let rest = entry.inbox.get_mut(skipped..).ok_or("the inbox is shorter than what the lease was shown")?;
        let count = check_inbox(rest, &answer.inbox)?;
        let is_new = matches!(made.from, InboxPlan::AsClaimed);
        for (what, so) in [
            ("renewed without new items", is_new && count == 0),
            ("renewed with new items", is_new && count > 0),
            ("renewed with items from the beginning", !is_new && count > 0),
            ("renewed with fewer items than there are", count < rest.len()),
        ] {
            if so {
                seen.insert(what.to_owned());
            }
        }
        equal("the items that were passed", count as u64, answer.inbox_taken)?;
        let Some(at) = made.lease else { return Err("a lease that was made up is renewed".to_owned()) };
        let is_all = count == rest.len();
        let last = count.checked_sub(1).map_or(made.renewal.inbox_from, |last| rest[last].number + 1);
        let inbox_to = if is_all { entry.next } else { last };
        equal("the number behind the last item", inbox_to, answer.inbox_to)?;
        let known = &mut self.leases[at];
        known.numbers.extend(answer.inbox.iter().map(|item| item.number));
        known.numbers.sort_unstable();
        known.numbers.dedup();
        known.inbox_to = known.inbox_to.max(inbox_to);
        Ok(())
    }
}

//! The caps of groups that jobs of runs bring, and how many jobs they leave to a claim.

use super::Seen;
use super::drive::{Checked, Driver, equal};
use crate::ctx::queue_name;
use std::collections::BTreeMap;
use windlass_core::id::JobId;
use windlass_core::job::{Job, State};
use windlass_core::name::{GroupName, QueueName};
use windlass_core::store::{GroupStatus, GroupsRequest};
use windlass_core::time::Timestamp;

type GroupKey = (QueueName, GroupName);
/// The groups that are there, and the cap that jobs of runs have set for each.
pub(super) type Caps = BTreeMap<GroupKey, Option<u32>>;

fn key(job: &Job) -> Option<GroupKey> {
    Some((job.spec.queue.clone(), job.spec.group.clone()?))
}

fn is_counted(job: &Job) -> bool {
    matches!(job.state, State::Ready | State::Active)
}

/// How many jobs a claim of any number finds.
pub(super) fn claimable(jobs: &BTreeMap<JobId, Job>, caps: &Caps, now: Timestamp) -> usize {
    // Jobs that wait and jobs that are active, by group.
    let mut groups: BTreeMap<Option<GroupKey>, (usize, usize)> = BTreeMap::new();
    for job in jobs.values() {
        let (waiting, active) = groups.entry(key(job)).or_default();
        match job.state {
            State::Ready => *waiting += 1,
            State::Scheduled if job.due_at.is_some_and(|at| at <= now) => *waiting += 1,
            State::Active => *active += 1,
            _ => {}
        }
    }
    let found = |(group, (waiting, active)): (Option<GroupKey>, (usize, usize))| {
        let cap = group.and_then(|group| caps.get(&group).copied().flatten());
        cap.map_or(waiting, |cap| waiting.min((cap as usize).saturating_sub(active)))
    };
    groups.into_iter().map(found).sum()
}

impl Driver {
    async fn groups_now(&self) -> BTreeMap<GroupKey, GroupStatus> {
        let mut all = BTreeMap::new();
        for queue in ["q", "p"].map(queue_name) {
            let request = GroupsRequest { queue: queue.clone(), after: None, limit: 100 };
            // A queue that no job has named is not there.
            let groups = self.ctx.store.groups(request).await.map(|page| page.groups).unwrap_or_default();
            all.extend(groups.into_iter().map(|group| ((queue.clone(), group.name.clone()), group)));
        }
        all
    }

    pub(super) async fn caps_now(&self) -> Caps {
        self.groups_now().await.into_iter().map(|(group, status)| (group, status.run_cap)).collect()
    }

    /// The groups are those of ready and active jobs, and their caps were brought by their jobs. `before` are the jobs as they were
    /// before the step.
    pub(super) async fn compare_caps(&mut self, before: &BTreeMap<JobId, Job>, seen: &mut Seen) -> Checked {
        let groups = self.groups_now().await;
        let mut counts: BTreeMap<GroupKey, (u64, u64)> = BTreeMap::new();
        for job in self.views.values().filter(|job| is_counted(job)) {
            let Some(group) = key(job) else { continue };
            let (ready, active) = counts.entry(group).or_default();
            *(if job.state == State::Ready { ready } else { active }) += 1;
        }
        let shown = groups.iter().map(|(group, status)| (group.clone(), (status.ready, status.active))).collect();
        equal("the groups", counts, shown)?;
        for (group, status) in &groups {
            self.compare_cap(group, status.run_cap, before, seen)?;
        }
        self.caps = groups.into_iter().map(|(group, status)| (group, status.run_cap)).collect();
        Ok(())
    }

    fn compare_cap(
        &self,
        group: &GroupKey,
        is: Option<u32>,
        before: &BTreeMap<JobId, Job>,
        seen: &mut Seen,
    ) -> Checked {
        let known = self.caps.get(group).copied().flatten();
        let of_group = |job: &&Job| key(job).as_ref() == Some(group);
        let new = |job: &&Job| !before.contains_key(&job.id);
        let came = |job: &&Job| is_counted(job) && before.get(&job.id).is_some_and(|old| !is_counted(old));
        // In the order in which they were made.
        let made = self.jobs.iter().filter_map(|job| self.views.get(&job.id)).filter(of_group).filter(new);
        let last = made.filter(|job| job.spec.group_cap.is_some() && job.due_at.is_none()).last();
        if let Some(job) = last.filter(|job| job.state == State::Ready) {
            if is != known && known.is_some() {
                seen.insert("a cap of a group replaced by that of a new job".to_owned());
            }
            return equal("the cap of the last new job", job.spec.group_cap, is);
        }
        let all = || self.views.values().filter(of_group);
        match is {
            None => equal(
                "ready and active jobs with a cap",
                0,
                all().filter(|job| is_counted(job) && job.spec.group_cap.is_some()).count(),
            ),
            Some(_) if is == known => {
                seen.insert("a cap of a group".to_owned());
                Ok(())
            }
            Some(_) => {
                let brought = |job: &Job| job.spec.group_cap == is;
                if all().filter(came).any(brought) {
                    seen.insert("a cap of a group brought by a job that became ready again".to_owned());
                    return Ok(());
                }
                equal("a new job has brought the cap", true, all().filter(new).any(brought))
            }
        }
    }
}

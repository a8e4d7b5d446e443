//! Settings of queues and groups.

use super::Step;
use super::rows::{GroupId, Parked, QueueId};
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::name::GroupName;
use crate::store::{FeedEvent, GroupPage, GroupSettings, GroupStatus, GroupsRequest, QueueSettings, Setting};

impl<T: Tables> Step<'_, T> {
    /// See [`JobQueue::configure`](crate::store::JobQueue::configure).
    pub fn configure(&mut self, setting: Setting) -> Result<()> {
        setting.check()?;
        let queue = self.queue_for(setting.queue())?;
        match &setting {
            Setting::Queue { settings, .. } => self.set_queue(queue, settings.clone())?,
            Setting::Paused { paused, .. } => self.tables.queue_mut(queue)?.settings.paused = *paused,
            Setting::KindPaused { kind, paused, .. } => {
                let mut settings = self.tables.queue(queue)?.settings.clone();
                if *paused {
                    settings.paused_kinds.insert(kind.clone());
                } else {
                    settings.paused_kinds.remove(kind);
                }
                settings.check()?;
                self.tables.queue_mut(queue)?.settings = settings;
            }
            Setting::Group { group, settings, .. } => self.set_group(queue, group, *settings)?,
        }
        // What was not allowed may be allowed now.
        let name = setting.queue().clone();
        self.ring(&name);
        self.events.push(FeedEvent::Settings(setting));
        Ok(())
    }

    fn set_queue(&mut self, id: QueueId, settings: QueueSettings) -> Result<()> {
        let queue = self.tables.queue_mut(id)?;
        let groups_differ = queue.settings.groups != settings.groups;
        queue.settings = settings;
        if groups_differ {
            // Those that are in the ring are looked at again when their turn comes.
            for group in self.tables.parked_groups(id)? {
                self.review_group(group)?;
                if self.tables.group(group)?.parked == Parked::No {
                    // One that is idle was remembered for its rate alone.
                    self.drop_idle_group(group)?;
                }
            }
        }
        Ok(())
    }

    fn set_group(&mut self, queue: QueueId, name: &GroupName, settings: GroupSettings) -> Result<()> {
        let id = self.group_for(queue, Some(name))?;
        let group = self.tables.group_mut(id)?;
        group.limits = group.limits.with_settings(settings);
        self.review_group(id)?;
        self.drop_idle_group(id)
    }

    /// See [`JobQueue::groups`](crate::store::JobQueue::groups).
    pub fn groups(&mut self, request: &GroupsRequest) -> Result<GroupPage> {
        request.check()?;
        let missing = || Error::queue_not_found(&request.queue);
        let queue = self.tables.find_queue(&request.queue)?.ok_or_else(missing)?;
        let limit = request.limit as usize;
        let ids = self.tables.groups(queue, request.after.as_ref(), limit)?;
        let more = ids.len() == limit;
        let mut groups = Vec::with_capacity(ids.len());
        for id in ids {
            groups.extend(self.group_status(id)?);
        }
        Ok(GroupPage { groups, more })
    }

    fn group_status(&mut self, id: GroupId) -> Result<Option<GroupStatus>> {
        let now = self.now;
        let rate = self.group_limits(id)?.rate;
        let group = self.tables.group(id)?;
        let Some(name) = group.name.clone() else {
            return Ok(None);
        };
        Ok(Some(GroupStatus {
            name,
            ready: group.ready,
            active: group.active,
            settings: group.limits.settings(),
            run_cap: group.limits.run_cap,
            rate_limited_until: rate.and_then(|rate| group.meter.next_at(rate, now)),
        }))
    }
}

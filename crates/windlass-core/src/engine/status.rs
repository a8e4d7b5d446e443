//! Queues and metrics as they are now.

use super::Step;
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::store::{MetricsRequest, MinuteMetrics, QueueCounts, QueueStatus};

impl<T: Tables> Step<'_, T> {
    /// See [`JobQueue::queues`](crate::store::JobQueue::queues).
    pub fn queue_statuses(&mut self) -> Result<Vec<QueueStatus>> {
        let mut all = Vec::new();
        for id in self.tables.queues()? {
            let lanes = u32::try_from(self.lanes_where(id, |lane| lane.jobs > 0)?.len()).unwrap_or(u32::MAX);
            let queue = self.tables.queue(id)?;
            let counts = QueueCounts::from_array(queue.counts);
            all.push(QueueStatus { name: queue.name.clone(), counts, settings: queue.settings.clone(), lanes });
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// See [`JobQueue::metrics`](crate::store::JobQueue::metrics).
    pub fn metrics(&mut self, request: &MetricsRequest) -> Result<Vec<MinuteMetrics>> {
        let (from, to) = request.check()?;
        let missing = || Error::queue_not_found(&request.queue);
        let queue = self.tables.find_queue(&request.queue)?.ok_or_else(missing)?;
        self.tables.minutes(queue, from, to)
    }
}

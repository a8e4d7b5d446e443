//! What this process knows of queues and their lanes. Claims are planned by it, and records name lanes by number.
//!
//! Every queue has a version that rises with its lanes and settings. A claim carries the version that it was planned by,
//! and the store answers `stale` when it is not the present one: so nothing depends on this being up to date.

use crate::reply::{Items, number, odd, text};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::Result;
use windlass_core::name::{Kind, Label, Labels, QueueName};
use windlass_core::store::{ClaimRequest, QueueCounts, QueueSettings, QueueStatus};

/// What `queues.lua` answers for each queue.
const QUEUE_ITEMS: usize = 7;
/// How often queues that cannot be read are looked at again. A repair of the settings alone does not change the version.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Between the kind and the labels of a lane; no name contains it.
const BETWEEN: char = '\u{1f}';

/// A lane: queue, kind and required labels.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: u64,
    pub(crate) queue: QueueName,
    pub(crate) kind: Kind,
    pub(crate) labels: Labels,
}

/// A queue as it was when it was last looked at.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) id: u64,
    /// As the store keeps it, also when it is damaged: the store compares it.
    pub(crate) version: Bytes,
    pub(crate) settings: QueueSettings,
    /// As the store keeps them.
    pub(crate) settings_text: String,
    pub(crate) lanes: Vec<Arc<Lane>>,
    pub(crate) counts: QueueCounts,
    lanes_used: u32,
}

/// The kind and labels of a lane, as the store writes them.
pub(crate) fn lane_key(kind: &Kind, labels: &Labels) -> String {
    let mut key = kind.as_str().to_owned();
    for label in labels.iter() {
        key.push(BETWEEN);
        key.push_str(label.as_str());
    }
    key
}

fn lane_of(queue: &QueueName, line: &str) -> Result<Arc<Lane>> {
    let (id, key) = line.split_once(' ').ok_or_else(|| odd("a lane without a kind"))?;
    let mut parts = key.split(BETWEEN);
    let kind = Kind::new(parts.next().unwrap_or_default())?;
    let labels = Labels::new(parts.map(Label::new).collect::<Result<Vec<_>>>()?);
    Ok(Arc::new(Lane { id: number(id)?, queue: queue.clone(), kind, labels }))
}

/// The first line is for the scripts; the JSON behind it is what it was made of.
pub(crate) fn settings_of(stored: &str) -> Result<QueueSettings> {
    match stored.split_once('\n') {
        Some((_, json)) => serde_json::from_str(json).map_err(|e| odd(&format!("settings: {e}"))),
        None => Ok(QueueSettings::default()),
    }
}

/// The text that the store keeps of settings.
pub(crate) fn settings_text(settings: &QueueSettings) -> Result<String> {
    let dash = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let wide = |number: Option<u32>| dash(number.map(u64::from));
    let groups = &settings.groups;
    let line = [
        u8::from(settings.paused).to_string(),
        wide(settings.cap),
        wide(settings.rate.map(|rate| rate.limit)),
        dash(settings.rate.map(|rate| rate.per_ms)),
        dash(settings.len_max),
        wide(groups.cap),
        wide(groups.rate.map(|rate| rate.limit)),
        dash(groups.rate.map(|rate| rate.per_ms)),
        wide(groups.weight),
    ];
    let json = serde_json::to_string(settings).map_err(|e| odd(&format!("settings: {e}")))?;
    Ok(format!("{}\n{json}", line.join(" ")))
}

/// The six counts at the head of a queue's state.
fn counts_of(stored: &str) -> Result<QueueCounts> {
    let mut parts = stored.split(' ');
    let mut counts = [0; 6];
    for count in &mut counts {
        *count = number(parts.next().unwrap_or_default())?;
    }
    Ok(QueueCounts::from_array(counts))
}

/// A queue by its name and version, from the seven items that `queues.lua` answers for each; the rest may be unreadable.
fn queue_of(items: &mut Items) -> Result<(QueueName, Bytes, Result<Queue>)> {
    let id = items.number()?;
    let name = QueueName::new(items.text()?)?;
    let (counts, settings, version, lanes) = (items.bytes()?, items.bytes()?, items.bytes()?, items.bytes()?);
    let lanes_used = u32::try_from(items.number()?).unwrap_or(u32::MAX);
    // A line that cannot be read is no lane: jobs of the others go on.
    let lanes = String::from_utf8_lossy(&lanes).lines().filter_map(|line| lane_of(&name, line).ok()).collect();
    let read = || {
        let (counts, settings_text) = (counts_of(text(&counts)?)?, text(&settings)?.to_owned());
        let settings = settings_of(&settings_text)?;
        Ok(Queue { id, version: version.clone(), settings, settings_text, lanes, counts, lanes_used })
    };
    let queue = read();
    Ok((name, version, queue))
}

/// Queues by name, lanes by number.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    queues: HashMap<QueueName, Arc<Queue>>,
    /// Versions of queues that the scripts can read and this program cannot, such as those with damaged settings. A claim is
    /// planned without their jobs, so that the other queues of its worker go on.
    unreadable: HashMap<QueueName, Bytes>,
    /// When those were last looked at again.
    looked_again_at: Option<Instant>,
    lanes: HashMap<u64, Arc<Lane>>,
}

impl Directory {
    /// Learns what `queues.lua` answered; answers it in the store's order.
    pub(crate) fn learn(&self, mut items: Items) -> Result<Vec<(QueueName, Arc<Queue>)>> {
        let mut all = Vec::new();
        let mut inner = self.inner.write();
        while items.left() > 0 {
            let mut seven = items.take(QUEUE_ITEMS);
            // One that cannot be read must not hide the others.
            match queue_of(&mut seven) {
                Ok((name, _, Ok(queue))) => {
                    let queue = Arc::new(queue);
                    inner.lanes.extend(queue.lanes.iter().map(|lane| (lane.id, Arc::clone(lane))));
                    inner.unreadable.remove(&name);
                    inner.queues.insert(name.clone(), Arc::clone(&queue));
                    all.push((name, queue));
                }
                Ok((name, version, Err(error))) => {
                    tracing::warn!(%error, queue = %name, "a queue cannot be read; none of its jobs are claimed");
                    inner.queues.remove(&name);
                    inner.unreadable.insert(name, version);
                }
                Err(error) => tracing::warn!(%error, "a queue cannot be read"),
            }
        }
        Ok(all)
    }

    /// These queues are not there.
    pub(crate) fn forget(&self, names: &[QueueName]) {
        let mut inner = self.inner.write();
        for name in names {
            inner.queues.remove(name);
            inner.unreadable.remove(name);
        }
    }

    pub(crate) fn queue(&self, name: &QueueName) -> Option<Arc<Queue>> {
        self.inner.read().queues.get(name).cloned()
    }

    /// Whether the scripts can read a queue and this program cannot.
    pub(crate) fn is_unreadable(&self, name: &QueueName) -> bool {
        self.inner.read().unreadable.contains_key(name)
    }

    /// Those of these queues that cannot be read, if it is time to look at them again.
    pub(crate) fn to_look_at_again(&self, names: &[QueueName], now: impl FnOnce() -> Instant) -> Vec<QueueName> {
        let found: Vec<QueueName> = {
            let inner = self.inner.read();
            names.iter().filter(|name| inner.unreadable.contains_key(*name)).cloned().collect()
        };
        if found.is_empty() {
            return found;
        }
        let (now, mut inner) = (now(), self.inner.write());
        if inner.looked_again_at.is_some_and(|at| now.duration_since(at) < LOOK_AGAIN) {
            return Vec::new();
        }
        inner.looked_again_at = Some(now);
        found
    }

    pub(crate) fn lane(&self, id: u64) -> Option<Arc<Lane>> {
        self.inner.read().lanes.get(&id).cloned()
    }

    /// The lanes of a queue that a claim may take from, and the version it is planned by.
    pub(crate) fn plan(&self, name: &QueueName, request: &ClaimRequest) -> (Bytes, Vec<u64>) {
        let Some(queue) = self.queue(name) else {
            let version = self.inner.read().unreadable.get(name).cloned();
            return (version.unwrap_or_else(|| Bytes::from_static(b"-")), Vec::new());
        };
        let fits = |lane: &&Arc<Lane>| {
            request.kinds.contain(&lane.kind)
                && lane.labels.is_subset_of(&request.labels)
                && !queue.settings.paused_kinds.contains(&lane.kind)
        };
        let mut lanes: Vec<u64> = queue.lanes.iter().filter(fits).map(|lane| lane.id).collect();
        lanes.sort_unstable();
        (queue.version.clone(), lanes)
    }
}

impl Queue {
    pub(crate) fn status(&self, name: QueueName) -> QueueStatus {
        QueueStatus { name, counts: self.counts, settings: self.settings.clone(), lanes: self.lanes_used }
    }
}

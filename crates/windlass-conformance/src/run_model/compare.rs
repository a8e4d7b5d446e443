//! Compares all that can be seen of the runs and of their jobs with the book.

use super::Seen;
use super::drive::{Checked, Driver, equal};
use super::entry::{Entry, Item};
use bytes::Bytes;
use std::collections::BTreeMap;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::Job;
use windlass_core::store::{
    ClaimedRun, FeedEvent, FeedRequest, INBOX_ITEMS_MAX, InboxItem, NewRun, Run, RunChange, RunClaim, RunItem, RunList,
    RunRead, RunView,
};

/// Bytes of messages and outputs that one claim hands out of one inbox; one item always.
const INBOX_BYTES: usize = 4 << 20;

/// A claim shows the oldest items. Where the contract leaves their order open, the book takes over that of the store.
pub(super) fn check_inbox(inbox: &mut [Item], shown: &[InboxItem]) -> Result<usize, String> {
    for (i, InboxItem { number, item }) in shown.iter().enumerate() {
        let item = &plain(item);
        equal("the number of an item", inbox.get(i).map(|item| item.number), Some(*number))?;
        let batch = inbox.get(i).map(|item| item.batch);
        let found = inbox.iter().skip(i).position(|known| Some(known.batch) == batch && known.item == *item);
        match found {
            Some(0) => {}
            Some(k) => {
                let (left, right) = inbox.split_at_mut(i + k);
                std::mem::swap(&mut left[i].item, &mut right[0].item);
            }
            None => {
                return Err(format!(
                    "item {i} of the inbox: should be {:?}, is {item:?}; the inbox is {:?}",
                    inbox.get(i),
                    inbox.iter().take(9).collect::<Vec<_>>()
                ));
            }
        }
    }
    let (mut count, mut bytes) = (0, 0);
    for item in inbox.iter().take(INBOX_ITEMS_MAX) {
        bytes += item.item.weight();
        if bytes > INBOX_BYTES && count > 0 {
            break;
        }
        count += 1;
    }
    equal("the items that a claim hands out", count, shown.len())?;
    Ok(count)
}

/// The same item without the reason for which a child was refused.
fn plain(item: &RunItem) -> RunItem {
    match item {
        RunItem::ChildRefused { run, .. } => RunItem::ChildRefused { run: *run, reason: String::new() },
        item => item.clone(),
    }
}

/// What a claim hands out beside the inbox.
pub(super) fn check_claimed(entry: &Entry, claim: &RunClaim, run: &ClaimedRun) -> Checked {
    equal("the state", entry.state, run.state)?;
    equal("stuck", &entry.stuck, &run.stuck)?;
    equal("the parent", entry.parent, run.parent)?;
    equal("the labels", &entry.labels, &run.labels)?;
    equal("the segment", entry.segment_from as u64, run.segment_from)?;
    let stalls = entry.stall_count + u32::from(entry.held.is_some());
    equal("the leases that ran out", stalls, run.stall_count)?;
    let segment = &entry.history[entry.segment_from..];
    let bytes = entry.input.len() + segment.iter().map(Bytes::len).sum::<usize>();
    let is_cold = entry.committed_by.as_ref() != Some(&claim.engine);
    let is_handed = claim.history_bytes_max > 0 && is_cold && bytes <= claim.history_bytes_max as usize;
    equal("the input", Some(&entry.input).filter(|_| is_handed), run.input.as_ref())?;
    equal("the history", if is_handed { segment } else { &[] }, &run.history[..])
}

impl Driver {
    /// Every job that there is.
    pub(super) async fn jobs_now(&self) -> BTreeMap<JobId, Job> {
        let ids = self.jobs.iter().map(|job| job.id).collect();
        let jobs = self.ctx.store.get(ids).await.unwrap();
        jobs.into_iter().flatten().map(|job| (job.id, job)).collect()
    }

    /// Compares all that can be seen, and notes how the jobs stand.
    pub(super) async fn compare(&mut self, seen: &mut Seen) -> Checked {
        let read = |run: &NewRun| RunRead {
            definition: true,
            input: true,
            history_max: 999,
            published: true,
            result: true,
            ..RunRead::brief(run.id)
        };
        let views = self.ctx.store.read_runs(self.runs.iter().map(read).collect()).await.unwrap();
        for (new, view) in self.runs.iter().zip(views) {
            equal("the run", self.book.runs.get(&new.id).map(|entry| shown(new, entry)), view)?;
        }
        let list = RunList::new(1_000);
        let listed: Vec<Run> = self.ctx.store.list_runs(list).await.unwrap().runs;
        let run = |id: RunId| {
            let new = self.runs.iter().find(|new| new.id == id)?;
            Some(shown(new, self.book.runs.get(&id)?).run)
        };
        equal("the list", self.book.list(|_| true).into_iter().filter_map(run).collect(), listed)?;
        let jobs = self.jobs_now().await;
        let before = std::mem::replace(&mut self.views, jobs);
        self.compare_caps(&before, seen).await?;
        for (id, note) in &self.book.jobs {
            let is = self.views.get(id);
            equal("the state of a job", note.state, is.map(|job| job.state))?;
            equal("the run of a job", is.map(|_| note.run), is.and_then(|job| job.spec.run))?;
            equal("the attempts of a job", is.map(|_| note.attempt), is.map(|job| job.attempt))?;
        }
        self.compare_feed().await
    }

    /// What the feed has said of runs since the last step. Runs that are removed together come in any order.
    async fn compare_feed(&mut self) -> Checked {
        let page = self.ctx.store.read_feed(FeedRequest { after: Some(self.feed), max: 10_000 }).await.unwrap();
        self.feed = page.next;
        let mut is: Vec<RunChange> = Vec::new();
        for event in page.entries.into_iter().flat_map(|entry| entry.events) {
            if let FeedEvent::Run(change) = event {
                is.push(change);
            }
        }
        let mut should = std::mem::take(&mut self.book.feed);
        let is_removal = |change: &RunChange| change.state.is_none();
        if should.iter().all(is_removal) && is.iter().all(is_removal) {
            should.sort_by_key(|change| change.run);
            is.sort_by_key(|change| change.run);
        }
        equal("the feed", should, is)
    }
}

/// What has to be seen of a run.
fn shown(new: &NewRun, entry: &Entry) -> RunView {
    let run = Run {
        id: new.id,
        kind: entry.kind.clone(),
        name: new.name.clone(),
        state: entry.state,
        stuck: entry.stuck.clone(),
        summary: entry.summary.clone(),
        history_len: entry.history.len() as u64,
        inbox_len: entry.inbox.len() as u64,
        engine: entry.held.as_ref().map(|held| held.engine.clone()),
        wake_at: entry.wake_at,
        created_at: entry.created_at,
        changed_at: entry.changed_at,
        finished_at: entry.finished_at,
        parent: entry.parent,
        labels: entry.labels.clone(),
        segment_from: entry.segment_from as u64,
        stall_count: entry.stall_count,
        unread_messages: entry.unread(),
        error: entry.error.clone(),
        damaged: None,
    };
    let (definition, input) = (Some(new.definition.clone()), Some(entry.input.clone()));
    let (published, result) = (Some(entry.published.clone()), entry.result.clone());
    RunView {
        run,
        definition,
        input,
        history: entry.history.clone(),
        published,
        result,
        inbox: Vec::new(),
        inbox_to: 0,
    }
}

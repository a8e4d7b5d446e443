//! Workers; what they were answered last, and since when it is kept.

use super::codec::stored;
use super::db::Db;
use super::keys::{Table, parts};
use super::tables::KvTables;
use super::{OrderedKv, keys};
use crate::engine::{ClaimMemo, ReportMemo, Worker, WorkerTables};
use crate::error::Result;
use crate::name::WorkerId;
use crate::time::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memo {
    pub(super) at: Timestamp,
    pub(super) claim: Option<ClaimMemo>,
    pub(super) report: ReportMemo,
}

stored!(Memo { at, claim, report });

fn get(db: &mut Db<impl OrderedKv>, worker: &WorkerId) -> Result<Option<Memo>> {
    db.get(&keys::memo(worker.clone()))
}

/// Changes what is kept of a worker.
fn change(db: &mut Db<impl OrderedKv>, worker: &WorkerId, now: Timestamp, edit: impl FnOnce(&mut Memo)) -> Result<()> {
    let before = get(db, worker)?;
    if let Some(before) = &before {
        db.delete(&keys::memo_at(before.at, worker.clone()))?;
    }
    let mut memo = before.unwrap_or_default();
    edit(&mut memo);
    memo.at = now;
    db.put(&keys::memo_at(now, worker.clone()), &())?;
    db.put(&keys::memo(worker.clone()), &memo)
}

impl<K: OrderedKv> WorkerTables for KvTables<K> {
    fn claim_memo(&mut self, worker: &WorkerId) -> Result<Option<ClaimMemo>> {
        Ok(get(&mut self.db, worker)?.and_then(|memo| memo.claim))
    }

    fn put_claim_memo(&mut self, worker: &WorkerId, memo: ClaimMemo, now: Timestamp) -> Result<()> {
        change(&mut self.db, worker, now, |kept| kept.claim = Some(memo))
    }

    fn report_memo(&mut self, worker: &WorkerId) -> Result<ReportMemo> {
        Ok(get(&mut self.db, worker)?.map_or_else(Vec::new, |memo| memo.report))
    }

    fn put_report_memo(&mut self, worker: &WorkerId, memo: ReportMemo, now: Timestamp) -> Result<()> {
        change(&mut self.db, worker, now, |kept| kept.report = memo)
    }

    fn prune_memos(&mut self, before: Timestamp, limit: usize) -> Result<u64> {
        let old = self.db.some(keys::memos_at().under().below(&keys::memos_since(before)), limit)?;
        for (key, _) in &old {
            let (_, worker): (Timestamp, WorkerId) = parts(Table::MemoAt, key)?;
            self.db.delete(&keys::memo(worker))?;
            self.db.delete_bytes(key)?;
        }
        Ok(old.len() as u64)
    }

    fn worker(&mut self, id: &WorkerId) -> Result<Option<Worker>> {
        self.db.get(&keys::worker(id.clone()))
    }

    fn put_worker(&mut self, worker: Worker) -> Result<()> {
        self.db.put(&keys::worker(worker.id().clone()), &worker)
    }

    fn remove_worker(&mut self, id: &WorkerId) -> Result<()> {
        self.db.delete(&keys::worker(id.clone()))
    }

    fn workers(&mut self) -> Result<Vec<Worker>> {
        self.db.values(keys::workers().under(), usize::MAX)
    }
}

//! What workers were answered last, and since when it is kept.

use super::codec::{Reader, Stored};
use super::db::Db;
use super::keys::{Parts, Table};
use super::{OrderedKv, keys};
use crate::engine::{ClaimMemo, ReportMemo};
use crate::error::Result;
use crate::name::WorkerId;
use crate::time::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memo {
    pub(super) at: Timestamp,
    pub(super) claim: Option<ClaimMemo>,
    pub(super) report: ReportMemo,
}

impl Stored for Memo {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        self.at.write(to)?;
        self.claim.write(to)?;
        self.report.write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { at: Stored::read(from)?, claim: Stored::read(from)?, report: Stored::read(from)? })
    }
}

pub(super) fn get(db: &mut Db<impl OrderedKv>, worker: &WorkerId) -> Result<Option<Memo>> {
    db.get(&keys::memo(worker.clone()))
}

/// Changes what is kept of a worker.
pub(super) fn change(
    db: &mut Db<impl OrderedKv>,
    worker: &WorkerId,
    now: Timestamp,
    edit: impl FnOnce(&mut Memo),
) -> Result<()> {
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

/// Forgets what was kept before `before`; answers of how many workers.
pub(super) fn prune(db: &mut Db<impl OrderedKv>, before: Timestamp, limit: usize) -> Result<u64> {
    let old = db.some(keys::memos_at().under().below(&keys::memos_since(before)), limit)?;
    for (key, _) in &old {
        let mut parts = Parts::of(Table::MemoAt, key)?;
        parts.take::<Timestamp>()?;
        db.delete(&keys::memo(parts.take()?))?;
        db.delete_bytes(key)?;
    }
    Ok(old.len() as u64)
}

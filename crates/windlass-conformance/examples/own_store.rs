//! A store of one's own: an ordered map in memory, and a log file that keeps it. The guide that goes with it is
//! `docs/write-your-own-store.md`.
//!
//! ```text
//! cargo run -p windlass-conformance --example own_store                     # the whole suite
//! cargo run -p windlass-conformance --example own_store -- leases::         # one concern of it
//! ```

use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use windlass_conformance::{Factory, Opened, TestClock, exercise};
use windlass_core::engine::{Effects, Host, Signals, Step};
use windlass_core::kv::{Entry, KvTables, OrderedKv, Scan};
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{Durability, StoreInfo};
use windlass_core::time::{Clock, Timestamp, VirtualClock};
use windlass_core::{Error, Result};

// ---- The engine: an ordered map whose changes are appended to a file, one record per step. ----

pub(crate) struct LogKv {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What the step under way has changed: each key with what was there before.
    undo: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    log: File,
    sync: bool,
}

impl OrderedKv for LogKv {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.map.get(key).cloned())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let before = self.map.insert(key.to_vec(), value.to_vec());
        self.undo.push((key.to_vec(), before));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let before = self.map.remove(key);
        self.undo.push((key.to_vec(), before));
        Ok(())
    }

    fn scan(&mut self, scan: Scan<'_>) -> Result<Vec<Entry>> {
        let range = self.map.range::<[u8], _>((Bound::Included(scan.from), Bound::Excluded(scan.to)));
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        Ok(if scan.reverse {
            range.rev().take(scan.limit).map(entry).collect()
        } else {
            range.take(scan.limit).map(entry).collect()
        })
    }
}

impl LogKv {
    /// Opens a log, or makes one, and does again what it says.
    fn open(path: &Path, sync: bool) -> Result<Self> {
        let log = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(|error| failed(&error))?;
        // Two processes on one log would overwrite each other's memory of it.
        log.try_lock().map_err(|error| Error::Unavailable { reason: format!("{}: {error}", path.display()) })?;
        if let Some(folder) = path.parent().filter(|_| sync) {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed(&error))?;
        }
        let mut kv = Self { map: BTreeMap::new(), undo: Vec::new(), log, sync };
        let mut bytes = Vec::new();
        kv.log.read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        let mut rest = bytes.as_slice();
        while let Some((changes, tail)) = first_record(rest)? {
            kv.replay(changes).ok_or_else(|| Error::corrupt("a record of the log makes no sense"))?;
            rest = tail;
        }
        // What is left is a step that was never answered.
        kv.log.set_len((bytes.len() - rest.len()) as u64).map_err(|error| failed(&error))?;
        Ok(kv)
    }

    fn replay(&mut self, mut changes: &[u8]) -> Option<()> {
        while !changes.is_empty() {
            let key = take(&mut changes)?.to_vec();
            match changes.split_off_first()? {
                0 => self.map.remove(&key),
                _ => self.map.insert(key, take(&mut changes)?.to_vec()),
            };
        }
        Some(())
    }

    /// Makes what the step has changed durable, as a whole.
    fn commit(&mut self) -> io::Result<()> {
        let keys: BTreeSet<Vec<u8>> = self.undo.drain(..).map(|(key, _)| key).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let mut changes = Vec::new();
        for key in &keys {
            give(key, &mut changes);
            changes.push(u8::from(self.map.contains_key(key)));
            if let Some(value) = self.map.get(key) {
                give(value, &mut changes);
            }
        }
        let mut record = (changes.len() as u64).to_le_bytes().to_vec();
        record.extend(checksum(&changes));
        record.extend(changes);
        self.log.write_all(&record)?;
        if self.sync { self.log.sync_data() } else { Ok(()) }
    }

    /// Takes back what the step has changed.
    fn roll_back(&mut self) {
        while let Some((key, before)) = self.undo.pop() {
            match before {
                Some(value) => self.map.insert(key, value),
                None => self.map.remove(&key),
            };
        }
    }
}

/// The changes of the first record, and what comes behind it. `None` at the end, or when the last record is torn.
fn first_record(bytes: &[u8]) -> Result<Option<(&[u8], &[u8])>> {
    let Some((head, rest)) = bytes.split_first_chunk::<16>() else { return Ok(None) };
    let (len, sum) = head.split_at(8);
    let len = len.try_into().map_or(usize::MAX, |len| usize::try_from(u64::from_le_bytes(len)).unwrap_or(usize::MAX));
    match rest.split_at_checked(len) {
        Some((changes, tail)) if checksum(changes) == sum => Ok(Some((changes, tail))),
        // Only the last record can be torn: each was synced before the next one began. Pages that never came are zeros.
        Some((_, tail)) if tail.iter().any(|byte| *byte != 0) && head != &[0; 16] => {
            Err(Error::corrupt("the log is damaged before its end; restore it from a copy"))
        }
        _ => Ok(None),
    }
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    sum.copy_from_slice(&blake3::hash(bytes).as_bytes()[..8]);
    sum
}

fn give(bytes: &[u8], to: &mut Vec<u8>) {
    to.extend((bytes.len() as u64).to_le_bytes());
    to.extend(bytes);
}

fn take<'b>(from: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (len, rest) = from.split_first_chunk::<8>()?;
    let (bytes, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    *from = rest;
    Some(bytes)
}

fn failed(error: &io::Error) -> Error {
    Error::Unavailable { reason: error.to_string() }
}

// ---- The host: one step after the other, answered when it is durable. ----

pub(crate) struct OwnStore {
    /// `None` once closed, or when a commit has failed.
    tables: Mutex<Option<KvTables<LogKv>>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    signals: Signals,
    sync: bool,
}

impl OwnStore {
    pub(crate) fn open(path: &Path, sync: bool, clock: Arc<dyn Clock>) -> Result<Self> {
        let mut tables = KvTables::open(LogKv::open(path, sync)?)?;
        tables.kv_mut().commit().map_err(|error| failed(&error))?;
        let random = Arc::new(StrongRandom::from_system());
        Ok(Self { tables: Mutex::new(Some(tables)), clock, random, signals: Signals::default(), sync })
    }

    fn step<R>(&self, work: impl FnOnce(&mut Step<'_, KvTables<LogKv>>) -> Result<R>) -> Result<(R, Effects)> {
        let mut guard = self.tables.lock();
        let closed = || Error::Unavailable { reason: "the store was closed".to_owned() };
        let tables = guard.as_mut().ok_or_else(closed)?;
        let mut step = Step::new(tables, self.random.as_ref(), self.clock.now());
        let done = work(&mut step).and_then(|outcome| Ok((outcome, step.finish()?)));
        let done = done.and_then(|done| tables.flush().map(|()| done));
        if done.is_err() {
            tables.kv_mut().roll_back();
            tables.forget();
        } else if let Err(error) = tables.kv_mut().commit() {
            // Nobody knows what of it has reached the disk; whoever opens the log again will.
            guard.take();
            return Err(Error::Unknown { reason: error.to_string() });
        }
        done
    }
}

impl Host for OwnStore {
    type Tables = KvTables<LogKv>;
    type Watch<'a> = ();

    async fn write<R, F>(&self, work: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(&mut Step<'_, Self::Tables>) -> Result<R> + Send + 'static,
    {
        let (outcome, effects) = self.step(work)?;
        self.signals.announce(&effects);
        Ok(outcome)
    }

    async fn read<R, F>(&self, work: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(&mut Step<'_, Self::Tables>) -> Result<R> + Send + 'static,
    {
        self.step(work).map(|(outcome, _)| outcome)
    }

    async fn describe(&self) -> Result<StoreInfo> {
        let durability = if self.sync { Durability::Power } else { Durability::Process };
        Ok(StoreInfo { store: "own".to_owned(), layout: 1, durability, details: Vec::new() })
    }

    fn time(&self) -> Timestamp {
        self.clock.now()
    }

    /// Nobody else can change the log, so there is nothing to look out for.
    fn watch(&self) {}

    fn signals(&self) -> &Signals {
        &self.signals
    }

    async fn shut_down(&self) -> Result<()> {
        self.tables.lock().take();
        Ok(())
    }
}

// ---- The suite. ----

pub(crate) struct OwnStores {
    pub(crate) sync: bool,
}

#[async_trait]
impl Factory for OwnStores {
    #[expect(clippy::unwrap_used, reason = "a suite that cannot open its store has failed")]
    async fn open(&self) -> Opened {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000)));
        let store = OwnStore::open(&folder.path().join("jobs.log"), self.sync, clock.clone()).unwrap();
        Opened { store: Arc::new(store), clock: TestClock::Virtual(clock), keep: Some(Box::new(folder)) }
    }
}

fn main() {
    // The suite is about behaviour; what the store promises about the disk has tests of its own.
    exercise(OwnStores { sync: false });
}

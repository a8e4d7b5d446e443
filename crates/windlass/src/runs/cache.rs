//! The states of runs that an engine keeps in memory, so that a step costs what is new and not the whole history.

use super::kinds::{Definition, LoadedRun};
use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::id::RunId;
use windlass_core::name::Kind;

/// The most memory that the states take together, as they report it.
const BYTES_MAX: usize = 192 << 20;
/// Definitions that are kept although no run of them is.
const DEFINITIONS_MAX: usize = 256;

/// A run, its size, and when it was put here.
struct Entry {
    loaded: LoadedRun,
    size: usize,
    used: u64,
}

#[derive(Default)]
pub(super) struct Cache {
    runs: HashMap<RunId, Entry>,
    definitions: HashMap<(Kind, [u8; 16]), Definition>,
    bytes: usize,
    uses: u64,
}

impl Cache {
    /// Takes a run out. It is put back when the store has acknowledged its step.
    pub(super) fn take(&mut self, run: RunId) -> Option<LoadedRun> {
        let entry = self.runs.remove(&run)?;
        self.bytes -= entry.size;
        Some(entry.loaded)
    }

    pub(super) fn put(&mut self, loaded: LoadedRun) {
        // A decision that was pending may come back after a later one.
        if self.runs.get(&loaded.run).is_some_and(|entry| entry.loaded.history_len > loaded.history_len) {
            return;
        }
        self.uses += 1;
        let (run, size) = (loaded.run, loaded.size.min(BYTES_MAX));
        self.bytes += size;
        if let Some(old) = self.runs.insert(run, Entry { loaded, size, used: self.uses }) {
            self.bytes -= old.size;
        }
        if self.bytes > BYTES_MAX {
            self.drop_older_half();
        }
    }

    fn drop_older_half(&mut self) {
        let mut used: Vec<u64> = self.runs.values().map(|entry| entry.used).collect();
        let middle = used.len() / 2;
        let (_, &mut edge, _) = used.select_nth_unstable(middle);
        self.runs.retain(|_, entry| entry.used > edge);
        self.bytes = self.runs.values().map(|entry| entry.size).sum();
    }

    pub(super) fn definition(&self, kind: &Kind, hash: [u8; 16]) -> Option<Definition> {
        self.definitions.get(&(kind.clone(), hash)).cloned()
    }

    pub(super) fn put_definition(&mut self, kind: &Kind, hash: [u8; 16], definition: Definition) {
        if self.definitions.len() >= DEFINITIONS_MAX {
            self.definitions.retain(|_, definition| Arc::strong_count(definition) > 1);
        }
        if self.definitions.len() >= 4 * DEFINITIONS_MAX {
            self.definitions.clear();
        }
        self.definitions.insert((kind.clone(), hash), definition);
    }
}

#[cfg(test)]
mod tests {
    use crate::Client;
    use crate::durable::{UntypedStart, untyped};
    use crate::runs::Engine;
    use serde_json::json;
    use serde_json::value::to_raw_value;
    use std::sync::Arc;

    #[tokio::test]
    async fn ended_runs_are_not_kept_in_memory() {
        let store = crate::open("memory://").unwrap();
        let client = Client::new(Arc::clone(&store));
        let ends = untyped("ends@1", |_, input| async move { Ok(input) });
        let waits =
            untyped("waits@1", |wf, _| async move { Ok(wf.call_named("nobody-handles-this", json!(1)).await?) });
        let mut engine = Engine::new(store).unwrap().workflows(vec![ends, waits], Some("test".to_owned())).unwrap();
        for n in 0..300 {
            client.start_untyped(UntypedStart::new("ends", to_raw_value(&n).unwrap())).await.unwrap();
        }
        client.start_untyped(UntypedStart::new("waits", to_raw_value(&0).unwrap())).await.unwrap();
        engine.settle().await.unwrap();
        assert_eq!(engine.cache.runs.len(), 1, "only the run that waits");
        let size: usize = engine.cache.runs.values().map(|entry| entry.size).sum();
        assert_eq!(engine.cache.bytes, size);
    }
}

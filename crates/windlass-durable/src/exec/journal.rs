//! The history of a run: first replayed, then extended.

use super::CodePlace;
use crate::record::{Command, End, Entry, Event, Key, Name, Record, Request, SourceLine};
use crate::stuck::{Side, Stuck};
use std::collections::HashSet;
use windlass_core::time::Timestamp;

/// Where a command of the code stands.
pub(crate) enum Replayed {
    /// In the history, under this number.
    Found(u64, Request),
    /// Beyond the end of the history. It would get this number.
    New(u64),
    /// The history has something else. The fault is recorded.
    Wrong,
}

/// A command that the code asks for.
pub(crate) struct Asked<'a> {
    pub(crate) key: &'a Key,
    /// The hash of the input; 0 when there is none.
    pub(crate) hash: u32,
    pub(crate) place: CodePlace,
}

#[derive(Default)]
pub(crate) struct Journal {
    replay: Vec<Record>,
    cursor: usize,
    /// The number of `replay[0]`.
    first: u64,
    /// Records that this process decided and has not handed out.
    pub(super) out: Vec<Record>,
    /// The number of the next record.
    pub(super) len: u64,
    patches: HashSet<(Name, Name, u32)>,
    /// The numbers of messages that an operator has dropped: they are not delivered.
    discarded: HashSet<u64>,
    /// The build of the record before the cursor.
    history_build: Box<str>,
    code_build: Box<str>,
    pub(super) warnings: Vec<String>,
}

impl Journal {
    pub(super) fn new(first: u64, history: Vec<Record>, code_build: &str) -> Self {
        let patches = history.iter().filter_map(|record| match &record.entry {
            Entry::Patch(key) => Some(short(key)),
            _ => None,
        });
        let discarded = history.iter().filter_map(|record| match &record.entry {
            Entry::Discarded { message, .. } => message.of,
            _ => None,
        });
        Self {
            patches: patches.collect(),
            discarded: discarded.collect(),
            first,
            len: first + history.len() as u64,
            replay: history,
            code_build: code_build.into(),
            ..Self::default()
        }
    }

    /// The record that the code has to match next. Patch markers are found by key and skipped here, as are notes of discards.
    pub(super) fn expected(&mut self) -> Option<&Record> {
        while let Some(Record { entry: Entry::Patch(_) | Entry::Discarded { .. }, .. }) = self.replay.get(self.cursor) {
            self.advance();
        }
        self.replay.get(self.cursor)
    }

    pub(super) fn is_replaying(&mut self) -> bool {
        self.expected().is_some()
    }

    /// The number of the expected record.
    pub(super) fn number(&self) -> u64 {
        self.first + self.cursor as u64
    }

    /// The number that the next record of the code has: in the history, or beyond its end.
    pub(super) fn position(&mut self) -> u64 {
        if self.is_replaying() { self.number() } else { self.len }
    }

    /// Moves past the expected record.
    pub(super) fn advance(&mut self) {
        if let Some(build) = self.replay.get(self.cursor).and_then(|record| record.build.as_ref()) {
            self.history_build = build.clone();
        }
        self.cursor += 1;
    }

    /// Takes the expected record out and moves past it.
    pub(super) fn take_expected(&mut self) -> Option<Record> {
        self.expected()?;
        let at = self.cursor;
        self.advance();
        Some(std::mem::replace(&mut self.replay[at], Record::new(Entry::Cancel(Vec::new()))))
    }

    /// How the segment ended, if the rest of the history has its end. Cancellations, and whatever came while children were waited
    /// for, stand before it.
    pub(super) fn recorded_end(&self) -> Option<&End> {
        let rest = self.replay.get(self.cursor..).unwrap_or_default();
        rest.iter().find_map(|record| match &record.entry {
            Entry::End { end, .. } => Some(end),
            _ => None,
        })
    }

    /// Frees the replayed records.
    pub(super) fn forget_replayed(&mut self) {
        self.first = self.len;
        self.replay = Vec::new();
        self.cursor = 0;
    }

    /// The mismatch between the expected record and what the code does.
    pub(super) fn mismatch(&self, code: impl Into<String>, place: Option<CodePlace>) -> Stuck {
        let history = match self.replay.get(self.cursor) {
            Some(record) => Side::of_record(record, record.build.as_deref().unwrap_or(&self.history_build)),
            None => Side::new("its end", None, &self.history_build),
        };
        let place = place.map(SourceLine::from);
        let code = Side::new(code, place.as_ref(), &self.code_build);
        Stuck::Mismatch { number: self.number(), history: Box::new(history), code: Box::new(code) }
    }

    /// The history's side of an event that was taken out.
    pub(super) fn side_of_event(&self, event: &Event) -> Side {
        let (Event::Done { of, .. } | Event::Fired { of } | Event::StartExpired { of } | Event::Expired { of, .. }) =
            event
        else {
            let entry = Entry::Event { at: Timestamp::default(), event: event.clone() };
            return Side::of_record(&Record::new(entry), &self.history_build);
        };
        // The command names the place.
        let at = of.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.replay.get(at)) {
            Some(Record { entry: Entry::Command(command), .. }) => {
                let what = format!("the end of {} (command {of})", command.key);
                Side::new(what, Some(&command.place), &self.history_build)
            }
            _ => Side::new(format!("the end of command {of}"), None, &self.history_build),
        }
    }

    pub(super) fn code_side(&self, what: impl Into<String>, place: Option<CodePlace>) -> Side {
        Side::new(what, place.map(SourceLine::from).as_ref(), &self.code_build)
    }

    /// Finds a command of the code in the history.
    pub(super) fn command(&mut self, asked: &Asked<'_>) -> Result<Replayed, Stuck> {
        let Some(expected) = self.expected() else { return Ok(Replayed::New(self.len)) };
        let found = match &expected.entry {
            Entry::Command(command) if command.key == *asked.key => (command.hash, command.request),
            _ => return Err(self.mismatch(asked.key.to_string(), Some(asked.place))),
        };
        let (hash, request) = found;
        let number = self.number();
        if hash != asked.hash && hash != 0 && asked.hash != 0 {
            if let Some(other) = self.swapped_with(asked) {
                let code = format!("{} with the input of {other}: two calls were swapped", asked.key);
                return Err(self.mismatch(code, Some(asked.place)));
            }
            let place = SourceLine::from(asked.place);
            let warning = format!("record {number}: {} at {place} has another input than in the history", asked.key);
            self.warnings.push(warning);
        }
        self.advance();
        Ok(Replayed::Found(number, request))
    }

    /// The key under which the history has, a little later in the same turn, the input that the code gives here.
    fn swapped_with(&self, asked: &Asked<'_>) -> Option<&Key> {
        let rest = self.replay.get(self.cursor + 1..).unwrap_or_default().iter();
        rest.take_while(|record| !record.is_event()).find_map(|record| match &record.entry {
            Entry::Command(Command { key, hash, .. })
                if *hash == asked.hash && key.kind == asked.key.kind && key.name == asked.key.name =>
            {
                Some(key)
            }
            _ => None,
        })
    }

    /// Appends a record, or matches it against the history by `is_same`.
    pub(super) fn put(&mut self, entry: Entry, is_same: impl Fn(&Entry, &Entry) -> bool) -> Result<(), Stuck> {
        match self.expected() {
            Some(expected) if is_same(&expected.entry, &entry) => self.advance(),
            Some(_) => return Err(self.mismatch(Record::new(entry).describe(), None)),
            None => self.push(entry),
        }
        Ok(())
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.len += 1;
        self.out.push(Record::new(entry));
    }

    /// The decided records and the number of the first one. The first one names the build, if that has changed.
    pub(super) fn take_out(&mut self) -> (u64, Vec<Record>) {
        let mut out = std::mem::take(&mut self.out);
        if let Some(first) = out.first_mut()
            && self.history_build != self.code_build
        {
            first.build = Some(self.code_build.clone());
            self.history_build = self.code_build.clone();
        }
        (self.len - out.len() as u64, out)
    }

    /// True for a message that an operator has dropped.
    pub(super) fn is_discarded(&self, number: u64) -> bool {
        self.discarded.contains(&number)
    }

    pub(super) fn has_patch(&self, key: &Key) -> bool {
        self.patches.contains(&short(key))
    }

    pub(super) fn add_patch(&mut self, key: Key) {
        self.patches.insert(short(&key));
        self.push(Entry::Patch(key));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.replay.capacity() + self.out.capacity()) * size_of::<Record>() + self.patches.len() * 64
    }
}

/// What identifies a patch marker.
fn short(key: &Key) -> (Name, Name, u32) {
    (key.scope.clone(), key.name.clone(), key.nth)
}

//! The values: the fields of every record in the order in which they are written. The order is the format; it changes
//! only together with the version in `codec.rs`.

use super::codec::{Reader, Stored, damaged, stored, write_bytes, write_json};
use crate::engine::{
    ClaimMemo, DedupRow, Extra, Group, GroupId, GroupLimits, Lane, LaneId, Ord64, Parked, Queue, QueueId, Record, Row,
    RunRow, Sub, Worker,
};
use crate::error::Result;
use crate::id::{JobId, RunId, Token};
use crate::job::{Held, JobSpec, LastReport, Life, State};
use crate::name::{GroupName, Kind, Labels, QueueName, WorkerId};
use crate::payload::Payload;
use crate::rate::Meter;
use crate::schedule::Schedule;
use crate::store::{LogLine, LogStream, MinuteMetrics, QueueSettings, RunItem, RunState};
use crate::time::Timestamp;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

stored!(Record {
    row,
    id,
    queue,
    lane,
    group,
    grouped,
    priority,
    lifo,
    ord,
    life,
    created_at,
    ready_at,
    fingerprint,
    dedup,
    keeps_itself,
    remove_at,
    quarantined,
    run,
});
stored!(Life {
    state,
    due_at,
    attempt,
    attempts_max,
    stalls,
    stalls_max,
    retries,
    held,
    cancel_requested,
    last_report,
    claimed_at,
    finished_at,
});
stored!(RunRow {
    id,
    seq,
    kind,
    name,
    definition_hash,
    fingerprint,
    state,
    stuck,
    summary,
    history_len,
    inbox_first,
    inbox_next,
    held,
    last_token,
    ready,
    wake_at,
    created_at,
    changed_at,
    finished_at,
    keep_ms,
} added {
    parent: None,
    labels: Arc::default(),
    job_results: false,
    error: None,
    segment_from: 0,
    segment_bytes: u64::MAX,
    stall_count: 0,
    unread_messages: 0,
    inbox_holes: 0,
    message_ids: 0,
    committed_by: None,
});
stored!(Held { token, worker, expires_at });
stored!(LastReport { token, state });
stored!(Queue { id, name, settings, counts, vtime, meter, plain, named_ready });
stored!(Lane { id, queue, kind, labels, jobs, ready, head });
stored!(Group { id, queue, name, limits, ready, active, vtime, meter, parked, wake_at });
stored!(Sub { ready, vtime });
stored!(DedupRow { owner, until, sticky, successor });
stored!(ClaimMemo { request_id, fingerprint, token, rows });
stored!(LogLine { at, stream, text });
stored!(MinuteMetrics { minute, enqueued, claimed, succeeded, failed, cancelled, retried, stalled, waited_ms, ran_ms });

macro_rules! stored_as_number {
    ($($type:ident),+) => {
        $(impl Stored for $type {
            fn write(&self, to: &mut Vec<u8>) -> Result<()> {
                self.0.write(to)
            }

            fn read(from: &mut Reader<'_>) -> Result<Self> {
                Stored::read(from).map(Self)
            }
        })+
    };
}
stored_as_number!(Row, QueueId, LaneId, GroupId, Ord64);

macro_rules! stored_as_text {
    ($($type:ident),+) => {
        $(impl Stored for $type {
            fn write(&self, to: &mut Vec<u8>) -> Result<()> {
                write_bytes(self.as_str().as_bytes(), to)
            }

            fn read(from: &mut Reader<'_>) -> Result<Self> {
                $type::new(from.text()?).map_err(|error| damaged(&error.to_string()))
            }
        })+
    };
}
stored_as_text!(QueueName, GroupName, Kind, WorkerId);

macro_rules! stored_as_json {
    ($($type:ident),+) => {
        $(impl Stored for $type {
            fn write(&self, to: &mut Vec<u8>) -> Result<()> {
                write_json(self, to)
            }

            fn read(from: &mut Reader<'_>) -> Result<Self> {
                from.json()
            }
        })+
    };
}
/// Labels of a run.
impl Stored for Arc<BTreeMap<String, String>> {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        write_json(self.as_ref(), to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        from.json().map(Self::new)
    }
}

stored_as_json!(QueueSettings, GroupLimits, Meter, Labels, Worker, Schedule, RunItem);

/// One of a few, by its place in a list that only grows at its end.
macro_rules! stored_as_place {
    ($($type:ident in $all:expr),+ $(,)?) => {
        $(impl Stored for $type {
            fn write(&self, to: &mut Vec<u8>) -> Result<()> {
                let place = $all.iter().position(|one| one == self).and_then(|place| u8::try_from(place).ok());
                place.unwrap_or(u8::MAX).write(to)
            }

            fn read(from: &mut Reader<'_>) -> Result<Self> {
                let place = usize::from(u8::read(from)?);
                $all.get(place).copied().ok_or_else(|| damaged(concat!("no such ", stringify!($type))))
            }
        })+
    };
}
stored_as_place!(
    State in State::ALL,
    RunState in RunState::ALL,
    Parked in [Parked::No, Parked::Cap, Parked::Rate],
    LogStream in [LogStream::Log, LogStream::Stdout, LogStream::Stderr],
);

impl Stored for Timestamp {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        self.as_ms().write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        i64::read(from).map(Self::from_ms)
    }
}

impl Stored for Token {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        self.bits().write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        u64::read(from).map(Self::from_bits)
    }
}

macro_rules! stored_ids {
    ($($type:ident),+) => {
        $(impl Stored for $type {
            fn write(&self, to: &mut Vec<u8>) -> Result<()> {
                (self.partition(), self.bits()).write(to)
            }

            fn read(from: &mut Reader<'_>) -> Result<Self> {
                <(u16, u128)>::read(from).map(|(partition, bits)| Self::from_parts(partition, bits))
            }
        })+
    };
}
stored_ids!(JobId, RunId);

impl Stored for String {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        write_bytes(self.as_bytes(), to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        from.text().map(str::to_owned)
    }
}

impl Stored for Arc<str> {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        write_bytes(self.as_bytes(), to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        from.text().map(Self::from)
    }
}

/// How many jobs stand in each state.
impl Stored for [u64; 6] {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        self.iter().try_for_each(|count| count.write(to))
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        let mut counts = [0; 6];
        for count in &mut counts {
            *count = u64::read(from)?;
        }
        Ok(counts)
    }
}

/// As JSON, with the payload's bytes behind it: as JSON they would take four times the room.
impl Stored for JobSpec {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        let payload = Payload { content_type: self.payload.content_type.clone(), bytes: Bytes::new() };
        write_json(&Self { payload, ..self.clone() }, to)?;
        self.payload.bytes.write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        let mut spec: Self = from.json()?;
        spec.payload.bytes = Stored::read(from)?;
        Ok(spec)
    }
}

/// Likewise, with the bytes of the result.
impl Stored for Extra {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        let content_type = |payload: &Payload| payload.content_type.clone();
        let result = self.result.as_ref().map(|payload| Payload::new(content_type(payload), Bytes::new()));
        write_json(&Self { result, ..self.clone() }, to)?;
        self.result.as_ref().map(|payload| payload.bytes.clone()).write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        let mut extra: Self = from.json()?;
        match (&mut extra.result, <Option<Bytes>>::read(from)?) {
            (Some(result), Some(bytes)) => result.bytes = bytes,
            (None, None) => {}
            _ => return Err(damaged("a result and its bytes do not fit")),
        }
        Ok(extra)
    }
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;

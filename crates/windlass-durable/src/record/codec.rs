//! The stored form of records: one compact JSON object each.
//!
//! The format only grows. Fields are never renamed or reused; a reader ignores fields that it does not have, and takes the
//! default for fields that are absent. The envelope is plain; values and texts of applications and users (results, messages,
//! reasons) stand in `d`, so that `d` could be encrypted as a whole.
//!
//! | field | meaning |
//! |---|---|
//! | `v` | format version; absent: 1 |
//! | `r` | type of record |
//! | `b` | build, where it changes |
//! | `t` | time in ms since 1970, on events and ends |
//! | `s`, `n`, `u`, `i` | scope, name, user key and count of the key; `i` of `retried`: the number of the next attempt |
//! | `h` | hash of the input |
//! | `p` | place in the source |
//! | `of` | number of the command that an event concerns, or of the record of a discarded message |
//! | `id` | job id, run id, or id of a message |
//! | `at` | when a timer fires or the next attempt starts, in ms since 1970 |
//! | `sb`, `cb` | until when a call has to start and to close, in ms since 1970 |
//! | `x` | seed or token, 16 hexadecimal digits |
//! | `c` | class of an error; absent: success |
//! | `pc` | parent-close policy; absent: cancel |
//! | `l` | cancelled numbers |
//! | `d` | opaque body; absent: `null` |

use super::{
    Body, Command, Deadlines, DiscardedMessage, End, Entry, Event, Key, Name, OpKind, Outcome, ParentClosePolicy,
    Record, Request, SourceLine,
};
use crate::error::{CallError, ErrorClass};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use windlass_core::time::Timestamp;

/// The version that this crate writes and the newest one it reads.
const VERSION: u32 = 1;

/// Why a history could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The index of the record among those that were given.
    pub index: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} of the history does not decode: {}", self.index, self.reason)
    }
}

impl std::error::Error for DecodeError {}

/// Decodes the entries of a history, oldest first.
pub fn decode_history<B: AsRef<[u8]>>(entries: impl IntoIterator<Item = B>) -> Result<Vec<Record>, DecodeError> {
    let decode = |(index, entry): (usize, B)| {
        Record::decode(entry.as_ref()).map_err(|reason| DecodeError { index, reason: reason.reason })
    };
    entries.into_iter().enumerate().map(decode).collect()
}

/// The object as it is written and read. Text that needs no unescaping is borrowed.
#[derive(Serialize, Deserialize, Default)]
struct Wire<'a> {
    #[serde(default, skip_serializing_if = "is_zero")]
    v: u32,
    #[serde(borrow)]
    r: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    b: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<i64>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    s: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    n: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    u: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_zero")]
    i: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    h: u32,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    p: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    id: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sb: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cb: Option<i64>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    x: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    c: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pc: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "<[u64]>::is_empty")]
    l: Cow<'a, [u64]>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    d: Option<&'a RawValue>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The part of an error that stands in the body.
#[derive(Serialize, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    message: String,
    #[serde(default)]
    attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<serde_json::Value>,
}

impl Record {
    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let opaque = opaque_body(&self.entry);
        let mut wire = Wire { d: opaque.as_deref().filter(|raw| raw.get() != "null"), ..Wire::default() };
        wire.b = self.build.as_deref().unwrap_or_default().into();
        fill(&mut wire, &self.entry);
        // Strings, numbers and JSON that was checked before: there is nothing that could fail to encode.
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    /// Reads the stored form. The index in the error is 0.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let wrong = |reason: String| DecodeError { index: 0, reason };
        let wire: Wire<'_> = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        if wire.v > VERSION {
            return Err(wrong(format!("its format {} is newer than {VERSION}; update this program", wire.v)));
        }
        let build = if wire.b.is_empty() { None } else { Some(wire.b.as_ref().into()) };
        Ok(Self { build, entry: read(&wire).map_err(wrong)? })
    }
}

/// The opaque body of an entry: borrowed where the entry holds one, made where it consists of several values.
fn opaque_body(entry: &Entry) -> Option<Cow<'_, RawValue>> {
    match entry {
        Entry::Event { event, .. } => match event {
            Event::Done { outcome, .. } | Event::Stepped { outcome, .. } => match outcome {
                Ok(body) => Some(Cow::Borrowed(body.raw())),
                Err(error) => error_body(error),
            },
            Event::Expired { error, .. } => error_body(error),
            Event::Signal { body, .. } | Event::Resolved { body, .. } => Some(Cow::Borrowed(body.raw())),
            Event::CancelRequested { reason } => made(reason),
            Event::CapRaised { cap } => made(cap),
            Event::Started { .. } | Event::Fired { .. } | Event::StartExpired { .. } | Event::TimedOut => None,
        },
        Entry::End { end, .. } => match end {
            End::Ok(body) => Some(Cow::Borrowed(body.raw())),
            End::Failed(message) | End::Cancelled(message) | End::TimedOut(message) | End::Retried { message, .. } => {
                made(message)
            }
            End::Continued { .. } => None,
        },
        Entry::Discarded { message, .. } => Some(Cow::Borrowed(message.body.raw())),
        Entry::Command(_) | Entry::Cancel(_) | Entry::Patch(_) => None,
    }
}

fn error_body(error: &CallError) -> Option<Cow<'static, RawValue>> {
    let CallError { message, attempts, detail, .. } = error.clone();
    made(&ErrorBody { message, attempts, detail })
}

fn made<T: Serialize>(value: &T) -> Option<Cow<'static, RawValue>> {
    serde_json::value::to_raw_value(value).ok().map(Cow::Owned)
}

fn fill<'a>(wire: &mut Wire<'a>, entry: &'a Entry) {
    match entry {
        Entry::Event { at, event } => {
            wire.t = Some(at.as_ms());
            fill_event(wire, event);
        }
        Entry::Command(command) => {
            fill_key(wire, &command.key);
            wire.h = command.hash;
            wire.p = command.place.to_string().into();
            match &command.request {
                Request::Call { job, deadlines: Deadlines { start_by, close_by } } => {
                    (wire.r, wire.id) = ("call".into(), job.to_string().into());
                    (wire.sb, wire.cb) = (start_by.map(Timestamp::as_ms), close_by.map(Timestamp::as_ms));
                }
                Request::Sleep { until } => (wire.r, wire.at) = ("sleep".into(), Some(until.as_ms())),
                Request::Child { run, policy } => {
                    (wire.r, wire.id) = ("child".into(), run.to_string().into());
                    wire.pc = policy_name(*policy).into();
                }
            }
        }
        Entry::Cancel(of) => (wire.r, wire.l) = ("cancel".into(), of.as_slice().into()),
        Entry::Patch(key) => {
            wire.r = "patch".into();
            fill_key(wire, key);
        }
        Entry::Discarded { at, message } => {
            (wire.r, wire.t, wire.of) = ("discarded".into(), Some(at.as_ms()), message.of);
            (wire.n, wire.id) = (Cow::Borrowed(message.name.as_ref()), Cow::Borrowed(message.id.as_str()));
        }
        Entry::End { at, end } => {
            wire.t = Some(at.as_ms());
            wire.r = end.name().into();
            match end {
                End::Continued { kind, hash } => (wire.n, wire.h) = (Cow::Borrowed(kind.as_ref()), *hash),
                End::Retried { attempt, at, .. } => (wire.i, wire.at) = (*attempt, Some(at.as_ms())),
                End::Ok(_) | End::Failed(_) | End::Cancelled(_) | End::TimedOut(_) => {}
            }
        }
    }
}

fn fill_event<'a>(wire: &mut Wire<'a>, event: &'a Event) {
    match event {
        Event::Started { seed } => (wire.r, wire.x) = ("started".into(), format!("{seed:016x}").into()),
        Event::Done { of, outcome } => {
            (wire.r, wire.of) = ("done".into(), Some(*of));
            fill_class(wire, outcome);
        }
        Event::Fired { of } => (wire.r, wire.of) = ("fired".into(), Some(*of)),
        Event::StartExpired { of } => (wire.r, wire.of) = ("start_expired".into(), Some(*of)),
        Event::Expired { of, error } => {
            (wire.r, wire.of) = ("expired".into(), Some(*of));
            wire.c = error.class.name().into();
        }
        Event::Stepped { key, outcome, place } => {
            wire.r = "stepped".into();
            wire.p = place.to_string().into();
            fill_key(wire, key);
            fill_class(wire, outcome);
        }
        Event::Signal { name, id, .. } => {
            (wire.r, wire.n, wire.id) = ("signal".into(), Cow::Borrowed(name.as_ref()), Cow::Borrowed(id.as_str()));
        }
        Event::Resolved { token, .. } => (wire.r, wire.x) = ("resolved".into(), format!("{token:016x}").into()),
        Event::CancelRequested { .. } => wire.r = "cancel_requested".into(),
        Event::TimedOut => wire.r = "deadline".into(),
        Event::CapRaised { .. } => wire.r = "cap".into(),
    }
}

fn fill_key<'a>(wire: &mut Wire<'a>, key: &'a Key) {
    wire.s = Cow::Borrowed(&key.scope);
    wire.n = Cow::Borrowed(&key.name);
    wire.u = Cow::Borrowed(&key.user);
    wire.i = key.nth;
}

fn fill_class(wire: &mut Wire<'_>, outcome: &Outcome) {
    if let Err(error) = outcome {
        wire.c = error.class.name().into();
    }
}

const fn policy_name(policy: ParentClosePolicy) -> &'static str {
    match policy {
        ParentClosePolicy::Cancel => "",
        ParentClosePolicy::Wait => "wait",
        ParentClosePolicy::Abandon => "abandon",
    }
}

fn read(wire: &Wire<'_>) -> Result<Entry, String> {
    let command = |kind: OpKind, request: Request| {
        let place = SourceLine::stored(wire.p.as_ref());
        Entry::Command(Command { key: read_key(wire, kind), hash: wire.h, place, request })
    };
    let end = |end: End| -> Result<Entry, String> { Ok(Entry::End { at: time(wire)?, end }) };
    Ok(match wire.r.as_ref() {
        "call" => {
            let (start_by, close_by) = (wire.sb.map(Timestamp::from_ms), wire.cb.map(Timestamp::from_ms));
            let deadlines = Deadlines { start_by, close_by };
            command(OpKind::Call, Request::Call { job: wire.id.parse().map_err(text)?, deadlines })
        }
        "sleep" => command(OpKind::Sleep, Request::Sleep { until: Timestamp::from_ms(required(wire.at, "at")?) }),
        "child" => {
            let policy = match wire.pc.as_ref() {
                "" => ParentClosePolicy::Cancel,
                "wait" => ParentClosePolicy::Wait,
                "abandon" => ParentClosePolicy::Abandon,
                other => return Err(format!("the parent-close policy `{other}` is unknown; update this program")),
            };
            command(OpKind::Child, Request::Child { run: wire.id.parse().map_err(text)?, policy })
        }
        "cancel" => Entry::Cancel(wire.l.to_vec()),
        "patch" => Entry::Patch(read_key(wire, OpKind::Patch)),
        "discarded" => {
            let (of, name, id, body) = (wire.of, owned(&wire.n), wire.id.as_ref().to_owned(), body(wire));
            Entry::Discarded { at: time(wire)?, message: DiscardedMessage { of, name, id, body } }
        }
        "ok" => end(End::Ok(body(wire)))?,
        "failed" => end(End::Failed(message(wire)?))?,
        "cancelled" => end(End::Cancelled(message(wire)?))?,
        "timed_out" => end(End::TimedOut(message(wire)?))?,
        "retried" => {
            let at = Timestamp::from_ms(required(wire.at, "at")?);
            end(End::Retried { message: message(wire)?, attempt: wire.i, at })?
        }
        "continued" => end(End::Continued { kind: owned(&wire.n), hash: wire.h })?,
        _ => Entry::Event { event: read_event(wire)?, at: time(wire)? },
    })
}

fn read_event(wire: &Wire<'_>) -> Result<Event, String> {
    Ok(match wire.r.as_ref() {
        "started" => Event::Started { seed: hex(&wire.x)? },
        "done" => Event::Done { of: required(wire.of, "of")?, outcome: read_outcome(wire)? },
        "fired" => Event::Fired { of: required(wire.of, "of")? },
        "start_expired" => Event::StartExpired { of: required(wire.of, "of")? },
        "expired" => Event::Expired { of: required(wire.of, "of")?, error: read_error(wire)? },
        "stepped" => {
            let place = SourceLine::stored(wire.p.as_ref());
            Event::Stepped { key: read_key(wire, OpKind::Run), outcome: read_outcome(wire)?, place }
        }
        "signal" => Event::Signal { name: owned(&wire.n), body: body(wire), id: wire.id.as_ref().to_owned() },
        "resolved" => Event::Resolved { token: hex(&wire.x)?, body: body(wire) },
        "cancel_requested" => Event::CancelRequested { reason: message(wire)? },
        "deadline" => Event::TimedOut,
        "cap" => Event::CapRaised { cap: required(wire.d.map(number).transpose()?, "d")? },
        other => return Err(format!("`{other}` is not a type of record; update this program")),
    })
}

fn read_outcome(wire: &Wire<'_>) -> Result<Outcome, String> {
    if wire.c.is_empty() {
        return Ok(Ok(body(wire)));
    }
    read_error(wire).map(Err)
}

fn read_error(wire: &Wire<'_>) -> Result<CallError, String> {
    let ErrorBody { message, attempts, detail } = match wire.d {
        Some(raw) => serde_json::from_str(raw.get()).map_err(text)?,
        None => ErrorBody { message: String::new(), attempts: 0, detail: None },
    };
    Ok(CallError { class: ErrorClass::named(&wire.c), message, attempts, detail })
}

fn read_key(wire: &Wire<'_>, kind: OpKind) -> Key {
    Key { scope: owned(&wire.s), kind, name: owned(&wire.n), user: owned(&wire.u), nth: wire.i }
}

fn owned(text: &str) -> Name {
    if text.is_empty() { Name::Borrowed("") } else { Name::Owned(text.to_owned()) }
}

fn body(wire: &Wire<'_>) -> Body {
    wire.d.map_or_else(Body::null, |raw| Body::from_raw(raw.to_owned()))
}

fn message(wire: &Wire<'_>) -> Result<String, String> {
    wire.d.map_or_else(|| Ok(String::new()), |raw| serde_json::from_str(raw.get()).map_err(text))
}

fn number(raw: &RawValue) -> Result<u64, String> {
    serde_json::from_str(raw.get()).map_err(text)
}

fn time(wire: &Wire<'_>) -> Result<Timestamp, String> {
    required(wire.t, "t").map(Timestamp::from_ms)
}

fn required<T>(value: Option<T>, field: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("it has no `{field}`"))
}

fn hex(digits: &str) -> Result<u64, String> {
    u64::from_str_radix(digits, 16).map_err(|_| format!("`{digits}` is not hexadecimal"))
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

//! How jobs are written, and how they are read back. The layout is in `lua/lib/jobs.lua`.

use crate::directory::{Directory, Lane};
use crate::reply::{hex, hex_time, maybe, number, odd, padded_time, state, text, time};
use bytes::Bytes;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use windlass_core::Result;
use windlass_core::id::RunId;
use windlass_core::job::{
    DedupMode, Due, Failure, FailureClass, JobSpec, KeepFor, LeaseView, NewJob, SparseSpec, State,
};
use windlass_core::name::{GroupName, Kind, QueueName, WorkerId};
use windlass_core::payload::{JSON, Payload};
use windlass_core::time::Timestamp;

/// Text without a line end in it.
fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| odd(&e.to_string()))
}

fn mode_name(mode: DedupMode) -> &'static str {
    match mode {
        DedupMode::Reject => "reject",
        DedupMode::Replace => "replace",
        DedupMode::Throttle => "throttle",
        DedupMode::KeepLast => "keep_last",
    }
}

/// A due time as the scripts read it.
pub(crate) fn due_text(due: Due) -> String {
    match due {
        Due::Now => "-".to_owned(),
        Due::DelayMs(ms) => format!("+{ms}"),
        Due::At(at) => at.as_ms().to_string(),
    }
}

/// The fields of a new job that the scripts read, if they are not all defaults; `lane` is its lane's number in the call, from 1.
pub(crate) fn new_job_fields(job: &NewJob, fingerprint: u64, lane: usize) -> Option<String> {
    let spec = &job.spec;
    let mut flags = String::new();
    for (flag, set) in [
        ('g', spec.group.is_some()),
        ('d', spec.dedup.is_some()),
        ('k', spec.keep_for != KeepFor::default()),
        ('l', spec.lifo),
    ] {
        if set {
            flags.push(flag);
        }
    }
    if let Some(cap) = spec.group_cap {
        let _ = write!(flags, "{cap}");
    }
    if flags.is_empty() {
        flags.push('-');
    }
    if let Some(run) = spec.run {
        let _ = write!(flags, "@{run}");
    }
    if flags == "-" && job.due == Due::Now && (spec.priority, spec.attempts, spec.stalls) == (0, 3, 1) {
        return None;
    }
    let mut text = format!(
        "{fingerprint:016x} {lane} {} {} {flags} {} {} ",
        due_text(job.due),
        spec.priority,
        spec.attempts,
        spec.stalls
    );
    match (&spec.dedup, spec.dedup_hash()) {
        (Some(dedup), Some(hash)) => {
            for byte in hash {
                let _ = write!(text, "{byte:02x}");
            }
            let _ = write!(text, " {} {} ", mode_name(dedup.mode), dash(dedup.ttl_ms));
        }
        _ => text.push_str("- - - "),
    }
    let _ = write!(text, "{} {} ", dash(spec.keep_for.succeeded_ms), dash(spec.keep_for.failed_ms));
    match &spec.group {
        Some(group) => {
            text.push('+');
            text.push_str(group.as_str());
        }
        None => text.push('-'),
    }
    Some(text)
}

fn dash(number: Option<u64>) -> Cow<'static, str> {
    number.map_or(Cow::Borrowed("-"), |number| Cow::Owned(number.to_string()))
}

/// True when enqueuing it touches nothing but what plain jobs touch.
pub(crate) fn is_plain(job: &NewJob) -> bool {
    let spec = &job.spec;
    job.due == Due::Now && spec.group.is_none() && spec.dedup.is_none()
}

/// The part of a record that no script reads: rare fields, content type, payload.
pub(crate) fn new_job_rest(job: &NewJob) -> Result<Vec<u8>> {
    let spec = &job.spec;
    // The scripts read these three, so they stand in the head.
    let rare = SparseSpec { group: None, group_cap: None, keep_for: None, ..SparseSpec::of(spec) };
    let mut rest = rare.to_json()?.unwrap_or_default().into_bytes();
    rest.push(b'\n');
    rest.extend(payload_text(&spec.payload));
    Ok(rest)
}

/// A payload as it stands at the end of a record, and as a result is kept: content type, line end, bytes.
pub(crate) fn payload_text(payload: &Payload) -> Vec<u8> {
    let mut text = Vec::with_capacity(payload.bytes.len() + 1);
    if payload.content_type != JSON {
        text.extend(payload.content_type.as_bytes());
    }
    text.push(b'\n');
    text.extend(&payload.bytes);
    text
}

fn payload(rest: &Bytes) -> Result<Payload> {
    let (kind, bytes) = split_line(rest).ok_or_else(|| odd("a payload without a type"))?;
    let content_type = if kind.is_empty() { Cow::Borrowed(JSON) } else { Cow::Owned(text(&kind)?.to_owned()) };
    Ok(Payload { content_type, bytes })
}

/// A line, and what stands behind it.
pub(crate) fn split_line(bytes: &Bytes) -> Option<(Bytes, Bytes)> {
    let at = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((bytes.slice(..at), bytes.slice(at + 1..)))
}

/// The flags of a job, and behind them its run.
fn flags_and_run(text: &str) -> Result<(String, Option<RunId>)> {
    match text.split_once('@') {
        Some((flags, run)) => Ok((flags.to_owned(), Some(run.parse()?))),
        None => Ok((text.to_owned(), None)),
    }
}

/// The creator's part of a record.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) lane: u64,
    pub(crate) created_at: Timestamp,
    due: String,
    pub(crate) priority: i16,
    pub(crate) flags: String,
    run: Option<RunId>,
    pub(crate) attempts: u32,
    pub(crate) stalls: u32,
    keep_for: KeepFor,
    pub(crate) group: Option<GroupName>,
    rest: Bytes,
}

impl Head {
    pub(crate) fn read(record: &Bytes) -> Result<Self> {
        let (line, rest) = split_line(record).ok_or_else(|| odd("a record without a head"))?;
        let line = text(&line)?;
        let mut parts = line.splitn(17, ' ');
        let mut next = || parts.next().ok_or_else(|| odd("a record's head is too short"));
        if next()? != "1" {
            return Err(odd("a record of another version"));
        }
        let (_queue, lane, _row) = (hex(next()?)?, hex(next()?)?, hex(next()?)?);
        let created_at = hex_time(next()?)?;
        let _fingerprint = hex(next()?)?;
        let mut head = Self {
            lane,
            created_at,
            due: "-".to_owned(),
            priority: 0,
            flags: "-".to_owned(),
            run: None,
            attempts: 3,
            stalls: 1,
            keep_for: KeepFor::default(),
            group: None,
            rest,
        };
        let Ok(due) = next() else { return Ok(head) };
        head.due = due.to_owned();
        head.priority = number(next()?)?;
        (head.flags, head.run) = flags_and_run(next()?)?;
        (head.attempts, head.stalls) = (number(next()?)?, number(next()?)?);
        let (_key, _mode, _ttl) = (next()?, next()?, next()?);
        head.keep_for = KeepFor { succeeded_ms: maybe(next()?)?, failed_ms: maybe(next()?)? };
        head.group = match next()? {
            "-" => None,
            name => {
                let name = name.strip_prefix('+').ok_or_else(|| odd("a group without a name"))?;
                Some(GroupName::new(name).map_err(|e| odd(&e.to_string()))?)
            }
        };
        Ok(head)
    }

    /// The cap for its group that the job brings: the number among its flags.
    fn group_cap(&self) -> Result<Option<u32>> {
        let digits: String = self.flags.chars().filter(char::is_ascii_digit).collect();
        if digits.is_empty() { Ok(None) } else { number(&digits).map(Some) }
    }

    /// What the job was asked to be.
    pub(crate) fn spec(&self, lane: &Lane) -> Result<JobSpec> {
        let (rare, rest) = split_line(&self.rest).ok_or_else(|| odd("a record without a payload"))?;
        self.spec_with(lane, &rare, payload(&rest)?)
    }

    /// The same without the payload, which was not read.
    pub(crate) fn spec_without_payload(&self, lane: &Lane) -> Result<JobSpec> {
        let rare = split_line(&self.rest).map_or_else(|| self.rest.clone(), |(rare, _)| rare);
        self.spec_with(lane, &rare, Payload::default())
    }

    fn spec_with(&self, lane: &Lane, rare: &[u8], payload: Payload) -> Result<JobSpec> {
        let rare: SparseSpec = if rare.is_empty() {
            SparseSpec::default()
        } else {
            serde_json::from_slice(rare).map_err(|e| odd(&format!("rare fields: {e}")))?
        };
        Ok(rare.complete(JobSpec {
            priority: self.priority,
            lifo: self.flags.contains('l'),
            attempts: self.attempts,
            stalls: self.stalls,
            labels: lane.labels.clone(),
            group: self.group.clone(),
            group_cap: self.group_cap()?,
            keep_for: self.keep_for,
            run: self.run,
            ..JobSpec::new(lane.queue.clone(), lane.kind.clone(), payload)
        }))
    }
}

/// The life of a job.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) state: State,
    pub(crate) lane: u64,
    pub(crate) attempt: u32,
    pub(crate) attempts: u32,
    pub(crate) stalls: u32,
    pub(crate) retries: u32,
    pub(crate) cancel_requested: bool,
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) claimed_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) lease: Option<LeaseView>,
    pub(crate) created_at: Timestamp,
    pub(crate) flags: String,
}

impl Life {
    /// Of a job that nobody has touched.
    fn begin(head: &Head) -> Result<Self> {
        let state = if head.due == "-" { State::Ready } else { State::Scheduled };
        // `h` is held behind another job, and has no time until that one ends.
        let due_at = if head.due == "-" || head.due.starts_with('h') { None } else { Some(time(&head.due)?) };
        Ok(Self {
            lane: head.lane,
            due_at,
            created_at: head.created_at,
            flags: head.flags.clone(),
            ..Self::new(state, head.attempts)
        })
    }

    /// With nothing but a state and the attempts it may spend.
    fn new(state: State, attempts: u32) -> Self {
        Self {
            state,
            lane: 0,
            attempt: 0,
            attempts,
            stalls: 0,
            retries: 0,
            cancel_requested: false,
            due_at: None,
            claimed_at: None,
            finished_at: None,
            lease: None,
            created_at: Timestamp::from_ms(0),
            flags: String::new(),
        }
    }

    fn read(stored: &str) -> Result<Self> {
        let mut parts: Vec<&str> = stored.splitn(24, ' ').collect();
        if let [.., "*", created, worker] = parts[..]
            && parts.len() == 13
        {
            // The short form of a job with nothing but defaults: its place and its group are of no interest here.
            parts.truncate(10);
            parts.extend(["3", "0", "1", "0", "0", "-", created, "-", created, "-", "-", "-", "-", worker]);
        }
        let part = |i: usize| parts.get(i).copied().ok_or_else(|| odd("a life is too short"));
        // Its one time is the end of the lease, the end of the job, or when it is due.
        let (state, at) = (state(part(0)?)?, padded_time(part(6)?)?);
        let when = |wanted: bool| at.filter(|_| wanted);
        let lease = match when(state == State::Active) {
            Some(expires_at) => {
                Some(LeaseView { worker: WorkerId::new(part(23)?).map_err(|e| odd(&e.to_string()))?, expires_at })
            }
            None => None,
        };
        Ok(Self {
            state,
            lane: hex(part(8)?)?,
            attempt: number(part(9)?)?,
            attempts: number(part(10)?)?,
            stalls: number(part(11)?)?,
            retries: number(part(13)?)?,
            cancel_requested: part(14)? == "1",
            due_at: when(state == State::Scheduled),
            claimed_at: padded_time(part(5)?)?,
            finished_at: when(state.is_terminal()),
            lease,
            created_at: hex_time(part(18)?)?,
            flags: flags_and_run(part(19)?)?.0,
        })
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        self.flags.contains('q')
    }
}

/// A job as far as it can be read, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) life: Life,
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) damage: Option<String>,
}

/// Reads a job from its record and its life.
pub(crate) fn read(
    record: Option<&Bytes>,
    life: Option<&Bytes>,
    directory: &Directory,
    with_payload: bool,
) -> Result<Read> {
    let head = record.ok_or_else(|| odd("its record is gone")).and_then(Head::read);
    let lived = life.map(|life| text(life).and_then(Life::read));
    let life = match (lived, &head) {
        (Some(Ok(life)), _) => Ok(life),
        (Some(Err(error)), _) => Err(error),
        (None, Ok(head)) => Life::begin(head),
        (None, Err(error)) => Err(error.clone()),
    };
    let lane_id = life.as_ref().ok().map(|life| life.lane).or(head.as_ref().ok().map(|head| head.lane));
    let lane = lane_id.and_then(|id| directory.lane(id)).ok_or_else(|| odd("its queue or its lane is not there"));
    let spec = head.and_then(|head| {
        let lane = lane.as_ref().map_err(Clone::clone)?;
        if with_payload { head.spec(lane) } else { head.spec_without_payload(lane) }
    });
    let damage = life.as_ref().err().or(spec.as_ref().err()).map(ToString::to_string);
    let life = life.unwrap_or_else(|_| unreadable());
    let spec = spec.map(Arc::new).or_else(|_| stand_in(lane.ok().as_deref()).map(Arc::new))?;
    Ok(Read { life, spec, damage })
}

/// What is shown of a life that cannot be read.
fn unreadable() -> Life {
    Life { flags: "q".to_owned(), ..Life::new(State::Failed, 1) }
}

/// What is known of a job whose record cannot be read.
fn stand_in(lane: Option<&Lane>) -> Result<JobSpec> {
    Ok(match lane {
        Some(lane) => JobSpec {
            labels: lane.labels.clone(),
            ..JobSpec::new(lane.queue.clone(), lane.kind.clone(), Payload::default())
        },
        None => JobSpec::new(QueueName::new("?")?, Kind::new("?")?, Payload::default()),
    })
}

/// Lines and backslashes of a message, so that it stands on one line.
pub(crate) fn escape(message: &str) -> String {
    message.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

pub(crate) fn unescape(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some(other) => text.push(other),
                None => text.push('\\'),
            },
            (c, false) => text.push(c),
        }
    }
    text
}

/// The message of a failure, as it is kept. A detail follows behind `\ `, which [`escape`] never writes and older versions read as a space.
pub(crate) fn message_text(failure: &Failure) -> String {
    let mut text = escape(&failure.message);
    if let Some(detail) = &failure.detail {
        text.push_str("\\ ");
        text.push_str(&escape(&detail.to_string()));
    }
    text
}

/// The message of a failure and its detail. A detail that cannot be read is left out: it must not hide the failure.
pub(crate) fn read_message(stored: &str) -> (String, Option<serde_json::Value>) {
    let mut escaped = false;
    for (at, c) in stored.char_indices() {
        match (c, escaped) {
            (' ', true) => {
                let detail = stored.get(at + 1..).and_then(|text| serde_json::from_str(&unescape(text)).ok());
                return (unescape(&stored[..at - 1]), detail);
            }
            (_, is_second) => escaped = c == '\\' && !is_second,
        }
    }
    (unescape(stored), None)
}

const CLASSES: [(FailureClass, &str); 6] = [
    (FailureClass::Error, "error"),
    (FailureClass::Panic, "panic"),
    (FailureClass::Timeout, "timeout"),
    (FailureClass::Stalled, "stalled"),
    (FailureClass::Released, "released"),
    (FailureClass::Quarantined, "quarantined"),
];

pub(crate) fn class_name(class: FailureClass) -> &'static str {
    CLASSES.iter().find(|(known, _)| *known == class).map_or("error", |(_, name)| name)
}

pub(crate) fn class_of(name: &str) -> Option<FailureClass> {
    CLASSES.iter().find(|(_, known)| *known == name).map(|(class, _)| *class)
}

/// The failures of a job; a line that cannot be read is left out, because a damaged note must not hide the job.
pub(crate) fn failures(stored: Option<&Bytes>) -> Vec<Failure> {
    let failure = |line: &str| {
        let mut parts = line.splitn(4, ' ');
        let class = parts.next().and_then(class_of)?;
        let (attempt, at) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let (message, detail) = read_message(parts.next()?);
        Some(Failure { class, message, attempt, at: Timestamp::from_ms(at), detail })
    };
    let stored = stored.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
    stored.lines().filter_map(failure).collect()
}

/// A result and outputs, as they are kept: the outputs as JSON or nothing, a line end, `-` or `+` and the result.
pub(crate) fn result_text(result: Option<&Payload>, outputs: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    if result.is_none() && outputs.is_empty() {
        return Ok(Vec::new());
    }
    let mut text = if outputs.is_empty() { Vec::new() } else { json(outputs)?.into_bytes() };
    text.push(b'\n');
    match result {
        Some(result) => text.extend(only_result_text(result)),
        None => text.push(b'-'),
    }
    Ok(text)
}

/// What [`result_text`] wrote; nothing when it cannot be read.
pub(crate) fn result(stored: Option<&Bytes>) -> (Option<Payload>, BTreeMap<String, String>) {
    let Some((outputs, rest)) = stored.and_then(split_line) else {
        return Default::default();
    };
    let outputs = serde_json::from_slice(&outputs).unwrap_or_default();
    (read_result(&rest), outputs)
}

/// A result: `-` or `+` and the result.
pub(crate) fn only_result_text(result: &Payload) -> Vec<u8> {
    let mut text = vec![b'+'];
    text.extend(payload_text(result));
    text
}

/// What [`only_result_text`] wrote; nothing when there is none or it cannot be read.
pub(crate) fn read_result(stored: &Bytes) -> Option<Payload> {
    if stored.first() == Some(&b'+') { payload(&stored.slice(1..)).ok() } else { None }
}

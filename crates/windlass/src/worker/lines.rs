//! Passing on what handlers log.
//!
//! Lines are numbered, so that an append whose answer got lost can be repeated. The first append of an attempt asks for
//! the number: an earlier attempt may have written lines, too.

use super::Shared;
use super::active::{Active, Stop};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::MutexGuard;
use windlass_core::Result;
use windlass_core::store::{
    BATCH_MAX, LOG_LINE_BYTES_MAX, LogAppend, LogLine, LogStream, RenewRequest, Renewal, Store,
};

/// How often the last lines of a job are tried before the job is reported without them.
const LAST_TRIES: u32 = 4;
const TRY_AGAIN: Duration = Duration::from_millis(50);
/// How long a worker that leaves waits for them.
const LEAVING: Duration = Duration::from_millis(500);

/// Lines of one job on their way, and their place.
struct Parcel<'a> {
    active: &'a Active,
    place: MutexGuard<'a, Option<u64>>,
    lines: Vec<LogLine>,
}

/// Passes on what all of these have said, in two calls at most. One whose lines are being passed on is left alone: nobody
/// may have to wait for a handler here. Lines that the store cannot take now are kept for the next time.
pub(super) async fn pass_on(shared: &Shared, actives: &[Arc<Active>]) {
    let mut parcels = Vec::new();
    for active in actives {
        if active.notes().lines.is_empty() {
            continue;
        }
        if let Some(place) = active.free_log_place() {
            let lines = active.notes().take_lines();
            parcels.push(Parcel { active, place, lines });
        }
    }
    let mut rest = &mut parcels[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at_mut(fitting(rest.iter().map(|parcel| parcel.lines.len())));
        send(&*shared.store, now).await;
        rest = later;
    }
}

/// How many parcels of these sizes go in one call: at least one, and no more lines than a call may have.
fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut lines = 0;
    let fits = |size: &usize| {
        lines += size;
        lines <= BATCH_MAX
    };
    sizes.take_while(fits).count().max(1)
}

/// Adds lines of a handler that may say more than anybody wants to hold, and can wait: when many wait to be passed on they
/// are, here and at once. While the store cannot take them this does not return. Dropped, it loses lines only that are on
/// their way.
#[cfg_attr(not(all(unix, feature = "commands")), expect(dead_code, reason = "only commands say so much"))]
pub(crate) async fn push_all(store: &dyn Store, active: &Active, lines: Vec<LogLine>) {
    let mut full = active.add_lines(lines);
    let mut tries = 0;
    // Ends when the store has taken them, or refuses them for good: then they are dropped.
    while full {
        let place = active.log_place().await;
        // The keeper may have made room by now.
        if active.notes().is_full() {
            let lines = active.notes().take_lines();
            send(store, &mut [Parcel { active, place, lines }]).await;
        }
        full = active.notes().is_full();
        if full {
            tries = (tries + 1).min(LAST_TRIES * 5);
            tokio::time::sleep(TRY_AGAIN * tries).await;
        }
    }
}

/// Passes on the last of them, and how far the job says it is, before it is reported. What cannot be passed on is not worth
/// the job.
pub(super) async fn pass_on_last(shared: &Shared, active: &Active) {
    let progress = active.notes().progress.take();
    if progress.is_none() && active.notes().lines.is_empty() {
        return;
    }
    let send_all = async {
        if let Some(progress) = progress {
            let renewal = Renewal { lease: active.lease, lease_ms: None, progress: Some(progress) };
            if let Err(error) = shared.store.renew(RenewRequest { renewals: vec![renewal] }).await {
                tracing::warn!(job = %active.lease.job, %error, "its last progress was lost");
            }
        }
        let mut place = active.log_place().await;
        for n in 1..=LAST_TRIES {
            if active.notes().lines.is_empty() {
                return;
            }
            let lines = active.notes().take_lines();
            let mut parcel = [Parcel { active, place, lines }];
            send(&*shared.store, &mut parcel).await;
            let [Parcel { place: back, .. }] = parcel;
            place = back;
            if active.notes().lines.is_empty() {
                return;
            }
            tokio::time::sleep(TRY_AGAIN * n).await;
        }
        tracing::warn!(job = %active.lease.job, "its last log lines were lost");
    };
    let leaving = async {
        active.stopped_for(Stop::Leaving).await;
        tokio::time::sleep(LEAVING).await;
    };
    tokio::select! {
        () = send_all => {}
        () = leaving => tracing::warn!(job = %active.lease.job, "it left without its last log lines"),
    }
}

async fn send(store: &dyn Store, parcels: &mut [Parcel<'_>]) {
    // Where an attempt begins to write, only the store knows.
    if parcels.iter().any(|parcel| parcel.place.is_none()) {
        let unknown = |parcel: &&mut Parcel<'_>| parcel.place.is_none();
        let mut new: Vec<&mut Parcel<'_>> = parcels.iter_mut().filter(unknown).collect();
        let asks = new.iter().map(|parcel| parcel.append(0, Vec::new())).collect();
        let answers = append(store, asks).await;
        for (parcel, answer) in new.iter_mut().zip(answers) {
            parcel.take_in(answer);
        }
    }
    let known = |parcel: &&mut Parcel<'_>| parcel.place.is_some() && !parcel.lines.is_empty();
    let mut known: Vec<&mut Parcel<'_>> = parcels.iter_mut().filter(known).collect();
    let appends = known.iter().map(|parcel| parcel.append(parcel.place.unwrap_or(0), parcel.lines.clone())).collect();
    let answers = append(store, appends).await;
    for (parcel, answer) in known.iter_mut().zip(answers) {
        if parcel.take_in(answer) {
            parcel.lines.clear();
        }
    }
    for parcel in parcels {
        parcel.active.put_back_lines(std::mem::take(&mut parcel.lines));
    }
}

impl Parcel<'_> {
    fn append(&self, first: u64, lines: Vec<LogLine>) -> LogAppend {
        LogAppend { lease: self.active.lease, first, lines }
    }

    /// True when it was taken. Lines that will never be are dropped.
    fn take_in(&mut self, answer: Result<u64>) -> bool {
        match answer {
            Ok(next) => {
                *self.place = Some(next);
                true
            }
            Err(error) => {
                tracing::warn!(job = %self.active.lease.job, %error, "log lines could not be passed on");
                if !error.is_retryable() {
                    self.lines.clear();
                }
                false
            }
        }
    }
}

/// One answer for each.
async fn append(store: &dyn Store, appends: Vec<LogAppend>) -> Vec<Result<u64>> {
    let n = appends.len();
    if n == 0 {
        return Vec::new();
    }
    match store.append_logs(appends).await {
        Ok(answers) => answers,
        Err(error) => vec![Err(error); n],
    }
}

/// What a handler has said, as lines that the store takes: one for each line of the text, long ones cut.
pub(crate) fn lines_of(shared_now: windlass_core::time::Timestamp, text: &str) -> Vec<LogLine> {
    let mut lines = Vec::new();
    for mut line in text.split('\n') {
        while line.len() > LOG_LINE_BYTES_MAX {
            let (head, tail) = line.split_at(line.floor_char_boundary(LOG_LINE_BYTES_MAX));
            lines.push(head);
            line = tail;
        }
        lines.push(line);
    }
    let line = |text: &str| LogLine { at: shared_now, stream: LogStream::Log, text: text.to_owned().into() };
    lines.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::time::Timestamp;

    /// A job that somebody holds.
    #[cfg(all(unix, feature = "commands"))]
    async fn held(store: &Arc<dyn Store>) -> Active {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Talk;
        impl crate::Job for Talk {
            const KIND: &'static str = "talk";
            type Output = ();
        }
        crate::Client::new(Arc::clone(store)).enqueue(Talk).await.unwrap();
        let request = windlass_core::store::ClaimRequest {
            worker: "w".try_into().unwrap(),
            request_id: 1,
            queues: vec!["default".try_into().unwrap()],
            kinds: windlass_core::store::Kinds::Any,
            labels: windlass_core::name::Labels::default(),
            max: 1,
            lease_ms: 60_000,
        };
        let claimed = store.claim(request).await.unwrap();
        Active::new(claimed.jobs[0].lease, super::super::health::now())
    }

    #[cfg(all(unix, feature = "commands"))]
    #[tokio::test]
    async fn however_much_is_said_little_is_held_and_nothing_is_lost() {
        use super::super::active::{LINE_BYTES_FULL, LINES_FULL};
        use windlass_conformance::faults::{Fault, FaultPlan, Faulty, Method};
        use windlass_core::store::LogRequest;
        let store = crate::open("memory://").unwrap();
        let active = held(&store).await;
        let calls = std::sync::atomic::AtomicU32::new(0);
        // Now and then the store is away, or its answer gets lost.
        let choose = move |method| match calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 10 {
            3 if method == Method::AppendLogs => Fault::Before,
            7 if method == Method::AppendLogs => Fault::Lost,
            _ => Fault::Pass,
        };
        let faulty = Faulty::new(Arc::clone(&store), FaultPlan::by(choose));
        let line = |text: String| LogLine { at: Timestamp::from_ms(0), stream: LogStream::Stdout, text: text.into() };
        let (most, at_once) = (200_000, 500);
        let mut held_most = 0;
        for first in (0..most).step_by(at_once) {
            push_all(&faulty, &active, (first..first + at_once).map(|n| line(n.to_string())).collect()).await;
            held_most = held_most.max(active.notes().lines.len());
        }
        assert!(held_most < LINES_FULL, "held {held_most}");
        let rest = active.notes().lines.len();
        let from = (most - rest - 10_000) as u64;
        let page = store.read_logs(LogRequest { job: active.lease.job, from, limit: 10_000 }).await.unwrap();
        assert_eq!(page.next, (most - rest) as u64);
        assert!((from..).zip(&page.lines).all(|(n, (_, line))| line.text == n.to_string()));
        for _ in 0..200 {
            push_all(&faulty, &active, vec![line("x".repeat(LOG_LINE_BYTES_MAX))]).await;
            let bytes: usize = active.notes().lines.iter().map(|line| line.text.len()).sum();
            assert!(bytes < LINE_BYTES_FULL, "held {bytes} bytes");
        }
    }

    #[test]
    fn one_call_has_no_more_lines_than_a_store_takes() {
        assert_eq!(fitting([4_000, 4_000, 2_000, 1].into_iter()), 3);
        assert_eq!(fitting([BATCH_MAX + 1, 1].into_iter()), 1);
        assert_eq!(fitting([1, BATCH_MAX].into_iter()), 1);
    }

    #[test]
    fn text_is_cut_where_its_lines_end_and_where_they_are_too_long() {
        let texts = |text: &str| -> Vec<usize> {
            lines_of(Timestamp::from_ms(0), text).iter().map(|line| line.text.len()).collect()
        };
        assert_eq!(texts("one\ntwo!"), [3, 4]);
        assert_eq!(texts(""), [0]);
        let long = "ü".repeat(LOG_LINE_BYTES_MAX);
        assert_eq!(texts(&long), [LOG_LINE_BYTES_MAX, LOG_LINE_BYTES_MAX]);
        let odd = format!("x{}", "ü".repeat(LOG_LINE_BYTES_MAX));
        assert_eq!(texts(&odd), [LOG_LINE_BYTES_MAX - 1, LOG_LINE_BYTES_MAX, 2]);
    }
}

//! Passing on what handlers log.
//!
//! Lines are numbered, so that an append whose answer got lost can be repeated. The first append of an attempt asks for
//! the number: an earlier attempt may have written lines, too.
//!
//! However much is logged, no lease may end because of it. So nothing that renews leases waits for an append; each append has few
//! lines and bytes, and a worker makes one at a time, so that a store which works off its calls in order comes to the renewals
//! soon. A store that is slow with lines slows the handlers that log them: a job of which many lines wait is not polled,
//! and on a thread of its own [`Ctx::log`](crate::Ctx::log) blocks.

use super::Shared;
use super::active::{Active, Portion};
use crate::context::World;
use crate::repeat::PAUSE;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{MutexGuard, Notify, OwnedMutexGuard};
use windlass_core::Result;
use windlass_core::job::Progress;
use windlass_core::store::{LOG_LINE_BYTES_MAX, LogAppend, LogLine, LogStream, RenewRequest, Renewal};

/// How often the last lines of a job are tried before the job is reported without them.
const LAST_TRIES: u32 = 4;
/// How long a worker that leaves waits for them.
const LEAVING: Duration = Duration::from_millis(500);
/// The most lines of one call, and their bytes; one line is always sent, however long it is.
pub(super) const CALL: Portion = Portion { lines: 2_048, bytes: 1 << 20 };
/// The most of one job in a call that is for several jobs.
const SHARE: Portion = Portion { lines: 512, bytes: 256 << 10 };
/// How long an append waits for one that is under way. A call that never returns must not hold up the lines of all jobs: then
/// the next one overtakes it, and the others wait for that one.
const TURN_WAIT: Duration = Duration::from_secs(1);

/// What the tasks of a worker share that pass on lines.
#[derive(Debug, Default)]
pub(crate) struct LogCalls {
    /// Locked by the call that is under way. One that is overtaken keeps its lock, and a new one takes its place here.
    turn: parking_lot::Mutex<Arc<tokio::sync::Mutex<()>>>,
    /// Notified when lines should be passed on.
    due: Notify,
}

impl LogCalls {
    /// Lets the keeper pass on lines as soon as it can.
    pub(crate) fn pass_on_soon(&self) {
        self.due.notify_one();
    }

    /// Waits until no other call is under way, or until [`TURN_WAIT`] has passed and no other one overtakes.
    async fn turn(&self) -> OwnedMutexGuard<()> {
        loop {
            let current = Arc::clone(&self.turn.lock());
            let locked = tokio::time::timeout(TURN_WAIT, Arc::clone(&current).lock_owned()).await;
            let mut turn = self.turn.lock();
            if !Arc::ptr_eq(&turn, &current) {
                // Another one has overtaken meanwhile.
                continue;
            }
            if let Ok(locked) = locked {
                return locked;
            }
            *turn = Arc::default();
            if let Ok(locked) = Arc::clone(&turn).try_lock_owned() {
                return locked;
            }
        }
    }
}

/// Lines of one job on their way, and their place.
struct Parcel<'a> {
    active: &'a Active,
    place: MutexGuard<'a, Option<u64>>,
    lines: Vec<LogLine>,
}

/// Passes on lines whenever they are due. Never returns.
pub(super) async fn keep_passing_on(shared: &Shared) {
    loop {
        shared.world.log_calls.due.notified().await;
        while pass_on(&shared.world, &shared.actives.all()).await {
            // On a store that answers at once, the renewals of this task have their turn.
            tokio::task::yield_now().await;
        }
    }
}

/// Passes on lines of all of these, a share of each; true when some have more and the store takes them. One whose lines
/// are being passed on is left alone: nobody may have to wait for a handler here. Lines that the store cannot take now are
/// kept for the next time.
async fn pass_on(world: &World, actives: &[Arc<Active>]) -> bool {
    let (mut all_taken, mut more) = (true, false);
    let mut rest = actives;
    while !rest.is_empty() {
        let (mut parcels, later) = next_call(rest);
        rest = later;
        all_taken &= send(world, &mut parcels).await;
        more |= parcels.iter().any(|parcel| parcel.active.has_lines());
        tokio::task::yield_now().await;
    }
    all_taken && more
}

/// The lines of the next call, and the jobs that are left for later ones.
fn next_call(actives: &[Arc<Active>]) -> (Vec<Parcel<'_>>, &[Arc<Active>]) {
    let (mut parcels, mut room) = (Vec::new(), CALL);
    for (at, active) in actives.iter().enumerate() {
        if room.lines == 0 || room.bytes == 0 {
            return (parcels, &actives[at..]);
        }
        if !active.has_lines() {
            continue;
        }
        if let Some(place) = active.free_log_place() {
            let most = Portion { lines: SHARE.lines.min(room.lines), bytes: SHARE.bytes.min(room.bytes) };
            // One line is always sent; the first job has room for it.
            let lines = active.take_lines(most, parcels.is_empty());
            if lines.is_empty() {
                return (parcels, &actives[at..]);
            }
            room.lines = room.lines.saturating_sub(lines.len());
            room.bytes = room.bytes.saturating_sub(lines.iter().map(|line| line.text.len()).sum());
            parcels.push(Parcel { active, place, lines });
        }
    }
    (parcels, &[])
}

/// Runs a handler. While many lines of its jobs wait to be stored it is not polled, and they are passed on: a slow store
/// slows the handler. Not for handlers that call [`push_all`] themselves: not polled, one could hold the place that is
/// waited for here.
pub(super) async fn paced<T>(world: &World, actives: &[&Active], handler: impl Future<Output = T>) -> T {
    let mut handler = pin!(handler);
    loop {
        let polled = std::future::poll_fn(|cx| match handler.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if actives.iter().any(|active| active.is_full()) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        match polled.await {
            Some(value) => return value,
            None => {
                for active in actives {
                    // Boxed: few handlers come here, and the future of each would have room for it.
                    Box::pin(push_all(world, active, Vec::new())).await;
                }
            }
        }
    }
}

/// Adds lines of a handler that may say more than anybody wants to hold, and can wait: when many wait to be passed on they
/// are, here and at once. While the store cannot take them this does not return. Dropped, it loses lines only that are on
/// their way.
pub(crate) async fn push_all(world: &World, active: &Active, lines: Vec<LogLine>) {
    active.add_lines(lines);
    let mut failures = 0;
    // Ends when the store has taken them, or refuses them for good: then they are dropped.
    while active.is_full() {
        let place = active.log_place().await;
        // The keeper may have made room by now.
        if !active.is_full() {
            return;
        }
        let lines = active.take_lines(CALL, true);
        if !send(world, &mut [Parcel { active, place, lines }]).await {
            failures = (failures + 1).min(LAST_TRIES * 5);
            tokio::time::sleep(PAUSE * failures).await;
        }
    }
}

/// Passes on the last of them, and how far the job says it is, before it is reported. What cannot be passed on is not worth
/// the job.
pub(super) async fn pass_on_last(shared: &Shared, active: &Active) {
    let progress = active.notes().progress.take();
    // The lines of a call that is under way must have arrived, too.
    if progress.is_some() || active.has_lines() || active.free_log_place().is_none() {
        Box::pin(send_last(shared, active, progress)).await;
    }
}

async fn send_last(shared: &Shared, active: &Active, progress: Option<Progress>) {
    let send_all = async {
        if let Some(progress) = progress {
            let renewal = Renewal { lease: active.lease, lease_ms: None, progress: Some(progress) };
            if let Err(error) = shared.store.renew(RenewRequest { renewals: vec![renewal] }).await {
                tracing::warn!(job = %active.lease.job, %error, "its last progress was lost");
            }
        }
        send_last_lines(&shared.world, active).await;
    };
    let leaving = async {
        active.worker_leaves().await;
        tokio::time::sleep(LEAVING).await;
    };
    tokio::select! {
        () = send_all => {}
        () = leaving => tracing::warn!(job = %active.lease.job, "it left without its last log lines"),
    }
}

/// Sends the lines that wait now. What a task or thread that the handler has left behind logs from now on is not waited for.
async fn send_last_lines(world: &World, active: &Active) {
    let (mut left, mut failures) = (None, 0);
    loop {
        if failures == LAST_TRIES {
            tracing::warn!(job = %active.lease.job, "its last log lines were lost");
            return;
        }
        let place = active.log_place().await;
        let left = left.get_or_insert_with(|| active.lines_waiting());
        if *left == 0 {
            return;
        }
        let lines = active.take_lines(CALL, true);
        let taken = lines.len();
        if taken == 0 {
            return;
        }
        if send(world, &mut [Parcel { active, place, lines }]).await {
            *left = left.saturating_sub(taken);
        } else {
            failures += 1;
            tokio::time::sleep(PAUSE * failures).await;
        }
    }
}

/// Sends lines, and puts those back that the store could not take; true when there are none of those.
async fn send(world: &World, parcels: &mut [Parcel<'_>]) -> bool {
    // Where an attempt begins to write, only the store knows.
    if parcels.iter().any(|parcel| parcel.place.is_none()) {
        let unknown = |parcel: &&mut Parcel<'_>| parcel.place.is_none();
        let mut new: Vec<&mut Parcel<'_>> = parcels.iter_mut().filter(unknown).collect();
        let asks = new.iter().map(|parcel| parcel.append(0, Vec::new())).collect();
        let answers = append(world, asks).await;
        for (parcel, answer) in new.iter_mut().zip(answers) {
            parcel.take_in(None, answer);
        }
    }
    let known = |parcel: &&mut Parcel<'_>| parcel.place.is_some() && !parcel.lines.is_empty();
    let mut known: Vec<&mut Parcel<'_>> = parcels.iter_mut().filter(known).collect();
    // Unknown until the answer is here: of a call that is dropped nobody knows whether it was applied.
    let firsts: Vec<Option<u64>> = known.iter_mut().map(|parcel| parcel.place.take()).collect();
    let appends = known.iter().zip(&firsts);
    let appends = appends.map(|(parcel, first)| parcel.append(first.unwrap_or(0), parcel.lines.clone())).collect();
    let answers = append(world, appends).await;
    for ((parcel, first), answer) in known.iter_mut().zip(firsts).zip(answers) {
        if parcel.take_in(first, answer) {
            parcel.lines.clear();
        }
    }
    let all_taken = parcels.iter().all(|parcel| parcel.lines.is_empty());
    for parcel in parcels {
        parcel.active.put_back_lines(std::mem::take(&mut parcel.lines));
    }
    all_taken
}

impl Parcel<'_> {
    fn append(&self, first: u64, lines: Vec<LogLine>) -> LogAppend {
        LogAppend { lease: self.active.lease, first, lines }
    }

    /// True when the append that began at `first` was taken. Lines that will never be are dropped.
    fn take_in(&mut self, first: Option<u64>, answer: Result<u64>) -> bool {
        match answer {
            Ok(next) => {
                *self.place = Some(next);
                true
            }
            Err(error) => {
                *self.place = first;
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
async fn append(world: &World, appends: Vec<LogAppend>) -> Vec<Result<u64>> {
    let n = appends.len();
    if n == 0 {
        return Vec::new();
    }
    let _turn = world.log_calls.turn().await;
    match world.client.store().append_logs(appends).await {
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
    use super::super::logging::{held, line};
    use super::*;
    use async_trait::async_trait;
    use parking_lot::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use windlass_core::memory::MemoryStore;
    use windlass_core::store::{LogSink as _, Store, Wrap, Wrapped};

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_for_one_that_hangs_overtake_it_one_at_a_time() {
        let (calls, begun) = (LogCalls::default(), std::sync::atomic::AtomicU32::new(0));
        let hang = async || {
            let _turn = calls.turn().await;
            begun.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        };
        let all = futures::future::join_all((0..10).map(|_| hang()));
        // sleeps because: the turns are given out as the virtual clock moves.
        let _ = tokio::time::timeout(TURN_WAIT * 7 / 2, all).await;
        assert_eq!(begun.load(Ordering::SeqCst), 4, "one at once, and one after each wait");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_the_end_of_the_one_before_it() {
        let calls = LogCalls::default();
        let first = calls.turn().await;
        let mut second = pin!(calls.turn());
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        second.await;
    }
    use windlass_core::time::Timestamp;

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

    /// A store during whose appends the job logs another line, a hundred times.
    struct LogsMeanwhile {
        inner: MemoryStore,
        job: Mutex<Option<Arc<Active>>>,
        lines: AtomicUsize,
    }

    #[async_trait]
    impl Wrap for LogsMeanwhile {
        fn inner(&self) -> &dyn Store {
            &self.inner
        }

        async fn append_logs(&self, appends: Vec<LogAppend>) -> Result<Vec<Result<u64>>> {
            let lines = appends.iter().map(|append| append.lines.len()).sum::<usize>();
            let before = self.lines.fetch_add(lines, Ordering::SeqCst);
            if let Some(job) = self.job.lock().as_ref().filter(|_| lines > 0 && before < 100) {
                job.push_log(vec![line("more")]);
            }
            self.inner.append_logs(appends).await
        }
    }

    #[tokio::test]
    async fn lines_that_are_logged_while_the_last_ones_are_stored_do_not_hold_up_the_job() {
        let store = Arc::new(Wrapped(LogsMeanwhile {
            inner: MemoryStore::new(),
            job: Mutex::default(),
            lines: AtomicUsize::new(0),
        }));
        let (world, active) = held(Arc::clone(&store) as Arc<dyn Store>).await;
        let active = Arc::new(active);
        *store.0.job.lock() = Some(Arc::clone(&active));
        active.push_log(vec![line("last")]);
        send_last_lines(&world, &active).await;
        assert_eq!(store.0.lines.load(Ordering::SeqCst), 1, "only the line that had been logged before");
    }
}

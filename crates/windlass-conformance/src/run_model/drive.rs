//! Does the steps to a store, tells the book, and compares the answers.

use super::Seen;
use super::book::{Book, CommitNote, Holder, Word};
use super::caps::Caps;
use super::op::{
    CommitPlan, IdPlan, InboxPlan, JobIdPlan, JobPlan, LengthPlan, MessagePlan, Op, RenewalPlan, RunPlan, StepPlan,
};
use crate::ctx::{Ctx, worker_id};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::Result as StoreResult;
use windlass_core::id::{JobId, RunId, Token};
use windlass_core::job::{Due, Job, KeepFor, Lease, NewJob};
use windlass_core::name::{GroupName, Kind, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::store::{
    ClaimedRun, FeedCursor, INBOX_ITEMS_MAX, ListOrder, NewRun, RunClaim, RunCommit, RunCreated, RunItem, RunLease,
    RunList, RunMessage, RunState, RunStep, Store,
};
use windlass_core::time::Timestamp;

pub(super) type Checked = Result<(), String>;

#[expect(clippy::needless_pass_by_value, reason = "what is compared is made for it")]
pub(super) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, should: T, is: T) -> Checked {
    if should == is { Ok(()) } else { Err(format!("{what}: should be {should:?}, is {is:?}")) }
}

pub(super) fn word<T>(answer: &StoreResult<T>) -> Word {
    answer.as_ref().map_or_else(Word::of, |_| Word::Ok)
}

/// A lease on a run, and what is known of the run under it.
pub(super) struct Known {
    pub(super) lease: RunLease,
    history_len: u64,
    /// The number behind the last item that the lease was shown.
    pub(super) inbox_to: u64,
    /// The number behind the last item that the claim returned.
    claimed_to: u64,
}

impl Known {
    /// How many items a commit up to this number takes out of an inbox of which the lease was shown so many; `None` if the number
    /// is beyond what the lease was shown.
    fn handled(&self, to: u64, shown: usize) -> Option<usize> {
        let left = usize::try_from(self.inbox_to.checked_sub(to)?).ok()?;
        Some(shown.saturating_sub(left))
    }
}

/// A commit that was made, and the number of its lease.
type Made = (Option<usize>, RunCommit);

/// A store and its book.
pub(super) struct Driver {
    pub(super) ctx: Ctx,
    /// One for each engine.
    handles: Vec<Arc<dyn Store>>,
    pub(super) book: Book,
    pub(super) runs: Vec<NewRun>,
    pub(super) jobs: Vec<NewJob>,
    /// Every job that there is, as it was after the last step.
    pub(super) views: BTreeMap<JobId, Job>,
    /// The caps of groups that jobs of runs have set, as they were after the last step.
    pub(super) caps: Caps,
    pub(super) leases: Vec<Known>,
    /// The numbers of runs that were claimed, by when they were created.
    numbers: BTreeMap<u64, u64>,
    pub(super) taken: Vec<Lease>,
    pub(super) requests: u64,
    pub(super) feed: FeedCursor,
    last: Vec<Made>,
    said: u64,
}

fn kind(k: usize) -> Kind {
    Kind::new(["graph", "other"][k % 2]).unwrap()
}

fn engine(k: usize) -> WorkerId {
    worker_id(["engine", "second"][k % 2])
}

/// One of those that were named; the latest is 0.
pub(super) fn nth_latest<T>(all: &[T], k: usize) -> Option<&T> {
    all.iter().rev().nth(k)
}

impl Driver {
    /// With a handle for each engine, or with one for both: to open a store twice takes time.
    pub(super) async fn new(ctx: Ctx, two_handles: bool) -> Self {
        let handles = if two_handles { ctx.handles(2).await } else { vec![Arc::clone(&ctx.store)] };
        Self {
            ctx,
            handles,
            book: Book::default(),
            runs: Vec::new(),
            jobs: Vec::new(),
            views: BTreeMap::new(),
            caps: Caps::new(),
            leases: Vec::new(),
            numbers: BTreeMap::new(),
            taken: Vec::new(),
            requests: 0,
            feed: FeedCursor(0),
            last: Vec::new(),
            said: 0,
        }
    }

    pub(super) fn store(&self, by: usize) -> &Arc<dyn Store> {
        &self.handles[by % self.handles.len()]
    }

    pub(super) fn run(&self, k: usize) -> RunId {
        nth_latest(&self.runs, k).map_or_else(|| self.ctx.ids.next_run(), |run| run.id)
    }

    pub(super) fn words(&mut self, prefix: &str) -> String {
        self.said += 1;
        format!("{prefix} {}", self.said)
    }

    fn message(&mut self, plan: MessagePlan) -> RunMessage {
        let MessagePlan { run, interrupts, reopens, ended } = plan;
        let run = self.run(run);
        let length = self.book.runs.get(&run).map_or(0, |entry| entry.history.len() as u64);
        let expected_history_len = ended.map(|is_current| if is_current { length } else { length + 1 });
        RunMessage { run, body: self.words("message"), interrupts, reopens, expected_history_len }
    }

    fn made_job(&mut self, run: RunId, plan: &JobPlan) -> NewJob {
        let old = match plan.id {
            JobIdPlan::Fresh => None,
            JobIdPlan::Taken(k) | JobIdPlan::Again(k) => nth_latest(&self.jobs, k).cloned(),
        };
        if let (JobIdPlan::Again(_), Some(old)) = (plan.id, &old) {
            return old.clone();
        }
        let payload = Payload::new("text/plain", self.words("payload").into_bytes());
        let mut job = self.ctx.job_with(["q", "p"][plan.queue % 2], |spec| {
            spec.run = Some(run);
            spec.payload = payload;
            spec.group = plan.group.map(|k| GroupName::new(["acme", "beta"][k % 2]).unwrap());
            spec.group_cap = plan.group_cap.filter(|_| spec.group.is_some());
            (spec.attempts, spec.stalls) = (plan.attempts, plan.stalls);
            spec.keep_for = KeepFor { succeeded_ms: plan.keep_ms, failed_ms: plan.keep_ms };
        });
        job.due = plan.delay_ms.map_or(Due::Now, Due::DelayMs);
        job.id = old.map_or(job.id, |old| old.id);
        job
    }

    fn made_step(&mut self, run: RunId, plan: &StepPlan) -> RunStep {
        let jobs: Vec<NewJob> = plan.jobs.iter().map(|job| self.made_job(run, job)).collect();
        // The jobs that the step starts are the latest.
        let known: Vec<JobId> = self.jobs.iter().chain(&jobs).map(|job| job.id).collect();
        RunStep {
            history: (0..plan.entries).map(|_| Bytes::from(self.words("entry"))).collect(),
            jobs,
            cancel: plan.cancel.iter().filter_map(|k| nth_latest(&known, *k)).copied().collect(),
            messages: plan.messages.iter().map(|message| self.message(*message)).collect(),
            wake: plan.wake_ms.map(Due::DelayMs),
            state: plan.state,
            stuck: plan.stuck.then(|| self.words("stuck")),
            summary: self.words("summary"),
        }
    }

    /// The jobs of a step that was made are known from now on.
    fn note_jobs(&mut self, step: &RunStep) {
        for job in &step.jobs {
            self.jobs.retain(|old| old.id != job.id);
            self.jobs.push(job.clone());
        }
    }

    pub(super) async fn step(&mut self, op: &Op, seen: &mut Seen) -> Checked {
        match op {
            Op::Create { by, runs } => self.create(*by, runs, seen).await,
            Op::Claim { by, run, kinds, max, lease_ms } => {
                let kinds = kinds.iter().map(|k| kind(*k)).collect();
                let run = run.map(|k| self.run(k));
                let claim = RunClaim { engine: engine(*by), kinds, run, max: *max, lease_ms: *lease_ms };
                self.claim(*by, claim, seen).await
            }
            Op::Renew { by, renewals } => self.renew(*by, renewals, seen).await,
            Op::Commit { by, commits } => self.commit(*by, commits, seen).await,
            Op::CommitAgain { by } => {
                let made = self.last.clone();
                let should = self.should_commit(&made, seen).await;
                self.send_commits(*by, made, should).await
            }
            Op::Send { by, messages } => {
                let messages = messages.iter().map(|plan| self.message(*plan)).collect();
                self.send(*by, messages, seen).await
            }
            Op::Flood { .. } => self.flood(op, seen).await,
            Op::Remove(runs) => self.remove(runs, seen).await,
            Op::List { state, descending, limit } => self.list(*state, *descending, *limit).await,
            Op::Advance { ms } => {
                self.ctx.advance_ms(*ms).await;
                Ok(())
            }
            _ => self.work(op, seen).await,
        }
    }

    async fn flood(&mut self, op: &Op, seen: &mut Seen) -> Checked {
        let &Op::Flood { run: k, is_lease, count, bytes } = op else { return Ok(()) };
        let leased = nth_latest(&self.leases, k).filter(|_| is_lease).map(|known| known.lease.run);
        let run = leased.unwrap_or_else(|| self.run(k));
        let body = |n: usize| format!("{n} {}", "x".repeat(bytes));
        let message =
            |n| RunMessage { run, body: body(n), interrupts: false, reopens: false, expected_history_len: None };
        self.send(0, (0..count).map(message).collect(), seen).await?;
        if leased.is_none() {
            return Ok(());
        }
        let renewal = RenewalPlan { lease: Some(k), from: InboxPlan::AsClaimed, lease_ms: 300 };
        self.renew(0, &[renewal], seen).await
    }

    async fn create(&mut self, by: usize, plans: &[RunPlan], seen: &mut Seen) -> Checked {
        let now = self.ctx.now().await;
        let (mut runs, mut should) = (Vec::new(), Vec::new());
        for plan in plans {
            let run = self.made_run(plan);
            should.push(self.book.create(&run, now));
            if should.last() == Some(&Word::Ok) {
                self.note_jobs(&run.step);
                self.runs.retain(|old| old.id != run.id);
                self.runs.push(run.clone());
            }
            runs.push(run);
        }
        let answers = self.store(by).create_runs(runs).await.unwrap();
        seen.extend(should.iter().map(|should| format!("Create {should:?}")));
        let is = |answer| if answer == Ok(RunCreated::Existing) { Word::Existing } else { word(&answer) };
        equal("the creations", should, answers.into_iter().map(is).collect())
    }

    fn made_run(&mut self, plan: &RunPlan) -> NewRun {
        let old = match plan.id {
            IdPlan::Fresh => None,
            IdPlan::Again(k) | IdPlan::Taken(k) => nth_latest(&self.runs, k).cloned(),
        };
        if let (IdPlan::Again(_), Some(old)) = (plan.id, &old) {
            return NewRun { step: self.made_step(old.id, &plan.step), ..old.clone() };
        }
        let id = old.map_or_else(|| self.ctx.ids.next_run(), |old| old.id);
        let (name, input) = (self.words("name"), Bytes::from(self.words("input")));
        let step = self.made_step(id, &plan.step);
        NewRun { id, kind: kind(plan.kind), name, definition: "{}".into(), input, keep_ms: plan.keep_ms, step }
    }

    async fn claim(&mut self, by: usize, mut claim: RunClaim, seen: &mut Seen) -> Checked {
        let now = self.ctx.now().await;
        if self.book.waking(now) > 0 {
            // Which ones are woken first is the store's business.
            claim.max = 100;
        }
        let answer = self.store(by).claim_runs(claim.clone()).await;
        let may = match claim.run {
            Some(run) => match self.book.is_free(run, &claim.kinds, now) {
                None => {
                    seen.insert("Claim Missing".to_owned());
                    return equal("the claim", Word::Missing, word(&answer));
                }
                Some(free) => free.then_some((0, 0, run)).into_iter().collect(),
            },
            None => {
                let since = self.book.next_number();
                self.book.wake(since, now);
                self.book.claimable(&claim.kinds)
            }
        };
        let count = may.len().min(claim.max as usize);
        if count < may.len() {
            seen.insert("a claim that leaves some".to_owned());
        }
        let claimed = answer.map_err(|error| format!("the claim fails: {error}"))?;
        check_order(&may, count, &claimed.runs)?;
        for run in claimed.runs {
            if claim.run.is_some() {
                seen.insert("claimed by its id".to_owned());
            }
            self.claimed(&run, &claim, now, seen)?;
        }
        let next_at = self.book.next_look().filter(|_| claim.run.is_none());
        equal("when to claim again", next_at, claimed.next_at)
    }

    fn claimed(&mut self, run: &ClaimedRun, claim: &RunClaim, now: Timestamp, seen: &mut Seen) -> Checked {
        let id = run.lease.run;
        let entry = self.book.runs.get_mut(&id).ok_or("it is not in the book")?;
        let new = self.runs.iter().find(|new| new.id == id).ok_or("nobody created it")?;
        let woken = entry.wake_at.is_some_and(|at| at <= now);
        let is_end = |item: &RunItem| matches!(item, RunItem::JobEnded(_));
        for (what, so) in [
            ("claimed after its engine vanished", entry.inbox.is_empty() && !woken && claim.run.is_none()),
            ("claimed because it is time", woken),
            ("told of a job", entry.inbox.iter().any(|item| is_end(&item.item))),
            ("an inbox of more items than a claim hands out", entry.inbox.len() > INBOX_ITEMS_MAX),
            ("an inbox that is larger than a claim hands out", run.inbox.len() < entry.inbox.len().min(100)),
        ] {
            if so {
                seen.insert(what.to_owned());
            }
        }
        let expires_at = now.plus_ms(claim.lease_ms);
        equal("the end of the lease", expires_at, run.expires_at)?;
        equal("the name", (&new.kind, &new.name), (&run.kind, &run.name))?;
        equal("the definition", new.definition_hash(), run.definition_hash)?;
        equal("its creation", entry.created_at, run.created_at)?;
        equal("the length", entry.history.len() as u64, run.history_len)?;
        equal("woken", woken, run.woken)?;
        equal("its number", *entry.number.get_or_insert(run.number), run.number)?;
        equal("the run of this number", *self.numbers.entry(run.number).or_insert(entry.place), entry.place)?;
        super::compare::check_inbox(&mut entry.inbox, &run.inbox)?;
        let holder = Holder { lease: self.leases.len(), engine: claim.engine.clone(), expires_at };
        self.book.hold(id, holder, run.inbox.len());
        let &ClaimedRun { lease, history_len, inbox_to, .. } = run;
        self.leases.push(Known { lease, history_len, inbox_to, claimed_to: inbox_to });
        Ok(())
    }

    fn made_commit(&mut self, plan: &CommitPlan) -> Made {
        let lease = plan.lease.and_then(|k| self.leases.len().checked_sub(k + 1));
        let forged = RunLease { run: self.run(0), token: Token::from_bits(7) };
        let (token, known, claimed) =
            lease.map(|at| &self.leases[at]).map_or((forged, 0, 0), |it| (it.lease, it.history_len, it.inbox_to));
        let history_len = match plan.length {
            LengthPlan::AsKnown => known,
            LengthPlan::OneMore => known + 1,
            LengthPlan::OneLess => known.saturating_sub(1),
        };
        let inbox_to = match plan.inbox {
            InboxPlan::AsClaimed => claimed,
            InboxPlan::Nothing => 0,
            InboxPlan::Beyond => claimed + 1_000_000,
        };
        let step = self.made_step(token.run, &plan.step);
        (lease, RunCommit { lease: token, history_len, inbox_to, lease_ms: plan.keep_ms, step })
    }

    async fn commit(&mut self, by: usize, plans: &[CommitPlan], seen: &mut Seen) -> Checked {
        let (mut made, mut should) = (Vec::new(), Vec::new());
        for plan in plans {
            let next = [self.made_commit(plan)];
            should.extend(self.should_commit(&next, seen).await);
            made.extend(next);
        }
        self.send_commits(by, made, should).await
    }

    /// What the commits have to be answered, one after the other.
    async fn should_commit(&mut self, made: &[Made], seen: &mut Seen) -> Vec<(Word, u64)> {
        let now = self.ctx.now().await;
        let mut all = Vec::new();
        for (lease, commit) in made {
            let lease = *lease;
            let shown = lease.and_then(|at| self.book.shown.get(&at)).copied().unwrap_or_default();
            let handled = match commit.inbox_to {
                0 => Some(0),
                to => lease.and_then(|at| self.leases[at].handled(to, shown)),
            };
            let (should, length) = self.book.commit(&CommitNote { lease, handled, commit }, now);
            seen.insert(format!("Commit {should:?}"));
            if should == Word::Ok {
                if commit.step.jobs.iter().any(|job| commit.step.cancel.contains(&job.id)) {
                    seen.insert("cancelled by the step that started it".to_owned());
                }
                self.note_jobs(&commit.step);
                if let Some(known) = lease.and_then(|at| self.leases.get_mut(at)) {
                    known.history_len = length;
                    if handled > Some(0) && commit.inbox_to > known.claimed_to {
                        seen.insert("committed with items of a renewal".to_owned());
                    }
                    if handled < Some(shown) && known.inbox_to > known.claimed_to {
                        seen.insert("committed without the last items of a renewal".to_owned());
                    }
                }
            }
            all.push((should, length));
        }
        all
    }

    async fn send_commits(&mut self, by: usize, made: Vec<Made>, should: Vec<(Word, u64)>) -> Checked {
        if made.is_empty() {
            return Ok(());
        }
        let commits = made.iter().map(|(_, commit)| commit.clone()).collect();
        let answers = self.store(by).commit_runs(commits).await.unwrap();
        let is = |answer: StoreResult<windlass_core::store::RunCommitted>| match answer {
            Ok(made) if made.repeated => (Word::Repeated, made.history_len),
            Ok(made) => (Word::Ok, made.history_len),
            Err(error) => (Word::of(&error), 0),
        };
        self.last = made;
        equal("the commits", should, answers.into_iter().map(is).collect())
    }

    async fn send(&mut self, by: usize, messages: Vec<RunMessage>, seen: &mut Seen) -> Checked {
        let answers = self.store(by).send_to_runs(messages.clone()).await.unwrap();
        let now = self.ctx.now().await;
        for (message, answer) in messages.iter().zip(answers) {
            let before = self.book.runs.get(&message.run).map(|entry| (entry.state, entry.stuck.is_some()));
            let should = self.book.send(message, now);
            seen.insert(format!("Send {should:?}"));
            match before {
                Some((RunState::Running, true)) if should == Word::Ok => seen.insert("opened when it was stuck".into()),
                Some((state, _)) if should == Word::Ok && state.is_terminal() => {
                    seen.insert("opened after its end".into())
                }
                _ => false,
            };
            equal("the message", should, word(&answer))?;
        }
        Ok(())
    }

    async fn remove(&mut self, runs: &[usize], seen: &mut Seen) -> Checked {
        let runs: Vec<RunId> = runs.iter().map(|k| self.run(*k)).collect();
        let answers = self.ctx.store.remove_runs(runs.clone()).await.unwrap();
        for (run, answer) in runs.into_iter().zip(answers) {
            let stuck = self.book.runs.get(&run).is_some_and(|entry| entry.stuck.is_some());
            let should = self.book.remove(run);
            seen.insert(format!("Remove {should:?}"));
            if stuck && should == Word::Ok {
                seen.insert("removed when it was stuck".to_owned());
            }
            equal("the removal", should, word(&answer))?;
        }
        Ok(())
    }

    async fn list(&self, state: Option<RunState>, descending: bool, limit: u32) -> Checked {
        let order = if descending { ListOrder::Descending } else { ListOrder::Ascending };
        let mut should = self.book.list(state);
        if descending {
            should.reverse();
        }
        let (mut is, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.ctx.store.list_runs(RunList { state, order, cursor, limit }).await.unwrap();
            is.extend(page.runs.iter().map(|run| run.id));
            cursor = page.cursor;
            if cursor.is_none() || is.len() > should.len() {
                return equal("the list", should, is);
            }
        }
    }
}

/// The runs that may be claimed come in their order; those that wait since the same moment in any.
fn check_order(may: &[(usize, u64, RunId)], count: usize, claimed: &[ClaimedRun]) -> Checked {
    let ids: Vec<RunId> = claimed.iter().map(|run| run.lease.run).collect();
    let places: Vec<(usize, u64)> = ids
        .iter()
        .filter_map(|id| may.iter().find(|(_, _, may)| may == id))
        .map(|(kind, since, _)| (*kind, *since))
        .collect();
    let should: Vec<(usize, u64)> = may.iter().take(count).map(|(kind, since, _)| (*kind, *since)).collect();
    let twice = ids.len() != ids.iter().collect::<BTreeSet<_>>().len();
    if ids.len() != count || twice || places != should {
        return Err(format!("{ids:?} were claimed, the first {count} of {may:?} should be"));
    }
    Ok(())
}

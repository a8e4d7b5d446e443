//! Does the steps to a store, tells the book, and compares the answers.

use super::Seen;
use super::book::{Book, CommitNote};
use super::caps::Caps;
use super::entry::{Entry, Holder, Word};
use super::op::{CommitPlan, FilterPlan, InboxPlan, Op, RenewalPlan, RunPlan};
use crate::ctx::{Ctx, worker_id};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::Result as StoreResult;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{Job, Lease, NewJob, State};
use windlass_core::name::{Kind, WorkerId};
use windlass_core::store::{
    ClaimedRun, FeedCursor, INBOX_ITEMS_MAX, ListOrder, NewRun, RunClaim, RunCommit, RunCreated, RunItem, RunLabel,
    RunLease, RunList, RunMessage, RunState, RunStep, Store,
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
    pub(super) history_len: u64,
    /// Numbers of the items that the lease was shown.
    pub(super) numbers: Vec<u64>,
    pub(super) state: RunState,
    /// The number behind the last item that the lease was shown.
    pub(super) inbox_to: u64,
    /// The number behind the last item that the claim returned.
    claimed_to: u64,
}

/// A commit that was made, and the number of its lease.
pub(super) type Made = (Option<usize>, RunCommit);

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
    pub(super) said: u64,
}

pub(super) fn kind(k: usize) -> Kind {
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

    fn note_run(&mut self, run: &NewRun) {
        self.note_jobs(&run.step);
        self.runs.retain(|old| old.id != run.id);
        self.runs.push(run.clone());
    }

    fn note_children(&mut self, seen: &mut Seen) {
        for child in std::mem::take(&mut self.book.children) {
            seen.insert("created by a step".to_owned());
            self.note_run(&child);
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
            Op::Claim { by, run, kinds, max, lease_ms, history_bytes_max } => {
                let kinds = kinds.iter().map(|k| kind(*k)).collect();
                let run = run.map(|k| self.run(k));
                let claim = RunClaim::new(engine(*by), kinds);
                let history_bytes_max = *history_bytes_max;
                let claim = RunClaim { run, max: *max, lease_ms: *lease_ms, history_bytes_max, ..claim };
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
            Op::List { .. } => self.list(op, seen).await,
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
        let message = |n| RunMessage::new(run, body(n));
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
            if matches!(should.last(), Some(Word::Ok | Word::Restarted)) {
                self.note_run(&run);
            }
            self.note_children(seen);
            runs.push(run);
        }
        let answers = self.store(by).create_runs(runs).await.unwrap();
        seen.extend(should.iter().map(|should| format!("Create {should:?}")));
        let shown = |word| if word == Word::Signalled { Word::Existing } else { word };
        let should: Vec<Word> = should.into_iter().map(shown).collect();
        let is = |answer| match answer {
            Ok(RunCreated::Existing) => Word::Existing,
            Ok(RunCreated::Restarted) => Word::Restarted,
            answer => word(&answer),
        };
        equal("the creations", should, answers.into_iter().map(is).collect())
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
            ("told of a run", entry.inbox.iter().any(|item| matches!(item.item, RunItem::RunEnded(_)))),
            ("told of a refused child", entry.inbox.iter().any(|i| matches!(i.item, RunItem::ChildRefused { .. }))),
            ("claimed when it was stuck", entry.stuck.is_some()),
            ("claimed when it was terminated", entry.state == RunState::Terminated),
            ("claimed with a hole in its inbox", entry.inbox.windows(2).any(|two| two[0].number + 1 < two[1].number)),
            ("claimed after two leases ran out", entry.stall_count + u32::from(entry.held.is_some()) > 1),
            ("claimed with its history", run.input.is_some() && !run.history.is_empty()),
            ("claimed with a part of its history", run.input.is_some() && run.segment_from > 0),
            ("an inbox of more items than a claim hands out", entry.inbox.len() > INBOX_ITEMS_MAX),
            ("an inbox that is larger than a claim hands out", run.inbox.len() < entry.inbox.len().min(100)),
        ] {
            if so {
                seen.insert(what.to_owned());
            }
        }
        let expires_at = now.plus_ms(claim.lease_ms);
        equal("the end of the lease", expires_at, run.expires_at)?;
        equal("the name", (&entry.kind, &new.name), (&run.kind, &run.name))?;
        equal("the definition", new.definition_hash(), run.definition_hash)?;
        equal("its creation", entry.created_at, run.created_at)?;
        equal("the length", entry.history.len() as u64, run.history_len)?;
        equal("woken", woken, run.woken)?;
        equal("its number", *entry.number.get_or_insert(run.number), run.number)?;
        equal("the run of this number", *self.numbers.entry(run.number).or_insert(entry.place), entry.place)?;
        super::compare::check_claimed(entry, claim, run)?;
        let shown = super::compare::check_inbox(&mut entry.inbox, &run.inbox)?;
        equal("the items that were passed", shown as u64, run.inbox_taken)?;
        let next = if shown == entry.inbox.len() { entry.next } else { entry.inbox[shown - 1].number + 1 };
        equal("the number behind the last item", next, run.inbox_to)?;
        let holder = Holder { lease: self.leases.len(), engine: claim.engine.clone(), expires_at };
        self.book.hold(id, holder);
        let &ClaimedRun { lease, history_len, inbox_to, state, .. } = run;
        let numbers = run.inbox.iter().map(|item| item.number).collect();
        self.leases.push(Known { lease, history_len, numbers, state, inbox_to, claimed_to: inbox_to });
        Ok(())
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
            let before = self.book.runs.get(&commit.lease.run).map_or(0, |entry| entry.before(commit.inbox_to));
            let (should, length) = self.book.commit(&CommitNote { lease, commit }, now);
            seen.insert(match should {
                Word::Unread(_) => "Commit Unread".to_owned(),
                should => format!("Commit {should:?}"),
            });
            if should == Word::Ok {
                self.note_commit(lease, commit, (before, length), seen);
            }
            all.push((should, length));
        }
        all
    }

    /// Notes a commit that was made, with the items of its prefix and the length of the history afterwards.
    fn note_commit(&mut self, lease: Option<usize>, commit: &RunCommit, made: (usize, u64), seen: &mut Seen) {
        let (prefix, length) = made;
        self.note_jobs(&commit.step);
        self.note_children(seen);
        let Some(known) = lease.and_then(|at| self.leases.get_mut(at)) else { return };
        known.history_len = length;
        let step = &commit.step;
        let is_open = |job: &JobId| self.views.get(job).is_some_and(|job| !job.state.is_terminal());
        let unclaimed = |job: &JobId| self.book.jobs.get(job).is_some_and(|note| note.state == Some(State::Cancelled));
        let cancelled_unclaimed = step.cancel_unclaimed.iter().any(|job| is_open(job) && unclaimed(job));
        for (what, so) in [
            ("cancelled by the step that started it", step.jobs.iter().any(|job| step.cancel.contains(&job.id))),
            ("cancelled because no worker has claimed it", cancelled_unclaimed),
            ("committed with items of a renewal", prefix > 0 && commit.inbox_to > known.claimed_to),
            (
                "committed without the last items of a renewal",
                commit.inbox_to < known.inbox_to && known.inbox_to > known.claimed_to,
            ),
            ("committed with single items", !commit.inbox_taken.is_empty()),
            ("committed with all messages read", commit.requires_read_messages && prefix > 0),
            ("a segment began", step.segment.is_some()),
            ("a terminated run was cleaned up", step.state == RunState::Terminated),
            ("ended with a result", step.result.is_some()),
        ] {
            if so {
                seen.insert(what.to_owned());
            }
        }
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
            let entry = self.book.runs.get(&message.run);
            let before = entry.filter(|_| message.reopens).map(|entry| (entry.state, entry.stuck.is_some()));
            let known = entry.map_or(0, |entry| entry.next);
            let (was_stuck, was_held) =
                entry.map_or((false, false), |entry| (entry.stuck.is_some(), entry.held.is_some()));
            let should = self.book.send(message, now);
            let next = self.book.runs.get(&message.run).map_or(0, |entry| entry.next);
            for (what, so) in [
                ("a repeated message", next == known),
                ("a message to a stuck run", was_stuck && !message.reopens && !message.terminates),
                ("opened because it was stuck", message.only_if_stuck),
                ("terminated when it was stuck", was_stuck && message.terminates),
                ("terminated when it was held", was_held && message.terminates),
            ] {
                if so && should == Word::Ok {
                    seen.insert(what.to_owned());
                }
            }
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

    async fn list(&self, op: &Op, seen: &mut Seen) -> Checked {
        let &Op::List { state, filter, descending, limit } = op else { return Ok(()) };
        let order = if descending { ListOrder::Descending } else { ListOrder::Ascending };
        let list = RunList { state, order, ..RunList::new(limit) };
        let acme = |value: &str| RunLabel { name: "tenant".to_owned(), value: value.to_owned() };
        let list = match filter {
            FilterPlan::None => list,
            FilterPlan::Kind(k) => RunList { kind: Some(kind(k).to_string()), ..list },
            FilterPlan::Stuck(stuck) => RunList { stuck: Some(stuck), ..list },
            FilterPlan::Parent(k) => RunList { parent: Some(self.run(k)), ..list },
            FilterPlan::Label(k) => RunList { label: Some(acme(["acme", "beta", "none"][k % 3])), ..list },
        };
        let label = list.label.clone();
        let wanted = |entry: &Entry| {
            state.is_none_or(|state| entry.state == state)
                && list.kind.as_deref().is_none_or(|kind| entry.kind.as_str() == kind)
                && list.stuck.is_none_or(|stuck| entry.stuck.is_some() == stuck)
                && list.parent.is_none_or(|parent| entry.parent == Some(parent))
                && label.as_ref().is_none_or(|label| entry.labels.get(&label.name) == Some(&label.value))
        };
        let mut should = self.book.list(wanted);
        if descending {
            should.reverse();
        }
        if !should.is_empty() {
            seen.insert(format!("a list by {}", format!("{filter:?}").split('(').next().unwrap_or_default()));
        }
        let (mut is, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.ctx.store.list_runs(RunList { cursor, ..list.clone() }).await.unwrap();
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

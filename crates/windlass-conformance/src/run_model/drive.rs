//! Does the steps to a store, tells the book, and compares.

use super::Seen;
use super::book::{Book, CommitNote, Entry, Holder, Item, Word};
use super::op::{CommitPlan, IdPlan, InboxPlan, LengthPlan, MessagePlan, Op, StepPlan};
use crate::ctx::{Ctx, complete, fail, worker_id};
use bytes::Bytes;
use windlass_core::Result as StoreResult;
use windlass_core::id::{JobId, RunId, Token};
use windlass_core::job::{Due, Lease, NewJob, Retry, State};
use windlass_core::name::Kind;
use windlass_core::store::{
    ChangeOp, ClaimedRun, ListOrder, NewRun, Run, RunClaim, RunCommit, RunCreated, RunItem, RunLease, RunList,
    RunMessage, RunRead, RunState, RunStep, RunView,
};
use windlass_core::time::Timestamp;

type Checked = Result<(), String>;

#[expect(clippy::needless_pass_by_value, reason = "what is compared is made for it")]
fn equal<T: PartialEq + std::fmt::Debug>(what: &str, should: T, is: T) -> Checked {
    if should == is { Ok(()) } else { Err(format!("{what}: should be {should:?}, is {is:?}")) }
}

fn word<T>(answer: &StoreResult<T>) -> Word {
    answer.as_ref().map_or_else(Word::of, |_| Word::Ok)
}

/// A lease on a run, and what is known of the run under it.
struct Known {
    lease: RunLease,
    history_len: u64,
    inbox_to: u64,
}

/// A store and its book.
pub(super) struct Driver {
    ctx: Ctx,
    book: Book,
    runs: Vec<NewRun>,
    jobs: Vec<JobId>,
    leases: Vec<Known>,
    taken: Vec<Lease>,
    last: Option<(Option<usize>, RunCommit)>,
    said: u64,
}

fn kind(k: usize) -> Kind {
    Kind::new(["graph", "other"][k % 2]).unwrap()
}

fn engine() -> windlass_core::name::WorkerId {
    worker_id("engine")
}

/// One of those that were named; the latest is 0.
fn nth_latest<T>(all: &[T], k: usize) -> Option<&T> {
    all.iter().rev().nth(k)
}

impl Driver {
    pub(super) fn new(ctx: Ctx) -> Self {
        let (runs, jobs, leases, taken) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { ctx, book: Book::default(), runs, jobs, leases, taken, last: None, said: 0 }
    }

    fn run(&self, k: usize) -> RunId {
        nth_latest(&self.runs, k).map_or_else(|| self.ctx.ids.next_run(), |run| run.id)
    }

    fn words(&mut self, prefix: &str) -> String {
        self.said += 1;
        format!("{prefix} {}", self.said)
    }

    fn message(&mut self, plan: MessagePlan) -> RunMessage {
        let MessagePlan { run, interrupts, reopens, ended } = plan;
        let run = self.run(run);
        let length = self.book.runs.get(&run).map_or(0, |entry| entry.history.len() as u64);
        let ended_with = ended.map(|is_current| if is_current { length } else { length + 1 });
        RunMessage { run, body: self.words("message"), interrupts, reopens, ended_with }
    }

    fn made_step(&mut self, run: RunId, plan: &StepPlan) -> RunStep {
        let job = |ctx: &Ctx| -> NewJob { ctx.job_with("q", |spec| spec.run = Some(run)) };
        let jobs: Vec<NewJob> = (0..plan.jobs).map(|_| job(&self.ctx)).collect();
        // The jobs that the step starts are the latest.
        let known: Vec<JobId> = self.jobs.iter().copied().chain(jobs.iter().map(|job| job.id)).collect();
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

    pub(super) async fn step(&mut self, op: &Op, seen: &mut Seen) -> Checked {
        let now = self.ctx.now().await;
        match op {
            Op::Create { id, kind, step } => self.create(*id, *kind, step, seen).await,
            Op::Claim { run, kinds, max, lease_ms } => {
                let kinds = kinds.iter().map(|k| kind(*k)).collect();
                let run = run.map(|k| self.run(k));
                self.claim(RunClaim { engine: engine(), kinds, run, max: *max, lease_ms: *lease_ms }, seen).await
            }
            Op::Commit(plan) => {
                let (lease, commit) = self.made_commit(plan);
                self.commit(lease, commit, seen).await
            }
            Op::CommitAgain => match self.last.clone() {
                Some((lease, commit)) => self.commit(lease, commit, seen).await,
                None => Ok(()),
            },
            Op::Send(plans) => self.send(plans, seen).await,
            Op::Remove(runs) => {
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
            Op::List { state, descending, limit } => self.list(*state, *descending, *limit).await,
            Op::TakeJob | Op::EndJob { .. } | Op::CancelJob(_) | Op::RemoveJob(_) => self.job(op, now, seen).await,
            Op::Advance { ms } => {
                self.ctx.advance_ms(*ms).await;
                Ok(())
            }
        }
    }

    async fn create(&mut self, id: IdPlan, k: usize, plan: &StepPlan, seen: &mut Seen) -> Checked {
        let fresh = self.ctx.ids.next_run();
        let old = match id {
            IdPlan::Fresh => None,
            IdPlan::Again(k) | IdPlan::Taken(k) => nth_latest(&self.runs, k).cloned(),
        };
        let run = match (id, old) {
            (IdPlan::Again(_), Some(old)) => NewRun { step: self.made_step(old.id, plan), ..old },
            (_, old) => {
                let id = old.map_or(fresh, |old| old.id);
                let (name, input) = (self.words("name"), Bytes::from(self.words("input")));
                let step = self.made_step(id, plan);
                NewRun { id, kind: kind(k), name, definition: "{}".into(), input, keep_ms: None, step }
            }
        };
        let answer = self.ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0);
        let should = self.book.create(&run, self.ctx.now().await);
        seen.insert(format!("Create {should:?}"));
        let is = if answer == Ok(RunCreated::Existing) { Word::Existing } else { word(&answer) };
        equal("the creation", should, is)?;
        if should == Word::Ok {
            self.jobs.extend(run.step.jobs.iter().map(|job| job.id));
            self.runs.retain(|old| old.id != run.id);
            self.runs.push(run);
        }
        Ok(())
    }

    async fn claim(&mut self, mut claim: RunClaim, seen: &mut Seen) -> Checked {
        let now = self.ctx.now().await;
        if self.book.is_waking(now) {
            // Which ones are woken first is the store's business.
            claim.max = 100;
        }
        let answer = self.ctx.store.claim_runs(claim.clone()).await;
        let (may, count) = match claim.run {
            Some(run) => match self.book.is_free(run, &claim.kinds, now) {
                None => {
                    seen.insert("Claim Missing".to_owned());
                    return equal("the claim", Word::Missing, word(&answer));
                }
                Some(free) => (vec![run], usize::from(free)),
            },
            None => {
                let may = self.book.claimable(&claim.kinds, now);
                let count = may.len().min(claim.max as usize);
                if count < may.len() {
                    seen.insert("a claim that leaves some".to_owned());
                }
                (may, count)
            }
        };
        let claimed = answer.map_err(|error| format!("the claim fails: {error}"))?.runs;
        let ids: Vec<RunId> = claimed.iter().map(|run| run.lease.run).collect();
        if ids.len() != count || ids.iter().any(|id| !may.contains(id)) {
            return Err(format!("{ids:?} were claimed, {count} of {may:?} should be"));
        }
        for run in claimed {
            if claim.run.is_some() {
                seen.insert("claimed by its id".to_owned());
            }
            self.claimed(run, now.plus_ms(claim.lease_ms), now, seen)?;
        }
        Ok(())
    }

    fn claimed(&mut self, run: ClaimedRun, expires_at: Timestamp, now: Timestamp, seen: &mut Seen) -> Checked {
        let id = run.lease.run;
        let entry = self.book.runs.get(&id).ok_or("it is not in the book")?;
        let new = self.runs.iter().find(|new| new.id == id).ok_or("nobody created it")?;
        let woken = entry.wake_at.is_some_and(|at| at <= now);
        for (what, so) in [
            ("claimed after its engine vanished", entry.inbox.is_empty() && !woken),
            ("claimed because it is time", woken),
            ("told of a job", entry.inbox.iter().any(|item| matches!(item, Item::Job(..)))),
        ] {
            if so {
                seen.insert(what.to_owned());
            }
        }
        equal("the end of the lease", expires_at, run.expires_at)?;
        equal("the name", (&new.kind, &new.name), (&run.kind, &run.name))?;
        equal("the definition", new.definition_hash(), run.definition_hash)?;
        equal("its creation", entry.created_at, run.created_at)?;
        equal("the length", entry.history.len() as u64, run.history_len)?;
        equal("the inbox", entry.inbox.clone(), run.inbox.into_iter().map(item).collect())?;
        equal("woken", woken, run.woken)?;
        self.book.hold(id, Holder { lease: self.leases.len(), expires_at });
        self.leases.push(Known { lease: run.lease, history_len: run.history_len, inbox_to: run.inbox_to });
        Ok(())
    }

    fn made_commit(&mut self, plan: &CommitPlan) -> (Option<usize>, RunCommit) {
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
            InboxPlan::Beyond => claimed + 10_000,
        };
        let step = self.made_step(token.run, &plan.step);
        (lease, RunCommit { lease: token, history_len, inbox_to, keep_ms: plan.keep_ms, step })
    }

    async fn commit(&mut self, lease: Option<usize>, commit: RunCommit, seen: &mut Seen) -> Checked {
        let answer = self.ctx.store.commit_runs(vec![commit.clone()]).await.unwrap().remove(0);
        let claimed = lease.map_or(0, |at| self.leases[at].inbox_to);
        let handled = match commit.inbox_to {
            0 => Some(0),
            to if to <= claimed => lease.and_then(|at| self.book.shown.get(&at)).copied(),
            _ => None,
        };
        let note = CommitNote { lease, handled, commit: &commit };
        let (should, length) = self.book.commit(&note, self.ctx.now().await);
        seen.insert(format!("Commit {should:?}"));
        let is = match &answer {
            Ok(made) if made.repeated => (Word::Repeated, made.history_len),
            Ok(made) => (Word::Ok, made.history_len),
            Err(error) => (Word::of(error), 0),
        };
        equal("the commit", (should, length), is)?;
        if should == Word::Ok {
            if commit.step.jobs.iter().any(|job| commit.step.cancel.contains(&job.id)) {
                seen.insert("cancelled by the step that started it".to_owned());
            }
            self.jobs.extend(commit.step.jobs.iter().map(|job| job.id));
            lease.iter().for_each(|at| self.leases[*at].history_len = length);
        }
        self.last = Some((lease, commit));
        Ok(())
    }

    async fn send(&mut self, plans: &[MessagePlan], seen: &mut Seen) -> Checked {
        let messages: Vec<RunMessage> = plans.iter().map(|plan| self.message(*plan)).collect();
        let answers = self.ctx.store.send_to_runs(messages.clone()).await.unwrap();
        for (message, answer) in messages.iter().zip(answers) {
            let before = self.book.runs.get(&message.run).map(|entry| (entry.state, entry.stuck.is_some()));
            let should = self.book.send(message, self.ctx.now().await);
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

    async fn job(&mut self, op: &Op, now: Timestamp, seen: &mut Seen) -> Checked {
        let (job, answer) = match *op {
            Op::TakeJob => {
                let waiting = self.book.jobs.values().filter(|note| note.state == Some(State::Ready)).count();
                let claimed = self.ctx.claim("w", "q", 1).await;
                equal("jobs to be claimed", waiting.min(1), claimed.len())?;
                for job in claimed {
                    if let Some(note) = self.book.jobs.get_mut(&job.lease.job) {
                        note.state = Some(State::Active);
                    }
                    self.taken.push(job.lease);
                }
                return Ok(());
            }
            Op::EndJob { taken, fails } => {
                let Some(at) = self.taken.len().checked_sub(taken + 1) else { return Ok(()) };
                let lease = self.taken.remove(at);
                let kind = if fails { fail("no", Retry::Never) } else { complete() };
                (lease.job, self.ctx.report("w", lease, kind).await.map(drop))
            }
            Op::CancelJob(k) | Op::RemoveJob(k) => {
                let Some(&job) = nth_latest(&self.jobs, k) else { return Ok(()) };
                let change = if matches!(op, Op::CancelJob(_)) { ChangeOp::Cancel } else { ChangeOp::Remove };
                (job, self.ctx.change(job, change).await.map(drop))
            }
            _ => return Ok(()),
        };
        // What becomes of a job is the machine's business; what its run hears of it is ours.
        let open = |state: Option<State>| matches!(state, Some(State::Ready | State::Active));
        let before = self.book.jobs.get(&job).map(|note| note.state);
        let after = self.ctx.get(job).await.map(|job| job.state);
        seen.insert(format!("a job {}", if answer.is_ok() { "changed" } else { "refused" }));
        match before {
            Some(before) if open(before) && !open(after) => self.book.job_ended(job, after, now),
            Some(_) => drop(self.book.jobs.get_mut(&job).map(|note| note.state = after)),
            None => {}
        }
        Ok(())
    }

    /// Compares all that can be seen.
    pub(super) async fn compare(&self) -> Checked {
        let read =
            |run: &NewRun| RunRead { run: run.id, definition: true, input: true, history_from: 0, history_max: 999 };
        let views = self.ctx.store.read_runs(self.runs.iter().map(read).collect()).await.unwrap();
        for (new, view) in self.runs.iter().zip(views) {
            equal("the run", self.book.runs.get(&new.id).map(|entry| shown(new, entry)), view)?;
        }
        let list = RunList { state: None, order: ListOrder::Ascending, cursor: None, limit: 1_000 };
        let listed: Vec<Run> = self.ctx.store.list_runs(list).await.unwrap().runs;
        let run = |id: RunId| {
            let new = self.runs.iter().find(|new| new.id == id)?;
            Some(shown(new, self.book.runs.get(&id)?).run)
        };
        equal("the list", self.book.list(None).into_iter().filter_map(run).collect(), listed)?;
        for (job, note) in &self.book.jobs {
            equal("the job", note.state, self.ctx.get(*job).await.map(|job| job.state))?;
        }
        Ok(())
    }
}

fn item(item: RunItem) -> Item {
    match item {
        RunItem::JobEnded(end) => Item::Job(end.job, end.state),
        RunItem::Message { at, body } => Item::Message(at, body),
    }
}

/// What has to be seen of a run.
fn shown(new: &NewRun, entry: &Entry) -> RunView {
    let run = Run {
        id: new.id,
        kind: new.kind.clone(),
        name: new.name.clone(),
        state: entry.state,
        stuck: entry.stuck.clone(),
        summary: entry.summary.clone(),
        history_len: entry.history.len() as u64,
        inbox_len: entry.inbox.len() as u64,
        engine: entry.held.map(|_| engine()),
        wake_at: entry.wake_at,
        created_at: entry.created_at,
        changed_at: entry.changed_at,
        finished_at: entry.finished_at,
        damaged: None,
    };
    let (definition, input) = (Some(new.definition.clone()), Some(new.input.clone()));
    RunView { run, definition, input, history: entry.history.clone() }
}

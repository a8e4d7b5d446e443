//! Runs: the store's part, which is to keep, to fence and to tell. The layout is in `lua/lib/runs.lua`.

mod steps;
pub(super) mod text;

use super::RedisStore;
use super::enqueue::{Lanes, PIECE_BYTES};
use crate::reply::{Items, maybe_time, number, odd, sound, time};
use crate::scripts::AT;
use async_trait::async_trait;
use bytes::Bytes;
use steps::{Told, message_flags, refused};
use text::{Record, digits, item, state, state_letter, view};
use windlass_core::engine::Cursor;
use windlass_core::id::{RunId, Token};
use windlass_core::job::State;
use windlass_core::store::{
    ClaimedRun, ListOrder, NewRun, RUN_CHANGED, RUN_NOT_ENDED, RunClaim, RunCommit, RunCommitted, RunCreated, RunItem,
    RunLease, RunList, RunMessage, RunPage, RunRead, RunRenewal, RunRenewed, RunStep, RunStore, RunView, RunsClaimed,
    check_batch,
};
use windlass_core::{Error, Result};

/// Runs or commits of one script: a server does nothing else meanwhile.
const PIECE: usize = 500;
/// Arguments of one script, one large step excepted.
const PIECE_ARGS: usize = 10_000;
/// Renewals of one script, each of which may return many items.
const PIECE_RENEWALS: usize = 100;
/// Jobs that one script cancels, one large step excepted.
const PIECE_CANCELS: usize = 500;
/// What one script reads, by the weights of [`weight`].
const READ_WEIGHT: usize = 512;
/// Runs of a page when one is looked for.
const LOOK: u32 = 1_000;
/// Beyond this the scripts do not count exactly, and no history is so long.
const ENTRY_MAX: u64 = 1 << 46;

impl RedisStore {
    /// Sends runs or commits in as few calls as can be; the script's word for each, or why it was not sent. `tell` makes the
    /// arguments of one.
    async fn send_steps<T>(
        &self,
        script: usize,
        all: &[T],
        step: fn(&T) -> &RunStep,
        tell: fn(&T, &mut Lanes) -> Result<Told>,
    ) -> Result<Vec<Result<String>>> {
        let mut answers = Vec::with_capacity(all.len());
        let (mut at, mut went, mut failed) = (0, false, None);
        while at < all.len() {
            let (mut lanes, mut told, mut checks) = (Lanes::default(), Vec::new(), Vec::new());
            let (mut args, mut bytes, mut cancels) = (0, 0, 0);
            // At least one goes, however large.
            while at < all.len() && checks.len() < PIECE && args < PIECE_ARGS && bytes < PIECE_BYTES {
                cancels += step(&all[at]).cancel.len();
                if cancels > PIECE_CANCELS && !checks.is_empty() {
                    break;
                }
                let one = tell(&all[at], &mut lanes);
                if let Ok(one) = one {
                    args += one.len();
                    bytes += one.bytes;
                    told.push(one);
                    checks.push(Ok(()));
                } else {
                    checks.push(one.map(drop));
                }
                at += 1;
            }
            match self.send_piece(script, &lanes, &told).await {
                Ok(mut words) => {
                    went = went || !told.is_empty();
                    answers.extend(checks.into_iter().map(|check| check.and_then(|()| words.text())));
                }
                Err(error) => {
                    answers.extend(checks.into_iter().map(|check| check.and_then(|()| Err(error.clone()))));
                    failed = failed.or(Some(error));
                }
            }
        }
        // When one piece went well, its callers must know.
        failed.filter(|_| !went).map_or(Ok(answers), Err)
    }

    async fn send_piece(&self, script: usize, lanes: &Lanes, told: &[Told]) -> Result<Items> {
        if told.is_empty() {
            self.caller.signals.check_open()?;
            return Ok(Items::none());
        }
        let mut call = self.caller.script(script);
        lanes.add(&mut call);
        call.arg_fmt(told.len());
        for one in told {
            one.add_to(&mut call);
        }
        Items::of(self.caller.run_durably(call).await?)
    }

    /// The runs of a claim: id, record, lease and items of each.
    fn claimed_runs(items: &mut Items, token: Token) -> Vec<ClaimedRun> {
        let mut runs = Vec::with_capacity(items.left() / 4);
        while items.left() > 0 {
            match claimed_run(&mut items.take(4), token) {
                Ok(run) => runs.push(run),
                // It must not keep the others from their turn.
                Err(error) => tracing::warn!(%error, "a claimed run cannot be read"),
            }
        }
        runs
    }

    async fn renew_some(&self, renewals: &[&RunRenewal]) -> Result<Vec<Result<RunRenewed>>> {
        let mut call = self.caller.script(AT.renew_runs);
        for RunRenewal { lease, lease_ms, inbox_from } in renewals {
            call.arg_fmt(lease.run).arg_fmt(lease.token).arg_fmt(lease_ms).arg_fmt((*inbox_from).min(ENTRY_MAX));
        }
        let mut items = self.caller.items(call).await?;
        renewals
            .iter()
            .map(|renewal| {
                let (word, found) = (items.text()?, items.list()?);
                Ok(renewed(&word, found, renewal.lease.run))
            })
            .collect()
    }

    async fn read_some(&self, reads: &[RunRead]) -> Result<Vec<Option<RunView>>> {
        let mut call = self.caller.script(AT.read_runs);
        for read in reads {
            let parts = match (read.definition, read.input) {
                (true, true) => "di",
                (true, false) => "d",
                (false, true) => "i",
                (false, false) => "-",
            };
            call.arg_fmt(read.run).arg(parts).arg_fmt(read.history_from.min(ENTRY_MAX)).arg_fmt(read.history_max);
        }
        let mut items = self.caller.items(call).await?;
        reads.iter().map(|read| run_view(read, &mut items)).collect()
    }

    /// One page: place, id and run of each.
    async fn runs_after(&self, request: &RunList, after: Option<u64>, limit: u32) -> Result<Vec<Listed>> {
        let mut call = self.caller.script(AT.list_runs);
        call.arg(request.state.map_or("*", state_letter));
        call.arg(if request.order == ListOrder::Descending { "1" } else { "0" });
        call.arg(after.map_or_else(String::new, digits)).arg_fmt(limit);
        let mut items = self.caller.items(call).await?;
        let mut listed = Vec::with_capacity(items.left() / 4);
        while items.left() > 0 {
            let (place, id) = (items.bytes()?, items.bytes()?);
            let (record, broken) = (items.maybe()?, items.text()? == "1");
            // An entry that belongs to no run.
            let Some((place, id)) = entry(&place, &id) else { continue };
            listed.push(Listed { place, id, record, broken });
        }
        Ok(listed)
    }

    /// The place of a run that does not know it itself.
    async fn place_of(&self, run: RunId) -> Result<Option<u64>> {
        let all = RunList { state: None, order: ListOrder::Ascending, cursor: None, limit: LOOK };
        let mut after = None;
        loop {
            let page = self.runs_after(&all, after, LOOK).await?;
            if let Some(found) = page.iter().find(|listed| listed.id == run) {
                return Ok(Some(found.place));
            }
            match page.last() {
                Some(last) => after = Some(last.place),
                None => return Ok(None),
            }
        }
    }

    async fn remove_some(&self, runs: &[(RunId, String)]) -> Result<Vec<String>> {
        let mut call = self.caller.script(AT.remove_runs);
        for (run, place) in runs {
            call.arg_fmt(run).arg(place);
        }
        let mut items = Items::of(self.caller.run_durably(call).await?)?;
        runs.iter().map(|_| items.text()).collect()
    }
}

fn claimed_run(items: &mut Items, token: Token) -> Result<ClaimedRun> {
    let id: RunId = items.text()?.parse()?;
    let Record { number: run_number, inbox_first, definition_hash, run } = Record::read(id, &items.bytes()?)?;
    let held = items.text()?;
    let parts: Vec<&str> = held.split(' ').collect();
    let [expires_at, inbox_to, woken] = parts[..] else { return Err(odd("a lease is too short")) };
    let inbox_to: u64 = number(inbox_to)?;
    let inbox = readable_items(&mut items.list()?)?;
    Ok(ClaimedRun {
        lease: RunLease { run: id, token },
        expires_at: time(expires_at)?,
        kind: run.kind,
        name: run.name,
        definition_hash,
        number: run_number,
        created_at: run.created_at,
        history_len: run.history_len,
        inbox,
        inbox_to,
        inbox_taken: inbox_to.saturating_sub(inbox_first),
        woken: woken == "1",
    })
}

/// The items of an inbox without those that cannot be read.
fn readable_items(members: &mut Items) -> Result<Vec<RunItem>> {
    Ok(members.all(|members| Ok(item(&members.bytes()?)))?.into_iter().flatten().collect())
}

/// A run in a page.
struct Listed {
    place: u64,
    id: RunId,
    record: Option<Bytes>,
    broken: bool,
}

fn entry(place: &Bytes, id: &Bytes) -> Option<(u64, RunId)> {
    let read = |bytes: &Bytes| crate::reply::text(bytes).ok().map(str::to_owned);
    Some((crate::reply::hex(&read(place)?).ok()?, read(id)?.parse().ok()?))
}

fn run_view(read: &RunRead, items: &mut Items) -> Result<Option<RunView>> {
    let (record, broken) = (items.maybe()?, items.text()? == "1");
    let (definition, input, mut entries) = (items.maybe()?, items.maybe()?, items.list()?);
    let Some(record) = record else { return Ok(None) };
    let history = entries.all(Items::bytes)?;
    Ok(Some(RunView { run: view(read.run, Some(&record), broken)?, definition, input, history }))
}

/// About how much there is to read.
fn weight(read: &RunRead) -> usize {
    1 + usize::from(read.definition) * 32 + usize::from(read.input) * 8 + read.history_max as usize / 16
}

fn unreadable(run: RunId) -> Error {
    Error::corrupt(format!("the run {run} cannot be read; look at it, then remove it"))
}

fn created(answer: &str, run: &NewRun) -> Result<RunCreated> {
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("created", _) => Ok(RunCreated::Created),
        ("existing", _) => Ok(RunCreated::Existing),
        ("taken", _) => Err(Error::RunTaken { run: run.id }),
        ("refused", rest) => Err(refused(rest, &run.step)),
        _ => Err(odd(answer)),
    }
}

fn committed(answer: &str, commit: &RunCommit) -> Result<RunCommitted> {
    let run = commit.lease.run;
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("ok", len) => Ok(RunCommitted { history_len: number(len)?, repeated: false }),
        ("same", len) => Ok(RunCommitted { history_len: number(len)?, repeated: true }),
        ("lost", _) => Err(Error::LeaseLost),
        ("missing", _) => Err(Error::run_not_found(run)),
        ("corrupt", _) => Err(unreadable(run)),
        ("beyond", _) => Err(Error::beyond_inbox("inbox_to")),
        ("refused", rest) => Err(refused(rest, &commit.step)),
        _ => Err(odd(answer)),
    }
}

fn renewed(answer: &str, mut found: Items, run: RunId) -> Result<RunRenewed> {
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("ok", numbers) => {
            let mut numbers = numbers.split(' ');
            let mut next = || numbers.next().unwrap_or_default();
            let (expires_at, from, inbox_to) = (time(next())?, number::<u64>(next())?, number::<u64>(next())?);
            let inbox = readable_items(&mut found)?;
            Ok(RunRenewed { expires_at, inbox, inbox_to, inbox_taken: inbox_to.saturating_sub(from) })
        }
        ("lost", _) => Err(Error::LeaseLost),
        ("missing", _) => Err(Error::run_not_found(run)),
        ("corrupt", _) => Err(unreadable(run)),
        ("beyond", _) => Err(Error::beyond_inbox("inbox_from")),
        _ => Err(odd(answer)),
    }
}

fn sent(answer: &str, run: RunId) -> Result<()> {
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("ok", _) => Ok(()),
        ("missing", _) => Err(Error::run_not_found(run)),
        ("corrupt", _) => Err(unreadable(run)),
        ("ended", letter) => Err(Error::run_ended(run, state(letter)?)),
        ("running", _) => Err(Error::run_refused(run, RUN_NOT_ENDED)),
        ("changed", _) => Err(Error::run_refused(run, RUN_CHANGED)),
        ("stuck", why) => Err(Error::run_stuck(run, &crate::record::unescape(why))),
        _ => Err(odd(answer)),
    }
}

fn removed(answer: &str, run: RunId) -> Result<()> {
    match answer {
        "ok" => Ok(()),
        "missing" => Err(Error::run_not_found(run)),
        "running" => Err(Error::run_not_removed(run)),
        _ => Err(odd(answer)),
    }
}

#[async_trait]
impl RunStore for RedisStore {
    async fn create_runs(&self, runs: Vec<NewRun>) -> Result<Vec<Result<RunCreated>>> {
        check_batch(runs.len())?;
        let answers = self.send_steps(AT.create_runs, &runs, |run| &run.step, Told::of_run).await?;
        Ok(answers.into_iter().zip(&runs).map(|(answer, run)| created(&answer?, run)).collect())
    }

    async fn claim_runs(&self, request: RunClaim) -> Result<RunsClaimed> {
        request.check()?;
        let mark = self.caller.signals.mark();
        let token = Token::from_bits(self.random.next_u64());
        let mut call = self.caller.script(AT.claim_runs);
        call.arg(request.engine.as_str()).arg_fmt(token).arg_fmt(request.lease_ms).arg_fmt(request.max);
        // Whoever does not listen is not put on the list of those who wait.
        let listens = self.listener.is_on();
        call.arg(if listens { format!("{}//{}", self.handle, request.engine) } else { String::new() });
        match request.run {
            Some(run) => call.arg_fmt(run),
            None => call.arg("-"),
        };
        for kind in &request.kinds {
            call.arg(kind.as_str());
        }
        let mut items = self.caller.items(call).await?;
        match (items.text()?.as_str(), request.run) {
            ("ok", _) => {}
            ("missing", Some(run)) => return Err(Error::run_not_found(run)),
            ("corrupt", Some(run)) => return Err(unreadable(run)),
            (other, _) => return Err(odd(other)),
        }
        let (now, next_at) = (items.time()?, maybe_time(&items.text()?)?);
        Ok(RunsClaimed { runs: Self::claimed_runs(&mut items, token), now, next_at, mark })
    }

    async fn renew_runs(&self, renewals: Vec<RunRenewal>) -> Result<Vec<Result<RunRenewed>>> {
        check_batch(renewals.len())?;
        let (checks, sound) = sound(&renewals, RunRenewal::check);
        let mut answers = Vec::with_capacity(sound.len());
        for piece in sound.chunks(PIECE_RENEWALS) {
            answers.extend(self.renew_some(piece).await?);
        }
        let mut answers = answers.into_iter();
        Ok(checks
            .into_iter()
            .map(|check| check.and_then(|()| answers.next().unwrap_or(Err(Error::LeaseLost))))
            .collect())
    }

    async fn commit_runs(&self, commits: Vec<RunCommit>) -> Result<Vec<Result<RunCommitted>>> {
        check_batch(commits.len())?;
        let answers = self.send_steps(AT.commit_runs, &commits, |commit| &commit.step, Told::of_commit).await?;
        Ok(answers.into_iter().zip(&commits).map(|(answer, commit)| committed(&answer?, commit)).collect())
    }

    async fn send_to_runs(&self, messages: Vec<RunMessage>) -> Result<Vec<Result<()>>> {
        check_batch(messages.len())?;
        let (checks, sound) = sound(&messages, RunMessage::check);
        let (mut words, mut rest) = (Vec::with_capacity(sound.len()), &sound[..]);
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |message: &&&RunMessage| {
                bytes += message.body.len();
                bytes <= PIECE_BYTES
            };
            let (piece, behind) = rest.split_at(rest.iter().take(PIECE).take_while(fits).count().max(1));
            let mut call = self.caller.script(AT.send_to_runs);
            call.arg_fmt(piece.len());
            for message in piece {
                call.arg_fmt(message.run).arg(message_flags(message)).arg(&message.body);
            }
            let mut items = Items::of(self.caller.run_durably(call).await?)?;
            for _ in piece {
                words.push(items.text()?);
            }
            rest = behind;
        }
        let mut words = words.into_iter();
        let answer = |(check, message): (Result<()>, &RunMessage)| {
            check.and_then(|()| sent(&words.next().unwrap_or_default(), message.run))
        };
        Ok(checks.into_iter().zip(&messages).map(answer).collect())
    }

    async fn read_runs(&self, reads: Vec<RunRead>) -> Result<Vec<Option<RunView>>> {
        check_batch(reads.len())?;
        for read in &reads {
            check_batch(read.history_max as usize)?;
        }
        let (mut views, mut rest) = (Vec::with_capacity(reads.len()), &reads[..]);
        while !rest.is_empty() {
            let mut sum = 0;
            let fits = |read: &&RunRead| {
                sum += weight(read);
                sum <= READ_WEIGHT
            };
            let (piece, behind) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            views.extend(self.read_some(piece).await?);
            rest = behind;
        }
        Ok(views)
    }

    async fn list_runs(&self, request: RunList) -> Result<RunPage> {
        request.check()?;
        let question = format!("runs {:?} {:?}", request.state, request.order);
        let cursor = request.cursor.as_deref().map(|text| Cursor::<Bytes>::decode(text, &question)).transpose()?;
        let mut listed = self.runs_after(&request, cursor.map(|cursor| cursor.queue), request.limit + 1).await?;
        let more = listed.len() > request.limit as usize;
        listed.truncate(request.limit as usize);
        let cursor = listed.last().filter(|_| more).map(|last| {
            Cursor::<Bytes> { queue: last.place, state: State::Scheduled, position: None }.encode(&question)
        });
        let runs = listed.iter().map(|listed| view(listed.id, listed.record.as_ref(), listed.broken));
        Ok(RunPage { runs: runs.collect::<Result<_>>()?, cursor })
    }

    async fn remove_runs(&self, runs: Vec<RunId>) -> Result<Vec<Result<()>>> {
        check_batch(runs.len())?;
        let asked: Vec<(RunId, String)> = runs.iter().map(|run| (*run, "-".to_owned())).collect();
        let mut words = Vec::with_capacity(asked.len());
        for piece in asked.chunks(PIECE) {
            words.extend(self.remove_some(piece).await?);
        }
        for (run, word) in runs.iter().zip(&mut words).filter(|(_, word)| *word == "where") {
            let place = self.place_of(*run).await?.map_or_else(|| "?".to_owned(), digits);
            *word = self.remove_some(&[(*run, place)]).await?.remove(0);
        }
        Ok(runs.iter().zip(&words).map(|(run, word)| removed(word, *run)).collect())
    }
}

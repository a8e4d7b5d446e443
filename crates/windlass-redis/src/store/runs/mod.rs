//! Runs: the store's part, which is to keep, to fence and to tell. The layout is in `lua/lib/runs.lua`.

mod answers;
mod items;
mod send;
mod steps;
pub(super) mod text;

use super::RedisStore;
use super::gather::{GATHERED, Gather};
use crate::record::read_result;
use crate::reply::{Items, maybe_time, number, odd, sound, time};
use crate::scripts::AT;
use answers::{committed, removed, renewed, unreadable};
use async_trait::async_trait;
use bytes::Bytes;
use items::readable_items;
use send::{PIECE, send_steps};
use steps::Told;
use text::{Record, digits, label_text, published, state_letter, view};
use windlass_core::engine::Cursor;
use windlass_core::id::{RunId, Token};
use windlass_core::job::State;
use windlass_core::store::{
    ClaimedRun, ListOrder, NewRun, RUN_SCAN_MAX, RunClaim, RunCommit, RunCommitted, RunCreated, RunLease, RunList,
    RunMessage, RunPage, RunRead, RunRenewal, RunRenewed, RunStore, RunView, RunsClaimed, check_batch,
};
use windlass_core::{Error, Result};

/// Renewals of one script, each of which may return many items.
const PIECE_RENEWALS: usize = 100;
/// What one script reads, by the weights of [`weight`].
const READ_WEIGHT: usize = 512;
/// Runs of a page when one is looked for.
const LOOK: u32 = 1_000;
/// Beyond this the scripts do not count exactly, and no history is so long.
const ENTRY_MAX: u64 = 1 << 46;

impl RedisStore {
    /// The runs of a claim: id, record, lease and items of each; and their segments, if the claim asked for them.
    fn claimed_runs(items: &mut Items, token: Token, with_segments: bool) -> Vec<ClaimedRun> {
        let parts = if with_segments { 6 } else { 4 };
        let mut runs = Vec::with_capacity(items.left() / parts);
        while items.left() > 0 {
            match claimed_run(&mut items.take(parts), token) {
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
            let wanted = [(read.definition, 'd'), (read.input, 'i'), (read.published, 'p'), (read.result, 'r')];
            let mut parts: String =
                wanted.iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, letter)| letter).collect();
            parts.extend(read.inbox_from.map(|from| format!("n{}", from.min(ENTRY_MAX))));
            call.arg_fmt(read.run).arg(parts).arg_fmt(read.history_from.min(ENTRY_MAX)).arg_fmt(read.history_max);
        }
        let mut items = self.caller.items(call).await?;
        reads.iter().map(|read| run_view(read, &mut items)).collect()
    }

    /// One page: place, id and run of each, and where to go on.
    async fn runs_after(&self, request: &RunList, after: Option<u64>) -> Result<(Vec<Listed>, Option<u64>)> {
        let mut call = self.caller.script(AT.list_runs);
        let RunList { kind, stuck, parent, label, created_from, created_before, limit, .. } = request;
        call.arg(request.state.map_or("*", state_letter));
        call.arg(if request.order == ListOrder::Descending { "1" } else { "0" });
        let is_filtered = request.is_filtered();
        call.arg(after.map_or_else(String::new, digits)).arg_fmt(limit);
        call.arg_fmt(if is_filtered { RUN_SCAN_MAX } else { *limit as usize }).arg_fmt(u8::from(is_filtered));
        let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        call.arg(dash(kind.clone())).arg(dash(stuck.map(|stuck| u8::from(stuck).to_string())));
        call.arg(dash(parent.map(|parent| parent.to_string()))).arg(dash(label.as_ref().map(label_text).transpose()?));
        for time in [created_from, created_before] {
            call.arg(dash(time.map(|time| time.as_ms().to_string())));
        }
        let mut items = self.caller.items(call).await?;
        let last = items.text()?;
        let last = if last.is_empty() { None } else { Some(crate::reply::hex(&last)?) };
        let mut listed = Vec::with_capacity(items.left() / 4);
        while items.left() > 0 {
            let (place, id) = (items.bytes()?, items.bytes()?);
            let (record, broken) = (items.maybe()?, items.text()? == "1");
            // An entry that belongs to no run.
            let Some((place, id)) = entry(&place, &id) else { continue };
            listed.push(Listed { place, id, record, broken });
        }
        Ok((listed, last))
    }

    /// The place of a run that does not know it itself.
    async fn place_of(&self, run: RunId) -> Result<Option<u64>> {
        let all = RunList::new(LOOK);
        let mut after = None;
        loop {
            let (page, last) = self.runs_after(&all, after).await?;
            if let Some(found) = page.iter().find(|listed| listed.id == run) {
                return Ok(Some(found.place));
            }
            match last {
                Some(_) => after = last,
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
    let [expires_at, inbox_to, woken, inbox_taken] = parts[..] else { return Err(odd("a lease is too short")) };
    let inbox = readable_items(&mut items.list()?, inbox_first)?;
    let (mut input, mut history) = (None, Vec::new());
    if items.left() > 0 {
        input = items.maybe()?;
        history = items.list()?.all(Items::bytes)?;
    }
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
        inbox_to: number(inbox_to)?,
        inbox_taken: number(inbox_taken)?,
        woken: woken == "1",
        state: run.state,
        stuck: run.stuck,
        parent: run.parent,
        labels: run.labels,
        stall_count: run.stall_count,
        segment_from: run.segment_from,
        input,
        history,
    })
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
    let (values, ended_with) = (items.maybe()?, items.maybe()?);
    let (inbox_first, inbox_to, mut members) = (items.number()?, items.number()?, items.list()?);
    let Some(record) = record else { return Ok(None) };
    let history = entries.all(Items::bytes)?;
    Ok(Some(RunView {
        run: view(read.run, Some(&record), broken)?,
        definition,
        input,
        history,
        published: read.published.then(|| published(values.as_ref())),
        result: ended_with.as_ref().and_then(read_result),
        inbox: readable_items(&mut members, inbox_first)?,
        inbox_to,
    }))
}

/// About how much there is to read.
fn weight(read: &RunRead) -> usize {
    1 + usize::from(read.definition) * 32
        + usize::from(read.input) * 8
        + usize::from(read.published) * 4
        + usize::from(read.result) * 8
        + usize::from(read.inbox_from.is_some()) * 64
        + read.history_max as usize / 16
}

#[async_trait]
impl RunStore for RedisStore {
    async fn create_runs(&self, runs: Vec<NewRun>) -> Result<Vec<Result<RunCreated>>> {
        check_batch(runs.len())?;
        if runs.len() <= GATHERED {
            return self.new_runs.send_sound(runs.into_iter().map(Ok).collect()).await;
        }
        NewRun::send(&self.caller, &runs.iter().collect::<Vec<_>>()).await
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
        call.arg(if request.even_stuck { "1" } else { "0" });
        call.arg_fmt(request.history_bytes_max);
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
        let runs = Self::claimed_runs(&mut items, token, request.history_bytes_max > 0);
        Ok(RunsClaimed { runs, now, next_at, mark })
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
        let all: Vec<&RunCommit> = commits.iter().collect();
        let answers = send_steps(&self.caller, AT.commit_runs, &all, |commit| &commit.step, Told::of_commit).await?;
        Ok(answers.into_iter().zip(&commits).map(|(answer, commit)| committed(&answer?, commit)).collect())
    }

    async fn send_to_runs(&self, messages: Vec<RunMessage>) -> Result<Vec<Result<()>>> {
        check_batch(messages.len())?;
        let is_small = messages.len() <= GATHERED;
        let checked = messages.into_iter().map(|message| message.check().map(|()| message));
        if is_small {
            return self.run_messages.send_sound(checked.collect()).await;
        }
        let (mut checks, mut sound) = (Vec::new(), Vec::new());
        for message in checked {
            checks.push(message.map(|message| sound.push(message)));
        }
        let mut answers = RunMessage::send(&self.caller, &sound.iter().collect::<Vec<_>>()).await?.into_iter();
        let missing = || Err(odd("an answer is missing"));
        Ok(checks.into_iter().map(|check| check.and_then(|()| answers.next().unwrap_or_else(missing))).collect())
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
        let question = request.question();
        let cursor = request.cursor.as_deref().map(|text| Cursor::<Bytes>::decode(text, &question)).transpose()?;
        let (listed, last) = self.runs_after(&request, cursor.map(|cursor| cursor.queue)).await?;
        let cursor = last
            .map(|place| Cursor::<Bytes> { queue: place, state: State::Scheduled, position: None }.encode(&question));
        let runs = listed.iter().map(|listed| view(listed.id, listed.record.as_ref(), listed.broken));
        let mut runs: Vec<_> = runs.collect::<Result<_>>()?;
        if request.is_filtered() {
            runs.retain(|run| run.damaged.is_none() && request.matches(run));
        }
        Ok(RunPage { runs, cursor })
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

//! Local steps of a simulation: mocked by name, or executed on the runtime of the test.

use super::mock::EndedStep;
use super::schedule::Action;
use super::simulation::{Fault, Simulation};
use windlass_durable::{Entry, Event, Item, ItemBody, Key, OpKind, Outcome, SourceLine};

impl Simulation {
    /// Ends mocked steps and polls the others. False when no step made progress.
    pub(super) fn advance_steps(&mut self) -> Result<bool, Fault> {
        for index in 0..self.runs.len() {
            let keys = self.unplanned_steps(index);
            let mocked = keys.iter().find_map(|key| Some((self.mocked(index, key)?, key.clone())));
            if let Some((ended, key)) = mocked {
                self.end_mocked(index, key, ended)?;
                return Ok(true);
            }
            if !keys.is_empty() && self.poll_steps(index, &keys)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The open steps of a run whose ends are not planned, in an order that does not change.
    fn unplanned_steps(&self, index: usize) -> Vec<Key> {
        let run = &self.runs[index];
        let Some(live) = run.live.as_ref().filter(|live| live.has_steps()) else { return Vec::new() };
        let mut keys = live.open_steps();
        keys.retain(|key| !self.schedule.has_step(run.id, key));
        keys.sort_by(|a, b| (&a.scope, &a.name, &a.user, a.nth).cmp(&(&b.scope, &b.name, &b.user, b.nth)));
        keys
    }

    fn mocked(&self, index: usize, key: &Key) -> Option<EndedStep> {
        let path = self.runs[index].op(key.to_string());
        let mut mocks = self.setup.mocks.lock();
        let ended = if self.mode.reuses_steps { mocks.ended_step(&path) } else { None };
        ended.or_else(|| mocks.step(&key.name, path))
    }

    fn end_mocked(&mut self, index: usize, key: Key, ended: EndedStep) -> Result<(), Fault> {
        let EndedStep { outcome, took_ms } = ended;
        let body = self.end_of_step(index, key, outcome);
        if took_ms == 0 {
            return self.turn(index, vec![Item { number: None, at: self.time(), body }]);
        }
        let action = Action::Item { run: self.runs[index].id, body };
        self.schedule.add(self.commit_number(), self.time().plus_ms(took_ms).as_ms(), action);
        Ok(())
    }

    fn end_of_step(&self, index: usize, key: Key, outcome: Outcome) -> ItemBody {
        let pending = self.runs[index].live.as_ref().map(|live| live.pending(usize::MAX)).unwrap_or_default();
        let op = pending.into_iter().find(|op| op.kind == OpKind::Run && op.name == key.name);
        let place = op.map_or_else(|| SourceLine::stored(""), |op| op.place);
        ItemBody::StepEnded { key, outcome, place }
    }

    /// Polls the open steps of a run. False when they wait for something else.
    fn poll_steps(&mut self, index: usize, keys: &[Key]) -> Result<bool, Fault> {
        let now = self.time();
        for key in keys {
            let path = self.runs[index].op(key.to_string());
            self.steps_begun.entry(path).or_insert(self.now);
        }
        let run = &mut self.runs[index];
        let Some(live) = run.live.as_mut().filter(|live| live.steps_woken()) else { return Ok(false) };
        // The executor polls all open steps of a run, those with planned ends included.
        let planned = live.open_steps().into_iter().find(|key| self.schedule.has_step(run.id, key));
        if let Some(key) = planned.filter(|_| !self.mode.reuses_steps) {
            let text = "mock all local steps that run at the same time, or let their mocks take no time";
            return Err(format!("{key} has a mock that takes time, and a step beside it has none: {text}").into());
        }
        let turn = live.poll_steps(now).map_err(|stuck| Fault::from(format!("the run is stuck: {stuck}")))?;
        for record in &turn.records {
            if let Entry::Event { event: Event::Stepped { key, outcome, .. }, .. } = &record.entry {
                self.real_steps += 1;
                let path = self.runs[index].op(key.to_string());
                let begun = self.steps_begun.get(&path).copied().unwrap_or(self.now);
                let took_ms = u64::try_from(self.now - begun).unwrap_or(0);
                self.setup.mocks.lock().add_ended_step(path, EndedStep { outcome: outcome.clone(), took_ms });
            }
        }
        if !turn.is_empty() {
            self.finish_turn(index, turn)?;
        }
        Ok(true)
    }

    /// Waits for local steps that have begun, until the time of the next event. False when there are none, or when that time has
    /// come.
    pub(super) fn wait_for_steps(&mut self, next: Option<i64>) -> Result<bool, Fault> {
        let Some(index) = (0..self.runs.len()).find(|index| !self.unplanned_steps(*index).is_empty()) else {
            return Ok(false);
        };
        let run = &self.runs[index];
        let limit_ms = next.map(|next| u64::try_from(next - self.now).unwrap_or(0));
        if limit_ms == Some(0) {
            return Ok(false);
        }
        let named = |error: &str| {
            let names: Vec<String> = run.waits_for().into_iter().filter(|what| what.starts_with("local")).collect();
            let names = names.join(", ");
            Fault::from(format!("{names} waits: {error}; or mock it: `.mock_step(\"name\", || Ok(..))`"))
        };
        let elapsed_ms = self.setup.host.wait(limit_ms).map_err(named)?;
        self.now = self.time().plus_ms(elapsed_ms).as_ms();
        if limit_ms.is_none() && elapsed_ms >= super::host::STEP_MS_MAX {
            return Err(named("nothing woke it for a year of virtual time"));
        }
        Ok(true)
    }
}

//! Local steps of a simulation: mocked by name, or executed on the runtime of the test.

use super::simulation::{Fault, Simulation};
use windlass_durable::{Entry, Event, Item, ItemBody, Key, OpKind, Outcome, SourceLine};

impl Simulation {
    /// Ends mocked steps and polls the others. False when no step made progress.
    pub(super) fn advance_steps(&mut self) -> Result<bool, Fault> {
        for index in 0..self.runs.len() {
            let Some(live) = self.runs[index].live.as_ref().filter(|live| live.has_steps()) else { continue };
            let mut keys = live.open_steps();
            keys.sort_by(|a, b| (&a.scope, &a.name, &a.user, a.nth).cmp(&(&b.scope, &b.name, &b.user, b.nth)));
            let mocked = keys.into_iter().find_map(|key| Some((self.mocked(index, &key)?, key)));
            if let Some((outcome, key)) = mocked {
                self.end_mocked(index, key, outcome)?;
                return Ok(true);
            }
            if self.poll_steps(index)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn mocked(&self, index: usize, key: &Key) -> Option<Outcome> {
        let path = self.runs[index].op(key.to_string());
        let mut mocks = self.setup.mocks.lock();
        let ended = if self.mode.reuses_steps { mocks.ended_step(&path) } else { None };
        ended.or_else(|| mocks.step(&key.name, path))
    }

    fn end_mocked(&mut self, index: usize, key: Key, outcome: Outcome) -> Result<(), Fault> {
        let pending = self.runs[index].live.as_ref().map(|live| live.pending(usize::MAX)).unwrap_or_default();
        let op = pending.into_iter().find(|op| op.kind == OpKind::Run && op.name == key.name);
        let place = op.map_or_else(|| SourceLine::stored(""), |op| op.place);
        let body = ItemBody::StepEnded { key, outcome, place };
        self.turn(index, vec![Item { number: None, at: self.time(), body }])
    }

    /// False when the steps wait for something else.
    fn poll_steps(&mut self, index: usize) -> Result<bool, Fault> {
        let now = self.time();
        let Some(live) = self.runs[index].live.as_mut().filter(|live| live.steps_woken()) else { return Ok(false) };
        let turn = live.poll_steps(now).map_err(|stuck| Fault::from(format!("the run is stuck: {stuck}")))?;
        for record in &turn.records {
            if let Entry::Event { event: Event::Stepped { key, outcome, .. }, .. } = &record.entry {
                self.real_steps += 1;
                let path = self.runs[index].op(key.to_string());
                self.setup.mocks.lock().add_ended_step(path, outcome.clone());
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
        let waits = |run: &super::run::SimRun| run.live.as_ref().is_some_and(windlass_durable::Run::has_steps);
        let Some(run) = self.runs.iter().find(|run| waits(run)) else { return Ok(false) };
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

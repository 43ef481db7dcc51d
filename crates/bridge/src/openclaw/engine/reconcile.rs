//! Runs over a lost connection: does the gateway still have them, what did they say meanwhile, and how did they end?
//! Until that is known, their live events wait: nothing is told out of order, twice, or not at all.

use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::{Ask, Engine, Outcome, Phase, Run, Timer};
use crate::openclaw::{
    gateway::Repeat,
    history::{History, MAX_ROWS},
    wire::{self, GatewayError, WaitAnswer},
};

/// Bytes of live events of one run that wait for its history. What is beyond is in the history when it is read once more.
const MAX_HELD: usize = 16 * 1024 * 1024;

/// Between two looks into a history that does not have the end of a run yet.
const REREAD: Duration = Duration::from_millis(250);

/// How often is looked for the end of a run that the gateway says is over.
const MAX_READS: u32 = 12;

/// What is being found out about a run.
#[derive(Debug, Default)]
pub(super) struct Catching {
    /// What the gateway says about the run; `None` while it has not been asked or is thought to run.
    verdict: Verdict,
    reads: u32,
    held: Vec<(String, Box<RawValue>)>,
    bytes: usize,
    /// Some events could not be held.
    spilled: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Verdict {
    /// It goes on.
    #[default]
    Runs,
    /// It is over.
    Over(Option<Outcome>),
    /// The gateway does not know it.
    Unknown,
    /// It is not known whether the gateway ever got the prompt.
    Unsent,
}

impl Run {
    /// Keeps an event for later when the run's history is being read.
    pub(super) fn hold(&mut self, name: &str, payload: &RawValue, _now: Instant) -> bool {
        let Some(catching) = &mut self.catching else { return false };
        if catching.bytes + payload.get().len() > MAX_HELD {
            catching.spilled = true;
            return true;
        }
        catching.bytes += payload.get().len();
        catching.held.push((name.to_owned(), payload.to_owned()));
        true
    }
}

impl Engine {
    /// The connection is gone: runs wait.
    pub(super) fn suspend(&mut self) {
        self.owners.clear();
        for run in self.runs.values_mut() {
            run.translator.resumed();
            run.catching = None;
            // An end that was on its way is read from the history.
            run.ending = None;
        }
    }

    /// The gateway is there again: what waits is sent, and what ran is asked for.
    pub(super) fn catch_up(&mut self, now: Instant) {
        let mut ids: Vec<String> = self.runs.keys().cloned().collect();
        ids.sort();
        let running = ids.iter().any(|id| self.runs.get(id).is_some_and(|run| run.phase != Phase::Waiting));
        if running && self.connection > 1 {
            // Events of tools go to the connection that sent the prompt; this brings those of others too.
            self.ask("sessions.subscribe", &wire::Nothing {}, Ask::Watch, Repeat::No, now);
        }
        for id in ids {
            let Some(run) = self.runs.get_mut(&id) else { continue };
            match run.phase {
                Phase::Waiting => self.send_run(&id, now),
                Phase::Sent | Phase::Unsure => {
                    run.phase = Phase::Unsure;
                    run.catching = Some(Catching { verdict: Verdict::Unsent, ..Catching::default() });
                    let session = run.session.clone();
                    self.subscribe(&session, now);
                    self.read_history(&id, now);
                }
                Phase::Running => {
                    run.catching = Some(Catching::default());
                    let session = run.session.clone();
                    self.subscribe(&session, now);
                    let wait = wire::AgentWait { run_id: &id, timeout_ms: 0 };
                    self.ask("agent.wait", &wait, Ask::Wait(id.clone()), Repeat::No, now);
                }
            }
        }
        self.sync_approvals(now);
    }

    /// Events were lost while the connection lives.
    pub(super) fn gap(&mut self, now: Instant) {
        let ids: Vec<String> = self.runs.keys().cloned().collect();
        for id in ids {
            if self.runs.get(&id).is_some_and(|run| run.phase == Phase::Running && run.catching.is_none()) {
                self.catch_run(&id, false, now);
            }
        }
    }

    /// Reads what a run has said. `over`: the gateway says that it has ended.
    pub(super) fn catch_run(&mut self, id: &str, over: bool, now: Instant) {
        let Some(run) = self.runs.get_mut(id) else { return };
        run.translator.resumed();
        let verdict = if over { Verdict::Over(None) } else { Verdict::Runs };
        run.catching = Some(Catching { verdict, ..Catching::default() });
        if over {
            self.read_history(id, now);
        } else {
            let wait = wire::AgentWait { run_id: id, timeout_ms: 0 };
            self.ask("agent.wait", &wait, Ask::Wait(id.to_owned()), Repeat::No, now);
        }
    }

    pub(super) fn waited(&mut self, id: &str, outcome: Result<Option<&RawValue>, GatewayError>, now: Instant) {
        let Some(catching) = self.runs.get_mut(id).and_then(|run| run.catching.as_mut()) else { return };
        let answer = outcome.ok().flatten().and_then(wire::read::<WaitAnswer>).unwrap_or_default();
        catching.verdict = match (answer.status.as_str(), answer.timeout_phase.as_deref()) {
            ("ok", _) if answer.stop_reason.as_deref() == Some("length") => Verdict::Over(Some(Outcome::MaxTokens)),
            ("ok", _) => Verdict::Over(Some(Outcome::Done)),
            ("error", _) => {
                let why = answer.error.unwrap_or_else(|| "the run failed, and the gateway gives no reason".to_owned());
                Verdict::Over(Some(Outcome::Failed(why, None)))
            }
            ("timeout", Some("queue")) => Verdict::Unknown,
            _ => Verdict::Runs,
        };
        self.read_history(id, now);
    }

    pub(super) fn read_history(&mut self, id: &str, now: Instant) {
        let Some(run) = self.runs.get(id).filter(|run| run.catching.is_some()) else { return };
        let Some(key) = self.sessions.get(&run.session).map(|session| session.key.clone()) else { return };
        let get = wire::SessionsGet { key: &key, limit: MAX_ROWS };
        self.ask("sessions.get", &get, Ask::History(id.to_owned()), Repeat::No, now);
    }

    pub(super) fn read_later(&mut self, id: &str, now: Instant) {
        self.timer(now + REREAD, Timer::Reread(id.to_owned()));
    }

    /// The history of a run's session.
    pub(super) fn history(&mut self, id: &str, outcome: Result<Option<&RawValue>, GatewayError>, now: Instant) {
        let Some(run) = self.runs.get_mut(id) else { return };
        let Some(catching) = run.catching.as_mut() else { return };
        catching.reads += 1;
        let history = outcome.ok().flatten().and_then(wire::read::<History<'_>>).unwrap_or_default();
        let rows = history.of_run(id);
        let mut out = Vec::new();
        if let Some(rows) = rows {
            if run.phase == Phase::Unsure {
                run.phase = Phase::Running;
            }
            run.translator.reread();
            for row in rows {
                run.translator.past_row(row, &mut out);
            }
        }
        let ended = rows.and_then(|rows| run.translator.outcome_of(rows));
        let (verdict, reads, spilled) =
            (catching.verdict.clone(), catching.reads, std::mem::take(&mut catching.spilled));
        let (session, found) = (run.session.clone(), rows.is_some());
        self.tell(&session, out);
        match verdict {
            Verdict::Unsent if !found => {
                if let Some(run) = self.runs.get_mut(id) {
                    run.catching = None;
                }
                self.send_run(id, now);
            }
            Verdict::Unsent => {
                if let Some(catching) = self.runs.get_mut(id).and_then(|run| run.catching.as_mut()) {
                    catching.verdict = Verdict::Runs;
                }
                let wait = wire::AgentWait { run_id: id, timeout_ms: 0 };
                self.ask("agent.wait", &wait, Ask::Wait(id.to_owned()), Repeat::No, now);
            }
            Verdict::Runs if spilled => self.read_history(id, now),
            Verdict::Runs => self.release(id, now),
            Verdict::Over(said) => match (ended, said) {
                (Some(ended), said) => self.finish(id, strongest(ended, said)),
                // The gateway writes the last row a moment after it says that a run is over.
                (None, _) if reads < MAX_READS => self.read_later(id, now),
                (None, said) => self.finish(id, said.unwrap_or(Outcome::Done)),
            },
            Verdict::Unknown => match ended {
                Some(ended) => self.finish(id, ended),
                None if found && reads < MAX_READS / 3 => self.read_later(id, now),
                None => {
                    let why = "the gateway does not know the run any more; it was restarted, or the run was stopped";
                    self.finish(id, Outcome::Failed(why.to_owned(), None));
                }
            },
        }
    }

    /// The history is told: what happened since follows.
    fn release(&mut self, id: &str, now: Instant) {
        let Some(run) = self.runs.get_mut(id) else { return };
        let held = run.catching.take().map(|catching| catching.held).unwrap_or_default();
        if let Some(key) = self.sessions.get(&run.session).map(|session| session.key.clone()) {
            self.owners.insert(key, id.to_owned());
        }
        for (name, payload) in held {
            self.event(&name, Some(&payload), now);
        }
    }

    fn finish(&mut self, id: &str, outcome: Outcome) {
        let Some(run) = self.runs.get_mut(id) else { return };
        run.catching = None;
        let outcome = if run.cancelled { Outcome::Cancelled } else { outcome };
        self.settle(id, outcome);
    }
}

/// What the rows say, unless the gateway knows of a failure that no row tells of.
fn strongest(rows: Outcome, said: Option<Outcome>) -> Outcome {
    match (rows, said) {
        (Outcome::Done, Some(failed @ (Outcome::Failed(..) | Outcome::MaxTokens))) => failed,
        (rows, _) => rows,
    }
}

//! Makes a conversation shorter when it has grown to the limit, or when the user says so: old long tool results are cut,
//! then a summary that the model writes stands for the oldest turns, then one for the oldest steps of a very long turn.
//!
//! Every change is recorded before it is told. It refuses to lose a turn to a summary that could not be written: the
//! conversation then stays as it is, and requests leave out what does not fit.

use std::{mem, sync::Arc};

use crate::{
    model::{Message, ModelError, ModelRequest, ModelStop, Usage},
    turn::{
        CompactionStep, StopReason, TurnError, TurnEvent, TurnFailure, TurnOutcome,
        ask::{Audience, End},
        bound::shortened,
        compact,
        run::Turn,
    },
};

/// Cutting tool results is enough when the conversation then fits into this share of the budget (in percent);
/// otherwise the next turn would be over it again.
const ENOUGH: u64 = 75;
/// What a summary replaces has to be at least this share of the budget (in percent): a call for less wins nothing.
const WORTH: u64 = 10;
/// The share of the goal that is kept free for the summary (in percent).
const FOR_SUMMARY: u64 = 25;
/// The share of the budget that the transcript may take (in percent); the rest is for the summary.
const FOR_TRANSCRIPT: u64 = 75;
/// A summary is never cut below this, in bytes.
const LEAST_SUMMARY: usize = 2 * 1024;
/// The longest summary, in bytes; what is longer is no summary.
const MOST_SUMMARY: usize = 64 * 1024;

/// Why the conversation is made shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It has reached the limit.
    Due,
    /// The vendor says that it is too long, whatever we believe.
    Overflow,
    /// The user said so.
    Order,
}

/// How it went.
#[derive(Debug)]
pub(super) enum Shrunk {
    /// It is shorter now.
    Done,
    /// There was nothing to replace.
    Nothing,
    /// The turn was cancelled.
    Cancelled,
    /// No summary could be written.
    Failed(TurnFailure),
}

/// Which part of the conversation a summary is to replace.
#[derive(Clone, Copy)]
enum Part {
    Turns(usize),
    Steps { from: usize, to: usize },
}

impl Turn<'_> {
    /// Makes the conversation shorter when the next request would reach the limit.
    pub(super) async fn shrink_when_due(&mut self) {
        if self.in_vain || self.goal().is_none() || compact::tokens(self.history) <= self.budget() {
            return;
        }
        match self.shrink(Cause::Due, None).await {
            Shrunk::Done => {}
            // Another attempt in the same turn would go the same way; the next turn makes one.
            Shrunk::Nothing | Shrunk::Cancelled | Shrunk::Failed(_) => self.in_vain = true,
        }
    }

    /// Makes the conversation shorter.
    pub(super) async fn shrink(&mut self, cause: Cause, wishes: Option<&str>) -> Shrunk {
        let Some(goal) = self.goal() else { return Shrunk::Nothing };
        let before = compact::tokens(self.history);
        let mut kept = self.history.clone();
        let earlier = kept.get_mut(..self.start).unwrap_or_default();
        let cut = compact::shorten_old_results(earlier);
        let enough = self.budget() / 100 * ENOUGH;
        if cut > 0 && cause == Cause::Due && compact::tokens(&kept) <= enough {
            let id = self.compaction_id();
            self.adopt(kept, self.start);
            self.tell(&id, CompactionStep::Done { summary: None, before, after: compact::tokens(self.history) }).await;
            self.tell_size(None).await;
            return Shrunk::Done;
        }
        let mut done = Shrunk::Nothing;
        if let Some(part) = self.oldest_turns(&kept, goal, cause) {
            match self.replace(&kept, part, cause, wishes, before).await {
                Shrunk::Done => done = Shrunk::Done,
                other => return self.keep_cut(kept, cut, cause, other),
            }
        }
        if compact::tokens(self.history) > self.budget()
            && let Some(part) = self.oldest_steps(goal)
        {
            let before = compact::tokens(self.history);
            let kept = self.history.clone();
            match self.replace(&kept, part, cause, wishes, before).await {
                Shrunk::Done => done = Shrunk::Done,
                Shrunk::Nothing => {}
                other @ (Shrunk::Cancelled | Shrunk::Failed(_)) => return other,
            }
        }
        match done {
            Shrunk::Nothing => self.keep_cut(kept, cut, cause, Shrunk::Nothing),
            done => done,
        }
    }

    /// Keeps at least the shorter tool results when no summary came about.
    fn keep_cut(&mut self, kept: Vec<Arc<Message>>, cut: usize, cause: Cause, outcome: Shrunk) -> Shrunk {
        if cut > 0 && cause != Cause::Order && !matches!(outcome, Shrunk::Cancelled) {
            self.adopt(kept, self.start);
        }
        outcome
    }

    fn oldest_turns(&self, kept: &[Arc<Message>], goal: u64, cause: Cause) -> Option<Part> {
        let earlier = kept.get(..self.start)?;
        let current = compact::tokens(kept.get(self.start..)?);
        let room = match cause {
            // Who asks for a summary wants it of everything.
            Cause::Order => 0,
            Cause::Due | Cause::Overflow => goal.saturating_sub(goal / 100 * FOR_SUMMARY).saturating_sub(current),
        };
        let cut = compact::oldest_turns(earlier, room)?;
        let worth = cause == Cause::Order || compact::tokens(earlier.get(..cut)?) >= self.budget() / 100 * WORTH;
        worth.then_some(Part::Turns(cut))
    }

    fn oldest_steps(&self, goal: u64) -> Option<Part> {
        let current = self.history.get(self.start..)?;
        let others = compact::tokens(self.history.get(..=self.start)?);
        let room = goal.saturating_sub(goal / 100 * FOR_SUMMARY).saturating_sub(others);
        let steps = compact::oldest_steps(current, room)?;
        let worth = compact::tokens(current.get(steps.clone())?) >= self.budget() / 100 * WORTH;
        worth.then_some(Part::Steps { from: self.start + steps.start, to: self.start + steps.end })
    }

    /// Puts a summary in the place of one part.
    async fn replace(
        &mut self,
        kept: &[Arc<Message>],
        part: Part,
        cause: Cause,
        wishes: Option<&str>,
        before: u64,
    ) -> Shrunk {
        if !self.model().provider.writes_summaries() {
            return Shrunk::Nothing;
        }
        let (from, to) = match part {
            Part::Turns(cut) => (0, cut),
            Part::Steps { from, to } => (from, to),
        };
        let replaced = kept.get(from..to).unwrap_or_default();
        let id = self.compaction_id();
        self.tell(&id, CompactionStep::Started).await;
        let (written, counted) = self.write_summary(replaced, wishes).await;
        let (summary, outcome) = match written {
            Ok(summary) => (Some(summary), Shrunk::Done),
            Err(None) => {
                self.tell(&id, CompactionStep::Cancelled).await;
                self.tell_size(counted).await;
                return Shrunk::Cancelled;
            }
            Err(Some(failure)) => {
                self.tell(&id, CompactionStep::Failed { error: &failure.to_string() }).await;
                self.tell_size(counted).await;
                // Otherwise every later prompt of the session would fail for the same reason.
                let stuck = cause == Cause::Overflow
                    && matches!(part, Part::Turns(_))
                    && matches!(failure, TurnFailure::Model(ModelError::ContextOverflow(_)));
                if !stuck {
                    return Shrunk::Failed(failure);
                }
                (None, Shrunk::Failed(failure))
            }
        };
        let mut history = Vec::with_capacity(kept.len() - (to - from) + 2);
        let start = match part {
            Part::Turns(_) => {
                history.extend(compact::instead_of_turns(summary.as_deref()));
                self.start - to + history.len()
            }
            Part::Steps { .. } => {
                history.extend(kept.iter().take(from).cloned());
                history.extend(summary.as_deref().map(compact::instead_of_steps));
                self.start
            }
        };
        history.extend(kept.iter().skip(to).cloned());
        self.adopt(history, start);
        if summary.is_some() {
            let after = compact::tokens(self.history);
            self.tell(&id, CompactionStep::Done { summary: summary.as_deref(), before, after }).await;
            self.tell_size(counted).await;
        }
        outcome
    }

    /// Asks the model for a summary; also what its calls were counted with. No failure means that the turn was cancelled.
    async fn write_summary(
        &mut self,
        messages: &[Arc<Message>],
        wishes: Option<&str>,
    ) -> (Result<String, Option<TurnFailure>>, Option<Usage>) {
        let bytes = |tokens: u64| usize::try_from(tokens.saturating_mul(4)).unwrap_or(usize::MAX);
        let room = bytes((self.budget().saturating_add(self.fixed)) / 100 * FOR_TRANSCRIPT);
        let text = compact::request(messages, room, wishes);
        let longest = bytes(self.goal().unwrap_or_default() / 100 * FOR_SUMMARY).clamp(LEAST_SUMMARY, MOST_SUMMARY);
        let mut counted = None;
        loop {
            let request = ModelRequest {
                system: compact::SYSTEM.into(),
                messages: vec![Arc::new(Message::User { text: text.clone() })],
                tools: Arc::default(),
                max_output_tokens: self.scene.agent.limits.max_output_tokens,
                thinking: None,
            };
            let outer = mem::take(&mut self.speech);
            let answer = self.call(request, Audience::Nobody).await;
            let (summary, _) = mem::replace(&mut self.speech, outer).finish();
            counted = super::ask::total(counted, answer.usage);
            let summary = summary.trim();
            let written = match &answer.end {
                End::Stopped(ModelStop::End | ModelStop::MaxTokens) if !summary.is_empty() => {
                    Ok(shortened(summary.to_owned(), longest))
                }
                End::Stopped(ModelStop::Refusal) => Err(Some(none_written("the model declined to write a summary"))),
                End::Stopped(_) => Err(Some(none_written("the model wrote no summary"))),
                End::Cancelled => Err(None),
                End::Failed(_) if self.scene.cancel.is_cancelled() => Err(None),
                End::Failed(failure) => {
                    let failure = failure.clone();
                    if self.gives_way(&failure).await {
                        continue;
                    }
                    Err(Some(failure))
                }
            };
            return (written, counted);
        }
    }

    /// Takes a shorter conversation over; the record comes first.
    fn adopt(&mut self, history: Vec<Arc<Message>>, start: usize) {
        self.scene.sink.compacted(&history, history.len() - start);
        *self.history = history;
        (self.start, self.window_start) = (start, 0);
    }

    fn compaction_id(&mut self) -> String {
        self.compactions += 1;
        format!("c-{}-{}", self.number, self.compactions)
    }

    async fn tell(&self, id: &str, step: CompactionStep<'_>) {
        self.scene.emit(TurnEvent::Compaction { id, step, ordered: self.ordered }).await;
    }

    /// Tells how large the conversation is now, by estimate, and what was counted on the way.
    async fn tell_size(&self, counted: Option<Usage>) {
        let used = self.measured(compact::tokens(self.history).saturating_add(self.fixed));
        let model = self.model();
        let size = model.provider.info().context_window;
        self.scene
            .emit(TurnEvent::Usage {
                used,
                size,
                counted: counted.unwrap_or_default(),
                model: model.id.map(AsRef::as_ref),
            })
            .await;
    }

    /// Makes the conversation shorter because the user said so.
    pub(super) async fn obey(mut self, wishes: &str) -> Result<TurnOutcome, TurnError> {
        self.ordered = true;
        let before = self.measured(compact::tokens(self.history));
        let wishes = Some(wishes.trim()).filter(|wishes| !wishes.is_empty());
        let text = match self.shrink(Cause::Order, wishes).await {
            Shrunk::Done => {
                let after = self.measured(compact::tokens(self.history));
                format!("The conversation is compacted: about {after} tokens instead of {before}.")
            }
            Shrunk::Nothing if !self.model().provider.writes_summaries() => {
                "This model writes no summaries, so the conversation stays as it is.".to_owned()
            }
            Shrunk::Nothing => "There is nothing to compact.".to_owned(),
            Shrunk::Cancelled => return Ok(self.stop(StopReason::Cancelled)),
            Shrunk::Failed(error) => return Err(self.failed(error, String::new(), false)),
        };
        let message = self.scene.ids.message();
        self.scene.emit(TurnEvent::Text { message: &message, text: &text }).await;
        Ok(TurnOutcome { text, ..self.stop(StopReason::EndTurn) })
    }
}

fn none_written(what: &str) -> TurnFailure {
    ModelError::Stream(what.to_owned()).into()
}

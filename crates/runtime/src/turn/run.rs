//! The loop of one turn: ask the model, run its tools, ask again, until it is done or may not go on.
//! It refuses to know vendors, tools and wires; those are behind traits.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tokio_util::sync::CancellationToken;
use zeroclaw_policy::Ruleset;

use crate::{
    client::ClientMeans,
    jail::Jail,
    model::{Message, ModelError, ModelProvider, ModelRequest, ModelStop, Thinking, ToolCallRequest, ToolSpec, Usage},
    tool::ToolSettings,
    turn::{
        Agent, Approver, Asker, Gauge, Remembered, StopReason, TurnError, TurnEvent, TurnFailure, TurnOutcome,
        TurnSink,
        ask::{Answer, Audience, End, ask, total},
        calls::run_calls,
        history::{Composed, compose, spec_tokens, text_tokens, without_broken_off},
        ids::Ids,
        intake::{Call, KnownIds, take_in},
        scene::Scene,
        shrink::{Cause, Shrunk},
        speech::Speech,
    },
};

/// What one turn is given.
pub struct TurnInput<'a> {
    /// The turn's number in its session; message and call ids are made of it, so it is never used twice.
    pub turn: u64,
    /// The system prompt.
    pub system: Arc<str>,
    /// The conversation so far; grows by what this turn adds.
    pub history: &'a mut Vec<Arc<Message>>,
    /// What the user said.
    pub prompt: String,
    /// How much the model is to think; absent leaves it to the vendor.
    pub thinking: Option<Thinking>,
    /// The opened roots; what is judged is judged against exactly these.
    pub jail: Arc<Jail>,
    /// The rules.
    pub rules: Arc<Ruleset>,
    /// Settings of the tools.
    pub settings: Arc<ToolSettings>,
    /// Where events and messages go.
    pub sink: &'a dyn TurnSink,
    /// Who is asked for permission.
    pub approver: &'a dyn Approver,
    /// What the client that sent the prompt lends.
    pub client: ClientMeans,
    /// Who is asked questions.
    pub asker: Arc<dyn Asker>,
    /// The "always" answers of the session. Locked for a look-up or an insertion only, never while something is awaited.
    pub remembered: &'a Mutex<Remembered>,
    /// How far the estimate of tokens is off in this session.
    pub gauge: &'a Gauge,
    /// Ends the turn early.
    pub cancel: CancellationToken,
}

impl fmt::Debug for TurnInput<'_> {
    // Prompts and histories are bodies: they stay out of every log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnInput").field("turn", &self.turn).finish_non_exhaustive()
    }
}

/// Runs one turn to its end.
///
/// Every tool call that was announced has its final status, and every call in the history its result, when this returns.
/// After [`StopReason::Refusal`] the history is what it was before the turn, although its messages were recorded:
/// whoever rebuilds a history from records leaves such a turn out.
/// A conversation that has grown to the limit is made shorter in the history too; see [`TurnSink::compacted`].
///
/// # Errors
/// See [`TurnFailure`]; the history then ends with what was said. A prompt that the vendor refused at once is not in it.
pub async fn run_turn(agent: &Agent, input: TurnInput<'_>) -> Result<TurnOutcome, TurnError> {
    let (scene, parts) = take_apart(agent, input);
    let prompt = parts.prompt.clone();
    Turn::new(&scene, parts).run(prompt).await
}

/// Makes the conversation shorter because the user said so; the prompt is what they wish of the summary.
/// Nothing is added to the history.
///
/// # Errors
/// See [`TurnFailure`]; the history is then what it was.
pub async fn compact(agent: &Agent, input: TurnInput<'_>) -> Result<TurnOutcome, TurnError> {
    let (scene, parts) = take_apart(agent, input);
    let wishes = parts.prompt.clone();
    Turn::new(&scene, parts).obey(&wishes).await
}

/// What a turn is given besides its scene.
struct Parts<'a> {
    number: u64,
    system: Arc<str>,
    history: &'a mut Vec<Arc<Message>>,
    prompt: String,
    thinking: Option<Thinking>,
    gauge: &'a Gauge,
}

fn take_apart<'a>(agent: &'a Agent, input: TurnInput<'a>) -> (Scene<'a>, Parts<'a>) {
    let scene = Scene {
        agent,
        jail: input.jail,
        rules: input.rules,
        settings: input.settings,
        sink: input.sink,
        approver: input.approver,
        client: input.client,
        asker: input.asker,
        remembered: input.remembered,
        cancel: input.cancel,
        ids: Ids::new(input.turn),
    };
    let TurnInput { turn: number, system, history, prompt, thinking, gauge, .. } = input;
    (scene, Parts { number, system, history, prompt, thinking, gauge })
}

/// A turn on its way.
pub(super) struct Turn<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) number: u64,
    system: Arc<str>,
    thinking: Option<Thinking>,
    specs: Arc<[ToolSpec]>,
    known: KnownIds,
    /// Where this turn begins in the history.
    pub(super) start: usize,
    pub(super) history: &'a mut Vec<Arc<Message>>,
    /// Where requests begin in the history; only grows, so that the calls of a turn begin alike.
    pub(super) window_start: usize,
    /// Tokens of the system prompt and the tools, by estimate.
    pub(super) fixed: u64,
    /// Tokens for messages, by estimate, that the vendor takes at most, once it has said that it was too much.
    cap: u64,
    gauge: &'a Gauge,
    /// How many models have given way.
    given_way: usize,
    /// A compaction of this turn came to nothing.
    pub(super) in_vain: bool,
    /// Compactions that were begun.
    pub(super) compactions: u32,
    /// The user asked for a compaction.
    pub(super) ordered: bool,
    /// The client knows that something was left out.
    told: bool,
    pub(super) speech: Speech,
    usage: Option<Usage>,
}

/// The model that is asked.
#[derive(Clone, Copy)]
pub(super) struct Model<'a> {
    /// What it is called where prices are kept; `None` for the chosen one.
    pub(super) id: Option<&'a Arc<str>>,
    pub(super) provider: &'a dyn ModelProvider,
    context_tokens: u64,
    compact_to: Option<u64>,
}

impl<'a> Turn<'a> {
    fn new(scene: &'a Scene<'a>, parts: Parts<'a>) -> Self {
        let Parts { number, system, history, prompt: _, thinking, gauge } = parts;
        let specs = scene.agent.tools.specs_without(&scene.rules.excluded_tools);
        Turn {
            scene,
            number,
            thinking,
            known: KnownIds::of(history),
            start: history.len(),
            history,
            window_start: 0,
            fixed: text_tokens(system.len()).saturating_add(spec_tokens(&specs)),
            system,
            specs,
            cap: u64::MAX,
            gauge,
            given_way: 0,
            in_vain: false,
            compactions: 0,
            ordered: false,
            told: false,
            speech: Speech::default(),
            usage: None,
        }
    }

    /// The model that is asked now.
    pub(super) fn model(&self) -> Model<'a> {
        let agent = self.scene.agent;
        let fallback = self.given_way.checked_sub(1).and_then(|index| agent.fallbacks.get(index));
        match fallback {
            None => Model {
                id: None,
                provider: &*agent.provider,
                context_tokens: agent.limits.context_tokens,
                compact_to: agent.limits.compact_to,
            },
            Some(other) => Model {
                id: Some(&other.id),
                provider: &*other.provider,
                context_tokens: other.context_tokens,
                compact_to: other.compact_to,
            },
        }
    }

    /// Tokens for messages, by estimate.
    pub(super) fn budget(&self) -> u64 {
        self.cap.min(self.gauge.estimated(self.model().context_tokens).saturating_sub(self.fixed))
    }

    /// Tokens that messages take about after a compaction, by estimate; `None` when there is to be none.
    pub(super) fn goal(&self) -> Option<u64> {
        let to = self.gauge.estimated(self.model().compact_to?).saturating_sub(self.fixed);
        // A long system prompt in a small window must not leave nothing for the conversation.
        Some(to.max(self.budget() / 4).min(self.budget()))
    }

    /// From estimated tokens to those that the vendor counts.
    pub(super) fn measured(&self, estimated: u64) -> u64 {
        self.gauge.counted(estimated)
    }

    async fn run(mut self, prompt: String) -> Result<TurnOutcome, TurnError> {
        self.keep(Message::User { text: prompt });
        let mut model_calls = 0;
        loop {
            if self.scene.cancel.is_cancelled() {
                return Ok(self.stop(StopReason::Cancelled));
            }
            if model_calls >= self.scene.agent.limits.max_model_calls {
                return Ok(self.stop(StopReason::MaxTurnRequests));
            }
            model_calls += 1;
            self.shrink_when_due().await;
            let answer = self.ask().await;
            let (text, thought) = self.speech.finish();
            match answer.end {
                End::Stopped(ModelStop::End) if !answer.calls.is_empty() => {
                    let calls = self.take_in(text, thought, answer.calls, answer.signed);
                    run_calls(self.scene, calls, self.history).await;
                }
                End::Stopped(stop) => {
                    self.keep_speech(text, thought);
                    return Ok(self.stop(match stop {
                        ModelStop::End => StopReason::EndTurn,
                        // The calls of a cut answer may be cut themselves, so none of them runs.
                        ModelStop::MaxTokens => StopReason::MaxTokens,
                        ModelStop::Refusal => StopReason::Refusal,
                    }));
                }
                End::Cancelled => {
                    self.keep_speech(text, thought);
                    return Ok(self.stop(StopReason::Cancelled));
                }
                // What breaks while the turn is being cancelled is not news to anybody.
                End::Failed(_) if self.scene.cancel.is_cancelled() => {
                    self.keep_speech(text, thought);
                    return Ok(self.stop(StopReason::Cancelled));
                }
                End::Failed(error) => {
                    let text_so_far = text.clone();
                    self.keep_speech(text, thought);
                    let alone = self.history.len() == self.start + 1;
                    // As with a refusal: what the vendor does not take it does not take in the next request either.
                    let forgotten = alone && matches!(error, TurnFailure::Model(ModelError::Request(_)));
                    if forgotten {
                        self.history.truncate(self.start);
                    }
                    return Err(self.failed(error, text_so_far, forgotten));
                }
            }
        }
    }

    /// Makes one model call; when the vendor refuses the conversation, another one with less of it.
    async fn ask(&mut self) -> Answer {
        let (composed, tokens) = self.compose().await;
        let answer = self.ask_with(composed, tokens).await;
        if self.speech.len() > 0 || !answer.calls.is_empty() {
            return answer;
        }
        match &answer.end {
            End::Failed(TurnFailure::Model(ModelError::ContextOverflow(_))) => self.ask_with_less(answer, tokens).await,
            End::Failed(TurnFailure::Model(ModelError::Request(_))) => self.ask_without_broken_off(answer).await,
            End::Stopped(_) | End::Cancelled | End::Failed(_) => answer,
        }
    }

    async fn ask_with_less(&mut self, answer: Answer, tokens: u64) -> Answer {
        // Of what was sent, not of the budget: the budget may be far above what the model takes.
        self.cap = self.budget().min(tokens) / 100 * OVERFLOW_SHARE;
        match self.shrink(Cause::Overflow, None).await {
            Shrunk::Done | Shrunk::Nothing => {}
            Shrunk::Cancelled => return Answer { end: End::Cancelled, ..answer },
            // The vendor is asked no third time with what it takes for too long.
            Shrunk::Failed(TurnFailure::Model(ModelError::ContextOverflow(_))) => return answer,
            Shrunk::Failed(_) => {}
        }
        let (composed, fewer) = self.compose().await;
        // The same again would fail the same way.
        if fewer >= tokens { answer } else { self.ask_with(composed, fewer).await }
    }

    /// What a vendor refuses for its content it refuses again with every later request, and only a turn that broke off
    /// can hold such a thing. So those are left out once, and for good unless it is refused all the same.
    async fn ask_without_broken_off(&mut self, refused: Answer) -> Answer {
        let Some((earlier, current)) = self.history.split_at_checked(self.start) else { return refused };
        let mut kept = without_broken_off(earlier);
        if kept.len() == earlier.len() {
            return refused;
        }
        let start = kept.len();
        kept.extend_from_slice(current);
        let before = (std::mem::replace(self.history, kept), self.start, self.window_start);
        (self.start, self.window_start) = (start, 0);
        let message = self.scene.ids.message();
        let text = "earlier turns that broke off were left out of this request";
        self.scene.emit(TurnEvent::Thought { message: &message, text }).await;
        let (composed, tokens) = self.compose().await;
        let answer = self.ask_with(composed, tokens).await;
        if let End::Failed(TurnFailure::Model(ModelError::Request(_))) = &answer.end {
            // It was not them.
            (*self.history, self.start, self.window_start) = before;
        }
        answer
    }

    async fn compose(&mut self) -> (Vec<Arc<Message>>, u64) {
        let (composed, begin) = compose(self.history, self.start, self.window_start, self.budget());
        self.window_start = begin;
        let Composed { messages, tokens, turns_left_out, cut_inside } = composed;
        if !self.told && (turns_left_out > 0 || cut_inside > 0) {
            self.told = true;
            let note = match (turns_left_out, cut_inside) {
                (turns, 0) => format!("earlier turns were left out of this request: {turns}"),
                (0, _) => "older steps of this turn were shortened in this request".to_owned(),
                (turns, _) => format!(
                    "earlier turns were left out of this request: {turns}; older steps of this turn were shortened"
                ),
            };
            let message = self.scene.ids.message();
            self.scene.emit(TurnEvent::Thought { message: &message, text: &note }).await;
        }
        (messages, tokens)
    }

    /// Asks the model, and those behind it when it cannot answer and nothing was shown.
    async fn ask_with(&mut self, mut messages: Vec<Arc<Message>>, mut tokens: u64) -> Answer {
        loop {
            let request = ModelRequest {
                system: Arc::clone(&self.system),
                messages: messages.clone(),
                tools: Arc::clone(&self.specs),
                max_output_tokens: self.scene.agent.limits.max_output_tokens,
                thinking: self.level(),
            };
            let answer = self.call(request, Audience::Client).await;
            if let Some(counted) = answer.usage {
                let last = answer.last.unwrap_or(counted);
                self.gauge.learn(tokens.saturating_add(self.fixed), last.input);
                let used = last.input.saturating_add(last.output);
                let model = self.model();
                let size = model.provider.info().context_window;
                let model = model.id.map(AsRef::as_ref);
                self.scene.emit(TurnEvent::Usage { used, size, counted, model }).await;
            }
            let End::Failed(failure) = &answer.end else { return answer };
            if self.speech.len() > 0 || !answer.calls.is_empty() || !self.gives_way(failure).await {
                return answer;
            }
            if tokens > self.budget() {
                (messages, tokens) = self.compose().await;
            }
        }
    }

    /// Makes one call to the model that is asked now; what it says goes into the running speech.
    pub(super) async fn call(&mut self, request: ModelRequest, audience: Audience) -> Answer {
        let retry = self.scene.agent.limits.retry;
        let last = self.given_way >= self.scene.agent.fallbacks.len();
        let retry = if last { retry } else { retry.before_another() };
        let answer = ask(self.scene, self.model().provider, retry, &request, &mut self.speech, audience).await;
        self.usage = total(self.usage, answer.usage);
        answer
    }

    /// Lets the next model take over, when there is one and the failure is the model's and not the request's.
    pub(super) async fn gives_way(&mut self, failure: &TurnFailure) -> bool {
        let TurnFailure::Model(error) = failure else { return false };
        let Some(next) = self.scene.agent.fallbacks.get(self.given_way).filter(|_| is_of_model(error)) else {
            return false;
        };
        let from = self.model().provider.info().name.clone();
        let (message, reason) = (self.scene.ids.message(), error.to_string());
        self.given_way += 1;
        tracing::debug!(event = "model_fallback", to = %next.id, "another model takes over");
        let to = &next.provider.info().name;
        self.scene.emit(TurnEvent::Fallback { message: &message, from: &from, to, reason: &reason }).await;
        true
    }

    /// How much the model that is asked now is to think.
    fn level(&self) -> Option<Thinking> {
        match self.given_way.checked_sub(1).and_then(|index| self.scene.agent.fallbacks.get(index)) {
            None => self.thinking,
            Some(other) => self.thinking.filter(|level| other.levels.contains(level)).or(other.thinking),
        }
    }

    /// Keeps an answer with tool calls and hands the calls out.
    fn take_in(
        &mut self,
        text: String,
        thought: String,
        requests: Vec<ToolCallRequest>,
        signed: Vec<String>,
    ) -> Vec<Call> {
        let (calls, tool_calls) =
            requests.into_iter().map(|request| take_in(request, &self.scene.ids, &mut self.known)).unzip();
        self.keep(Message::Assistant { text, thought, tool_calls, signed });
        calls
    }

    /// Keeps an answer without tool calls, if anything was said.
    fn keep_speech(&mut self, text: String, thought: String) {
        if !text.is_empty() || !thought.is_empty() {
            self.keep(Message::Assistant { text, thought, tool_calls: Vec::new(), signed: Vec::new() });
        }
    }

    fn keep(&mut self, message: Message) {
        let message = Arc::new(message);
        self.scene.sink.record(&message);
        self.history.push(message);
    }

    /// What is left of a turn that failed.
    pub(super) fn failed(self, error: TurnFailure, text_so_far: String, forgotten: bool) -> TurnError {
        TurnError { error, text_so_far, usage: self.usage, forgotten }
    }

    pub(super) fn stop(self, stop: StopReason) -> TurnOutcome {
        match stop {
            // What a model refused it refuses again: the prompt and what followed must not be in the next request.
            StopReason::Refusal => self.history.truncate(self.start),
            StopReason::EndTurn | StopReason::MaxTokens | StopReason::MaxTurnRequests | StopReason::Cancelled => {}
        }
        let model = self.model().id.cloned();
        TurnOutcome { stop, text: self.speech.into_last(), usage: self.usage, model }
    }
}

/// Whether another model may succeed where this one failed with this.
fn is_of_model(error: &ModelError) -> bool {
    match error {
        ModelError::Auth(_)
        | ModelError::Transient { .. }
        | ModelError::Idle(_)
        | ModelError::Stream(_)
        | ModelError::Unusable(_)
        | ModelError::Config(_) => true,
        // What one vendor does not take for what it says is not carried to the next.
        ModelError::ContextOverflow(_) | ModelError::Request(_) => false,
    }
}

/// After an overflow the next request holds this share of what was sent (in percent).
const OVERFLOW_SHARE: u64 = 60;

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
    model::{Message, ModelError, ModelRequest, ModelStop, Thinking, ToolCallRequest, ToolSpec, Usage},
    tool::ToolSettings,
    turn::{
        Agent, Approver, Asker, Remembered, StopReason, TurnError, TurnEvent, TurnFailure, TurnOutcome, TurnSink,
        ask::{Answer, End, ask, total},
        calls::run_calls,
        history::{Composed, compose, spec_tokens, text_tokens, without_broken_off},
        ids::Ids,
        intake::{Call, KnownIds, take_in},
        scene::Scene,
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
///
/// # Errors
/// See [`TurnFailure`]; the history then ends with what was said. A prompt that the vendor refused at once is not in it.
pub async fn run_turn(agent: &Agent, input: TurnInput<'_>) -> Result<TurnOutcome, TurnError> {
    let TurnInput { turn, system, history, prompt, thinking, .. } = input;
    let specs = agent.tools.specs_without(&input.rules.excluded_tools);
    let fixed_tokens = text_tokens(system.len()).saturating_add(spec_tokens(&specs));
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
        ids: Ids::new(turn),
    };
    let turn = Turn {
        scene: &scene,
        system,
        thinking,
        specs,
        known: KnownIds::of(history),
        start: history.len(),
        history,
        window_start: 0,
        budget: agent.limits.context_tokens.saturating_sub(fixed_tokens),
        told: false,
        speech: Speech::default(),
        usage: None,
    };
    turn.run(prompt).await
}

/// A turn on its way.
struct Turn<'a> {
    scene: &'a Scene<'a>,
    system: Arc<str>,
    thinking: Option<Thinking>,
    specs: Arc<[ToolSpec]>,
    known: KnownIds,
    /// Where this turn begins in the history.
    start: usize,
    history: &'a mut Vec<Arc<Message>>,
    /// Where requests begin in the history; only grows, so that the calls of a turn begin alike.
    window_start: usize,
    /// Tokens for messages, by estimate; shrinks when the vendor says it was too much.
    budget: u64,
    /// The client knows that something was left out.
    told: bool,
    speech: Speech,
    usage: Option<Usage>,
}

impl Turn<'_> {
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
                    if alone && matches!(error, TurnFailure::Model(ModelError::Request(_))) {
                        // As with a refusal: what the vendor does not take it does not take in the next request either.
                        self.history.truncate(self.start);
                    }
                    return Err(TurnError { error, text_so_far, usage: self.usage });
                }
            }
        }
    }

    /// Makes one model call; when the vendor refuses the conversation, a second one with less of it.
    async fn ask(&mut self) -> Answer {
        let (composed, tokens) = self.compose().await;
        let answer = self.ask_with(composed).await;
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
        self.budget = self.budget.min(tokens) / 100 * OVERFLOW_SHARE;
        let (composed, fewer) = self.compose().await;
        // The same again would fail the same way.
        if fewer >= tokens { answer } else { self.ask_with(composed).await }
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
        let (composed, _) = self.compose().await;
        let answer = self.ask_with(composed).await;
        if let End::Failed(TurnFailure::Model(ModelError::Request(_))) = &answer.end {
            // It was not them.
            (*self.history, self.start, self.window_start) = before;
        }
        answer
    }

    async fn compose(&mut self) -> (Vec<Arc<Message>>, u64) {
        let (composed, begin) = compose(self.history, self.start, self.window_start, self.budget);
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

    async fn ask_with(&mut self, messages: Vec<Arc<Message>>) -> Answer {
        let request = ModelRequest {
            system: Arc::clone(&self.system),
            messages,
            tools: Arc::clone(&self.specs),
            max_output_tokens: self.scene.agent.limits.max_output_tokens,
            thinking: self.thinking,
        };
        let answer = ask(self.scene, &request, &mut self.speech).await;
        self.usage = total(self.usage, answer.usage);
        if let Some(counted) = answer.usage {
            let last = answer.last.unwrap_or(counted);
            let used = last.input.saturating_add(last.output);
            let size = self.scene.agent.provider.info().context_window;
            self.scene.emit(TurnEvent::Usage { used, size, counted }).await;
        }
        answer
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

    fn stop(self, stop: StopReason) -> TurnOutcome {
        match stop {
            // What a model refused it refuses again: the prompt and what followed must not be in the next request.
            StopReason::Refusal => self.history.truncate(self.start),
            StopReason::EndTurn | StopReason::MaxTokens | StopReason::MaxTurnRequests | StopReason::Cancelled => {}
        }
        TurnOutcome { stop, text: self.speech.into_last(), usage: self.usage }
    }
}

/// After an overflow the next request holds this share of what was sent (in percent).
const OVERFLOW_SHARE: u64 = 60;

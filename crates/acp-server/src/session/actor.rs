//! A session's actor: takes inputs one after the other, in the order they arrived, and starts at most one turn at a time.
//! It waits for nothing but its own opening and end, so that an input is never held up by a turn or by a client.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt as _;
use serde_json::value::RawValue;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use zeroclaw_acp_protocol::{
    AvailableCommand, CommandInput, ErrorKind, RequestId, SessionUpdate,
    params::{OptionValue, SessionEventParams},
    result::{Empty, EventResult, StopResult},
};
use zeroclaw_runtime::{model::Message, turn::Flow};
use zeroclaw_session_store::{EventKind, StoreError};

use super::{
    Pump,
    attach::{self, Reason},
    audience::{JoinError, Since},
    copy,
    live::{Input, LiveSession, Untaken},
    open::{self, Opened, Opening},
    turn::{Asked, Presented, TurnDone, TurnScene},
};
use crate::{
    client::{Client, lock},
    commands::{self, SESSION_COMMANDS},
    error::CallError,
    server::Shared,
};

/// Notes of one session that wait for the next prompt, at most, and the bytes of one event.
const MAX_NOTES: usize = 32;
const MAX_EVENT: usize = 64 * 1024;

/// Injected events between two prompts, at most: they are kept in the log for good.
const MAX_EVENTS: usize = 256;

/// Enters a session into the table and opens it in a task of its own, so that no other session waits for its files.
pub(crate) fn start(server: &Arc<Shared>, id: Arc<str>, opening: Opening) -> Arc<LiveSession> {
    let opener = Arc::clone(opening.client());
    let (live, inputs) = LiveSession::new(id, Arc::clone(&opener), opening.after());
    opener.hand_to(opening.request(), &live.id);
    server.enter(&live);
    guard(server, &live, opener, run(Arc::clone(server), Arc::clone(&live), inputs, opening));
    live
}

/// Runs a session in a task of its own. A panic that nothing inside of it takes is its end: it can be loaded again, and
/// whoever waits for an answer of it gets one.
fn guard(
    server: &Arc<Shared>,
    live: &Arc<LiveSession>,
    opener: Arc<Client>,
    life: impl Future<Output = ()> + Send + 'static,
) {
    let (server, live) = (Arc::clone(server), Arc::clone(live));
    tokio::spawn(async move {
        if AssertUnwindSafe(life).catch_unwind().await.is_ok() {
            return;
        }
        tracing::error!(session = %live.id, "a session panicked and has ended");
        // What it had begun runs in tasks of their own.
        live.cancel();
        if let Some(store) = server.durable() {
            match AssertUnwindSafe(store.release(&live.id)).catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => tracing::warn!(session = %live.id, "a session could not be released"),
            }
        }
        server.leave(&live);
        live.ended.cancel();
        live.fail_all(Some(&opener));
    });
}

async fn run(server: Arc<Shared>, live: Arc<LiveSession>, mut inputs: mpsc::Receiver<Input>, opening: Opening) {
    let (client, id) = (Arc::clone(opening.client()), opening.request().clone());
    let opened = open::open(&server, &live.id, opening).await;
    let end = match opened {
        Ok(opened) => Actor::new(Arc::clone(&live), opened, inputs).run().await,
        Err(error) => {
            inputs.close();
            server.leave(&live);
            live.ended.cancel();
            client.respond::<()>(&id, Err(&error));
            inputs
        }
    };
    too_late(&live, end).await;
}

/// Removes a session's record, once the session that is live under its id has ended. What comes for the id meanwhile waits.
pub(crate) fn remove(
    server: &Arc<Shared>,
    id: Arc<str>,
    client: Arc<Client>,
    request: RequestId,
    after: Option<Arc<LiveSession>>,
) {
    let (live, mut inputs) = LiveSession::new(id, Arc::clone(&client), after.as_ref());
    live.closes();
    client.hand_to(&request, &live.id);
    server.enter(&live);
    let (shared, entered, opener) = (Arc::clone(server), Arc::clone(&live), Arc::clone(&client));
    let life = async move {
        if let Some(before) = after {
            before.shut_down();
            before.ended().await;
        }
        let deleted = copy::delete(&shared, &live.id).await;
        inputs.close();
        shared.leave(&live);
        live.ended.cancel();
        match deleted {
            Ok(()) => client.respond(&request, Ok(&Empty {})),
            Err(error) => client.respond::<()>(&request, Err(&error)),
        }
        too_late(&live, inputs).await;
    };
    guard(server, &entered, opener, life);
}

/// Answers what waited when the session ended.
async fn too_late(live: &LiveSession, mut inputs: mpsc::Receiver<Input>) {
    while let Some(input) = inputs.recv().await {
        match input {
            Input::Welcome { client, id, .. }
            | Input::Attach { client, id, .. }
            | Input::Prompt { client, id, .. }
            | Input::SetMode { client, id, .. }
            | Input::SetOption { client, id, .. }
            | Input::Close { client, id }
            | Input::Event { client, id: Some(id), .. } => {
                client.respond::<()>(&id, Err(&CallError::session_not_found(&live.id)));
            }
            Input::Stop { client, id } => {
                client.respond(&id, Ok(&StopResult { session_id: &live.id, stopped: true }));
            }
            Input::Unshown { client, id, error } => client.respond::<()>(&id, Err(&error)),
            Input::Event { id: None, .. } | Input::Commands => {}
        }
    }
}

struct Running {
    task: JoinHandle<TurnDone>,
    cancel: CancellationToken,
    asked: Asked,
}

struct Actor {
    live: Arc<LiveSession>,
    scene: Arc<TurnScene>,
    inputs: mpsc::Receiver<Input>,
    history: Vec<Arc<Message>>,
    next_turn: u64,
    running: Option<Running>,
    /// The turn is cancelled because nobody came for it.
    expired: bool,
    notes: Vec<String>,
    /// Injected events since the last prompt.
    events: usize,
    /// Stop requests that wait for the running turn; while there are any, no prompt is taken.
    stops: Vec<(Arc<Client>, RequestId)>,
    announced: bool,
    /// A client has the session: one made it, or a load or resume went well.
    welcomed: Arc<AtomicBool>,
    _output: OpenOutput,
}

/// Ends a session's output, in whatever way the session ends.
struct OpenOutput(Arc<Pump>);

impl Drop for OpenOutput {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// How the actor goes on after an input.
enum Next {
    Stay,
    End(Option<Goodbye>),
}

/// Who is told that the session has ended, besides those that wait for a stop.
enum Goodbye {
    Closed(Arc<Client>, RequestId),
    /// The session could not be shown, so it does not stay.
    Unshown(Arc<Client>, RequestId, CallError),
}

impl Actor {
    fn new(live: Arc<LiveSession>, opened: Opened, inputs: mpsc::Receiver<Input>) -> Self {
        let welcomed = Arc::new(AtomicBool::new(opened.welcome.is_none()));
        let mut actor = Self {
            _output: OpenOutput(Arc::clone(&opened.scene.pump)),
            live,
            scene: opened.scene,
            inputs,
            history: opened.standing.history,
            next_turn: opened.standing.next_turn,
            running: None,
            expired: false,
            notes: Vec::new(),
            events: 0,
            stops: Vec::new(),
            announced: false,
            welcomed,
        };
        *lock(&actor.live.slot) = Some(opened.slot);
        if let Some((client, id, replay)) = opened.welcome {
            actor.welcome(client, id, replay);
        } else {
            actor.live.announce_later();
        }
        actor
    }

    /// Runs to the end and gives back what was not taken.
    async fn run(mut self) -> mpsc::Receiver<Input> {
        let broken = self.scene.pump.broken().clone();
        let goodbye = loop {
            let patience = self.patience();
            let next = tokio::select! {
                // What was handed over before the end is still taken: it is answered like everything else.
                biased;
                done = Self::turn_done(&mut self.running), if self.running.is_some() => self.after_turn(done),
                () = broken.cancelled() => Next::End(None),
                input = self.inputs.recv() => match input {
                    Some(input) => self.take_safely(input),
                    None => Next::End(None),
                },
                () = self.live.alone_for(patience), if !self.expired => self.nobody_came(),
                () = self.live.shutdown.cancelled() => Next::End(None),
            };
            match next {
                Next::Stay => {}
                Next::End(goodbye) => break goodbye,
            }
        };
        self.end(goodbye).await
    }

    async fn turn_done(running: &mut Option<Running>) -> Option<TurnDone> {
        match running {
            Some(running) => (&mut running.task).await.ok(),
            None => std::future::pending().await,
        }
    }

    /// How long the session goes on without a client.
    fn patience(&self) -> Duration {
        let settings = &self.scene.server.settings;
        if self.running.is_some() { settings.detach_grace } else { settings.session_timeout }
    }

    fn nobody_came(&mut self) -> Next {
        let Some(running) = &self.running else { return Next::End(None) };
        running.cancel.cancel();
        self.expired = true;
        Next::Stay
    }

    /// Takes an input. One that panics is answered with an error and changes nothing for those behind it.
    fn take_safely(&mut self, input: Input) -> Next {
        let asked = input.request().map(|(client, id)| (Arc::clone(client), id.clone()));
        if let Ok(next) = catch_unwind(AssertUnwindSafe(|| self.take(input))) {
            return next;
        }
        tracing::error!(session = %self.live.id, "an input of a session panicked");
        if let Some((client, id)) = asked {
            self.live.answered(&client, &id);
            client.fail(&id);
        }
        // Nobody would close a session that nobody could be shown.
        if self.welcomed.load(Ordering::Acquire) { Next::Stay } else { Next::End(None) }
    }

    fn take(&mut self, input: Input) -> Next {
        match input {
            Input::Prompt { client, id, raw, cancel } => self.prompt(Asked { client, id }, raw, cancel),
            Input::Close { client, id } => return Next::End(Some(Goodbye::Closed(client, id))),
            Input::Stop { client, id } => {
                self.stops.push((client, id));
                return self.end_when_stopped();
            }
            Input::Event { client, id, params, raw } => self.event(&client, id.as_ref(), params, &raw),
            Input::Welcome { client, id, replay } => self.welcome(client, id, replay),
            Input::Attach { client, id, after } => {
                attach::attach(&self.live, &self.scene.pump, &client, id, after);
            }
            Input::SetMode { client, id, mode } => self.set_mode(client, id, &mode),
            Input::SetOption { client, id, option, value } => self.set_option(client, id, &option, &value),
            Input::Unshown { client, id, error } => return Next::End(Some(Goodbye::Unshown(client, id, error))),
            Input::Commands => self.commands(),
        }
        Next::Stay
    }

    fn prompt(&mut self, asked: Asked, raw: Box<RawValue>, cancel: CancellationToken) {
        if self.running.is_some() {
            return self.refuse(&asked, &CallError::busy(&self.scene.id));
        }
        if !self.stops.is_empty() {
            return self.refuse(&asked, &CallError::session_not_found(&self.scene.id));
        }
        let renewed = self.scene.renew();
        if !std::mem::replace(&mut self.announced, true) || renewed {
            self.commands();
        }
        self.events = 0;
        // Cloned so that a turn that is lost to a panic does not take the conversation along; the messages are shared.
        let history = self.history.clone();
        let notes = std::mem::take(&mut self.notes);
        attach::began(&self.live, &self.scene.pump, &asked);
        let turn = Arc::clone(&self.scene).run(self.next_turn, raw, notes, history, asked.clone(), cancel.clone());
        self.running = Some(Running { task: tokio::spawn(turn), cancel, asked });
    }

    fn refuse(&self, asked: &Asked, error: &CallError) {
        self.live.answered(&asked.client, &asked.id);
        asked.client.respond::<()>(&asked.id, Err(error));
    }

    fn after_turn(&mut self, done: Option<TurnDone>) -> Next {
        let known = done.is_some();
        if let Some(running) = self.running.take() {
            self.settle_safely(&running.asked, done);
        }
        // Nobody knows how far a turn was stored whose own bookkeeping panicked; what opens the session again sees.
        if known { self.end_when_stopped() } else { Next::End(None) }
    }

    fn settle_safely(&mut self, asked: &Asked, done: Option<TurnDone>) {
        if catch_unwind(AssertUnwindSafe(|| self.settle(asked, done))).is_err() {
            tracing::error!(session = %self.live.id, "the answer to a prompt panicked");
            asked.client.fail(&asked.id);
        }
    }

    /// Takes over what a turn leaves, then answers: a prompt that follows the answer finds the session free.
    fn settle(&mut self, asked: &Asked, done: Option<TurnDone>) {
        self.live.answered(&asked.client, &asked.id);
        self.expired = false;
        self.live.touch();
        match done {
            Some(done) => {
                self.history = done.history;
                self.next_turn += u64::from(done.began);
                // Notes that came meanwhile stay behind those that were given back.
                let later = std::mem::replace(&mut self.notes, done.notes);
                self.notes.extend(later);
                let ended = self.scene.ended(asked, &done.answer);
                attach::ended(&self.live, &self.scene.pump, asked, ended);
                let (scene, asked, answer) = (Arc::clone(&self.scene), asked.clone(), done.answer);
                self.scene.pump.answer(&asked.client.clone(), move || scene.answer(&asked, &answer));
            }
            None => {
                // The task guards against panics inside of the turn; this is one in our own bookkeeping.
                self.next_turn += 1;
                let error = CallError::new(ErrorKind::Internal, "the turn failed: internal error");
                let ended = attach::Ended::Error(asked.client.wire_error(&error));
                attach::ended(&self.live, &self.scene.pump, asked, ended);
                let asked = asked.clone();
                self.scene
                    .pump
                    .answer(&asked.client.clone(), move || asked.client.respond::<()>(&asked.id, Err(&error)));
            }
        }
    }

    fn end_when_stopped(&mut self) -> Next {
        if self.stops.is_empty() || self.running.is_some() { Next::Stay } else { Next::End(None) }
    }

    fn event(&mut self, client: &Arc<Client>, id: Option<&RequestId>, params: SessionEventParams, raw: &RawValue) {
        let outcome = self.log_event(params, raw);
        match (outcome, id) {
            (Ok(kind), Some(id)) => {
                let result = EventResult { session_id: &self.scene.id, r#type: &kind, status: "processed" };
                client.respond(id, Ok(&result));
            }
            (Err(error), Some(id)) => client.respond::<()>(id, Err(&error)),
            (Ok(_), None) => {}
            (Err(error), None) => tracing::debug!(error = error.message, "an injected event was dropped"),
        }
    }

    /// Enters an injected event into the log and keeps its text for the model; gives back its type.
    fn log_event(&mut self, params: SessionEventParams, raw: &RawValue) -> Result<String, CallError> {
        if raw.get().len() > MAX_EVENT {
            return Err(CallError::params(format!("an event has at most {MAX_EVENT} bytes")));
        }
        if self.events >= MAX_EVENTS {
            return Err(CallError::params(format!("at most {MAX_EVENTS} events fit between two prompts")));
        }
        if params.text.is_some() && self.notes.len() >= MAX_NOTES {
            return Err(CallError::params(format!("at most {MAX_NOTES} notes wait for the next prompt")));
        }
        self.events += 1;
        let payload = Bytes::copy_from_slice(raw.get().as_bytes());
        match self.scene.pump.event(EventKind::ClientEvent, None, |out| out.extend_from_slice(&payload)) {
            Flow::Ready | Flow::Full => {}
        }
        if let Some(text) = params.text {
            self.notes.push(format!("[Note from the client, {}]\n{text}", params.kind));
        }
        Ok(params.kind)
    }

    fn set_mode(&self, client: Arc<Client>, id: RequestId, mode: &str) {
        match self.scene.change(None, |chosen, entry| chosen.set_mode(entry, mode)) {
            Ok(()) => {
                let told = Arc::clone(&client);
                self.scene.pump.answer_later(&client, move || told.respond(&id, Ok(&Empty {})));
            }
            Err(error) => client.respond::<()>(&id, Err(&error)),
        }
    }

    fn set_option(&self, client: Arc<Client>, id: RequestId, option: &str, value: &OptionValue) {
        if self.running.is_none() && self.scene.renew() {
            self.commands();
        }
        match self.scene.change(Some(&client), |chosen, entry| chosen.set_option(entry, option, value)) {
            Ok(()) => {
                let scene = Arc::clone(&self.scene);
                let told = Arc::clone(&client);
                self.scene.pump.answer_later(&client, move || scene.present(&told, &id, Presented::Options));
            }
            Err(error) => client.respond::<()>(&id, Err(&error)),
        }
    }

    /// Shows the session to a client and answers. The replay goes through the pump, so everything later follows it.
    fn welcome(&mut self, client: Arc<Client>, id: RequestId, replay: bool) {
        self.live.announce_later();
        let (live, welcomed, scene) = (Arc::clone(&self.live), Arc::clone(&self.welcomed), Arc::clone(&self.scene));
        if !replay {
            welcomed.store(true, Ordering::Release);
        }
        let (shown, since) = (Arc::clone(&client), if replay { Since::Start } else { Since::Now });
        self.scene.pump.join(&client, since, move || {
            move |joined: Result<u64, JoinError>| match joined.map_err(attach::refusal) {
                Ok(seq) => {
                    welcomed.store(true, Ordering::Release);
                    scene.present(&shown, &id, Presented::Again { seq });
                }
                Err(error) if welcomed.load(Ordering::Acquire) => shown.respond::<()>(&id, Err(&error)),
                // The client knows nothing of a session whose load failed and would never close it.
                Err(error) => match live.send(Input::Unshown { client: shown, id, error }) {
                    Ok(()) => {}
                    Err(Untaken::Ended(input) | Untaken::Full(input)) => {
                        if let Input::Unshown { client, id, error } = input {
                            client.respond::<()>(&id, Err(&error));
                        }
                    }
                },
            }
        });
    }

    /// Tells every client the slash commands. They are state of now, not history, so they are not logged.
    fn commands(&self) {
        let scene = Arc::clone(&self.scene);
        tokio::task::spawn_blocking(move || {
            let chosen = lock(&scene.chosen).clone();
            let entry = scene.entry();
            let files = commands::read(&scene.workspace, &entry, &chosen);
            let own = chosen.model(&entry).map_or(&[][..], |choice| &choice.commands);
            let command = |name, description, hint: Option<&'static str>| AvailableCommand {
                name,
                description,
                input: hint.filter(|hint| !hint.is_empty()).map(|hint| CommandInput { hint }),
            };
            let mut all: Vec<AvailableCommand<'_>> =
                own.iter().map(|own| command(own.name, own.description, Some(own.hint))).collect();
            all.extend(SESSION_COMMANDS.iter().map(|(name, description, hint)| command(name, description, Some(hint))));
            all.extend(files.iter().map(|file| AvailableCommand {
                name: &file.name,
                description: &file.description,
                input: file.hint.as_deref().map(|hint| CommandInput { hint }),
            }));
            scene.tell(&SessionUpdate::AvailableCommandsUpdate { available_commands: &all }, None);
        });
    }

    /// Tells clients that did not ask for it that the session ends.
    fn say_why(&self, goodbye: Option<&Goodbye>) {
        let mut answered: Vec<&Arc<Client>> = self.stops.iter().map(|(client, _)| client).collect();
        let reason = match goodbye {
            Some(Goodbye::Closed(client, _)) => {
                answered.push(client);
                Reason::Closed
            }
            Some(Goodbye::Unshown(client, ..)) => {
                answered.push(client);
                Reason::Failed
            }
            None if self.scene.server.is_ending() => Reason::ServerEnding,
            None if self.live.shutdown.is_cancelled() => Reason::Deleted,
            None if answered.is_empty() => Reason::Failed,
            None => Reason::Stopped,
        };
        attach::closed(&self.live.id, &self.scene.pump, reason, &answered);
    }

    /// Cancels what runs, stores what is left, gives the session up and says goodbye.
    async fn end(mut self, goodbye: Option<Goodbye>) -> mpsc::Receiver<Input> {
        if let Some(running) = self.running.take() {
            running.cancel.cancel();
            let done = running.task.await.ok();
            self.settle_safely(&running.asked, done);
        }
        self.scene.mcp.servers().stop().await;
        // Nothing is taken from here on; what waits is answered by whoever gets it back.
        self.inputs.close();
        let saved = self.scene.pump.barrier().await;
        self.say_why(goodbye.as_ref());
        self.scene.clean_up().await;
        self.scene.pump.close();
        if let Some(store) = self.scene.server.log() {
            let given_up = if store.is_durable() {
                store.release(&self.scene.id).await
            } else {
                // Nobody can load it again.
                store.delete(&self.scene.id).await.map(|_| ())
            };
            match given_up {
                Ok(()) | Err(StoreError::NotFound | StoreError::Closed) => {}
                Err(error) => tracing::warn!(session = %self.scene.id, %error, "a session could not be released"),
            }
        }
        // Only now may it be loaded again: an earlier claim would fall to the release above.
        self.scene.server.leave(&self.live);
        // Whoever is told of the end finds the place free.
        let slot = lock(&self.live.slot).take();
        drop(slot);
        self.live.ended.cancel();
        if self.scene.pump.broken().is_cancelled() {
            // Answers that were to follow what was said before are lost with it.
            self.live.fail_all(None);
        }
        let unsaved =
            CallError::new(ErrorKind::Internal, "the session has ended, but its last turns could not be saved");
        let outcome = if saved { Ok(()) } else { Err(unsaved) };
        let pump = &self.scene.pump;
        match goodbye {
            Some(Goodbye::Closed(client, id)) => {
                let outcome = outcome.clone().map(|()| Empty {});
                pump.answer(&client.clone(), move || client.respond(&id, outcome.as_ref()));
            }
            Some(Goodbye::Unshown(client, id, error)) => client.respond::<()>(&id, Err(&error)),
            None => {}
        }
        for (client, id) in std::mem::take(&mut self.stops) {
            let (session, outcome) = (Arc::clone(&self.scene.id), outcome.clone());
            pump.answer(&client.clone(), move || {
                let result = outcome.as_ref().map(|()| StopResult { session_id: &session, stopped: true });
                client.respond(&id, result.as_ref().map_err(|error| *error));
            });
        }
        self.inputs
    }
}

//! A session's actor: takes inputs one after the other, in the order they arrived, and starts at most one turn at a time.
//! It never waits for a turn while it can take a cancel.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use zeroclaw_acp_protocol::{
    AvailableCommand, CommandInput, ErrorKind, RequestId, SessionUpdate, UpdateFrame,
    params::SessionEventParams,
    result::{Empty, EventResult, StopResult},
};
use zeroclaw_runtime::{model::Message, turn::Flow};
use zeroclaw_session_store::{EventKind, StoreError};

use super::{
    open::Standing,
    turn::{Asked, TurnDone, TurnScene},
};
use crate::{client::Client, encode, error::CallError, server::Slot};

/// Inputs that wait for the actor. It takes each at once, so this only smooths bursts; a full mailbox makes its sender wait.
const MAILBOX: usize = 64;

/// Notes of one session that wait for the next prompt, at most, and the bytes of one.
const MAX_NOTES: usize = 32;
const MAX_NOTE: usize = 64 * 1024;

/// Several editors drop what comes for a session before they have handled the answer to `session/new`.
const COMMANDS_DELAY: Duration = Duration::from_millis(75);

/// Something for a session to do.
pub(crate) enum Input {
    Prompt {
        client: Arc<Client>,
        id: RequestId,
        raw: Box<RawValue>,
    },
    Cancel,
    /// Cancels the turn only if it is the one of this request.
    CancelPrompt {
        client: Arc<Client>,
        id: RequestId,
    },
    Close {
        client: Arc<Client>,
        id: RequestId,
    },
    Stop {
        client: Arc<Client>,
        id: RequestId,
    },
    Event {
        client: Arc<Client>,
        id: Option<RequestId>,
        params: SessionEventParams,
        raw: Box<RawValue>,
    },
    /// Replays the log to the client (load), then answers; or only answers (resume).
    Welcome {
        client: Arc<Client>,
        id: RequestId,
        replay: bool,
    },
    Commands,
    /// Ends the session without an answer to anybody; resolves when it is stored.
    Shutdown(oneshot::Sender<()>),
}

/// The handle of a live session.
#[derive(Debug)]
pub(crate) struct LiveSession {
    pub(crate) id: Arc<str>,
    pub(crate) cwd: PathBuf,
    inputs: mpsc::Sender<Input>,
    scene: Arc<TurnScene>,
}

impl LiveSession {
    /// Hands over an input; gives it back when the session has ended.
    pub(crate) async fn send(&self, input: Input) -> Result<(), Input> {
        self.inputs.send(input).await.map_err(|error| error.0)
    }

    pub(crate) fn is_held_by(&self, client: &Arc<Client>) -> bool {
        self.scene.pump.clients().iter().any(|known| Arc::ptr_eq(known, client))
    }

    /// Makes answers of this client to the session's open questions count no more, before it cancels or closes.
    pub(crate) fn void_questions(&self, client: &Client) {
        client.void_questions(&self.scene.pump);
    }

    /// Sends the slash commands after a short while.
    pub(crate) fn announce_later(self: &Arc<Self>) {
        let session = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(COMMANDS_DELAY).await;
            // A session that ended meanwhile has nothing to announce.
            drop(session.send(Input::Commands).await);
        });
    }
}

/// Starts the actor and enters the session into the table.
pub(super) fn start(scene: Arc<TurnScene>, standing: Standing, slot: Slot) -> Arc<LiveSession> {
    let (sender, inputs) = mpsc::channel(MAILBOX);
    let live = Arc::new(LiveSession {
        id: Arc::clone(&scene.id),
        cwd: scene.workspace.cwd.clone(),
        inputs: sender,
        scene: Arc::clone(&scene),
    });
    scene.server.enter(&live);
    let actor = Actor {
        scene,
        inputs,
        history: standing.history,
        next_turn: standing.next_turn,
        running: None,
        notes: Vec::new(),
        stops: Vec::new(),
        announced: false,
        welcomed: standing.welcomed,
        slot: Some(slot),
    };
    tokio::spawn(actor.run());
    live
}

struct Running {
    task: JoinHandle<TurnDone>,
    cancel: CancellationToken,
    asked: Asked,
}

struct Actor {
    scene: Arc<TurnScene>,
    inputs: mpsc::Receiver<Input>,
    history: Vec<Arc<Message>>,
    next_turn: u64,
    running: Option<Running>,
    notes: Vec<String>,
    /// Stop requests that wait for the running turn; while there are any, no prompt is taken.
    stops: Vec<(Arc<Client>, RequestId)>,
    announced: bool,
    /// A client holds the session: one made it, or a load or resume went well.
    welcomed: bool,
    /// Given back at the end, before anybody is told of the end.
    slot: Option<Slot>,
}

/// How the actor goes on after an input.
enum Next {
    Stay,
    End(Vec<Goodbye>),
}

/// Who is told that the session has ended.
enum Goodbye {
    Closed(Arc<Client>, RequestId),
    Stopped(Arc<Client>, RequestId),
    /// The session could not be shown, so it does not stay.
    Unshown(Arc<Client>, RequestId, StoreError),
    Signal(oneshot::Sender<()>),
}

impl Actor {
    async fn run(mut self) {
        let goodbyes = loop {
            let next = tokio::select! {
                biased;
                done = Self::turn_done(&mut self.running), if self.running.is_some() => self.after_turn(done),
                input = self.inputs.recv() => match input {
                    Some(input) => self.take(input).await,
                    None => Next::End(Vec::new()),
                },
            };
            match next {
                Next::Stay => {}
                Next::End(goodbyes) => break goodbyes,
            }
        };
        self.end(goodbyes).await;
    }

    async fn turn_done(running: &mut Option<Running>) -> Option<TurnDone> {
        match running {
            Some(running) => (&mut running.task).await.ok(),
            None => std::future::pending().await,
        }
    }

    async fn take(&mut self, input: Input) -> Next {
        match input {
            Input::Prompt { client, id, raw } => self.prompt(client, id, raw),
            Input::Cancel => {
                if let Some(running) = &self.running {
                    running.cancel.cancel();
                }
            }
            Input::CancelPrompt { client, id } => {
                if let Some(running) = &self.running
                    && running.asked.id == id
                    && Arc::ptr_eq(&running.asked.client, &client)
                {
                    running.cancel.cancel();
                }
            }
            Input::Close { client, id } => return Next::End(vec![Goodbye::Closed(client, id)]),
            Input::Stop { client, id } => {
                self.stops.push((client, id));
                return self.end_when_stopped();
            }
            Input::Event { client, id, params, raw } => self.event(&client, id.as_ref(), params, &raw),
            Input::Welcome { client, id, replay } => return self.welcome(client, id, replay).await,
            Input::Commands => self.commands(),
            Input::Shutdown(done) => return Next::End(vec![Goodbye::Signal(done)]),
        }
        Next::Stay
    }

    fn prompt(&mut self, client: Arc<Client>, id: RequestId, raw: Box<RawValue>) {
        if self.running.is_some() {
            client.respond::<()>(&id, Err(&CallError::busy(&self.scene.id)));
            return;
        }
        if !self.stops.is_empty() {
            client.respond::<()>(&id, Err(&CallError::session_not_found(&self.scene.id)));
            return;
        }
        if !std::mem::replace(&mut self.announced, true) {
            self.commands();
        }
        let cancel = CancellationToken::new();
        let asked = Asked { client, id };
        // Cloned so that a turn that is lost to a panic does not take the conversation along; the messages are shared.
        let history = self.history.clone();
        let notes = std::mem::take(&mut self.notes);
        let turn = Arc::clone(&self.scene).run(self.next_turn, raw, notes, history, asked.clone(), cancel.clone());
        self.running = Some(Running { task: tokio::spawn(turn), cancel, asked });
    }

    fn after_turn(&mut self, done: Option<TurnDone>) -> Next {
        let Some(running) = self.running.take() else { return Next::Stay };
        match done {
            Some(done) => {
                self.history = done.history;
                self.next_turn += u64::from(done.began);
                // Only now: a prompt that follows the answer finds the session free.
                self.scene.answer(&running.asked, &done.answer);
            }
            None => {
                // The task guards against panics inside of the turn; this is one in our own bookkeeping.
                self.next_turn += 1;
                let error = CallError::new(ErrorKind::Internal, "the turn failed: internal error");
                running.asked.client.respond::<()>(&running.asked.id, Err(&error));
            }
        }
        self.end_when_stopped()
    }

    fn end_when_stopped(&mut self) -> Next {
        if self.stops.is_empty() || self.running.is_some() {
            return Next::Stay;
        }
        Next::End(self.stops.drain(..).map(|(client, id)| Goodbye::Stopped(client, id)).collect())
    }

    fn event(&mut self, client: &Arc<Client>, id: Option<&RequestId>, params: SessionEventParams, raw: &RawValue) {
        let refused = if raw.get().len() > MAX_NOTE {
            Some(format!("an event has at most {MAX_NOTE} bytes"))
        } else if self.notes.len() >= MAX_NOTES && params.text.is_some() {
            Some(format!("at most {MAX_NOTES} notes wait for the next prompt"))
        } else {
            None
        };
        if let Some(why) = refused {
            if let Some(id) = id {
                client.respond::<()>(id, Err(&CallError::params(why)));
            }
            return;
        }
        let payload = Bytes::copy_from_slice(raw.get().as_bytes());
        match self.scene.pump.event(EventKind::ClientEvent, None, |out| out.extend_from_slice(&payload)) {
            Flow::Ready | Flow::Full => {}
        }
        if let Some(text) = params.text {
            self.notes.push(format!("[Note from the client, {}]\n{text}", params.kind));
        }
        if let Some(id) = id {
            let result = EventResult { session_id: &self.scene.id, r#type: &params.kind, status: "processed" };
            client.respond(id, Ok(&result));
        }
    }

    async fn welcome(&mut self, client: Arc<Client>, id: RequestId, replay: bool) -> Next {
        let result = if replay { self.scene.pump.replay(&client).await } else { Ok(()) };
        match result {
            Ok(()) => {
                self.welcomed = true;
                client.respond(&id, Ok(&Empty {}));
            }
            Err(error) if self.welcomed => client.respond::<()>(&id, Err(&CallError::from(error))),
            // The client knows nothing of a session whose load failed and would never close it.
            Err(error) => return Next::End(vec![Goodbye::Unshown(client, id, error)]),
        }
        Next::Stay
    }

    /// Tells every client the slash commands. They are state of now, not history, so they are not logged.
    fn commands(&self) {
        let commands: Vec<AvailableCommand<'_>> = self
            .scene
            .entry
            .commands
            .iter()
            .map(|command| AvailableCommand {
                name: command.name,
                description: command.description,
                input: (!command.hint.is_empty()).then_some(CommandInput { hint: command.hint }),
            })
            .collect();
        let mut update = Vec::new();
        encode::write(&mut update, &SessionUpdate::AvailableCommandsUpdate { available_commands: &commands });
        for client in self.scene.pump.clients() {
            let mut line = Vec::new();
            UpdateFrame::new(&self.scene.id).write(&mut line, &update, None);
            self.scene.pump.line(&client, line);
        }
    }

    /// Cancels what runs, stores what is left, gives the session up and says goodbye.
    async fn end(mut self, goodbyes: Vec<Goodbye>) {
        if let Some(running) = self.running.take() {
            running.cancel.cancel();
            let answer = match running.task.await {
                Ok(done) => done.answer,
                Err(_) => Err(CallError::new(ErrorKind::Internal, "the turn failed: internal error")),
            };
            self.scene.answer(&running.asked, &answer);
        }
        // Nothing is taken from here on; what waits is answered.
        self.inputs.close();
        self.scene.pump.barrier().await;
        self.scene.pump.close();
        if let Some(store) = self.scene.server.durable() {
            match store.release(&self.scene.id).await {
                Ok(()) | Err(StoreError::NotFound | StoreError::Closed) => {}
                Err(error) => tracing::warn!(session = %self.scene.id, %error, "a session could not be released"),
            }
        }
        // Only now may it be loaded again: an earlier claim would fall to the release above.
        self.scene.server.leave(&self.scene.id);
        // Whoever is told of the end finds the place free.
        drop(self.slot.take());
        for goodbye in goodbyes {
            self.say(goodbye);
        }
        for (client, id) in std::mem::take(&mut self.stops) {
            self.say(Goodbye::Stopped(client, id));
        }
        while let Some(input) = self.inputs.recv().await {
            self.too_late(input);
        }
    }

    fn say(&self, goodbye: Goodbye) {
        match goodbye {
            Goodbye::Closed(client, id) => client.respond(&id, Ok(&Empty {})),
            Goodbye::Stopped(client, id) => {
                client.respond(&id, Ok(&StopResult { session_id: &self.scene.id, stopped: true }));
            }
            Goodbye::Unshown(client, id, error) => client.respond::<()>(&id, Err(&CallError::from(error))),
            // Nobody may wait any more.
            Goodbye::Signal(done) => drop(done.send(())),
        }
    }

    fn too_late(&self, input: Input) {
        match input {
            Input::Prompt { client, id, .. } | Input::Close { client, id } | Input::Welcome { client, id, .. } => {
                client.respond::<()>(&id, Err(&CallError::session_not_found(&self.scene.id)));
            }
            Input::Stop { client, id } => self.say(Goodbye::Stopped(client, id)),
            Input::Event { client, id: Some(id), .. } => {
                client.respond::<()>(&id, Err(&CallError::session_not_found(&self.scene.id)));
            }
            Input::Shutdown(done) => self.say(Goodbye::Signal(done)),
            Input::Event { id: None, .. } | Input::Cancel | Input::CancelPrompt { .. } | Input::Commands => {}
        }
    }
}

//! `zeroclaw sessions`: reads the store without changing it, also while a server uses it.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use zeroclaw_session_store::{
    EventKind, EventRecord, ListCursor, ListQuery, OpenError, SessionRecord, SessionStore, SqliteStore, TurnRecord,
    TurnState,
};

use super::prompt::render::{Renderer, Target};
use super::term::{Palette, Role, clipped, json_line, one_line};
use super::{Context, GlobalArgs, exit};

/// Sessions or events fetched from the store at a time.
const PAGE: u32 = 256;
/// The longest text of one tool call that is kept until it is printed; far more than is printed of it.
const MAX_KEPT_TEXT: usize = 64 * 1024;
/// Tool calls of one session whose final state is remembered; the later ones are printed as they went.
const MAX_TOOLS: usize = 50_000;

#[derive(Debug, Subcommand)]
pub(super) enum SessionsCommand {
    /// List stored sessions, the last used first
    List {
        /// Print JSON, one session a line
        #[arg(long)]
        json: bool,
        /// Only sessions of this working directory
        #[arg(long, value_name = "DIR")]
        cwd: Option<PathBuf>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
    },
    /// Print the transcript of a session
    Show {
        /// The session, or the beginning of its id
        #[arg(value_name = "ID")]
        id: String,
        /// Print JSON: the session, then one event a line
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(
    command: &SessionsCommand,
    globals: &GlobalArgs,
    context: &Context,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    let path = store_path(&context.load(globals)?.paths.data_dir);
    let palette = Palette::for_stream(context.streams.out_terminal, &context.env);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let store = match SqliteStore::open_read_only(&path).await {
            Ok(store) => store,
            // No store yet is an empty list, but no place to find a session in.
            Err(OpenError::NotFound { .. }) if matches!(command, SessionsCommand::List { .. }) => {
                return Ok(exit::DONE);
            }
            Err(error) => return Err(error.into()),
        };
        let result = match command {
            SessionsCommand::List { json, cwd, limit } => print_list(&store, *json, cwd.as_deref(), *limit, out).await,
            SessionsCommand::Show { id, json } => {
                let session = find(&store, id).await?;
                match json {
                    true => print_events(&store, &session, out).await,
                    false => print_transcript(&store, &session, palette, out).await,
                }
            }
        };
        let _ = store.close().await;
        result
    })?;
    Ok(exit::DONE)
}

/// Where the sessions are kept below the data directory.
pub(super) fn store_path(data_dir: &Path) -> PathBuf {
    data_dir.join("sessions").join("acp-sessions.db")
}

async fn print_list(
    store: &dyn SessionStore,
    json: bool,
    cwd: Option<&Path>,
    limit: u32,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    // The store compares the directory exactly, and sessions are stored with the canonical one.
    let workspace = cwd.map(|cwd| std::fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_owned()));
    let mut left = limit;
    let mut before = None;
    while left > 0 {
        let query = ListQuery { workspace: workspace.clone(), before, limit: left.min(PAGE) };
        let page = store.list(query).await?;
        let Some(last) = page.last() else { break };
        before = Some(ListCursor { last_activity_ms: last.last_activity_ms, id: last.id.clone() });
        left = left.saturating_sub(u32::try_from(page.len()).unwrap_or(u32::MAX));
        for session in &page {
            if json {
                writeln!(out, "{}", json_line(&session_json(session).to_string()))?;
                continue;
            }
            let title = session.title.as_deref().unwrap_or("(no title)");
            writeln!(
                out,
                "{}  {}  {}  {:<11}  {}  {}",
                session.id,
                time(session.last_activity_ms),
                one_line(&session.agent),
                session.last_turn.as_ref().map_or("new", |turn| state_name(turn.state)),
                clipped(&one_line(title), 60),
                one_line(&session.workspace.to_string_lossy()),
            )?;
        }
    }
    out.flush()?;
    Ok(exit::DONE)
}

/// Finds the one session with this id or with this beginning.
async fn find(store: &dyn SessionStore, wanted: &str) -> anyhow::Result<SessionRecord> {
    if let Some(session) = store.session(wanted).await? {
        return Ok(session);
    }
    let shown = clipped(&one_line(wanted), 80).into_owned();
    let mut found: Option<SessionRecord> = None;
    let mut before = None;
    loop {
        let page = store.list(ListQuery { workspace: None, before, limit: PAGE }).await?;
        let Some(last) = page.last() else { break };
        before = Some(ListCursor { last_activity_ms: last.last_activity_ms, id: last.id.clone() });
        for session in page {
            if wanted.is_empty() || !session.id.starts_with(wanted) {
                continue;
            }
            // A session that is used meanwhile can turn up on two pages.
            if let Some(other) = found.as_ref().filter(|other| other.id != session.id) {
                anyhow::bail!(
                    "more than one session begins with `{shown}`, for example {} and {}",
                    other.id,
                    session.id
                );
            }
            found = Some(session);
        }
    }
    found.with_context(|| format!("there is no session `{shown}`; `zeroclaw sessions list` shows all"))
}

async fn print_events(store: &dyn SessionStore, session: &SessionRecord, out: &mut impl Write) -> anyhow::Result<u8> {
    let turns = store.turns(&session.id).await?;
    let mut head = session_json(session);
    head["turns"] = turns
        .iter()
        .map(|turn| json!({"turn": turn.turn, "state": state_name(turn.state), "stopReason": turn.stop_reason}))
        .collect();
    writeln!(out, "{}", json_line(&json!({"session": head}).to_string()))?;
    let mut after = 0;
    loop {
        let page = store.events(&session.id, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for event in &page {
            // The bytes of the log are passed on as they are, where they are JSON at all.
            let payload = serde_json::from_slice::<&RawValue>(&event.payload).ok();
            let kind = match event.kind {
                EventKind::Update => "update",
                EventKind::UserPrompt => "user_prompt",
                EventKind::ClientEvent => "client_event",
            };
            let turn = event.turn.map_or("null".to_owned(), |turn| turn.to_string());
            let payload = payload.map_or("null", RawValue::get);
            let line = format!("{{\"seq\":{},\"turn\":{turn},\"kind\":\"{kind}\",\"update\":{payload}}}", event.seq);
            writeln!(out, "{}", json_line(&line))?;
        }
    }
    out.flush()?;
    Ok(exit::DONE)
}

async fn print_transcript(
    store: &dyn SessionStore,
    session: &SessionRecord,
    palette: Palette,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    let title = session.title.as_deref().unwrap_or("(no title)");
    writeln!(out, "{}", palette.paint(Role::Strong, &one_line(title)))?;
    let facts = format!(
        "{}  agent {}  in {}  created {}  last used {}",
        session.id,
        one_line(&session.agent),
        one_line(&session.workspace.to_string_lossy()),
        time(session.created_at_ms),
        time(session.last_activity_ms)
    );
    writeln!(out, "{}\n", palette.paint(Role::Dim, &facts))?;

    let turns: HashMap<u64, TurnRecord> =
        store.turns(&session.id).await?.into_iter().map(|turn| (turn.turn, turn)).collect();
    let mut tools = final_tools(store, &session.id).await?;
    let mut transcript = Transcript { renderer: Renderer::new(palette), palette, turn: None, out };
    transcript.renderer.answers_to(Target::Info);
    let mut after = 0;
    loop {
        let page = store.events(&session.id, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for event in page {
            transcript.event(&event, &mut tools, &turns)?;
        }
    }
    transcript.end_turn(&turns)?;
    if let Some(last) = session.last_turn.as_ref().filter(|last| !turns.contains_key(&last.turn)) {
        writeln!(transcript.out, "— turn {}: {}", last.turn, state_name(last.state))?;
    }
    out.flush()?;
    Ok(exit::DONE)
}

struct Transcript<'a, W> {
    renderer: Renderer,
    palette: Palette,
    turn: Option<u64>,
    out: &'a mut W,
}

impl<W: Write> Transcript<'_, W> {
    fn event(
        &mut self,
        event: &EventRecord,
        tools: &mut HashMap<String, Value>,
        turns: &HashMap<u64, TurnRecord>,
    ) -> anyhow::Result<()> {
        if event.turn != self.turn {
            self.end_turn(turns)?;
            self.turn = event.turn;
        }
        if event.kind == EventKind::ClientEvent {
            let line = self.palette.paint(Role::Dim, &format!("— client event, {} bytes", event.payload.len()));
            self.write_open()?;
            return Ok(writeln!(self.out, "{line}")?);
        }
        let Ok(mut update) = serde_json::from_slice::<Value>(&event.payload) else {
            self.write_open()?;
            return Ok(writeln!(self.out, "— event {} cannot be read", event.seq)?);
        };
        if is_tool_update(&update)
            && let Some(id) = update["toolCallId"].as_str()
        {
            match tools.remove(id) {
                // The first mention shows how it ended; the later ones have nothing to add.
                Some(Value::Null) => {
                    tools.insert(id.to_owned(), Value::Null);
                    return Ok(());
                }
                Some(last) => {
                    tools.insert(id.to_owned(), Value::Null);
                    update = last;
                }
                None => {}
            }
        }
        for piece in self.renderer.update(&update) {
            self.out.write_all(piece.text.as_bytes())?;
        }
        Ok(())
    }

    fn write_open(&mut self) -> anyhow::Result<()> {
        for piece in self.renderer.finish() {
            self.out.write_all(piece.text.as_bytes())?;
        }
        Ok(())
    }

    /// Says how the turn ended when that is not how turns usually end.
    fn end_turn(&mut self, turns: &HashMap<u64, TurnRecord>) -> anyhow::Result<()> {
        self.write_open()?;
        let Some(turn) = self.turn.take().and_then(|turn| turns.get(&turn)) else { return Ok(()) };
        let role = match turn.state {
            TurnState::Completed => Role::Dim,
            TurnState::Running | TurnState::Cancelled | TurnState::Interrupted => Role::Warn,
            TurnState::Failed => Role::Bad,
        };
        let reason = match (turn.state, turn.stop_reason.as_deref()) {
            (TurnState::Completed, Some("end_turn")) | (_, None) => String::new(),
            (_, Some(reason)) => format!(" ({})", one_line(reason)),
        };
        let line = format!("— turn {}: {}{reason}", turn.turn, state_name(turn.state));
        Ok(writeln!(self.out, "{}\n", self.palette.paint(role, &line))?)
    }
}

/// Gathers how each tool call ended: its announcement with every later member laid over it.
async fn final_tools(store: &dyn SessionStore, id: &str) -> anyhow::Result<HashMap<String, Value>> {
    let mut tools: HashMap<String, Value> = HashMap::new();
    let mut after = 0;
    loop {
        let page = store.events(id, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(tools) };
        after = last.seq;
        for event in page.iter().filter(|event| event.kind == EventKind::Update) {
            let Ok(update) = serde_json::from_slice::<Value>(&event.payload) else { continue };
            let Some(call) = update["toolCallId"].as_str().filter(|_| is_tool_update(&update)) else { continue };
            if tools.len() >= MAX_TOOLS && !tools.contains_key(call) {
                continue;
            }
            let state = tools.entry(call.to_owned()).or_insert_with(|| json!({}));
            overlay(state, &update);
        }
    }
}

fn is_tool_update(update: &Value) -> bool {
    matches!(update["sessionUpdate"].as_str(), Some("tool_call" | "tool_call_update"))
}

fn overlay(state: &mut Value, update: &Value) {
    let (Value::Object(state), Value::Object(update)) = (state, update) else { return };
    for (name, value) in update {
        if !value.is_null() {
            let mut value = value.clone();
            clip(&mut value);
            state.insert(name.clone(), value);
        }
    }
}

fn clip(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > MAX_KEPT_TEXT => {
            let end = (0..=MAX_KEPT_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
        }
        Value::Array(items) => items.iter_mut().for_each(clip),
        Value::Object(members) => members.values_mut().for_each(clip),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn session_json(session: &SessionRecord) -> Value {
    json!({
        "sessionId": &*session.id,
        "title": session.title,
        "agent": session.agent,
        "cwd": session.workspace,
        "createdAt": time(session.created_at_ms),
        "updatedAt": time(session.last_activity_ms),
        "lastSeq": session.last_seq,
        "state": session.last_turn.as_ref().map(|turn| state_name(turn.state)),
    })
}

fn state_name(state: TurnState) -> &'static str {
    match state {
        TurnState::Running => "running",
        TurnState::Completed => "completed",
        TurnState::Cancelled => "cancelled",
        TurnState::Failed => "failed",
        TurnState::Interrupted => "interrupted",
    }
}

/// A time for people and scripts, UTC.
pub(super) fn time(milliseconds: i64) -> String {
    match jiff::Timestamp::from_millisecond(milliseconds) {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => "?".to_owned(),
    }
}

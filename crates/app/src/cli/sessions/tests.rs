//! Transcripts of sessions in memory: order, final states, turns that did not end well, and finding by prefix.

use serde_json::{Value, json};
use zeroclaw_session_store::{
    Batch, EventKind, EventRecord, MemoryStore, NewSession, SessionPatch, SessionStore, TurnEnd, TurnStart, TurnState,
};

use super::{find, print_events, print_list, print_transcript};
use crate::cli::term::Palette;

struct Session {
    store: MemoryStore,
    id: &'static str,
    seq: u64,
}

impl Session {
    async fn create(store: MemoryStore, id: &'static str) -> Self {
        let new = NewSession {
            id: id.into(),
            workspace: "/project".into(),
            agent: "main".to_owned(),
            created_at_ms: 1_700_000_000_000,
            additional_directories: Vec::new(),
        };
        store.create_session(new).await.unwrap();
        Self { store, id, seq: 0 }
    }

    fn batch(&mut self, turn: u64, events: &[(EventKind, Value)]) -> Batch {
        let events = events
            .iter()
            .map(|(kind, payload)| {
                self.seq += 1;
                EventRecord { seq: self.seq, kind: *kind, turn: Some(turn), payload: payload.to_string().into() }
            })
            .collect();
        Batch { events, messages: Vec::new() }
    }

    async fn begin(&mut self, turn: u64, text: &str) {
        let update = json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}});
        let batch = self.batch(turn, &[(EventKind::UserPrompt, update)]);
        let start = TurnStart { turn, prompt: "[]".into(), started_at_ms: 1_700_000_000_000, batch };
        self.store.begin_turn(self.id, start).await.unwrap();
    }

    async fn append(&mut self, turn: u64, updates: &[Value]) {
        let events: Vec<_> = updates.iter().map(|update| (EventKind::Update, update.clone())).collect();
        let batch = self.batch(turn, &events);
        self.store.append(self.id, batch).await.unwrap();
    }

    async fn end(&mut self, turn: u64, state: TurnState, reason: Option<&str>) {
        let end = TurnEnd {
            turn,
            state,
            stop_reason: reason.map(str::to_owned),
            ended_at_ms: 1_700_000_060_000,
            batch: Batch::default(),
        };
        self.store.end_turn(self.id, end).await.unwrap();
    }
}

fn answer(text: &str) -> Value {
    json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
}

/// Two turns: one with a tool call, one that was interrupted.
async fn two_turns() -> Session {
    let mut session = Session::create(MemoryStore::new(), "s-01abc").await;
    session.begin(1, "list it").await;
    let diff = json!({"type": "diff", "path": "/project/a", "oldText": "x\n", "newText": "y\n"});
    let text = json!({"type": "content", "content": {"type": "text", "text": "the output"}});
    session
        .append(
            1,
            &[
                json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}),
                json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Edit a", "status": "pending"}),
                json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress"}),
                json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed",
                    "content": [text, diff]}),
                answer("all "),
                answer("done\u{1b}[2J"),
            ],
        )
        .await;
    session.end(1, TurnState::Completed, Some("end_turn")).await;
    session.begin(2, "again").await;
    session.append(2, &[answer("I was abo")]).await;
    session.store.release(session.id).await.unwrap();
    session
}

async fn transcript(session: &Session) -> String {
    let record = session.store.session(session.id).await.unwrap().unwrap();
    let mut out = Vec::new();
    print_transcript(&session.store, &record, Palette::plain(), &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn a_transcript_shows_everything_in_order_and_how_each_turn_ended() {
    let session = two_turns().await;
    let patch = SessionPatch { title: Some(Some("Edit \u{1b}a".to_owned())), ..SessionPatch::default() };
    session.store.update_session(session.id, patch).await.unwrap();
    let shown = transcript(&session).await;
    let (head, body) = shown.split_once("\n\n").unwrap();
    assert!(head.starts_with("Edit ␛a\ns-01abc  agent main  in /project  created 2023-11-14T22:13:20Z"), "{head}");
    assert_eq!(
        body,
        "> list it\n· hm\n  │ the output\n  --- /project/a\n  +++ /project/a\n  @@ -1 +1 @@\n  -x\n  +y\n✓ Edit a\n\
         all done␛[2J\n— turn 1: completed\n\n> again\nI was abo\n— turn 2: interrupted\n\n"
    );
}

#[tokio::test]
async fn a_turn_that_was_cancelled_or_failed_says_so() {
    let mut session = Session::create(MemoryStore::new(), "s-1").await;
    for (turn, state, reason, line) in [
        (1, TurnState::Cancelled, Some("cancelled"), "— turn 1: cancelled (cancelled)\n"),
        (2, TurnState::Failed, None, "— turn 2: failed\n"),
        (3, TurnState::Completed, Some("max_tokens"), "— turn 3: completed (max_tokens)\n"),
    ] {
        session.begin(turn, "go").await;
        session.end(turn, state, reason).await;
        let shown = transcript(&session).await;
        assert!(shown.contains(line), "{shown}");
    }
}

#[tokio::test]
async fn events_are_printed_with_their_own_bytes() {
    let session = two_turns().await;
    let record = session.store.session(session.id).await.unwrap().unwrap();
    let mut out = Vec::new();
    print_events(&session.store, &record, &mut out).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1 + 9);
    assert_eq!(lines[0]["session"]["sessionId"], "s-01abc");
    assert_eq!(lines[0]["session"]["turns"][1]["state"], "interrupted");
    assert_eq!(lines[1]["kind"], "user_prompt");
    assert_eq!(lines[7]["update"], answer("done\u{1b}[2J"));
    for (at, line) in lines.iter().skip(1).enumerate() {
        assert_eq!(line["seq"], at + 1);
    }
    assert!(text.lines().all(|line| !line.chars().any(char::is_control)));
}

#[tokio::test]
async fn a_session_is_found_by_its_id_or_by_a_beginning_that_only_it_has() {
    let store = Session::create(MemoryStore::new(), "s-01abc").await.store;
    let store = Session::create(store, "s-01abd").await.store;
    let store = Session::create(store, "s-01").await.store;
    assert_eq!(&*find(&store, "s-01abc").await.unwrap().id, "s-01abc");
    assert_eq!(&*find(&store, "s-01abd").await.unwrap().id, "s-01abd");
    assert_eq!(&*find(&store, "s-01").await.unwrap().id, "s-01", "a whole id is no beginning");
    assert!(find(&store, "s-01ab").await.unwrap_err().to_string().contains("more than one"));
    for unknown in ["x", "", "s-01abcd"] {
        assert!(find(&store, unknown).await.unwrap_err().to_string().contains("there is no session"), "{unknown}");
    }
}

#[tokio::test]
async fn the_list_is_limited_and_has_a_json_form() {
    let mut store = MemoryStore::new();
    for id in ["a", "b", "c"] {
        store = Session::create(store, id).await.store;
    }
    let list = async |json, limit| {
        let mut out = Vec::new();
        print_list(&store, json, None, limit, &mut out).await.unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(list(false, 10).await.lines().count(), 3);
    assert_eq!(list(false, 2).await.lines().count(), 2);
    assert_eq!(list(false, 0).await, "");
    let first: Value = serde_json::from_str(list(true, 1).await.lines().next().unwrap()).unwrap();
    assert_eq!(first["cwd"], "/project");
    assert_eq!(first["state"], Value::Null);
}

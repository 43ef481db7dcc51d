//! The ledger between a client and a gateway that are played here, with connections that are cut at every possible place.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Ledger, Moves};

/// A gateway that keeps its word (ZeroClaw dialect, "Attach and reconnect"): one session, one prompt at a time.
#[derive(Default)]
struct Gateway {
    log: Vec<Value>,
    turn: Option<Turn>,
    /// How many updates the running turn still has.
    left: usize,
    /// The question of the turn: asked with which id on this connection, and what was answered.
    question: Option<Question>,
    out: VecDeque<Value>,
    attached: bool,
    asks: u64,
    prompts: usize,
    answers: Vec<Value>,
}

#[derive(Clone)]
struct Turn {
    prompt: Value,
    /// Over this connection, so that its end is an answer and not a notification.
    here: bool,
    ended: bool,
}

struct Question {
    id: Option<String>,
    answered: bool,
}

const UPDATES: usize = 12;

impl Gateway {
    /// The connection is cut: what was on its way is lost.
    fn cut(&mut self) {
        self.out.clear();
        self.attached = false;
        self.asks = 0;
        if let Some(turn) = &mut self.turn {
            turn.here = false;
        }
        if let Some(question) = &mut self.question {
            question.id = None;
        }
    }

    fn tell(&mut self, update: Value) {
        self.log.push(update);
        if self.attached {
            self.show(self.log.len());
        }
    }

    fn show(&mut self, seq: usize) {
        let update = &self.log[seq - 1];
        self.out.push_back(json!({"jsonrpc": "2.0", "method": "session/update",
            "params": {"sessionId": "s", "update": update, "_meta": {"zeroclaw": {"seq": seq}}}}));
    }

    fn ask(&mut self) {
        let Some(question) = &mut self.question else { return };
        if question.answered || question.id.is_some() || !self.attached {
            return;
        }
        let id = format!("zc-out-{}", self.asks);
        self.asks += 1;
        question.id = Some(id.clone());
        self.out.push_back(json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission",
            "params": {"sessionId": "s", "toolCall": {"toolCallId": "c1"}, "options": []}}));
    }

    /// One step of the running turn.
    fn work(&mut self) {
        let Some(turn) = self.turn.clone().filter(|turn| !turn.ended) else { return };
        if self.question.as_ref().is_some_and(|question| !question.answered) {
            return self.ask();
        }
        if self.left > 0 {
            self.left -= 1;
            let number = self.log.len();
            self.tell(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": number}}));
            if self.left == UPDATES / 2 {
                self.question = Some(Question { id: None, answered: false });
                self.ask();
            }
            return;
        }
        if let Some(turn) = &mut self.turn {
            turn.ended = true;
        }
        self.question = None;
        if turn.here {
            self.out.push_back(json!({"jsonrpc": "2.0", "id": turn.prompt, "result": {"stopReason": "end_turn"}}));
        } else if self.attached {
            self.out.push_back(json!({"jsonrpc": "2.0", "method": "_zeroclaw/session/turn_ended",
                "params": {"sessionId": "s", "promptId": turn.prompt, "result": {"stopReason": "end_turn"}}}));
        }
    }

    fn take(&mut self, message: &Value) {
        let id = message["id"].clone();
        let mut answer = |result: Value| self.out.push_back(json!({"jsonrpc": "2.0", "id": id, "result": result}));
        match message["method"].as_str() {
            Some("initialize") => {
                assert_eq!(message["params"]["clientCapabilities"]["_meta"]["zeroclaw"]["seq"], true);
                answer(json!({"protocolVersion": 1}));
            }
            Some("session/new") => {
                answer(json!({"sessionId": "s"}));
                self.attached = true;
            }
            Some("session/prompt") => {
                let running = self.turn.as_ref().is_some_and(|turn| !turn.ended);
                assert!(!running, "a prompt that runs is never sent again");
                self.prompts += 1;
                self.attached = true;
                self.turn = Some(Turn { prompt: id.clone(), here: true, ended: false });
                self.left = UPDATES;
                // The sender knows what it said: it is told the number only.
                self.log
                    .push(json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "said"}}));
                self.out.push_back(json!({"jsonrpc": "2.0", "method": "_zeroclaw/session/accepted",
                    "params": {"sessionId": "s", "promptId": id, "seq": self.log.len()}}));
            }
            Some("_zeroclaw/session/attach") => {
                let after = usize::try_from(message["params"]["afterSeq"].as_u64().unwrap()).unwrap();
                self.attached = true;
                for seq in after + 1..=self.log.len() {
                    self.show(seq);
                }
                let turn = self.turn.as_ref().map(|turn| match turn.ended {
                    true => json!({"promptId": turn.prompt, "state": "ended", "result": {"stopReason": "end_turn"}}),
                    false => json!({"promptId": turn.prompt, "state": "running"}),
                });
                let result = json!({"sessionId": "s", "seq": self.log.len(), "turn": turn});
                self.out.push_back(json!({"jsonrpc": "2.0", "id": id, "result": result}));
                self.ask();
            }
            None => {
                let question = self.question.as_mut().filter(|question| question.id.as_deref() == id.as_str());
                if let Some(question) = question {
                    question.answered = true;
                    self.answers.push(message["result"].clone());
                }
            }
            Some(other) => panic!("{other}"),
        }
    }
}

/// A client that wants one turn, and writes down what it gets.
#[derive(Default)]
struct Client {
    updates: Vec<Value>,
    answers: HashMap<String, Vec<Value>>,
    questions: Vec<Value>,
    withdrawn: usize,
    out: VecDeque<Value>,
}

impl Client {
    fn take(&mut self, message: &Value) {
        match message["method"].as_str() {
            Some("session/update") => self.updates.push(message["params"]["update"].clone()),
            Some("session/request_permission") => {
                self.questions.push(message["id"].clone());
                self.out.push_back(json!({"jsonrpc": "2.0", "id": message["id"],
                    "result": {"outcome": {"outcome": "selected", "optionId": "allow-once"}}}));
            }
            Some("$/cancel_request") => self.withdrawn += 1,
            Some(other) => panic!("a strict client does not know {other}"),
            None => {
                let id = message["id"].as_str().unwrap().to_owned();
                if id == "init" {
                    self.out.push_back(
                        json!({"jsonrpc": "2.0", "id": "new", "method": "session/new", "params": {"cwd": "/"}}),
                    );
                }
                if id == "new" || id == "p1" {
                    let next = if id == "new" { "p1" } else { "p2" };
                    self.out.push_back(json!({"jsonrpc": "2.0", "id": next, "method": "session/prompt",
                        "params": {"sessionId": "s", "prompt": [{"type": "text", "text": "said"}]}}));
                }
                self.answers.entry(id).or_default().push(message.clone());
            }
        }
    }
}

/// Small random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn parse(lines: Vec<Bytes>) -> impl Iterator<Item = Value> {
    lines.into_iter().map(|line| serde_json::from_slice(&line).unwrap())
}

/// Plays two prompts with a question each, with cuts every so many steps.
fn play(seed: u64, cut_every: u64) -> (Client, Gateway) {
    let (mut ledger, mut gateway, mut client) = (Ledger::default(), Gateway::default(), Client::default());
    let mut random = Random(seed | 1);
    client
        .out
        .push_back(json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {"protocolVersion": 1}}));
    let mut to_gateway: VecDeque<Value> = VecDeque::new();
    let first = ledger.connected();
    to_gateway.extend(parse(first.to_gateway));
    for _ in 0..100_000 {
        if client.answers.contains_key("p2") && client.out.is_empty() {
            return (client, gateway);
        }
        if cut_every > 0 && random.below(cut_every) == 0 {
            to_gateway.clear();
            gateway.cut();
            ledger.lost();
            // The client may say something while nobody is there; the relay keeps it in line.
            let again = ledger.connected();
            to_gateway.extend(parse(again.to_gateway));
        }
        let moves = match random.below(4) {
            0 if !client.out.is_empty() && !ledger.is_joining() => {
                let line = client.out.pop_front().unwrap().to_string();
                ledger.client_says(line.as_bytes())
            }
            1 if !gateway.out.is_empty() => {
                let line = gateway.out.pop_front().unwrap().to_string();
                ledger.gateway_says(line.as_bytes())
            }
            2 if !to_gateway.is_empty() => {
                gateway.take(&to_gateway.pop_front().unwrap());
                Moves::default()
            }
            _ => {
                gateway.work();
                Moves::default()
            }
        };
        to_gateway.extend(parse(moves.to_gateway));
        parse(moves.to_client).for_each(|message| client.take(&message));
    }
    panic!("the turn does not end: seed {seed}, open {:?}", ledger.open);
}

#[test]
fn cuts_anywhere_leave_the_transcript_as_it_is() {
    let (uncut, _) = play(1, 0);
    assert_eq!(uncut.updates.len(), 2 * UPDATES);
    for seed in 1..300 {
        let (client, gateway) = play(seed, 3 + seed % 40);
        assert_eq!(client.updates, uncut.updates, "seed {seed}");
        for id in ["init", "new", "p1", "p2"] {
            assert_eq!(client.answers[id].len(), 1, "{id}, seed {seed}");
            assert!(client.answers[id][0].get("result").is_some(), "{id}, seed {seed}: {:?}", client.answers[id]);
        }
        assert_eq!(gateway.prompts, 2, "each prompt is worked on once, seed {seed}");
        assert_eq!(gateway.answers.len(), 2, "each question is answered once, seed {seed}");
        let mut ids = client.questions.clone();
        ids.dedup();
        assert_eq!(ids.len(), client.questions.len(), "no question id is given twice, seed {seed}");
        assert_eq!(client.questions.len() - client.withdrawn, 2, "a question is on the screen once, seed {seed}");
    }
}

#[test]
fn a_lost_gateway_answers_nothing_so_the_bridge_does() {
    let mut ledger = Ledger::default();
    drop(ledger.connected());
    for id in ["1", "\"two\"", "3"] {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"session/list\"}}");
        assert_eq!(
            ledger.client_says(line.as_bytes()).to_gateway,
            [Bytes::from(format!("{line}\n"))],
            "the same bytes"
        );
    }
    let answered = ledger.gateway_says(br#"{"jsonrpc":"2.0","id":"two","result":{"sessions":[]}}"#);
    assert_eq!(
        answered.to_client,
        [Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":\"two\",\"result\":{\"sessions\":[]}}\n")]
    );
    ledger.lost();
    let given_up: Vec<Value> = parse(ledger.give_up("the gateway is not there").to_client).collect();
    let ids: Vec<&Value> = given_up.iter().map(|message| &message["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!(3)]);
    assert!(given_up.iter().all(|message| message["error"]["code"] == -32603));
    assert!(ledger.is_idle());
}

#[test]
fn a_load_that_is_cut_goes_on_where_it_was() {
    let update = |seq: u64| {
        json!({"jsonrpc": "2.0", "method": "session/update",
            "params": {"sessionId": "s", "update": {"n": seq}, "_meta": {"zeroclaw": {"seq": seq}}}})
        .to_string()
    };
    let mut ledger = Ledger::default();
    drop(ledger.connected());
    let load = br#"{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s"}}"#;
    drop(ledger.client_says(load));
    let shown = |ledger: &mut Ledger, seq| ledger.gateway_says(update(seq).as_bytes()).to_client.len();
    assert_eq!([1, 2, 3].map(|seq| shown(&mut ledger, seq)), [1, 1, 1]);
    ledger.lost();
    let again = ledger.connected();
    assert_eq!(again.to_gateway.len(), 1, "the load is sent again, the session is not joined besides");
    assert_eq!([1, 2, 3, 4, 5].map(|seq| shown(&mut ledger, seq)), [0, 0, 0, 1, 1]);
    assert_eq!(ledger.gateway_says(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#).to_client.len(), 1);
    // A second load of the same client shows everything again.
    drop(ledger.client_says(br#"{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s"}}"#));
    assert_eq!([1, 2, 3].map(|seq| shown(&mut ledger, seq)), [1, 1, 1]);
}

#[test]
fn a_cancel_that_may_be_lost_is_sent_again() {
    let mut ledger = Ledger::default();
    drop(ledger.connected());
    drop(ledger.client_says(br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#));
    drop(ledger.gateway_says(br#"{"jsonrpc":"2.0","id":0,"result":{}}"#));
    drop(ledger.client_says(br#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}"#));
    drop(ledger.gateway_says(br#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#));
    drop(
        ledger.client_says(
            br#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":"x"}}"#,
        ),
    );
    let cancel = br#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#;
    drop(ledger.client_says(cancel));
    ledger.lost();
    let init: Vec<Value> = parse(ledger.connected().to_gateway).collect();
    let attach =
        ledger.gateway_says(json!({"jsonrpc": "2.0", "id": init[0]["id"], "result": {}}).to_string().as_bytes());
    let attach: Vec<Value> = parse(attach.to_gateway).collect();
    assert_eq!(
        (&attach[0]["method"], &attach[0]["params"]["afterSeq"]),
        (&json!("_zeroclaw/session/attach"), &json!(0))
    );
    let joined = json!({"jsonrpc": "2.0", "id": attach[0]["id"],
        "result": {"sessionId": "s", "seq": 1, "turn": {"promptId": 2, "state": "running"}}});
    let moves = ledger.gateway_says(joined.to_string().as_bytes());
    let sent: Vec<Value> = parse(moves.to_gateway).collect();
    assert_eq!(sent, [serde_json::from_slice::<Value>(cancel).unwrap()], "the cancel again, the prompt not");
}

#[test]
fn a_session_that_cannot_be_joined_again_answers_its_prompt() {
    let mut ledger = Ledger::default();
    drop(ledger.connected());
    drop(ledger.client_says(br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#));
    drop(ledger.gateway_says(br#"{"jsonrpc":"2.0","id":0,"result":{}}"#));
    drop(ledger.client_says(br#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}"#));
    drop(ledger.gateway_says(br#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#));
    drop(
        ledger.client_says(
            br#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":"x"}}"#,
        ),
    );
    ledger.lost();
    let mut sent: Vec<Value> = parse(ledger.connected().to_gateway).collect();
    let mut answers = Vec::new();
    let mut methods = Vec::new();
    while let Some(message) = sent.pop() {
        let method = message["method"].as_str().unwrap().to_owned();
        let outcome = match method.as_str() {
            "initialize" | "session/resume" => json!({"jsonrpc": "2.0", "id": message["id"], "result": {}}),
            _ => json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown method"}}),
        };
        methods.push(method);
        let moves = ledger.gateway_says(outcome.to_string().as_bytes());
        sent.extend(parse(moves.to_gateway));
        answers.extend(parse(moves.to_client));
    }
    assert_eq!(methods, ["initialize", "_zeroclaw/session/attach", "session/resume", "_zeroclaw/session/attach"]);
    assert_eq!(answers.len(), 1);
    assert_eq!((&answers[0]["id"], &answers[0]["error"]["code"]), (&json!(2), &json!(-32601)));
    assert!(ledger.is_idle() && !ledger.is_joining());
}

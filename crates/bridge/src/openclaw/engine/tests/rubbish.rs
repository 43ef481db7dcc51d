//! Whatever a gateway sends: no panic, every line to the client is a message, and every prompt is answered once.

use std::{collections::HashMap, time::Duration};

use serde_json::{Value, json};

use super::{APPROVAL, BASIC, Bridge, COMMAND, EDIT, RATE_LIMIT};

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).expect("small")
    }
}

/// Values that a member may have and should not.
fn odd(dice: &mut Dice) -> Value {
    let values = [
        json!(null),
        json!(-1),
        json!(u64::MAX),
        json!(""),
        json!("\u{d7ff}🙂"),
        json!([]),
        json!({}),
        json!([[[]]]),
        json!(true),
        json!("x".repeat(3000)),
        json!({ "text": 7 }),
    ];
    values[dice.below(values.len())].clone()
}

/// Replaces, removes or adds members somewhere.
fn spoil(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Object(members) if !members.is_empty() && dice.below(3) > 0 => {
            let name = members.keys().nth(dice.below(members.len())).expect("there").clone();
            match dice.below(5) {
                0 => drop(members.remove(&name)),
                1 => drop(members.insert(name, odd(dice))),
                _ => spoil(members.get_mut(&name).expect("there"), dice),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = dice.below(items.len());
            spoil(&mut items[at], dice);
        }
        other => *other = odd(dice),
    }
}

#[test]
fn whatever_a_gateway_sends_each_prompt_is_answered_once() {
    for seed in 1..=150_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bridge = Bridge::new();
        let session = bridge.session();
        let mut asked = Vec::new();
        let mut seen = Vec::new();
        for frames in [BASIC, COMMAND, EDIT, APPROVAL, RATE_LIMIT] {
            let (id, run) = bridge.prompt(&session, "go");
            asked.push(id);
            for line in frames.lines() {
                let text = line.replace("RUN", &run);
                let mut frame: Value = serde_json::from_str(&text).expect("a frame");
                match dice.below(8) {
                    0 | 1 => spoil(&mut frame, &mut dice),
                    2 => continue,
                    3 => drop(bridge.frame(&frame)),
                    _ => {}
                }
                bridge.frame(&frame);
                if dice.below(40) == 0 {
                    // Half a frame is none.
                    let cut = text.floor_char_boundary(dice.below(text.len()));
                    let _link = bridge.engine.frame(&text[..cut], bridge.now);
                }
                if dice.below(25) == 0 {
                    bridge.lose();
                    bridge.connect();
                }
                if let Some(request) = bridge.requests.pop() {
                    let payload = odd(&mut dice);
                    bridge.frame(
                        &json!({ "type": "res", "id": request["id"], "ok": dice.below(2) == 0, "payload": payload }),
                    );
                }
            }
            bridge.wait(Duration::from_secs(1));
            seen.append(&mut bridge.lines());
            bridge.requests.clear();
        }
        bridge.engine.stop_all(bridge.now);
        bridge.take();
        seen.append(&mut bridge.lines());
        let mut answers: HashMap<u64, usize> = HashMap::new();
        for id in seen.iter().filter(|line| line.get("method").is_none()).filter_map(|line| line["id"].as_u64()) {
            *answers.entry(id).or_default() += 1;
        }
        for id in asked {
            assert_eq!(answers.get(&id), Some(&1), "prompt {id}, seed {seed}");
        }
    }
}

#[test]
fn what_is_too_long_or_no_frame_ends_a_handshake_and_nothing_else() {
    let mut bridge = Bridge::new();
    assert!(matches!(bridge.engine.frame("no frame", bridge.now), super::Link::Fine));
    assert!(matches!(bridge.engine.frame(&"x".repeat(100_000), bridge.now), super::Link::Fine));
    for first in ["no frame".to_owned(), format!("{{\"type\":\"event\",\"event\":\"{}\"}}", "x".repeat(70_000))] {
        bridge.lose();
        bridge.engine.opened(super::Credentials::default(), bridge.now);
        assert!(matches!(bridge.engine.frame(&first, bridge.now), super::Link::Drop(_)));
    }
}

#[test]
fn a_handshake_that_does_not_go_on_is_given_up() {
    let mut bridge = Bridge::new();
    bridge.lose();
    bridge.engine.opened(super::Credentials::default(), bridge.now);
    assert!(matches!(bridge.wait(Duration::from_secs(14)), super::Link::Fine));
    assert!(matches!(bridge.wait(Duration::from_secs(2)), super::Link::Drop(_)));
    bridge.lose();
    bridge.engine.opened(super::Credentials::default(), bridge.now);
    let challenge = json!({ "type": "event", "event": "connect.challenge", "payload": { "nonce": "n", "ts": 5 } });
    bridge.frame(&challenge);
    let connect = bridge.request("connect");
    let other =
        json!({ "type": "res", "id": connect["id"], "ok": true, "payload": { "type": "hello-ok", "protocol": 5 } });
    assert!(matches!(bridge.frame(&other), super::Link::Drop(_)), "another protocol");
}

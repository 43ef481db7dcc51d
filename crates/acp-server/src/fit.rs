//! Makes an update fit a client that reads lines of a limited length. Text is told in several pieces and so is never
//! lost; a file becomes a link to its copy; what cannot be told in pieces is cut, with a visible mark.
//! It refuses to cut what somebody is asked to allow: that is told whole before the question.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::prompt::file_uri;

/// Bytes that a cut text keeps, at least: a mark and nothing before it says too little.
const LEAST: usize = 64;

/// Members that name something: cut they would name nothing.
const NAMES: [&str; 6] = ["sessionUpdate", "toolCallId", "messageId", "path", "type", "uri"];

/// An update in pieces of at most `most` bytes each. `cwd` is the session's directory.
pub(crate) fn update(update: &[u8], most: usize, cwd: &Path) -> Vec<Vec<u8>> {
    let Ok(value) = serde_json::from_slice::<Value>(update) else { return Vec::new() };
    match value.pointer("/content/text").and_then(Value::as_str) {
        Some(text) => pieces(&value, text, most),
        None => vec![bytes(&shortened(value, most, cwd))],
    }
}

/// A question's parameters that fit into `most` bytes, and the texts that are to be told whole before it.
pub(crate) fn question(params: &[u8], most: usize) -> (Vec<String>, Value) {
    let mut value = serde_json::from_slice::<Value>(params).unwrap_or_default();
    let mut before = Vec::new();
    if let Some(content) = value.pointer_mut("/toolCall/content").and_then(Value::as_array_mut) {
        before = content.iter().filter_map(whole).collect();
        *content =
            vec![text_item("What is asked about is shown whole in the message before this question.".to_owned())];
    }
    (before, cut_to(value, most))
}

/// The whole text of an item of a tool call's content.
fn whole(item: &Value) -> Option<String> {
    if let Some(text) = item.pointer("/content/text").and_then(Value::as_str) {
        return Some(text.to_owned());
    }
    let new = item.get("newText")?.as_str()?;
    let path = item.get("path").and_then(Value::as_str).unwrap_or_default();
    Some(match item.get("oldText").and_then(Value::as_str) {
        Some(old) => format!("{path}, before:\n\n{old}\n\n{path}, after:\n\n{new}"),
        None => format!("{path}, new:\n\n{new}"),
    })
}

fn bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn len(value: &Value) -> usize {
    bytes(value).len()
}

/// The same chunk several times, each with the next part of the text: clients join them, as they have the same id.
fn pieces(value: &Value, text: &str, most: usize) -> Vec<Vec<u8>> {
    let with = |text: &str| {
        let mut piece = value.clone();
        if let Some(place) = piece.pointer_mut("/content/text") {
            *place = Value::from(text);
        }
        piece
    };
    let room = most.saturating_sub(len(&with(""))).max(LEAST);
    let mut pieces = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (at, character) in text.char_indices() {
        let size = escaped(character);
        if used + size > room {
            pieces.push(bytes(&with(text.get(start..at).unwrap_or_default())));
            (start, used) = (at, 0);
        }
        used += size;
    }
    pieces.push(bytes(&with(text.get(start..).unwrap_or_default())));
    pieces
}

/// Bytes of a character inside of a JSON string.
fn escaped(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

fn shortened(mut value: Value, most: usize, cwd: &Path) -> Value {
    // Where a delivery left no copy, it says which file it was.
    let original = value.pointer("/locations/0/path").and_then(Value::as_str).map(|path| file_uri(Path::new(path)));
    link_files(&mut value, cwd, original.as_deref());
    if len(&value) <= most {
        return value;
    }
    // Half a diff would show a change that is not made.
    if let Some(content) = value.get_mut("content").and_then(Value::as_array_mut) {
        for item in content.iter_mut().filter(|item| item["type"] == "diff") {
            let size = len(item);
            if size > most / 4 {
                let path = item["path"].as_str().unwrap_or_default();
                *item = text_item(format!("[The change to {path} is not shown: it takes {size} bytes.]"));
            }
        }
    }
    cut_to(value, most)
}

/// Replaces the content of files by links: what was delivered lies in the session's directory too.
fn link_files(value: &mut Value, cwd: &Path, original: Option<&str>) {
    match value {
        Value::Object(map) if map.get("type").is_some_and(|kind| kind == "resource") => {
            let Some(Value::Object(resource)) = map.get("resource") else { return };
            let uri = resource.get("uri").and_then(Value::as_str).unwrap_or_default();
            let name = uri.rsplit('/').next().unwrap_or(uri).to_owned();
            let uri = match uri.strip_prefix("attachment://deliver/") {
                Some(file) => original.map_or_else(|| file_uri(&cwd.join("uploads").join(file)), str::to_owned),
                None => uri.to_owned(),
            };
            let mut link = Map::from_iter([
                ("type".to_owned(), Value::from("resource_link")),
                ("uri".to_owned(), Value::from(uri)),
                ("name".to_owned(), Value::from(name)),
            ]);
            if let Some(mime) = resource.get("mimeType") {
                link.insert("mimeType".to_owned(), mime.clone());
            }
            *map = link;
        }
        Value::Object(map) => map.values_mut().for_each(|value| link_files(value, cwd, original)),
        Value::Array(items) => items.iter_mut().for_each(|value| link_files(value, cwd, original)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn text_item(text: String) -> Value {
    json!({"type": "content", "content": {"type": "text", "text": text}})
}

/// Cuts texts shorter and shorter until everything fits.
fn cut_to(value: Value, most: usize) -> Value {
    let mut keep = most / 4;
    while keep >= LEAST {
        let mut tried = value.clone();
        cut(&mut tried, keep);
        if len(&tried) <= most {
            return tried;
        }
        keep /= 2;
    }
    // So many small things that no cutting helps: what it is and how far it is remains.
    let kept = ["sessionUpdate", "toolCallId", "status", "kind", "name", "sessionId", "options"];
    match value {
        Value::Object(map) => {
            let mut least: Map<String, Value> =
                map.into_iter().filter(|(key, _)| kept.contains(&key.as_str())).collect();
            least.insert("title".to_owned(), Value::from("[too long to be shown]"));
            Value::Object(least)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Value::Null,
    }
}

fn cut(value: &mut Value, keep: usize) {
    match value {
        Value::String(text) if text.len() > keep => {
            let left_out = text.len() - text.floor_char_boundary(keep);
            text.truncate(text.floor_char_boundary(keep));
            text.push_str(&format!("\n[{left_out} bytes are left out: this client reads no longer lines]"));
        }
        Value::Object(map) => {
            map.iter_mut().filter(|(key, _)| !NAMES.contains(&key.as_str())).for_each(|(_, value)| cut(value, keep));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| cut(value, keep)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::{bytes, question, update};

    const MOST: usize = 2000;

    fn fitted(value: &Value) -> Vec<Value> {
        let pieces = update(&bytes(value), MOST, Path::new("/s"));
        assert!(pieces.iter().all(|piece| piece.len() <= MOST), "a piece is too long");
        pieces.iter().map(|piece| serde_json::from_slice(piece).expect("JSON")).collect()
    }

    #[test]
    fn text_is_told_in_pieces_and_none_of_it_is_lost() {
        for text in ["é\n\u{1}\"x".repeat(3000), "a".repeat(50_000), "🦀".repeat(700)] {
            let chunk = json!({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": text}});
            let pieces = fitted(&chunk);
            assert!(pieces.len() > 1);
            let joined: String = pieces.iter().map(|piece| piece["content"]["text"].as_str().expect("text")).collect();
            assert_eq!(joined, text);
            assert!(
                pieces.iter().all(|piece| piece["messageId"] == "m" && piece["sessionUpdate"] == "agent_message_chunk")
            );
        }
    }

    #[test]
    fn a_file_becomes_a_link_to_its_copy() {
        let resource =
            json!({"uri": "attachment://deliver/ab.pdf", "mimeType": "application/pdf", "blob": "A".repeat(9000)});
        let call = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
            "content": [{"type": "content", "content": {"type": "resource", "resource": resource}}]});
        let link = json!({"type": "resource_link", "uri": "file:///s/uploads/ab.pdf", "name": "ab.pdf", "mimeType": "application/pdf"});
        let expected = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
            "content": [{"type": "content", "content": link}]});
        assert_eq!(fitted(&call), [expected]);
    }

    #[test]
    fn output_is_cut_with_a_mark_and_a_diff_not_at_all() {
        let call = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "rawOutput": "x".repeat(9000),
            "content": [{"type": "diff", "path": "/s/a", "oldText": "o".repeat(5000), "newText": "n".repeat(5000)}]});
        let fitted = fitted(&call).pop().expect("an update");
        assert_eq!((&fitted["status"], &fitted["toolCallId"]), (&json!("completed"), &json!("c")));
        assert!(
            fitted["rawOutput"]
                .as_str()
                .expect("text")
                .ends_with("bytes are left out: this client reads no longer lines]")
        );
        let shown = fitted["content"][0]["content"]["text"].as_str().expect("text");
        assert!(shown.starts_with("[The change to /s/a is not shown"), "{shown}");
    }

    #[test]
    fn so_many_small_things_that_no_cutting_helps_leave_what_it_is() {
        let call =
            json!({"sessionUpdate": "tool_call", "toolCallId": "c", "status": "pending", "rawInput": vec![1; 5000]});
        let expected = json!({"sessionUpdate": "tool_call", "toolCallId": "c", "status": "pending", "title": "[too long to be shown]"});
        assert_eq!(fitted(&call), [expected]);
    }

    #[test]
    fn what_is_asked_about_is_told_whole_before_the_question() {
        let (old, new, why) = ("o".repeat(5000), "n".repeat(5000), "w".repeat(3000));
        let params = json!({"sessionId": "s", "options": [{"optionId": "allow-once"}], "toolCall": {
        "toolCallId": "c", "rawInput": {"content": new}, "content": [
            {"type": "diff", "path": "/s/a", "oldText": old, "newText": new},
            {"type": "content", "content": {"type": "text", "text": why}},
        ]}});
        let (before, fitted) = question(&bytes(&params), MOST);
        assert_eq!(before, [format!("/s/a, before:\n\n{old}\n\n/s/a, after:\n\n{new}"), why]);
        assert!(bytes(&fitted).len() <= MOST);
        assert_eq!(fitted["options"], params["options"]);
        assert!(fitted["toolCall"]["content"][0]["content"]["text"].as_str().expect("text").contains("message before"));
    }
}

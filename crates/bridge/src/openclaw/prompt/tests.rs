//! Prompts put together, and taken apart again.

use std::path::Path;

use zeroclaw_acp_protocol::{PromptPart, ResourceBody};

use super::{
    MAX_PROMPT, Outgoing, PromptMeta, assemble, clean_title, is_stop_word, shown_place, title_of, without_prefix,
};

fn text(text: &str) -> PromptPart {
    PromptPart::Text(text.to_owned())
}

fn said(parts: Vec<PromptPart>, place: Option<&str>) -> String {
    assemble(parts, place).map(|outgoing| outgoing.text).unwrap_or_else(|why| format!("error: {why}"))
}

fn blob(mime_type: Option<&str>, base64: &str) -> PromptPart {
    PromptPart::Resource {
        uri: "file:///a/b".to_owned(),
        mime_type: mime_type.map(str::to_owned),
        body: ResourceBody::Blob(base64.to_owned()),
    }
}

#[test]
fn parts_are_joined_and_nothing_is_left_out() {
    let link =
        PromptPart::ResourceLink { uri: "file:///a/c.txt".to_owned(), name: "C (file)".to_owned(), mime_type: None };
    let resource = PromptPart::Resource {
        uri: "file:///a/d.txt".to_owned(),
        mime_type: None,
        body: ResourceBody::Text("BODY".to_owned()),
    };
    assert_eq!(
        said(vec![text("see"), link, resource, blob(None, "aGVsbG8=")], None),
        "see\n[Resource link (C (file))] file:///a/c.txt\n[Resource] file:///a/d.txt\nBODY\n[Resource] file:///a/b\nhello"
    );
    let picture = PromptPart::Image { data: "aGVsbG8=".to_owned(), mime_type: "image/png".to_owned() };
    let outgoing = assemble(vec![text("see"), picture, blob(Some("image/gif"), "aGVsbG8=")], None);
    assert_eq!(
        outgoing,
        Ok(Outgoing {
            text: "see\n[Resource link] file:///a/b".to_owned(),
            pictures: vec![
                ("image/png".to_owned(), "aGVsbG8=".to_owned()),
                ("image/gif".to_owned(), "aGVsbG8=".to_owned()),
            ],
        })
    );
}

#[test]
fn what_the_gateway_cannot_take_is_refused_by_name() {
    let picture = PromptPart::Image { data: "!!!notbase64".to_owned(), mime_type: "image/png".to_owned() };
    let cases = [
        (vec![text(" ")], "the prompt is empty"),
        (vec![], "the prompt is empty"),
        (vec![text("a\0b")], "the prompt holds a null character"),
        (vec![text("x"), PromptPart::Audio], "part 1: OpenClaw takes no sound"),
        (vec![PromptPart::Unknown("hologram".to_owned())], "part 0: `hologram` is not supported"),
        (vec![picture], "part 0: the picture is not base64"),
        (vec![blob(None, "/w==")], "part 0: `file:///a/b` is no text, and OpenClaw takes text and pictures only"),
    ];
    for (parts, why) in cases {
        assert_eq!(said(parts, None), format!("error: {why}"));
    }
}

#[test]
fn the_limit_counts_while_collecting_and_again_at_the_end() {
    let most = "x".repeat(MAX_PROMPT);
    assert_eq!(said(vec![text(&most)], None).len(), MAX_PROMPT);
    let why = "error: the prompt exceeds the maximum allowed size of 2097152 bytes";
    assert_eq!(said(vec![text(&most), text("x")], None), why);
    assert_eq!(said(vec![text(&most)], Some("/a")), why);
}

/// The original put the directory before commands too, and `/status` answered nothing.
#[test]
fn commands_and_stop_words_stand_alone() {
    for alone in
        ["/status", "  /think low", "stop", "Stop!", "please  stop", "wait", "/stop.", "止めて", "Aufhören!", "don’t"]
    {
        let expected =
            if alone == "don’t" { "[Working directory: /a]\n\ndon’t".to_owned() } else { alone.to_owned() };
        assert_eq!(said(vec![text(alone)], Some("/a")), expected);
    }
    assert!(is_stop_word("stop don’t do anything"));
    assert!(!is_stop_word("stop the music"));
    assert!(!is_stop_word(""));
}

#[test]
fn the_directory_comes_and_goes() {
    let place = shown_place("/home/u/project", Some(Path::new("/home/u")));
    assert_eq!(place, "~/project");
    let whole = said(vec![text("hello\n\nyou")], Some(&place));
    assert_eq!(whole, "[Working directory: ~/project]\n\nhello\n\nyou");
    assert_eq!(without_prefix(&whole), "hello\n\nyou");
    assert_eq!(shown_place("/home/u", Some(Path::new("/home/u"))), "~");
    assert_eq!(shown_place("/srv/a]\nb", Some(Path::new("/home/u"))), "/srv/a__b");
    for other in ["hello", "[Working directory: ~/x] hello", "[Working directory: a\nb]\n\nhello"] {
        assert_eq!(without_prefix(other), other);
    }
}

#[test]
fn titles_say_what_was_said() {
    let clean = |title: &str| clean_title(title).unwrap_or_else(|| "-".to_owned());
    assert_eq!(clean("[Working directory: /srv/openclaw/workspace] hello MOCK…"), "hello MOCK");
    assert_eq!(clean("[Working directory: /srv/openclaw/work…"), "-");
    assert_eq!(clean("hello"), "hello");
    assert_eq!(title_of("\n  first line\nsecond").as_deref(), Some("first line"));
    assert_eq!(title_of(&"x".repeat(100)).map(|title| title.chars().count()), Some(61));
    assert_eq!(title_of(" \n"), None);
}

#[test]
fn the_meta_of_a_prompt_is_read_as_far_as_it_goes() {
    let raw = serde_json::value::to_raw_value(&serde_json::json!({
        "sessionId": "s", "prompt": [], "_meta": { "thinkingLevel": "low", "deliver": true, "timeoutMs": 5, "prefixCwd": false },
    }));
    let meta = PromptMeta::of(Some(&raw.expect("JSON")));
    assert_eq!(meta.thinking.as_deref(), Some("low"));
    assert_eq!((meta.deliver, meta.timeout_ms, meta.prefix_cwd), (Some(true), Some(5), Some(false)));
    assert_eq!(PromptMeta::of(None).thinking, None);
}

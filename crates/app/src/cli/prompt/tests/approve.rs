//! Tables of decisions: which mode answers what, and what a typed line means.

use serde_json::{Value, json};

use crate::cli::prompt::approve::{ApproveMode, Decision, Question, default_mode, outcome};
use crate::cli::prompt::tool::Tool;
use crate::cli::term::Palette;

fn options(kinds: &[&str]) -> Value {
    let options = kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| json!({"optionId": format!("{kind}-{at}"), "name": format!("Option {at}"), "kind": kind}));
    options.collect()
}

const ALL: [&str; 4] = ["allow_once", "allow_always", "reject_once", "reject_always"];

fn question(kind: Option<&str>, kinds: &[&str]) -> Question {
    let params = json!({"toolCall": {"toolCallId": "t", "title": "Run", "kind": kind}, "options": options(kinds)});
    Question::read(&params, None).unwrap()
}

fn select(id: &str) -> Decision {
    Decision::Select(id.to_owned())
}

#[test]
fn each_mode_decides_by_kind_and_options() {
    use ApproveMode::{All, Ask, None as Nothing, Reads};
    let allow = || select("allow_once-0");
    let reject = || select("reject_once-2");
    for (mode, kind, kinds, decision) in [
        (Ask, Some("read"), &ALL[..], Decision::Ask),
        (Ask, Some("execute"), &ALL, Decision::Ask),
        (All, Some("execute"), &ALL, allow()),
        (All, None, &ALL, allow()),
        (Reads, Some("read"), &ALL, allow()),
        (Reads, Some("search"), &ALL, allow()),
        (Reads, Some("edit"), &ALL, reject()),
        (Reads, Some("execute"), &ALL, reject()),
        (Reads, Some("fetch"), &ALL, reject()),
        (Reads, Some("Read"), &ALL, reject()),
        (Reads, None, &ALL, reject()),
        (Nothing, Some("read"), &ALL, reject()),
        // What lasts is never chosen for a person, in neither direction.
        (All, Some("read"), &["allow_always", "reject_once"], select("reject_once-1")),
        (All, Some("read"), &["allow_always"], Decision::Cancel),
        (Nothing, Some("read"), &["allow_once", "reject_always"], Decision::Cancel),
        // A question with several answers is none that a mode can answer.
        (All, Some("other"), &["allow_once", "allow_once"], Decision::Cancel),
        (All, Some("other"), &["new_kind"], Decision::Cancel),
    ] {
        assert_eq!(question(kind, kinds).decide(mode), decision, "{mode:?} {kind:?} {kinds:?}");
    }
}

#[test]
fn reading_has_to_be_said_by_announcement_and_request() {
    for (announced, requested, allowed) in [
        (Some("read"), None, true),
        (Some("read"), Some("search"), true),
        (Some("execute"), Some("read"), false),
        (Some("read"), Some("execute"), false),
        (Some(""), None, false),
        (Some(""), Some("read"), true),
        (None, None, false),
    ] {
        let known = announced.map(|kind| Tool { kind: kind.to_owned(), ..Tool::default() });
        let mut params = json!({"toolCall": {"toolCallId": "t"}, "options": options(&ALL)});
        if let Some(kind) = requested {
            params["toolCall"]["kind"] = json!(kind);
        }
        let question = Question::read(&params, known.as_ref()).unwrap();
        let is_allowed = question.decide(ApproveMode::Reads) == select("allow_once-0");
        assert_eq!(is_allowed, allowed, "{announced:?} {requested:?}");
    }
}

#[test]
fn typed_lines_name_options() {
    let plain = question(Some("execute"), &ALL);
    assert_eq!(plain.keys(), ["y", "a", "n", "r"]);
    for (line, decision) in [
        ("y\n", Some(select("allow_once-0"))),
        (" Y ", Some(select("allow_once-0"))),
        ("yes", Some(select("allow_once-0"))),
        ("a", Some(select("allow_always-1"))),
        ("n", Some(select("reject_once-2"))),
        ("no", Some(select("reject_once-2"))),
        ("r", Some(select("reject_always-3"))),
        ("reject_once-2", Some(select("reject_once-2"))),
        ("", None),
        ("\n", None),
        ("yy", None),
        ("1", None),
    ] {
        assert_eq!(plain.typed(line), decision, "{line:?}");
    }
    let choices = question(None, &["allow_once", "allow_once", "reject_once"]);
    assert_eq!(choices.keys(), ["1", "2", "3"]);
    assert_eq!(choices.typed("2"), Some(select("allow_once-1")));
    assert_eq!(choices.typed("y"), None);
    assert_eq!(choices.typed("4"), None);
}

#[test]
fn the_whole_command_is_shown_and_nothing_in_it_hides() {
    let command = format!("echo {} \u{1b}[8mhidden\u{202e} && rm -rf /tmp/x\nsecond line", "a".repeat(5000));
    let params = json!({
        "toolCall": {
            "toolCallId": "t", "title": "Run a command", "kind": "execute",
            "rawInput": {"command": command, "timeout": 5},
        },
        "options": options(&ALL),
        "_meta": {"zeroclaw": {"reasons": ["`rm` changes files", {"text": "asked always"}]}},
    });
    let shown = Question::read(&params, None).unwrap().describe(Palette::plain());
    assert!(shown.starts_with("? Run a command [execute]\n  $ echo aaa"), "{shown}");
    assert!(shown.contains("␛[8mhidden<U+202E> && rm -rf /tmp/x\n  second line\n"), "{shown}");
    assert!(shown.contains("\"timeout\": 5"), "{shown}");
    assert!(shown.contains("why: `rm` changes files\n  why: asked always\n"), "{shown}");
}

#[test]
fn the_whole_diff_is_shown_with_what_was_announced() {
    let new: String = (0..500).map(|number| format!("line {number}\n")).collect();
    let known = Tool {
        title: "Write notes".to_owned(),
        kind: "edit".to_owned(),
        content: vec![json!({"type": "diff", "path": "/p/notes", "oldText": null, "newText": new})],
        raw_input: Some(json!({"path": "/p/notes", "content": new})),
        ..Tool::default()
    };
    let params = json!({"toolCall": {"toolCallId": "t"}, "options": options(&ALL)});
    let question = Question::read(&params, Some(&known)).unwrap();
    let shown = question.describe(Palette::plain());
    assert!(shown.starts_with("? Write notes [edit]\n--- /dev/null\n+++ /p/notes\n"), "{shown}");
    assert!(shown.contains("\n+line 0\n") && shown.contains("\n+line 499\n"));
    assert!(!shown.contains("\"content\""), "the diff says it already");
    assert_eq!(question.ask(), "  y = Option 0, a = Option 1, n = Option 2, r = Option 3 > ");
}

#[test]
fn long_options_stand_below_each_other() {
    let name = "Always allow exactly this one long command in this very directory";
    let params = json!({"toolCall": {"toolCallId": "t"}, "options": [
        {"optionId": "1", "name": "Allow once", "kind": "allow_once"},
        {"optionId": "2", "name": name, "kind": "allow_always"},
    ]});
    let asked = Question::read(&params, None).unwrap().ask();
    assert_eq!(asked, format!("  y = Allow once\n  a = {name}\n  > "));
}

#[test]
fn what_is_said_already_is_not_said_twice() {
    let block = |text: &str| json!({"type": "content", "content": {"type": "text", "text": text}});
    let params = json!({
        "toolCall": {"toolCallId": "t", "title": "Run ls", "rawInput": {"command": "ls"},
            "content": [block("```sh\nls\n```"), block("Run ls"), block("Asked because of the level.")]},
        "options": options(&ALL),
    });
    let shown = Question::read(&params, None).unwrap().describe(Palette::plain());
    assert_eq!(shown, "? Run ls\n  $ ls\n  Asked because of the level.\n");
    let params = json!({
        "toolCall": {"toolCallId": "t", "title": "Which?", "name": "ask_user", "rawInput": {"question": "Which?"}},
        "options": options(&ALL),
    });
    assert_eq!(Question::read(&params, None).unwrap().describe(Palette::plain()), "? Which?\n");
}

#[test]
fn malformed_requests_are_refused_with_a_reason() {
    let many = options(&["allow_once"; 65]);
    for params in [
        json!({}),
        json!({"options": []}),
        json!({"options": [{"name": "no id"}]}),
        json!({"options": many}),
        json!(null),
    ] {
        assert!(Question::read(&params, None).is_err(), "{params}");
    }
}

#[test]
fn answers_have_the_shape_of_the_protocol() {
    assert_eq!(outcome(&select("x")), json!({"outcome": {"outcome": "selected", "optionId": "x"}}));
    assert_eq!(outcome(&Decision::Cancel), json!({"outcome": {"outcome": "cancelled"}}));
}

#[test]
fn only_a_person_at_a_terminal_is_asked_by_default() {
    for (input, error, mode) in [
        (true, true, ApproveMode::Ask),
        (false, true, ApproveMode::None),
        (true, false, ApproveMode::None),
        (false, false, ApproveMode::None),
    ] {
        assert_eq!(default_mode(input, error), mode);
    }
}

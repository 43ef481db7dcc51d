//! Tables from updates to text.

use serde_json::{Value, json};

use crate::cli::prompt::render::{Renderer, Target};
use crate::cli::prompt::tool::unfenced;
use crate::cli::term::Palette;

/// Renders updates without colour: `A` marks answer text, `I` information.
fn rendered(updates: &[Value]) -> String {
    let mut renderer = Renderer::new(Palette::plain());
    let mut shown = String::new();
    let pieces: Vec<_> = updates.iter().flat_map(|update| renderer.update(update)).collect();
    for piece in pieces.into_iter().chain(renderer.finish()) {
        shown.push(match piece.target {
            Target::Answer => 'A',
            Target::Info => 'I',
        });
        shown.push_str(&format!("{:?} ", piece.text));
    }
    shown.trim_end().to_owned()
}

fn answer(text: &str) -> Value {
    json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
}

fn thought(text: &str) -> Value {
    json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": text}})
}

fn call(id: &str, status: &str) -> Value {
    json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": "List files", "kind": "execute", "status": status})
}

fn progress(id: &str, status: &str) -> Value {
    json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status})
}

fn output(id: &str, status: &str, text: &str) -> Value {
    let mut update = progress(id, status);
    update["content"] = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    update
}

#[test]
fn answers_stream_to_the_answer_and_end_with_a_line_feed() {
    assert_eq!(rendered(&[answer("Hel"), answer("lo")]), r#"A"Hel" A"lo" A"\n""#);
    assert_eq!(rendered(&[answer("Hello\n")]), r#"A"Hello\n""#);
    assert_eq!(rendered(&[answer("")]), "");
}

#[test]
fn two_messages_are_told_apart_and_one_is_not_cut() {
    let with_id = |text: &str, id: &str| {
        let mut update = answer(text);
        update["messageId"] = json!(id);
        update
    };
    assert_eq!(rendered(&[with_id("a", "1"), with_id("b", "2")]), r#"A"a" A"\n" A"b" A"\n""#);
    assert_eq!(
        rendered(&[with_id("a", "1"), call("t", "pending"), with_id("b", "1")]),
        r#"A"a" I"○ List files\n" A"b" A"\n""#
    );
    assert_eq!(
        rendered(&[answer("a"), call("t", "pending"), answer("b")]),
        r#"A"a" I"○ List files\n" A"\n" A"b" A"\n""#
    );
    let usage = json!({"sessionUpdate": "usage_update", "used": 1, "size": 2});
    assert_eq!(rendered(&[answer("a"), usage, answer("b")]), r#"A"a" A"b" A"\n""#);
}

#[test]
fn thoughts_are_marked_and_closed_before_anything_else() {
    assert_eq!(
        rendered(&[thought("first\nsec"), thought("ond"), answer("x")]),
        r#"I"· first\n· sec" I"ond" I"\n" A"x" A"\n""#
    );
    assert_eq!(rendered(&[thought("done\n"), call("t", "pending")]), r#"I"· done\n" I"○ List files\n""#);
}

#[test]
fn each_status_has_its_mark_and_a_step_is_not_said_twice() {
    assert_eq!(
        rendered(&[call("t", "pending"), progress("t", "in_progress"), progress("t", "completed")]),
        r#"I"○ List files\n" I"✓ List files\n""#
    );
    assert_eq!(
        rendered(&[call("t", "pending"), answer("x\n"), progress("t", "in_progress"), progress("t", "failed")]),
        r#"I"○ List files\n" A"x\n" I"▶ List files\n" I"✗ List files\n""#
    );
    assert_eq!(rendered(&[call("t", "completed"), progress("t", "completed")]), r#"I"✓ List files\n""#);
    assert_eq!(rendered(&[progress("unknown", "failed")]), r#"I"✗ unknown\n""#);
}

#[test]
fn growing_output_is_shown_once_and_by_whole_lines() {
    assert_eq!(
        rendered(&[
            call("t", "in_progress"),
            output("t", "in_progress", "one\ntw"),
            output("t", "in_progress", "one\ntwo\nthr"),
            output("t", "completed", "one\ntwo\nthree"),
        ]),
        r#"I"▶ List files\n" I"  │ one\n" I"  │ two\n" I"  │ three\n" I"✓ List files\n""#
    );
}

#[test]
fn replaced_output_is_shown_anew() {
    assert_eq!(
        rendered(&[output("t", "in_progress", "old\n"), output("t", "completed", "new\n")]),
        r#"I"▶ t\n" I"  │ old\n" I"  │ new\n" I"✓ t\n""#
    );
}

#[test]
fn output_is_bounded_by_lines_and_by_bytes_and_the_rest_is_counted() {
    let many: String = (0..100).map(|number| format!("{number:02}\n")).collect();
    let shown = rendered(&[output("t", "completed", &many)]);
    assert!(shown.contains("│ 59\\n") && !shown.contains("│ 60\\n"), "{shown}");
    assert!(shown.contains("… 120 more bytes"), "{shown}");
    let long = "x".repeat(100_000);
    let shown = rendered(&[output("t", "completed", &long)]);
    assert!(shown.len() < 9_000, "{}", shown.len());
    assert!(shown.contains("… 91808 more bytes"), "{}", &shown[8_000..]);
}

#[test]
fn raw_output_is_shown_where_there_is_nothing_else() {
    let mut update = progress("t", "completed");
    update["rawOutput"] = json!("plain");
    assert_eq!(rendered(&[update.clone()]), r#"I"  │ plain\n" I"✓ t\n""#);
    update["content"] = json!([{"type": "content", "content": {"type": "text", "text": "better"}}]);
    assert_eq!(rendered(&[update]), r#"I"  │ better\n" I"✓ t\n""#);
}

#[test]
fn diffs_are_unified_and_shown_once() {
    let mut update = progress("t", "in_progress");
    update["content"] = json!([{"type": "diff", "path": "/p/a.txt", "oldText": "one\ntwo\n", "newText": "one\n2\n"}]);
    let mut last = update.clone();
    last["status"] = json!("completed");
    assert_eq!(
        rendered(&[update, last]),
        concat!(
            r#"I"▶ t\n" I"  --- /p/a.txt\n  +++ /p/a.txt\n  @@ -1,2 +1,2 @@\n   one\n  -two\n  +2\n" "#,
            r#"I"✓ t\n""#
        )
    );
}

#[test]
fn a_new_file_comes_from_nothing_and_a_missing_line_feed_is_said() {
    let mut update = progress("t", "completed");
    update["content"] = json!([{"type": "diff", "path": "/n", "oldText": null, "newText": "a\u{1b}[2J"}]);
    let shown = rendered(&[update]);
    assert!(shown.contains("--- /dev/null\\n  +++ /n\\n"), "{shown}");
    assert!(shown.contains("+a␛[2J\\n  \\\\ no newline at end of file"), "{shown}");
}

#[test]
fn diffs_are_coloured_by_line() {
    let mut renderer = Renderer::new(Palette::coloured());
    let mut update = progress("t", "completed");
    update["content"] = json!([{"type": "diff", "path": "/p", "oldText": "a\n", "newText": "b\n"}]);
    let text: String = renderer.update(&update).into_iter().map(|piece| piece.text).collect();
    assert!(text.contains("\u{1b}[31m-a\u{1b}[0m\n"), "{text:?}");
    assert!(text.contains("\u{1b}[32m+b\u{1b}[0m\n"), "{text:?}");
}

#[test]
fn a_proposal_is_shown_once_it_runs_and_not_again_after_a_question() {
    let mut pending = call("t", "pending");
    let diff = json!({"type": "diff", "path": "/p", "oldText": "a\n", "newText": "b\n"});
    pending["content"] = json!([{"type": "content", "content": {"type": "text", "text": "ls"}}, diff]);
    assert_eq!(rendered(std::slice::from_ref(&pending)), r#"I"○ List files\n""#);
    assert!(rendered(&[pending.clone(), progress("t", "completed")]).contains("-a"));

    assert_eq!(
        rendered(&[pending.clone(), output("t", "in_progress", "ls\nout\n"), output("t", "completed", "ls\nout\nend")]),
        r#"I"○ List files\n" I"  │ out\n" I"  │ end\n" I"✓ List files\n""#
    );

    let mut renderer = Renderer::new(Palette::plain());
    renderer.update(&pending);
    let proposed = renderer.tool("t").unwrap().clone();
    renderer.shown("t", &proposed);
    let text: String = renderer.update(&progress("t", "completed")).into_iter().map(|piece| piece.text).collect();
    assert_eq!(text, "  │ ls\n✓ List files\n");
}

#[test]
fn a_fence_around_the_whole_output_is_taken_off() {
    for (text, inside) in [
        ("```console\nout\n```", "out\n"),
        ("```\n```", ""),
        ("````\na\n```\nb\n````\n", "a\n```\nb\n"),
        ("```\na\n```\nb\n```", "```\na\n```\nb\n```"),
        ("```a``` b", "```a``` b"),
        ("```sh\nopen", "```sh\nopen"),
        ("``` x```", "``` x```"),
        ("plain", "plain"),
        ("", ""),
    ] {
        assert_eq!(unfenced(text), inside, "{text:?}");
    }
    assert_eq!(
        rendered(&[
            output("t", "in_progress", "one\n"),
            output("t", "completed", "```console\none\n[exit code 1]\n```")
        ]),
        r#"I"▶ t\n" I"  │ one\n" I"  │ [exit code 1]\n" I"✓ t\n""#
    );
}

#[test]
fn plans_are_lists_and_an_unchanged_one_is_not_repeated() {
    let plan = json!({"sessionUpdate": "plan", "entries": [
        {"content": "look", "priority": "high", "status": "completed"},
        {"content": "act", "priority": "high", "status": "in_progress"},
        {"content": "tell", "priority": "low", "status": "pending"},
    ]});
    assert_eq!(rendered(&[plan.clone(), plan]), r#"I"plan\n  ☑ look\n  ▶ act\n  ☐ tell\n""#);
}

#[test]
fn no_control_character_of_the_agent_gets_through_in_any_update() {
    let evil = "x\u{1b}]0;owned\u{7}\u{9b}2J\u{8}\r";
    let mut tool = output("t\u{1b}c", "completed", evil);
    tool["title"] = json!(evil);
    let mut edit = progress("d", "completed");
    edit["content"] = json!([
        {"type": "diff", "path": evil, "oldText": evil, "newText": "y"},
        {"type": "terminal", "terminalId": evil},
        {"type": evil},
        {"type": "content", "content": {"type": "resource_link", "uri": evil}},
    ]);
    let updates = [
        answer(evil),
        thought(evil),
        json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": evil}}),
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "mimeType": evil}}),
        tool,
        edit,
        json!({"sessionUpdate": "plan", "entries": [{"content": evil, "status": "pending"}]}),
        json!({"sessionUpdate": "current_mode_update", "currentModeId": evil}),
        json!({"sessionUpdate": "notice", "title": evil}),
    ];
    let mut renderer = Renderer::new(Palette::plain());
    for update in &updates {
        let pieces = renderer.update(update);
        assert!(!pieces.is_empty(), "{update}");
        for piece in pieces {
            assert!(piece.text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'), "{:?}", piece.text);
        }
    }
}

#[test]
fn unknown_and_malformed_updates_give_nothing() {
    for update in [
        json!({"sessionUpdate": "brand_new", "content": 1}),
        json!({"sessionUpdate": "agent_message_chunk"}),
        json!({"sessionUpdate": "agent_message_chunk", "content": "text"}),
        json!({"sessionUpdate": "tool_call", "title": "no id"}),
        json!({"sessionUpdate": "plan", "entries": 3}),
        json!(null),
        json!([1]),
    ] {
        assert_eq!(rendered(std::slice::from_ref(&update)), "", "{update}");
    }
}

#[test]
fn history_keeps_the_answer_stream_free() {
    let mut renderer = Renderer::new(Palette::plain());
    renderer.answers_to(Target::Info);
    let user = json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "hi\nyou"}});
    let pieces: Vec<_> = [user, answer("old answer")].iter().flat_map(|update| renderer.update(update)).collect();
    assert!(pieces.iter().all(|piece| piece.target == Target::Info));
    let text: String = pieces.into_iter().map(|piece| piece.text).collect();
    assert_eq!(text, "> hi\n> you\nold answer");
}

#[test]
fn more_tool_calls_than_are_remembered_are_still_shown() {
    let mut renderer = Renderer::new(Palette::plain());
    for number in 0..3_000 {
        assert_eq!(renderer.update(&call(&format!("t{number}"), "pending")).len(), 1);
    }
    assert!(renderer.tool("t0").is_none());
    assert!(renderer.tool("t2999").is_some());
}

//! Tool calls: final statuses, order, ids, arguments, progress.

use std::sync::{Arc, atomic::Ordering};

use serde_json::Value;
use tokio::sync::{Barrier, Notify};
use zeroclaw_policy::Level;
use zeroclaw_runtime::{
    model::Message,
    tool::{PlanEntry, PlanPriority, PlanStatus, ToolContent},
    turn::{Approval, CallStatus, StopReason},
};

use crate::support::{Bench, Doing, Effect, Person, Reply, Seen, asks_for, call, end, says};

use CallStatus::{Completed, Failed, InProgress, Pending};

/// In a peer the last calls of a turn and every denied one stayed in progress for ever.
#[tokio::test]
async fn tlc_01_every_call_reaches_exactly_one_final_status() {
    let mut bench = Bench::new(
        vec![
            asks_for(&[
                ("good", "{}"),
                ("good", "{}"),
                ("bad", "{}"),
                ("write", "{}"),
                ("slow", "{}"),
                ("unprepared", "{}"),
                ("nothing_like_it", "{}"),
                ("good", "{\"path\":"),
                ("good", "[1]"),
                ("good", "{\"path\":\"/etc/passwd\"}"),
                ("panics", "{}"),
                ("panics_early", "{}"),
                ("hidden", "{}"),
                ("write", "{\"path\":\"b.txt\"}"),
            ]),
            says("done"),
        ],
        &[
            ("good", Effect::Read, Doing::Say("fine")),
            ("bad", Effect::Read, Doing::Fail("disk on fire")),
            ("write", Effect::Write, Doing::Say("written")),
            ("slow", Effect::Read, Doing::Fail("timed out after 1 s")),
            ("unprepared", Effect::Read, Doing::FailInPrepare("no such file")),
            ("panics", Effect::Read, Doing::Panic),
            ("panics_early", Effect::Read, Doing::PanicInPrepare),
            ("hidden", Effect::Read, Doing::Say("must not run")),
        ],
    );
    bench.rules.excluded_tools = vec!["hidden".to_owned()];
    bench.person =
        Person::answering(vec![Some(Approval::RejectOnce), Some(Approval::NoDecision("time ran out".to_owned()))]);
    let outcome = bench.run().await.expect("the turn goes on");
    assert_eq!((outcome.stop, outcome.text.as_str()), (StopReason::EndTurn, "done"));

    let results = bench.results();
    let wanted: [(&str, bool); 14] = [
        ("fine", false),
        ("fine", false),
        ("disk on fire", true),
        ("the user rejected this call", true),
        ("timed out after 1 s", true),
        ("no such file", true),
        ("there is no tool named `nothing_like_it`", true),
        ("invalid arguments: the arguments are not valid JSON: EOF while parsing a value at line 1 column 8", true),
        ("invalid arguments: the arguments are not a JSON object", true),
        ("invalid arguments: `/etc/passwd` is outside the directories of this session", true),
        ("the tool broke down (internal error)", true),
        ("the tool broke down (internal error)", true),
        ("the tool `hidden` is excluded by configuration", true),
        ("no decision: time ran out", true),
    ];
    assert_eq!(results, wanted.map(|(content, failed)| (content.to_owned(), failed)));
    for (index, (content, failed)) in results.iter().enumerate() {
        let id = format!("call-1-{}", index + 1);
        let statuses = bench.sink.statuses(&id);
        assert_eq!(statuses.first(), Some(&Pending), "{id}");
        assert_eq!(statuses.last(), Some(if *failed { &Failed } else { &Completed }), "{id}");
        assert_eq!(&bench.sink.output(&id), content);
    }
    let offered: Vec<String> = bench.model.requests()[0].tools.iter().map(|tool| tool.name.clone()).collect();
    assert!(!offered.contains(&"hidden".to_owned()));
    assert!(!bench.log.lines().contains(&"call-1-13 begins".to_owned()));
}

#[tokio::test]
async fn a_call_goes_through_its_statuses_and_ids_follow_the_turn() {
    let mut bench =
        Bench::new(vec![asks_for(&[("look", "{}")]), says("x")], &[("look", Effect::Read, Doing::Say("seen"))]);
    bench.turn = 7;
    bench.run().await.expect("a turn");
    assert_eq!(bench.sink.statuses("call-7-1"), [Pending, InProgress, Completed]);
    let started = Seen::Started {
        id: "call-7-1".to_owned(),
        tool: "look".to_owned(),
        title: "Use look".to_owned(),
        raw_input: "{}".to_owned(),
    };
    assert!(bench.sink.seen().contains(&started));
}

#[tokio::test]
async fn prm_07_a_readonly_session_refuses_changes_without_a_question() {
    let mut bench =
        Bench::new(vec![asks_for(&[("write", "{}")]), says("x")], &[("write", Effect::Write, Doing::Say("written"))]);
    bench.rules.level = Level::Readonly;
    bench.run().await.expect("a turn");
    assert_eq!(bench.results(), [("refused: the level `readonly` changes nothing".to_owned(), true)]);
    assert_eq!(bench.sink.statuses("call-1-1"), [Pending, Failed]);
    assert_eq!(bench.log.lines(), Vec::<String>::new());
    // What was refused stays visible beside the reason.
    let content = bench.sink.seen().into_iter().find_map(|seen| match seen {
        Seen::Changed { content, .. } => content,
        _ => None,
    });
    let texts = ["view", "refused: the level `readonly` changes nothing"];
    assert_eq!(content, Some(texts.map(|text| ToolContent::Text(text.to_owned())).to_vec()));
}

/// A conversation with a repeated id or broken arguments is refused by vendors for good; the double checks each request.
#[tokio::test]
async fn prv_09_what_goes_back_to_the_model_is_well_formed() {
    let odd = |id: &str| {
        Reply::Events(vec![
            call(id, "look", "{\"path\": \"a.txt\",\r\n \"n\": 12345678901234567890123}"),
            call(id, "look", ""),
            call("", "look here!\u{1b}[2K", "not json"),
            call(&"long".repeat(100), "", "\"text\""),
            end(),
        ])
    };
    let mut bench =
        Bench::new(vec![odd("same"), odd("same"), says("x")], &[("look", Effect::Read, Doing::Say("seen"))]);
    bench.run().await.expect("a turn");
    bench.next_turn(vec![odd("same"), says("x")]);
    bench.run().await.expect("a turn");

    let started: Vec<(String, String, String)> = bench
        .sink
        .seen()
        .into_iter()
        .filter_map(|seen| match seen {
            Seen::Started { id, tool, raw_input, .. } => Some((id, tool, raw_input)),
            _ => None,
        })
        .collect();
    assert_eq!(started.len(), 12);
    assert_eq!(started[0].2, "{\"path\": \"a.txt\",   \"n\": 12345678901234567890123}");
    assert_eq!(started[1].2, "{}");
    assert_eq!(started[2].1, "look here!\\u{1b}[2K");
    assert_eq!(started[2].2, "{\"malformed\":\"not json\"}");
    assert_eq!(serde_json::from_str::<Value>(&started[3].2).unwrap()["malformed"], "\"text\"");
    let ids: std::collections::HashSet<&String> = started.iter().map(|(id, ..)| id).collect();
    assert_eq!(ids.len(), 12);
    let kept: Vec<(String, String)> = bench
        .history
        .iter()
        .filter_map(|message| match &**message {
            Message::Assistant { tool_calls, .. } => Some(tool_calls.clone()),
            Message::User { .. } | Message::Tool { .. } => None,
        })
        .flatten()
        .map(|call| (call.id, call.name))
        .collect();
    let kept: Vec<(&str, &str)> = kept.iter().map(|(id, name)| (id.as_str(), name.as_str())).collect();
    assert_eq!(
        kept[..6],
        [
            ("same", "look"),
            ("call-1-2", "look"),
            ("call-1-3", "look_here___2K"),
            ("call-1-4", "unknown"),
            ("call-1-5", "look"),
            ("call-1-6", "look"),
        ]
    );
}

#[tokio::test]
async fn reads_of_one_answer_run_side_by_side_and_are_recorded_in_order() {
    let barrier = Arc::new(Barrier::new(3));
    let mut bench = Bench::new(
        vec![asks_for(&[("meet", "{}"), ("say", "{}"), ("meet", "{}"), ("meet", "{}")]), says("x")],
        &[("meet", Effect::Read, Doing::Meet(barrier)), ("say", Effect::Read, Doing::Say("said"))],
    );
    bench.run().await.expect("nobody waits for ever");
    let results: Vec<String> = bench.results().into_iter().map(|(content, _)| content).collect();
    assert_eq!(results, ["met", "said", "met", "met"]);
}

#[tokio::test]
async fn not_more_than_eight_run_at_once() {
    let signal = Arc::new(Notify::new());
    let calls = [("wait", "{}"); 20];
    let mut bench =
        Bench::new(vec![asks_for(&calls), says("x")], &[("wait", Effect::Read, Doing::Wait(Arc::clone(&signal)))]);
    bench
        .run_beside(|at| async move {
            at.log.wait("call-1-8 begins").await;
            for number in 1..=20 {
                signal.notify_one();
                at.log.wait(&format!("call-1-{number} ends")).await;
            }
        })
        .await
        .expect("a turn");
    assert_eq!(bench.log.peak(), 8);
    assert_eq!(bench.results().len(), 20);
}

#[tokio::test]
async fn a_change_runs_after_what_came_before_and_before_what_comes_after() {
    let mut bench = Bench::new(
        vec![asks_for(&[("look", "{}"), ("write", "{}"), ("write", "{}"), ("look", "{}")]), says("x")],
        &[("look", Effect::Read, Doing::Say("seen")), ("write", Effect::Write, Doing::Say("written"))],
    );
    bench.rules.level = Level::Full;
    bench.run().await.expect("a turn");
    let wanted: Vec<String> =
        (1..=4).flat_map(|n| [format!("call-1-{n} begins"), format!("call-1-{n} ends")]).collect();
    assert_eq!(bench.log.lines(), wanted);
    assert_eq!(bench.log.peak(), 1);
    // A second change is looked at only when the first is done.
    let seen = bench.sink.seen();
    let place = |wanted: &dyn Fn(&Seen) -> bool| seen.iter().position(wanted).expect("seen");
    let first_done =
        place(&|seen| matches!(seen, Seen::Changed { id, status: Some(Completed), .. } if id == "call-1-2"));
    let second_begins = place(&|seen| matches!(seen, Seen::Started { id, .. } if id == "call-1-3"));
    assert!(first_done < second_begins);
}

#[tokio::test]
async fn prf_01_streamed_output_costs_less_than_three_times_its_size() {
    for (pieces, size) in [(1, 1), (5_000, 1), (3_000, 80), (300, 5_000), (3, 1_000_000)] {
        let mut bench = Bench::new(
            vec![asks_for(&[("stream", "{}")]), says("x")],
            &[("stream", Effect::Read, Doing::Stream { pieces, size })],
        );
        bench.run().await.expect("a turn");
        let shown: Vec<usize> = bench
            .sink
            .seen()
            .into_iter()
            .filter_map(|seen| match seen {
                Seen::Changed { status: Some(InProgress), content: Some(content), .. } => Some(content),
                _ => None,
            })
            .map(|content| match content.as_slice() {
                [ToolContent::Text(text)] => text.len(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(!shown.is_empty());
        assert!(shown.iter().sum::<usize>() < 3 * pieces * size, "{pieces} of {size}");
        assert!(shown.iter().all(|length| *length < 5_000));
        // The view comes back, because the outcome has nothing to show in the place of the output.
        let last = bench.sink.seen().into_iter().rev().find_map(|seen| match seen {
            Seen::Changed { status: Some(Completed), content, .. } => content,
            _ => None,
        });
        assert_eq!(last, Some(vec![ToolContent::Text("view".to_owned())]));
    }
}

#[tokio::test]
async fn a_client_that_is_behind_gets_no_further_output_until_it_has_room() {
    let mut bench = Bench::new(
        vec![asks_for(&[("stream", "{}")]), says("x")],
        &[("stream", Effect::Read, Doing::Stream { pieces: 1_000, size: 1_000 })],
    );
    bench
        .run_beside(|at| async move {
            at.log.wait("call-1-1 begins").await;
            at.sink.full.store(true, Ordering::SeqCst);
            at.log.wait("call-1-1 ends").await;
            at.sink.full.store(false, Ordering::SeqCst);
            at.sink.room.notify_waiters();
        })
        .await
        .expect("a turn");
    let shown = bench
        .sink
        .seen()
        .iter()
        .filter(|seen| matches!(seen, Seen::Changed { status: Some(InProgress), content: Some(_), .. }))
        .count();
    assert!(shown <= 3, "{shown} updates to a client that takes none");
}

#[tokio::test]
async fn tlc_09_a_result_without_bound_is_bounded() {
    let mut bench = Bench::new(
        vec![asks_for(&[("flood", "{}")]), says("x")],
        &[("flood", Effect::Read, Doing::SayMuch(50_000_000))],
    );
    bench.run().await.expect("a turn");
    let (content, failed) = bench.results().remove(0);
    assert!(!failed);
    assert!(content.len() < 25_000, "{}", content.len());
    assert!(content.contains("of 50000000 bytes left out"));
    assert_eq!(bench.sink.output("call-1-1"), content);
}

#[tokio::test]
async fn plans_and_messages_of_tools_reach_the_client() {
    let plan =
        vec![PlanEntry { content: "look".to_owned(), priority: PlanPriority::High, status: PlanStatus::InProgress }];
    let mut bench = Bench::new(
        vec![asks_for(&[("report", "{}")]), says("x")],
        &[("report", Effect::Read, Doing::Report(plan.clone()))],
    );
    bench.run().await.expect("a turn");
    let seen = bench.sink.seen();
    assert!(seen.contains(&Seen::Plan(plan)));
    assert!(seen.contains(&Seen::Text { message: "m-1-1".to_owned(), text: "a word to the user".to_owned() }));
    assert!(seen.contains(&Seen::Text { message: "m-1-2".to_owned(), text: "x".to_owned() }));
}

//! Addresses, failures and answers of vendors, without a network.

use std::{
    collections::VecDeque,
    time::{Duration, SystemTime},
};

use reqwest::header::{HeaderMap, HeaderValue};

use crate::model::{
    ModelError, ModelEvent, ToolCallRequest,
    vendor::{
        answer::{Decode, Reach},
        conversation::object_text,
        failure,
        lines::{Events, Lines},
        openai,
    },
};

/// The data of all events when the bytes come in pieces of this size.
fn events(bytes: &[u8], size: usize) -> Vec<String> {
    let mut reader = Events::default();
    let mut seen = Vec::new();
    let mut keep = |data: &[u8]| {
        seen.push(String::from_utf8_lossy(data).into_owned());
        Ok(())
    };
    for piece in bytes.chunks(size) {
        reader.feed(piece, &mut keep).unwrap();
    }
    reader.finish(&mut keep).unwrap();
    seen
}

#[test]
fn events_are_the_same_however_they_are_cut() {
    let table: &[(&str, &[&str])] = &[
        ("data: a\n\ndata: b\n\n", &["a", "b"]),
        ("data: a\r\rdata: b\r\r", &["a", "b"]),
        ("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
        ("\u{feff}event: x\nid: 3\ndata:a\n: comment\ndata:  b\nretry: 3\n\n", &["a\n b"]),
        ("data\n\n", &[""]),
        ("data:\ndata:\n\n", &["\n"]),
        ("\n\n: only a comment\n\nevent: nothing\n\n", &[]),
        ("database: x\ndata: y\n\n", &["y"]),
        ("data: a\r\n\ndata: b\n\r\n", &["a", "b"]),
        ("data: end is missing\n", &["end is missing"]),
        ("data: all is missing", &["all is missing"]),
        ("data: ü\u{2028}\u{85}😀\n\n", &["ü\u{2028}\u{85}😀"]),
    ];
    for (text, expected) in table {
        for size in 1..=text.len() {
            assert_eq!(events(text.as_bytes(), size), *expected, "{text:?} in pieces of {size}");
        }
    }
}

#[test]
fn lines_and_events_are_bounded() {
    let piece = vec![b'x'; 1 << 20];
    let mut lines = Lines::default();
    let fed: Result<Vec<()>, _> = (0..17).map(|_| lines.feed(&piece, |_| Ok(()))).collect();
    assert!(matches!(fed, Err(ModelError::Stream(_))), "an endless line");

    let mut events = Events::default();
    let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
    let fed: Result<Vec<()>, _> = (0..17).map(|_| events.feed(&line, |_| Ok(()))).collect();
    assert!(matches!(fed, Err(ModelError::Stream(_))), "an endless event");
}

/// A call's id, name and arguments.
type Made = (String, String, String);

/// The calls that these deltas make.
fn calls(deltas: &[&str]) -> Vec<Made> {
    let mut decoder = openai::decoder("made".to_owned(), None);
    let mut seen = VecDeque::new();
    for delta in deltas {
        let event = format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{delta}]}}}}]}}\n\n");
        assert_eq!(decoder.feed(event.as_bytes(), &mut seen).unwrap(), Reach::Open);
    }
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n";
    assert_eq!(decoder.feed(end.as_bytes(), &mut seen).unwrap(), Reach::Finishing);
    assert!(seen.is_empty());
    let parts = |call: ToolCallRequest| (call.id, call.name, call.arguments);
    decoder.ending().calls.into_iter().map(parts).collect()
}

#[test]
fn tool_calls_of_odd_servers() {
    let call = |id: &str, name: &str, arguments: &str| (id.to_owned(), name.to_owned(), arguments.to_owned());
    let table: &[(&[&str], &[Made])] = &[
        // A null id and the name again.
        (
            &[
                r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}"#,
                r#"{"index":0,"id":null,"function":{"name":"f","arguments":"}"}}"#,
            ],
            &[call("a", "f", "{}")],
        ),
        // Every call is number 0.
        (
            &[
                r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}"#,
                r#"{"index":0,"id":"b","function":{"name":"g","arguments":"{\"x\":"}}"#,
                r#"{"index":0,"function":{"arguments":"1}"}}"#,
            ],
            &[call("a", "f", "{}"), call("b", "g", "{\"x\":1}")],
        ),
        // No index at all.
        (
            &[
                r#"{"id":"a","function":{"name":"f","arguments":""}}"#,
                r#"{"function":{"arguments":"{}"}}"#,
                r#"{"id":"b","function":{"name":"g"}}"#,
                r#"{"id":"a","function":{"arguments":" "}}"#,
            ],
            &[call("a", "f", "{} "), call("b", "g", "{}")],
        ),
        // The id again in each fragment, empty ids, arguments as an object, no id.
        (
            &[
                r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}"#,
                r#"{"index":0,"id":"a","function":{"name":"","arguments":"}"}}"#,
                r#"{"index":3,"id":"","function":{"name":"g","arguments":{"x": [1]}}}"#,
                r#"{"index":3,"id":"","function":null}"#,
            ],
            &[call("a", "f", "{}"), call("made_2", "g", "{\"x\": [1]}")],
        ),
        // The id comes late.
        (
            &[
                r#"{"index":0,"function":{"name":"f","arguments":"{"}}"#,
                r#"{"index":0,"id":"a","function":{"arguments":"}"}}"#,
            ],
            &[call("a", "f", "{}")],
        ),
    ];
    for (deltas, expected) in table {
        assert_eq!(calls(deltas), *expected, "{deltas:?}");
    }
}

#[test]
fn content_in_all_forms() {
    let mut decoder = openai::decoder(String::new(), None);
    let mut seen = VecDeque::new();
    for delta in [
        r#"{"content":"a\nb\u00fc"}"#,
        r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"t"}]},{"type":"text","text":"c"}]}"#,
        r#"{"reasoning":"r","content":""}"#,
        r#"{"reasoning_content":"s","reasoning":"s"}"#,
        r#"{"refusal":"no"}"#,
    ] {
        let event = format!("data: {{\"choices\":[{{\"delta\":{delta},\"finish_reason\":null}}]}}\n\n");
        decoder.feed(event.as_bytes(), &mut seen).unwrap();
    }
    let (text, thought) = (|text: &str| ModelEvent::Text(text.into()), |text: &str| ModelEvent::Thought(text.into()));
    assert_eq!(seen, [text("a\nbü"), thought("t"), text("c"), thought("r"), thought("s"), text("no")]);
    for nonsense in ["data: {\n\n", "data: [1]\n\n", "data: {\"choices\":[{\"delta\":{\"content\":3}}]}\n\n"] {
        let fed = openai::decoder(String::new(), None).feed(nonsense.as_bytes(), &mut seen);
        assert!(matches!(fed, Err(ModelError::Stream(_))), "{nonsense}: {fed:?}");
    }
    let bare = "data: {\"object\":\"error\",\"message\":\"too busy\",\"code\":503}\n\n";
    let fed = openai::decoder(String::new(), None).feed(bare.as_bytes(), &mut seen);
    assert_eq!(fed, Err(ModelError::Transient { message: "too busy".to_owned(), retry_after: None }));
}

#[test]
fn arguments_are_always_the_text_of_an_object() {
    for (arguments, expected) in [
        ("", "{}"),
        (" {\"a\": 1} ", "{\"a\": 1}"),
        ("{\"a\":", r#"{"malformed_arguments":"{\"a\":"}"#),
        ("{} {}", r#"{"malformed_arguments":"{} {}"}"#),
        ("[]", r#"{"malformed_arguments":"[]"}"#),
    ] {
        assert_eq!(object_text(arguments), expected);
    }
}

#[test]
fn waits_are_read_in_every_form() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let wait = |fields: &[(&'static str, &'static str)]| {
        let fields = fields.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        failure::retry_after(&fields.collect::<HeaderMap>(), now)
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(wait(&[]), None);
    assert_eq!(wait(&[("retry-after", " 3 ")]), seconds(3));
    assert_eq!(wait(&[("retry-after", "9"), ("retry-after-ms", "1500")]), Some(Duration::from_millis(1500)));
    assert_eq!(wait(&[("retry-after", "1e300")]), Some(Duration::MAX));
    assert_eq!(wait(&[("retry-after", "-1")]), None);
    assert_eq!(wait(&[("retry-after", "NaN")]), None);
    // By the clock that was given, without a date of the vendor's own.
    assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")]), seconds(10));
    assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT")]), seconds(0));
}

//! The order of a session's output when something in it panics.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

use zeroclaw_acp_protocol::ErrorTable;
use zeroclaw_acp_transport::Outbox;
use zeroclaw_session_store::EventKind;

use super::Pump;
use crate::{client::Client, server::OnDisconnect};

// What a panic had left of an event stood at the beginning of the next one.
#[tokio::test]
async fn a_panic_while_an_event_is_written_leaves_nothing_of_it() {
    let (outbox, mut reader) = Outbox::new(1024);
    let pump = Pump::start("s-1".into(), Path::new("/"), None, 0, &Arc::default());
    pump.attach(&Client::new(outbox, ErrorTable::default(), OnDisconnect::End));
    let _ = pump.event(EventKind::Update, None, |out| out.extend_from_slice(br#"{"number":1}"#));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        pump.event(EventKind::Update, None, |out| {
            out.extend_from_slice(br#"{"number":"#);
            panic!("a panic that this test wants");
        })
    }));
    assert!(panicked.is_err());
    let _ = pump.event(EventKind::Update, None, |out| out.extend_from_slice(br#"{"number":2}"#));
    assert!(pump.barrier().await);
    let mut written = Vec::new();
    assert!(reader.take(&mut written).await);
    let lines: Vec<serde_json::Value> =
        written.split_inclusive(|byte| *byte == b'\n').map(|line| serde_json::from_slice(line).unwrap()).collect();
    let numbers: Vec<&serde_json::Value> = lines.iter().map(|line| &line["params"]["update"]["number"]).collect();
    assert_eq!(numbers, [1, 2]);
}

// Whoever waited for a session whose output had panicked waited for good.
#[tokio::test]
async fn a_panic_of_the_output_is_told_to_whoever_waits_for_it() {
    let pump = Pump::start("s-1".into(), Path::new("/"), None, 0, &Arc::default());
    pump.then(|| panic!("a panic that this test wants"));
    assert!(!pump.barrier().await);
    assert!(pump.broken().is_cancelled());
    pump.drained().await;
    assert!(!pump.barrier().await, "nothing is taken any more");
}

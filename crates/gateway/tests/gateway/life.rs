//! How a connection lives and ends.

use std::{sync::atomic::Ordering, time::Duration};

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::{Message, protocol::frame::coding::CloseCode};
use zeroclaw_acp_transport::Limits;

use crate::lab::{Client, LIMIT, Lab, PERIODS};

/// The code of the close frame that ends this connection.
async fn close_code(client: &mut Client) -> Option<CloseCode> {
    let wait = async {
        while let Some(message) = client.next().await {
            match message {
                Ok(Message::Close(frame)) => return frame.map(|frame| frame.code),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
        None
    };
    tokio::time::timeout(LIMIT, wait).await.expect("the connection ends")
}

async fn next(client: &mut Client) -> Message {
    tokio::time::timeout(LIMIT, client.next()).await.expect("a message").expect("a message").expect("a message")
}

/// Sends a text and waits until it comes back.
pub(crate) async fn echoed(client: &mut Client, text: &str) {
    client.send(Message::text(text)).await.unwrap();
    assert_eq!(next(client).await, Message::text(text));
}

#[tokio::test]
async fn one_message_is_one_frame_however_it_comes() {
    let lab = Lab::new().await;
    let mut client = lab.connect(&lab.token("laptop")).await;
    for (sent, back) in [
        (Message::text("{\"a\":1}"), "{\"a\":1}"),
        (Message::binary("{\"a\":\"漢字🙂\"}".as_bytes().to_vec()), "{\"a\":\"漢字🙂\"}"),
        (Message::text("  {\r\n\"a\":\n1}\n"), "{\t\t\"a\":\t1}"),
        (Message::text("\u{feff}{}"), "{}"),
        (Message::text("{\"a\":\"x\u{2028}y\u{85}z\"}"), "{\"a\":\"x\u{2028}y\u{85}z\"}"),
    ] {
        client.send(sent).await.unwrap();
        assert_eq!(next(&mut client).await, Message::text(back));
    }
    // Nothing comes back for what is blank.
    client.send(Message::text(" \n ")).await.unwrap();
    client.send(Message::text("")).await.unwrap();
    client.send(Message::text("after")).await.unwrap();
    assert_eq!(next(&mut client).await, Message::text("after"));
}

#[tokio::test]
async fn what_is_wrong_is_told_in_the_close_code() {
    let lab = Lab::new().await;
    let token = lab.token("laptop");
    let limit = 64 * 1024;
    let mut client = lab.connect(&token).await;
    client.send(Message::text("x".repeat(limit))).await.unwrap();
    assert_eq!(next(&mut client).await.len(), limit);
    client.send(Message::text("x".repeat(limit + 1))).await.unwrap();
    assert_eq!(close_code(&mut client).await, Some(CloseCode::Size));

    let mut client = lab.connect(&token).await;
    client.send(Message::binary(vec![b'"', 0xff, b'"'])).await.unwrap();
    assert_eq!(close_code(&mut client).await, Some(CloseCode::Invalid));

    // Frames that no library sends: text that is not UTF-8, and one without a mask.
    for (frame, code) in [
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff][..], CloseCode::Invalid),
        (&[0x81, 0x01, b'x'], CloseCode::Protocol),
        (&[0xf1, 0x80, 0, 0, 0, 0], CloseCode::Protocol),
    ] {
        let mut client = lab.connect(&token).await;
        client.get_mut().write_all(frame).await.unwrap();
        assert_eq!(close_code(&mut client).await, Some(code), "{frame:?}");
    }
    lab.seen.wait_for_ends(5).await;
}

#[tokio::test]
async fn gwb_11_a_message_over_the_limit_is_told_even_while_it_is_still_being_sent() {
    let lab = Lab::new().await;
    let mut client = lab.connect(&lab.token("laptop")).await;
    let mut other = lab.connect(&lab.token("other")).await;
    let sending = client.send(Message::text("x".repeat(20 * 1024 * 1024)));
    tokio::time::timeout(LIMIT, sending).await.expect("it is read to the end").unwrap();
    assert_eq!(close_code(&mut client).await, Some(CloseCode::Size));
    other.send(Message::text("still here")).await.unwrap();
    assert_eq!(next(&mut other).await, Message::text("still here"));
}

#[tokio::test]
async fn a_silent_client_is_pinged_and_a_dead_one_is_let_go() {
    let lab = Lab::with(|settings| {
        settings.periods.ping = Duration::from_millis(20);
        settings.periods.dead = Duration::from_millis(400);
    })
    .await;
    let token = lab.token("laptop");
    // Reading answers pings; many more of them than a dead client would get are answered.
    let mut alive = lab.connect(&token).await;
    for _ in 0..40 {
        assert!(matches!(next(&mut alive).await, Message::Ping(_)));
    }
    alive.send(Message::text("here")).await.unwrap();
    let answer = async {
        loop {
            if let Message::Text(text) = next(&mut alive).await {
                return text;
            }
        }
    };
    assert_eq!(answer.await.as_str(), "here");
    // Read without answering: the raw stream below the client.
    let mut dead = lab.connect(&token).await;
    let mut bytes = Vec::new();
    tokio::time::timeout(LIMIT, dead.get_mut().read_to_end(&mut bytes)).await.expect("let go").unwrap();
    assert!(bytes.ends_with(b"no answer to pings"), "{bytes:?}");
}

#[tokio::test]
async fn gwb_13_a_client_that_does_not_read_is_bounded_and_detached() {
    let lab = Lab::with(|settings| {
        settings.periods = zeroclaw_gateway::Periods { stall: Duration::from_millis(300), ..PERIODS };
        settings.limits = Limits { max_line: 64 * 1024, outbox_high: 256 * 1024 };
    })
    .await;
    let token = lab.token("laptop");
    let mut stalled = lab.connect(&token).await;
    stalled.send(Message::text("flood")).await.unwrap();
    let mut other = lab.connect(&token).await;
    lab.seen.wait_for_ends(1).await;
    // What the kernel holds for both ends of a socket, the batch that is being written, and the outbox; in KiB.
    let flooded = lab.seen.flooded.load(Ordering::SeqCst);
    assert!(flooded < 16 * 1024, "{flooded} KiB");
    other.send(Message::text("not slowed")).await.unwrap();
    assert_eq!(next(&mut other).await, Message::text("not slowed"));
    // It finds the reason when it reads again, behind what it had not read.
    assert_eq!(close_code(&mut stalled).await, Some(CloseCode::Library(4409)));
    let metrics = lab.request("GET", "/metrics", &[("authorization", &format!("Bearer {token}"))], "").await.1;
    assert!(metrics.contains("zeroclaw_gateway_stalled_total 1\n"), "{metrics}");
}

#[tokio::test]
async fn gwb_15_a_slow_reader_gets_everything_in_order() {
    let lab = Lab::new().await;
    let mut client = lab.connect(&lab.token("laptop")).await;
    // Twenty megabytes through an outbox of 64 KiB.
    let count = 20_000;
    let (mut sink, mut stream) = client.split();
    let sending = tokio::spawn(async move {
        for number in 0..count {
            sink.feed(Message::text(format!("{number:01000}"))).await.unwrap();
        }
        sink.flush().await.unwrap();
        sink
    });
    for number in 0..count {
        let message = tokio::time::timeout(LIMIT, stream.next()).await.expect("a message").unwrap().unwrap();
        assert_eq!(message, Message::text(format!("{number:01000}")));
    }
    let sink = sending.await.unwrap();
    client = sink.reunite(stream).unwrap();
    client.close(None).await.unwrap();
}

#[tokio::test]
async fn everybody_is_told_when_the_gateway_ends() {
    let mut lab = Lab::new().await;
    let token = lab.token("laptop");
    let mut clients = [lab.connect(&token).await, lab.connect(&token).await];
    lab.stop();
    for client in &mut clients {
        assert_eq!(close_code(client).await, Some(CloseCode::Away));
    }
    lab.ended().await;
    assert_eq!(lab.seen.ended.load(Ordering::SeqCst), 2);
    assert!(tokio::net::TcpStream::connect(lab.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_client_that_does_not_answer_the_close_does_not_hold_up_the_end() {
    let mut lab = Lab::with(|settings| settings.periods.patience = Duration::from_millis(100)).await;
    let client = lab.connect(&lab.token("laptop")).await;
    lab.stop();
    lab.ended().await;
    drop(client);
}

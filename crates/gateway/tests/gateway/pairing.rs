//! Codes for tokens, and how fast either may be guessed.

use std::sync::atomic::Ordering;

use zeroclaw_gateway::PairingDesk;

use crate::lab::Lab;

fn desk(lab: &Lab) -> PairingDesk {
    PairingDesk::in_directory(lab.directory.path())
}

fn offer(lab: &Lab) -> String {
    desk(lab).offer("phone", 600, &lab.world()).unwrap().expose().to_owned()
}

async fn pair(lab: &Lab, code: &str) -> (u16, String) {
    lab.request("POST", "/pair", &[("x-pairing-code", code)], "").await
}

#[tokio::test]
async fn a_code_is_exchanged_once() {
    let lab = Lab::new().await;
    let code = offer(&lab);
    assert_eq!(code.len(), 8);
    let (status, body) = pair(&lab, &code).await;
    assert_eq!(status, 200);
    let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&answer["paired"], &answer["name"]), (&true.into(), &"phone".into()));
    let token = answer["token"].as_str().unwrap();
    assert_eq!(lab.status("/acp", &[("authorization", &format!("Bearer {token}"))]).await, 101);
    assert_eq!(pair(&lab, &code).await, (401, "unauthorized\n".to_owned()));
    // As a person types it, in JSON; the name is taken by now.
    let code = offer(&lab).to_lowercase();
    let body = serde_json::json!({"code": format!("{}-{}", &code[..4], &code[4..])}).to_string();
    let (status, body) = lab.request("POST", "/pair", &[("content-type", "application/json")], &body).await;
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&body).unwrap()["name"], "phone-2");
}

#[tokio::test]
async fn a_code_ends_by_time_and_by_the_next_one() {
    let lab = Lab::new().await;
    let (first, second) = (offer(&lab), offer(&lab));
    assert_eq!(pair(&lab, &first).await.0, 401);
    lab.clock.fetch_add(599_999, Ordering::SeqCst);
    assert_eq!(pair(&lab, &second).await.0, 200);
    let third = offer(&lab);
    lab.clock.fetch_add(600_000, Ordering::SeqCst);
    assert_eq!(pair(&lab, &third).await.0, 401);
    assert_eq!(lab.tokens().list().unwrap().len(), 1);
}

#[tokio::test]
async fn wrong_codes_make_the_right_one_void() {
    let lab = Lab::with(|settings| settings.trust_forwarded = true).await;
    // Each guess comes from another address, so that none of them has to wait.
    let guess = async |code: &str, peer: u32| {
        let peer = format!("10.0.0.{peer}");
        lab.request("POST", "/pair", &[("x-pairing-code", code), ("x-forwarded-for", &peer)], "").await.0
    };
    for (wrong_codes, expect) in [(9, 200), (10, 401)] {
        let code = offer(&lab);
        let wrong = if code == "AAAAAAAA" { "BBBBBBBB" } else { "AAAAAAAA" };
        for number in 0..wrong_codes {
            assert_eq!(guess(wrong, number).await, 401);
        }
        assert_eq!(guess(&code, 100).await, expect, "after {wrong_codes}");
    }
    assert_eq!(lab.tokens().list().unwrap().len(), 1);
}

#[tokio::test]
async fn guesses_are_answered_later_and_later() {
    let lab = Lab::new().await;
    let wrong = [("authorization", "Bearer zc_wrong")];
    for _ in 0..5 {
        assert_eq!(lab.request("GET", "/acp", &wrong, "").await.0, 401);
    }
    let (status, body) = lab.request("GET", "/acp", &wrong, "").await;
    assert_eq!((status, body.as_str()), (429, "too many attempts\n"));
    // The right one is not looked at either, nor is a code: otherwise guessing would go on at full speed.
    let bearer = format!("Bearer {}", lab.token("laptop"));
    assert_eq!(lab.status("/acp", &[("authorization", &bearer)]).await, 429);
    assert_eq!(pair(&lab, &offer(&lab)).await.0, 429);
    lab.clock.fetch_add(500, Ordering::SeqCst);
    assert_eq!(lab.request("GET", "/acp", &wrong, "").await.0, 401);
    lab.clock.fetch_add(500, Ordering::SeqCst);
    assert_eq!(lab.request("GET", "/acp", &wrong, "").await.0, 429, "twice as long");
    lab.clock.fetch_add(500, Ordering::SeqCst);
    assert_eq!(lab.status("/acp", &[("authorization", &bearer)]).await, 101);
    let answer = lab.raw(&format!("GET /acp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", lab.address)).await;
    assert!(answer.to_ascii_lowercase().contains("www-authenticate: bearer"), "{answer}");
}

#[tokio::test]
async fn behind_a_proxy_the_forwarded_peer_is_the_one_that_waits() {
    let lab = Lab::with(|settings| settings.trust_forwarded = true).await;
    let guess = |peer: &'static str| [("authorization", "Bearer zc_wrong"), ("x-forwarded-for", peer)];
    for _ in 0..5 {
        assert_eq!(lab.request("GET", "/acp", &guess("1.2.3.4, 10.0.0.1"), "").await.0, 401);
    }
    assert_eq!(lab.request("GET", "/acp", &guess("9.9.9.9, 10.0.0.1"), "").await.0, 429, "the last entry counts");
    assert_eq!(lab.request("GET", "/acp", &guess("10.0.0.2"), "").await.0, 401);
    let plain = Lab::new().await;
    for number in 0..5 {
        let peer = format!("10.0.0.{number}");
        let headers = [("authorization", "Bearer zc_wrong"), ("x-forwarded-for", peer.as_str())];
        assert_eq!(plain.request("GET", "/acp", &headers, "").await.0, 401);
    }
    assert_eq!(plain.request("GET", "/acp", &guess("10.0.0.9"), "").await.0, 429, "a header proves nothing");
}

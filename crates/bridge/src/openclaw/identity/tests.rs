//! Keys, signatures and files.

use std::fs;

use super::{DeviceToken, Identity, Signed};

/// The identity of a recorded device, and what it signed (recorded from OpenClaw 2026.6.11; the key was thrown away, the public one is enough).
const DEVICE: &str = "c58acab862137d528d306fdd8c74ce382c79e9ed03951c9e7f0edd589ba24918";
const PUBLIC: &str = "pwKvz9qCuLo3Tti2XRWoWkPuzaKlwR-6wPVDQa_zqrI";
const SIGNATURE: &str = "nNDEx5o8-zPkR-otd827Z2YqTANp1fvpGN9SV0pdfG9Em4hLY2S75lTsfJYrM2ol2Bhawqs_F6MGVsCEyR9KCA";

fn signed(scopes: &[String]) -> Signed<'_> {
    Signed {
        client: "cli",
        mode: "cli",
        scopes,
        signed_at: 1_796_065_292_261,
        token: "loop-test-token-0123456789abcdef",
        nonce: "09462d4f-e0e8-4849-80de-9e84d23b7cb8",
        platform: "linux",
    }
}

#[test]
fn the_text_that_is_signed_is_that_of_a_recorded_device() {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use ring::signature::{ED25519, UnparsedPublicKey};

    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).expect("base64");
    let scopes = ["operator.admin".to_owned()];
    let text = signed(&scopes).text(DEVICE);
    let key = UnparsedPublicKey::new(&ED25519, decode(PUBLIC));
    key.verify(text.as_bytes(), &decode(SIGNATURE)).expect("the recorded signature fits the text");
}

#[test]
fn an_identity_is_made_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = Identity::open(dir.path(), 7).expect("made");
    let again = Identity::open(dir.path(), 8).expect("read");
    assert_eq!((first.id(), first.public_key()), (again.id(), again.public_key()));
    let scopes = ["operator.read".to_owned()];
    assert_eq!(first.sign(&signed(&scopes)), again.sign(&signed(&scopes)));
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_what_is_kept() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = tempfile::tempdir().expect("a directory");
    let identity = Identity::open(dir.path(), 7).expect("made");
    let token = DeviceToken { token: "t".to_owned(), scopes: vec!["operator.read".to_owned()] };
    identity.keep_token(&token, 9).expect("kept");
    for name in ["device.json", "device-auth.json"] {
        let mode = fs::metadata(dir.path().join("identity").join(name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(identity.token(), Some(token));
}

#[test]
fn what_others_keep_beside_the_token_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let identity = Identity::open(dir.path(), 7).expect("made");
    let path = dir.path().join("identity/device-auth.json");
    let old = serde_json::json!({
        "version": 1, "deviceId": identity.id(), "tokens": { "node": { "token": "n", "role": "node", "scopes": [] } },
    });
    fs::write(&path, old.to_string()).expect("written");
    let token = DeviceToken { token: "t".to_owned(), scopes: Vec::new() };
    identity.keep_token(&token, 9).expect("kept");
    let file: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).expect("read")).expect("JSON");
    assert_eq!(file["tokens"]["node"]["token"], "n");
    assert_eq!(file["tokens"]["operator"]["token"], "t");
}

#[test]
fn an_identity_of_openclaw_itself_is_read() {
    // As Node writes it: PKCS #8 in PEM.
    let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("identity")).expect("made");
    let file = serde_json::json!({
        "version": 1, "deviceId": "x", "publicKeyPem": "", "privateKeyPem": pem, "createdAtMs": 1,
    });
    fs::write(dir.path().join("identity/device.json"), file.to_string()).expect("written");
    let identity = Identity::open(dir.path(), 7).expect("read");
    // The first test vector of RFC 8032 begins with this secret key.
    assert_eq!(identity.public_key(), "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
}

#[test]
fn a_file_that_is_none_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("identity")).expect("made");
    let path = dir.path().join("identity/device.json");
    fs::write(&path, "{ half a fi").expect("written");
    let error = Identity::open(dir.path(), 7).expect_err("not understood");
    assert!(error.to_string().contains("move it away"), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("read"), "{ half a fi");
}

#[test]
fn nothing_secret_shows_in_debug_output() {
    let dir = tempfile::tempdir().expect("a directory");
    let identity = Identity::open(dir.path(), 7).expect("made");
    let token = DeviceToken { token: "geheim".to_owned(), scopes: Vec::new() };
    assert!(!format!("{identity:?} {token:?}").contains("geheim"));
}

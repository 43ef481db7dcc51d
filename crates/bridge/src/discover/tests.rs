//! Addresses and tokens: who wins, and what never becomes part of an address.

use std::{fs, time::Duration};

use zeroclaw_config::Env;

use super::{Arguments, DiscoverError, TokenSource, discover};

fn arguments() -> Arguments {
    Arguments { reconnect: Duration::from_secs(60), ..Arguments::default() }
}

fn env(pairs: &[(&str, &str)]) -> Env {
    Env::from_os_vars(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())))
}

#[test]
fn the_daemons_configuration_says_where_it_is() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join(".zeroclaw");
    fs::create_dir(&directory).unwrap();
    let home = home.path().to_str().unwrap();
    for (config, expected) in [
        ("", "ws://127.0.0.1:42617/acp"),
        ("[gateway]\nport = 7\n", "ws://127.0.0.1:7/acp"),
        ("[gateway]\nhost = \"0.0.0.0\"\npath_prefix = \"/zc/\"\n", "ws://127.0.0.1:42617/zc/acp"),
        ("[gateway]\ntls_certificate = \"/c\"\ntls_key = \"/k\"\n", "wss://127.0.0.1:42617/acp"),
        ("[gateway]\nhost = \"::1\"\n", "ws://[::1]:42617/acp"),
    ] {
        fs::write(directory.join("config.toml"), config).unwrap();
        let options = discover(arguments(), &env(&[("HOME", home)]), 1).unwrap();
        assert_eq!(options.url, expected, "{config}");
    }
    let named = Arguments { agent: Some("a b&c".to_owned()), ..arguments() };
    let options = discover(named, &env(&[("HOME", home), ("ZEROCLAW_gateway__port", "9")]), 1).unwrap();
    assert_eq!(options.url, "ws://[::1]:9/acp?agent=a%20b%26c", "the environment goes over the file");
}

#[test]
fn an_address_is_enough_and_holds_no_token() {
    let with = |url: &str| discover(Arguments { url: Some(url.to_owned()), ..arguments() }, &env(&[]), 1);
    assert_eq!(with("wss://h/acp").unwrap().url, "wss://h/acp");
    assert!(matches!(with("http://h/acp"), Err(DiscoverError::Scheme)));
    for url in ["ws://h/acp?token=t", "ws://h/acp?a=b&token=t", "ws://user:t@h/acp"] {
        assert!(matches!(with(url), Err(DiscoverError::TokenInUrl)), "{url}");
    }
}

#[test]
fn the_token_is_read_anew_from_the_first_place_that_is_named() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("given");
    fs::write(&file, " first \n").unwrap();
    let set = [("HOME", home.path().to_str().unwrap()), ("ZEROCLAW_ACP_BRIDGE_TOKEN", "from-environment")];
    let url = Some("ws://h/acp".to_owned());
    let options =
        discover(Arguments { url: url.clone(), token_file: Some(file.clone()), ..arguments() }, &env(&set), 1).unwrap();
    assert_eq!(options.token.read().as_deref(), Some("first"));
    fs::write(&file, "second").unwrap();
    assert_eq!(options.token.read().as_deref(), Some("second"));
    fs::remove_file(&file).unwrap();
    assert_eq!(options.token.read(), None);
    let options = discover(Arguments { url: url.clone(), ..arguments() }, &env(&set), 1).unwrap();
    assert_eq!(options.token.read().as_deref(), Some("from-environment"));
    assert!(!format!("{options:?} {:?}", options.token).contains("from-environment"));
    let options = discover(Arguments { url, ..arguments() }, &env(&set[..1]), 1).unwrap();
    assert!(matches!(&options.token, TokenSource::File(path) if path.ends_with(".zeroclaw/acp-bridge-token")));
}

//! Names of tools, whatever servers call themselves and their tools.

use super::names::tool_name;

#[test]
fn plain_names_stay_as_they_are() {
    assert_eq!(tool_name("github", "create_issue"), "github__create_issue");
    assert_eq!(tool_name("a-b", "c-d"), "a-b__c-d");
}

#[test]
fn every_name_fits_every_vendor_and_none_is_given_twice() {
    let long = "x".repeat(200);
    let pairs = [
        ("a b", "c"),
        ("a.b", "c"),
        ("a/b", "c"),
        ("ä", "ö"),
        ("", "c"),
        ("a__b", "c"),
        ("a", "b__c"),
        ("a", long.as_str()),
        (long.as_str(), "a"),
        ("a", "b\u{0}c"),
    ];
    let mut names = Vec::new();
    for (server, tool) in pairs {
        let name = tool_name(server, tool);
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        assert!((1..=64).contains(&name.len()) && name.bytes().all(fits), "{name}");
        assert_eq!(name, tool_name(server, tool), "the same at every start");
        names.push(name);
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), pairs.len(), "{names:?}");
}

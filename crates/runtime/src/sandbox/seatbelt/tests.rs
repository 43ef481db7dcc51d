//! Profiles as text. They cannot be run on other systems, so what they say is compared as a whole.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf};

use crate::sandbox::{
    Access, Confine, Confined, Limits,
    seatbelt::{profile, wrap},
};

fn confined(network: bool, hidden: Vec<PathBuf>) -> Confined {
    let paths = vec![(PathBuf::from("/usr"), Access::Read), ("/no such/tmp \"x\\".into(), Access::Write)];
    let confine = Confine { network, paths, hidden, ..Confine::default() };
    let roots = vec![("/nowhere/project".into(), Access::Write), ("/nowhere/docs".into(), Access::Read)];
    Confined { limits: Limits::default(), confine, roots, temporary: Some("/tmp/t".into()), caches: Vec::new() }
}

#[test]
fn a_profile_allows_what_is_named_and_hides_last() {
    let text = profile(&confined(false, vec!["/nowhere/project/.ssh".into()]));
    assert!(text.starts_with("(version 1)\n(deny default)\n"), "{text}");
    let rules: Vec<&str> = text.lines().filter(|line| line.contains("subpath")).collect();
    assert_eq!(
        rules,
        [
            "(allow file-read* (subpath \"/usr\"))",
            "(allow file-read* file-write* (subpath \"/no such/tmp \\\"x\\\\\"))",
            "(allow file-read* file-write* (subpath \"/nowhere/project\"))",
            "(allow file-read* (subpath \"/nowhere/docs\"))",
            "(deny file-read* file-write* (subpath \"/nowhere/project/.ssh\"))",
        ]
    );
    assert!(!text.contains("network"), "{text}");
}

#[test]
fn the_network_is_a_rule_of_its_own() {
    let text = profile(&confined(true, Vec::new()));
    assert!(text.contains("(allow network-outbound (remote ip))"), "{text}");
    assert!(!text.contains("unix-socket"), "{text}");
}

/// A line of its own would be a rule of its own.
#[test]
fn a_path_cannot_write_rules() {
    let mut evil =
        confined(false, vec!["/nowhere/a\n(allow default)".into(), OsStr::from_bytes(b"/nowhere/\xff").into()]);
    evil.roots.push(("/nowhere/x\")\n(allow default)\n(allow file-read* (subpath \"/".into(), Access::Read));
    let text = profile(&evil);
    assert!(!text.contains("(allow default)"), "{text}");
    // What could not be written is hidden with what is around it.
    assert_eq!(text.matches("(deny file-read* file-write* (subpath \"/nowhere\"))").count(), 2, "{text}");
}

#[test]
fn the_command_stands_behind_the_profile() {
    let wrapped = wrap(vec!["/bin/sh".into(), "-c".into(), "ls".into()], &confined(false, Vec::new()));
    assert_eq!(wrapped.argv[..2], ["/usr/bin/sandbox-exec", "-p"]);
    assert_eq!(wrapped.argv[3..], ["--", "/bin/sh", "-c", "ls"]);
    assert!(wrapped.order.confine.is_none() && wrapped.confined);
    assert_eq!(wrapped.env[0], ("TMPDIR".to_owned(), "/tmp/t".into()));
}

//! What is granted to whom, and which caches move.

use std::path::{Path, PathBuf};

use zeroclaw_policy::{Level, Root, RootKind, Ruleset};

use crate::{
    jail::Jail,
    sandbox::{
        Access, Backend, Confined, Confiner, Network, Purpose, Sandbox, SandboxSettings, Wrapped, layout, order::Order,
    },
};

/// Keeps what it was asked to confine.
#[derive(Debug)]
struct Recorder;

impl Sandbox for Recorder {
    fn description(&self) -> String {
        "records".to_owned()
    }

    fn confines(&self) -> bool {
        true
    }

    fn wrap(&self, argv: Vec<std::ffi::OsString>, confined: Confined) -> Wrapped {
        let env = super::variables(&confined);
        let order = Order { limits: confined.limits, confine: Some(confined.confine) };
        Wrapped { argv, env, confined: true, order }
    }
}

fn wrapped(writable: &[&str], purpose: Purpose) -> (Wrapped, PathBuf) {
    let dir = tempfile::tempdir().expect("dir");
    let root = dir.path().canonicalize().expect("canonical");
    let settings = SandboxSettings {
        readable: vec!["/usr".into()],
        writable: writable.iter().map(PathBuf::from).collect(),
        hidden: vec!["/etc/shadow".into()],
        caches: layout::caches(Some(Path::new("/home/u"))),
        temporary: root.clone(),
        limits: super::Limits { cpu_secs: Some(5), ..super::Limits::default() },
        ..SandboxSettings::default()
    };
    let confiner = Confiner::new(settings);
    confiner.found.set(Ok(std::sync::Arc::new(Recorder))).expect("not looked for yet");
    let jail = Jail::open(vec![Root::new(root.clone(), RootKind::Session)]).expect("opened");
    let rules = Ruleset { forbidden_paths: vec!["/home/u/.ssh".into()], ..Ruleset::new(Level::Full) };
    (confiner.wrap(&jail, &rules, vec!["true".into()], purpose).expect("wrapped"), root)
}

#[test]
fn a_command_gets_the_lists_and_a_server_what_is_not_forbidden() {
    let (wrapped_command, root) = wrapped(&["/cache"], Purpose::Command(Network::Closed));
    let confine = wrapped_command.order.confine.expect("confined");
    let (scratch, access) = &confine.paths[0];
    assert!(scratch.starts_with(&root) && *access == Access::Write);
    assert_eq!(confine.paths[1..], [("/cache".into(), Access::Write), ("/usr".into(), Access::Read)]);
    assert_eq!(confine.hidden, [PathBuf::from("/home/u/.ssh"), "/etc/shadow".into()]);
    assert_eq!((confine.network, confine.handles.len(), wrapped_command.order.limits.cpu_secs), (false, 1, Some(5)));

    let (wrapped_server, _) = wrapped(&[], Purpose::Server);
    let confine = wrapped_server.order.confine.expect("confined");
    assert_eq!(confine.paths[1..], [("/".into(), Access::Read), ("/usr".into(), Access::Read)]);
    assert!(confine.hidden.contains(&"/home/u/.ssh".into()) && confine.hidden.contains(&"/dev".into()));
    assert_eq!((confine.network, wrapped_server.order.limits.cpu_secs), (true, None));
}

#[test]
fn caches_move_unless_the_operator_opened_them() {
    let names = |writable: &[&str]| {
        let (wrapped, _) = wrapped(writable, Purpose::Command(Network::Open));
        wrapped.env.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "npm_config_cache"]);
    assert_eq!(names(&["/home/u/.npm"]), ["TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME"]);
    assert_eq!(names(&["/home/u/.cache/uv", "/home/u/.npm/_cacache"]), ["TMPDIR", "TEMP", "TMP"]);
    assert_eq!(names(&["/home"]), ["TMPDIR", "TEMP", "TMP"]);
}

#[test]
fn the_search_path_opens_no_home() {
    let env =
        |path: &str| vec![("PATH".to_owned(), path.to_owned()), ("CARGO_HOME".to_owned(), "/data/cargo".to_owned())];
    let home = Path::new("/home/u");
    let readable = layout::readable(Some(home), &env("/opt/x/bin:/home/u:/home:/:.:bin:/a/../b:/srv/tools/bin"));
    for expected in ["/usr", "/home/u/.cargo", "/data/cargo", "/opt/x/bin", "/srv/tools/bin"] {
        assert!(readable.contains(&expected.into()), "{expected}");
    }
    for unexpected in ["/home/u", "/home", "/", ".", "bin", "/a/../b", "/tmp", "/home/u/.ssh", "/home/u/.npmrc"] {
        assert!(!readable.contains(&unexpected.into()), "{unexpected}");
    }
    assert!(layout::hidden(Some(home), &[]).contains(&"/home/u/.cargo/credentials.toml".into()));
}

#[test]
fn a_tool_chain_works_wherever_it_is_and_keeps_its_passwords() {
    let env = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let home = Path::new("/home/u");
    let path = env("PATH", "/data/.pyenv/shims:/srv/ci/.cargo/bin:/home/u/.local/share/mise/installs/node/22/bin");
    let readable = layout::readable(Some(home), &path);
    for expected in ["/data/.pyenv", "/srv/ci/.cargo"] {
        assert!(readable.contains(&expected.into()), "{expected}");
    }
    for unexpected in ["/data", "/srv/ci", "/srv", "/data/.cargo", "/home/u/.local/share", "/home/u/.local"] {
        assert!(!readable.contains(&unexpected.into()), "{unexpected}");
    }
    assert!(layout::hidden(Some(home), &path).contains(&"/srv/ci/.cargo/credentials.toml".into()));
    assert!(!layout::readable(Some(home), &env("PATH", "/data/go/tools/bin")).contains(&"/data/go".into()));

    let moved = layout::hidden(Some(home), &env("CARGO_HOME", "/data/cargo"));
    for expected in ["/data/cargo/credentials", "/data/cargo/credentials.toml", "/home/u/.cargo/credentials.toml"] {
        assert!(moved.contains(&expected.into()), "{expected}");
    }
    // A variable that is no tool chain with passwords closes nothing.
    assert_eq!(layout::hidden(None, &env("JAVA_HOME", "/data/jdk")), layout::hidden(None, &[]));
}

#[test]
fn names_are_those_of_the_configuration() {
    let names = [Backend::Auto, Backend::Landlock, Backend::Seatbelt, Backend::None].map(Backend::name);
    assert_eq!(names, ["auto", "landlock", "seatbelt", "none"]);
}

//! What `zeroclaw config` shows and changes: comments stay, nothing is lost, nothing unusable is written.

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use zeroclaw_config::{ConfigError, Entry, Origin, get, init, list, set};

use crate::support::Home;

/// Sets one key and compares the whole file.
fn check(before: &str, key: &str, value: &str, after: &str) {
    let home = Home::with(before);
    set(&home.paths(), key, value).unwrap();
    assert_eq!(home.text(), after, "{key} = {value}");
    home.load(&[]).unwrap();
}

/// Sets one key that must be refused, and compares message and file.
fn refused(before: &str, key: &str, value: &str, expect: &str) {
    let home = Home::with(before);
    let error = set(&home.paths(), key, value).unwrap_err();
    assert_eq!(home.message(&error), expect);
    assert_eq!(home.text(), before);
    assert_eq!(fs::read_dir(home.dir()).unwrap().count(), 1, "nothing else is left behind");
}

#[test]
fn set_keeps_every_comment() {
    check(
        "# first line\n\n[acp] # the server\n# above\nmax_sessions   =  4   # beside\n\n# between\n[gateway]\nport = 1\n# last\n",
        "acp.max_sessions",
        "5",
        "# first line\n\n[acp] # the server\n# above\nmax_sessions   =  5   # beside\n\n# between\n[gateway]\nport = 1\n# last\n",
    );
    check(
        "# first line\n[acp]\nstrict = true\n",
        "acp.default_agent",
        "main",
        "# first line\n[acp]\nstrict = true\ndefault_agent = \"main\"\n",
    );
    check("# only a comment", "acp.default_agent", "main", "# only a comment\n\n[acp]\ndefault_agent = \"main\"\n");
    check(
        "# only a comment\n",
        "providers.models.custom.x.uri",
        "http://h",
        "# only a comment\n\n[providers.models.custom.x]\nuri = \"http://h\"\n",
    );
    check("# only a comment\n", "data_dir", "/d", "# only a comment\n\ndata_dir = \"/d\"\n");
    check(
        "# first line\n[acp]\nstrict = true\n",
        "data_dir",
        "/d",
        "# first line\ndata_dir = \"/d\"\n\n[acp]\nstrict = true\n",
    );
    check(
        "# first line\n\n# about acp\n[acp]\nstrict = true\n",
        "data_dir",
        "/d",
        "# first line\n\ndata_dir = \"/d\"\n\n# about acp\n[acp]\nstrict = true\n",
    );
    check(
        "# first line\n[providers.models.custom.x]\nuri = 'u'\n[acp]\n",
        "data_dir",
        "/d",
        "# first line\ndata_dir = \"/d\"\n\n[providers.models.custom.x]\nuri = 'u'\n[acp]\n",
    );
    check("# c\n[[x]]\n", "data_dir", "/b", "# c\ndata_dir = \"/b\"\n\n[[x]]\n");
    check("# c\nacp.strict = true\n", "data_dir", "/b", "# c\nacp.strict = true\ndata_dir = \"/b\"\n");
    check("# c\ndata_dir = '/a' # d\n[acp]\n", "data_dir", "/b", "# c\ndata_dir = \"/b\" # d\n[acp]\n");
    check("# c\nother = 1\n\n[acp]\n", "data_dir", "/b", "# c\nother = 1\ndata_dir = \"/b\"\n\n[acp]\n");
}

#[test]
fn set_follows_the_way_a_table_is_written() {
    check("acp.strict = true # c\n", "acp.max_sessions", "5", "acp.strict = true # c\nacp.max_sessions = 5\n");
    check("acp = { strict = true } # c\n", "acp.max_sessions", "5", "acp = { strict = true , max_sessions = 5 } # c\n");
    check("[agents.\"a.b\"]\nenabled = true\n", "agents.a.b.enabled", "false", "[agents.\"a.b\"]\nenabled = false\n");
    check(
        "[agents.\"a.b\"]\nenabled = true\n",
        "agents.\"a.b\".enabled",
        "false",
        "[agents.\"a.b\"]\nenabled = false\n",
    );
    check(
        "[agents.main.workspace] # 0.8\npath = '/a' # p\n",
        "agents.main.workspace",
        "/b",
        "[agents.main.workspace] # 0.8\npath = \"/b\" # p\n",
    );
    check(
        "[agents.main.workspace]\npath = '/a'\n",
        "agents.main.enabled",
        "false",
        "[agents.main]\nenabled = false\n[agents.main.workspace]\npath = '/a'\n",
    );
    check(
        "agents.a.enabled = true\n",
        "agents.b.enabled",
        "true",
        "agents.a.enabled = true\n\n[agents.b]\nenabled = true\n",
    );
    check("agents = { a = {} }\n", "agents.b.enabled", "true", "agents = { a = {} , b = { enabled = true } }\n");
    check("[agents.a]\n", "agents.b.enabled", "true", "[agents.a]\n\n[agents.b]\nenabled = true\n");
}

#[test]
fn set_reads_the_value_by_the_type_of_the_key() {
    for (key, value, expect) in [
        ("acp.strict", "true", "[acp]\nstrict = true\n"),
        ("acp.error_codes", "SPEC", "[acp]\nerror_codes = \"spec\"\n"),
        ("acp.default_agent", "4", "[acp]\ndefault_agent = \"4\"\n"),
        ("store.sync", "off", "[store]\nsync = \"off\"\n"),
        ("autonomy.auto_approve", "a,b", "[autonomy]\nauto_approve = [\"a\", \"b\"]\n"),
        ("autonomy.auto_approve", "['a,b']", "[autonomy]\nauto_approve = [\"a,b\"]\n"),
        ("providers.models.gemini.x.temperature", "0.5", "[providers.models.gemini.x]\ntemperature = 0.5\n"),
        ("providers.models.gemini.x.api_key", "k", "[providers.models.gemini.x]\napi_key = \"k\"\n"),
    ] {
        check("", key, value, expect);
    }
}

#[test]
fn set_keeps_the_kind_of_line_ends_and_the_mark() {
    check(
        "# c\r\n[acp]\r\nstrict = true\r\n",
        "acp.max_sessions",
        "5",
        "# c\r\n[acp]\r\nstrict = true\r\nmax_sessions = 5\r\n",
    );
    check("\u{feff}# c\n[acp]\n", "acp.strict", "true", "\u{feff}# c\n[acp]\nstrict = true\n");
}

#[test]
fn set_refuses_what_would_not_load() {
    let file = "# c\n[acp]\nmax_sessions = 4\n";
    refused(
        file,
        "acp.max_sessions",
        "0",
        "configuration: `acp.max_sessions`: expected a whole number from 1 to 1000000, found 0",
    );
    refused(
        file,
        "acp.max_sessions",
        "x",
        "configuration: `acp.max_sessions`: expected a whole number from 1 to 1000000, found other text",
    );
    refused(
        file,
        "acp.max_sesions",
        "4",
        "configuration: unknown key `acp.max_sesions`, did you mean `acp.max_sessions`?",
    );
    refused(
        file,
        "agents.main.risk_profile",
        "gone",
        "config.toml:6:16: `agents.main.risk_profile`: no `[risk_profiles.gone]` is configured",
    );
    refused(
        file,
        "agents.\"../x\".enabled",
        "true",
        "configuration: bad name in `agents.\"../x\".enabled`: a name has only letters, digits, `.`, `_` and `-`",
    );
    refused(
        "[acp]\nstrct = 1\n",
        "acp.strict",
        "true",
        "config.toml:2:1: unknown key `acp.strct`, did you mean `strict`?",
    );
    refused(
        "acp = 1\n",
        "acp.strict",
        "true",
        "configuration: `acp.strict`: expected a table around it, found integer",
    );
    refused("[acp\n", "acp.strict", "true", "config.toml:1:5: unclosed table, expected `]`");
}

#[test]
fn set_can_repair_a_file() {
    check("[acp]\nmax_sessions = 0\n", "acp.max_sessions", "1", "[acp]\nmax_sessions = 1\n");
}

#[test]
fn a_refused_set_makes_no_directory() {
    let home = Home::empty();
    set(&home.paths(), "agents.main.risk_profile", "gone").unwrap_err();
    assert!(!home.dir().exists());
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[cfg(unix)]
#[test]
fn a_new_file_is_private_and_an_old_one_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::empty();
    set(&home.paths(), "acp.strict", "true").unwrap();
    assert_eq!((mode(&home.dir()), mode(&home.file())), (0o700, 0o600));
    assert_eq!(home.text(), "[acp]\nstrict = true\n");

    fs::set_permissions(home.file(), fs::Permissions::from_mode(0o640)).unwrap();
    set(&home.paths(), "acp.strict", "false").unwrap();
    assert_eq!(mode(&home.file()), 0o640);

    let home = Home::empty();
    init(&home.paths()).unwrap();
    assert_eq!((mode(&home.dir()), mode(&home.file())), (0o700, 0o600));
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link() {
    use std::os::unix::fs::symlink;
    let home = Home::with("");
    let real = home.path().join("dotfiles");
    fs::create_dir(&real).unwrap();
    fs::rename(home.file(), real.join("zeroclaw.toml")).unwrap();
    symlink("../dotfiles/zeroclaw.toml", home.dir().join("middle")).unwrap();
    symlink("middle", home.file()).unwrap();
    set(&home.paths(), "acp.strict", "true").unwrap();
    assert!(home.file().symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read_to_string(real.join("zeroclaw.toml")).unwrap(), "[acp]\nstrict = true\n");

    // The link may be there before the file it leads to.
    fs::remove_file(real.join("zeroclaw.toml")).unwrap();
    set(&home.paths(), "acp.strict", "false").unwrap();
    assert_eq!(fs::read_to_string(real.join("zeroclaw.toml")).unwrap(), "[acp]\nstrict = false\n");

    fs::remove_file(home.file()).unwrap();
    symlink("config.toml", home.file()).unwrap();
    let error = set(&home.paths(), "acp.strict", "true").unwrap_err();
    assert!(matches!(error, ConfigError::Io { .. }), "{error:?}");
}

#[test]
fn a_temporary_file_of_a_dead_writer_is_no_obstacle() {
    let home = Home::with("");
    fs::write(home.dir().join(".config.toml.tmp"), "half").unwrap();
    set(&home.paths(), "acp.strict", "true").unwrap();
    let mut names: Vec<_> = fs::read_dir(home.dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".config.toml.lock", "config.toml"]);
}

/// Two programs that changed one key each at the same time used to lose one of the two.
#[test]
fn writers_at_once_lose_nothing() {
    let home = Home::empty();
    let paths = home.paths();
    let start = Barrier::new(8);
    thread::scope(|scope| {
        for writer in 0..8 {
            let (paths, start) = (&paths, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..8 {
                    set(paths, &format!("agents.w{writer}-{round}.enabled"), "false").unwrap();
                    set(paths, &format!("agents.w{writer}-{round}.model_provider"), "custom.x").unwrap();
                }
            });
        }
    });
    let config = home.load(&[]).unwrap().config;
    assert_eq!(config.agents.len(), 64);
    for (alias, agent) in &config.agents {
        assert!(!agent.enabled, "{alias}");
        assert_eq!(agent.model_provider.as_deref(), Some("custom.x"), "{alias}");
    }
}

const SHOWN: &str = r#"
[acp]
max_sessions = 4
default_agent = "main\u001b[2J"
[agents.main]
model_provider = "custom.x"
workspace = "ws"
[providers.models.custom.x]
api_key = "s3cret"
uri = "http://u:s3cret@h"
[risk_profiles.r]
auto_approve = ["a", "b"]
"#;

#[test]
fn get_shows_value_and_origin() {
    let home = Home::with(SHOWN);
    let variable = "ZEROCLAW_acp__strict";
    let env = home.env(&[(variable, "true"), ("ZEROCLAW_WORKSPACE", "/old")]);
    let check = |key: &str, value: Option<&str>, origin: Origin| {
        let value = value.map(str::to_owned);
        assert_eq!(get(&home.paths(), &env, key).unwrap(), Entry { key: key.to_owned(), value, origin });
    };
    check("acp.max_sessions", Some("4"), Origin::File);
    check("acp.default_agent", Some("main\u{1b}[2J"), Origin::File);
    check("acp.session_timeout_secs", Some("3600"), Origin::Default);
    check("acp.strict", Some("true"), Origin::Env { variable: variable.to_owned() });
    check("data_dir", Some("/old"), Origin::Env { variable: "ZEROCLAW_WORKSPACE".to_owned() });
    check("agents.main.workspace", home.dir().join("ws").to_str(), Origin::File);
    check("agents.main.risk_profile", Some("default"), Origin::Default);
    check("providers.models.custom.x.api_key", Some("***"), Origin::File);
    check("providers.models.custom.x.uri", Some("http://***@h"), Origin::File);
    check("providers.models.custom.x.model", None, Origin::Default);
    check("risk_profiles.r.auto_approve", Some(r#"["a", "b"]"#), Origin::File);
    check("risk_profiles.default.level", None, Origin::Default);
    check("autonomy.level", Some("supervised"), Origin::Default);
}

#[test]
fn get_of_an_unknown_key_names_the_nearest() {
    let home = Home::with(SHOWN);
    for (key, expect) in [
        ("acp.max_sesions", "`acp.max_sesions`, did you mean `acp.max_sessions`?"),
        ("apc.max_sessions", "`apc.max_sessions`, did you mean `acp.max_sessions`?"),
        ("agents.mian.enabled", "`agents.mian.enabled`, did you mean `agents.main.enabled`?"),
        ("agents.other.enabled", "`agents.other.enabled`, expected one of agents.main.enabled"),
        ("risk_profiles.x.level", "`risk_profiles.x.level`, did you mean `risk_profiles.r.level`?"),
        ("store.colour", "`store.colour`, expected one of store.sync"),
        ("store", "`store`, expected one of store.sync"),
        ("store.sync.x", "`store.sync.x`, expected one of store.sync"),
        ("agents.enabled", "`agents.enabled`, expected one of agents.<name>.<key>"),
        ("providers.tts", "`providers.tts`, expected one of providers.models.<family>.<name>.<key>"),
        (
            "providers.models.custm.x.uri",
            "`providers.models.custm.x.uri`, did you mean `providers.models.custom.x.uri`?",
        ),
        (
            "tunnels.port",
            "`tunnels.port`, expected one of acp, agents, autonomy, data_dir, gateway, providers, risk_profiles, \
             runtime_profiles, sandbox, store",
        ),
        ("a b", "`a b`"),
        ("", "``"),
    ] {
        let error = get(&home.paths(), &home.env(&[]), key).unwrap_err();
        assert_eq!(error.to_string(), format!("configuration: unknown key {expect}"), "{key}");
    }
}

#[test]
fn list_shows_everything_with_its_origin() {
    let home = Home::with(SHOWN);
    let env = home.env(&[("ZEROCLAW_acp__max_sessions", "7")]);
    let lines: Vec<String> = list(&home.paths(), &env).unwrap().iter().map(Entry::to_string).collect();
    let expect = format!(
        "data_dir = {0}/data (default)
acp.default_agent = main\\u{{1b}}[2J (file)
acp.max_sessions = 7 (env ZEROCLAW_acp__max_sessions)
acp.session_timeout_secs = 3600 (default)
acp.error_codes = zeroclaw (default)
acp.strict = false (default)
acp.max_line_bytes = 33554432 (default)
acp.client_terminal = false (default)
acp.client_timeout_secs = 30 (default)
acp.client_mcp_servers = all (default)
agents.main.enabled = true (default)
agents.main.model_provider = custom.x (file)
agents.main.risk_profile = default (default)
agents.main.runtime_profile = default (default)
agents.main.workspace = {0}/ws (file)
autonomy.level = supervised (default)
gateway.host = 127.0.0.1 (default)
gateway.port = 42617 (default)
gateway.require_pairing = true (default)
gateway.pairing_code_ttl_secs = 600 (default)
gateway.trust_forwarded_headers = false (default)
gateway.max_connections = 512 (default)
gateway.drain_secs = 20 (default)
gateway.detach_grace_secs = 3600 (default)
providers.models.custom.x.api_key = *** (file)
providers.models.custom.x.uri = http://***@h (file)
risk_profiles.r.auto_approve = [\"a\", \"b\"] (file)
sandbox.backend = auto (default)
sandbox.local_sockets = false (default)
sandbox.max_cpu_secs = 3600 (default)
sandbox.max_file_mb = 16384 (default)
sandbox.max_open_files = 8192 (default)
sandbox.max_processes = 1024 (default)
store.sync = turn (default)",
        home.dir().display()
    );
    assert_eq!(lines.join("\n"), expect);
}

#[test]
fn what_is_listed_as_default_is_the_default() {
    let home = Home::with("[agents.a]\n");
    let before = home.load(&[]).unwrap();
    for entry in list(&home.paths(), &home.env(&[])).unwrap() {
        assert_eq!(entry.origin, Origin::Default, "{entry}");
        set(&home.paths(), &entry.key, &entry.value.unwrap()).unwrap();
    }
    let mut after = home.load(&[]).unwrap();
    assert_eq!(after.config.data_dir.take(), Some(before.paths.data_dir.clone()));
    assert_eq!(after.config.autonomy.level.take(), Some(zeroclaw_config::Level::Supervised));
    let workspace = after.config.agents.get_mut("a").unwrap().workspace.take();
    assert_eq!(workspace, Some(before.agent_workspace("a")));
    assert_eq!(after, before);
}

#[test]
fn init_writes_a_file_that_loads_and_never_overwrites() {
    let home = Home::empty();
    init(&home.paths()).unwrap();
    let text = home.text();
    let loaded = home.load(&[]).unwrap();
    assert!(loaded.file_found && loaded.ignored.is_empty());

    // Whatever it shows in comments is right too.
    let (settings, _): (Vec<&str>, Vec<&str>) = text
        .lines()
        .map(|line| line.strip_prefix("# ").unwrap_or(line))
        .partition(|line| line.contains(" = ") || line.starts_with('[') && line.ends_with(']'));
    let shown = Home::with(&settings.join("\n")).load(&[]).unwrap();
    assert_eq!(shown.ignored, Vec::<String>::new());
    assert_eq!(shown.config.dispatchable(), ["main"]);

    let error = init(&home.paths()).unwrap_err();
    assert_eq!(home.message(&error), "config.toml exists already");
    assert_eq!(home.text(), text);

    let home = Home::with("mine = 1");
    assert!(matches!(init(&home.paths()), Err(ConfigError::AlreadyExists { .. })));
    assert_eq!(home.text(), "mine = 1");
}

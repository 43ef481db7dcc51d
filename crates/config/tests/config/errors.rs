//! What a bad file says: the place, what was expected, the nearest name, and never a secret.

use std::fs;

use zeroclaw_config::ConfigError;

use crate::support::Home;

/// Loads a file that must be refused with exactly this message.
fn check(content: &str, expect: &str) {
    let home = Home::with(content);
    let error = home.load(&[]).unwrap_err();
    assert_eq!(home.message(&error), expect, "{content}");
}

#[test]
fn a_misspelt_key_names_the_nearest() {
    check("[acp]\nmax_sesions = 4", "config.toml:2:1: unknown key `acp.max_sesions`, did you mean `max_sessions`?");
    check("# ü\n\n[acp]\n\n  stirct = true", "config.toml:5:3: unknown key `acp.stirct`, did you mean `strict`?");
    check(
        "acp = { \"ü\" = 1, strct = true }",
        "config.toml:1:9: unknown key `acp.\"ü\"`, expected one of default_agent, max_sessions, session_timeout_secs, error_codes, strict, max_line_bytes, client_terminal, client_timeout_secs, client_mcp_servers, allowed_cwd_roots",
    );
    check(
        "acp = { strict = false, \"strct\" = 1 }",
        "config.toml:1:25: unknown key `acp.strct`, did you mean `strict`?",
    );
    check("\u{feff}[store]\nsnyc = 'off'", "config.toml:2:1: unknown key `store.snyc`, did you mean `sync`?");
    check("[store]\npath = 'x'", "config.toml:2:1: unknown key `store.path`, expected one of sync");
    check(
        "[agents.main]\nmodel_providr = 'x'",
        "config.toml:2:1: unknown key `agents.main.model_providr`, did you mean `model_provider`?",
    );
    check(
        "[agents.\"a.b\"]\nenable = true",
        "config.toml:2:1: unknown key `agents.\"a.b\".enable`, did you mean `enabled`?",
    );
    check(
        "[providers.models.custom.x]\nurl = 'http://h'",
        "config.toml:2:1: unknown key `providers.models.custom.x.url`, did you mean `uri`?",
    );
    check(
        "[risk_profiles.r]\nauto_aprove = []",
        "config.toml:2:1: unknown key `risk_profiles.r.auto_aprove`, did you mean `auto_approve`?",
    );
    check(
        "[runtime_profiles.r]\nshell_timeout_sec = 1",
        "config.toml:2:1: unknown key `runtime_profiles.r.shell_timeout_sec`, did you mean `shell_timeout_secs`?",
    );
    check("[autonomy]\nlevle = 'full'", "config.toml:2:1: unknown key `autonomy.levle`, did you mean `level`?");
    check("data_dri = '/x'", "config.toml:1:1: unknown key `data_dri`, did you mean `data_dir`?");
    check(
        "[providers.models.antropic.x]\nmodel = 'x'",
        "config.toml:1:19: unknown key `providers.models.antropic`, did you mean `anthropic`?",
    );
    check("[providers.model.custom.x]", "config.toml:1:12: unknown key `providers.model`, did you mean `models`?");
}

#[test]
fn a_wrong_type_says_the_right_one() {
    for (content, expect) in [
        ("acp = 3", "1:1: `acp`: expected a table, found integer"),
        ("[[agents]]", "1:3: `agents`: expected a table, found array of tables"),
        ("[agents]\nmain = 'x'", "2:1: `agents.main`: expected a table, found string"),
        ("[providers]\nmodels = []", "2:1: `providers.models`: expected a table, found array"),
        (
            "[providers.models.openai]\napi_key = 'k'",
            "2:1: `providers.models.openai.api_key`: expected a table, found string",
        ),
        ("[acp]\nstrict = 'yes'", "2:10: `acp.strict`: expected a boolean, `true` or `false`, found string"),
        (
            "[acp]\nmax_sessions = '4'",
            "2:16: `acp.max_sessions`: expected a whole number from 1 to 1000000, found string",
        ),
        (
            "[acp]\nmax_sessions = 4.0",
            "2:16: `acp.max_sessions`: expected a whole number from 1 to 1000000, found float",
        ),
        ("[acp]\ndefault_agent = 4", "2:17: `acp.default_agent`: expected a string, found integer"),
        ("[acp.default_agent]", "1:6: `acp.default_agent`: expected a string, found table"),
        (
            "[autonomy]\nallowed_commands = 'git'",
            "2:20: `autonomy.allowed_commands`: expected an array of strings, found string",
        ),
        (
            "[autonomy]\nallowed_commands = [\n  'git',\n  4,\n]",
            "4:3: `autonomy.allowed_commands`: expected an array of strings, found integer in it",
        ),
        (
            "[autonomy]\nlevel = 'superwised'",
            "2:9: `autonomy.level`: expected one of `readonly`, `supervised`, `full`, found `superwised`",
        ),
        ("[acp]\nerror_codes = 'x'", "2:15: `acp.error_codes`: expected one of `zeroclaw`, `spec`, found `x`"),
        ("[store]\nsync = true", "2:8: `store.sync`: expected one of `off`, `turn`, `always`, found boolean"),
        (
            "[providers.models.custom.x]\ntemperature = 'hot'",
            "2:15: `providers.models.custom.x.temperature`: expected a number from 0 to 2, found string",
        ),
        ("data_dir = 1979-05-27", "1:12: `data_dir`: expected a path as a string, found datetime"),
        (
            "data_dir = \"a\\u0000b\"",
            "1:12: `data_dir`: expected a path as a string, found a text with a NUL character",
        ),
    ] {
        check(content, &format!("config.toml:{expect}"));
    }
}

#[test]
fn a_number_out_of_range_says_the_range() {
    for (content, expect) in [
        ("acp.max_sessions = 0", "1:20: `acp.max_sessions`: expected a whole number from 1 to 1000000, found 0"),
        ("acp.max_sessions = -1", "1:20: `acp.max_sessions`: expected a whole number from 1 to 1000000, found -1"),
        (
            "acp.session_timeout_secs = 0",
            "1:28: `acp.session_timeout_secs`: expected a whole number from 1 to 315360000, found 0",
        ),
        (
            "acp.max_line_bytes = 65535",
            "1:22: `acp.max_line_bytes`: expected a whole number from 65536 to 1073741824, found 65535",
        ),
        (
            "acp.max_line_bytes = 1073741825",
            "1:22: `acp.max_line_bytes`: expected a whole number from 65536 to 1073741824, found 1073741825",
        ),
        (
            "[runtime_profiles.x]\nshell_timeout_secs = 0",
            "2:22: `runtime_profiles.x.shell_timeout_secs`: expected a whole number from 1 to 315360000, found 0",
        ),
        (
            "[providers.models.custom.x]\nidle_timeout_secs = 0",
            "2:21: `providers.models.custom.x.idle_timeout_secs`: expected a whole number from 1 to 315360000, found 0",
        ),
        (
            "[providers.models.custom.x]\nmax_output_tokens = 4294967296",
            "2:21: `providers.models.custom.x.max_output_tokens`: expected a whole number from 0 to 4294967295, found 4294967296",
        ),
        (
            "[providers.models.custom.x]\ntemperature = 2.5",
            "2:15: `providers.models.custom.x.temperature`: expected a number from 0 to 2, found 2.5",
        ),
        (
            "[providers.models.custom.x]\ntemperature = nan",
            "2:15: `providers.models.custom.x.temperature`: expected a number from 0 to 2, found NaN",
        ),
    ] {
        check(content, &format!("config.toml:{expect}"));
    }
}

#[test]
fn a_name_that_could_leave_a_directory_is_refused() {
    let long = "x".repeat(65);
    for (alias, expect) in [
        ("", "a name has 1 to 64 characters"),
        (long.as_str(), "a name has 1 to 64 characters"),
        ("a/b", "a name has only letters, digits, `.`, `_` and `-`"),
        ("a b", "a name has only letters, digits, `.`, `_` and `-`"),
        ("ä", "a name has only letters, digits, `.`, `_` and `-`"),
        (".hidden", "a name has no leading dot and no `..`"),
        ("..", "a name has no leading dot and no `..`"),
        ("a..b", "a name has no leading dot and no `..`"),
    ] {
        for section in ["agents", "risk_profiles", "runtime_profiles", "providers.models.custom"] {
            let column = section.len() + 3;
            check(
                &format!("[{section}.\"{alias}\"]"),
                &format!("config.toml:1:{column}: bad name in `{section}.{alias:?}`: {expect}"),
            );
        }
    }
    check(
        "[agents.\"a\\u0000\"]",
        "config.toml:1:9: bad name in `agents.\"a\\0\"`: a name has only letters, digits, `.`, `_` and `-`",
    );
    let longest = "x".repeat(64);
    let loaded = Home::with(&format!("[agents.\"a.b_c-9\"]\n[agents.{longest}]")).load(&[]).unwrap();
    assert_eq!(loaded.config.agents.keys().collect::<Vec<_>>(), ["a.b_c-9", longest.as_str()]);
}

#[test]
fn a_missing_profile_is_refused() {
    check(
        "[agents.main]\nrisk_profile = 'strct'\n[risk_profiles.strict]",
        "config.toml:2:16: `agents.main.risk_profile`: no `[risk_profiles.strct]` is configured, did you mean `strict`?",
    );
    check(
        "[agents.main]\nruntime_profile = 'other'",
        "config.toml:2:19: `agents.main.runtime_profile`: no `[runtime_profiles.other]` is configured",
    );
    let error = Home::empty().load(&[("ZEROCLAW_agents__main__risk_profile", "gone")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "environment variable `ZEROCLAW_agents__main__risk_profile`: `agents.main.risk_profile`: \
         no `[risk_profiles.gone]` is configured"
    );
}

#[test]
fn a_file_that_is_no_toml_says_where() {
    fn check(content: &[u8], place: &str) {
        let home = Home::with("");
        fs::write(home.file(), content).unwrap();
        let error = home.load(&[]).unwrap_err();
        let message = home.message(&error);
        assert!(matches!(error, ConfigError::Syntax { .. }), "{error:?}");
        assert!(message.starts_with(&format!("config.toml:{place}: ")), "{message}");
        assert!(message.contains("expected") || message.contains("duplicate"), "{message}");
        assert!(!message.contains("s3cret") && !format!("{error:?}").contains("s3cret"), "{error:?}");
    }
    check(b"[acp\nstrict = true", "1:5");
    check(b"[providers.models.custom.x]\napi_key = \"s3cret", "2:18");
    check(b"[providers.models.custom.x]\napi_key = s3cret", "2:11");
    check(b"[providers.models.custom.x]\napi_key = 's3cret' s3cret", "2:20");
    check(b"[providers.models.custom.x]\napi_key 's3cret'", "2:9");
    check(b"[acp]\nstrict = true\nstrict = false", "3:1");
    check(b"[acp]\n# \xff", "2:3");
}

#[test]
fn a_wrong_value_is_never_repeated_where_a_secret_may_be() {
    for content in [
        "[providers.models.custom.x]\napi_key = ['s3cret']",
        "[providers.models.custom.x]\napi_key = { value = 's3cret' }",
        "[providers.models.custom.x]\nmodel = ['s3cret']",
        "[providers.models.custom]\napi_key = 's3cret'",
        "[providers.models.custom.x]\nnum_ctx = 's3cret'",
        "[providers.models.custom.x]\napikey = 's3cret'",
    ] {
        let error = Home::with(content).load(&[]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
}

#[test]
fn a_thing_that_is_no_file_is_refused() {
    let home = Home::empty();
    fs::create_dir_all(home.file()).unwrap();
    let error = home.load(&[]).unwrap_err();
    let file = home.file().display().to_string();
    assert_eq!(error.to_string(), format!("cannot read {file}: expected a regular file, found a directory"));

    let home = Home::empty();
    fs::write(home.dir(), "").unwrap();
    let error = home.load(&[]).unwrap_err();
    assert!(matches!(error, ConfigError::Io { action: "read", .. }), "{error:?}");

    let home = Home::with("");
    fs::File::create(home.file()).unwrap().set_len(5 * 1024 * 1024).unwrap();
    let error = home.load(&[]).unwrap_err();
    assert!(matches!(error, ConfigError::TooLarge { limit: 4_194_304, .. }), "{error:?}");
}

/// Opening a pipe nobody writes to waits for ever, which would hang the start of the program.
#[cfg(unix)]
#[test]
fn a_socket_is_refused_and_not_opened() {
    let home = Home::empty();
    fs::create_dir(home.dir()).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(home.file()).unwrap();
    let error = home.load(&[]).unwrap_err();
    assert!(matches!(error, ConfigError::NotAFile { found: "a device or pipe", .. }), "{error:?}");
}

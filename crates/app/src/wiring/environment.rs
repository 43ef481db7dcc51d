//! The environment of the commands that tools run: a short list, so that no key of ours or of the user's shell gets in.

use zeroclaw_config::Env;

/// What commands need to find programs, speak the user's language and find the user's files. Nothing here is a secret.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "TEMP",
    "TMP",
    "SYSTEMROOT",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
];

/// Parts of names that variables with secrets have. A variable with one of them is passed only by its whole name.
const SECRET_PARTS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH", "SESSION"];

/// Picks the variables that commands get: the usual ones, and those that the operator named; one ending in `*` names all that
/// begin so and do not look like secrets.
pub(super) fn shell_env(env: &Env, passed: &[String]) -> Vec<(String, String)> {
    let named = |name: &str| {
        passed.iter().any(|passed| match passed.strip_suffix('*') {
            Some(begin) => name.starts_with(begin) && !is_secret(name),
            None => name == passed,
        })
    };
    // Our own variables are settings and keys of this program, whatever anybody names.
    let picked = |name: &str| !is_ours(name) && (PASSED.contains(&name) || name.starts_with("LC_") || named(name));
    env.iter().filter(|(name, _)| picked(name)).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn is_ours(name: &str) -> bool {
    name.to_ascii_uppercase().starts_with("ZEROCLAW_")
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use zeroclaw_config::Env;

    use super::shell_env;

    #[test]
    fn only_the_list_is_passed() {
        let env: Env = [
            ("PATH", "/bin"),
            ("LC_ALL", "C.UTF-8"),
            ("ANTHROPIC_API_KEY", "k"),
            ("ZEROCLAW_acp__max_sessions", "3"),
            ("GITHUB_TOKEN", "t"),
            ("LD_PRELOAD", "x.so"),
        ]
        .into_iter()
        .collect();
        let passed = shell_env(&env, &[]);
        let names: Vec<&str> = passed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["LC_ALL", "PATH"]);
    }

    #[test]
    fn the_operator_adds_to_the_list() {
        let env: Env = [
            ("CI", "1"),
            ("CI_BUILD", "7"),
            ("CI_JOB_TOKEN", "t"),
            ("NPM_TOKEN", "n"),
            ("ZEROCLAW_providers__models__x__y__api_key", "k"),
            ("zeroclaw_home", "h"),
        ]
        .into_iter()
        .collect();
        let names = |passed: &[&str]| {
            let passed: Vec<String> = passed.iter().map(|name| (*name).to_owned()).collect();
            shell_env(&env, &passed).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["CI"]), ["CI"]);
        assert_eq!(names(&["CI*"]), ["CI", "CI_BUILD"]);
        assert_eq!(names(&["NPM_TOKEN"]), ["NPM_TOKEN"]);
        assert_eq!(names(&["*", "ZEROCLAW_*", "ZEROCLAW_providers__models__x__y__api_key"]), ["CI", "CI_BUILD"]);
    }
}

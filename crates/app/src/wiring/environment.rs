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

/// Picks the variables that commands get.
pub(super) fn shell_env(env: &Env) -> Vec<(String, String)> {
    env.iter()
        .filter(|(name, _)| PASSED.contains(name) || name.starts_with("LC_"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
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
        let passed = shell_env(&env);
        let names: Vec<&str> = passed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["LC_ALL", "PATH"]);
    }
}

//! What commands can read besides the session's directories: the system, and the tool chains in the user's home. Lists, as no
//! rule tells a tool chain from a secret; the configuration adds to them.

use std::path::{Component, Path, PathBuf};

/// The system: programs, libraries, settings, what the kernel tells. Not `/dev`, `/home`, `/root`, `/tmp` and `/var`.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/gnu/store",
    "/snap",
    "/home/linuxbrew/.linuxbrew",
    "/proc",
    "/sys/devices",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/run/current-system",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/var/lib/dpkg",
    // The same on macOS.
    "/System",
    "/Library/Apple",
    "/Library/Developer",
    "/Library/Frameworks",
    "/Library/Java",
    "/Applications/Xcode.app",
    "/private/etc",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
    "/private/var/select",
];

/// Tool chains and their caches, below the home directory.
const TOOLCHAINS: &[&str] = &[
    ".asdf",
    ".bun",
    ".bundle",
    ".cabal",
    ".cache/go-build",
    ".cache/node",
    ".cache/node-gyp",
    ".cache/pip",
    ".cache/pnpm",
    ".cache/uv",
    ".cache/yarn",
    ".cargo",
    ".composer/cache",
    ".conda",
    ".config/git",
    ".deno",
    ".dotnet",
    ".gem",
    ".ghcup",
    ".gitconfig",
    ".gitignore",
    ".gradle",
    ".julia",
    ".local/bin",
    ".local/lib",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pnpm",
    ".local/share/uv",
    ".m2",
    ".npm",
    ".nuget/packages",
    ".nvm",
    ".opam",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rye",
    ".sdkman",
    ".stack",
    ".volta",
    "Library/Caches/pip",
    "go",
    "miniconda3",
];

/// Where tool chains keep passwords.
const PASSWORDS: &[&str] = &[
    ".bundle/config",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".composer/auth.json",
    ".config/git/credentials",
    ".gem/credentials",
    ".gradle/gradle.properties",
    ".m2/settings-security.xml",
    ".m2/settings.xml",
    ".nuget/NuGet/NuGet.Config",
];

/// Files of the system that hold no program's business.
const SYSTEM_SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/krb5.keytab",
    "/etc/security/opasswd",
    "/etc/NetworkManager/system-connections",
    "/etc/wireguard",
];

/// The variables that name a tool chain kept elsewhere, each with where it usually is below the home directory.
const HOMES: &[(&str, Option<&str>)] = &[
    ("CARGO_HOME", Some(".cargo")),
    ("RUSTUP_HOME", Some(".rustup")),
    ("GOPATH", Some("go")),
    ("GOROOT", None),
    ("JAVA_HOME", None),
    ("NVM_DIR", Some(".nvm")),
    ("PYENV_ROOT", Some(".pyenv")),
    ("VIRTUAL_ENV", None),
];

fn value<'e>(env: &'e [(String, String)], name: &str) -> Option<&'e str> {
    env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The directories that variables name, each with where it usually is.
fn named(env: &[(String, String)]) -> impl Iterator<Item = (PathBuf, Option<&'static str>)> {
    HOMES.iter().filter_map(|(name, usual)| Some((PathBuf::from(value(env, name)?), *usual)))
}

fn search_path(env: &[(String, String)]) -> impl Iterator<Item = PathBuf> {
    value(env, "PATH").into_iter().flat_map(std::env::split_paths)
}

/// The tool chains that the search path leads into, in whose home directory it may be: a program of theirs does not run
/// without the rest. With where each usually is.
fn led_into(env: &[(String, String)]) -> impl Iterator<Item = (PathBuf, Option<&'static str>)> {
    // A name without a dot says nothing: `go` is a directory like any other.
    let chains = TOOLCHAINS.iter().copied().filter(|name| name.starts_with('.'));
    search_path(env).flat_map(move |path| {
        let of = path.clone();
        chains
            .clone()
            .filter_map(move |name| Some((of.ancestors().find(|above| above.ends_with(name))?.to_owned(), Some(name))))
    })
}

/// What is readable, for a home directory and the environment of commands.
#[must_use]
pub fn readable(home: Option<&Path>, env: &[(String, String)]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    if let Some(home) = home.filter(|home| home.is_absolute()) {
        paths.extend(TOOLCHAINS.iter().map(|name| home.join(name)));
    }
    let fits = |path: &PathBuf| {
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        // The home directory in the search path is no reason to open it.
        path.is_absolute() && plain && home.is_none_or(|home| !home.starts_with(path))
    };
    let chains = named(env).chain(led_into(env)).map(|(path, _)| path);
    for path in chains.chain(search_path(env)).filter(fits) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Variables that move a cache, each with where the cache usually is. Tools that find theirs closed refuse to work.
#[must_use]
pub fn caches(home: Option<&Path>) -> Vec<(String, PathBuf)> {
    let usual = [("XDG_CACHE_HOME", ".cache"), ("npm_config_cache", ".npm")];
    home.into_iter().flat_map(|home| usual.map(|(variable, name)| (variable.to_owned(), home.join(name)))).collect()
}

/// What stays closed although it lies in something readable, wherever the tool chain is.
#[must_use]
pub fn hidden(home: Option<&Path>, env: &[(String, String)]) -> Vec<PathBuf> {
    let usual = home.into_iter().flat_map(|home| PASSWORDS.iter().map(|name| home.join(name)));
    let moved = named(env).chain(led_into(env)).flat_map(|(chain, usual)| {
        let inside = PASSWORDS.iter().filter_map(move |name| Path::new(name).strip_prefix(usual?).ok());
        inside.map(move |name| chain.join(name)).collect::<Vec<_>>()
    });
    let mut paths: Vec<PathBuf> = SYSTEM_SECRETS.iter().map(PathBuf::from).collect();
    for path in usual.chain(moved) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

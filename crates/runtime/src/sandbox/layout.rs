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

/// The variables that name a tool chain kept elsewhere.
const HOMES: &[&str] =
    &["CARGO_HOME", "RUSTUP_HOME", "GOPATH", "GOROOT", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT", "VIRTUAL_ENV"];

/// What is readable, for a home directory and the environment of commands.
#[must_use]
pub fn readable(home: Option<&Path>, env: &[(String, String)]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    if let Some(home) = home.filter(|home| home.is_absolute()) {
        paths.extend(TOOLCHAINS.iter().map(|name| home.join(name)));
    }
    let value = |name: &str| env.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let named = HOMES.iter().filter_map(|name| value(name)).map(PathBuf::from);
    let programs = value("PATH").into_iter().flat_map(std::env::split_paths);
    let fits = |path: &PathBuf| {
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        // The home directory in the search path is no reason to open it.
        path.is_absolute() && plain && home.is_none_or(|home| !home.starts_with(path))
    };
    for path in named.chain(programs).filter(fits) {
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

/// What stays closed although it lies in something readable.
#[must_use]
pub fn hidden(home: Option<&Path>) -> Vec<PathBuf> {
    let below = home.into_iter().flat_map(|home| PASSWORDS.iter().map(move |name| home.join(name)));
    below.chain(SYSTEM_SECRETS.iter().map(PathBuf::from)).collect()
}

//! Which programs reach for the network, by name and sub-command: those that are nothing without it, and those that fetch
//! what is missing and else do without. A name that is not here gets no network unless its caller asks for it.

use crate::shell::Word;

use super::table::{Kind, Special};

/// How much a command is after the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Not at all, as far as is known.
    None,
    /// It downloads what is missing, and works without where nothing is.
    Downloads,
    /// It is of no use without.
    Needs,
}

/// What a program with these arguments is after. `name` is in lower case.
pub(super) fn reach(kind: Option<Kind>, name: &str, arguments: &[Word]) -> Reach {
    let words: Vec<&str> = arguments.iter().filter_map(Word::literal).collect();
    match kind {
        Some(Kind::Network) => Reach::Needs,
        Some(Kind::Special(Special::Git)) => git(&words),
        Some(Kind::Special(Special::Tool)) => tool(name, &words),
        Some(Kind::Changes(_)) if is_installer(name) => Reach::Needs,
        Some(
            Kind::Plain
            | Kind::Except(_)
            | Kind::Special(_)
            | Kind::Wrapper(_)
            | Kind::Changes(_)
            | Kind::Interprets
            | Kind::Danger(_),
        )
        | None => Reach::None,
    }
}

/// Whether `git` with this sub-command talks to another machine.
pub(super) fn is_remote(command: &str) -> bool {
    matches!(command, "push" | "pull" | "fetch" | "clone" | "ls-remote" | "submodule" | "send-email" | "svn" | "lfs")
}

fn git(words: &[&str]) -> Reach {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" => drop(words.next()),
            option if option.starts_with('-') => {}
            command if is_remote(command) => return Reach::Needs,
            "remote" if words.next().is_some_and(|word| matches!(*word, "update" | "show" | "prune")) => {
                return Reach::Needs;
            }
            _ => return Reach::None,
        }
    }
    Reach::None
}

fn is_installer(name: &str) -> bool {
    matches!(
        name,
        "apt"
            | "apt-get"
            | "dnf"
            | "yum"
            | "pacman"
            | "apk"
            | "zypper"
            | "snap"
            | "flatpak"
            | "brew"
            | "nix"
            | "nix-env"
    )
}

/// Package managers and builds.
fn tool(name: &str, words: &[&str]) -> Reach {
    if words.iter().any(|word| matches!(*word, "--offline" | "--no-index" | "--help" | "-h" | "--version")) {
        return Reach::None;
    }
    let mut operands = words.iter().copied().filter(|word| !word.starts_with(['-', '+']));
    let first = operands.next();
    let one_of = |commands: &[&str]| first.is_some_and(|first| commands.contains(&first));
    let when = |is: bool, reach: Reach| if is { reach } else { Reach::None };
    match name {
        "cargo" => match first {
            Some("build" | "b") => when(!words.contains(&"--frozen"), Reach::Downloads),
            Some(
                "fetch" | "install" | "add" | "update" | "publish" | "search" | "login" | "owner" | "yank" | "vendor"
                | "generate-lockfile",
            ) => Reach::Needs,
            Some(_) | None => Reach::None,
        },
        "npm" | "pnpm" | "yarn" | "yarnpkg" | "bun" => {
            let bare = first.is_none() && matches!(name, "yarn" | "yarnpkg");
            let installs = [
                "install", "i", "ci", "add", "update", "up", "upgrade", "outdated", "audit", "publish", "view", "info",
                "search", "exec", "dlx", "x", "create", "init", "login", "link", "dedupe", "import", "fetch",
            ];
            when(bare || one_of(&installs), Reach::Needs)
        }
        "npx" | "pnpx" | "bunx" | "uvx" | "pipx" => Reach::Needs,
        "pip" | "pip3" => when(one_of(&["install", "download", "wheel", "index", "search"]), Reach::Needs),
        "python" | "python3" => match words {
            ["-m", "pip", rest @ ..] => tool("pip", rest),
            _ => Reach::None,
        },
        "uv" => when(one_of(&["sync", "pip", "add", "lock", "tool", "python", "publish"]), Reach::Needs),
        "poetry" => when(one_of(&["install", "add", "update", "lock", "publish", "self"]), Reach::Needs),
        "gem" | "bundle" | "composer" => {
            let fetches = ["install", "update", "require", "add", "fetch", "push", "outdated", "search"];
            when(one_of(&fetches) || (name == "bundle" && first.is_none()), Reach::Needs)
        }
        "go" => match first {
            Some("get" | "install") => Reach::Needs,
            Some("mod") => when(operands.next().is_some_and(|word| word != "edit"), Reach::Needs),
            Some("build") => Reach::Downloads,
            Some(_) | None => Reach::None,
        },
        "rustup" => when(one_of(&["update", "install", "toolchain", "target", "component", "self"]), Reach::Needs),
        "mvn" | "gradle" => when(!words.contains(&"-o"), Reach::Downloads),
        "dotnet" => match first {
            Some("restore" | "add" | "tool" | "nuget") => Reach::Needs,
            Some("build" | "publish") => Reach::Downloads,
            Some(_) | None => Reach::None,
        },
        "mix" => {
            when(first.is_some_and(|first| matches!(first, "deps.get" | "deps.update" | "hex.publish")), Reach::Needs)
        }
        "deno" => when(one_of(&["install", "add", "cache", "upgrade"]), Reach::Needs),
        "swift" | "cabal" | "stack" => when(one_of(&["build", "update", "install"]), Reach::Downloads),
        "docker" | "podman" | "kubectl" | "helm" | "terraform" | "ansible" | "gh" | "glab" => Reach::Needs,
        _ => Reach::None,
    }
}

//! `git`: what only looks, and the options that make even looking run something.
//!
//! Git runs programs that the configuration of a repository names, so looking is harmless only in the session's own
//! directory, whose configuration no clone can bring along.

use crate::shell::Word;

use super::{Call, Examiner, Risk, network::is_remote, printable, table::is_option};

/// Options that write, or start a program named elsewhere.
const ACTING: &[&str] =
    &["--output", "--ext-diff", "--open-files-in-pager", "--textconv", "--filters", "--upload-pack", "--exec"];

impl Examiner<'_> {
    pub(super) fn git(&mut self, call: &Call<'_>) {
        self.no_injection(call);
        let mut words = call.arguments;
        loop {
            let Some((word, rest)) = words.split_first() else {
                return;
            };
            let Some(text) = word.literal() else {
                self.unclear("what `git` does is only known when it runs");
                return;
            };
            match text {
                "--no-pager" | "-P" | "--no-optional-locks" | "--literal-pathspecs" | "--no-replace-objects" => {
                    words = rest
                }
                "--version" | "-v" => return,
                "-C" => {
                    let Some((directory, rest)) = rest.split_first() else { return };
                    self.enter(directory, call.command.repeated);
                    words = rest;
                }
                _ if text.starts_with('-') => {
                    self.unclear(format!("`git` with `{}` can run another program", printable(text)));
                    match text {
                        "-c" | "--git-dir" | "--work-tree" | "--namespace" | "--config-env" | "--super-prefix" => {
                            words = rest.get(1..).unwrap_or_default();
                        }
                        _ => words = rest,
                    }
                }
                _ => {
                    self.subcommand(text, rest, call);
                    return;
                }
            }
        }
    }

    fn subcommand(&mut self, name: &str, arguments: &[Word], call: &Call<'_>) {
        let shown = printable(name);
        if let Some(what) = destroys(name, arguments) {
            self.find(Risk::High { named: call.program.named }, format!("`git {shown}` {what}"));
            return;
        }
        if is_remote(name) {
            self.find(Risk::Network, format!("`git {shown}` uses the network"));
            self.unclear(format!("`git {shown}` changes repositories"));
            return;
        }
        if !looks(name, arguments) {
            self.unclear(format!("`git {shown}` changes the repository or is not known"));
            return;
        }
        let acting = arguments
            .iter()
            .filter_map(Word::literal)
            .find(|text| ACTING.iter().any(|option| text.len() > 2 && is_option(text, option)));
        if let Some(text) = acting {
            self.unclear(format!("`git {shown}` with `{}` writes or runs something", printable(text)));
        }
        if name == "grep" && arguments.iter().filter_map(Word::literal).any(|text| is_option(text, "-O")) {
            self.unclear("`git grep` with `-O` runs a pager");
        }
        if !self.is_in_root() {
            self.unclear("`git` runs what a repository below the working directory may configure");
        }
    }
}

/// What is lost for good, completing "`git x` …".
fn destroys(name: &str, arguments: &[Word]) -> Option<&'static str> {
    let has = |options: &[&str]| {
        arguments.iter().filter_map(Word::literal).any(|text| options.iter().any(|option| is_option(text, option)))
    };
    match name {
        "push" => {
            let refs =
                arguments.iter().filter_map(Word::literal).any(|text| text.starts_with('+') || text.starts_with(':'));
            // `--force-with-lease` begins like `--force`, and overwrites as well.
            let forced = has(&["-f", "--force", "--force-with-lease", "--mirror", "--delete", "-d", "--prune"]);
            (refs || forced).then_some("overwrites or deletes what others see")
        }
        "reset" => has(&["--hard", "--merge", "--keep"]).then_some("throws changes away"),
        "clean" => (!has(&["-n", "--dry-run"])).then_some("deletes files that are not in the repository"),
        "filter-branch" | "filter-repo" => Some("rewrites the whole history"),
        "reflog" | "gc" | "prune" => {
            let expires = arguments
                .iter()
                .filter_map(Word::literal)
                .any(|text| matches!(text, "expire" | "delete") || text.starts_with("--prune"));
            (expires || name == "prune").then_some("deletes what could still be restored")
        }
        _ => None,
    }
}

/// Whether a subcommand with these arguments only looks.
fn looks(name: &str, arguments: &[Word]) -> bool {
    let words: Option<Vec<&str>> = arguments.iter().map(Word::literal).collect();
    let first = arguments.first().and_then(Word::literal);
    match name {
        "status" | "diff" | "log" | "show" | "shortlog" | "describe" | "rev-parse" | "rev-list" | "ls-files"
        | "ls-tree" | "cat-file" | "blame" | "annotate" | "grep" | "name-rev" | "merge-base" | "for-each-ref"
        | "show-ref" | "show-branch" | "whatchanged" | "cherry" | "count-objects" | "diff-tree" | "diff-index"
        | "diff-files" | "check-ignore" | "check-attr" | "version" | "range-diff" => true,
        "reflog" => matches!(first, None | Some("show" | "exists")),
        "stash" => matches!(first, Some("list" | "show")),
        "worktree" | "bisect" | "notes" => matches!(first, Some("list" | "log")),
        "remote" => words.is_some_and(|words| matches!(words.as_slice(), [] | ["-v" | "--verbose"] | ["get-url", ..])),
        "branch" => words.is_some_and(|words| {
            words.iter().all(|word| {
                matches!(
                    *word,
                    "-a" | "-r"
                        | "-v"
                        | "-vv"
                        | "-l"
                        | "--list"
                        | "--all"
                        | "--remotes"
                        | "--show-current"
                        | "--verbose"
                        | "--merged"
                        | "--no-merged"
                        | "--no-color"
                        | "--column"
                ) || word.starts_with("--sort=")
                    || word.starts_with("--format=")
                    || word.starts_with("--contains=")
            })
        }),
        "tag" => words.is_some_and(|words| match words.as_slice() {
            [] => true,
            [first, ..] => {
                matches!(*first, "-l" | "--list")
                    && !words.iter().any(|word| {
                        is_option(word, "-d")
                            || is_option(word, "-f")
                            || is_option(word, "--delete")
                            || is_option(word, "--force")
                    })
            }
        }),
        "config" => words.is_some_and(|words| {
            matches!(words.as_slice(), ["-l" | "--list" | "list"] | ["--get" | "--get-all" | "get", _])
        }),
        _ => false,
    }
}

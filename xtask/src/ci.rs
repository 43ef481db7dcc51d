//! `cargo xtask ci`: every check a change must pass, in one command, the cheap ones first. Each step inherits the
//! terminal, so the tools' own output is what a reader of the log sees; a failing step does not hide the later ones.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::workspace::Workspace;
use crate::{Verdict, public_api, tidy};

/// The version that `.ci/run` installs; another one may know other checks.
const DENY_VERSION: &str = "0.20.2";

/// What a step does.
enum Action {
    /// Run `cargo` with these arguments and variables.
    Cargo(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// Run the checks of `cargo xtask tidy` in this process.
    Tidy,
    /// Run `cargo xtask public-api` in this process.
    PublicApi,
    /// Run `cargo deny`, which may not be installed.
    Deny,
}

/// The steps in order. `cargo test` includes the doc tests, so nothing runs twice.
const STEPS: &[(&str, Action)] = &[
    // Everything of the lock file, other platforms included: `deny` and `tidy` look at the whole graph.
    ("fetch", Action::Cargo(&["fetch", "--locked"], &[])),
    ("fetch-latest", Action::Cargo(&["fetch", "--locked", "--manifest-path", SCHEMA], &[])),
    ("fetch-1.7", Action::Cargo(&["fetch", "--locked", "--manifest-path", SCHEMA_1_7], &[])),
    ("fetch-client", Action::Cargo(&["fetch", "--locked", "--manifest-path", CLIENT], &[])),
    ("fmt", Action::Cargo(&["fmt", "--all", "--check"], &[])),
    ("tidy", Action::Tidy),
    ("deny", Action::Deny),
    ("clippy", Action::Cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"], &[])),
    ("doc", Action::Cargo(&["doc", "--workspace", "--no-deps", "--locked"], &[("RUSTDOCFLAGS", "-D warnings")])),
    ("public-api", Action::PublicApi),
    ("test", Action::Cargo(&["test", "--workspace", "--locked"], &[])),
    // The same properties as in the step before, for longer: eight of them, ten seconds each.
    ("fuzz", Action::Cargo(&["run", "--quiet", "--locked", "-p", "zeroclaw-fuzz", "--", "--seconds", "10"], &[])),
    // Two workspaces of their own, see tests/schema/README.md: same sources, two versions of the official types. They
    // start the binaries that the step before has built.
    ("schema-fmt", Action::Cargo(&["fmt", "--manifest-path", SCHEMA, "--check"], &[])),
    (
        "schema-lint",
        Action::Cargo(&["clippy", "--manifest-path", SCHEMA, "--all-targets", "--locked", "--", "-D", "warnings"], &[]),
    ),
    ("schema", Action::Cargo(&["test", "--manifest-path", SCHEMA, "--locked"], &[])),
    ("schema-1.7", Action::Cargo(&["test", "--manifest-path", SCHEMA_1_7, "--locked"], &[])),
    // And one for the official client, whose TLS library must not get into the programs that it is driven against.
    ("client-fmt", Action::Cargo(&["fmt", "--manifest-path", CLIENT, "--check"], &[])),
    (
        "client-lint",
        Action::Cargo(&["clippy", "--manifest-path", CLIENT, "--all-targets", "--locked", "--", "-D", "warnings"], &[]),
    ),
    ("client", Action::Cargo(&["test", "--manifest-path", CLIENT, "--locked"], &[])),
];

/// Judges by the newest official types and the JSON Schema.
const SCHEMA: &str = "tests/schema/latest/Cargo.toml";

/// Judges by the oldest official types that are in use.
const SCHEMA_1_7: &str = "tests/schema/1.7/Cargo.toml";

/// The official Rust client over WebSocket and HTTP.
const CLIENT: &str = "tests/clients/rust/Cargo.toml";

/// What may enter the lock files that are not the product's, each beside the rules for it.
const BESIDE: [(&str, &str); 3] = [
    (SCHEMA, "tests/schema/deny.toml"),
    (SCHEMA_1_7, "tests/schema/deny.toml"),
    (CLIENT, "tests/clients/rust/deny.toml"),
];

struct Outcome {
    name: &'static str,
    passed: bool,
    took: Duration,
}

pub(crate) fn run(workspace: &Workspace) -> Result<Verdict> {
    let began = Instant::now();
    let mut outcomes = Vec::new();
    for (name, action) in STEPS {
        headline(&format!("{name}: started"))?;
        let step_began = Instant::now();
        let passed = match perform(workspace, action) {
            Ok(passed) => passed,
            Err(error) => {
                eprintln!("error: {error:#}");
                false
            }
        };
        let took = step_began.elapsed();
        headline(&format!("{name}: {} after {}", word(passed), seconds(took)))?;
        outcomes.push(Outcome { name, passed, took });
    }
    print!("{}", summary(&outcomes, began.elapsed()));
    let all = outcomes.iter().all(|outcome| outcome.passed);
    Ok(if all { Verdict::Pass } else { Verdict::Fail })
}

/// Prints a line and flushes it: the children write to the same pipe and must not overtake it.
fn headline(line: &str) -> Result<()> {
    println!("==> {line}");
    std::io::stdout().flush()?;
    Ok(())
}

fn perform(workspace: &Workspace, action: &Action) -> Result<bool> {
    match action {
        Action::Cargo(arguments, variables) => {
            let mut command = workspace.cargo();
            command.args(*arguments).envs(variables.iter().copied());
            succeeds(&mut command)
        }
        Action::Tidy => Ok(tidy::run(workspace)? == Verdict::Pass),
        Action::PublicApi => Ok(public_api::run(workspace, public_api::Options::default())? == Verdict::Pass),
        Action::Deny => {
            let installed = workspace.cargo().args(["deny", "--version"]).output();
            if !installed.is_ok_and(|output| output.status.success()) {
                eprintln!(
                    "error: cargo-deny is missing; install it with `cargo install cargo-deny --locked --version {DENY_VERSION}`"
                );
                return Ok(false);
            }
            // Advisories are left out: they change without the code changing and need the network.
            let mut passed =
                succeeds(workspace.cargo().args(["deny", "--offline", "check", "licenses", "bans", "sources"]))?;
            for (manifest, rules) in BESIDE {
                let mut command = workspace.cargo();
                command.args(["deny", "--offline", "--manifest-path", manifest, "--config", rules]);
                passed &= succeeds(command.args(["check", "licenses", "sources"]))?;
            }
            Ok(passed)
        }
    }
}

fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    Ok(status.success())
}

fn summary(outcomes: &[Outcome], total: Duration) -> String {
    let mut text = String::from("==> summary\n");
    for outcome in outcomes {
        text.push_str(&format!("    {:<13}{:<8}{:>9}\n", outcome.name, word(outcome.passed), seconds(outcome.took)));
    }
    let failed: Vec<&str> = outcomes.iter().filter(|outcome| !outcome.passed).map(|outcome| outcome.name).collect();
    let verdict = if failed.is_empty() { "all passed".to_owned() } else { format!("failed: {}", failed.join(", ")) };
    text.push_str(&format!("    {verdict} in {}\n", seconds(total)));
    text
}

fn word(passed: bool) -> &'static str {
    if passed { "ok" } else { "FAILED" }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests;

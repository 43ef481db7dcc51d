//! `cargo xtask public-api`: the public items of the protocol crate as text, compared with the record beside the crate.
//! It refuses to decide what is a breaking change; it makes every change visible in a commit.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::Verdict;
use crate::workspace::Workspace;

const PACKAGE: &str = "zeroclaw-acp-protocol";
const RECORD: &str = "crates/acp-protocol/public-api.txt";
/// A target directory of its own: the variable that unlocks rustdoc's JSON would rebuild everything in the usual one.
const TARGET: &str = "target/public-api";

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Options {
    /// Write the record anew instead of comparing.
    #[arg(long)]
    bless: bool,
}

pub(crate) fn run(workspace: &Workspace, options: Options) -> Result<Verdict> {
    let items = items(workspace)?;
    let path = workspace.root.join(RECORD);
    if options.bless {
        std::fs::write(&path, items).with_context(|| format!("cannot write {RECORD}"))?;
        return Ok(Verdict::Pass);
    }
    let recorded = std::fs::read_to_string(&path).with_context(|| format!("cannot read {RECORD}"))?;
    let differences = differences(&recorded, &items);
    for line in &differences {
        println!("{line}");
    }
    if differences.is_empty() {
        return Ok(Verdict::Pass);
    }
    println!("public-api: `cargo xtask public-api --bless` records this; a `-` breaks whoever uses it");
    Ok(Verdict::Fail)
}

fn items(workspace: &Workspace) -> Result<String> {
    let target = workspace.root.join(TARGET);
    let mut command = workspace.cargo();
    // Rustdoc writes JSON on the pinned toolchain only when it is told that unstable options are wanted.
    command.env("RUSTC_BOOTSTRAP", "1").arg("rustdoc").args(["--locked", "--lib", "-p", PACKAGE, "--target-dir"]);
    command.arg(&target).args(["--", "-Z", "unstable-options", "--output-format", "json"]);
    ensure!(command.status().context("cannot run `cargo rustdoc`")?.success(), "`cargo rustdoc` failed");
    let json = target.join("doc").join(format!("{}.json", PACKAGE.replace('-', "_")));
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

/// The lines that only one side has, the removed ones first.
fn differences(recorded: &str, now: &str) -> Vec<String> {
    let (recorded, now): (BTreeSet<&str>, BTreeSet<&str>) = (recorded.lines().collect(), now.lines().collect());
    let removed = recorded.difference(&now).map(|line| format!("- {line}"));
    removed.chain(now.difference(&recorded).map(|line| format!("+ {line}"))).collect()
}

#[cfg(test)]
mod tests;

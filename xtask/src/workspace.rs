//! What the commands know about the workspace: its root, its tracked files, its packages. Everything comes from
//! `git ls-files` and `cargo metadata`; nothing is guessed from folder names.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The checked-out workspace.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
}

impl Workspace {
    /// Finds the root from the place this program was compiled in, so that the current directory does not matter.
    pub(crate) fn here() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().context("xtask has no parent directory")?;
        ensure!(root.join("Cargo.lock").is_file(), "{} is not the workspace root", root.display());
        Ok(Self { root: root.to_owned() })
    }

    /// A `cargo` that does not inherit what the outer `cargo run` said about the package `xtask`: build scripts
    /// that watch these variables would otherwise compile their crates again at every change of caller.
    pub(crate) fn cargo(&self) -> Command {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// The tracked files that exist, relative to the root, with forward slashes.
    pub(crate) fn tracked_files(&self) -> Result<Vec<String>> {
        let output = Command::new("git")
            // A checkout made by another user is normal in a container; listing names is harmless.
            .args(["-c", "safe.directory=*", "ls-files", "-z"])
            .current_dir(&self.root)
            .output()
            .context("cannot run `git ls-files`")?;
        ensure!(output.status.success(), "`git ls-files` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        let listed = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
        let names = listed.split('\0').filter(|name| !name.is_empty());
        Ok(names.filter(|name| self.root.join(name).is_file()).map(str::to_owned).collect())
    }

    /// The members and the resolved graph of everything below them.
    pub(crate) fn packages(&self) -> Result<Packages> {
        let output = self
            .cargo()
            .args(["metadata", "--locked", "--format-version", "1"])
            .output()
            .context("cannot run `cargo metadata`")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        Packages::from_metadata(&metadata)
    }
}

/// How one package needs another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

/// A dependency as a manifest declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) to: String,
    pub(crate) kind: Kind,
}

/// A member of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) edges: Vec<Edge>,
    pub(crate) bins: Vec<String>,
}

/// The members, and for every package id of the resolved graph its name and the ids it needs at run time.
#[derive(Debug, Default)]
pub(crate) struct Packages {
    pub(crate) members: Vec<Member>,
    pub(crate) graph: BTreeMap<String, Node>,
}

/// One package of the resolved graph.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) needs: Vec<String>,
}

impl Packages {
    /// Reads the output of `cargo metadata --format-version 1`.
    pub(crate) fn from_metadata(metadata: &Value) -> Result<Self> {
        let inside: Vec<&str> = list(metadata, "workspace_members")?.iter().filter_map(Value::as_str).collect();
        let mut names = BTreeMap::new();
        let mut members = Vec::new();
        for package in list(metadata, "packages")? {
            let (id, name) = (text(package, "id")?, text(package, "name")?);
            names.insert(id, name);
            if inside.contains(&id) {
                members.push(member(name, package)?);
            }
        }
        let resolve = metadata.get("resolve").context("no `resolve` in cargo metadata")?;
        let mut graph = BTreeMap::new();
        for node in list(resolve, "nodes")? {
            let id = text(node, "id")?;
            let name = names.get(id).with_context(|| format!("package {id} is not described"))?;
            let mut needs = Vec::new();
            for dependency in list(node, "deps")? {
                if list(dependency, "dep_kinds")?.iter().any(|kind| kind["kind"].is_null()) {
                    needs.push(text(dependency, "pkg")?.to_owned());
                }
            }
            graph.insert(id.to_owned(), Node { name: (*name).to_owned(), needs });
        }
        members.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { members, graph })
    }

    /// The names of all programs of the workspace.
    pub(crate) fn bins(&self) -> Vec<&str> {
        self.members.iter().flat_map(|member| &member.bins).map(String::as_str).collect()
    }
}

fn member(name: &str, package: &Value) -> Result<Member> {
    let mut edges = Vec::new();
    for dependency in list(package, "dependencies")? {
        let kind = match dependency["kind"].as_str() {
            None => Kind::Normal,
            Some("build") => Kind::Build,
            Some("dev") => Kind::Dev,
            Some(other) => bail!("unknown dependency kind `{other}`"),
        };
        edges.push(Edge { to: text(dependency, "name")?.to_owned(), kind });
    }
    let mut bins = Vec::new();
    for target in list(package, "targets")? {
        if list(target, "kind")?.iter().any(|kind| kind == "bin") {
            bins.push(text(target, "name")?.to_owned());
        }
    }
    Ok(Member { name: name.to_owned(), edges, bins })
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value.get(key).and_then(Value::as_array).with_context(|| format!("no list `{key}` in cargo metadata"))
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value.get(key).and_then(Value::as_str).with_context(|| format!("no text `{key}` in cargo metadata"))
}

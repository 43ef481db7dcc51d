//! Which crate may use which: the table of the architecture as data, compared with what the manifests declare.
//! A crate looks only down. A new crate has to be entered here before it can be built into anything.

use std::collections::BTreeSet;

use super::{Check, Problem};
use crate::workspace::{Edge, Kind, Member, Packages};

/// Whether a row has a crate yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Present,
    /// Named in the architecture, not in the tree yet.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "every crate of the architecture is there now; the next one is planned first")
    )]
    Planned,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) package: &'static str,
    pub(super) layer: u8,
    pub(super) state: State,
    /// The crates of the workspace its code may use.
    pub(super) uses: &'static [&'static str],
}

const fn row(layer: u8, package: &'static str, uses: &'static [&'static str]) -> Row {
    Row { package, layer, state: State::Present, uses }
}

const PROTOCOL: &str = "zeroclaw-acp-protocol";
const POLICY: &str = "zeroclaw-policy";
const CONFIG: &str = "zeroclaw-config";
const TRANSPORT: &str = "zeroclaw-acp-transport";
const STORE: &str = "zeroclaw-session-store";
const RUNTIME: &str = "zeroclaw-runtime";
const BRIDGE: &str = "zeroclaw-bridge";
const SERVER: &str = "zeroclaw-acp-server";
const GATEWAY: &str = "zeroclaw-gateway";
const APP: &str = "zeroclaw-app";
const TESTKIT: &str = "zeroclaw-testkit";
const E2E: &str = "zeroclaw-e2e";

/// Layer of what stands beside the tower: tools that ship nothing.
const BESIDE: u8 = 9;

pub(super) const TABLE: &[Row] = &[
    row(0, PROTOCOL, &[]),
    row(0, POLICY, &[]),
    row(0, CONFIG, &[]),
    row(1, TRANSPORT, &[PROTOCOL]),
    row(1, STORE, &[PROTOCOL]),
    row(2, RUNTIME, &[PROTOCOL, POLICY]),
    row(2, BRIDGE, &[PROTOCOL, TRANSPORT, CONFIG]),
    row(3, SERVER, &[PROTOCOL, TRANSPORT, STORE, POLICY, RUNTIME]),
    row(3, GATEWAY, &[PROTOCOL, TRANSPORT]),
    row(4, APP, &[PROTOCOL, POLICY, CONFIG, TRANSPORT, STORE, RUNTIME, SERVER, GATEWAY]),
    row(5, "zeroclaw", &[APP]),
    row(5, "zeroclaw-acp", &[APP]),
    row(5, "zeroclaw-acp-bridge", &[BRIDGE, CONFIG]),
    // Doubles and contract suites for every library below the composition root.
    row(BESIDE, TESTKIT, &[PROTOCOL, POLICY, CONFIG, TRANSPORT, STORE, RUNTIME, SERVER]),
    row(BESIDE, E2E, &[PROTOCOL, TESTKIT]),
    // Properties of what takes in anything.
    row(BESIDE, "zeroclaw-fuzz", &[PROTOCOL, POLICY, TRANSPORT, STORE]),
    // The tooling has to build while the product does not.
    row(BESIDE, "xtask", &[]),
    row(BESIDE, "zeroclaw-bench-peers", &[]),
];

/// Crates whose registry dependencies are listed to the last one, because others link them.
const EXACT: &[(&str, &[&str])] = &[(PROTOCOL, &["serde", "serde_json"])];

/// Registry crates that one place owns.
const OWNED: &[(&str, &[&str])] = &[
    (
        "anyhow",
        &[APP, TESTKIT, E2E, "zeroclaw", "zeroclaw-acp", "zeroclaw-acp-bridge", "xtask", "zeroclaw-bench-peers"],
    ),
    ("axum", &[GATEWAY]),
    ("brush-parser", &[POLICY]),
    ("clap", &[APP, "zeroclaw-acp-bridge", "xtask"]),
    ("genai", &[RUNTIME]),
    ("landlock", &[RUNTIME]),
    ("reqwest", &[RUNTIME, "zeroclaw-bench-peers"]),
    ("rmcp", &[RUNTIME]),
    ("seccompiler", &[RUNTIME]),
    ("sqlx", &[STORE]),
    ("tokio-tungstenite", &[TRANSPORT, BRIDGE, GATEWAY]),
    ("toml_edit", &[CONFIG]),
];

/// What may not be reachable at run time, by any way, however deep.
const UNREACHABLE: &[(&str, &[&str])] = &[
    (PROTOCOL, &["tokio"]),
    (POLICY, &["tokio", "async-trait", "cap-std", "reqwest", "sqlx"]),
    (CONFIG, &["tokio", "reqwest", "sqlx"]),
    (TRANSPORT, &["axum", "reqwest", "sqlx"]),
    (STORE, &["axum", "genai", "reqwest"]),
    (BRIDGE, &["axum", "genai", "sqlx"]),
    (GATEWAY, &["genai", "sqlx"]),
];

pub(super) fn check(packages: &Packages) -> Vec<Problem> {
    let mut problems = table_matches(packages, TABLE);
    for member in &packages.members {
        let Some(row) = TABLE.iter().find(|row| row.package == member.name) else { continue };
        problems.extend(member.edges.iter().filter_map(|edge| edge_problem(row, edge, TABLE)));
        problems.extend(foreign(member));
    }
    for (package, forbidden) in UNREACHABLE {
        problems.extend(reached(packages, package, forbidden));
    }
    problems
}

fn problem(package: &str, message: String) -> Problem {
    Problem::new(Check::Layers, package, 0, message)
}

/// Every member has a row, and every row that says so has a member.
pub(super) fn table_matches(packages: &Packages, table: &[Row]) -> Vec<Problem> {
    let members: BTreeSet<&str> = packages.members.iter().map(|member| member.name.as_str()).collect();
    let rows: BTreeSet<&str> = table.iter().map(|row| row.package).collect();
    let strangers = members.difference(&rows).map(|name| {
        problem(name, "not in the table of layers; enter it in xtask/src/tidy/layers.rs and ARCHITECTURE.md".to_owned())
    });
    let missing = table
        .iter()
        .filter(|row| row.state == State::Present && !members.contains(row.package))
        .map(|row| problem(row.package, "in the table of layers but not in the workspace".to_owned()));
    strangers.chain(missing).collect()
}

/// Judges one declared dependency between two crates of the workspace.
pub(super) fn edge_problem(from: &Row, edge: &Edge, table: &[Row]) -> Option<Problem> {
    let to = table.iter().find(|row| row.package == edge.to)?;
    if from.uses.contains(&to.package) {
        return None;
    }
    match edge.kind {
        // Tests may look sideways and use the doubles, never up.
        Kind::Dev if to.package == TESTKIT && from.package != "xtask" => None,
        Kind::Dev if to.layer <= from.layer && from.layer != BESIDE => None,
        Kind::Dev => Some(problem(from.package, format!("its tests look up to `{}`", to.package))),
        Kind::Normal | Kind::Build if to.package == TESTKIT => {
            Some(problem(from.package, format!("`{TESTKIT}` is a dev-dependency only")))
        }
        Kind::Normal | Kind::Build => Some(problem(
            from.package,
            format!("may not depend on `{}`; it may use [{}]", to.package, from.uses.join(", ")),
        )),
    }
}

/// Judges what a crate takes from the registry.
pub(super) fn foreign(member: &Member) -> Vec<Problem> {
    let mut problems = Vec::new();
    for edge in member.edges.iter().filter(|edge| edge.kind != Kind::Dev) {
        let is_ours = TABLE.iter().any(|row| row.package == edge.to);
        let exact = EXACT.iter().find(|(package, _)| *package == member.name);
        if let Some((_, allowed)) = exact
            && !is_ours
            && !allowed.contains(&edge.to.as_str())
        {
            let message = format!("depends on `{}`, but others link it for [{}] only", edge.to, allowed.join(", "));
            problems.push(problem(&member.name, message));
        }
        if let Some((_, owners)) = OWNED.iter().find(|(foreign, _)| *foreign == edge.to)
            && !owners.contains(&member.name.as_str())
        {
            problems.push(problem(&member.name, format!("`{}` belongs to [{}]", edge.to, owners.join(", "))));
        }
    }
    problems
}

/// Follows the run-time dependencies of a package and reports the forbidden ones with the way that leads there.
pub(super) fn reached(packages: &Packages, package: &str, forbidden: &[&str]) -> Vec<Problem> {
    let Some((start, _)) = packages.graph.iter().find(|(_, node)| node.name == package) else { return Vec::new() };
    let mut seen = BTreeSet::from([start.as_str()]);
    let mut ways = vec![(start.as_str(), package.to_owned())];
    let mut problems = Vec::new();
    while let Some((id, way)) = ways.pop() {
        let Some(node) = packages.graph.get(id) else { continue };
        if forbidden.contains(&node.name.as_str()) {
            problems.push(problem(package, format!("reaches `{}`: {way}", node.name)));
            continue;
        }
        for next in &node.needs {
            if seen.insert(next) {
                let name = packages.graph.get(next).map_or("?", |node| node.name.as_str());
                ways.push((next, format!("{way} -> {name}")));
            }
        }
    }
    problems
}

//! From a risk profile to the rules of an agent: the operator's own, and what holds on every machine.

use std::path::{Path, PathBuf};

use zeroclaw_config::{Env, Level, Loaded, RiskProfile, Verdict};
use zeroclaw_policy::{self as policy, CommandRule, Decision, Root, RootKind, Ruleset};

/// Directories in the home directory that hold keys.
const PRIVATE: [&str; 5] = [".ssh", ".gnupg", ".aws", ".kube", ".netrc"];

/// Checks every rule about commands of every profile, with its examples.
///
/// # Errors
/// The first rule that cannot be used, with file and line.
pub fn check_rules(loaded: &Loaded) -> anyhow::Result<()> {
    let config = &loaded.config;
    let profiles = config.risk_profiles.values().chain([&config.autonomy]);
    profiles.into_iter().try_for_each(|profile| command_rules(profile).map(drop).map_err(anyhow::Error::msg))
}

/// The rules of an agent.
///
/// # Errors
/// Says which rule about commands cannot be used, with file and line.
pub(crate) fn ruleset(loaded: &Loaded, env: &Env, alias: &str, risk: &RiskProfile) -> Result<Ruleset, String> {
    let paths = &loaded.paths;
    // Keys, and our own bookkeeping: no level makes these an agent's business.
    let mut forbidden: Vec<PathBuf> = vec![
        "/etc/shadow".into(),
        "/etc/gshadow".into(),
        paths.config_file.clone(),
        paths.credentials_file(),
        paths.data_dir.join("sessions"),
    ];
    let home = env.home().map(PathBuf::from);
    if let Some(home) = &home {
        forbidden.extend(PRIVATE.map(|name| home.join(name)));
    }
    // What another agent keeps is not this one's to read.
    let others = loaded.config.agents.keys().filter(|other| *other != alias);
    let own = loaded.agent_workspace(alias);
    forbidden.extend(others.map(|other| loaded.agent_workspace(other)).filter(|other| *other != own).map(absolute));
    forbidden.extend(risk.forbidden_paths.iter().map(PathBuf::from));
    let search_path = env.get("PATH").map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    Ok(Ruleset {
        level: level(risk.level.unwrap_or_default()),
        auto_approve: risk.auto_approve.clone(),
        always_ask: risk.always_ask.clone(),
        excluded_tools: risk.excluded_tools.clone(),
        allowed_commands: risk.allowed_commands.clone(),
        commands: command_rules(risk)?,
        network: risk.network.map(decision),
        workspace_only: risk.workspace_only,
        forbidden_paths: forbidden,
        private_dirs: vec![paths.config_dir.clone(), paths.data_dir.clone()],
        home,
        search_path,
        fold_case: cfg!(any(windows, target_os = "macos")),
    })
}

/// Directories that the operator opened besides the session's own. Relative ones say nothing without a directory to start at.
pub(super) fn extra_roots(risk: &RiskProfile) -> Vec<Root> {
    let of = |paths: &[String], kind: RootKind| {
        let absolute = paths.iter().map(PathBuf::from).filter(|path| path.is_absolute());
        absolute.map(|path| Root::new(path, kind)).collect::<Vec<Root>>()
    };
    let mut roots = of(&risk.allowed_roots, RootKind::Additional);
    roots.extend(of(&risk.read_only_roots, RootKind::ReadOnly));
    roots
}

/// The directories of a session that an agent would have in `cwd`.
pub(crate) fn session_roots(loaded: &Loaded, alias: &str, risk: &RiskProfile, cwd: &Path) -> Vec<Root> {
    let mut roots = vec![
        Root::new(cwd.to_owned(), RootKind::Session),
        Root::new(absolute(loaded.agent_workspace(alias)), RootKind::Agent),
    ];
    roots.extend(extra_roots(risk));
    roots
}

pub(super) fn level(level: Level) -> policy::Level {
    match level {
        Level::Readonly => policy::Level::Readonly,
        Level::Supervised => policy::Level::Supervised,
        Level::Full => policy::Level::Full,
    }
}

fn command_rules(risk: &RiskProfile) -> Result<Vec<CommandRule>, String> {
    let rule = |config: &zeroclaw_config::CommandConfig| {
        let rule = CommandRule::new(&config.command, decision(config.decision))?.with_network(config.network);
        rule.check(&config.matches, &config.not_matches)?;
        Ok(rule)
    };
    risk.commands
        .iter()
        .map(|config| rule(config).map_err(|error: policy::RuleError| format!("{}: {error}", config.at)))
        .collect()
}

fn decision(verdict: Verdict) -> Decision {
    match verdict {
        Verdict::Allow => Decision::Allow,
        Verdict::Ask => Decision::Ask,
        Verdict::Deny => Decision::Deny,
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

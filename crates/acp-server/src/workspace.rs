//! The directories of a session and the texts that lie in them. Everything here blocks and runs on blocking threads.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use zeroclaw_acp_protocol::{
    ErrorKind,
    params::{SystemPrompt, SystemPromptMode},
};
use zeroclaw_policy::{Root, RootKind, Roots, Ruleset};
use zeroclaw_runtime::{
    jail::Jail,
    turn::{SystemParts, ToolSet, system_prompt},
};

use crate::{agents::AgentEntry, error::CallError};

/// Further directories of one session, at most.
const MAX_DIRECTORIES: usize = 64;

/// Files of the agent's workspace that become part of its system prompt, in this order.
const AGENT_FILES: &[&str] = &["IDENTITY.md", "SOUL.md", "USER.md", "AGENTS.md", "TOOLS.md", "MEMORY.md"];

/// Bytes of such a file that are read, at most.
const MAX_FILE: u64 = 64 * 1024;

/// What a session's directories are made from.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) cwd: Option<String>,
    pub(crate) additional: Vec<String>,
    /// The directory of the configuration file: naming it means "no directory in particular".
    pub(crate) install_root: PathBuf,
    /// The only directories that a client may name, with those below them; empty for any.
    pub(crate) allowed: Vec<PathBuf>,
    /// What relative paths start at.
    pub(crate) process_dir: PathBuf,
}

/// A session's directories, opened.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    pub(crate) cwd: PathBuf,
    pub(crate) additional: Vec<PathBuf>,
    pub(crate) jail: Arc<Jail>,
}

impl Workspace {
    /// Resolves and opens the directories. Blocking.
    pub(crate) fn open(request: &Request, entry: &AgentEntry) -> Result<Self, CallError> {
        // Before anything is opened: a session whose commands cannot be confined as the operator wants is none.
        entry.settings.sandbox.check().map_err(|error| CallError::new(ErrorKind::Internal, error.to_string()))?;
        let cwd = match request.cwd.as_deref() {
            None | Some(".") => None,
            Some(text) => {
                let path = directory(&request.process_dir, text)?;
                let placeholder = request.install_root.canonicalize().is_ok_and(|root| root == path);
                if placeholder {
                    None
                } else {
                    may_open(request, entry, &path)?;
                    Some(path)
                }
            }
        };
        if request.additional.len() > MAX_DIRECTORIES {
            return Err(CallError::params(format!("more than {MAX_DIRECTORIES} additional directories")));
        }
        let mut additional = Vec::with_capacity(request.additional.len());
        for text in &request.additional {
            if !Path::new(text).is_absolute() {
                return Err(CallError::params("additional directories must be absolute paths"));
            }
            let path = directory(&request.process_dir, text)?;
            may_open(request, entry, &path)?;
            additional.push(path);
        }
        let own = agent_workspace(&entry.workspace).inspect_err(|error| {
            tracing::warn!(%error, agent = %entry.alias, "the agent's workspace cannot be opened");
        });
        let cwd = match (cwd, &own) {
            (Some(cwd), _) => cwd,
            (None, Ok(own)) => own.clone(),
            (None, Err(_)) => {
                let message = "the agent's workspace cannot be opened";
                return Err(CallError::new(ErrorKind::Internal, message));
            }
        };
        let mut roots = vec![Root::new(cwd.clone(), RootKind::Session)];
        roots.extend(additional.iter().map(|path| Root::new(path.clone(), RootKind::Additional)));
        // On a read-only disk it cannot be made; a session that has a directory of its own works without.
        roots.extend(own.ok().map(|own| Root::new(own, RootKind::Agent)));
        for root in &entry.extra_roots {
            // A directory of the configuration that is not there now opens nothing.
            if let Ok(path) = root.path().canonicalize()
                && path.is_dir()
            {
                roots.push(Root::new(path, root.kind()));
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        roots.retain(|root| seen.insert(root.path().to_path_buf()));
        let jail = Jail::open(roots).map_err(|_| CallError::params("a directory of the session cannot be opened"))?;
        Ok(Self { cwd, additional, jail: Arc::new(jail) })
    }

    /// Writes the system prompt from what lies in the directories now. Blocking.
    pub(crate) fn system_prompt(
        &self,
        entry: &AgentEntry,
        rules: &Ruleset,
        tools: &ToolSet,
        client: Option<&SystemPrompt>,
    ) -> String {
        let agent_root = entry.workspace.canonicalize().unwrap_or_else(|_| entry.workspace.clone());
        let agent_files = AGENT_FILES
            .iter()
            .filter_map(|name| {
                let text = self.read(entry, &agent_root.join(name))?;
                Some(((*name).to_owned(), text))
            })
            .collect();
        let own_project = self.cwd == agent_root;
        let project = if own_project { None } else { self.read(entry, &self.cwd.join("AGENTS.md")) };
        system_prompt(SystemParts {
            agent_files,
            project_instructions: project,
            workspace: &self.cwd,
            roots: self.jail.roots(),
            rules,
            tools: &tools.specs_without(&entry.rules.excluded_tools),
            replacement: client.filter(|prompt| prompt.mode == SystemPromptMode::Override).map(|prompt| &*prompt.text),
            extra: client.filter(|prompt| prompt.mode == SystemPromptMode::Append).map(|prompt| &*prompt.text),
        })
    }

    /// Reads a small text through the jail: a link in a repository must not put a foreign file into the prompt.
    fn read(&self, entry: &AgentEntry, path: &Path) -> Option<String> {
        let located = self.jail.roots().locate(path.to_str()?).ok()?;
        let bytes = self.jail.files(&entry.rules).read_bounded(&located, MAX_FILE).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Canonicalises a directory that a client named. The error names no path: what exists is not the client's business.
fn directory(base: &Path, text: &str) -> Result<PathBuf, CallError> {
    if text.is_empty() || text.contains('\0') {
        return Err(CallError::params("the directory's path is empty or contains a NUL byte"));
    }
    let path = base.join(text).canonicalize();
    let path = path.ok().filter(|path| path.is_dir());
    let path = path.ok_or_else(|| CallError::params("the directory does not exist"))?;
    // The wire is UTF-8, and so is the store.
    if path.to_str().is_none() {
        return Err(CallError::params("the directory's real name is not UTF-8"));
    }
    Ok(path)
}

/// Whether a client may name this canonical directory. The error does not say which rule was in the way.
fn may_open(request: &Request, entry: &AgentEntry, path: &Path) -> Result<(), CallError> {
    let real = |path: &Path| path.canonicalize().ok();
    let roots = Roots::new(vec![Root::new(path.to_owned(), RootKind::Session)]);
    let forbidden = entry.rules.forbidden(&roots).with_real(real).holds(path);
    let allowed = |root: &PathBuf| real(root).is_some_and(|root| path.starts_with(root));
    // The agent's own directory is the operator's choice, not the client's.
    let own = real(&entry.workspace).is_some_and(|own| own == path);
    if !own && (forbidden || (!request.allowed.is_empty() && !request.allowed.iter().any(allowed))) {
        return Err(CallError::params("sessions may not be opened in this directory"));
    }
    Ok(())
}

/// Makes the agent's own directory if need be and canonicalises it.
fn agent_workspace(path: &Path) -> io::Result<PathBuf> {
    if !path.is_dir() {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)?;
    }
    path.canonicalize()
}

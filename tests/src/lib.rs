//! What every end-to-end test starts from: the built binaries, an empty home, a project directory and a configuration.
//! It refuses to build anything: `cargo test --workspace` has built the binaries before a test runs.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test harness aborts loudly")]

pub mod replay;

#[cfg(unix)]
mod lifeline;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use zeroclaw_testkit::process::{AgentProcess, Direction, hermetic};

#[cfg(unix)]
pub use lifeline::Lifeline;

/// The built binary with this name, beside the running test.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let target = test.parent().and_then(Path::parent).expect("target/<profile>/deps");
    let path = target.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{} is not built: run `cargo test --workspace`, or `cargo build` first", path.display());
    path
}

/// An empty machine for one test: a home, a configuration directory in it, and a project.
#[derive(Debug)]
pub struct Lab {
    root: TempDir,
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

impl Lab {
    /// An empty home without any configuration, and an empty project.
    #[must_use]
    pub fn new() -> Self {
        let root = TempDir::new().expect("a temporary directory");
        fs::create_dir(root.path().join("home")).unwrap();
        fs::create_dir(root.path().join("project")).unwrap();
        Self { root }
    }

    /// The same with this `config.toml`.
    #[must_use]
    pub fn with_config(toml: &str) -> Self {
        let lab = Self::new();
        lab.write_config(toml);
        lab
    }

    /// One agent `main` whose model replays these script lines (see `docs/scripted-model.md`), at this level.
    #[must_use]
    pub fn scripted(level: &str, lines: &[Value]) -> Self {
        let lab = Self::new();
        let script = lab.root.path().join("script.jsonl");
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&script, text).unwrap();
        lab.write_config(&format!(
            "[providers.models.scripted.test]\nscript = \"{}\"\n[agents.main]\nmodel_provider = \"scripted.test\"\n\
             [risk_profiles.default]\nlevel = \"{level}\"\n",
            script.display()
        ));
        lab
    }

    /// One agent `main` on an OpenAI-compatible server at `uri`, at this level.
    #[must_use]
    pub fn custom(level: &str, uri: &str) -> Self {
        Self::with_config(&format!(
            "[providers.models.custom.test]\nmodel = \"test-model\"\nuri = \"{uri}\"\napi_key = \"sk-test\"\n\
             [agents.main]\nmodel_provider = \"custom.test\"\n[risk_profiles.default]\nlevel = \"{level}\"\n"
        ))
    }

    /// Replaces `config.toml`.
    pub fn write_config(&self, toml: &str) {
        fs::create_dir_all(self.config_dir()).unwrap();
        fs::write(self.config_dir().join("config.toml"), toml).unwrap();
    }

    /// The home directory.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("home")
    }

    /// The configuration directory; it exists only when something made it.
    #[must_use]
    pub fn config_dir(&self) -> PathBuf {
        self.home().join(".zeroclaw")
    }

    /// The session database; it exists only when something made it.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.config_dir().join("data/sessions/acp-sessions.db")
    }

    /// The project directory, canonical.
    #[must_use]
    pub fn project(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("project")
    }

    /// Writes a file of the project.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A command of a built binary with this lab's home and a cleared environment.
    #[must_use]
    pub fn command(&self, name: &str) -> Command {
        let mut command = hermetic(&binary(name), &self.home());
        command.current_dir(self.root.path());
        command
    }

    /// Starts `zeroclaw-acp`.
    #[must_use]
    pub fn start(&self) -> AgentProcess {
        AgentProcess::spawn(self.command("zeroclaw-acp"))
    }

    /// Starts `zeroclaw-acp` with these variables in its environment.
    #[must_use]
    pub fn start_with(&self, variables: &[(&str, &str)]) -> AgentProcess {
        let mut command = self.command("zeroclaw-acp");
        command.envs(variables.iter().copied());
        AgentProcess::spawn(command)
    }

    /// Starts `zeroclaw-acp` and initializes it.
    pub async fn agent(&self) -> AgentProcess {
        let mut agent = self.start();
        initialize(&mut agent).await;
        agent
    }

    /// Starts `zeroclaw-acp`, initializes it and opens a session in the project.
    pub async fn session(&self) -> (AgentProcess, String) {
        let mut agent = self.agent().await;
        let id = new_session(&mut agent, &self.project()).await;
        (agent, id)
    }
}

/// Initializes an agent as a plain client and returns the result.
pub async fn initialize(agent: &mut AgentProcess) -> Value {
    let params =
        json!({"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": false}}});
    agent.call("initialize", params).await.expect("initialize")
}

/// Opens a session and returns its id.
pub async fn new_session(agent: &mut AgentProcess, cwd: &Path) -> String {
    let result = agent.call("session/new", json!({"cwd": cwd, "mcpServers": []})).await.expect("session/new");
    result["sessionId"].as_str().expect("a session id").to_owned()
}

/// The parameters of a text prompt.
#[must_use]
pub fn text_prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// Sends a text prompt and returns its result.
pub async fn prompt(agent: &mut AgentProcess, session: &str, text: &str) -> Value {
    agent
        .call("session/prompt", text_prompt(session, text))
        .await
        .unwrap_or_else(|error| panic!("session/prompt: {error}"))
}

/// The `update` objects of one kind among these messages.
#[must_use]
pub fn updates_of(messages: &[Value], kind: &str) -> Vec<Value> {
    messages
        .iter()
        .map(|message| &message["params"]["update"])
        .filter(|update| update["sessionUpdate"] == kind)
        .cloned()
        .collect()
}

/// The text of all agent message chunks among these messages.
#[must_use]
pub fn answer_text(messages: &[Value]) -> String {
    updates_of(messages, "agent_message_chunk").iter().filter_map(|update| update["content"]["text"].as_str()).collect()
}

/// Sends a line as it is and returns the next response, whatever its id; what came before it is passed over.
pub async fn exchange(agent: &mut AgentProcess, line: &str) -> Value {
    agent.send(line).await;
    next_response(agent).await
}

/// The next response, whatever its id; what came before it is passed over.
pub async fn next_response(agent: &mut AgentProcess) -> Value {
    let mut messages = agent.recv_until(|message| message.get("method").is_none()).await;
    messages.pop().expect("`recv_until` ends with what it waited for")
}

/// The text of the line that was received last.
#[must_use]
pub fn last_line(agent: &AgentProcess) -> String {
    let mut received = agent.transcript().iter().filter(|entry| entry.direction == Direction::Received);
    received.next_back().expect("something was received").line.clone()
}

/// The texts of the user's messages in an OpenAI request body.
#[must_use]
pub fn user_texts(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().expect("a request has messages");
    let users = messages.iter().filter(|message| message["role"] == "user");
    users.map(|message| content_text(&message["content"])).collect()
}

/// The text of a message's content, which is a string or a list of parts.
#[must_use]
pub fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

/// Checks the answer to a load or resume: what can be chosen, and nothing else.
///
/// # Panics
/// When it is anything else.
pub fn assert_welcome(result: &Value) {
    let keys: Vec<&str> = result.as_object().expect("an object").keys().map(String::as_str).collect();
    assert!(keys.len() == 2 && result["modes"].is_object() && result["configOptions"].is_array(), "{result}");
}

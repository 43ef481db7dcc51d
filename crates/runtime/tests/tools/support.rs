//! A session's directory with something outside of it, and a client that answers what a test says.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use zeroclaw_policy::{Judgement, Level, Root, RootKind, RootedPath, Ruleset, judge};
use zeroclaw_runtime::{
    client::ClientMeans,
    jail::Jail,
    sandbox::{Backend, Confiner, Limits, SandboxSettings, layout},
    tool::{
        CallView, Launcher, PlanEntry, PreparedCall, Progress, Tool, ToolContent, ToolContext, ToolFailure,
        ToolOutcome, ToolSettings, standard_tools,
    },
    turn::{Answer, Asker},
};

/// The launcher that is built with the tests: `cargo test` builds examples, but not if it is told to build one test only.
pub(crate) fn launcher() -> Launcher {
    let test = std::env::current_exe().expect("the test's own path");
    let target = test.parent().and_then(Path::parent).expect("target/<profile>/deps");
    let program = target.join("examples").join("launcher");
    assert!(program.exists(), "{} is not built: run `cargo build -p zeroclaw-runtime --examples`", program.display());
    Launcher { program, argument: "launch".to_owned() }
}

/// A question as the client saw it.
pub(crate) type Asked = (String, String, Vec<String>);

/// Answers every question alike and remembers it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) answer: Mutex<Option<Answer>>,
    pub(crate) asked: Mutex<Vec<Asked>>,
}

#[async_trait]
impl Asker for Client {
    async fn ask(&self, call_id: &str, question: &str, choices: &[String]) -> Answer {
        self.asked.lock().expect("lock").push((call_id.to_owned(), question.to_owned(), choices.to_vec()));
        let answer = self.answer.lock().expect("lock").clone();
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

/// What a running call reported.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    pub(crate) output: Mutex<String>,
    pub(crate) terminals: Mutex<Vec<String>>,
    pub(crate) plans: Mutex<Vec<Vec<PlanEntry>>>,
    pub(crate) messages: Mutex<Vec<String>>,
    pub(crate) grown: tokio::sync::Notify,
}

impl Reports {
    pub(crate) async fn wait_for(&self, text: &str) {
        loop {
            let grown = self.grown.notified();
            if self.output.lock().expect("lock").contains(text) {
                return;
            }
            grown.await;
        }
    }
}

impl Progress for Reports {
    fn output(&self, text: &str) {
        self.output.lock().expect("lock").push_str(text);
        self.grown.notify_one();
    }

    fn status(&self, text: &str) {
        self.output(text);
    }

    fn terminal(&self, id: &str) {
        self.terminals.lock().expect("lock").push(id.to_owned());
    }

    fn plan(&self, entries: &[PlanEntry]) {
        self.plans.lock().expect("lock").push(entries.to_vec());
    }

    fn message(&self, text: &str) {
        self.messages.lock().expect("lock").push(text.to_owned());
    }
}

/// A working directory, a place outside of it, and the tools.
pub(crate) struct Bench {
    _dir: tempfile::TempDir,
    pub(crate) inside: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) context: ToolContext,
    pub(crate) client: Arc<Client>,
    pub(crate) reports: Reports,
    tools: Vec<Arc<dyn Tool>>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|_, _| {})
    }

    /// A bench whose commands are started by a launcher.
    pub(crate) fn launched() -> Self {
        let mut bench = Self::new();
        bench.settings(|settings| settings.launcher = Some(launcher()));
        bench
    }

    /// A bench whose commands run in this system's sandbox, as they do by default.
    pub(crate) fn confined(arrange: impl FnOnce(&Path, &mut (Vec<Root>, Ruleset))) -> Self {
        let mut bench = Self::with(arrange);
        bench.settings(|settings| settings.launcher = Some(launcher()));
        bench.sandbox(|_| {});
        bench
    }

    /// Changes the sandbox of a confined bench.
    pub(crate) fn sandbox(&mut self, change: impl FnOnce(&mut SandboxSettings)) {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let names = ["PATH", "CARGO_HOME", "RUSTUP_HOME"];
        let env: Vec<_> =
            names.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
        let mut sandbox = SandboxSettings {
            backend: Backend::Landlock,
            readable: layout::readable(home.as_deref(), &env),
            writable: Vec::new(),
            hidden: layout::hidden(home.as_deref(), &env),
            caches: layout::caches(home.as_deref()),
            local_sockets: false,
            limits: Limits::default(),
            temporary: self.outside.parent().expect("base").to_owned(),
        };
        change(&mut sandbox);
        self.settings(|settings| settings.sandbox = Arc::new(Confiner::new(sandbox)));
    }

    /// A bench whose rules and further roots a test arranges before the roots are opened.
    pub(crate) fn with(arrange: impl FnOnce(&Path, &mut (Vec<Root>, Ruleset))) -> Self {
        Self::at(tempfile::tempdir().expect("temporary directory"), arrange)
    }

    /// A bench for very many writes: in memory where the system has such a place, because each write is synchronised.
    pub(crate) fn in_memory() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("temporary directory");
        Self::at(dir, |_, _| {})
    }

    fn at(dir: tempfile::TempDir, arrange: impl FnOnce(&Path, &mut (Vec<Root>, Ruleset))) -> Self {
        let base = dir.path().canonicalize().expect("canonical");
        let (inside, outside) = (base.join("ws"), base.join("out"));
        fs::create_dir(&inside).expect("ws");
        fs::create_dir(&outside).expect("out");
        fs::write(outside.join("secret"), "do not touch").expect("secret");
        let mut set = (vec![Root::new(inside.clone(), RootKind::Session)], Ruleset::new(Level::Full));
        arrange(&inside, &mut set);
        let (roots, rules) = set;
        let client = Arc::new(Client { answer: Mutex::new(None), asked: Mutex::default() });
        let settings = ToolSettings {
            shell_timeout: Duration::from_secs(60),
            shell_env: vec![("PATH".to_owned(), std::env::var("PATH").expect("PATH"))],
            max_output_bytes: 64 * 1024,
            launcher: None,
            sandbox: Arc::new(Confiner::unconfined()),
        };
        let context = ToolContext {
            jail: Arc::new(Jail::open(roots).expect("roots open")),
            rules: Arc::new(rules),
            settings: Arc::new(settings),
            client: ClientMeans::default(),
            asker: client.clone(),
            call_id: "call-1".into(),
            cancel: CancellationToken::new(),
        };
        let tools = standard_tools();
        Self { _dir: dir, inside, outside, context, client, reports: Reports::default(), tools }
    }

    pub(crate) fn settings(&mut self, change: impl FnOnce(&mut ToolSettings)) {
        let mut settings = (*self.context.settings).clone();
        change(&mut settings);
        self.context.settings = Arc::new(settings);
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.inside.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        fs::write(&path, content).expect("file");
        path
    }

    pub(crate) fn locate(&self, path: &str) -> RootedPath {
        self.context.jail.roots().locate(path).expect("inside")
    }

    pub(crate) async fn prepare(&self, tool: &str, arguments: Value) -> Result<Box<dyn PreparedCall>, ToolFailure> {
        let tool = self.tools.iter().find(|t| t.spec().name == tool).expect("a known tool");
        tool.prepare(&arguments, &self.context).await
    }

    pub(crate) async fn view(&self, tool: &str, arguments: Value) -> CallView {
        self.prepare(tool, arguments).await.map(|call| call.view()).expect("prepared")
    }

    /// Judges and runs a prepared call; a refusal is a failure with its text.
    pub(crate) async fn finish(&self, tool: &str, call: Box<dyn PreparedCall>) -> Result<ToolOutcome, ToolFailure> {
        let permit = match judge(&self.context.rules, self.context.jail.roots(), tool, call.action()) {
            Judgement::Granted(permit) => permit,
            Judgement::Pending(pending) => pending.approve(),
            Judgement::Refused(refusal) => return Err(ToolFailure::Failed(refusal.text())),
        };
        call.run(permit, &self.context, &self.reports).await
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<ToolOutcome, ToolFailure> {
        let call = self.prepare(tool, arguments).await?;
        self.finish(tool, call).await
    }

    pub(crate) async fn text(&self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).await.expect("the call works").model_text
    }

    pub(crate) async fn failure(&self, tool: &str, arguments: Value) -> String {
        self.call(tool, arguments).await.expect_err("the call fails").to_string()
    }

    pub(crate) fn secret_is_safe(&self) {
        let names: Vec<_> = fs::read_dir(&self.outside).expect("out").map(|e| e.expect("entry").file_name()).collect();
        assert_eq!(names, ["secret"], "nothing is made outside");
        assert_eq!(fs::read_to_string(self.outside.join("secret")).expect("secret"), "do not touch");
    }
}

pub(crate) fn shown_text(content: &[ToolContent]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|content| match content {
            ToolContent::Text(text) => Some(text.as_str()),
            ToolContent::Diff { .. } | ToolContent::Terminal { .. } | ToolContent::Attachment { .. } => None,
        })
        .collect();
    texts.join("\n")
}

/// Makes a named pipe.
pub(crate) fn fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo runs");
    assert!(made.success());
}

//! Programs of others as the client of the built binary: the official TypeScript and Python SDKs, the headless client acpx,
//! and acplint. They come from `tests/clients/install.sh`; without them these tests say so and pass, unless
//! `ZEROCLAW_REQUIRE_CLIENTS=1`, as in CI. What each driver asserts stands in the driver.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::Once,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Command;
use zeroclaw_e2e::{Lab, Lifeline, answer_text, binary, updates_of};
use zeroclaw_testkit::process::hermetic;

#[cfg(unix)]
use crate::daemon::Daemon;

/// Bounds only runs that have failed: the slowest takes a few seconds.
const LIMIT: Duration = Duration::from_secs(180);

/// Where the installer puts everything.
struct Installed {
    folder: PathBuf,
}

impl Installed {
    /// Nothing when the clients are not there, or are of other versions than the lock files say.
    fn find() -> Option<Self> {
        static SAID: Once = Once::new();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let locks = ["python/requirements.txt", "typescript/package-lock.json", "acpx/package-lock.json"];
        let wanted = locks.map(|lock| fs::read_to_string(folder.join(lock)).unwrap().trim_end().to_owned());
        let found = fs::read_to_string(folder.join("python/venv/installed")).unwrap_or_default();
        if found == wanted.join("\n") {
            return Some(Self { folder });
        }
        let how = "the clients are not installed, or not in these versions: run tests/clients/install.sh";
        assert!(std::env::var_os("ZEROCLAW_REQUIRE_CLIENTS").is_none_or(|value| value != "1"), "{how}");
        // The harness hides what a passing test prints with the macros; this line is there to be read.
        SAID.call_once(|| {
            writeln!(std::io::stderr(), "NOT TESTED with the SDKs, acpx and acplint: {how}").unwrap();
        });
        None
    }

    /// A program of the installation, with this lab's home, started in its project.
    fn command(&self, lab: &Lab, program: &str) -> Command {
        let mut command = hermetic(&self.folder.join("python/venv/bin").join(program), &lab.home());
        command.current_dir(lab.project()).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// acpx, which starts the built agent.
    fn acpx(&self, lab: &Lab) -> Command {
        let mut command = self.command(lab, "node");
        command.arg(self.folder.join("acpx/node_modules/acpx/dist/cli.js"));
        // The process that keeps a session alive between two commands ends by itself, also when a test fails.
        command.args(["--ttl", "60", "--agent"]).arg(binary("zeroclaw-acp"));
        command
    }
}

async fn output(mut command: Command) -> Output {
    let run = tokio::time::timeout(LIMIT, command.output()).await;
    run.unwrap_or_else(|_| panic!("{command:?} does not end")).expect("it can be started")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// The exit code of acpx with these arguments, and what it wrote.
async fn acpx(installed: &Installed, lab: &Lab, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = installed.acpx(lab);
    command.args(arguments);
    let output = output(command).await;
    (output.status.code(), stdout(&output))
}

/// The messages that `acpx --format json` shows, in both directions.
fn messages(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn stop_reasons(messages: &[Value]) -> Vec<&str> {
    messages.iter().filter_map(|message| message["result"]["stopReason"].as_str()).collect()
}

/// A lab with a file that is not compressible and no text, so that nothing but the very bytes will do.
fn lab_with_bytes() -> Lab {
    let lab = Lab::new();
    let bytes: Vec<u8> = (0_u32..1 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    lab.file("big.bin", bytes);
    lab
}

/// Runs a driver for a whole life of a session with an agent that it starts.
async fn whole_life(installed: &Installed, program: &str, driver: &str) {
    let lab = lab_with_bytes();
    let mut command = installed.command(&lab, program);
    command.arg(installed.folder.join(driver)).arg(binary("zeroclaw-acp")).arg(lab.project());
    life_of(command, driver).await;
}

/// Runs a driver for a whole life of a session, and checks the sums that it prints.
async fn life_of(command: Command, driver: &str) {
    let output = output(command).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{driver}: {}\n{errors}", output.status);
    // An update that does not fit its types is one that the SDK reports there and drops.
    assert_eq!(errors, "", "{driver}");
    let summary: Value = serde_json::from_str(&stdout(&output)).expect("one line of JSON");
    assert_eq!((&summary["prompts"], &summary["permissions"]), (&json!(9), &json!(3)), "{summary}");
    let seen = summary["live"].as_u64().expect("a number");
    assert!(seen > 20_000, "{summary}");
}

/// Runs the TypeScript driver against a gateway.
#[cfg(unix)]
async fn life_over(scheme: &str) {
    let Some(installed) = Installed::find() else { return };
    let lab = lab_with_bytes();
    let daemon = Daemon::start(&lab, &[]).await;
    let mut command = installed.command(&lab, "node");
    command.env("ZEROCLAW_TOKEN", crate::daemon::token(&lab, "sdk").await);
    command.arg(installed.folder.join("typescript/driver.ts"));
    command.arg(format!("{scheme}://{}/acp", daemon.address)).arg(lab.project());
    life_of(command, scheme).await;
}

/// Each editor has its own reading of the protocol in types; what one library took, the next refused.
#[tokio::test]
async fn client_01_the_typescript_sdk_gets_through_a_whole_life() {
    let Some(installed) = Installed::find() else { return };
    whole_life(&installed, "node", "typescript/driver.ts").await;
}

/// A driver that does not fit the SDK's types would prove nothing about clients that do.
#[tokio::test]
async fn client_02_the_typescript_driver_fits_the_types_of_the_sdk() {
    let Some(installed) = Installed::find() else { return };
    let lab = Lab::new();
    let folder = installed.folder.join("typescript");
    let mut command = installed.command(&lab, "node");
    command.arg(folder.join("node_modules/typescript/lib/tsc.js")).arg("--project").arg(&folder);
    let output = output(command).await;
    assert!(output.status.success(), "{}", stdout(&output));
}

#[tokio::test]
async fn client_03_the_python_sdk_gets_through_a_whole_life() {
    let Some(installed) = Installed::find() else { return };
    whole_life(&installed, "python", "python/driver.py").await;
}

/// A script that drives an agent has nothing but the exit code: a refused command looked like one that had run.
#[tokio::test]
async fn client_04_acpx_allows_denies_and_says_so_in_its_exit_code() {
    let Some(installed) = Installed::find() else { return };
    let lab = Lab::new();
    let (code, text) = acpx(&installed, &lab, &["--format", "quiet", "exec", "/say 5"]).await;
    assert_eq!((code, text.as_str()), (Some(0), "chunk 1 chunk 2 chunk 3 chunk 4 chunk 5 \n"));

    lab.file("notes.txt", "remember the milk\n");
    let (code, text) = acpx(&installed, &lab, &["--approve-reads", "exec", "/read notes.txt"]).await;
    assert_eq!(code, Some(0), "the agent reads through the client, which lets it");
    assert!(text.contains("remember the milk"), "{text}");

    let made = lab.project().join("made.txt");
    let run = "/run touch made.txt";
    for refusing in [
        ["--deny-all", "exec", run].as_slice(),
        &["--approve-reads", "exec", run],
        &["--non-interactive-permissions", "fail", "exec", run],
    ] {
        let (code, text) = acpx(&installed, &lab, refusing).await;
        assert_eq!(code, Some(5), "{refusing:?}: {text}");
        assert!(text.contains("(failed)") && text.contains("[done] end_turn"), "{refusing:?}: {text}");
        assert!(!made.exists(), "{refusing:?}");
    }
    let (code, text) = acpx(&installed, &lab, &["--approve-all", "exec", run]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("(completed)") && made.exists(), "{text}");
}

/// The permission, the tool and the answer of a model, not of the built-in commands; and its failure.
#[tokio::test]
async fn client_05_acpx_with_a_scripted_model() {
    let Some(installed) = Installed::find() else { return };
    let script = [
        json!({"type": "thought", "text": "I should make it."}),
        json!({"type": "tool_call", "name": "file_write", "arguments": {"path": "new.txt", "content": "made by a model\n"}}),
        json!({"type": "usage", "input": 100, "output": 20}),
        json!({"type": "stop"}),
        json!({"type": "text", "text": "It is made."}),
        json!({"type": "stop"}),
    ];
    let lab = Lab::scripted("supervised", &script);
    let (code, text) = acpx(&installed, &lab, &["--approve-all", "--format", "json", "exec", "make it"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(fs::read_to_string(lab.project().join("new.txt")).unwrap(), "made by a model\n");
    let shown = messages(&text);
    assert_eq!(stop_reasons(&shown), ["end_turn"]);
    let asked: Vec<_> = shown.iter().filter(|message| message["method"] == "session/request_permission").collect();
    assert_eq!(asked.len(), 1);
    let call = updates_of(&shown, "tool_call");
    assert_eq!(asked[0]["params"]["toolCall"]["toolCallId"], call[0]["toolCallId"]);
    assert_eq!(answer_text(&shown), "It is made.");

    let failing =
        Lab::scripted("supervised", &[json!({"type": "error", "kind": "request", "message": "no such luck"})]);
    let (code, text) = acpx(&installed, &failing, &["exec", "hello"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no such luck"), "{text}");
}

/// A saved session was a new one after the agent had died: the client never asked for it, or got another.
#[tokio::test]
async fn client_06_acpx_goes_on_with_a_session_whose_agent_was_killed() {
    let Some(installed) = Installed::find() else { return };
    let lab = Lab::new();
    let (code, text) = acpx(&installed, &lab, &["--format", "json", "sessions", "new"]).await;
    assert_eq!(code, Some(0), "{text}");
    let session = messages(&text)[0]["acpxSessionId"].as_str().expect("a session id").to_owned();
    let (code, text) = acpx(&installed, &lab, &["--format", "quiet", "/say 2"]).await;
    assert_eq!((code, text.as_str()), (Some(0), "chunk 1 chunk 2 \n"));

    let (_, text) = acpx(&installed, &lab, &["--format", "json", "sessions", "show"]).await;
    let record: Value = serde_json::from_str(&text).expect("a record");
    let pid = record["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).unwrap())).expect("a process id");
    kill_process(pid, Signal::KILL).unwrap();

    let (code, text) = acpx(&installed, &lab, &["--format", "json", "/say 3"]).await;
    assert_eq!(code, Some(0), "{text}");
    let shown = messages(&text);
    let resumed = shown.iter().find(|message| message["method"] == "session/resume").expect("it asks for the session");
    assert_eq!(resumed["params"]["sessionId"], session.as_str());
    assert_eq!(answer_text(&shown), "chunk 1 chunk 2 chunk 3 ");
    assert_eq!(stop_reasons(&shown), ["end_turn"]);

    let (code, text) = acpx(&installed, &lab, &["sessions", "list"]).await;
    assert_eq!(code, Some(0), "{text}");
    let listed: Vec<&str> = text.lines().flat_map(|line| line.split('\t').take(2)).collect();
    assert_eq!(listed, [session.as_str(), "/say 2"]);

    let (code, text) = acpx(&installed, &lab, &["set-mode", "readonly"]).await;
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = acpx(&installed, &lab, &["--approve-all", "--format", "quiet", "/run touch made.txt"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("changes files") && !lab.project().join("made.txt").exists(), "{text}");
    let (code, text) = acpx(&installed, &lab, &["sessions", "close"]).await;
    assert_eq!(code, Some(0), "{text}");
}

/// An interrupt at the terminal left the command running and the turn without an end.
#[tokio::test]
async fn client_07_an_interrupt_of_acpx_ends_the_turn_and_its_command() {
    let Some(installed) = Installed::find() else { return };
    let lab = Lab::new();
    let mut lifeline = Lifeline::new(&lab.project().join("lifeline"));
    let mut command = installed.acpx(&lab);
    command.args(["--approve-all", "--format", "json", "exec"]);
    command.arg(format!("/run {} sleep 3600", lifeline.held())).stdout(Stdio::piped());
    let child = command.spawn().expect("it can be started");
    lifeline.started().await;
    kill_process(Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap(), Signal::INT).unwrap();
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!(stop_reasons(&messages(&stdout(&output))), ["cancelled"]);
    assert_eq!(output.status.code(), Some(0), "for acpx a turn that answers the cancel in time has ended well");
    lifeline.gone().await;
}

/// The same from a second terminal, and the other ends that a script tells apart.
#[tokio::test]
async fn client_08_acpx_cancels_from_outside_and_gives_every_end_its_code() {
    let Some(installed) = Installed::find() else { return };
    let lab = Lab::new();
    let (code, text) = acpx(&installed, &lab, &["/say 1"]).await;
    assert_eq!(code, Some(4), "no session was made: {text}");
    let (code, text) = acpx(&installed, &lab, &["sessions", "new"]).await;
    assert_eq!(code, Some(0), "{text}");

    let mut lifeline = Lifeline::new(&lab.project().join("lifeline"));
    let mut command = installed.acpx(&lab);
    command.args(["--approve-all", "--format", "json"]);
    command.arg(format!("/run {} sleep 3600", lifeline.held()));
    let prompt = tokio::spawn(output(command));
    lifeline.started().await;
    let (code, text) = acpx(&installed, &lab, &["cancel"]).await;
    assert_eq!((code, text.trim()), (Some(0), "cancel requested"));
    let ended = prompt.await.unwrap();
    assert_eq!(stop_reasons(&messages(&stdout(&ended))), ["cancelled"]);
    assert_eq!(ended.status.code(), Some(0));
    lifeline.gone().await;

    let (code, text) = acpx(&installed, &lab, &["--format", "quiet", "/say 1"]).await;
    assert_eq!((code, text.as_str()), (Some(0), "chunk 1 \n"), "the session goes on after a cancel");
    let (code, text) = acpx(&installed, &lab, &["sessions", "close"]).await;
    assert_eq!(code, Some(0), "{text}");

    let (code, text) = acpx(&installed, &lab, &["--approve-all", "--timeout", "1", "exec", "/run sleep 3600"]).await;
    assert_eq!(code, Some(3), "{text}");
    let (code, text) = acpx(&installed, &lab, &["--model", "no-such-model", "exec", "/say 1"]).await;
    assert_eq!(code, Some(1), "{text}");
}

/// acplint's idea of the protocol is not the official one, so its verdict counts for nothing; but whatever it sends, the
/// agent answers each request and lives on. Left out are the kinds in which it only waits for requests of the agent.
#[tokio::test]
async fn client_09_acplint_neither_hangs_nor_breaks_the_agent() {
    let Some(installed) = Installed::find() else { return };
    let lab = Lab::new();
    let kinds = [
        "initialization",
        "authentication",
        "session_lifecycle",
        "streaming",
        "session_modes",
        "config_options",
        "cancel",
        "stress",
        "schema_validation",
    ];
    let mut command = installed.command(&lab, "acplint");
    command.arg("--agent").arg(binary("zeroclaw-acp")).arg("--cwd").arg(lab.project());
    command.args(["--output", "json", "--categories"]).args(kinds);
    let output = output(command).await;
    assert!(
        matches!(output.status.code(), Some(0..=2)),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_str(&stdout(&output)).expect("a report");
    let results = report["results"].as_array().expect("results");
    for kind in kinds {
        assert!(results.iter().any(|result| result["category"] == kind), "nothing of {kind} was tried");
    }
    for result in results {
        assert_ne!(result["status"], "ERROR", "{result}");
        assert!(!result["message"].as_str().unwrap_or_default().contains("timed out"), "{result}");
    }
}

/// A client elsewhere gets what an editor gets from a process of its own, or it is another product.
#[cfg(unix)]
#[tokio::test]
async fn client_10_the_typescript_sdk_gets_through_the_same_life_over_websocket() {
    life_over("ws").await;
}

/// The same without WebSocket: an answer on the wrong stream is one that the SDK waits for until it is ended.
#[cfg(unix)]
#[tokio::test]
async fn client_11_the_typescript_sdk_gets_through_the_same_life_over_http() {
    life_over("http").await;
}

/// A browser that can be driven; nothing, and a word about it, where there is none.
#[cfg(unix)]
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = ["chromium-headless-shell", "chromium", "chromium-browser"]
        .iter()
        .find_map(|name| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.exists()));
    if found.is_none() {
        let how = "there is no chromium: install Debian's chromium-headless-shell";
        assert!(std::env::var_os("ZEROCLAW_REQUIRE_BROWSER").is_none_or(|value| value != "1"), "{how}");
        writeln!(std::io::stderr(), "NOT TESTED with a browser: {how}").unwrap();
    }
    found
}

/// What a page of this origin met at a gateway that allows `http://app.example`, and how often it refused strangers.
#[cfg(unix)]
async fn page_of(origin: &str) -> Option<(Value, f64)> {
    let (installed, chromium) = (Installed::find()?, chromium()?);
    let lab = Lab::with_config("[gateway]\nallowed_origins = [\"http://app.example\"]\n");
    let daemon = Daemon::start(&lab, &[]).await;
    let token = crate::daemon::token(&lab, "page").await;
    let mut command = installed.command(&lab, "node");
    command.env("ZEROCLAW_TOKEN", &token);
    command.arg(installed.folder.join("typescript/browser.ts")).arg(chromium).arg(origin);
    command.arg(format!("http://{}/acp", daemon.address)).arg(lab.project());
    let output = output(command).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", output.status);
    let refused = crate::observed::metrics(&daemon, &token).await["zeroclaw_gateway_foreign_refused_total"];
    Some((serde_json::from_str(&stdout(&output)).expect("one line of JSON"), refused))
}

/// Any page that was open in a browser could drive an agent on the same machine: the same-origin policy does not cover
/// WebSockets. The page here even has a token.
#[cfg(unix)]
#[tokio::test]
async fn browser_01_a_page_of_another_origin_cannot_open_the_gateway_whatever_token_it_has() {
    let Some((met, refused)) = page_of("http://evil.example").await else { return };
    assert_eq!(met, json!({"origin": "http://evil.example", "websocket": "refused", "http": "refused"}));
    // It was this gateway that refused, and nothing on the way: once the WebSocket, once the question about HTTP.
    assert!(refused >= 1.0, "{refused}");
}

#[cfg(unix)]
#[tokio::test]
async fn browser_02_a_page_of_an_allowed_origin_runs_a_turn_over_websocket_and_over_http() {
    let Some((met, refused)) = page_of("http://app.example").await else { return };
    let said = "chunk 1 chunk 2 chunk 3 ";
    assert_eq!(met, json!({"origin": "http://app.example", "websocket": said, "http": said}));
    assert_eq!(refused, 0.0);
}

//! What a command costs: the same command confined, through the launcher alone, and spawned bare, in turn in one run.
//! The first two are whole turns of the built-in agent over its pipes, so what differs between them is the sandbox.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::agent::Agent;
use super::table::table;
use super::{Home, Limit, Programs, SandboxOptions, Target, judge, median, millis, ratio};
use crate::Verdict;

/// A confined command may cost this many times the same turn without a sandbox: the rules of some hundred files and
/// directories are made for each.
const MAX_RATIO: f64 = 3.0;

/// The command; it does nothing, so that starting it is what is measured.
const COMMAND: &str = "true";

pub(super) fn run(programs: &Programs, options: &SandboxOptions) -> Result<Verdict> {
    ensure!(options.runs > 0, "--runs wants at least 1");
    let mut confined = Commands::start(programs, "auto")?;
    let mut free = Commands::start(programs, "none")?;
    let mut times: [Vec<Duration>; 3] = Default::default();
    for run in 0..=options.runs {
        let took = [confined.run()?, free.run()?, bare()?];
        // The first run looks for the sandbox and makes the temporary directory.
        if run > 0 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
        }
    }
    confined.agent.finish()?;
    free.agent.finish()?;
    let [confined, free, bare] = times.map(|times| median(&times));
    let row = |name: &str, time: Duration| {
        vec![name.to_owned(), millis(time), format!("{:.2}", ratio(time, free)), format!("{:.2}", ratio(time, bare))]
    };
    println!("`{COMMAND}` {} times, medians", options.runs);
    let rows = [
        row("a turn with the command, confined", confined),
        row("a turn with the command, backend `none`", free),
        row("the command spawned bare", bare),
    ];
    print!("{}", table(&["what", "time", "to none", "to bare"], &rows));
    let targets =
        [Target { what: "confined to not confined", value: ratio(confined, free), limit: Limit::Below(MAX_RATIO) }];
    Ok(judge(&targets, options.check))
}

/// An agent that runs commands without asking.
struct Commands {
    agent: Agent,
    session: String,
    _home: Home,
}

impl Commands {
    fn start(programs: &Programs, backend: &str) -> Result<Self> {
        let home = Home::new(&format!("sandbox-{backend}"))?;
        home.write("config.toml", &format!("[autonomy]\nlevel = \"full\"\n\n[sandbox]\nbackend = \"{backend}\"\n"))?;
        let arguments = [OsString::from("--config-dir"), home.path.clone().into_os_string()];
        let mut agent = Agent::spawn(&programs.path("zeroclaw-acp")?, arguments, &home.path)?;
        let session = agent.open_session(&home.project())?;
        Ok(Self { agent, session, _home: home })
    }

    fn run(&mut self) -> Result<Duration> {
        Ok(self.agent.prompt(&self.session, &format!("/run {COMMAND}"))?.took)
    }
}

fn bare() -> Result<Duration> {
    let began = Instant::now();
    let output = Command::new("/bin/sh").args(["-c", COMMAND]).stdin(Stdio::null()).output().context("no /bin/sh")?;
    ensure!(output.status.success(), "`{COMMAND}` failed");
    Ok(began.elapsed())
}

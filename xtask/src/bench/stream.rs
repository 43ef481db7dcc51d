//! Streaming: (a) a turn whose text comes from a script file, so that only the server's own path is measured, from
//! the model event to the line on the pipe, with the durable store; (b) the same number of chunks over loopback HTTP,
//! next to a bare reader of the same stream.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::agent::{Agent, Answer};
use super::table::table;
use super::{Home, Limit, Programs, StreamOptions, Target, judge, median, millis, quoted, ratio};
use crate::Verdict;

/// Updates a second through a whole turn, log included.
const MIN_RATE: f64 = 150_000.0;
/// A turn may cost as much as reading its stream three times.
const MAX_RATIO: f64 = 3.0;
/// Events of the HTTP stream that carry no text: the one that opens it and the two that close it.
const FRAME_EVENTS: usize = 3;

pub(super) fn run(programs: &Programs, options: &StreamOptions) -> Result<Verdict> {
    ensure!(options.runs > 0 && options.chunks > 0, "--runs and --chunks want at least 1");
    let scripted = scripted_turns(programs, options)?;
    let flushed = http_turns(programs, options, Writes::Flushed)?;
    let gathered = http_turns(programs, options, Writes::Gathered)?;

    let row = |name: &str, time: Duration, ratio: Option<f64>| {
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        vec![name.to_owned(), millis(time), format!("{:.0}", rate(options.chunks, time)), ratio]
    };
    let scripted_time = median(&scripted);
    let rows = [
        row("scripted model: zeroclaw-acp", scripted_time, None),
        row("HTTP, each event flushed: zeroclaw-acp", median(&flushed.ours), Some(flushed.ratio())),
        row("HTTP, each event flushed: bench-reader", median(&flushed.floor), Some(1.0)),
        row("HTTP, events gathered: zeroclaw-acp", median(&gathered.ours), Some(gathered.ratio())),
        row("HTTP, events gathered: bench-reader", median(&gathered.floor), Some(1.0)),
    ];
    println!("{} chunks in one turn, median of {}", options.chunks, options.runs);
    print!("{}", table(&["path", "turn", "chunks/s", "ratio"], &rows));

    let targets = [
        Target { what: "updates a second", value: rate(options.chunks, scripted_time), limit: Limit::Above(MIN_RATE) },
        Target { what: "HTTP ratio, each event flushed", value: flushed.ratio(), limit: Limit::Below(MAX_RATIO) },
    ];
    Ok(judge(&targets, options.check))
}

fn rate(chunks: usize, time: Duration) -> f64 {
    // The number of chunks is typed by hand and far below where the conversion loses anything.
    f64::from(u32::try_from(chunks).unwrap_or(u32::MAX)) / time.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// (a): the turns of a scripted model.
fn scripted_turns(programs: &Programs, options: &StreamOptions) -> Result<Vec<Duration>> {
    let home = Home::new("script")?;
    let script = home.write("script.jsonl", &script(options.chunks))?;
    home.write(
        "config.toml",
        &format!(
            "[providers.models.scripted.bench]\nscript = {}\n\n[agents.main]\nmodel_provider = \"scripted.bench\"\n",
            quoted(&script)
        ),
    )?;
    (0..options.runs).map(|_| Ok(turn(programs, &home, options.chunks)?.took)).collect()
}

/// A script of one turn, in JSON Lines.
pub(super) fn script(chunks: usize) -> String {
    let text = json!({"type": "text", "text": "word after word ", "repeat": chunks});
    let stop = json!({"type": "stop", "reason": "end"});
    format!("{text}\n{stop}\n")
}

/// How the model server writes its stream.
#[derive(Debug, Clone, Copy)]
enum Writes {
    /// Each event as soon as it is there, as a model does.
    Flushed,
    /// Many events at once, as a proxy in between may do: the reader then has almost nothing to do.
    Gathered,
}

/// Turns and bare readings of the same stream.
#[derive(Default)]
struct Pair {
    ours: Vec<Duration>,
    floor: Vec<Duration>,
}

impl Pair {
    fn ratio(&self) -> f64 {
        ratio(median(&self.ours), median(&self.floor))
    }
}

/// (b): turns over HTTP and bare readings of the same server, in turn.
fn http_turns(programs: &Programs, options: &StreamOptions, writes: Writes) -> Result<Pair> {
    let server = ModelServer::start(programs, options.chunks, writes)?;
    let home = Home::new("http")?;
    home.write(
        "config.toml",
        &format!(
            "[providers.models.custom.bench]\nuri = \"{}\"\nmodel = \"bench\"\napi_key = \"bench\"\n\n\
             [agents.main]\nmodel_provider = \"custom.bench\"\n",
            server.base
        ),
    )?;
    let mut pair = Pair::default();
    for _ in 0..options.runs {
        pair.ours.push(turn(programs, &home, options.chunks)?.took);
        pair.floor.push(read_bare(programs, &server, options.chunks)?);
    }
    Ok(pair)
}

/// One process, one session, one prompt; every chunk has to arrive as an update of its own.
fn turn(programs: &Programs, home: &Home, chunks: usize) -> Result<Answer> {
    let arguments = [OsString::from("--config-dir"), home.path.clone().into_os_string()];
    let mut agent = Agent::spawn(&programs.path("zeroclaw-acp")?, arguments, &home.path)?;
    let session = agent.open_session(&home.project())?;
    let answer = agent.prompt(&session, "go")?;
    // Titles and usage are updates too, so there may be a few more than chunks, never fewer.
    ensure!(answer.updates >= chunks, "{} updates for {chunks} chunks: something was merged or lost", answer.updates);
    agent.finish()?;
    Ok(answer)
}

fn read_bare(programs: &Programs, server: &ModelServer, chunks: usize) -> Result<Duration> {
    let url = format!("{}/chat/completions", server.base);
    let output = Command::new(programs.path("bench-reader")?).arg(url).output()?;
    ensure!(output.status.success(), "bench-reader failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    let (counted, took) = reader_result(&String::from_utf8_lossy(&output.stdout))?;
    let expected = chunks + FRAME_EVENTS;
    ensure!(counted == expected, "bench-reader saw {counted} of {expected} events");
    Ok(took)
}

/// Reads `<events> <microseconds>`.
pub(super) fn reader_result(printed: &str) -> Result<(usize, Duration)> {
    let (events, micros) = printed.trim().split_once(' ').context("bench-reader printed no two numbers")?;
    Ok((events.parse()?, Duration::from_micros(micros.parse()?)))
}

/// `bench-model-server`, which ends when its input is closed.
struct ModelServer {
    child: Child,
    base: String,
}

impl ModelServer {
    fn start(programs: &Programs, chunks: usize, writes: Writes) -> Result<Self> {
        let gather = match writes {
            Writes::Flushed => None,
            Writes::Gathered => Some("--gather"),
        };
        let mut child = Command::new(programs.path("bench-model-server")?)
            .args(["--chunks", &chunks.to_string()])
            .args(gather)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no pipe for the output")?).read_line(&mut line)?;
        let port: u16 = line.trim().parse().context("bench-model-server printed no port")?;
        Ok(Self { child, base: format!("http://127.0.0.1:{port}/v1") })
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

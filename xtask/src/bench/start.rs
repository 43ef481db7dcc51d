//! Start-up: from spawn to the first line of output, `zeroclaw-acp` and a program that only echoes in turn, so that
//! whatever the machine does in between hits both. The home is warm: one run of each comes first and is not counted.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::agent::Agent;
use super::table::table;
use super::{Home, Limit, Programs, StartOptions, Target, judge, mebibytes, median, millis, ratio};
use crate::Verdict;

/// An editor starts an agent while its user waits; six echo programs' worth is not noticed.
const MAX_RATIO: f64 = 6.0;
/// An editor may run several agents; each has to be small beside it.
const MAX_MEBIBYTES: f64 = 16.0;

#[derive(Default)]
struct Series {
    times: Vec<Duration>,
    resident: Vec<u64>,
}

pub(super) fn run(programs: &Programs, options: &StartOptions) -> Result<Verdict> {
    ensure!(options.runs > 0, "--runs wants at least 1");
    let home = Home::new("start")?;
    let server = programs.path("zeroclaw-acp")?;
    let echo = programs.path("bench-echo")?;
    let arguments = [OsString::from("--config-dir"), home.path.clone().into_os_string()];

    let (mut ours, mut floor) = (Series::default(), Series::default());
    measure(&server, &arguments, &home.path, &mut Series::default())?;
    measure(&echo, &[] as &[&str], &home.path, &mut Series::default())?;
    for _ in 0..options.runs {
        measure(&server, &arguments, &home.path, &mut ours)?;
        measure(&echo, &[] as &[&str], &home.path, &mut floor)?;
    }

    let (ours_time, floor_time) = (median(&ours.times), median(&floor.times));
    let times = ratio(ours_time, floor_time);
    let row = |name: &str, series: &Series, ratio: f64| {
        let fastest = series.times.iter().min().copied().unwrap_or_default();
        let memory = largest(series).map_or_else(|| "unknown".to_owned(), |kib| format!("{:.1} MiB", mebibytes(kib)));
        vec![name.to_owned(), millis(median(&series.times)), millis(fastest), memory, format!("{ratio:.2}")]
    };
    let rows = [row("zeroclaw-acp", &ours, times), row("bench-echo", &floor, 1.0)];
    println!("start to the answer of `initialize`, {} runs each, interleaved", options.runs);
    print!("{}", table(&["program", "median", "fastest", "resident", "ratio"], &rows));

    let mut targets = vec![Target { what: "start ratio", value: times, limit: Limit::Below(MAX_RATIO) }];
    if let Some(kibibytes) = largest(&ours) {
        let value = mebibytes(kibibytes);
        targets.push(Target { what: "resident MiB", value, limit: Limit::Below(MAX_MEBIBYTES) });
    }
    Ok(judge(&targets, options.check))
}

fn measure<S: AsRef<OsStr>>(program: &Path, arguments: &[S], home: &Path, series: &mut Series) -> Result<()> {
    let mut agent = Agent::spawn(program, arguments, home)?;
    agent.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}))?;
    series.times.push(agent.spawned.elapsed());
    series.resident.extend(agent.resident());
    agent.finish()
}

fn largest(series: &Series) -> Option<u64> {
    series.resident.iter().max().copied()
}

//! What the two halves of the security cost: judging a command, and starting it confined next to starting it bare.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::table::table;
use super::{Limit, PolicyOptions, Programs, SandboxOptions, Target, judge, sandbox};
use crate::Verdict;
use crate::workspace::Workspace;

/// Fewer verdicts a second than this would be felt: a model answer holds up to 128 calls.
const MIN_VERDICTS: f64 = 10_000.0;

pub(super) fn run(workspace: &Workspace, programs: &Programs, options: &PolicyOptions) -> Result<Verdict> {
    let rows = verdicts(workspace)?;
    let shown: Vec<Vec<String>> = rows
        .iter()
        .map(|row| vec![row.name.clone(), format!("{:.0}", row.rate()), format!("{:.1} µs", row.each() * 1e6)])
        .collect();
    println!("one thread, level `supervised`");
    print!("{}", table(&["what is judged", "verdicts a second", "each"], &shown));
    let first = rows.first().context("nothing was measured")?;
    let target = Target { what: "verdicts a second", value: first.rate(), limit: Limit::Above(MIN_VERDICTS) };
    let judged = judge(&[target], options.check);
    let spawned = sandbox::run(programs, &SandboxOptions { runs: options.runs, check: options.check })?;
    Ok(if judged == Verdict::Pass { spawned } else { judged })
}

/// One line of the example's output.
struct Row {
    name: String,
    count: u32,
    took: Duration,
}

impl Row {
    fn rate(&self) -> f64 {
        f64::from(self.count) / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn each(&self) -> f64 {
        self.took.as_secs_f64() / f64::from(self.count.max(1))
    }
}

fn verdicts(workspace: &Workspace) -> Result<Vec<Row>> {
    let mut cargo = workspace.cargo();
    cargo.args(["run", "--quiet", "--release", "--locked", "-p", "zeroclaw-policy", "--example", "verdicts"]);
    let output = cargo.output().context("cannot run cargo")?;
    ensure!(output.status.success(), "the example failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).context("the example writes text")?;
    text.lines().map(row).collect()
}

fn row(line: &str) -> Result<Row> {
    let mut fields = line.split('\t');
    let mut field = || fields.next().with_context(|| format!("`{line}` has three fields"));
    let (name, count, took) = (field()?.to_owned(), field()?, field()?);
    Ok(Row { name, count: count.parse()?, took: Duration::from_nanos(took.parse()?) })
}

#[cfg(test)]
mod tests {
    use super::row;

    #[test]
    fn a_line_of_the_example_is_read() {
        let read = row("`git status`\t2000\t1000000000").unwrap();
        assert_eq!((read.name.as_str(), read.rate(), read.each()), ("`git status`", 2000.0, 0.0005));
        for line in ["", "a\t1", "a\tb\t1", "a\t1\tb"] {
            assert!(row(line).is_err(), "{line}");
        }
    }
}

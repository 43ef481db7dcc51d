//! `zeroclaw service`: the daemon as a service of this user's systemd. It writes one file and asks `systemctl` the rest.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use super::{Context, GlobalArgs, exit};

const NAME: &str = "zeroclaw.service";

/// The unit, with a place for the command.
const UNIT: &str = include_str!("../../../../dist/zeroclaw-user.service");
const COMMAND: &str = "@command@";

#[derive(Debug, Subcommand)]
pub(super) enum ServiceCommand {
    /// Write the unit of this user's systemd that runs the daemon
    Install(InstallArgs),
    /// Say whether the unit is there, and what systemd says of it
    Status,
}

#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    /// Print the unit and write nothing
    #[arg(long)]
    print: bool,
    /// Replace a unit that somebody else wrote or changed
    #[arg(long)]
    force: bool,
    /// Enable and start the service at once
    #[arg(long, conflicts_with = "print")]
    now: bool,
}

pub(super) fn run(
    command: &ServiceCommand,
    globals: &GlobalArgs,
    context: &Context,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    match command {
        ServiceCommand::Install(args) => install(args, globals, context, out),
        ServiceCommand::Status => status(globals, context, out),
    }
}

fn install(args: &InstallArgs, globals: &GlobalArgs, context: &Context, out: &mut impl Write) -> anyhow::Result<u8> {
    let unit = unit(globals)?;
    if args.print {
        write!(out, "{unit}")?;
        out.flush()?;
        return Ok(exit::DONE);
    }
    let path = unit_path(context)?;
    match fs::read_to_string(&path) {
        Ok(there) if there == unit => writeln!(out, "{} is up to date", path.display())?,
        Ok(_) if !args.force => {
            bail!("`{}` is there and differs; look at it, or replace it with --force", path.display())
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound && !args.force => {
            return Err(error).with_context(|| format!("cannot read `{}`", path.display()));
        }
        Ok(_) | Err(_) => {
            write_unit(&path, &unit)?;
            writeln!(out, "wrote {}", path.display())?;
        }
    }
    if args.now {
        for arguments in [&["daemon-reload"][..], &["enable", "--now", NAME]] {
            let status = systemctl(arguments).status().context("cannot run systemctl")?;
            if !status.success() {
                bail!("`systemctl --user {}` failed: {status}", arguments.join(" "));
            }
        }
        writeln!(out, "the service runs; it stops when you log out unless `loginctl enable-linger` is set")?;
    } else {
        writeln!(out, "start it with: systemctl --user daemon-reload && systemctl --user enable --now {NAME}")?;
    }
    out.flush()?;
    Ok(exit::DONE)
}

fn status(globals: &GlobalArgs, context: &Context, out: &mut impl Write) -> anyhow::Result<u8> {
    let path = unit_path(context)?;
    let installed = match fs::read_to_string(&path) {
        Ok(there) if there == unit(globals)? => "this program's",
        Ok(_) => "of another program or version, or changed",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "not there",
        Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    };
    writeln!(out, "unit     {} ({installed})", path.display())?;
    let properties = ["LoadState", "UnitFileState", "ActiveState", "SubState", "MainPID", "StatusText"];
    let asked = systemctl(&["show", "--property", &properties.join(","), NAME]).stderr(Stdio::null()).output();
    let answer = match asked {
        Ok(answer) if answer.status.success() => String::from_utf8_lossy(&answer.stdout).into_owned(),
        Ok(_) | Err(_) => {
            writeln!(out, "systemd  does not answer for this user")?;
            out.flush()?;
            return Ok(exit::FAILED);
        }
    };
    let value = |name: &str| {
        let found = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.filter(|value| !value.is_empty()).unwrap_or("-")
    };
    writeln!(out, "enabled  {}", value("UnitFileState"))?;
    writeln!(out, "state    {} ({}), process {}", value("ActiveState"), value("SubState"), value("MainPID"))?;
    writeln!(out, "says     {}", value("StatusText"))?;
    out.flush()?;
    Ok(if value("ActiveState") == "active" { exit::DONE } else { exit::FAILED })
}

fn systemctl(arguments: &[&str]) -> Command {
    let mut command = Command::new("systemctl");
    command.arg("--user").args(arguments).stdin(Stdio::null());
    command
}

/// Where units of this user are.
fn unit_path(context: &Context) -> anyhow::Result<PathBuf> {
    let config = context.env.get("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| context.env.home().map(|home| Path::new(home).join(".config")));
    Ok(config.context("HOME is not set")?.join("systemd/user").join(NAME))
}

/// The unit that runs this very program as it was called now.
fn unit(globals: &GlobalArgs) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let mut words = vec![quoted(program.as_os_str())?, "daemon".to_owned()];
    for argument in globals.to_arguments().context("the working directory is gone")? {
        words.push(quoted(&argument)?);
    }
    Ok(UNIT.replace(COMMAND, &words.join(" ")))
}

/// One word of a command in a unit (`systemd.syntax(7)`, `systemd.service(5)`).
fn quoted(word: &OsStr) -> anyhow::Result<String> {
    let Some(word) = word.to_str().filter(|word| !word.chars().any(char::is_control)) else {
        bail!("`{}` cannot be written into a unit", word.to_string_lossy().escape_debug());
    };
    let mut quoted = String::with_capacity(word.len() + 2);
    quoted.push('"');
    for letter in word.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Otherwise a name of systemd's, and a variable.
            '%' | '$' => quoted.extend([letter, letter]),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    Ok(quoted)
}

/// Writes the file as a whole: systemd may read it at any time.
fn write_unit(path: &Path, unit: &str) -> anyhow::Result<()> {
    let written = || -> io::Result<()> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory)?;
        let temporary = directory.join(format!(".{NAME}.{}", std::process::id()));
        fs::write(&temporary, unit)?;
        fs::rename(&temporary, path)
    };
    written().with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::quoted;

    #[test]
    fn words_come_out_of_a_unit_as_they_went_in() {
        for (word, expect) in [
            ("/usr/bin/zeroclaw", "\"/usr/bin/zeroclaw\""),
            ("/home/a b/z", "\"/home/a b/z\""),
            ("/50%/$HOME", "\"/50%%/$$HOME\""),
            ("a\"b\\c", "\"a\\\"b\\\\c\""),
        ] {
            assert_eq!(quoted(OsStr::new(word)).unwrap(), expect);
        }
        assert!(quoted(OsStr::new("a\nExecStartPre=/bin/evil")).is_err());
    }
}

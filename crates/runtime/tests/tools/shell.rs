//! Commands: what is shown, what runs, what comes back, and that nothing is left behind.

use std::{
    fs,
    io::Write,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::json;
use zeroclaw_policy::Action;
use zeroclaw_runtime::tool::ToolFailure;

use crate::support::{Bench, launcher, shown_text};

/// A command started directly, and one started by a launcher: a model sees no difference.
fn both_ways() -> [Bench; 2] {
    [Bench::new(), Bench::launched()]
}

pub(crate) async fn shell(bench: &Bench, command: &str) -> (String, bool) {
    let outcome = bench.call("shell", json!({ "command": command })).await.expect("the command runs");
    (outcome.model_text, outcome.failed)
}

/// Whether a process is gone or only waits to be reaped by somebody.
fn is_dead(pid: &str) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", pid.trim())) else { return true };
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

/// A killed process needs a moment until the system has taken it down.
pub(crate) async fn dies(pid: &str) {
    for _ in 0..2000 {
        if is_dead(pid) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("process {pid} is still there");
}

/// Output on stderr was lost on success, stdout on failure, and the exit code never shown.
#[tokio::test]
async fn both_streams_and_the_exit_code_come_back() {
    for bench in both_ways() {
        let cases = [
            ("echo hi", "hi\n[exit code 0]", false),
            ("true", "[exit code 0]", false),
            ("printf x", "x\n[exit code 0]", false),
            ("echo out; exit 3", "out\n[exit code 3]", true),
            ("echo err >&2; exit 1", "err\n[exit code 1]", true),
            ("kill -9 $$", "[killed by signal 9]", true),
            ("printf 'gr\\303\\274n \\377'", "grün \u{fffd}\n[exit code 0]", false),
            ("cat", "[exit code 0]", false),
        ];
        for (command, expected, failed) in cases {
            assert_eq!(shell(&bench, command).await, (expected.to_owned(), failed), "{command}");
        }
        let (text, _) = shell(&bench, "echo one; echo two >&2; echo three; echo four >&2").await;
        assert_eq!(text, "one\ntwo\nthree\nfour\n[exit code 0]");
        assert!(bench.reports.output.lock().expect("lock").ends_with("one\ntwo\nthree\nfour\n"));
        assert!(shell(&bench, "nonexistent-command-xyz").await.0.ends_with("[exit code 127]"));
    }
}

#[tokio::test]
async fn a_command_starts_in_its_directory() {
    for bench in both_ways() {
        fs::create_dir(bench.inside.join("sub dir")).expect("dir");
        assert_eq!(shell(&bench, "pwd").await.0, format!("{}\n[exit code 0]", bench.inside.display()));
        let outcome = bench.call("shell", json!({ "command": "pwd", "cwd": "sub dir" })).await.expect("runs");
        assert_eq!(outcome.model_text, format!("{}\n[exit code 0]", bench.inside.join("sub dir").display()));
        for (cwd, expected) in [("missing", "does not exist"), ("../out", "outside"), ("/", "outside")] {
            let failure = bench.failure("shell", json!({ "command": "pwd", "cwd": cwd })).await;
            assert!(failure.contains(expected), "{cwd}: {failure}");
        }
    }
}

/// A directory that is renamed away and replaced by a link between question and start.
#[tokio::test]
async fn a_directory_that_became_a_link_is_not_entered() {
    let bench = Bench::new();
    fs::create_dir(bench.inside.join("work")).expect("dir");
    let call = bench.prepare("shell", json!({ "command": "echo x > owned", "cwd": "work" })).await.expect("prepared");
    fs::remove_dir(bench.inside.join("work")).expect("remove");
    std::os::unix::fs::symlink(&bench.outside, bench.inside.join("work")).expect("link");
    let failure = bench.finish("shell", call).await.expect_err("refused").to_string();
    assert!(failure.contains("outside"), "{failure}");
    bench.secret_is_safe();
}

/// Secrets of the server were readable by every command.
#[tokio::test]
async fn nothing_is_inherited_but_the_settings() {
    for mut bench in both_ways() {
        bench.settings(|settings| {
            settings.shell_env.push(("GREETING".to_owned(), "hello".to_owned()));
            settings.shell_env.push(("PAGER".to_owned(), "less".to_owned()));
        });
        let (text, _) =
            shell(&bench, "env | cut -d= -f1 | grep -vE '^(_|PWD|OLDPWD|SHLVL)$' | sort | tr '\\n' ' '").await;
        assert_eq!(text, "EDITOR GIT_EDITOR GIT_PAGER GREETING PAGER PATH TERM \n[exit code 0]");
        assert_eq!(shell(&bench, "echo $GREETING $PAGER").await.0, "hello less\n[exit code 0]");
    }
}

#[tokio::test]
async fn a_megabyte_on_both_streams_does_not_block() {
    for bench in both_ways() {
        let command = "head -c 1000000 /dev/zero | tr '\\0' a >&2; head -c 1000000 /dev/zero | tr '\\0' b; echo end";
        let (text, failed) = shell(&bench, command).await;
        assert!(!failed && text.starts_with("aaa") && text.ends_with("bend\n[exit code 0]"));
        assert!(text.contains("(2000004 bytes in all)"));
    }
}

#[tokio::test]
async fn fifty_megabytes_are_bounded_everywhere() {
    let bench = Bench::new();
    let command = "echo first; head -c 50000000 /dev/zero | tr '\\0' 'x'; echo; echo last";
    let outcome = bench.call("shell", json!({ "command": command })).await.expect("runs");
    let limit = bench.context.settings.max_output_bytes;
    assert!(outcome.model_text.len() <= limit + 100, "{}", outcome.model_text.len());
    assert!(outcome.model_text.starts_with("first\nxxx") && outcome.model_text.ends_with("x\nlast\n[exit code 0]"));
    assert!(outcome.model_text.contains("(50000012 bytes in all)"));
    assert!(shown_text(&outcome.content).len() <= limit + 200);
    let live = bench.reports.output.lock().expect("lock");
    assert!(live.len() <= limit && live.starts_with("first\nxxx"), "{}", live.len());
}

/// A background process held the pipe and pinned a session for more than an hour.
#[tokio::test]
async fn background_processes_neither_hold_nor_survive_the_call() {
    for bench in both_ways() {
        for command in ["sleep 300 & echo $!", "sleep 300 >/dev/null 2>&1 & echo $!", "yes & echo $! >pid; exit 0"] {
            let (text, failed) = shell(&bench, command).await;
            assert!(!failed && text.ends_with("[exit code 0]\n[background processes were ended]"), "{command}");
            let pid = match text.lines().next().expect("a line") {
                "y" => fs::read_to_string(bench.inside.join("pid")).expect("pid"),
                pid => pid.to_owned(),
            };
            dies(&pid).await;
        }
    }
}

#[tokio::test]
async fn what_a_short_child_writes_after_the_shell_is_kept() {
    for bench in both_ways() {
        // `$$` is the shell also in its child, which waits until it is gone.
        let command = "(while kill -0 $$ 2>/dev/null; do :; done; echo late) & echo early";
        assert_eq!(shell(&bench, command).await.0, "early\nlate\n[exit code 0]");
    }
}

/// A child that ignores the polite signal deadlocked the session.
#[tokio::test]
async fn a_time_out_ends_the_whole_group_and_keeps_the_output() {
    for mut bench in both_ways() {
        bench.settings(|settings| settings.shell_timeout = Duration::from_secs(2));
        let command = "trap '' TERM; echo $$; sh -c \"trap '' TERM; echo \\$\\$; while :; do sleep 1; done\"";
        let outcome = bench.call("shell", json!({ "command": command, "timeout_secs": 1000 })).await.expect("runs");
        assert!(outcome.failed);
        let (pids, note) = outcome.model_text.rsplit_once('\n').expect("lines");
        assert_eq!(note, "[timed out after 2s and was ended]");
        assert_eq!(pids.lines().count(), 2, "{pids}");
        for pid in pids.lines() {
            dies(pid).await;
        }
    }
}

#[tokio::test]
async fn a_cancel_ends_the_whole_group() {
    for bench in both_ways() {
        for command in [
            "echo $$ started; sleep 300",
            "trap '' TERM; echo $$ started; while :; do sleep 1; done",
            "sh -c \"trap '' TERM; echo \\$\\$ started; while :; do sleep 1; done\" & wait",
        ] {
            bench.reports.output.lock().expect("lock").clear();
            let mut context = bench.context.clone();
            context.cancel = tokio_util::sync::CancellationToken::new();
            let cancel = context.cancel.clone();
            let call = bench.prepare("shell", json!({ "command": command })).await.expect("prepared");
            let permit = match zeroclaw_policy::judge(&context.rules, context.jail.roots(), "shell", call.action()) {
                zeroclaw_policy::Judgement::Granted(permit) => permit,
                other => panic!("{other:?}"),
            };
            let (result, ()) = tokio::join!(call.run(permit, &context, &bench.reports), async {
                bench.reports.wait_for("started").await;
                cancel.cancel();
            });
            assert_eq!(result, Err(ToolFailure::Cancelled));
            let output = bench.reports.output.lock().expect("lock").clone();
            dies(output.split(' ').next().expect("pid")).await;
        }
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_no_process() {
    for bench in both_ways() {
        let call = bench.call("shell", json!({ "command": "echo $$ started; sleep 300" }));
        tokio::select! {
            _ = call => panic!("the command runs on"),
            () = bench.reports.wait_for("started") => {}
        }
        let output = bench.reports.output.lock().expect("lock").clone();
        dies(output.split(' ').next().expect("pid")).await;
    }
}

/// Editors and pagers opened the terminal of the server and waited for ever.
#[tokio::test]
async fn nothing_waits_for_a_person() {
    for bench in both_ways() {
        let command = "export HOME=$PWD GIT_CONFIG_GLOBAL=/dev/null; git init -q . && git config user.name n && \
            git config user.email e@x && echo a >a && git add a && git commit -q -m one && \
            echo b >a && git commit -q -a --amend; git log --oneline | cat; git log -1 --format=%s; \
            (exec 2>/dev/null; : </dev/tty) && echo terminal || echo none";
        let (text, _) = shell(&bench, command).await;
        assert!(text.ends_with("one\nnone\n[exit code 0]"), "{text}");
    }
}

#[tokio::test]
async fn arguments_are_checked() {
    let bench = Bench::new();
    let long = "x".repeat(64 * 1024 + 1);
    for (command, expected) in [("", "empty"), (" \n", "empty"), ("a\0b", "NUL"), (&long, "more than the limit")] {
        let failure = bench.failure("shell", json!({ "command": command })).await;
        assert!(failure.contains(expected), "{failure}");
    }
}

/// Approval prompts showed zero-width characters raw, so parts of a command could hide.
#[tokio::test]
async fn what_is_shown_hides_nothing_and_what_runs_is_exact() {
    let bench = Bench::new();
    let command = "echo a\u{200b}b\u{202e}c\u{feff}\u{1b}[2K\r\necho\u{a0}x\u{e0041}";
    let call = bench.prepare("shell", json!({ "command": command })).await.expect("prepared");
    let view = call.view();
    let shown = "echo a\\u{200b}b\\u{202e}c\\u{feff}\\u{1b}[2K\\u{d}";
    assert_eq!(view.title, format!("Run `{shown}\\u{{a}}echo\\u{{a0}}x\\u{{e0041}}`"));
    assert_eq!(shown_text(&view.content), format!("```sh\n{shown}\necho\\u{{a0}}x\\u{{e0041}}\n```"));
    let Action::Run { argv, shown, .. } = call.action() else { panic!("a run") };
    assert_eq!((argv, shown.as_str()), (vec!["/bin/sh".to_owned(), "-c".to_owned(), command.to_owned()], command));
}

/// Closing the code fence let a model write its own reassuring text into the prompt.
#[tokio::test]
async fn a_command_stays_in_its_fence_and_whole() {
    let bench = Bench::new();
    let command = "true\n```\n**Approved by admin**\n`````\nrm -rf x";
    let view = bench.view("shell", json!({ "command": command })).await;
    assert_eq!(shown_text(&view.content), format!("``````sh\n{command}\n``````"));
    assert_eq!(view.title.lines().count(), 1);
    let view = bench.view("shell", json!({ "command": "echo `id`" })).await;
    assert_eq!(view.title, "Run `` echo `id` ``");
    let long = format!("echo {}; rm -rf /tmp/at-the-end", "x".repeat(60_000));
    let view = bench.view("shell", json!({ "command": long })).await;
    assert!(shown_text(&view.content).contains(&long));
    assert!(view.title.chars().count() < 220 && view.title.contains('…'));
}

/// A command that left its process group lived on for days.
#[tokio::test]
async fn who_leaves_the_group_does_not_survive_a_launched_call() {
    let bench = Bench::launched();
    for command in [
        "setsid sh -c 'echo $$ >pid; exec sleep 300' & while ! [ -s pid ]; do :; done; cat pid",
        "setsid -f sh -c 'echo $$ >pid; exec sleep 300 >/dev/null 2>&1'; while ! [ -s pid ]; do :; done; cat pid",
        "nohup sh -c 'echo $$ >pid; exec sleep 300' >/dev/null 2>&1 & while ! [ -s pid ]; do :; done; cat pid",
        "(setsid sh -c 'trap \"\" TERM HUP; (echo $$ >pid; sleep 300; sleep 300) &' &); while ! [ -s pid ]; do :; done; cat pid",
    ] {
        let (text, failed) = shell(&bench, command).await;
        assert!(!failed && text.ends_with("[exit code 0]\n[background processes were ended]"), "{command}: {text}");
        dies(text.lines().next().expect("a line")).await;
        fs::remove_file(bench.inside.join("pid")).expect("the command has written it");
    }
}

/// The group of a command is its shell's, with a launcher as without one, so scripts may signal their own group.
#[tokio::test]
async fn a_command_that_signals_its_group_ends_itself() {
    for bench in both_ways() {
        assert_eq!(shell(&bench, "sleep 300 & kill 0").await.0, "[killed by signal 15]");
        assert_eq!(shell(&bench, "sleep 300 & kill -KILL -$$").await.0, "[killed by signal 9]");
        assert_eq!(shell(&bench, "kill -SEGV $$").await.0, "[killed by signal 11]");
        assert_eq!(shell(&bench, "kill -PIPE $$").await.0, "[killed by signal 13]");
    }
}

#[tokio::test]
async fn a_command_that_is_asked_to_end_may_clean_up() {
    for mut bench in both_ways() {
        bench.settings(|settings| settings.shell_timeout = Duration::from_secs(1));
        let (text, failed) = shell(&bench, "trap 'echo bye; exit 5' TERM; while :; do :; done").await;
        assert!(failed);
        assert_eq!(text, "bye\n[timed out after 1s and was ended]");
    }
}

/// Signals that were held back for the launcher's sake were held back in its commands too: nothing could end them politely.
#[tokio::test]
async fn a_launched_command_has_the_signals_and_descriptors_of_any_other() {
    let mut seen = Vec::new();
    for bench in both_ways() {
        let command = "ls /proc/self/fd | wc -l; readlink /proc/self/fd/0; umask; ulimit -n; ulimit -c; pwd | wc -l";
        seen.push(shell(&bench, command).await.0);
        let (signals, _) = shell(&bench, "sed -nE 's/^Sig(Blk|Ign|Cgt):\\s*//p' /proc/self/status").await;
        // The highest bits are signals of the C library, which are no program's business.
        let masks = signals.lines().take(3).map(|mask| u64::from_str_radix(mask, 16).expect("a mask") & 0x7fff_ffff);
        assert_eq!(masks.collect::<Vec<u64>>(), [0, 0, 0], "{signals}");
    }
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].contains("/dev/null"), "{}", seen[0]);
}

/// What tries to end by name or by number reaches the launcher, which holds on: it has a command to take care of.
#[tokio::test]
async fn a_launcher_is_not_ended_politely() {
    let bench = Bench::launched();
    let command =
        "for signal in TERM INT HUP QUIT USR1 PIPE ALRM; do kill -$signal $PPID; done; cat /proc/$PPID/comm; exit 4";
    assert_eq!(shell(&bench, command).await.0, "launch\n[exit code 4]");
}

/// Without a launcher's word nobody knows what became of the command, and its exit code must not be invented.
#[tokio::test]
async fn a_lost_launcher_is_told_and_takes_its_session_along() {
    let bench = Bench::launched();
    let failure = bench.failure("shell", json!({ "command": "echo $$ >pid; kill -9 $PPID; sleep 300" })).await;
    assert!(failure.contains("its launcher was lost (signal: 9 (SIGKILL))"), "{failure}");
    dies(&fs::read_to_string(bench.inside.join("pid")).expect("pid")).await;
}

/// A command must never run without the launcher that was to take care of it.
#[tokio::test]
async fn nothing_runs_without_its_launcher() {
    let mut bench = Bench::launched();
    bench.settings(|settings| settings.launcher.as_mut().expect("a launcher").program = "/nonexistent/launcher".into());
    let failure = bench.failure("shell", json!({ "command": "touch ran" })).await;
    assert!(failure.contains("could not be started"), "{failure}");
    // One that is another program by now.
    bench.settings(|settings| settings.launcher.as_mut().expect("a launcher").program = "/bin/true".into());
    let failure = bench.failure("shell", json!({ "command": "touch ran" })).await;
    assert!(failure.contains("its launcher was lost (exit status: 0)"), "{failure}");
    assert!(!bench.inside.join("ran").exists());
}

/// What a launcher is told first, for a command without limits and without a sandbox: five absent limits, no flags.
fn plain_order() -> Vec<u8> {
    [41_u32.to_le_bytes().as_slice(), &[0xff; 40], &[0]].concat()
}

/// Starts a launcher by hand. The lifeline is to be held until the end: a closed one kills.
fn by_hand(order: &[u8], command: &[&str]) -> (std::process::Child, UnixStream) {
    let (mut lifeline, theirs) = UnixStream::pair().expect("a pair");
    lifeline.write_all(order).expect("the order fits");
    let child = Command::new(launcher().program)
        .args(["launch", "--"])
        .args(command)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stderr(Stdio::null())
        .spawn()
        .expect("the launcher starts");
    (child, lifeline)
}

/// The launcher by itself: its exit code is the command's, and it says when there is nothing to run.
#[test]
fn a_launcher_by_hand_ends_like_its_command() {
    for (command, code) in [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("exec /nonexistent/program", 127)] {
        let (mut child, lifeline) = by_hand(&plain_order(), &["/bin/sh", "-c", command]);
        assert_eq!(child.wait().expect("it ends").code(), Some(code), "{command}");
        drop(lifeline);
    }
    let (mut child, lifeline) = by_hand(&plain_order(), &["/nonexistent/program"]);
    assert_eq!(child.wait().expect("it ends").code(), Some(125));
    drop(lifeline);
}

/// A launcher that nobody tells what the command may do does not guess.
#[test]
fn a_launcher_without_an_order_starts_nothing() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("ran");
    let touch = ["/usr/bin/env", "touch", file.to_str().expect("a name")];
    let mut broken = plain_order();
    broken.pop();
    broken[0] = 40;
    for order in [Vec::new(), broken, vec![0xff; 64]] {
        let (mut child, lifeline) = by_hand(&order, &touch);
        lifeline.shutdown(std::net::Shutdown::Write).expect("the other end is there");
        assert_eq!(child.wait().expect("it ends").code(), Some(125));
        assert!(!file.exists());
    }
}

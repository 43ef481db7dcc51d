//! What a command is kept from by the kernel, and what still works. Each test asks the system first: one that cannot confine is
//! told loudly, and is a failure where a sandbox is required.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "a test that is not run says so")]

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::symlink,
            net::{SocketAddr, UnixListener},
        },
    },
    path::Path,
};

use serde_json::json;
use zeroclaw_policy::{Level, Root, RootKind, Ruleset};
use zeroclaw_runtime::sandbox::{Backend, Confiner, Limits, SandboxError, SandboxSettings, find};

use crate::{
    shell::{dies, shell},
    support::Bench,
};

/// Whether this system has what the tests are about.
fn confines() -> bool {
    let Err(error) = find(Backend::Landlock) else { return true };
    let required = std::env::var_os("ZEROCLAW_REQUIRE_SANDBOX").is_some_and(|value| value == "1");
    assert!(!required, "ZEROCLAW_REQUIRE_SANDBOX is set, but: {error}");
    eprintln!("SKIPPED, AS NOTHING CAN BE CONFINED HERE: {error}");
    false
}

/// Whether a program is there; the same rule.
fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&paths).any(|path| path.join(program).is_file()) {
        return true;
    }
    let required = std::env::var_os("ZEROCLAW_REQUIRE_SANDBOX").is_some_and(|value| value == "1");
    assert!(!required, "ZEROCLAW_REQUIRE_SANDBOX is set, but there is no {program}");
    eprintln!("SKIPPED, AS THERE IS NO {program}");
    false
}

fn plain() -> Bench {
    Bench::confined(|_, _| {})
}

/// The same command, spelt so that only the kernel can tell what it is about: the rules know what is written plainly.
fn veiled(command: &str) -> String {
    let octal: String = command.bytes().map(|byte| format!("\\0{byte:03o}")).collect();
    format!("eval \"$(printf %b '{octal}')\"")
}

/// A command that has to fail, and did.
async fn fails(bench: &Bench, command: &str) -> String {
    let (text, failed) = shell(bench, &veiled(command)).await;
    assert!(failed, "`{command}` succeeded: {text}");
    text
}

async fn works(bench: &Bench, command: &str) -> String {
    let (text, failed) = shell(bench, command).await;
    assert!(!failed, "`{command}` failed: {text}");
    text.trim_end_matches("[exit code 0]").to_owned()
}

#[tokio::test]
async fn nothing_outside_of_the_roots_is_read_or_written() {
    if !confines() {
        return;
    }
    let bench = plain();
    let out = bench.outside.display().to_string();
    for command in [
        format!("cat {out}/secret"),
        format!("ls {out}"),
        format!("echo x >{out}/secret"),
        format!("echo x >>{out}/secret"),
        format!("echo x >{out}/new"),
        format!("mkdir {out}/new"),
        format!("mv {out}/secret ."),
        format!("cp {out}/secret ."),
        format!("ln {out}/secret hard && cat hard"),
        format!("ln -s {out}/secret soft && cat soft"),
        format!("rm {out}/secret"),
        format!("truncate -s 0 {out}/secret"),
        format!("ln -s {out} dir && echo x >dir/secret"),
        format!("cd /proc/1/root{out} && cat secret"),
        format!("cat /proc/$PPID/root{out}/secret"),
        format!("cat /proc/self/root{out}/secret"),
        "cat /proc/self/cwd/../out/secret".to_owned(),
        "cat ../out/secret".to_owned(),
        "cat /proc/$PPID/environ".to_owned(),
        "cat /proc/$PPID/maps".to_owned(),
        "readlink /proc/$PPID/fd/0".to_owned(),
        "cat /proc/$PPID/fd/0".to_owned(),
        "echo 1 >/proc/self/oom_score_adj".to_owned(),
        "echo x >/etc/zeroclaw-test".to_owned(),
        "echo x >/usr/zeroclaw-test".to_owned(),
        "ls /dev/shm".to_owned(),
        "cat /etc/shadow".to_owned(),
    ] {
        fails(&bench, &command).await;
    }
    bench.secret_is_safe();
    assert_eq!(works(&bench, "echo x >a && mkdir b && mv a b/c && cat b/c && rm -r b").await, "x\n");
}

/// SHL-05: a script wrote through a link after the file tools had refused it; no look at a command can see that.
#[tokio::test]
async fn shl_05_a_script_is_kept_to_the_boundary_of_the_file_tools() {
    if !confines() {
        return;
    }
    let bench = plain();
    symlink(&bench.outside, bench.inside.join("link")).expect("link");
    bench.failure("file_write", json!({ "path": "link/x", "content": "x" })).await;
    bench.write("a", "a");
    for command in ["cp a link/x", "cat link/secret"] {
        fails(&bench, command).await;
        bench.write("script", format!("#!/bin/sh\n{command}\n"));
        fails(&bench, "sh ./script").await;
    }
    bench.secret_is_safe();
}

/// FIL-11 and the weakest point of a directory as wide as a home: nothing can be taken out of a granted directory again.
#[tokio::test]
async fn what_is_forbidden_stays_closed_below_a_root() {
    if !confines() {
        return;
    }
    let arrange = |inside: &Path, (_, rules): &mut (Vec<Root>, Ruleset)| {
        for directory in [".ssh", ".zeroclaw/data/sessions", "project"] {
            fs::create_dir_all(inside.join(directory)).expect("directory");
        }
        for file in [".ssh/id", ".zeroclaw/config.toml", ".zeroclaw/data/sessions/db", "project/a", "plain"] {
            fs::write(inside.join(file), "old").expect("file");
        }
        symlink(inside.join(".ssh"), inside.join("project/link")).expect("link");
        let forbidden = [".ssh", ".zeroclaw/config.toml", ".zeroclaw/data/sessions", ".not/there/yet"];
        rules.forbidden_paths = forbidden.iter().map(|path| inside.join(path)).collect();
    };
    // The directory itself, and one above it.
    let benches = [
        Bench::confined(arrange),
        Bench::confined(|inside, set| {
            arrange(inside, set);
            set.0.push(Root::new(inside.parent().expect("parent").to_owned(), RootKind::Additional));
        }),
        Bench::confined(|inside, set| {
            arrange(inside, set);
            set.0.push(Root::new("/".into(), RootKind::Additional));
        }),
    ];
    for bench in benches {
        for command in [
            "cat .ssh/id",
            "ls .ssh",
            "cat project/link/id",
            "echo new >.ssh/id",
            "echo new >.ssh/new",
            "cat .zeroclaw/config.toml",
            "echo new >.zeroclaw/config.toml",
            "rm .zeroclaw/config.toml",
            "mv project/a .zeroclaw/config.toml",
            "mv .zeroclaw moved",
            "mv .ssh moved",
            "ln .ssh/id project/id",
            "cat .zeroclaw/data/sessions/db",
            "rm -r .zeroclaw/data/sessions",
            "mkdir -p .not/there/yet",
            "mkdir .not",
        ] {
            fails(&bench, command).await;
        }
        for file in [".ssh/id", ".zeroclaw/config.toml", ".zeroclaw/data/sessions/db"] {
            assert_eq!(fs::read_to_string(bench.inside.join(file)).expect("file"), "old", "{file}");
        }
        assert!(!bench.inside.join(".not").exists());
        // Everything beside it can be used.
        let command = "cat plain project/a && echo new >plain && echo new >project/b && mkdir project/c && ls project";
        assert_eq!(works(&bench, command).await, "oldolda\nb\nc\nlink\n");
    }
}

/// A root that is forbidden as a whole gives nothing.
#[tokio::test]
async fn a_forbidden_root_is_no_root() {
    if !confines() {
        return;
    }
    let bench = Bench::confined(|inside, (roots, rules)| {
        let keys = inside.parent().expect("parent").join("keys");
        fs::create_dir(&keys).expect("keys");
        fs::write(keys.join("id"), "key").expect("key");
        roots.push(Root::new(keys.clone(), RootKind::Additional));
        rules.forbidden_paths = vec![keys];
    });
    fails(&bench, "cat ../keys/id").await;
    fails(&bench, "echo x >../keys/new").await;
}

#[tokio::test]
async fn a_read_only_root_is_read_only_for_commands_too() {
    if !confines() {
        return;
    }
    let bench = Bench::confined(|inside, (roots, _)| {
        let docs = inside.parent().expect("parent").join("docs");
        fs::create_dir(&docs).expect("docs");
        fs::write(docs.join("a"), "text").expect("file");
        roots.push(Root::new(docs, RootKind::ReadOnly));
    });
    assert_eq!(works(&bench, "cat ../docs/a").await, "text\n".trim_end().to_owned() + "\n");
    for command in ["echo x >../docs/a", "touch ../docs/new", "rm ../docs/a"] {
        fails(&bench, command).await;
    }
}

const CONNECT: &str = r#"
import socket, sys
kind, place = sys.argv[1], sys.argv[2]
if kind == "tcp": socket.create_connection(("127.0.0.1", int(place)), 5)
elif kind == "tcp6": socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
elif kind == "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(place)))
elif kind == "bind": socket.create_server(("127.0.0.1", 0))
elif kind == "raw": socket.socket(17, socket.SOCK_RAW)
elif kind == "vsock": socket.socket(40, socket.SOCK_STREAM)
elif kind == "unix": socket.socket(socket.AF_UNIX).connect(place)
elif kind == "abstract": socket.socket(socket.AF_UNIX).connect("\0" + place)
elif kind == "pair":
    a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
else: raise SystemExit(99)
"#;

#[tokio::test]
async fn there_is_no_network_without_permission() {
    if !confines() || !has("python3") {
        return;
    }
    let bench = plain();
    bench.write("connect.py", CONNECT);
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    udp.set_nonblocking(true).expect("set");
    let path = bench.inside.join("sock");
    let _unix = UnixListener::bind(&path).expect("a socket");
    let name = format!("zeroclaw-test-{}", std::process::id());
    let address = <SocketAddr as SocketAddrExt>::from_abstract_name(&name).expect("an address");
    let _abstract = UnixListener::bind_addr(&address).expect("a socket");
    let port = tcp.local_addr().expect("bound").port().to_string();
    let udp_port = udp.local_addr().expect("bound").port().to_string();
    let path = path.to_str().expect("a name");
    for (kind, place) in [
        ("tcp", port.as_str()),
        ("tcp6", "-"),
        ("udp", &udp_port),
        ("bind", "-"),
        ("raw", "-"),
        ("vsock", "-"),
        ("unix", path),
        ("abstract", &name),
    ] {
        let text = fails(&bench, &format!("python3 connect.py {kind} {place}")).await;
        assert!(text.contains("Permission denied"), "{kind}: {text}");
    }
    assert!(udp.recv(&mut [0; 8]).is_err(), "nothing arrived");
    works(&bench, "python3 connect.py pair -").await;
}

/// What was shown as "with network" has it; what was not has not.
#[tokio::test]
async fn the_network_is_there_when_it_was_permitted() {
    if !confines() || !has("python3") {
        return;
    }
    let bench = plain();
    bench.write("connect.py", CONNECT);
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let path = bench.inside.join("sock");
    let _unix = UnixListener::bind(&path).expect("a socket");
    let port = tcp.local_addr().expect("bound").port();
    let arguments = json!({ "command": format!("python3 connect.py tcp {port}"), "network": true });
    let view = bench.view("shell", arguments.clone()).await;
    assert_eq!(view.title, format!("Run `python3 connect.py tcp {port}` with network"));
    assert!(crate::support::shown_text(&view.content).ends_with("runs with network"));
    let outcome = bench.call("shell", arguments).await.expect("runs");
    assert!(!outcome.failed, "{}", outcome.model_text);
    // The services of the machine are no network.
    let command = format!("python3 connect.py unix {}", path.display());
    let outcome = bench.call("shell", json!({ "command": command, "network": true })).await.expect("runs");
    assert!(outcome.failed, "{}", outcome.model_text);
    let outcome =
        bench.call("shell", json!({ "command": "python3 connect.py raw -", "network": true })).await.expect("runs");
    assert!(outcome.failed, "{}", outcome.model_text);
}

const CALLS: &str = r#"
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
calls = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "fsopen": (430, 430), "move_mount": (429, 429), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "open_by_handle_at": (304, 265), "kexec_load": (246, 104),
    "init_module": (175, 105), "finit_module": (313, 273), "reboot": (169, 142), "sethostname": (170, 161),
    "clock_settime": (227, 112), "swapon": (167, 224), "syslog": (103, 116), "fanotify_init": (300, 262),
}
for name, numbers in calls.items():
    number = numbers[0 if x86 else 1]
    for extra in ([0, 0x40000000] if x86 else [0]):
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(number + extra), 0, 0, 0, 0, 0, 0)
        got = ctypes.get_errno()
        assert result == -1 and got in (errno.EPERM, errno.ENOSYS) and not (extra == 0 and got != errno.EPERM), (name, extra, result, got)
NEW = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000}
for name, flag in NEW.items():
    ctypes.set_errno(0)
    assert libc.unshare(flag) == -1 and ctypes.get_errno() == errno.EPERM, name
    ctypes.set_errno(0)
    clone = 56 if x86 else 220
    assert libc.syscall(ctypes.c_long(clone), ctypes.c_ulong(flag | 17), 0, 0, 0, 0) == -1 and ctypes.get_errno() == errno.EPERM, name
ctypes.set_errno(0)
assert libc.syscall(ctypes.c_long(435), 0, 0) == -1 and ctypes.get_errno() == errno.ENOSYS, "clone3"
import fcntl, termios
try: fcntl.ioctl(0, termios.TIOCSTI, b"x"); raise SystemExit("TIOCSTI")
except PermissionError: pass
status = open("/proc/self/status").read()
assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status, status
print("every call was refused")
"#;

#[tokio::test]
async fn the_calls_that_reach_other_processes_and_the_machine_are_refused() {
    if !confines() || !has("python3") {
        return;
    }
    let bench = plain();
    bench.write("calls.py", CALLS);
    assert_eq!(works(&bench, "python3 calls.py").await, "every call was refused\n");
}

/// With the launcher in its reach a command could free itself of everything that the launcher is there for.
#[tokio::test]
async fn other_processes_cannot_be_signalled() {
    if !confines() {
        return;
    }
    if !find(Backend::Landlock).expect("there").description().contains("signals and abstract sockets") {
        eprintln!("SKIPPED, AS THIS KERNEL DOES NOT CONFINE SIGNALS");
        return;
    }
    let bench = plain();
    let mut other = std::process::Command::new("sleep").arg("300").spawn().expect("sleep");
    for target in [other.id().to_string(), "$PPID".to_owned(), std::process::id().to_string()] {
        fails(&bench, &format!("kill -0 {target}")).await;
        fails(&bench, &format!("kill -9 {target}")).await;
    }
    assert!(other.try_wait().expect("asked").is_none(), "it lives");
    other.kill().expect("killed");
    other.wait().expect("reaped");
    works(&bench, "sleep 300 & kill $!").await;
}

#[tokio::test]
async fn a_fork_bomb_is_ended() {
    if !confines() {
        return;
    }
    let mut bench = plain();
    bench.sandbox(|sandbox| sandbox.limits.processes = Some(100));
    // One that is bounded, for the sake of the machine: it would come to a thousand.
    let bomb = "b() { [ $1 -gt 8 ] || { b $(($1 + 1)) & b $(($1 + 1)) & }; sleep 300; }; b 0";
    let (text, failed) = shell(&bench, bomb).await;
    assert!(failed, "{text}");
    assert!(text.ends_with("[more processes than a command may have, all were killed]"), "{text}");
    // The next command is not affected, and as many as allowed are no bomb.
    works(&bench, "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.05 & done; wait").await;
}

#[tokio::test]
async fn what_a_process_uses_up_is_limited() {
    let mut bench = Bench::launched();
    let limits = Limits {
        cpu_secs: Some(1),
        memory_bytes: Some(256 << 20),
        file_bytes: Some(1 << 20),
        open_files: Some(32),
        processes: None,
    };
    let settings = SandboxSettings { backend: Backend::None, limits, ..SandboxSettings::default() };
    bench.settings(|tools| tools.sandbox = std::sync::Arc::new(Confiner::new(settings)));
    assert_eq!(shell(&bench, "while :; do :; done").await.0, "[killed by signal 24]");
    let (text, _) = shell(&bench, "head -c 3000000 /dev/zero >big; stat -c %s big").await;
    assert!(text.contains("1048576\n"), "{text}");
    let (text, _) = shell(&bench, "ulimit -n; ulimit -c").await;
    assert_eq!(text, "32\n0\n[exit code 0]");
    if has("python3") {
        let (text, failed) = shell(&bench, "python3 -c 'x = bytearray(1 << 30)'").await;
        assert!(failed && text.contains("MemoryError"), "{text}");
    }
}

/// SHL-07: what is left behind ends with the call, in the sandbox as without one.
#[tokio::test]
async fn shl_07_a_daemon_of_a_confined_command_is_ended() {
    if !confines() {
        return;
    }
    let bench = plain();
    let command = "(setsid sh -c 'trap \"\" TERM HUP; (echo $$ >pid; sleep 300; sleep 300) &' &); \
        while ! [ -s pid ]; do :; done; cat pid";
    let (text, failed) = shell(&bench, command).await;
    assert!(!failed && text.ends_with("[background processes were ended]"), "{text}");
    dies(text.lines().next().expect("a line")).await;
}

#[tokio::test]
async fn a_session_has_a_temporary_directory_of_its_own() {
    if !confines() {
        return;
    }
    let bench = plain();
    let text = works(&bench, "echo kept >$TMPDIR/a && mktemp && stat -c %a $TMPDIR && echo $TMPDIR").await;
    let dir = text.lines().last().expect("a line").to_owned();
    assert!(text.contains("\n700\n") && Path::new(&dir).starts_with(bench.outside.parent().expect("base")), "{text}");
    // The next command of the session finds it, and no other session's does.
    assert_eq!(works(&bench, "cat $TMPDIR/a").await, "kept\n");
    let other = plain();
    fails(&other, &format!("cat {dir}/a")).await;
    works(&bench, "mkdir $TMPDIR/closed && touch $TMPDIR/closed/x && chmod 0 $TMPDIR/closed").await;
    bench.context.jail.clean_up();
    assert!(!Path::new(&dir).exists(), "removed with the session");
    let failure = bench.failure("shell", json!({ "command": "true" })).await;
    assert!(failure.contains("the session has ended"), "{failure}");
}

#[tokio::test]
async fn the_tools_of_a_project_work() {
    if !confines() {
        return;
    }
    let bench = plain();
    if has("git") {
        let command = "git init -q . && git config user.name n && git config user.email e@x && echo a >a && git add a \
            && git commit -q -m one && git mv a b && git commit -q -m two && git log --format=%s && git status --short";
        assert_eq!(works(&bench, command).await, "two\none\n");
    }
    if has("python3") {
        let command = "python3 -c 'import subprocess, tempfile, threading; open(\"p\", \"w\").write(\"1\"); \
            print(tempfile.mkdtemp() != \"\", subprocess.check_output([\"echo\", \"x\"]))'";
        assert_eq!(works(&bench, command).await, "True b'x\\n'\n");
    }
    if has("node") {
        let command = "node -e 'const {execFileSync, Worker} = require(\"child_process\"); require(\"fs\").writeFileSync(\"n\", \"1\"); \
            console.log(execFileSync(\"echo\", [\"y\"]).toString().trim())'";
        assert_eq!(works(&bench, command).await, "y\n");
    }
}

#[tokio::test]
async fn a_crate_builds_offline() {
    if !confines() || !has("cargo") {
        return;
    }
    let mut bench = plain();
    bench.settings(|settings| {
        let names = ["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"];
        let passed = names.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        settings.shell_env.extend(passed);
    });
    bench.write("Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    bench.write("src/main.rs", "fn main() { println!(\"built and run\"); }\n");
    let text = works(&bench, "CARGO_TARGET_DIR=target cargo run --offline --quiet").await;
    assert_eq!(text, "built and run\n");
}

#[tokio::test]
async fn a_sandbox_that_is_asked_for_and_missing_is_an_error() {
    let settings = |backend| SandboxSettings { backend, ..SandboxSettings::default() };
    let confiner = Confiner::new(settings(Backend::Seatbelt));
    let error = confiner.check().expect_err("this is no macOS");
    assert!(matches!(&error, SandboxError::Unavailable { backend: "seatbelt", .. }), "{error}");
    // Nor does a command run without it.
    let mut bench = Bench::launched();
    bench.settings(|tools| tools.sandbox = std::sync::Arc::new(confiner));
    let failure = bench.failure("shell", json!({ "command": "touch ran" })).await;
    assert!(failure.contains("the configured sandbox `seatbelt` cannot be used here"), "{failure}");
    assert!(!bench.inside.join("ran").exists());
    Confiner::new(settings(Backend::Auto)).check().expect("never an error");
    Confiner::new(settings(Backend::None)).check().expect("never an error");
}

#[tokio::test]
async fn a_sandbox_without_its_launcher_starts_nothing() {
    if !confines() {
        return;
    }
    let mut bench = plain();
    bench.settings(|settings| settings.launcher = None);
    let failure = bench.failure("shell", json!({ "command": "touch ran" })).await;
    assert!(failure.contains("needs a launcher"), "{failure}");
    assert!(!bench.inside.join("ran").exists());
    assert_eq!(bench.context.rules.level, Level::Full);
}

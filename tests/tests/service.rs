//! The daemon below a supervisor: what it tells it, the units that are shipped, and the command that installs one.

use std::{
    fs,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::PermissionsExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::Path,
    process::Output,
    time::Duration,
};

use rustix::process::Signal;
use zeroclaw_e2e::{Lab, binary};

use crate::daemon::Daemon;

/// The next datagram that is none of the watchdog's.
fn told(socket: &UnixDatagram) -> String {
    loop {
        let mut buffer = [0; 4096];
        let count = socket.recv(&mut buffer).expect("the supervisor is told in time");
        let text = std::str::from_utf8(&buffer[..count]).unwrap();
        if text != "WATCHDOG=1\n" {
            return text.to_owned();
        }
    }
}

async fn supervised(name: &str, socket: UnixDatagram) {
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let lab = Lab::new();
    let variables = [("NOTIFY_SOCKET", name), ("WATCHDOG_USEC", "100000")];
    let daemon = Daemon::start_with(&lab, &[], &variables).await;
    // Before anything else, and only when clients can come.
    assert_eq!(told(&socket), format!("READY=1\nSTATUS=listening on http://{}/acp\n", daemon.address));
    for _ in 0..3 {
        let mut buffer = [0; 64];
        let count = socket.recv(&mut buffer).expect("it says that it lives");
        assert_eq!(&buffer[..count], b"WATCHDOG=1\n");
    }
    daemon.signal(Signal::TERM);
    assert_eq!(told(&socket), "STOPPING=1\nSTATUS=waiting for turns that run\n");
    assert_eq!(daemon.ended().await.0, Some(0));
}

#[tokio::test]
async fn a_supervisor_hears_of_the_beginning_the_life_and_the_end() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("notify");
    supervised(path.to_str().unwrap(), UnixDatagram::bind(&path).unwrap()).await;
}

#[tokio::test]
async fn a_supervisor_may_have_a_socket_without_a_file() {
    let name = format!("zeroclaw-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    supervised(&format!("@{name}"), UnixDatagram::bind_addr(&address).unwrap()).await;
}

#[tokio::test]
async fn a_supervisor_that_is_not_there_ends_nothing() {
    let lab = Lab::new();
    let daemon = Daemon::start_with(&lab, &[], &[("NOTIFY_SOCKET", "/nowhere/notify"), ("WATCHDOG_USEC", "x")]).await;
    assert!(daemon.get("/health", "").await.starts_with("HTTP/1.1 200"));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ended().await.0, Some(0));
}

/// `zeroclaw service` with a `systemctl` that notes how it was called and goes on with this script.
async fn service(lab: &Lab, arguments: &[&str], systemctl: &str) -> Output {
    let programs = lab.home().join("programs");
    fs::create_dir_all(&programs).unwrap();
    let script = format!("#!/bin/sh\necho \"$@\" >> {}/calls\n{systemctl}\n", lab.home().display());
    fs::write(programs.join("systemctl"), script).unwrap();
    fs::set_permissions(programs.join("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = lab.command("zeroclaw");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    command.arg("service").args(arguments).env("PATH", path).output().await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn the_service_is_installed_once_and_a_changed_unit_is_kept() {
    let lab = Lab::new();
    let unit = lab.home().join(".config/systemd/user/zeroclaw.service");
    let printed = service(&lab, &["install", "--print", "--config-dir", "/a b/$c"], "exit 1").await;
    let line = format!("ExecStart=\"{}\" daemon \"--config-dir\" \"/a b/$$c\"\n", binary("zeroclaw").display());
    assert!(text(&printed.stdout).contains(&line), "{}", text(&printed.stdout));
    assert!(!unit.exists());
    let installed = service(&lab, &["install", "--now"], "exit 0").await;
    assert_eq!(installed.status.code(), Some(0), "{}", text(&installed.stderr));
    let calls = fs::read_to_string(lab.home().join("calls")).unwrap();
    assert_eq!(calls, "--user daemon-reload\n--user enable --now zeroclaw.service\n");
    let written = fs::read_to_string(&unit).unwrap();
    assert!(written.contains(&format!("ExecStart=\"{}\" daemon\n", binary("zeroclaw").display())), "{written}");
    assert!(text(&service(&lab, &["install"], "exit 0").await.stdout).contains("is up to date"));
    fs::write(&unit, "[Service]\nExecStart=/mine\n").unwrap();
    let refused = service(&lab, &["install"], "exit 0").await;
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&unit).unwrap(), "[Service]\nExecStart=/mine\n");
    assert_eq!(service(&lab, &["install", "--force"], "exit 0").await.status.code(), Some(0));
    assert_eq!(fs::read_to_string(&unit).unwrap(), written);
    let failed = service(&lab, &["install", "--now"], "exit 5").await;
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("daemon-reload"), "{}", text(&failed.stderr));
}

#[tokio::test]
async fn the_status_of_the_service_is_what_systemd_says() {
    let lab = Lab::new();
    let nothing = service(&lab, &["status"], "exit 1").await;
    assert_eq!(nothing.status.code(), Some(1));
    let shown = text(&nothing.stdout);
    assert!(shown.contains("(not there)") && shown.contains("does not answer"), "{shown}");
    service(&lab, &["install"], "exit 0").await;
    let show = "printf 'UnitFileState=enabled\\nActiveState=active\\nSubState=running\\nMainPID=42\\n\
                StatusText=listening on http://127.0.0.1:42617/acp\\n'";
    let running = service(&lab, &["status"], show).await;
    assert_eq!(running.status.code(), Some(0));
    let shown = text(&running.stdout);
    for part in ["(this program's)", "enabled  enabled", "active (running), process 42", "says     listening on http"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_eq!(service(&lab, &["status"], "echo ActiveState=inactive").await.status.code(), Some(1));
}

/// What `systemd-analyze verify` has to say; `None` where it is not there.
fn verified(unit: &Path, arguments: &[&str]) -> Option<String> {
    let found = std::process::Command::new("systemd-analyze").arg("verify").args(arguments).arg(unit).output();
    let output = found.ok()?;
    Some(format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

#[tokio::test]
async fn systemd_understands_the_units() {
    let lab = Lab::new();
    assert_eq!(service(&lab, &["install"], "exit 0").await.status.code(), Some(0));
    let of_user = lab.home().join(".config/systemd/user/zeroclaw.service");
    let system = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/zeroclaw.service")).unwrap();
    let system = system.replace("/usr/local/bin/zeroclaw", binary("zeroclaw").to_str().unwrap());
    let of_system = lab.file("zeroclaw.service", system);
    for unit in [of_user, of_system] {
        let Some(said) = verified(&unit, &["--man=no", "--recursive-errors=no"]) else { return };
        assert_eq!(said, "", "{}", unit.display());
    }
    // The check would notice: a word that systemd does not know.
    let wrong = lab.file("wrong.service", "[Service]\nExecStart=/bin/true\nProtectEverything=yes\n");
    assert!(verified(&wrong, &["--man=no"]).unwrap().contains("ProtectEverything"));
}

//! The sandbox of macOS: a profile for `sandbox-exec`. The profile is text and made everywhere, so that it is tested everywhere;
//! it is used where the program is.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::sandbox::{Access, Confined, Order, Sandbox, Wrapped, variables};

/// The program; by its full path, because the search path is the user's.
const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// Finds the program.
pub(super) fn find() -> Result<Arc<dyn Sandbox>, String> {
    if !cfg!(target_os = "macos") {
        return Err("Seatbelt is a part of macOS".to_owned());
    }
    if Path::new(PROGRAM).is_file() { Ok(Arc::new(Seatbelt)) } else { Err(format!("{PROGRAM} is not there")) }
}

#[derive(Debug)]
struct Seatbelt;

impl Sandbox for Seatbelt {
    fn description(&self) -> String {
        "seatbelt: files and network by profile".to_owned()
    }

    fn confines(&self) -> bool {
        true
    }

    fn wrap(&self, argv: Vec<OsString>, confined: Confined) -> Wrapped {
        wrap(argv, &confined)
    }
}

fn wrap(argv: Vec<OsString>, confined: &Confined) -> Wrapped {
    let mut wrapped: Vec<OsString> = vec![PROGRAM.into(), "-p".into(), profile(confined).into(), "--".into()];
    wrapped.extend(argv);
    let order = Order { limits: confined.limits, confine: None };
    Wrapped { argv: wrapped, env: variables(confined), confined: true, order }
}

/// Writes the profile: everything is denied but what is named; what comes later wins, so what is hidden comes last.
pub(super) fn profile(confined: &Confined) -> String {
    let mut out = String::from(
        "(version 1)\n(deny default)\n(allow process-fork)\n(allow process-exec)\n\
         (allow signal (target same-sandbox))\n(allow process-info* (target same-sandbox))\n\
         (allow sysctl-read)\n(allow file-read-metadata)\n\
         (allow file-read* (literal \"/\"))\n\
         (allow file-ioctl (literal \"/dev/null\"))\n\
         (allow file-read* file-write-data (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/random\") \
         (literal \"/dev/urandom\"))\n\
         (allow mach-lookup (global-name \"com.apple.system.opendirectoryd.libinfo\"))\n",
    );
    let all = confined.confine.paths.iter().chain(&confined.roots);
    for (path, access) in all {
        let operations = match access {
            Access::Read => "file-read*",
            Access::Write => "file-read* file-write*",
        };
        rule(&mut out, &format!("allow {operations}"), path);
    }
    for path in real_and_named(&confined.confine.hidden) {
        // What cannot be written is hidden with the nearest directory around it that can.
        let text = path.ancestors().find_map(writable_text).unwrap_or_else(|| "/".to_owned());
        out.push_str(&format!("(deny file-read* file-write* (subpath \"{text}\"))\n"));
    }
    if confined.confine.network {
        out.push_str(
            "(allow network-outbound (remote ip))\n(allow network-inbound (local ip))\n(allow system-socket)\n",
        );
        out.push_str("(allow network-outbound (literal \"/private/var/run/mDNSResponder\"))\n");
        out.push_str("(allow mach-lookup (global-name \"com.apple.SystemConfiguration.configd\"))\n");
    }
    if confined.confine.local_sockets {
        out.push_str("(allow network* (remote unix-socket))\n(allow network* (local unix-socket))\n");
    }
    out
}

/// The paths, and where they really are; the system compares real paths.
fn real_and_named(paths: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    paths.iter().flat_map(|path| {
        let real = path.canonicalize().ok().filter(|real| real != path);
        std::iter::once(path.clone()).chain(real)
    })
}

/// One rule. A path that is not text cannot be written in a profile: what would be allowed there is not.
fn rule(out: &mut String, what: &str, path: &Path) {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(text) = writable_text(&real) {
        out.push_str(&format!("({what} (subpath \"{text}\"))\n"));
    }
}

/// A path as it stands between the quotes of a profile.
fn writable_text(path: &Path) -> Option<String> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control))?;
    Some(text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests;

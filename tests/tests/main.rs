//! One test binary; each topic is a module, and a file that is not listed here fails the build of none: see `every_file_is_listed`.

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod bridge;
#[cfg(test)]
mod cases_cancel;
#[cfg(test)]
mod cases_content;
#[cfg(test)]
#[cfg(unix)]
mod cases_files;
#[cfg(test)]
mod cases_framing;
#[cfg(test)]
#[cfg(unix)]
mod cases_gateway;
#[cfg(test)]
mod cases_handshake;
#[cfg(test)]
mod cases_permissions;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod cases_privilege;
#[cfg(test)]
mod cases_sessions;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod cases_shell;
#[cfg(test)]
mod cases_stdout;
#[cfg(test)]
mod cases_tools;
#[cfg(test)]
mod choices;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod client_files;
#[cfg(test)]
mod client_terminal;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod crash;
#[cfg(test)]
#[cfg(unix)]
mod daemon;
#[cfg(test)]
#[cfg(unix)]
mod detach;
#[cfg(test)]
mod dialect;
#[cfg(test)]
mod dialect_errors;
#[cfg(test)]
mod dialog;
#[cfg(test)]
#[cfg(unix)]
mod directories;
#[cfg(test)]
#[cfg(unix)]
mod doors;
#[cfg(test)]
mod durable;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod fallback;
#[cfg(test)]
mod launcher;
#[cfg(test)]
mod login;
#[cfg(test)]
mod long;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod models;
#[cfg(test)]
#[cfg(unix)]
mod observed;
#[cfg(test)]
mod protocol_page;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod sdk;
#[cfg(test)]
mod sdk_lends;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod service;
#[cfg(test)]
mod smoke;
#[cfg(test)]
mod storage;
#[cfg(test)]
mod thinking;
#[cfg(test)]
mod turns;

#[test]
fn every_file_is_listed() {
    let listing = include_str!("main.rs");
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for entry in std::fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        assert!(
            module == "main" || listing.contains(&format!("mod {module};")),
            "`mod {module};` is missing in main.rs"
        );
    }
}

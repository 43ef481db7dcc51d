//! What must hold whatever comes in, as functions that take bytes: the one place of these properties. The program beside
//! this library feeds them random bytes, and the targets in `fuzz/` let libFuzzer look for bytes. A property that does not
//! hold panics. Nothing here reads a file of the project or the clock.
#![expect(clippy::expect_used, reason = "a property that does not hold ends loudly")]

mod input;
mod lines;
mod message;
mod params;
mod policy;
mod replay;

pub use input::Input;

/// One property.
pub type Body = fn(&[u8]);

/// Every property by its name.
pub const TARGETS: &[(&str, Body)] = &[
    ("policy_levels", policy::levels),
    ("policy_deny", policy::deny),
    ("policy_evaluators", policy::evaluators),
    ("policy_grants", policy::grants),
    ("lines", lines::split),
    ("message", message::reference),
    ("params", params::tolerance),
    ("replay", replay::bytes),
];

/// Checks one property for one input.
///
/// # Panics
/// When it does not hold, or there is none of this name.
pub fn hold(name: &str, bytes: &[u8]) {
    let (_, body) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target of this name");
    body(bytes);
}

#[cfg(test)]
mod tests;

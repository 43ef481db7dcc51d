//! The configuration as its users see it: files in a directory of their own, the environment as a value.
#![expect(clippy::unwrap_used, reason = "a helper of a test may end it")]

mod edit;
mod environment;
mod errors;
mod load;
mod support;

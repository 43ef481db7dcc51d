//! The judges of our wire types: the official Rust types and, for the newest ones, the official JSON Schema.
//! Owns how a line is judged and which differences are allowed, each with its reason; the cases are in `cases/`.
//! It refuses to repair: what the official types cannot read, or read and write back differently, is a fault.

mod differences;
#[cfg(feature = "newest")]
mod json_schema;
mod judge;

pub use differences::{DIFFERENCES, Difference, Why};
#[cfg(feature = "newest")]
pub use json_schema::JsonSchema;
pub use judge::Judge;

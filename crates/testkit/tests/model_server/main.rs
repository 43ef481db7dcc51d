//! The scripted model vendor, seen from a raw socket.
#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests abort the test")]

mod client;
mod rules;
mod streams;

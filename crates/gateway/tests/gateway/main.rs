//! The gateway over real sockets.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests abort loudly")]

mod door;
mod lab;
mod life;
mod pairing;
mod streamable;
mod tls;
mod tokens;

//! Who may come in: tokens, pairing codes, and how fast either may be guessed. It refuses without saying why.

mod file;
mod gatekeeper;
mod pairing;
mod secret;
mod throttle;
mod tokens;

pub use file::StateError;
pub(crate) use gatekeeper::{Denied, Gatekeeper, Identity};
pub use pairing::{PairingCode, PairingDesk};
pub use secret::Token;
pub(crate) use throttle::Peer;
pub use tokens::{NewToken, TokenRecord, TokenStore};

//! The other kind of gateway: an OpenClaw Gateway, which speaks of chats and runs, in front of a client that speaks of
//! sessions and prompts. Everything is translated, nothing is thought: no model, no tool, no memory but a ledger of what was told.

mod choices;
mod engine;
mod gateway;
mod history;
mod identity;
mod ledger;
mod options;
mod program;
mod prompt;
mod run;
mod serve;
mod socket;
mod wire;

pub use engine::ProvenanceMode;
pub use identity::IdentityError;
pub use ledger::{Caps, ImportError, Imported, import};
pub use options::{Arguments, OptionsError, Secret};
pub use program::{run, run_import};

/// The directory of the ledger below the state directory.
const LEDGER_DIR: &str = "acp-sessions";

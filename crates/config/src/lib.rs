//! Configuration of the ZeroClaw ACP programs: one TOML file, `ZEROCLAW_a__b` variables over it, defaults under it.
//!
//! The crate reads and edits the configuration file and the stored keys beside it, and nothing else. The environment is a value handed in ([`Env`]), so
//! nothing here looks at the process; it refuses to guess at a misspelt key and never shows a secret.

mod commands;
mod credentials;
mod edit;
mod env;
mod error;
mod file;
mod layer;
mod load;
mod names;
mod nearest;
mod paths;
mod schema;
mod secret;
mod settings;
mod types;
mod value;
mod write;

pub use crate::credentials::{remove_keys, store_key};
pub use crate::edit::{Entry, Origin, get, init, list, set};
pub use crate::env::Env;
pub use crate::error::{ConfigError, Location};
pub use crate::load::{Loaded, load};
pub use crate::names::{AliasError, Family, ModelRef, ModelRefError, check_alias};
pub use crate::paths::{Paths, resolve_paths};
pub use crate::secret::Secret;
pub use crate::types::{
    AcpConfig, AgentConfig, ClientConfig, ClientMcpServers, CommandConfig, Config, ErrorCodes, GatewayConfig, Level,
    ModelConfig, PriceConfig, RiskProfile, RuntimeProfile, SandboxBackend, SandboxConfig, StoreConfig, SyncMode,
    Verdict,
};

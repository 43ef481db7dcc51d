//! The tokens of paired clients: kept as digests in one file that the daemon and the command line share.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{
    file::{StateError, StateFile},
    secret::{Token, TokenDigest, hex},
};
use crate::World;

/// Each token is compared with what a client presents; nobody has so many clients, and a script that pairs in a loop stops here.
const MAX_TOKENS: usize = 1000;

const MAX_NAME: usize = 64;

/// What is known of a token. Not the token itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Eight hexadecimal digits that never change.
    pub id: String,
    /// What a person calls it; no two tokens have the same name.
    pub name: String,
    pub(crate) sha256: TokenDigest,
    /// When it was made, in milliseconds since the epoch.
    pub created_ms: i64,
    /// When it was last used, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_ms: Option<i64>,
    /// When it stops to work; absent means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
}

impl TokenRecord {
    /// Whether it works at this time.
    #[must_use]
    pub fn is_alive(&self, now_ms: i64) -> bool {
        self.expires_ms.is_none_or(|expires| now_ms < expires)
    }
}

/// A token that was just made: the only time that it is shown.
#[derive(Debug)]
pub struct NewToken {
    /// The token.
    pub token: Token,
    /// What is kept of it.
    pub record: TokenRecord,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    #[serde(default)]
    tokens: Vec<TokenRecord>,
}

/// The file of tokens. Every call reads it anew and blocks.
#[derive(Clone, Debug)]
pub struct TokenStore {
    file: StateFile,
}

impl TokenStore {
    /// The store in this configuration directory. Nothing is opened yet.
    #[must_use]
    pub fn in_directory(directory: &Path) -> Self {
        Self { file: StateFile::new(directory.join("tokens.json")) }
    }

    /// The file that has to be looked at to see a change.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// All tokens, the oldest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list(&self) -> Result<Vec<TokenRecord>, StateError> {
        Ok(self.file.read::<Content>()?.unwrap_or_default().tokens)
    }

    /// Makes a token.
    ///
    /// # Errors
    /// The name is taken or unusable, there are too many, or the file cannot be written.
    pub fn create(&self, name: &str, expires_ms: Option<i64>, world: &World) -> Result<NewToken, StateError> {
        let name = checked(name)?;
        self.change(|tokens| {
            if tokens.iter().any(|token| token.name == name) {
                return Err(StateError::NameTaken { name: name.to_owned() });
            }
            add(tokens, name, expires_ms, world)
        })
    }

    /// Makes a token under this name, or under the name with a number where that is taken.
    pub(crate) fn create_numbered(&self, name: &str, world: &World) -> Result<NewToken, StateError> {
        let name = checked(name)?;
        self.change(|tokens| {
            let taken = |wanted: &str| tokens.iter().any(|token| token.name == wanted);
            let numbered = || (2..).map(|number| format!("{name}-{number}")).find(|wanted| !taken(wanted));
            let free = if taken(name) { numbered() } else { None };
            add(tokens, free.as_deref().unwrap_or(name), None, world)
        })
    }

    /// Ends a token, by name or id; connections that were opened with it are cut.
    ///
    /// # Errors
    /// There is none of this name, or the file cannot be written.
    pub fn revoke(&self, name: &str) -> Result<TokenRecord, StateError> {
        self.change(|tokens| {
            let at = position(tokens, name)?;
            Ok(tokens.remove(at))
        })
    }

    /// Puts a new token in the place of an old one, which ends.
    ///
    /// # Errors
    /// There is none of this name, or the file cannot be written.
    pub fn rotate(&self, name: &str, world: &World) -> Result<NewToken, StateError> {
        self.change(|tokens| {
            let at = position(tokens, name)?;
            let old = tokens.remove(at);
            add(tokens, &old.name, old.expires_ms, world)
        })
    }

    /// Notes that a token was used. One that is gone meanwhile stays gone.
    pub(crate) fn touch(&self, id: &str, now_ms: i64) -> Result<(), StateError> {
        self.change(|tokens| {
            if let Some(token) = tokens.iter_mut().find(|token| token.id == id) {
                token.last_used_ms = Some(now_ms);
            }
            Ok(())
        })
    }

    fn change<T>(&self, apply: impl FnOnce(&mut Vec<TokenRecord>) -> Result<T, StateError>) -> Result<T, StateError> {
        let lock = self.file.lock()?;
        let mut content = self.file.read::<Content>()?.unwrap_or_default();
        let result = apply(&mut content.tokens)?;
        self.file.write(&lock, &content)?;
        Ok(result)
    }
}

fn add(
    tokens: &mut Vec<TokenRecord>,
    name: &str,
    expires_ms: Option<i64>,
    world: &World,
) -> Result<NewToken, StateError> {
    if tokens.len() >= MAX_TOKENS {
        return Err(StateError::TooMany { limit: MAX_TOKENS });
    }
    let token = Token::generate(world);
    let record = TokenRecord {
        id: hex(&world.bytes::<4>()),
        name: name.to_owned(),
        sha256: token.digest(),
        created_ms: (world.now_ms)(),
        last_used_ms: None,
        expires_ms,
    };
    tokens.push(record.clone());
    Ok(NewToken { token, record })
}

/// A name wins over an id, because names are what a person chooses.
fn position(tokens: &[TokenRecord], name: &str) -> Result<usize, StateError> {
    let by_name = tokens.iter().position(|token| token.name == name);
    let found = by_name.or_else(|| tokens.iter().position(|token| token.id == name));
    found.ok_or_else(|| StateError::NotFound { name: name.to_owned() })
}

pub(super) fn checked(name: &str) -> Result<&str, StateError> {
    let name = name.trim();
    let usable = !name.is_empty() && name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control);
    if usable { Ok(name) } else { Err(StateError::BadName) }
}

//! One-time pairing codes: the operator's terminal shows one, a client hands it in for a token. The code itself is kept
//! nowhere, only its digest, in a file that the daemon and the command line share.

use std::{fmt, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    file::{StateError, StateFile},
    secret::TokenDigest,
    tokens::{NewToken, TokenStore, checked},
};
use crate::World;

/// Letters and digits that are not taken for one another: 32 of them, so a code of eight has 40 bits.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const LENGTH: usize = 8;

/// After so many wrong codes the right one is void too: with 40 bits, ten tries find it once in 10^11 times.
const MAX_WRONG: u32 = 10;

/// A code in clear. `Debug` does not show it.
pub struct PairingCode(String);

impl PairingCode {
    /// Gives out the code, for the operator's terminal.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PairingCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    sha256: TokenDigest,
    expires_ms: i64,
    /// What the token will be called.
    name: String,
    #[serde(default)]
    wrong: u32,
}

/// Where codes are offered and handed in. There is one at a time; a new one makes the old one void.
#[derive(Clone, Debug)]
pub struct PairingDesk {
    file: StateFile,
}

impl PairingDesk {
    /// The desk in this configuration directory. Nothing is opened yet.
    #[must_use]
    pub fn in_directory(directory: &Path) -> Self {
        Self { file: StateFile::new(directory.join("pairing.json")) }
    }

    /// Offers a new code for a token of this name.
    ///
    /// # Errors
    /// The name is unusable or the file cannot be written.
    pub fn offer(&self, name: &str, ttl_secs: u64, world: &World) -> Result<PairingCode, StateError> {
        let name = checked(name)?.to_owned();
        let random: [u8; LENGTH] = world.bytes();
        let letter = |byte: u8| ALPHABET.get(usize::from(byte & 31)).map_or('A', |letter| char::from(*letter));
        let code: String = random.into_iter().map(letter).collect();
        let ttl_ms = i64::try_from(ttl_secs).unwrap_or(i64::MAX).saturating_mul(1000);
        let offer = Offer {
            sha256: TokenDigest::of(&code),
            expires_ms: (world.now_ms)().saturating_add(ttl_ms),
            name,
            wrong: 0,
        };
        let lock = self.file.lock()?;
        self.file.write(&lock, &offer)?;
        Ok(PairingCode(code))
    }

    /// Hands in a code. `None` when it is wrong, used, void or too late, and nobody is told which.
    pub(crate) fn redeem(
        &self,
        code: &str,
        tokens: &TokenStore,
        world: &World,
    ) -> Result<Option<NewToken>, StateError> {
        let lock = self.file.lock()?;
        let Some(mut offer) = self.file.read::<Offer>()? else { return Ok(None) };
        if (world.now_ms)() >= offer.expires_ms {
            self.file.remove(&lock)?;
            return Ok(None);
        }
        let presented = TokenDigest::of_presented(&normalized(code));
        if !presented.is_some_and(|presented| presented.matches(&offer.sha256)) {
            offer.wrong = offer.wrong.saturating_add(1);
            if offer.wrong >= MAX_WRONG {
                tracing::warn!("too many wrong pairing codes; the code is void");
                self.file.remove(&lock)?;
            } else {
                self.file.write(&lock, &offer)?;
            }
            return Ok(None);
        }
        // First, so that a failure behind it cannot leave a code that works twice.
        self.file.remove(&lock)?;
        tokens.create_numbered(&offer.name, world).map(Some)
    }
}

/// The code as it was shown, however a person typed it.
fn normalized(code: &str) -> String {
    code.chars().filter(|letter| !matches!(letter, ' ' | '-')).map(|letter| letter.to_ascii_uppercase()).collect()
}

//! Tokens and digests: a token is shown once, a digest is kept, and two digests are compared in constant time.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::World;

/// What a token starts with, so that a scanner for leaked secrets can know one.
const PREFIX: &str = "zc_";

/// No token of ours is so long, and nothing longer is hashed.
const MAX_TOKEN: usize = 256;

/// A token in clear: 256 random bits. `Debug` and `Display` do not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Makes a new token.
    #[must_use]
    pub fn generate(world: &World) -> Self {
        let bytes: [u8; 32] = world.bytes();
        Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Gives out the token itself, for the one place that hands it over.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(crate) fn digest(&self) -> TokenDigest {
        TokenDigest::of(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// The SHA-256 of a secret. It is no secret that opens anything, and is not shown either.
#[derive(Clone, Copy)]
pub(crate) struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub(crate) fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// The digest of what a stranger presented.
    pub(crate) fn of_presented(secret: &str) -> Option<Self> {
        (secret.len() <= MAX_TOKEN).then(|| Self::of(secret))
    }

    /// Compares in a time that does not depend on where they differ.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

impl Serialize for TokenDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for TokenDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut bytes = [0; 32];
        let digits = text.as_bytes().chunks(2);
        let pairs =
            digits.map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()));
        let parsed: Option<Vec<u8>> = pairs.collect();
        match parsed {
            Some(parsed) if text.len() == 64 => {
                bytes.copy_from_slice(&parsed);
                Ok(Self(bytes))
            }
            Some(_) | None => Err(serde::de::Error::custom("expected 64 hexadecimal digits")),
        }
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

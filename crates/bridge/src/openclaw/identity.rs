//! Who this bridge is to a gateway: a key of its own, made once, and the token that the gateway gave to it.
//! The files are those of OpenClaw itself, so that an existing state directory can be used. They are readable by their owner only.

use std::{
    fmt, fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom as _, SystemRandom},
    signature::{Ed25519KeyPair, KeyPair as _},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// What comes before the 32 bytes of a private Ed25519 key in PKCS #8 (RFC 8410).
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// What comes before the 32 bytes of a public Ed25519 key.
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The longest identity file that is read.
const MAX_FILE: u64 = 256 * 1024;

/// The role that the bridge has at the gateway.
pub(super) const ROLE: &str = "operator";

/// Why there is no identity.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A file cannot be read or written.
    #[error("`{path}`: {error}", path = .0.display(), error = .1)]
    File(PathBuf, io::Error),
    /// A file is not what it should be.
    #[error("`{}` is no identity of a device; move it away to have a new one made", .0.display())]
    Format(PathBuf),
    /// The machine has no random numbers.
    #[error("no key could be made")]
    Random,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceFile {
    version: u32,
    device_id: String,
    public_key_pem: String,
    private_key_pem: String,
    created_at_ms: u64,
}

/// A device: what signs, and where its tokens are kept.
pub(super) struct Identity {
    key: Ed25519KeyPair,
    id: String,
    public_key: String,
    tokens: PathBuf,
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Identity").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The token that a gateway gave to this device, and what it is good for.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct DeviceToken {
    pub(super) token: String,
    pub(super) scopes: Vec<String>,
}

impl fmt::Debug for DeviceToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DeviceToken").field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads the identity below this directory, or makes one.
    ///
    /// # Errors
    /// Files that cannot be read, written or understood. A file that is not understood is left as it is.
    pub(super) fn open(state_dir: &Path, now_ms: u64) -> Result<Self, IdentityError> {
        let folder = state_dir.join("identity");
        let path = folder.join("device.json");
        let tokens = folder.join("device-auth.json");
        match read_file(&path) {
            Ok(text) => {
                let file: DeviceFile = serde_json::from_str(&text).map_err(|_| IdentityError::Format(path.clone()))?;
                let key = key_of(&file.private_key_pem).ok_or_else(|| IdentityError::Format(path.clone()))?;
                Ok(Self::of(key, tokens))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = Self::make(&folder, &path, tokens, now_ms)?;
                Ok(identity)
            }
            Err(error) => Err(IdentityError::File(path, error)),
        }
    }

    fn make(folder: &Path, path: &Path, tokens: PathBuf, now_ms: u64) -> Result<Self, IdentityError> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| IdentityError::Random)?;
        let key = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| IdentityError::Random)?;
        let identity = Self::of(key, tokens);
        let file = DeviceFile {
            version: 1,
            device_id: identity.id.clone(),
            public_key_pem: pem("PUBLIC KEY", &[&SPKI_HEAD, identity.key.public_key().as_ref()]),
            private_key_pem: pem("PRIVATE KEY", &[&PKCS8_HEAD, &seed]),
            created_at_ms: now_ms,
        };
        let text = serde_json::to_string_pretty(&file).unwrap_or_default();
        make_private_dir(folder).map_err(|error| IdentityError::File(folder.to_owned(), error))?;
        match write_new(path, text.as_bytes()) {
            Ok(()) => Ok(identity),
            // Two bridges that start at once must not be two devices: the first one's key is kept.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let text = read_file(path).map_err(|error| IdentityError::File(path.to_owned(), error))?;
                let file: Option<DeviceFile> = serde_json::from_str(&text).ok();
                let key = file.and_then(|file| key_of(&file.private_key_pem));
                let key = key.ok_or_else(|| IdentityError::Format(path.to_owned()))?;
                Ok(Self::of(key, identity.tokens))
            }
            Err(error) => Err(IdentityError::File(path.to_owned(), error)),
        }
    }

    fn of(key: Ed25519KeyPair, tokens: PathBuf) -> Self {
        let public = key.public_key().as_ref();
        let id = digest(&SHA256, public).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let public_key = URL_SAFE_NO_PAD.encode(public);
        Self { key, id, public_key, tokens }
    }

    /// The device's id: the SHA-256 of its public key.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The public key as the gateway wants it.
    pub(super) fn public_key(&self) -> &str {
        &self.public_key
    }

    /// Signs the fields of a challenge's answer, version 3.
    pub(super) fn sign(&self, fields: &Signed<'_>) -> String {
        URL_SAFE_NO_PAD.encode(self.key.sign(fields.text(&self.id).as_bytes()).as_ref())
    }

    /// The token that the gateway gave to this device, as it is on disk now.
    pub(super) fn token(&self) -> Option<DeviceToken> {
        let file: Value = serde_json::from_str(&read_file(&self.tokens).ok()?).ok()?;
        if file.get("deviceId")?.as_str()? != self.id {
            return None;
        }
        let entry = file.get("tokens")?.get(ROLE)?;
        let scopes = entry.get("scopes")?.as_array()?;
        Some(DeviceToken {
            token: entry.get("token")?.as_str().filter(|token| !token.is_empty())?.to_owned(),
            scopes: scopes.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        })
    }

    /// Keeps the token for the next time; what the file says about other roles stays.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn keep_token(&self, token: &DeviceToken, now_ms: u64) -> io::Result<()> {
        let old = read_file(&self.tokens).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let old = old.filter(|file| file.get("deviceId").and_then(Value::as_str) == Some(&self.id));
        let mut file =
            old.filter(Value::is_object).unwrap_or_else(|| serde_json::json!({ "version": 1, "deviceId": self.id }));
        let entry = serde_json::json!({
            "token": token.token, "role": ROLE, "scopes": token.scopes, "updatedAtMs": now_ms,
        });
        if let Some(object) = file.as_object_mut() {
            let tokens = object.entry("tokens").or_insert_with(|| serde_json::json!({}));
            match tokens.as_object_mut() {
                Some(tokens) => drop(tokens.insert(ROLE.to_owned(), entry)),
                None => *tokens = serde_json::json!({ ROLE: entry }),
            }
        }
        let text = serde_json::to_string_pretty(&file).unwrap_or_default();
        replace(&self.tokens, text.as_bytes())
    }
}

/// What a device signs to come in.
pub(super) struct Signed<'a> {
    pub(super) client: &'a str,
    pub(super) mode: &'a str,
    pub(super) scopes: &'a [String],
    pub(super) signed_at: u64,
    pub(super) token: &'a str,
    pub(super) nonce: &'a str,
    pub(super) platform: &'a str,
}

impl Signed<'_> {
    fn text(&self, device: &str) -> String {
        let Self { client, mode, scopes, signed_at, token, nonce, platform } = self;
        let scopes = scopes.join(",");
        let platform = platform.trim().to_ascii_lowercase();
        // The last field is the family of the device, which a program on a desktop has none of.
        format!("v3|{device}|{client}|{mode}|{ROLE}|{scopes}|{signed_at}|{token}|{nonce}|{platform}|")
    }
}

fn key_of(pem: &str) -> Option<Ed25519KeyPair> {
    let body: String =
        pem.lines().filter(|line| !line.starts_with("-----")).flat_map(|line| line.trim().chars()).collect();
    Ed25519KeyPair::from_pkcs8_maybe_unchecked(&STANDARD.decode(body).ok()?).ok()
}

fn pem(label: &str, parts: &[&[u8]]) -> String {
    // Both keys fit into one line of base64.
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(parts.concat()))
}

fn read_file(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.len() > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long"));
    }
    fs::read_to_string(path)
}

/// Makes a directory that only its owner may enter.
pub(super) fn make_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Options that make a file only its owner may read.
pub(super) fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = private().create_new(true).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

/// Writes a file beside the old one and puts it in its place.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("json.{}", std::process::id()));
    let mut file = private().create(true).truncate(true).open(&beside)?;
    file.write_all(text)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))
}

#[cfg(test)]
mod tests;

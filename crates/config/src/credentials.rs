//! The keys that `zeroclaw login` keeps: a file of their own beside the configuration, readable by its owner only, so that
//! a configuration can be shown and shared. A damaged file is reported and never overwritten.
//!
//! The keyring of the operating system is not used: on Linux it needs a running secret service, which servers, containers
//! and editors over SSH do not have, and its client libraries bring more packages than this whole crate.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toml_edit::{DocumentMut, Item, Table};

use crate::error::{ConfigError, Location};
use crate::file;
use crate::names::ModelRef;
use crate::paths::Paths;
use crate::secret::Secret;
use crate::settings::Source;
use crate::write::Writer;

/// The table of the keys.
const KEYS: &str = "keys";

/// What a new file begins with.
const HEAD: &str = "# Keys stored by `zeroclaw login`; `zeroclaw logout` removes them. Do not share this file.\n";

impl Paths {
    /// Returns where stored keys are kept.
    pub fn credentials_file(&self) -> PathBuf {
        self.config_dir.join("auth.toml")
    }
}

/// Reads every stored key. No file means no keys.
pub(crate) fn read(paths: &Paths) -> Result<BTreeMap<ModelRef, Secret>, ConfigError> {
    let mut keys = BTreeMap::new();
    let Some((source, document)) = open(paths)? else { return Ok(keys) };
    let Some(table) = document.get(KEYS) else { return Ok(keys) };
    let table = table.as_table_like().ok_or_else(|| wrong(&source, KEYS, "a table", table.type_name()))?;
    for (name, item) in table.iter() {
        let key = item.as_str().ok_or_else(|| wrong(&source, name, "a string", item.type_name()))?;
        // A reference that this version does not know belongs to another one.
        if let Ok(reference) = name.parse::<ModelRef>() {
            keys.insert(reference, Secret::new(key));
        }
    }
    Ok(keys)
}

/// Stores the key of a model in the place of an earlier one.
pub fn store_key(paths: &Paths, model: &ModelRef, key: &Secret) -> Result<(), ConfigError> {
    let writer = Writer::open(&paths.credentials_file())?;
    let (source, mut document) = opened(paths, open(paths)?);
    let keys = document.entry(KEYS).or_insert(Item::Table(Table::new()));
    let found = keys.type_name();
    let keys = keys.as_table_like_mut().ok_or_else(|| wrong(&source, KEYS, "a table", found))?;
    keys.insert(&model.to_string(), toml_edit::value(key.expose()));
    writer.replace_private(document.to_string().as_bytes())
}

/// Removes the stored keys of the models that are meant, and says which those were. Where there are none nothing is written.
pub fn remove_keys(paths: &Paths, meant: impl Fn(&ModelRef) -> bool) -> Result<Vec<ModelRef>, ConfigError> {
    if open(paths)?.is_none() {
        return Ok(Vec::new());
    }
    let writer = Writer::open(&paths.credentials_file())?;
    let removed: Vec<ModelRef> = read(paths)?.into_keys().filter(meant).collect();
    if removed.is_empty() {
        return Ok(removed);
    }
    let (_, mut document) = opened(paths, open(paths)?);
    if let Some(keys) = document.get_mut(KEYS).and_then(Item::as_table_like_mut) {
        for reference in &removed {
            keys.remove(&reference.to_string());
        }
    }
    writer.replace_private(document.to_string().as_bytes())?;
    Ok(removed)
}

fn open(paths: &Paths) -> Result<Option<(Source, DocumentMut)>, ConfigError> {
    let path = paths.credentials_file();
    let Some(text) = file::read(&path)? else { return Ok(None) };
    let source = Source { path, text };
    match source.text.parse() {
        Ok(document) => Ok(Some((source, document))),
        Err(error) => Err(file::syntax_error(&source, &error)),
    }
}

/// The document that is changed: the one that is there, else a new one.
fn opened(paths: &Paths, found: Option<(Source, DocumentMut)>) -> (Source, DocumentMut) {
    found.unwrap_or_else(|| {
        let mut document = DocumentMut::new();
        let mut keys = Table::new();
        keys.decor_mut().set_prefix(HEAD);
        document.insert(KEYS, Item::Table(keys));
        (Source { path: paths.credentials_file(), text: String::new() }, document)
    })
}

fn wrong(source: &Source, key: &str, expected: &str, found: &str) -> ConfigError {
    ConfigError::BadValue {
        at: Box::new(Location::File { path: source.path.clone(), line: 1, column: 1 }),
        key: key.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}

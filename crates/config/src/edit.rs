//! What `zeroclaw config` does: show a key, list all, change one in the file, write a first file. A change keeps every
//! comment, and one that would make the file unusable is refused before anything is written.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use toml_edit::{Decor, DocumentMut, Item, Table, TableLike, Value as Toml};

use crate::env::Env;
use crate::error::{ConfigError, Location};
use crate::file::{self, BYTE_ORDER_MARK, INNER_PATH};
use crate::layer::{expand_list, resolve_path};
use crate::load::{Layers, layers, load_layers};
use crate::names::{Family, ModelRef, check_alias};
use crate::nearest::nearest;
use crate::paths::Paths;
use crate::schema::{CLIENTS_TABLE, Key, PRICE_TABLE, Section, TOP_LEVEL, family_names};
use crate::settings::{Place, Source};
use crate::value::{Kind, Value};
use crate::write::Writer;

/// Holds one key with its effective value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The whole key.
    pub key: String,
    /// The value as it would be typed, `***` for a secret; `None` when the key is left out and has no default.
    pub value: Option<String>,
    /// Where the value came from.
    pub origin: Origin,
}

impl fmt::Display for Entry {
    /// Writes one line, `key = value (origin)`; control characters are escaped so that no value can draw on a terminal.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} =", self.key)?;
        if let Some(value) = &self.value {
            formatter.write_str(" ")?;
            for letter in value.chars() {
                match letter.is_control() {
                    true => write!(formatter, "{}", letter.escape_debug())?,
                    false => write!(formatter, "{letter}")?,
                }
            }
        }
        write!(formatter, " ({})", self.origin)
    }
}

/// Says where an effective value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The configuration file.
    File,
    /// An environment variable.
    Env {
        /// Its name.
        variable: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File => formatter.write_str("file"),
            Self::Env { variable } => write!(formatter, "env {variable}"),
        }
    }
}

/// Shows one key.
pub fn get(paths: &Paths, env: &Env, key: &str) -> Result<Entry, ConfigError> {
    let (section, key) = parse_key(key)?;
    let layers = load_layers(paths, env)?;
    if !section.is_implied() && !layers.settings.sections.contains_key(&section) {
        return Err(not_configured(&layers, &section, key));
    }
    Ok(entry(&layers, env, &section, key))
}

/// Lists every key that has a value, in the order of sections.
pub fn list(paths: &Paths, env: &Env) -> Result<Vec<Entry>, ConfigError> {
    let layers = load_layers(paths, env)?;
    let always = [Section::Root, Section::Acp, Section::Autonomy, Section::Gateway, Section::Sandbox, Section::Store];
    let sections: BTreeSet<&Section> = always.iter().chain(layers.settings.sections.keys()).collect();
    let keys = sections.into_iter().flat_map(|section| section.keys().iter().map(move |key| (section, key)));
    let entries = keys.map(|(section, key)| entry(&layers, env, section, key));
    Ok(entries.filter(|entry| entry.value.is_some()).collect())
}

/// Changes one key in the file, which is made if it is missing.
///
/// The value is read by the type of the key. The file that would come out is checked first; when it is not usable it is
/// not written. The environment plays no part in that.
pub fn set(paths: &Paths, key: &str, value: &str) -> Result<(), ConfigError> {
    let (section, key) = parse_key(key)?;
    let value = key.kind.read_text(value).map_err(|wrong| ConfigError::BadValue {
        at: Box::new(Location::Request),
        key: section.path(key.name),
        expected: wrong.expected,
        found: wrong.found,
    })?;
    // Once without the lock, so that a refused change leaves not even a directory behind.
    changed(paths, &section, key, &value)?;
    let writer = Writer::open(&paths.config_file)?;
    writer.replace(&changed(paths, &section, key, &value)?)
}

/// Writes a first configuration file with every common key in a comment. An existing file stays as it is.
pub fn init(paths: &Paths) -> Result<(), ConfigError> {
    let exists = || ConfigError::AlreadyExists { path: paths.config_file.clone() };
    if fs::metadata(&paths.config_file).is_ok() {
        return Err(exists());
    }
    let writer = Writer::open(&paths.config_file)?;
    if writer.target_exists() {
        return Err(exists());
    }
    writer.replace(STARTER.as_bytes())
}

/// Finds section and key of a dotted name; `agents."a.b".enabled` and `agents.a.b.enabled` mean the same.
fn parse_key(text: &str) -> Result<(Section, &'static Key), ConfigError> {
    let unknown = |nearest: Option<String>, known: Vec<String>| ConfigError::UnknownKey {
        at: Box::new(Location::Request),
        key: text.to_owned(),
        nearest,
        known,
    };
    let parts = toml_edit::Key::parse(text).map_err(|_| unknown(None, vec![]))?;
    let parts: Vec<&str> = parts.iter().map(toml_edit::Key::get).collect();
    let first = parts.first().copied().unwrap_or_default();
    if !TOP_LEVEL.contains(&first) {
        let near = nearest(first, TOP_LEVEL).map(|ours| text.replacen(first, ours, 1));
        return Err(unknown(near, TOP_LEVEL.map(str::to_owned).to_vec()));
    }
    let incomplete = |pattern: &str| unknown(None, vec![pattern.to_owned()]);
    let (section, name) = match parts.as_slice() {
        ["data_dir"] => (Section::Root, "data_dir"),
        ["acp", CLIENTS_TABLE, name @ .., key] if !name.is_empty() => (Section::Client(name.join(".")), *key),
        ["acp", CLIENTS_TABLE, ..] => return Err(incomplete("acp.clients.<name>.<key>")),
        ["acp", name] => (Section::Acp, *name),
        ["autonomy", name] => (Section::Autonomy, *name),
        ["sandbox", name] => (Section::Sandbox, *name),
        ["gateway", name] => (Section::Gateway, *name),
        ["store", name] => (Section::Store, *name),
        ["agents", alias @ .., name] if !alias.is_empty() => (Section::Agent(alias.join(".")), *name),
        ["risk_profiles", alias @ .., name] if !alias.is_empty() => (Section::Risk(alias.join(".")), *name),
        ["runtime_profiles", alias @ .., name] if !alias.is_empty() => (Section::Runtime(alias.join(".")), *name),
        ["providers", "models", family, alias @ .., name] if !alias.is_empty() => {
            let Some(known) = Family::from_name(family) else {
                let near = nearest(family, family_names()).map(|ours| text.replacen(family, ours, 1));
                return Err(unknown(near, family_names().map(str::to_owned).collect()));
            };
            match alias {
                [alias @ .., PRICE_TABLE] if !alias.is_empty() => {
                    (Section::Price(ModelRef { family: known, alias: alias.join(".") }), *name)
                }
                _ => (Section::Model(ModelRef { family: known, alias: alias.join(".") }), *name),
            }
        }
        ["agents" | "risk_profiles" | "runtime_profiles", ..] => {
            return Err(incomplete(&format!("{first}.<name>.<key>")));
        }
        ["providers", ..] => return Err(incomplete("providers.models.<family>.<name>.<key>")),
        [..] => {
            let keys = |section: Section| section.keys().iter().map(|key| section.path(key.name)).collect();
            return Err(match first {
                "acp" => unknown(None, keys(Section::Acp)),
                "autonomy" => unknown(None, keys(Section::Autonomy)),
                "sandbox" => unknown(None, keys(Section::Sandbox)),
                "gateway" => unknown(None, keys(Section::Gateway)),
                "store" => unknown(None, keys(Section::Store)),
                _ => unknown(None, keys(Section::Root)),
            });
        }
    };
    let alias = match &section {
        Section::Agent(alias) | Section::Client(alias) | Section::Risk(alias) | Section::Runtime(alias) => {
            Some(alias.as_str())
        }
        Section::Model(model) | Section::Price(model) => Some(model.alias.as_str()),
        Section::Root | Section::Acp | Section::Autonomy | Section::Gateway | Section::Sandbox | Section::Store => None,
    };
    if let Some(alias) = alias {
        let at = || Box::new(Location::Request);
        check_alias(alias).map_err(|source| ConfigError::BadAlias { at: at(), key: text.to_owned(), source })?;
    }
    match section.key(name) {
        Some(key) => Ok((section, key)),
        None => {
            let near = nearest(name, section.keys().iter().map(|key| key.name));
            let known = section.keys().iter().map(|key| section.path(key.name)).collect();
            Err(unknown(near.map(|name| section.path(name)), known))
        }
    }
}

fn not_configured(layers: &Layers, section: &Section, key: &Key) -> ConfigError {
    let owner = |section: &Section| section.path("");
    let kind = std::mem::discriminant(section);
    let alike = layers.settings.sections.keys().filter(|other| std::mem::discriminant(*other) == kind);
    let known: Vec<(String, String)> = alike.map(|other| (owner(other), other.path(key.name))).collect();
    let near = nearest(&owner(section), known.iter().map(|(owner, _)| owner.as_str()));
    ConfigError::UnknownKey {
        at: Box::new(Location::Request),
        key: section.path(key.name),
        nearest: known.iter().find(|(owner, _)| Some(owner.as_str()) == near).map(|(_, path)| path.clone()),
        known: known.iter().map(|(_, path)| path.clone()).collect(),
    }
}

fn entry(layers: &Layers, env: &Env, section: &Section, key: &Key) -> Entry {
    let (value, origin) = match layers.settings.get(section, key.name) {
        Some(setting) => {
            let shown = match (&setting.value, key.kind) {
                (Value::Text(text), Kind::Path) => {
                    resolve_path(text, &setting.place, &layers.source, env).to_string_lossy().into_owned()
                }
                (Value::List(words), Kind::Paths) => Kind::Paths.show(&Value::List(expand_list(words, env))),
                (value, kind) => kind.show(value),
            };
            let origin = match &setting.place {
                Place::Byte(_) => Origin::File,
                Place::Variable(name) => Origin::Env { variable: name.clone() },
            };
            (Some(shown), origin)
        }
        None => (default_of(layers, section, key), Origin::Default),
    };
    let origin = match (section, &origin) {
        // The older variable is no form of the key, so it is no setting either.
        (Section::Root, Origin::Default) if layers.loaded.config.data_dir.is_some() => {
            Origin::Env { variable: "ZEROCLAW_WORKSPACE".to_owned() }
        }
        (_, _) => origin,
    };
    Entry { key: section.path(key.name), value, origin }
}

fn default_of(layers: &Layers, section: &Section, key: &Key) -> Option<String> {
    let path = match (section, key.kind) {
        (Section::Root, Kind::Path) => layers.loaded.paths.data_dir.clone(),
        (Section::Agent(alias), Kind::Path) => layers.loaded.agent_workspace(alias),
        (_, _) => return key.default.map(str::to_owned),
    };
    Some(path.to_string_lossy().into_owned())
}

/// Makes the content that the file would have, and makes sure that it loads.
fn changed(paths: &Paths, section: &Section, key: &Key, value: &Value) -> Result<Vec<u8>, ConfigError> {
    let old = file::read(&paths.config_file)?.unwrap_or_default();
    let marked = fs::read(&paths.config_file).is_ok_and(|bytes| bytes.starts_with(BYTE_ORDER_MARK));
    let windows_lines = old.contains("\r\n") && !old.replace("\r\n", "").contains('\n');
    let source = Source { path: paths.config_file.clone(), text: old };
    let mut document: DocumentMut = source.text.parse().map_err(|error| file::syntax_error(&source, &error))?;
    put(&mut document, section, key, value.to_toml()).map_err(|found| ConfigError::BadValue {
        at: Box::new(Location::Request),
        key: section.path(key.name),
        expected: "a table around it".to_owned(),
        found: found.to_owned(),
    })?;
    let mut new = document.to_string();
    if windows_lines {
        new = new.replace("\r\n", "\n").replace('\n', "\r\n");
    }
    layers(paths, &Env::default(), new.clone(), true)?;
    let mark = if marked { BYTE_ORDER_MARK } else { &[] };
    Ok([mark, new.as_bytes()].concat())
}

/// Puts a value into the document; fails with the type of what stands where a table is needed.
fn put(document: &mut DocumentMut, section: &Section, key: &Key, value: Toml) -> Result<(), &'static str> {
    keep_first_comment(document, section);
    let mut table: &mut dyn TableLike = document.as_table_mut();
    let tables = section.tables();
    for (depth, name) in tables.iter().enumerate() {
        let missing = !table.contains_key(name);
        if missing {
            let mut new = Table::new();
            // Only the innermost table gets a header of its own.
            new.set_implicit(depth + 1 < tables.len());
            table.insert(name, Item::Table(new));
        }
        let Some(item) = table.get_mut(name) else {
            return Err("nothing");
        };
        let found = item.type_name();
        table = item.as_table_like_mut().ok_or(found)?;
    }
    let nested = key.kind.is_path() && table.get(key.name).is_some_and(Item::is_table_like);
    match table.get_mut(key.name).and_then(Item::as_table_like_mut).filter(|_| nested) {
        Some(inner) => replace(inner, INNER_PATH, value),
        None => replace(table, key.name, value),
    }
    Ok(())
}

/// Replaces a value and keeps the spaces and the comment around it.
fn replace(table: &mut dyn TableLike, name: &str, mut value: Toml) {
    match table.get_mut(name) {
        Some(Item::Value(old)) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        Some(item) => *item = Item::Value(value),
        None => {
            table.insert(name, Item::Value(value));
        }
    }
}

/// Keeps a comment at the top of the file there, when what is added would be written before what the comment hangs on.
fn keep_first_comment(document: &mut DocumentMut, section: &Section) {
    if document.is_empty() {
        // The whole file is comments: they belong before what is added, not after it.
        let comments = document.trailing().as_str().unwrap_or_default().to_owned();
        if comments.trim().is_empty() {
            return;
        }
        document.set_trailing("");
        let separator = if comments.ends_with('\n') { "\n" } else { "\n\n" };
        let prefix = format!("{comments}{separator}");
        match section.tables().as_slice() {
            [] => add_first(document, &prefix),
            [path @ .., last] => {
                let mut table = document.as_table_mut();
                for name in path {
                    let mut new = Table::new();
                    new.set_implicit(true);
                    let Some(next) = table.entry(name).or_insert(Item::Table(new)).as_table_mut() else {
                        return;
                    };
                    table = next;
                }
                let mut new = Table::new();
                *new.decor_mut() = Decor::new(prefix, "");
                table.insert(last, Item::Table(new));
            }
        }
        return;
    }
    // A key that stands at the root already carries the comment, and what is added comes after it.
    let at_root = |item: &Item| item.is_value() || item.as_table().is_some_and(Table::is_dotted);
    if !matches!(section, Section::Root) || document.iter().any(|(_, item)| at_root(item)) {
        return;
    }
    let Some(first) = first_table(document.as_table_mut()) else {
        return;
    };
    let comments = first.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default().to_owned();
    // A blank line divides what is said about the file from what is said about its first table.
    let (head, rest) = match comments.rfind("\n\n") {
        Some(at) => comments.split_at(at + 2),
        None => (comments.as_str(), ""),
    };
    let (head, rest) = (head.to_owned(), format!("\n{rest}"));
    first.decor_mut().set_prefix(rest);
    add_first(document, &head);
}

/// Adds the key of the root with a comment before it; its value follows.
fn add_first(document: &mut DocumentMut, prefix: &str) {
    document.insert("data_dir", toml_edit::value(""));
    if let Some(mut key) = document.key_mut("data_dir") {
        key.leaf_decor_mut().set_prefix(prefix);
    }
}

/// Finds the table whose header comes first in the file.
fn first_table(table: &mut Table) -> Option<&mut Table> {
    let mut first: Option<&mut Table> = None;
    for (_, item) in table.iter_mut() {
        let found = match item {
            Item::Table(child) => match child.is_implicit() {
                true => first_table(child),
                false => Some(child),
            },
            Item::ArrayOfTables(children) => children.get_mut(0),
            Item::None | Item::Value(_) => None,
        };
        let Some(found) = found else {
            continue;
        };
        match &first {
            Some(known) if known.position() <= found.position() => {}
            Some(_) | None => first = Some(found),
        }
    }
    first
}

/// The first configuration file: usable as it stands, with what most people change next to it.
const STARTER: &str = include_str!("starter.toml");

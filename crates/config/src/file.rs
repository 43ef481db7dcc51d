//! Reads the configuration file and collects the settings in it. It knows which tables are ours; what is not ours is
//! named and otherwise left alone, what is ours but misspelt is refused with its place.

use std::fs;
use std::io;
use std::path::Path;

use toml_edit::{Document, Item, TableLike};

use crate::commands::commands;
use crate::error::{ConfigError, Location};
use crate::names::{Family, ModelRef, check_alias};
use crate::nearest::nearest;
use crate::schema::{CLIENTS_TABLE, COMMANDS, Key, PRICE_TABLE, Section, family_names, quoted};
use crate::settings::{Place, Setting, Settings, Source, line_and_column};
use crate::value::Kind;

/// Reads the text of the file without a byte order mark; `None` when there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, ConfigError> {
    let failed = |source| ConfigError::Io { action: "read", path: path.to_path_buf(), source };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // Opening a pipe would wait for a writer, so the kind is looked at before.
    if !metadata.is_file() {
        let found = if metadata.is_dir() { "a directory" } else { "a device or pipe" };
        return Err(ConfigError::NotAFile { path: path.to_path_buf(), found });
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(ConfigError::TooLarge { path: path.to_path_buf(), limit: MAX_FILE_BYTES });
    }
    let mut bytes = fs::read(path).map_err(failed)?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let (line, column) = line_and_column(error.as_bytes(), error.utf8_error().valid_up_to());
            Err(ConfigError::Syntax {
                at: Box::new(Location::File { path: path.to_path_buf(), line, column }),
                message: "invalid byte, expected UTF-8 text".to_owned(),
            })
        }
    }
}

/// Parses the file and collects its settings.
pub(crate) fn collect(source: &Source) -> Result<Settings, ConfigError> {
    let document = Document::parse(source.text.as_str()).map_err(|error| syntax_error(source, &error))?;
    let mut walk = Walk { source, settings: Settings::default() };
    walk.root(document.as_table())?;
    Ok(walk.settings)
}

/// Makes our error of one of the TOML parser: place and reason, without the line itself, which may hold a key.
pub(crate) fn syntax_error(source: &Source, error: &toml_edit::TomlError) -> ConfigError {
    ConfigError::Syntax { at: source.locate(&Place::start(error.span())), message: error.message().to_owned() }
}

struct Walk<'a> {
    source: &'a Source,
    settings: Settings,
}

impl Walk<'_> {
    fn root(&mut self, root: &dyn TableLike) -> Result<(), ConfigError> {
        for (name, item) in root.iter() {
            let at = place(root, name, item);
            match name {
                "acp" => self.section(&Section::Acp, item, &at)?,
                "autonomy" => self.section(&Section::Autonomy, item, &at)?,
                "sandbox" => self.section(&Section::Sandbox, item, &at)?,
                "gateway" => self.section(&Section::Gateway, item, &at)?,
                "store" => self.section(&Section::Store, item, &at)?,
                "agents" => self.named("agents", Section::Agent, item, &at)?,
                "risk_profiles" => self.named("risk_profiles", Section::Risk, item, &at)?,
                "runtime_profiles" => self.named("runtime_profiles", Section::Runtime, item, &at)?,
                "providers" => self.providers(item, &at)?,
                "data_dir" => self.value(&Section::Root, name, item, &at)?,
                _ => {
                    // Other programs own whole tables here, some one letter from ours; a lone value is only ever ours.
                    let ours = nearest(name, ["data_dir"]).filter(|_| !item.is_table_like());
                    if let Some(ours) = ours {
                        return Err(self.unknown(&at, quoted(name), Some(ours), []));
                    }
                    self.settings.ignored.push(quoted(name));
                }
            }
        }
        Ok(())
    }

    fn providers(&mut self, item: &Item, at: &Place) -> Result<(), ConfigError> {
        let providers = self.table("providers", item, at)?;
        for (name, item) in providers.iter() {
            let at = place(providers, name, item);
            match (name, nearest(name, ["models"])) {
                ("models", _) => self.families(item, &at)?,
                (_, Some(ours)) => {
                    return Err(self.unknown(&at, format!("providers.{}", quoted(name)), Some(ours), []));
                }
                (_, None) => self.settings.ignored.push(format!("providers.{}", quoted(name))),
            }
        }
        Ok(())
    }

    fn families(&mut self, item: &Item, at: &Place) -> Result<(), ConfigError> {
        let families = self.table("providers.models", item, at)?;
        for (name, item) in families.iter() {
            let at = place(families, name, item);
            let path = format!("providers.models.{}", quoted(name));
            match (Family::from_name(name), nearest(name, family_names())) {
                (Some(family), _) => {
                    self.named(&path, |alias| Section::Model(ModelRef { family, alias }), item, &at)?;
                }
                (None, Some(ours)) => return Err(self.unknown(&at, path, Some(ours), [])),
                (None, None) => self.settings.ignored.push(path),
            }
        }
        Ok(())
    }

    fn named(
        &mut self,
        path: &str,
        section: impl Fn(String) -> Section,
        item: &Item,
        at: &Place,
    ) -> Result<(), ConfigError> {
        let table = self.table(path, item, at)?;
        for (alias, item) in table.iter() {
            let at = place(table, alias, item);
            check_alias(alias).map_err(|source| ConfigError::BadAlias {
                at: self.source.locate(&at),
                key: format!("{path}.{alias:?}"),
                source,
            })?;
            self.section(&section(alias.to_owned()), item, &at)?;
        }
        Ok(())
    }

    fn section(&mut self, section: &Section, item: &Item, at: &Place) -> Result<(), ConfigError> {
        let path = section.tables().into_iter().map(quoted).collect::<Vec<_>>().join(".");
        let table = self.table(&path, item, at)?;
        self.settings.open(section);
        for (name, item) in table.iter() {
            let at = place(table, name, item);
            match section {
                Section::Acp if name == CLIENTS_TABLE => {
                    self.named("acp.clients", Section::Client, item, &at)?;
                }
                Section::Model(model) if name == PRICE_TABLE => {
                    self.section(&Section::Price(model.clone()), item, &at)?;
                }
                Section::Risk(_) | Section::Autonomy if name == COMMANDS => {
                    let rules = commands(self.source, &section.path(COMMANDS), item, &at)?;
                    self.settings.commands.insert(section.clone(), rules);
                }
                _ => self.value(section, name, item, &at)?,
            }
        }
        Ok(())
    }

    fn value(&mut self, section: &Section, name: &str, item: &Item, at: &Place) -> Result<(), ConfigError> {
        let Some(key) = section.key(name) else {
            return self.stranger(section, name, at);
        };
        let item = self.inner_path(section, key, item);
        let Some(item) = item else {
            return Ok(());
        };
        let Some(value) = item.as_value() else {
            return Err(ConfigError::BadValue {
                at: self.source.locate(at),
                key: section.path(key.name),
                expected: key.kind.expected(),
                found: item.type_name().to_owned(),
            });
        };
        let place = Place::start(value.span());
        let value = key.kind.read_toml(value).map_err(|wrong| self.source.bad_value(&place, section, key, wrong))?;
        self.settings.put(section, Setting { key, value, place });
        Ok(())
    }

    /// Files of ZeroClaw 0.8 may have the workspace of an agent as a table with a `path`.
    fn inner_path<'i>(&mut self, section: &Section, key: &Key, item: &'i Item) -> Option<&'i Item> {
        let table = match (key.kind, item.as_table_like()) {
            (Kind::Path, Some(table)) => table,
            (_, _) => return Some(item),
        };
        for (name, _) in table.iter().filter(|(name, _)| *name != INNER_PATH) {
            self.settings.ignored.push(format!("{}.{}", section.path(key.name), quoted(name)));
        }
        table.get(INNER_PATH)
    }

    fn stranger(&mut self, section: &Section, name: &str, at: &Place) -> Result<(), ConfigError> {
        let known = || section.keys().iter().map(|key| key.name);
        let ours = nearest(name, known()).filter(|_| !section.strangers().contains(&name));
        let path = section.path(&quoted(name));
        if section.is_closed() {
            return Err(self.unknown(at, path, ours, known()));
        }
        if ours.is_some() {
            return Err(self.unknown(at, path, ours, []));
        }
        self.settings.ignored.push(path);
        Ok(())
    }

    fn table<'i>(&self, path: &str, item: &'i Item, at: &Place) -> Result<&'i dyn TableLike, ConfigError> {
        item.as_table_like().ok_or_else(|| ConfigError::BadValue {
            at: self.source.locate(at),
            key: path.to_owned(),
            expected: "a table".to_owned(),
            found: item.type_name().to_owned(),
        })
    }

    fn unknown(
        &self,
        at: &Place,
        key: String,
        nearest: Option<&str>,
        known: impl IntoIterator<Item = &'static str>,
    ) -> ConfigError {
        ConfigError::UnknownKey {
            at: self.source.locate(at),
            key,
            nearest: nearest.map(str::to_owned),
            known: known.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// Finds where a name stands in its table.
pub(crate) fn place(table: &dyn TableLike, name: &str, item: &Item) -> Place {
    Place::start(table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span()))
}

/// The name of the path inside a table that stands for it.
pub(crate) const INNER_PATH: &str = "path";

/// Editors on some systems put it at the start of a file.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A hundred times the largest configuration known; a larger file is not read, whatever it is.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

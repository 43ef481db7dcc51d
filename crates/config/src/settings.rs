//! The settings as they are collected from file and environment, each with the place it came from, before they are typed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{ConfigError, Location};
use crate::schema::{Key, Section};
use crate::types::CommandConfig;
use crate::value::{Mismatch, Value};

/// Holds the text of the configuration file, without a byte order mark. It may hold keys, so nothing here prints it.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    /// Turns a place into what a person can find.
    pub(crate) fn locate(&self, place: &Place) -> Box<Location> {
        Box::new(match place {
            Place::Byte(at) => {
                let (line, column) = line_and_column(self.text.as_bytes(), *at);
                Location::File { path: self.path.clone(), line, column }
            }
            Place::Variable(name) => Location::Variable { name: name.clone() },
        })
    }

    /// Returns the directory that relative paths in the file start from.
    pub(crate) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Makes an error of a value that does not fit.
    pub(crate) fn bad_value(&self, place: &Place, section: &Section, key: &Key, mismatch: Mismatch) -> ConfigError {
        let at = match (place, mismatch.span) {
            (Place::Byte(_), Some(span)) => self.locate(&Place::Byte(span.start)),
            (Place::Byte(_) | Place::Variable(_), _) => self.locate(place),
        };
        ConfigError::BadValue { at, key: section.path(key.name), expected: mismatch.expected, found: mismatch.found }
    }
}

/// Says where a setting stands, cheaply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this byte of the file.
    Byte(usize),
    /// In this variable.
    Variable(String),
}

impl Place {
    /// Takes the start of a span; something without one stands at the start of the file.
    pub(crate) fn start(span: Option<Range<usize>>) -> Self {
        Self::Byte(span.map_or(0, |span| span.start))
    }
}

/// Holds one setting.
pub(crate) struct Setting {
    pub(crate) key: &'static Key,
    pub(crate) value: Value,
    pub(crate) place: Place,
}

/// Holds every setting that was found, by section and key.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) sections: BTreeMap<Section, BTreeMap<&'static str, Setting>>,
    /// The rules about commands, by risk profile.
    pub(crate) commands: BTreeMap<Section, Vec<CommandConfig>>,
    /// Sections, keys and variables that are not ours, in the order in which they were met.
    pub(crate) ignored: Vec<String>,
}

impl Settings {
    /// Notes that a section exists, with or without keys.
    pub(crate) fn open(&mut self, section: &Section) {
        self.sections.entry(section.clone()).or_default();
    }

    /// Puts a setting over whatever an earlier layer said. A blank text takes back what the earlier layer said.
    pub(crate) fn put(&mut self, section: &Section, setting: Setting) {
        let keys = self.sections.entry(section.clone()).or_default();
        if setting.value.is_blank() {
            keys.remove(setting.key.name);
        } else {
            keys.insert(setting.key.name, setting);
        }
    }

    /// Finds a setting.
    pub(crate) fn get(&self, section: &Section, name: &str) -> Option<&Setting> {
        self.sections.get(section)?.get(name)
    }
}

/// Counts line and column of a byte from one, the column in characters.
pub(crate) fn line_and_column(text: &[u8], at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let column = 1 + String::from_utf8_lossy(before.get(start..).unwrap_or_default()).chars().count();
    (line, column)
}

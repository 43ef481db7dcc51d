//! The documentation and the table of keys say the same.

use std::collections::BTreeSet;

use super::{OPTIONAL_COUNT, Section};
use crate::names::{Family, ModelRef};
use crate::value::Kind;

const DOCUMENT: &str = include_str!("../../../../docs/configuration.md");

fn row(section: &Section, key: &super::Key) -> String {
    let kind = match key.kind {
        Kind::Text => "string".to_owned(),
        Kind::Path => "path".to_owned(),
        Kind::Uri => "address".to_owned(),
        Kind::Secret => "secret".to_owned(),
        Kind::Flag => "boolean".to_owned(),
        Kind::Whole { min, max } => format!("whole number, {min} to {max}"),
        Kind::Number { min, max } => format!("number, {min} to {max}"),
        Kind::List => "list".to_owned(),
        Kind::Paths => "list of paths".to_owned(),
        Kind::Choice(words) => format!("`{}`", words.join("`, `")),
    };
    let default = key.default.map_or("–".to_owned(), |default| format!("`{default}`"));
    let path = section.path(key.name).replace(".custom.name.", ".<family>.<name>.").replace(".name.", ".<name>.");
    format!("| `{path}` | {kind} | {default} |")
}

#[test]
fn every_key_is_documented_and_nothing_else() {
    let name = || "name".to_owned();
    let sections = [
        Section::Root,
        Section::Acp,
        Section::Client(name()),
        Section::Agent(name()),
        Section::Autonomy,
        Section::Gateway,
        Section::Model(ModelRef { family: Family::Custom, alias: name() }),
        Section::Price(ModelRef { family: Family::Custom, alias: name() }),
        Section::Risk(name()),
        Section::Runtime(name()),
        Section::Sandbox,
        Section::Store,
    ];
    let expect: BTreeSet<String> =
        sections.iter().flat_map(|section| section.keys().iter().map(move |key| row(section, key))).collect();
    let rows = DOCUMENT.lines().filter(|line| line.starts_with("| `") && line.matches(" | ").count() == 3);
    let found: BTreeSet<String> = rows.map(|row| row.rsplitn(2, " | ").last().unwrap().to_owned() + " |").collect();
    assert_eq!(found, expect);
}

#[test]
fn every_default_fits_its_key() {
    for section in [
        Section::Acp,
        Section::Agent(String::new()),
        Section::Autonomy,
        Section::Gateway,
        Section::Sandbox,
        Section::Store,
    ] {
        for key in section.keys() {
            if let Some(default) = key.default {
                let value = key.kind.read_text(default).unwrap();
                assert_eq!(key.kind.show(&value), default, "{}", section.path(key.name));
            }
        }
    }
    assert!(OPTIONAL_COUNT.read_text("0").is_ok());
}

//! The rules about commands in a risk profile: a list of tables, read as they stand. Whether a pattern makes sense is for
//! whoever judges commands to say.

use toml_edit::{Item, TableLike};

use crate::error::ConfigError;
use crate::file::place;
use crate::nearest::nearest;
use crate::settings::{Place, Source};
use crate::types::{CommandConfig, Verdict};

/// How many rules a profile has at most: each is compared with every command.
const MAX_RULES: usize = 1_000;

/// How many examples a rule has at most.
const MAX_EXAMPLES: usize = 100;

/// The keys of a rule.
const KEYS: [&str; 5] = ["command", "decision", "match", "not_match", "network"];

/// Reads `[[….commands]]`, or the same as an array of inline tables.
pub(crate) fn commands(
    source: &Source,
    path: &str,
    item: &Item,
    at: &Place,
) -> Result<Vec<CommandConfig>, ConfigError> {
    let wrong = |at: &Place, found: &str| ConfigError::BadValue {
        at: source.locate(at),
        key: path.to_owned(),
        expected: format!("at most {MAX_RULES} tables with `command` and `decision`"),
        found: found.to_owned(),
    };
    let mut rules = Vec::new();
    if let Some(tables) = item.as_array_of_tables() {
        for table in tables.iter() {
            let at = table.span().map_or_else(|| at.clone(), |span| Place::start(Some(span)));
            rules.push(rule(source, path, table, &at)?);
        }
    } else if let Some(array) = item.as_array() {
        for value in array.iter() {
            let at = Place::start(value.span());
            let table = value.as_inline_table().ok_or_else(|| wrong(&at, value.type_name()))?;
            rules.push(rule(source, path, table, &at)?);
        }
    } else {
        return Err(wrong(at, item.type_name()));
    }
    if rules.len() > MAX_RULES {
        return Err(wrong(at, &format!("{} of them", rules.len())));
    }
    Ok(rules)
}

fn rule(source: &Source, path: &str, table: &dyn TableLike, at: &Place) -> Result<CommandConfig, ConfigError> {
    let bad = |at: &Place, key: &str, expected: &str, found: &str| ConfigError::BadValue {
        at: source.locate(at),
        key: format!("{path}.{key}"),
        expected: expected.to_owned(),
        found: found.to_owned(),
    };
    for (name, item) in table.iter() {
        if !KEYS.contains(&name) {
            return Err(ConfigError::UnknownKey {
                at: source.locate(&place(table, name, item)),
                key: format!("{path}.{name}"),
                nearest: nearest(name, KEYS).map(str::to_owned),
                known: KEYS.map(str::to_owned).to_vec(),
            });
        }
    }
    let text = |key: &str, expected: &str| match table.get(key) {
        None => Err(bad(at, key, expected, "nothing")),
        Some(item) => match item.as_str() {
            Some(text) => Ok((text.to_owned(), place(table, key, item))),
            None => Err(bad(&place(table, key, item), key, expected, item.type_name())),
        },
    };
    let list = |key: &str| {
        let Some(item) = table.get(key) else { return Ok(Vec::new()) };
        let words: Option<Vec<String>> =
            item.as_array().and_then(|array| array.iter().map(|word| word.as_str().map(str::to_owned)).collect());
        let expected = format!("an array of at most {MAX_EXAMPLES} strings");
        words
            .filter(|words| words.len() <= MAX_EXAMPLES)
            .ok_or_else(|| bad(&place(table, key, item), key, &expected, item.type_name()))
    };
    let (command, _) = text("command", "a string")?;
    let words = "one of `allow`, `ask`, `deny`";
    let (word, word_at) = text("decision", words)?;
    let decision = Verdict::from_word(&word).ok_or_else(|| bad(&word_at, "decision", words, "another word"))?;
    let network = match table.get("network") {
        None => None,
        Some(item) => {
            let at = place(table, "network", item);
            let value = item.as_bool().ok_or_else(|| bad(&at, "network", "`true` or `false`", item.type_name()))?;
            if decision != Verdict::Allow {
                return Err(bad(&at, "network", "nothing, as the rule does not allow", "a value"));
            }
            Some(value)
        }
    };
    Ok(CommandConfig {
        command,
        decision,
        network,
        matches: list("match")?,
        not_matches: list("not_match")?,
        at: *source.locate(at),
    })
}

//! The JSON Schema that the official npm package publishes (`json/`), asked about one definition at a time.
//! The schema's root accepts whatever any definition accepts, so a wrong message could hide behind another one:
//! the definition is selected by method and direction instead.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use jsonschema::Validator;
use serde_json::{Value, json};

/// As it is in the package; `json/fetch.sh` shows how it came here.
const TEXT: &str = include_str!("../json/acp-v1.schema.json");

/// The definitions by what they describe.
#[derive(Debug)]
pub struct JsonSchema {
    document: Value,
    validators: BTreeMap<String, Validator>,
}

/// Compiled once for all tests, as that takes far longer than to judge.
static OFFICIAL: LazyLock<JsonSchema> = LazyLock::new(JsonSchema::compile);

impl JsonSchema {
    /// The schema, with the definitions of every message that an agent sends.
    ///
    /// # Panics
    /// When the file is not the schema it should be.
    #[must_use]
    pub fn official() -> &'static Self {
        &OFFICIAL
    }

    fn compile() -> Self {
        let document: Value = serde_json::from_str(TEXT).expect("the schema file is JSON");
        let mut validators = BTreeMap::new();
        for (name, definition) in document["$defs"].as_object().expect("the schema has definitions") {
            let (Some(method), Some(side)) = (definition["x-method"].as_str(), definition["x-side"].as_str()) else {
                continue;
            };
            // The side is the one that handles the method: agents answer their own methods and call the client's.
            let key = match side {
                "agent" if name.ends_with("Response") => format!("answer {method}"),
                "client" | "protocol" if !name.ends_with("Response") => format!("call {method}"),
                _ => continue,
            };
            let validator = compile(&document, name);
            assert!(validators.insert(key.clone(), validator).is_none(), "two definitions for `{key}`");
        }
        validators.insert("error".to_owned(), compile(&document, "Error"));
        Self { document, validators }
    }

    /// Whether the schema knows this method as one that a client calls.
    #[must_use]
    pub fn knows_answer(&self, method: &str) -> bool {
        self.validators.contains_key(&format!("answer {method}"))
    }

    /// Judges the result of an answered method.
    ///
    /// # Errors
    /// Says what does not fit, or that the method is unknown.
    pub fn answer(&self, method: &str, result: &Value) -> Result<(), String> {
        self.judge(&format!("answer {method}"), result)
    }

    /// Judges the parameters of a request or notification of ours.
    ///
    /// # Errors
    /// Says what does not fit, or that the method is unknown.
    pub fn call(&self, method: &str, params: &Value) -> Result<(), String> {
        self.judge(&format!("call {method}"), params)
    }

    /// Judges an error object.
    ///
    /// # Errors
    /// Says what does not fit.
    pub fn error(&self, error: &Value) -> Result<(), String> {
        self.judge("error", error)
    }

    /// The methods a client may call, and for each the place of every member that its parameters may have: names with
    /// slashes between, `*` for the elements of a list.
    #[must_use]
    pub fn client_calls(&self) -> BTreeMap<String, BTreeSet<String>> {
        let definitions = self.document["$defs"].as_object();
        let calls = definitions.into_iter().flatten().filter_map(|(name, definition)| {
            let is_call = definition["x-side"] != "client" && !name.ends_with("Response");
            let method = definition["x-method"].as_str().filter(|_| is_call)?;
            let mut places = BTreeSet::new();
            self.places(definition, "", &mut places);
            Some((method.to_owned(), places))
        });
        calls.collect()
    }

    fn places(&self, schema: &Value, at: &str, places: &mut BTreeSet<String>) {
        if let Some(name) = schema["$ref"].as_str().and_then(|link| link.strip_prefix("#/$defs/")) {
            self.places(&self.document["$defs"][name], at, places);
        }
        for choice in ["oneOf", "anyOf", "allOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten() {
            self.places(choice, at, places);
        }
        if schema["items"].is_object() {
            self.places(&schema["items"], &format!("{at}/*"), places);
        }
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            let place = format!("{at}/{name}");
            self.places(member, &place, places);
            places.insert(place);
        }
    }

    fn judge(&self, key: &str, value: &Value) -> Result<(), String> {
        let validator = self.validators.get(key).ok_or_else(|| format!("the JSON Schema has no `{key}`"))?;
        let faults: Vec<String> =
            validator.iter_errors(value).map(|fault| format!("{fault} at {}", fault.instance_path())).collect();
        if faults.is_empty() { Ok(()) } else { Err(format!("{key}: {}\n{value}", faults.join("; "))) }
    }
}

fn compile(document: &Value, name: &str) -> Validator {
    let schema = json!({
        "$schema": document["$schema"],
        "$ref": format!("#/$defs/{name}"),
        "$defs": document["$defs"],
    });
    jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("`{name}` does not compile: {error}"))
}

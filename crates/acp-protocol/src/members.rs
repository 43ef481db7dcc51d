//! The members of a call's parameters, each read by all the names it may have.
//! It refuses to choose: a member that is given twice must say the same both times.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use crate::params::{ParamsError, without_position};

/// Members kept, at most: no method has more than a dozen, and looking one up goes through all of them.
const MAX_MEMBERS: usize = 256;

/// An object's members in the order they came, values unread.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads an object; nothing and `null` are an empty one.
    pub(crate) fn parse(params: Option<&'a RawValue>) -> Result<Self, ParamsError> {
        let text = params.map_or("null", RawValue::get);
        if text == "null" {
            return Ok(Self::default());
        }
        if !text.starts_with('{') {
            return Err(ParamsError("expected an object".to_owned()));
        }
        serde_json::from_str(text).map_err(|error| ParamsError(without_position(&error)))
    }

    /// The member that has one of these names.
    pub(crate) fn raw(&self, names: &[&str]) -> Result<Option<&'a RawValue>, ParamsError> {
        let mut found: Option<&(String, &RawValue)> = None;
        for member in self.0.iter().filter(|(name, _)| names.contains(&name.as_str())) {
            match found {
                Some((name, value)) if !same(value, member.1) => {
                    return Err(ParamsError(match *name == member.0 {
                        true => format!("`{name}` is given twice with different values"),
                        false => format!("`{name}` and `{}` are the same and differ", member.0),
                    }));
                }
                Some(_) => {}
                None => found = Some(member),
            }
        }
        Ok(found.map(|(_, value)| *value))
    }

    /// A member that must be there; the first name is the one that is missed.
    pub(crate) fn required<T: Deserialize<'a>>(&self, names: &[&str]) -> Result<T, ParamsError> {
        let name = names.first().copied().unwrap_or_default();
        let raw = self.raw(names)?.ok_or_else(|| ParamsError(format!("missing field `{name}`")))?;
        read(name, raw)
    }

    /// A member that may be missing; `null` is a value like any other.
    pub(crate) fn present<T: Deserialize<'a>>(&self, names: &[&str]) -> Result<Option<T>, ParamsError> {
        let name = names.first().copied().unwrap_or_default();
        self.raw(names)?.map(|raw| read(name, raw)).transpose()
    }

    /// A member that may be missing or `null`.
    pub(crate) fn optional<T: Deserialize<'a>>(&self, names: &[&str]) -> Result<Option<T>, ParamsError> {
        Ok(self.present::<Option<T>>(names)?.flatten())
    }
}

fn read<'a, T: Deserialize<'a>>(name: &str, raw: &'a RawValue) -> Result<T, ParamsError> {
    serde_json::from_str(raw.get()).map_err(|error| ParamsError(format!("`{name}`: {}", without_position(&error))))
}

/// Whether two values mean the same, however they are written.
fn same(one: &RawValue, other: &RawValue) -> bool {
    let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    one.get() == other.get() || value(one).is_some_and(|one| Some(one) == value(other))
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry::<String, &RawValue>()? {
            if members.len() == MAX_MEMBERS {
                return Err(serde::de::Error::custom("too many members"));
            }
            members.push(member);
        }
        Ok(Members(members))
    }
}

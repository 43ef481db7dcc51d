//! Small values of every shape that messages are made of: texts, paths, raw JSON, optional members.

use std::path::PathBuf;

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, value::RawValue};

/// Texts that are easy to get wrong, and any others.
pub(crate) fn text() -> BoxedStrategy<String> {
    let awkward = ["", " ", "null", "\"\\/\u{8}\n\r\t\u{0}", "\u{2028}\u{2029}\u{85}\u{feff}", "\u{1d11e}\u{301}"];
    prop_oneof![proptest::sample::select(awkward.to_vec()).prop_map(str::to_owned), any::<String>(), "[a-z]{1,8}"]
        .boxed()
}

/// An absolute path.
pub(crate) fn path() -> BoxedStrategy<PathBuf> {
    "/[a-z0-9 ._\u{e4}\u{1f600}\"-]{0,12}".prop_map(PathBuf::from).boxed()
}

/// Absent or present.
pub(crate) fn maybe<S: Strategy + 'static>(inner: S) -> BoxedStrategy<Option<S::Value>>
where
    S::Value: Clone,
{
    proptest::option::of(inner).boxed()
}

/// Up to three.
pub(crate) fn some<S: Strategy + 'static>(inner: S) -> BoxedStrategy<Vec<S::Value>> {
    vec(inner, 0..=3).boxed()
}

/// Any JSON that means the same to everybody: no numbers that only some readers can hold.
pub(crate) fn json() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        Just(Value::from(0.5)),
        text().prop_map(Value::from),
    ];
    let tree = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((text(), inner), 0..4).prop_map(|members| members.into_iter().collect::<Value>()),
        ]
    });
    tree.boxed()
}

/// The same as raw text; null often, because it is where readers differ.
pub(crate) fn raw() -> BoxedStrategy<Box<RawValue>> {
    let value = prop_oneof![1 => Just(Value::Null), 3 => json()];
    value.prop_map(|value| RawValue::from_string(value.to_string()).expect("a value is JSON")).boxed()
}

/// One of these.
pub(crate) fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> BoxedStrategy<T> {
    proptest::sample::select(all).boxed()
}

/// A JSON-RPC id that the official types can hold, as JSON.
pub(crate) fn id() -> BoxedStrategy<Value> {
    prop_oneof![any::<i64>().prop_map(Value::from), text().prop_map(Value::from), Just(Value::Null)].boxed()
}

/// Lists every variant of an enumeration. A variant that is added and not listed does not compile.
macro_rules! all_of {
    ($visibility:vis $name:ident: $kind:ident { $($variant:ident),+ $(,)? }) => {
        $visibility const $name: &[$kind] = {
            let _complete: fn($kind) = |value| match value { $($kind::$variant => {}),+ };
            &[$($kind::$variant),+]
        };
    };
}
pub(crate) use all_of;

//! Deserializers for values whose JSON type differs from the standard, as real controllers send them.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A list. A single value counts as a list of one, and `null` as an empty list.
pub(super) fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    optional_list(deserializer).map(Option::unwrap_or_default)
}

/// Like [`list`], but `null` is not a list.
pub(super) fn optional_list<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let values = match Value::deserialize(deserializer)? {
        Value::Null => return Ok(None),
        Value::Array(values) => values,
        one => vec![one],
    };
    values.into_iter().map(serde_json::from_value).collect::<Result<_, _>>().map(Some).map_err(D::Error::custom)
}

/// An object whose value `null` stands for an empty object.
pub(super) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A number, also as text such as `"87.5"` or `"87 W"`. Other values are not numbers.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.split_whitespace().next().and_then(|number| number.parse().ok()),
        _ => None,
    })
}

/// A text, also as a number. Other values are not texts.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

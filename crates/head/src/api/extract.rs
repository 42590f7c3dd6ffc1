//! Extractors for handlers, with the API's own error format.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use hostler_listen::is_stalled;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::error::ApiError;

/// Timeout for receiving a JSON body. It suffices for the longest list of digests at 3 Mbit/s.
const BODY_TIME: Duration = Duration::from_secs(45);

/// A JSON body, received within [`BODY_TIME`]. The timeout limits how long a slow client can occupy memory.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        match timeout(BODY_TIME, axum::Json::<Box<RawValue>>::from_request(request, state)).await {
            Ok(Ok(body)) => parsed(body.0.get()).map(Self),
            Ok(Err(rejection)) if is_stalled(&rejection) => Err(ApiError::stalled()),
            Ok(Err(rejection)) => Err(rejection.into()),
            Err(_) => {
                let message = format!("the request's body was incomplete after {} seconds", BODY_TIME.as_secs());
                Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "stalled", message))
            }
        }
    }
}

/// Every integer up to 2^53 is exact as a float.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Parses a JSON object. For JSON, `3.0` is an integer; for the parser of the types, it is not.
fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    axum::Json::<Fields<T>>::from_bytes(text.as_bytes()).map(|body| body.0.0).or_else(|rejection| {
        let mut value: Value = serde_json::from_str(text).unwrap_or_default();
        integers_in(&mut value);
        serde_json::from_value::<Fields<T>>(value).map(|fields| fields.0).map_err(|_| rejection.into())
    })
}

/// Replaces numbers such as `3.0` and `1e3` by integers. Larger floats may have lost digits.
fn integers_in(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let is_integer = |float: &f64| number.is_f64() && float.fract() == 0.0 && float.abs() <= LARGEST_EXACT;
            if let Some(float) = number.as_f64().filter(is_integer) {
                *value = (float as i64).into();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(integers_in),
        Value::Object(fields) => fields.values_mut().for_each(integers_in),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// A value from a JSON object. Without this wrapper, types would also accept an array of their fields.
struct Fields<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Fields<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor(PhantomData))
    }
}

struct FieldsVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FieldsVisitor<T> {
    type Value = Fields<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Fields<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Fields)
    }
}

/// The query of a request.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(ApiError))]
pub(crate) struct Query<T>(pub(crate) T);

/// The path parameters of a request.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let axum::extract::Path(value) = axum::extract::Path::from_request_parts(parts, state).await?;
        // The number parser accepts a leading plus sign, which the API does not. No name begins with a plus sign.
        let texts = RawPathParams::from_request_parts(parts, state).await.map_err(ApiError::internal)?;
        match texts.iter().find(|(_, text)| text.starts_with('+')) {
            Some((name, text)) => Err(ApiError::bad_request(format!("`{text}` in the path is not a valid {name}"))),
            None => Ok(Self(value)),
        }
    }
}

/// Parses a list such as `1,2,3`.
pub(crate) fn list<T: std::str::FromStr<Err = hostler_model::ParseError>>(
    text: Option<&str>,
) -> Result<Vec<T>, ApiError> {
    let parts = text.into_iter().flat_map(|text| text.split(','));
    parts
        .map(|part| part.parse().map_err(|error: hostler_model::ParseError| ApiError::bad_request(error.to_string())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Numbers {
        one: u32,
        many: Vec<i64>,
        half: Option<f64>,
    }

    #[test]
    fn numbers_without_fraction_are_integers() {
        for (text, one, many) in [
            (r#"{"one": 2037.0, "many": []}"#, 2037, vec![]),
            (r#"{"one": 1e3, "many": [-1.0, 2, 3.00]}"#, 1000, vec![-1, 2, 3]),
            (r#"{"one": 5, "many": [9007199254740993]}"#, 5, vec![9_007_199_254_740_993]),
        ] {
            assert_eq!(parsed::<Numbers>(text).expect(text), Numbers { one, many, half: None });
        }
        let half = parsed::<Numbers>(r#"{"one": 1.0, "many": [], "half": 0.5}"#).expect("a fraction is allowed here");
        assert_eq!(half, Numbers { one: 1, many: vec![], half: Some(0.5) });
        for text in [
            r#"{"one": 1.5, "many": []}"#,
            r#"{"one": -1.0, "many": []}"#,
            r#"{"one": 1e30, "many": []}"#,
            r#"{"one": 1, "many": [-9223372036854775809]}"#,
            r#"{"one": 1, "many": [9223372036854775808]}"#,
            r#"{"one": "1", "many": []}"#,
            r#"[1.0, []]"#,
        ] {
            assert!(parsed::<Numbers>(text).is_err(), "{text}");
        }
    }
}

//! Fields of HTML forms, and the token that each form carries.

use std::sync::{Arc, LazyLock};

use axum::RequestExt;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};

use crate::api::{Caller, Refused};

/// Maximum size of a form, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Maximum number of fields of a form.
const MAX_FIELDS: usize = 5_000;

/// The fields of a form in the order of the page. All pages read their POST requests with this type.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Parses an encoded form or the query of an address.
    pub(crate) fn parse(text: &[u8]) -> Self {
        Self(form_urlencoded::parse(text).into_owned().take(MAX_FIELDS).collect())
    }

    /// The value of the first field with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Like [`Self::get`], without surrounding spaces; `None` if nothing is left.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// Reads a field of another type; `None` if it is empty or absent.
    pub(crate) fn read<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Refused> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Refused::bad_request(format!("`{name}` cannot be `{text}`")))
    }

    /// The values of all fields with this name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// All fields.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<S: Sync> FromRequest<S> for Fields {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Self, Response> {
        let refuse = |status, message: &str| Refused::new(status, "bad_form", message).into_response();
        if !is_form(request.headers()) {
            return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the request is not an HTML form"));
        }
        let body = Limited::new(request.with_limited_body().into_body(), MAX_BYTES);
        match body.collect().await {
            Ok(body) => Ok(Self::parse(&body.to_bytes())),
            Err(_) => Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "the form is too large or incomplete")),
        }
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
}

/// Proof that a form comes from a page that the same user got in the same session: a keyed hash of both.
#[derive(Clone)]
pub(crate) struct FormToken(Arc<str>);

impl FormToken {
    pub(crate) fn new(caller: &Caller, host: &str) -> Self {
        /// A new key for each process.
        static KEY: LazyLock<[u8; 32]> = LazyLock::new(|| {
            let mut key = [0; 32];
            getrandom::fill(&mut key).expect("the kernel has random bytes once it has booted");
            key
        });
        let mut hasher = blake3::Hasher::new_keyed(&KEY);
        for part in [caller.identity.as_bytes(), host.as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Self(hasher.finalize().to_hex().as_str().into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is(&self, shown: &str) -> bool {
        // The comparison of hashes takes the same time for every value.
        blake3::hash(self.0.as_bytes()) == blake3::hash(shown.as_bytes())
    }
}

/// A random submission key. A form that is sent twice with its key submits one job.
pub(crate) fn new_key() -> String {
    let mut key = [0; 16];
    getrandom::fill(&mut key).expect("the kernel has random bytes once it has booted");
    format!("form-{:032x}", u128::from_ne_bytes(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_in_order() {
        let fields = Fields::parse(b"job=1&job=2&name=a+b%26c&empty=+");
        assert_eq!(fields.all("job").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(fields.get("name"), Some("a b&c"));
        assert_eq!((fields.text("empty"), fields.text("absent")), (None, None));
        assert_eq!(fields.read::<u32>("job").expect("a number"), Some(1));
        assert!(fields.read::<u32>("name").is_err());
    }
}

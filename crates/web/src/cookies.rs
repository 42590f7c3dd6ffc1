//! Cookies that remember a reader's choices, such as the columns of a table. They identify nobody and grant no access.

use axum::http::{HeaderMap, HeaderValue, header};

/// A header that keeps a choice for a year. `value` has no characters with a meaning in cookies.
pub(crate) fn kept_for_a_year(name: &str, value: &str) -> (header::HeaderName, HeaderValue) {
    let text = format!("{name}={value}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict");
    (header::SET_COOKIE, HeaderValue::from_str(&text).expect("a name and a value are valid in a header"))
}

/// The value of a cookie.
pub(crate) fn value<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

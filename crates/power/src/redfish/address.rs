//! Addresses of controllers.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use hostler_model::ParseError;
use hyper::Uri;
use hyper::http::uri::Authority;
use serde::{Deserialize, Serialize};

/// Address of a controller: host, port, and whether to use TLS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    /// Host name or address; an IPv6 address without brackets.
    host: String,
    port: u16,
    tls: bool,
}

impl Address {
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Whether connections use TLS.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.tls
    }

    /// Value of the `Host` header, without the default port.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.tls) { host } else { format!("{host}:{}", self.port) }
    }

    /// The path of a link, if it points to this controller.
    pub(crate) fn path_of(&self, link: &str) -> Option<String> {
        let uri: Uri = link.parse().ok()?;
        let leads_here = match uri.authority() {
            Some(authority) => uri.scheme_str().is_some_and(|scheme| self.is(scheme, authority)),
            None => link.starts_with('/'),
        };
        let path = uri.path_and_query().map(|path| path.as_str().to_owned());
        path.filter(|path| leads_here && path.starts_with('/'))
    }

    fn is(&self, scheme: &str, authority: &Authority) -> bool {
        let tls = scheme.eq_ignore_ascii_case("https");
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        tls == self.tls
            && host.eq_ignore_ascii_case(&self.host)
            && authority.port_u16().unwrap_or(default_port(tls)) == self.port
    }
}

/// Returns a host name or an address, the latter without the brackets of IPv6.
fn name_or_number(host: &str) -> Option<String> {
    if let Some(number) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return number.parse::<Ipv6Addr>().ok().map(|number| number.to_string());
    }
    let is_name = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    is_name.then(|| host.to_owned())
}

const fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

impl FromStr for Address {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error =
            || ParseError::new(text, "an address of a controller, e.g. `10.0.9.11`, `ilo-r1:8443` or `https://ilo-r1`");
        let (tls, rest) = match text.split_once("://") {
            None => (true, text),
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return Err(error()),
        };
        let authority: Authority = rest.strip_suffix('/').unwrap_or(rest).parse().map_err(|_| error())?;
        let host = name_or_number(authority.host()).ok_or_else(error)?;
        // Credentials do not belong in the address, and an invalid port must not be ignored.
        let is_whole = authority.port().is_some() == (authority.as_str().len() > authority.host().len());
        if authority.as_str().contains('@') || !is_whole {
            return Err(error());
        }
        let port = match authority.port() {
            Some(port) => port.as_str().parse().map_err(|_| error())?,
            None => default_port(tls),
        };
        Ok(Self { host, port, tls })
    }
}

impl TryFrom<String> for Address {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        for (text, shown) in [
            ("10.0.9.11", "https://10.0.9.11"),
            ("https://ilo-r1/", "https://ilo-r1"),
            ("https://ilo-r1:443", "https://ilo-r1"),
            ("ilo-r1:8443", "https://ilo-r1:8443"),
            ("http://[fe80::1]:8000", "http://[fe80::1]:8000"),
            ("[::1]", "https://[::1]"),
        ] {
            let address: Address = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse(), Ok(address));
        }
        for text in [
            "",
            "ftp://x",
            "https://",
            "https://a/redfish",
            "root:pw@ilo",
            "ilo:99999",
            "ilo:",
            "htt[::1]:8000",
            "[::1",
            "[x]",
            "a b",
            "https://x?y",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn links_to_other_servers_are_rejected() {
        let address: Address = "ilo-r1".parse().expect("an address");
        let path = Some("/redfish/v1/Systems/1".to_owned());
        for link in
            ["/redfish/v1/Systems/1", "https://ILO-R1/redfish/v1/Systems/1", "https://ilo-r1:443/redfish/v1/Systems/1"]
        {
            assert_eq!(address.path_of(link), path, "{link}");
        }
        for link in
            ["", "redfish", "http://ilo-r1/x", "https://ilo-r1:444/x", "https://evil/x", "//evil/x", "/a b", "*"]
        {
            let path = address.path_of(link);
            assert!(path.is_none() || path.as_deref() == Some(link), "{link} led to {path:?}");
            assert!(!link.contains("://") || path.is_none(), "{link} led to {path:?}");
        }
    }
}

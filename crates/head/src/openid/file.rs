//! `openid.toml`: the provider of OpenID Connect, the head's secret there, and the users of its subjects.
//!
//! The settings are in a file and cannot be changed over the network: they decide who is who.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hostler_model::UserName;
use hyper::Uri;
use serde::Deserialize;

use crate::outgoing;
use crate::private_file::{self, FileError, Secret};

/// Maximum length of a subject, according to the standard.
pub(super) const MAX_SUBJECT_LEN: usize = 255;

/// Parsed content of `openid.toml`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenIdFile {
    /// Address of the provider, exactly as in its tokens.
    pub(super) issuer: String,
    pub(super) client_id: String,
    /// Absent if the provider knows the head as a public client.
    pub(super) client_secret: Option<Secret>,
    /// What users call the provider.
    name: Option<Arc<str>>,
    /// A file with the authorities of the provider's certificate; the machine's authorities if absent.
    pub(super) ca: Option<PathBuf>,
    /// The user of each subject, by issuer. Subjects of another issuer may belong to other people.
    #[serde(default)]
    users: BTreeMap<String, BTreeMap<String, UserName>>,
}

impl OpenIdFile {
    /// Reads `openid.toml`. Returns `None` without the file.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, FileError> {
        private_file::read(path, Self::parse)
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let file: Self = private_file::from_toml(text)?;
        let uri = web_address(&file.issuer).ok_or("issuer must be an address that begins with https://")?;
        if uri.query().is_some() {
            return Err("issuer must not contain a query".to_owned());
        }
        if uri.scheme_str() != Some("https") && !is_loopback(&uri) {
            return Err("issuer must begin with https://; http:// is possible on this machine only".to_owned());
        }
        if file.client_id.is_empty() {
            return Err("client_id must not be empty".to_owned());
        }
        for subject in file.users.values().flat_map(BTreeMap::keys) {
            if !is_subject(subject) {
                return Err(format!("users: {subject:?} is not a subject of 1 to {MAX_SUBJECT_LEN} characters"));
            }
        }
        Ok(file)
    }

    /// What the sign-in page calls the provider.
    pub(super) fn name(&self) -> Arc<str> {
        self.name.clone().unwrap_or_else(|| Arc::from("OpenID Connect"))
    }

    /// The user of a subject of this issuer.
    pub(super) fn user(&self, subject: &str) -> Option<&UserName> {
        self.users.get(&self.issuer)?.get(subject)
    }

    /// Whether requests need encryption.
    pub(super) fn is_encrypted(&self) -> bool {
        self.issuer.starts_with("https://")
    }
}

/// Whether a text can be a subject.
pub(super) fn is_subject(text: &str) -> bool {
    (1..=MAX_SUBJECT_LEN).contains(&text.len()) && !text.contains(char::is_control)
}

/// Parses an absolute address without a user name.
pub(super) fn web_address(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let has_user = uri.authority()?.as_str().contains('@');
    (matches!(uri.scheme_str(), Some("https" | "http")) && !has_user && !text.contains('#')).then_some(uri)
}

fn is_loopback(uri: &Uri) -> bool {
    let host = outgoing::host(uri).unwrap_or_default();
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The lines of `openid.toml` that map a subject to the user `NAME`.
pub(super) fn lines_for(issuer: &str, subject: &str) -> String {
    format!("[users.{}]\n{} = \"NAME\"", quoted(issuer), quoted(subject))
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "issuer = \"https://login.example.org\"\nclient_id = \"hostler\"\n";

    #[test]
    fn example_in_the_guide_is_valid() {
        let guide = include_str!("../../../../docs/guides/dashboard.md");
        let mut blocks = guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let example = blocks.find(|block| block.contains("issuer =")).expect("the guide has an example");
        let file = OpenIdFile::parse(example).unwrap_or_else(|why| panic!("{why}\n{example}"));
        assert!(file.client_secret.is_some() && !file.users.is_empty());
    }

    #[test]
    fn subjects_belong_to_their_issuer() {
        let users =
            "[users.\"https://login.example.org\"]\nada-1 = \"ada\"\n[users.\"https://old.example\"]\nx = \"ben\"";
        let file = OpenIdFile::parse(&format!("{LEAST}{users}")).expect("valid");
        assert_eq!(file.user("ada-1").map(UserName::as_str), Some("ada"));
        assert!(file.user("x").is_none() && file.user("ada").is_none());
    }

    #[test]
    fn suggested_lines_map_any_subject() {
        for subject in ["248289761001", "a b", "x\"] = \"y", "back\\slash", "ä|1"] {
            let lines = lines_for("https://login.example.org", subject).replace("NAME", "ada");
            let file = OpenIdFile::parse(&format!("{LEAST}{lines}")).expect(subject);
            assert_eq!(file.user(subject).map(UserName::as_str), Some("ada"), "{lines}");
        }
    }

    #[test]
    fn errors_name_the_wrong_setting_and_show_no_secret() {
        for (text, part) in [
            ("client_id = \"x\"\nclient_secret = \"hidden\"".to_owned(), "issuer"),
            (LEAST.replace("https://", "http://"), "https://"),
            (LEAST.replace("https://", "https://hidden:hidden@"), "https://"),
            (LEAST.replace(".org", ".org?hidden"), "query"),
            (LEAST.replace("\"hostler\"", "\"\""), "client_id"),
            (format!("{LEAST}client_secret = hidden"), "line 3"),
            (format!("{LEAST}secret = \"hidden\""), "secret"),
            (format!("{LEAST}[users.\"https://login.example.org\"]\nx = \"no:name\""), "line 4"),
            (format!("{LEAST}[users.\"https://login.example.org\"]\n\"\" = \"ada\""), "not a subject"),
        ] {
            let why = OpenIdFile::parse(&text).err().expect(&text);
            assert!(why.contains(part) && !why.contains("hidden"), "{text}: {why}");
        }
        OpenIdFile::parse(&LEAST.replace("https://login.example.org", "http://127.0.0.1:8080")).expect("loopback");
    }
}

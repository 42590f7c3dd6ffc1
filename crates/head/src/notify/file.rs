//! `notify.toml`: the destinations of notifications, their secrets, and the recipients of operators' messages.
//!
//! The settings are in a file and cannot be changed over the network: they hold secrets, and they decide where the head
//! sends requests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hostler_model::{DestinationName, Subscription};
use hostler_power::Span;
use hyper::Uri;
use lettre::Address;
use serde::Deserialize;

use crate::private_file::{self, FileError, Secret};

/// The largest number of destinations.
const MAX_DESTINATIONS: usize = 64;

/// The largest number of secrets of a webhook: the new one and the old one while the receiver changes over.
const MAX_SECRETS: usize = 2;

/// The prefix of a webhook's secret in base64, as Standard Webhooks write it.
const SECRET_PREFIX: &str = "whsec_";

/// Parsed content of `notify.toml`.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct NotifyFile {
    /// Where messages to operators go.
    pub(super) operators: Vec<Target>,
    pub(super) timing: Timing,
    pub(super) destinations: BTreeMap<DestinationName, Config>,
}

/// A destination and an address there.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) to: DestinationName,
    pub(super) address: Option<String>,
}

/// When the head delivers, retries and gives up.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Timing {
    /// The delays before the retries; after the last one, the head gives up.
    pub(super) retry: Vec<Span>,
    /// How long the first ending of a user's jobs waits for others.
    pub(super) digest_first: Span,
    /// The shortest time between two messages about endings to one recipient.
    pub(super) digest: Span,
    /// The longest time for one delivery.
    pub(super) timeout: Span,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = |seconds| Span(Duration::from_secs(seconds));
        Self {
            retry: [30, 300, 1_800, 7_200, 28_800, 86_400].map(seconds).into(),
            digest_first: seconds(60),
            digest: seconds(1_800),
            timeout: seconds(30),
        }
    }
}

/// A destination's settings, selected by `kind`.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Config {
    Mail(Box<Mail>),
    Webhook(Webhook),
    Ntfy(Ntfy),
    Slack(Slack),
    Matrix(Matrix),
}

#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mail {
    pub(super) server: String,
    pub(super) port: Option<u16>,
    #[serde(default)]
    pub(super) security: Security,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) from: Address,
    /// The domains at which users may name an address.
    #[serde(default)]
    pub(super) domains: Vec<String>,
    /// The recipient if a message names none.
    pub(super) to: Option<Address>,
    #[serde(default)]
    pub(super) allow_private: bool,
    pub(super) ca: Option<PathBuf>,
}

/// How the connection to a mail server is encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Security {
    /// From the first byte.
    Tls,
    /// After the command STARTTLS, which the server must support.
    #[default]
    Starttls,
    /// Not at all.
    None,
}

#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Webhook {
    pub(super) url: Url,
    /// The keys of the signatures; two while the receiver changes over.
    pub(super) secrets: Vec<Secret>,
    #[serde(default)]
    pub(super) allow_private: bool,
    pub(super) ca: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ntfy {
    pub(super) url: Url,
    pub(super) topic: Secret,
    pub(super) token: Option<Secret>,
    #[serde(default)]
    pub(super) allow_private: bool,
    pub(super) ca: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slack {
    pub(super) url: Url,
    #[serde(default)]
    pub(super) allow_private: bool,
    pub(super) ca: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Matrix {
    pub(super) homeserver: Url,
    pub(super) room: String,
    pub(super) token: Secret,
    #[serde(default)]
    pub(super) allow_private: bool,
    pub(super) ca: Option<PathBuf>,
}

/// An address of HTTP. It may contain a secret.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Url(pub(super) Uri);

impl TryFrom<String> for Url {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        // The error does not show the text, which may contain a secret.
        let uri: Uri = text.parse().map_err(|_| "a URL is invalid")?;
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        match (uri.scheme_str(), uri.host()) {
            (Some("http" | "https"), Some(_)) if !has_user => Ok(Self(uri)),
            _ => Err("a URL must begin with https:// or http://, and must not contain a user name"),
        }
    }
}

impl Url {
    pub(super) fn is_encrypted(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    operators: Vec<String>,
    #[serde(default)]
    delivery: Timing,
    #[serde(default)]
    destinations: BTreeMap<DestinationName, Config>,
}

impl NotifyFile {
    /// Reads `notify.toml`. Without the file, there are no destinations.
    pub(crate) fn read(path: &Path) -> Result<Self, FileError> {
        private_file::read(path, Self::parse).map(Option::unwrap_or_default)
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text: Text = private_file::from_toml(text)?;
        if text.destinations.len() > MAX_DESTINATIONS {
            return Err(format!("more than {MAX_DESTINATIONS} destinations"));
        }
        for (name, config) in &text.destinations {
            config.check().map_err(|why| format!("destinations.{name}: {why}"))?;
        }
        let file = Self { operators: Vec::new(), timing: text.delivery, destinations: text.destinations };
        let operators = text.operators.iter().map(|text| file.target(text)).collect::<Result<_, _>>()?;
        Ok(Self { operators, ..file })
    }

    /// Parses a recipient of operators' messages, such as `mail:ops@example.org`.
    fn target(&self, text: &str) -> Result<Target, String> {
        let parsed = text.parse::<Subscription>().ok().filter(|_| !text.contains('='));
        let Subscription { to, address, .. } = parsed
            .ok_or_else(|| format!("operators: `{text}` is not a destination such as chat or mail:ops@example.org"))?;
        let config = self.destinations.get(&to).ok_or_else(|| format!("operators: there is no destination {to}"))?;
        match (config, &address) {
            (Config::Mail(_), Some(address)) => {
                let _: Address = address.parse().map_err(|_| format!("operators: {address} is not a mail address"))?;
            }
            (Config::Mail(mail), None) if mail.to.is_none() => return Err(format!("operators: {to} needs an address")),
            (Config::Mail(_), None) => {}
            (_, Some(_)) => return Err(format!("operators: destination {to} takes no address")),
            (_, None) => {}
        }
        Ok(Target { to, address })
    }

    /// Checks a user's subscription. The error is for the user.
    pub(crate) fn admit(&self, subscription: &Subscription) -> Result<(), String> {
        let Subscription { to, address, .. } = subscription;
        let config = self.destinations.get(to).ok_or_else(|| no_destination(to, self.destinations.keys()))?;
        config.admit(address.as_deref()).map_err(|why| format!("destination {to} {why}"))
    }
}

/// Why a name is not that of a destination. The error is for users and operators.
pub(super) fn no_destination<'a>(to: &DestinationName, known: impl Iterator<Item = &'a DestinationName>) -> String {
    match known.map(DestinationName::as_str).collect::<Vec<_>>().as_slice() {
        [] => format!("there is no destination {to}: an admin has defined none in the head's notify.toml"),
        names => format!("there is no destination {to}; destinations: {}", names.join(", ")),
    }
}

impl Config {
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Mail(_) => "mail",
            Self::Webhook(_) => "webhook",
            Self::Ntfy(_) => "ntfy",
            Self::Slack(_) => "slack",
            Self::Matrix(_) => "matrix",
        }
    }

    pub(super) fn domains(&self) -> &[String] {
        match self {
            Self::Mail(mail) => &mail.domains,
            _ => &[],
        }
    }

    /// Checks an address that a user has named. The error is the rest of a sentence about the destination.
    pub(super) fn admit(&self, address: Option<&str>) -> Result<(), String> {
        let Self::Mail(mail) = self else {
            return address.map_or(Ok(()), |_| Err("takes no address".to_owned()));
        };
        let Some(text) = address else {
            return if mail.to.is_some() { Ok(()) } else { Err("needs a mail address".to_owned()) };
        };
        let address: Address = text.parse().map_err(|_| format!("needs a mail address, and `{text}` is not one"))?;
        let is_allowed = mail.domains.iter().any(|domain| domain.eq_ignore_ascii_case(address.domain()));
        if is_allowed {
            return Ok(());
        }
        Err(match mail.domains.as_slice() {
            [] => "takes no address".to_owned(),
            domains => format!("takes only addresses at {}", domains.join(", ")),
        })
    }

    fn check(&self) -> Result<(), String> {
        let (url, allow_private) = match self {
            Self::Mail(mail) => return mail.check(),
            Self::Webhook(hook) => {
                if hook.secrets.is_empty() || hook.secrets.len() > MAX_SECRETS {
                    return Err("a webhook has one or two secrets".to_owned());
                }
                hook.secrets.iter().try_for_each(|secret| key_of(secret).map(drop))?;
                (&hook.url, hook.allow_private)
            }
            Self::Ntfy(ntfy) => (&ntfy.url, ntfy.allow_private),
            Self::Slack(slack) => (&slack.url, slack.allow_private),
            Self::Matrix(matrix) => (&matrix.homeserver, matrix.allow_private),
        };
        if url.is_encrypted() || allow_private {
            return Ok(());
        }
        Err("the URL must begin with https://; http:// is possible with `allow_private = true`".to_owned())
    }
}

impl Mail {
    fn check(&self) -> Result<(), String> {
        if self.user.is_some() != self.password.is_some() {
            return Err("user and password must both be set".to_owned());
        }
        if self.security == Security::None && self.password.is_some() && !self.allow_private {
            return Err("a password needs security = \"tls\" or \"starttls\"".to_owned());
        }
        Ok(())
    }

    pub(super) fn port(&self) -> u16 {
        self.port.unwrap_or(match self.security {
            Security::Tls => 465,
            Security::Starttls => 587,
            Security::None => 25,
        })
    }
}

/// The key of a signature: the bytes after `whsec_` in base64, or else the text itself.
pub(super) fn key_of(secret: &Secret) -> Result<Vec<u8>, String> {
    let key = match secret.0.strip_prefix(SECRET_PREFIX) {
        Some(text) => BASE64_STANDARD.decode(text).map_err(|_| "a secret is not valid base64".to_owned())?,
        None => secret.0.clone().into_bytes(),
    };
    if key.len() < 16 { Err("a secret must have at least 16 bytes".to_owned()) } else { Ok(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"
        operators = ["mail:ops@example.org", "lab"]

        [delivery]
        digest = "10m"

        [destinations.mail]
        kind = "mail"
        server = "smtp.example.org"
        user = "hostler"
        password = "secret-password"
        from = "hostler@example.org"
        domains = ["example.org"]

        [destinations.lab]
        kind = "webhook"
        url = "https://hooks.example.org/x"
        secrets = ["whsec_MDEyMzQ1Njc4OWFiY2RlZg=="]
    "#;

    #[test]
    fn example_in_the_guide_is_valid() {
        let guide = include_str!("../../../../docs/guides/notifications.md");
        for block in guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            NotifyFile::parse(block).unwrap_or_else(|why| panic!("{why}\n{block}"));
        }
    }

    #[test]
    fn users_name_only_defined_destinations_and_allowed_addresses() {
        let file = NotifyFile::parse(EXAMPLE).expect("valid");
        for (text, part) in [
            ("mail:ada@example.org", None),
            ("lab=failure", None),
            ("pager", Some("destinations: lab, mail")),
            ("mail", Some("needs a mail address")),
            ("mail:ada@example.com", Some("only addresses at example.org")),
            ("mail:ada@sub.example.org", Some("only addresses at example.org")),
            ("mail:ada", Some("`ada` is not one")),
            ("lab:ada@example.org", Some("takes no address")),
        ] {
            let outcome = file.admit(&text.parse().expect(text));
            match part {
                None => outcome.expect(text),
                Some(part) => assert!(outcome.as_ref().is_err_and(|why| why.contains(part)), "{text}: {outcome:?}"),
            }
        }
        let none = NotifyFile::default().admit(&"lab".parse().expect("a subscription"));
        assert!(none.expect_err("no destination").contains("has defined none"));
    }

    #[test]
    fn errors_name_the_wrong_setting_and_show_no_secret() {
        let webhook = |rest: &str| format!("[destinations.x]\nkind = \"webhook\"\n{rest}");
        for (text, part) in [
            ("operator = []".to_owned(), "operator"),
            ("operators = [\"x\"]".to_owned(), "no destination x"),
            ("[delivery]\nretry = [\"soon\"]".to_owned(), "soon"),
            (webhook("url = \"https://x/hidden\"\nsecrets = []"), "one or two secrets"),
            (webhook("url = \"http://x/hidden\"\nsecrets = [\"hidden-0123456789\"]"), "https://"),
            (webhook("url = \"ftp://x/hidden\"\nsecrets = [\"hidden-0123456789\"]"), "https://"),
            (webhook("url = \"https://x/hidden\"\nsecrets = [\"hidden\"]"), "16 bytes"),
            (webhook("url = \"https://x/hidden\"\nsecrets = [\"hidden-0123456789\"]\nspeed = 1"), "speed"),
        ] {
            let why = NotifyFile::parse(&text).err().expect(&text);
            assert!(why.contains(part) && !why.contains("hidden"), "{text}: {why}");
        }
    }

    #[test]
    fn file_that_others_may_read_is_ignored() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("notify.toml");
        assert!(NotifyFile::read(&path).expect("no file is valid").destinations.is_empty());
        std::fs::write(&path, EXAMPLE).expect("writable");
        for mode in [0o644, 0o640, 0o620] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("permitted");
            let error = NotifyFile::read(&path).err().expect("others may read the file").to_string();
            assert!(error.contains("chmod 600") && error.contains("notify.toml"), "{error}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("permitted");
        assert_eq!(NotifyFile::read(&path).expect("private").destinations.len(), 2);
    }
}

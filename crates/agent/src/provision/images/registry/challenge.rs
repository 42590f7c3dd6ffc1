//! What a registry demands before it shows a repository: the header `WWW-Authenticate`.

/// A way to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// With name and password.
    Basic,
    /// With a token of a login server.
    Bearer { realm: String, service: Option<String> },
}

impl Challenge {
    /// Parses a header; `None` for other ways.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        while let Some((name, value)) = rest.split_once('=') {
            let (value, after) = match value.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => value.split_once(',').unwrap_or((value, "")),
            };
            match name.trim_matches([' ', ',']) {
                "realm" => realm = Some(value.trim().to_owned()),
                "service" => service = Some(value.trim().to_owned()),
                _ => {}
            }
            rest = after;
        }
        Some(Self::Bearer { realm: realm?, service })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_login_server_and_service() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/debian:pull""#;
        assert_eq!(Challenge::parse(hub), bearer("https://auth.docker.io/token", Some("registry.docker.io")));
        assert_eq!(Challenge::parse(r#"bearer scope="a,b=c", realm="https://a/?x=y""#), bearer("https://a/?x=y", None));
        assert_eq!(Challenge::parse("Bearer realm=https://a/b, service=c"), bearer("https://a/b", Some("c")));
        assert_eq!(Challenge::parse("Basic realm=\"Registry\""), Some(Challenge::Basic));
        for wrong in ["", "Digest realm=\"a\"", "Bearer", "Bearer realm=\"open"] {
            assert_eq!(Challenge::parse(wrong), None, "{wrong}");
        }
    }
}

//! Which requests of browsers the dashboard accepts. The relay of `hostler dashboard` and the head share these rules.
//!
//! A page of another site may make a browser send requests to the dashboard. Three headers reveal such a request; no
//! script can change them. `Host` is the name under which the browser reached the server, `Origin` is the page that
//! sends the request, and `Sec-Fetch-Site` says how that page relates to the server. `Host` is checked against a fixed
//! list, because a foreign name may resolve to the server's address (DNS rebinding): then `Host` and `Origin` agree.

/// The parts of a request that show where it comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BrowserRequest<'a> {
    /// Method of the request, in upper case.
    pub method: &'a str,
    /// Whether the request opens a WebSocket.
    pub is_upgrade: bool,
    /// The header `Host`, or the authority of HTTP/2.
    pub host: Option<&'a str>,
    /// The header `Origin`.
    pub origin: Option<&'a str>,
    /// The header `Sec-Fetch-Site`.
    pub fetch_site: Option<&'a str>,
    /// The header `Sec-Fetch-Mode`.
    pub fetch_mode: Option<&'a str>,
    /// The header `Sec-Fetch-Dest`.
    pub fetch_dest: Option<&'a str>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// The browser reached the server under a name that is not the dashboard's.
    #[error("the dashboard is not at this address")]
    Host,
    /// A page of another site sent the request, or the request does not say who sent it.
    #[error("a page of another site sent this request")]
    Page,
}

impl BrowserRequest<'_> {
    /// Whether the request must not change anything.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        matches!(self.method, "GET" | "HEAD") && !self.is_upgrade
    }

    /// Checks that a page at one of the `origins`, such as `https://head.example:7760`, sent the request. Requests that
    /// open a page may also come from a link elsewhere.
    ///
    /// # Errors
    /// The request is for another host, or comes from elsewhere.
    pub fn check(&self, origins: &[impl AsRef<str>]) -> Result<(), Foreign> {
        let host = self.host.ok_or(Foreign::Host)?;
        let own = origins.iter().map(AsRef::as_ref).find(|origin| authority(origin) == host).ok_or(Foreign::Host)?;
        let is_own_origin = self.origin == Some(own);
        let is_own_site = self.fetch_site == Some("same-origin");
        // Browsers send `null` for forms of pages that hide their address from other sites, as the dashboard's pages do.
        let is_not_foreign = is_own_origin || self.origin.is_none() || (self.origin == Some("null") && is_own_site);
        let is_fine = if self.is_upgrade {
            is_own_origin
        } else if !self.is_safe() {
            match self.fetch_site {
                Some(_) => is_own_site && is_not_foreign,
                None => is_own_origin,
            }
        } else {
            let opens_page = self.fetch_mode == Some("navigate") && matches!(self.fetch_dest, None | Some("document"));
            is_not_foreign && (matches!(self.fetch_site, None | Some("same-origin" | "none")) || opens_page)
        };
        if is_fine { Ok(()) } else { Err(Foreign::Page) }
    }

    /// Whether a link on a page of another site led to the request.
    #[must_use]
    pub fn follows_foreign_link(&self) -> bool {
        self.is_safe()
            && self.fetch_mode == Some("navigate")
            && matches!(self.fetch_site, Some("cross-site" | "same-site"))
    }
}

/// Host and port of an origin.
fn authority(origin: &str) -> &str {
    origin.split_once("://").map_or(origin, |(_, authority)| authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "http://h1.localhost:8000";
    const ORIGINS: [&str; 2] = [OWN, "http://127.0.0.1:8000"];

    fn request(method: &str) -> BrowserRequest<'_> {
        BrowserRequest { method, host: Some("h1.localhost:8000"), ..BrowserRequest::default() }
    }

    #[test]
    fn foreign_hosts_are_refused_for_every_method() {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
            for host in [None, Some("evil:8000"), Some("h2.localhost:8000"), Some("127.0.0.1"), Some("localhost:8000")]
            {
                let origin = host.map(|host| format!("http://{host}"));
                for is_upgrade in [false, true] {
                    let request = BrowserRequest {
                        host,
                        is_upgrade,
                        origin: origin.as_deref(),
                        fetch_site: Some("same-origin"),
                        ..request(method)
                    };
                    assert_eq!(request.check(&ORIGINS), Err(Foreign::Host), "{request:?}");
                }
            }
        }
    }

    #[test]
    fn changes_need_a_page_of_the_dashboard() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
            for (origin, fetch_site, is_fine) in [
                (Some(OWN), Some("same-origin"), true),
                (Some("null"), Some("same-origin"), true),
                (None, Some("same-origin"), true),
                (Some(OWN), None, true),
                (Some("null"), None, false),
                (None, None, false),
                (Some("http://evil"), Some("same-origin"), false),
                // The other address of the dashboard is another origin too.
                (Some("http://127.0.0.1:8000"), None, false),
                (Some(OWN), Some("same-site"), false),
                (Some(OWN), Some("cross-site"), false),
                (Some(OWN), Some("none"), false),
            ] {
                let request = BrowserRequest { origin, fetch_site, fetch_mode: Some("navigate"), ..request(method) };
                assert_eq!(request.check(&ORIGINS).is_ok(), is_fine, "{request:?}");
            }
        }
    }

    #[test]
    fn web_sockets_need_the_exact_origin() {
        for (origin, is_fine) in [(Some(OWN), true), (Some("null"), false), (None, false), (Some("http://evil"), false)]
        {
            for fetch_site in [None, Some("same-origin"), Some("cross-site")] {
                let request = BrowserRequest { origin, fetch_site, is_upgrade: true, ..request("GET") };
                assert_eq!(request.check(&ORIGINS).is_ok(), is_fine, "{request:?}");
            }
        }
    }

    #[test]
    fn other_sites_may_link_to_pages_but_not_embed_them() {
        for (fetch_site, fetch_mode, fetch_dest, is_fine) in [
            (None, None, None, true),
            (Some("none"), Some("navigate"), Some("document"), true),
            (Some("same-origin"), Some("cors"), Some("empty"), true),
            (Some("cross-site"), Some("navigate"), Some("document"), true),
            (Some("cross-site"), Some("navigate"), Some("iframe"), false),
            (Some("cross-site"), Some("no-cors"), Some("script"), false),
            (Some("same-site"), Some("no-cors"), Some("image"), false),
            (Some("same-site"), Some("cors"), Some("empty"), false),
        ] {
            let request = BrowserRequest { fetch_site, fetch_mode, fetch_dest, ..request("GET") };
            assert_eq!(request.check(&ORIGINS).is_ok(), is_fine, "{request:?}");
        }
    }
}

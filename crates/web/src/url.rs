//! Addresses of pages and API operations. The builder encodes every part, so a name can never change where a link leads.

use std::fmt::{self, Write as _};
use std::ops::Deref;

/// A path on this server, with a query. It begins with exactly one `/`, so it never leads to another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url(String);

impl Url {
    /// Joins the segments of a path.
    pub(crate) fn of<S: fmt::Display>(segments: impl IntoIterator<Item = S>) -> Self {
        let mut text = String::new();
        for segment in segments {
            text.push('/');
            encode(&mut text, &segment.to_string());
        }
        Self(if text.is_empty() { "/".to_owned() } else { text })
    }

    /// The page of a job.
    pub(crate) fn job(id: impl fmt::Display) -> Self {
        Self::of(["jobs".to_owned(), id.to_string()])
    }

    /// The page of a node.
    pub(crate) fn node(name: &impl fmt::Display) -> Self {
        Self::of(["nodes".to_owned(), name.to_string()])
    }

    /// A path that a browser sent, e.g. to return to after an action. Returns `None` if it may lead to another server.
    pub(crate) fn local(text: &str) -> Option<Self> {
        let is_local = text.starts_with('/') && !text.starts_with("//") && text.len() <= 2000;
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        (is_local && is_plain).then(|| Self(text.to_owned()))
    }

    /// Adds a segment to the path. Only for addresses without a query.
    pub(crate) fn then(mut self, segment: impl fmt::Display) -> Self {
        self.0.push('/');
        encode(&mut self.0, &segment.to_string());
        self
    }

    /// Adds a parameter to the query.
    pub(crate) fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        encode(&mut self.0, name);
        self.0.push('=');
        encode(&mut self.0, &value.to_string());
        self
    }

    /// Adds the id of an element on the page.
    pub(crate) fn at(mut self, id: &'static str) -> Self {
        self.0.push('#');
        self.0.push_str(id);
        self
    }

    /// Removes a parameter from the query.
    pub(crate) fn without(&self, name: &str) -> Self {
        let Some((path, query)) = self.0.split_once('?') else { return self.clone() };
        let is_other = |pair: &&str| pair.split('=').next() != Some(name);
        let kept: Vec<&str> = query.split('&').filter(is_other).collect();
        Self(if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) })
    }
}

/// Appends the text with every byte percent-encoded that has a meaning in a path or a query. A segment of only dots
/// would change the path, so its dots are encoded too; browsers still resolve `%2e%2e`, so `..` becomes `%252e%252e`.
fn encode(target: &mut String, text: &str) {
    if matches!(text, "." | "..") {
        target.push_str(&text.replace('.', "%252e"));
        return;
    }
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => target.push(char::from(byte)),
            _ => write!(target, "%{byte:02X}").expect("strings accept all writes"),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Deref for Url {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_change_where_a_link_leads() {
        for (name, path) in [
            ("n1", "/nodes/n1"),
            ("../people", "/nodes/..%2Fpeople"),
            ("..", "/nodes/%252e%252e"),
            ("javascript:alert(1)", "/nodes/javascript%3Aalert%281%29"),
            ("a?b=c#d", "/nodes/a%3Fb%3Dc%23d"),
            ("ü\n\"<", "/nodes/%C3%BC%0A%22%3C"),
        ] {
            assert_eq!(&*Url::node(&name), path);
        }
        assert_eq!(&*Url::of(["jobs"]).with("q", "a&b= c").with("user", "ada"), "/jobs?q=a%26b%3D%20c&user=ada");
    }

    #[test]
    fn only_paths_of_this_server_are_local() {
        for fine in ["/", "/jobs?state=failed&done=3"] {
            assert!(Url::local(fine).is_some(), "{fine}");
        }
        for foul in ["", "//evil", "/\\evil", "https://evil", "jobs", "/a\nb", "/ü"] {
            assert!(Url::local(foul).is_none(), "{foul}");
        }
    }

    #[test]
    fn parameters_are_removed_by_name() {
        let url = Url::of(["jobs"]).with("done", 3).with("q", "done").with("page", 1);
        assert_eq!(&*url.without("done"), "/jobs?q=done&page=1");
        assert_eq!(&*Url::of(["jobs"]).with("done", 3).without("done"), "/jobs");
    }
}

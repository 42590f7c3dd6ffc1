//! Events, from the audit log: what happened to the cluster, who changed what, and which requests were refused.

use askama::Template;
use axum::response::Html;
use hostler_proto::users::{AuditEntry, AuditPage, FROM_CLUSTER};

use crate::api::Refused;
use crate::page::{Frame, render};
use crate::url::Url;

/// Number of the newest entries that the filter searches.
const SEARCHED: usize = 20_000;

/// Number of entries on the page.
const SHOWN: usize = 200;

#[derive(Template)]
#[template(path = "audit.html")]
struct Audit {
    frame: Frame,
    text: String,
    kind: Kind,
    entries: Vec<AuditEntry>,
    /// Whether more entries match than the page shows.
    is_cut: bool,
    /// Whether the log has entries that were not searched.
    is_long: bool,
}

/// Which entries the page shows.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    label: &'static str,
    includes: fn(&AuditEntry) -> bool,
}

const KINDS: [Kind; 4] = [
    Kind { name: "", label: "All", includes: |_| true },
    Kind { name: "cluster", label: "Cluster", includes: |entry| entry.from == FROM_CLUSTER },
    Kind { name: "people", label: "People", includes: |entry| entry.from != FROM_CLUSTER && entry.error.is_none() },
    Kind { name: "refused", label: "Refused", includes: |entry| entry.error.is_some() },
];

impl Audit {
    const fn kinds() -> [Kind; 4] {
        KINDS
    }

    fn address(&self, kind: &Kind) -> Url {
        let url = Url::of(["audit"]).with("kind", kind.name);
        if self.text.is_empty() { url } else { url.with("text", &self.text) }
    }

    fn who<'a>(&self, entry: &'a AuditEntry) -> &'a str {
        entry.user.as_deref().or(entry.address.as_deref()).unwrap_or("–")
    }
}

/// `GET /audit`, the newest entry first.
pub(crate) async fn show(frame: Frame) -> Result<Html<String>, Refused> {
    let text = frame.query.text("text").unwrap_or_default().to_owned();
    let page: AuditPage = frame.api.get(&Url::of(["audit"]).with("limit", SEARCHED)).await?;
    let wanted = text.to_lowercase();
    let kind = frame.query.text("kind").unwrap_or_default();
    let kind = KINDS.into_iter().find(|known| known.name == kind).unwrap_or(KINDS[0]);
    let matching = page.entries.into_iter().rev().filter(|entry| (kind.includes)(entry) && contains(entry, &wanted));
    let mut entries: Vec<AuditEntry> = matching.take(SHOWN + 1).collect();
    let is_cut = entries.len() > SHOWN;
    entries.truncate(SHOWN);
    Ok(render(&Audit { frame, text, kind, entries, is_cut, is_long: page.cut }))
}

/// Whether an entry contains a text in lower case.
fn contains(entry: &AuditEntry, text: &str) -> bool {
    let AuditEntry { user, node, address, action, about, error, status, .. } = entry;
    let node = node.as_ref().map(ToString::to_string);
    let fields = [user, &node, address, about, error].into_iter().flatten().chain([action]);
    text.is_empty() || status.to_string() == text || fields.into_iter().any(|field| field.to_lowercase().contains(text))
}

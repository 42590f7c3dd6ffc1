//! Lists of names in sentences.

/// Maximum number of jobs, tasks or nodes that an explanation lists by name.
pub(super) const NAMED: usize = 3;

/// Lists the first few of `total` names, and the number of further names.
pub(super) fn and_more(names: &[impl AsRef<str>], total: usize) -> String {
    let first: Vec<&str> = names.iter().take(NAMED).map(AsRef::as_ref).collect();
    let more = total.saturating_sub(first.len());
    if more == 0 { first.join(", ") } else { format!("{} and {more} more", first.join(", ")) }
}

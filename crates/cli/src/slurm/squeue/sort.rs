//! The order of rows, as `squeue -S` takes it.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use hostler_model::WallTime;

use super::super::rows::{Accounts, Row};

/// The usual order: by partition, by state, and by priority, the highest first.
pub(super) const USUAL: &str = "P,t,-p";

/// Letters that Slurm accepts and that order nothing.
const WITHOUT_EFFECT: &[u8] = b"bcdfhnHIJOz";

/// Letters that order rows.
const LETTERS: &[u8] = b"BCDeglGijLmMNpPQStTuUvV";

/// The word for the name of the cluster, which is the same for all jobs.
const CLUSTER: &str = "cluster";

/// How long after now a start counts that is not known.
const UNKNOWN_START_MS: i64 = 100_000;

/// The order that a list such as `P,-t,i` describes: what to compare first, and whether the order is reversed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order(Vec<(u8, bool)>);

impl Order {
    /// Parses a list of letters.
    ///
    /// # Errors
    /// Returns the last character that does not name a column to sort by.
    pub(super) fn parse(list: &str) -> Result<Self, char> {
        let mut keys = Vec::new();
        let mut rest = list;
        while let Some(c) = rest.chars().next_back() {
            if rest.len() >= CLUSTER.len() && rest.is_char_boundary(rest.len() - CLUSTER.len()) {
                let (before, word) = rest.split_at(rest.len() - CLUSTER.len());
                if word.eq_ignore_ascii_case(CLUSTER) {
                    rest = before;
                    continue;
                }
            }
            rest = &rest[..rest.len() - c.len_utf8()];
            match u8::try_from(c) {
                Ok(b',' | b'+' | b'-') => {}
                Ok(letter) if LETTERS.contains(&letter) => keys.push((letter, rest.ends_with('-'))),
                Ok(letter) if WITHOUT_EFFECT.contains(&letter) => {}
                _ => return Err(c),
            }
        }
        keys.reverse();
        Ok(Self(keys))
    }

    /// Sorts rows. Rows that the order does not tell apart are in the order of their ids.
    pub(super) fn sort(&self, rows: &mut [Row<'_>], now: WallTime, accounts: &mut Accounts) {
        let mut users = BTreeMap::new();
        if self.0.iter().any(|(letter, _)| b"gGU".contains(letter)) {
            for row in rows.iter() {
                let name = row.job.user.as_str();
                let ids = || (accounts.uid(name), accounts.gid(name), accounts.group(name));
                users.entry(name).or_insert_with(ids);
            }
        }
        rows.sort_by(|a, b| {
            let differing = self.0.iter().map(|(letter, is_reversed)| {
                let (ordering, of_users) = (compare(*letter, now, a, b), compare_users(*letter, &users, a, b));
                let ordering = ordering.then(of_users);
                if *is_reversed { ordering.reverse() } else { ordering }
            });
            differing.fold(Ordering::Equal, Ordering::then).then_with(|| id(a).cmp(&id(b)))
        });
    }
}

fn compare(letter: u8, now: WallTime, a: &Row<'_>, b: &Row<'_>) -> Ordering {
    let starts_at = |row: &Row<'_>| row.expected_start().map_or(now.0 + UNKNOWN_START_MS, |at| at.0);
    // A job without a time limit ends last, a job that waits has no end yet.
    let ends_at =
        |row: &Row<'_>| row.expected_end().map_or(if row.expected_start().is_some() { i64::MAX } else { 0 }, |at| at.0);
    let limit = |row: &Row<'_>| row.limit().unwrap_or(u64::MAX);
    let left = |row: &Row<'_>| row.limit().map_or(i64::MAX, |limit| limit as i64 - row.elapsed(now) as i64);
    match letter {
        b'B' => a.batch_host().cmp(&b.batch_host()),
        b'C' => a.cpus().cmp(&b.cpus()),
        b'D' => a.job.nodes.cmp(&b.job.nodes),
        b'e' => ends_at(a).cmp(&ends_at(b)),
        b'i' => id(a).cmp(&id(b)),
        b'j' => a.job.name.cmp(&b.job.name),
        b'l' => limit(a).cmp(&limit(b)),
        b'L' => left(a).cmp(&left(b)),
        b'm' => a.job.memory_bytes.cmp(&b.job.memory_bytes),
        b'M' => a.elapsed(now).cmp(&b.elapsed(now)),
        b'N' => first_node(a).cmp(&first_node(b)),
        b'p' | b'Q' => a.priority().cmp(&b.priority()),
        b'P' => a.partition().cmp(b.partition()),
        b'S' => starts_at(a).cmp(&starts_at(b)),
        b't' => a.state().code().cmp(b.state().code()),
        b'T' => a.state().name().cmp(b.state().name()),
        b'u' => a.job.user.cmp(&b.job.user),
        b'v' => a.label("reservation").cmp(&b.label("reservation")),
        b'V' => a.job.submitted_at.cmp(&b.job.submitted_at),
        _ => Ordering::Equal,
    }
}

fn compare_users(letter: u8, users: &BTreeMap<&str, (u32, u32, String)>, a: &Row<'_>, b: &Row<'_>) -> Ordering {
    let (a, b) = (users.get(a.job.user.as_str()), users.get(b.job.user.as_str()));
    match letter {
        b'g' => a.map(|(.., group)| group).cmp(&b.map(|(.., group)| group)),
        b'G' => a.map(|(_, gid, _)| gid).cmp(&b.map(|(_, gid, _)| gid)),
        b'U' => a.map(|(uid, ..)| uid).cmp(&b.map(|(uid, ..)| uid)),
        _ => Ordering::Equal,
    }
}

/// The job, and the index of its task; the tasks that wait together come last.
fn id(row: &Row<'_>) -> (u64, u32) {
    (row.job.id.0, row.index().unwrap_or(u32::MAX))
}

/// The name of the first node, split so that `n2` comes before `n10`.
fn first_node<'a>(row: &Row<'a>) -> (&'a str, Option<u64>) {
    let name = row.nodes().first().copied().unwrap_or_default();
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (prefix, name[prefix.len()..].parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_have_signs() {
        let keys = |list: &str| Order::parse(list).map(|Order(keys)| keys);
        assert_eq!(keys(USUAL), Ok(vec![(b'P', false), (b't', false), (b'p', true)]));
        assert_eq!(keys("+t,-i"), Ok(vec![(b't', false), (b'i', true)]));
        assert_eq!(keys("-cluster,S,h"), Ok(vec![(b'S', false)]));
        assert_eq!(keys("Pti"), Ok(vec![(b'P', false), (b't', false), (b'i', false)]));
        assert_eq!(keys(""), Ok(vec![]));
        assert_eq!((keys("bogus"), keys("i,ä"), keys("k")), (Err('s'), Err('ä'), Err('k')));
    }
}

//! Host lists, such as `n[1-3,08],login`: many names in a short text.

use std::fmt::Write;

/// The most names that a list may stand for. A larger list is a mistake, or an attack.
const MOST_NAMES: usize = 65_536;

/// Returns the names that a list stands for, in its order and with its repetitions.
///
/// # Errors
/// Returns why the list is wrong, for people.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for group in groups(list) {
        let mut partial = vec![String::new()];
        let mut rest = group;
        while let Some((before, bracket)) = rest.split_once('[') {
            let (inner, after) = bracket.split_once(']').ok_or_else(|| format!("`{group}` has no closing bracket"))?;
            let numbers = numbers(inner)?;
            if partial.len().saturating_mul(numbers.len()).saturating_add(names.len()) > MOST_NAMES {
                return Err(format!("`{group}` stands for more than {MOST_NAMES} names"));
            }
            let with =
                |start: &String| numbers.iter().map(|number| format!("{start}{before}{number}")).collect::<Vec<_>>();
            partial = partial.iter().flat_map(with).collect();
            rest = after;
        }
        names.extend(partial.into_iter().map(|start| start + rest));
    }
    Ok(names)
}

/// Splits a list at commas and blanks outside of brackets.
fn groups(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    list.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c.is_ascii_whitespace())
    })
    .filter(|group| !group.is_empty())
}

/// Returns the numbers of a bracket such as `1-3,08`, with their leading zeros.
fn numbers(ranges: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let bounds = number(first).zip(number(last)).filter(|(first, last)| first <= last);
        let (low, high) = bounds.ok_or_else(|| format!("Invalid range: `{range}'"))?;
        if high - low >= MOST_NAMES as u64 {
            return Err(format!("`{range}` stands for more than {MOST_NAMES} names"));
        }
        let width = first.len();
        numbers.extend((low..=high).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

/// Returns the short text for these names. Only neighbours in the list share a bracket, so [`expand`] gives the same order.
#[must_use]
pub fn compress<Name: AsRef<str>>(names: &[Name]) -> String {
    let mut text = String::new();
    let mut names = names.iter().map(|name| Numbered::new(name.as_ref())).peekable();
    while let Some(first) = names.next() {
        if !text.is_empty() {
            text.push(',');
        }
        let mut ranges = vec![(first, first)];
        let follows =
            |next: &Numbered<'_>| first.number.is_some() && next.number.is_some() && next.prefix == first.prefix;
        while let Some(next) = names.next_if(follows) {
            match ranges.last_mut() {
                Some((_, last)) if last.is_before(next) => *last = next,
                _ => ranges.push((next, next)),
            }
        }
        text.push_str(first.prefix);
        let range = |(low, high): &(Numbered<'_>, Numbered<'_>)| match low == high {
            true => low.digits.to_owned(),
            false => format!("{}-{}", low.digits, high.digits),
        };
        let inner = ranges.iter().map(range).collect::<Vec<_>>().join(",");
        match ranges.as_slice() {
            [(low, high)] if low == high => text.push_str(&inner),
            _ => write!(text, "[{inner}]").expect("text grows"),
        }
    }
    text
}

/// A name, split before the number at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbered<'a> {
    prefix: &'a str,
    digits: &'a str,
    number: Option<u64>,
}

impl<'a> Numbered<'a> {
    fn new(name: &'a str) -> Self {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[prefix.len()..];
        match digits.parse() {
            Ok(number) => Self { prefix, digits, number: Some(number) },
            Err(_) => Self { prefix: name, digits: "", number: None },
        }
    }

    /// Returns whether the other name follows at once, written with the same width.
    fn is_before(self, next: Self) -> bool {
        let is_padded = |it: Self| it.digits.len() > 1 && it.digits.starts_with('0');
        let same_width = self.digits.len() == next.digits.len() || !(is_padded(self) || is_padded(next));
        self.number.and_then(|number| number.checked_add(1)) == next.number && same_width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The texts are those of `scontrol show hostnames` and `scontrol show hostlist`.
    #[test]
    fn lists_are_expanded() {
        for (list, names) in [
            ("c[1-3],d5", "c1 c2 c3 d5"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("n[9-11]", "n9 n10 n11"),
            ("n[001-3]", "n001 n002 n003"),
            ("n[0-2,02]", "n0 n1 n2 n02"),
            ("n[3]", "n3"),
            (",,a a,b", "a a b"),
            ("n[1-2]x[1-2]", "n1x1 n1x2 n2x1 n2x2"),
            ("n[1-2][3-4]", "n13 n14 n23 n24"),
            ("c-[1-2]-x", "c-1-x c-2-x"),
            ("", ""),
        ] {
            assert_eq!(expand(list).expect(list).join(" "), names, "{list}");
        }
        for list in ["n[3-1]", "n[a]", "n[]", "n[1-", "n[+1]", "n[0-99999999]", "n[1-300][1-300]", "n[-1]"] {
            assert!(expand(list).is_err(), "{list}");
        }
    }

    #[test]
    fn names_are_compressed() {
        for (names, list) in [
            ("c1,c2,c3,d5", "c[1-3],d5"),
            ("c3,c1,c2", "c[3,1-2]"),
            ("n08,n09,n10,n11", "n[08-11]"),
            ("n9,n10", "n[9-10]"),
            ("n1,n1", "n[1,1]"),
            ("n1,n3", "n[1,3]"),
            ("n01,n2", "n[01,2]"),
            ("n1,m1,n2", "n1,m1,n2"),
            ("n1x1,n1x2", "n1x[1-2]"),
            ("c-1-x,c-2-x", "c-1-x,c-2-x"),
            ("a,b", "a,b"),
            ("n,n1,n2", "n,n[1-2]"),
            ("n1,n,n2", "n1,n,n2"),
            ("n3", "n3"),
            ("", ""),
        ] {
            let given: Vec<_> = groups(names).collect();
            assert_eq!(compress(&given), list, "{names}");
            assert_eq!(expand(list).expect(list), given);
        }
    }
}

//! Paths below a folder as bytes: displays them, splits them and checks where links lead.

/// The maximum length of a path on Linux, in bytes.
pub(crate) const MAX_PATH_BYTES: usize = 4095;

/// The maximum length of a path component on Linux, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// Formats a path on one line: unchanged if possible, otherwise quoted with escapes.
#[must_use]
pub fn show(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(text) if !text.is_empty() && !text.chars().any(char::is_control) => text.to_owned(),
        _ => format!("\"{}\"", path.escape_ascii()),
    }
}

/// Returns the parent directory of `path`; empty for the folder itself.
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(&[], |slash| &path[..slash])
}

/// Returns the last component of `path`.
pub(crate) fn name(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(path, |slash| &path[slash + 1..])
}

/// Joins `directory`, which is empty for the folder itself, and `name`.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Returns `target`, an absolute target of the link at path `link`, as a relative one, if it names `folder` or
/// a path below it, without `..`. `folder` is an absolute path without a slash at its end.
pub(crate) fn relative_target(link: &[u8], target: &[u8], folder: &[u8]) -> Option<Vec<u8>> {
    let rest = target.strip_prefix(folder)?;
    if !rest.is_empty() && !rest.starts_with(b"/") {
        return None;
    }
    let up = link.iter().filter(|&&byte| byte == b'/').map(|_| b"..".as_slice());
    let down: Vec<&[u8]> = rest.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
    if down.contains(&b"..".as_slice()) {
        return None;
    }
    let relative = up.chain(down).collect::<Vec<_>>().join(&b'/');
    let relative = if relative.is_empty() { b".".to_vec() } else { relative };
    (relative.len() <= MAX_PATH_BYTES).then_some(relative)
}

/// Returns why `path` is invalid in a manifest, as a phrase; `None` if it is valid.
#[must_use]
pub fn fault(path: &[u8]) -> Option<&'static str> {
    if path.is_empty() || path.len() > MAX_PATH_BYTES {
        return Some("the path is empty or too long");
    }
    path.split(|&byte| byte == b'/').find_map(|name| match name {
        b"" => Some("the path is absolute or has an empty component"),
        b"." | b".." => Some("the path has the component `.` or `..`"),
        _ if name.contains(&0) => Some("the path contains a zero byte"),
        _ if name.len() > MAX_NAME_BYTES => Some("the path has a component longer than 255 bytes"),
        _ => None,
    })
}

/// The number of links that Linux follows in one path before it gives up.
const MAX_HOPS: usize = 40;

/// The limit for following all links of one folder, in bytes of paths looked up; takes less than a second. A hundred
/// thousand ordinary links take half of it. Without the limit, forty long links that lead through one another, with a
/// million short links to the first, would take days.
pub(crate) const EFFORT: u64 = 128 << 20;

/// Returns whether the link at path `link` with text `target` stays inside the folder. Follows other links of the
/// folder, which `link_at` returns.
///
/// A missing target is judged by its text. A loop stays inside, since it ends nowhere. The function subtracts its cost
/// from `effort`. Once that is used up, every link counts as leading outside.
pub(crate) fn stays_inside<'a>(
    link: &'a [u8],
    target: &'a [u8],
    link_at: &impl Fn(&[u8]) -> Option<&'a [u8]>,
    effort: &mut u64,
) -> bool {
    let mut here = parent(link).to_vec();
    let mut todo: Vec<&[u8]> = Vec::new();
    let mut next = Some(target);
    let mut hops = 0;
    loop {
        if let Some(target) = next.take() {
            hops += 1;
            if target.starts_with(b"/") {
                return false;
            }
            if hops > MAX_HOPS {
                return true;
            }
            todo.extend(target.split(|&byte| byte == b'/').rev());
        }
        *effort = effort.saturating_sub(1);
        if *effort == 0 {
            return false;
        }
        match todo.pop() {
            None => return true,
            Some(b"" | b".") => {}
            Some(b"..") => {
                if here.is_empty() {
                    return false;
                }
                here.truncate(parent(&here).len());
            }
            Some(name) => {
                if !here.is_empty() {
                    here.push(b'/');
                }
                here.extend_from_slice(name);
                *effort = effort.saturating_sub(here.len() as u64);
                next = link_at(&here);
                if next.is_some() {
                    here.truncate(parent(&here).len());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(link: &str, links: &[(&'static str, &'static str)]) -> bool {
        let link_at = |path: &[u8]| links.iter().find(|it| it.0.as_bytes() == path).map(|it| it.1.as_bytes());
        let (link, target) = links.iter().find(|it| it.0 == link).expect("the link is listed");
        stays_inside(link.as_bytes(), target.as_bytes(), &link_at, &mut { EFFORT })
    }

    #[test]
    fn links_are_followed_as_linux_does() {
        assert!(inside("a/b", &[("a/b", "../c")]));
        assert!(inside("b", &[("b", "nowhere/at/all")]));
        assert!(!inside("a/b", &[("a/b", "../../c")]));
        assert!(!inside("b", &[("b", "/etc/passwd")]));
        assert!(!inside("b", &[("b", "..")]));
        assert!(inside("b", &[("b", ".")]));
        // Through other links: `deep` is two levels down, but `near` makes `..` start one level up.
        assert!(inside("x/y/deep", &[("x/y/deep", "../../z")]));
        assert!(!inside("a", &[("a", "near/../.."), ("near", "x")]));
        assert!(!inside("x/a", &[("x/a", "up/.."), ("x/up", "..")]));
        assert!(!inside("a", &[("a", "b"), ("b", "c"), ("c", "/")]));
        assert!(inside("a", &[("a", "b"), ("b", "a")]));
    }

    #[test]
    fn absolute_targets_within_the_folder_become_relative() {
        let relative = |link: &str, target: &str| {
            let relative = relative_target(link.as_bytes(), target.as_bytes(), b"/home/ada/p");
            relative.map(|bytes| String::from_utf8(bytes).expect("text"))
        };
        for (link, target, expected) in [
            ("latest", "/home/ada/p/out/3", "out/3"),
            ("a/b/c", "/home/ada/p/data//x/", "../../data/x"),
            ("a/up", "/home/ada/p", ".."),
            ("here", "/home/ada/p/", "."),
        ] {
            assert_eq!(relative(link, target).as_deref(), Some(expected));
        }
        for outside in ["/home/ada/p/../q", "/home/ada/p-2/x", "/home/ada", "/etc/passwd"] {
            assert_eq!(relative("link", outside), None, "{outside}");
        }
    }

    #[test]
    fn invalid_paths_are_refused() {
        for good in ["a", "a/b", "-x", ".hidden", "..."] {
            assert_eq!(fault(good.as_bytes()), None, "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", ".", "a/../b", "..", "a\0b"] {
            assert!(fault(bad.as_bytes()).is_some(), "{bad}");
        }
    }

    #[test]
    fn unusual_names_are_shown_on_one_line() {
        assert_eq!(show("käse/a b".as_bytes()), "käse/a b");
        assert_eq!(show(b"a\nb"), "\"a\\nb\"");
        assert_eq!(show(b"\xff"), "\"\\xff\"");
    }
}

//! Text of requirements files: encodings, lines, paths and URLs.

/// Decodes a file as pip does: by its byte order mark, or by a coding line among the first two lines, or as UTF-8.
pub(super) fn decoded(bytes: &[u8]) -> Result<String, String> {
    let (rest, encoding) = match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => (rest, "utf-8".to_owned()),
        [0xff, 0xfe, rest @ ..] => (rest, "utf-16-le".to_owned()),
        [0xfe, 0xff, rest @ ..] => (rest, "utf-16-be".to_owned()),
        _ => (bytes, coding_line(bytes).unwrap_or_else(|| "utf-8".to_owned())),
    };
    let invalid = || format!("is not {} text", encoding.to_ascii_uppercase());
    let text = match encoding.to_ascii_lowercase().replace('_', "-").as_str() {
        "utf-8" | "utf8" | "utf-8-sig" => String::from_utf8(rest.to_vec()).ok(),
        "ascii" | "us-ascii" => rest.is_ascii().then(|| String::from_utf8_lossy(rest).into_owned()),
        "latin-1" | "latin1" | "iso-8859-1" | "iso8859-1" => Some(rest.iter().map(|byte| char::from(*byte)).collect()),
        "utf-16-le" => utf16(rest, u16::from_le_bytes),
        "utf-16-be" => utf16(rest, u16::from_be_bytes),
        _ => return Err(format!("is in the encoding {encoding}: save it as UTF-8")),
    };
    text.map(|text| text.trim_start_matches('\u{feff}').to_owned()).ok_or_else(invalid)
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
    String::from_utf16(&units).ok().filter(|_| rest.is_empty())
}

/// The encoding that a comment such as `# -*- coding: latin-1 -*-` names.
fn coding_line(bytes: &[u8]) -> Option<String> {
    let comments = bytes.split(|byte| *byte == b'\n').take(2).filter(|line| line.starts_with(b"#"));
    comments
        .filter_map(|line| {
            let line = String::from_utf8_lossy(line);
            let names = line.match_indices("coding").filter_map(|(at, word)| {
                let value = line[at + word.len()..].strip_prefix([':', '='])?.trim_start();
                let end =
                    value.find(|it: char| !it.is_ascii_alphanumeric() && !"-_.".contains(it)).unwrap_or(value.len());
                (end > 0).then(|| value[..end].to_owned())
            });
            names.last()
        })
        .next()
}

/// Lines with joined continuations, without comments, surrounding whitespace and empty lines.
pub(super) fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut current = String::new();
    // All line ends of Python's `str.splitlines`.
    let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
    for line in text.replace("\r\n", "\n").split(ends) {
        let is_comment = line.trim_start().starts_with('#');
        if line.ends_with('\\') && !is_comment {
            current.push_str(line.trim_matches('\\'));
            continue;
        }
        if is_comment {
            // A comment ends a continuation.
            current.push(' ');
        }
        current.push_str(line);
        lines.push(std::mem::take(&mut current));
    }
    lines.push(current);
    let stripped = lines.iter().map(|line| without_comment(line).trim().to_owned());
    stripped.filter(|line| !line.is_empty()).collect()
}

/// Removes a comment. It starts with a `#` at the start of the line or after whitespace; other `#` belong to URLs.
fn without_comment(line: &str) -> &str {
    let is_comment = |at: &usize| *at == 0 || line[..*at].ends_with(char::is_whitespace);
    let end = line.match_indices('#').map(|(at, _)| at).find(is_comment);
    &line[..end.unwrap_or(line.len())]
}

/// Whether a requirement is a URL for pip.
pub(super) fn is_url(requirement: &str) -> bool {
    const VERSION_CONTROL: [&str; 4] = ["git", "hg", "svn", "bzr"];
    let Some((scheme, _)) = requirement.split_once(':') else { return false };
    let scheme = scheme.to_ascii_lowercase();
    let tool = scheme.split_once('+').map_or("", |(tool, _)| tool);
    ["http", "https", "file", "ftp"].contains(&scheme.as_str()) || VERSION_CONTROL.contains(&tool)
}

pub(super) fn is_file_url(text: &str) -> bool {
    text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"))
}

/// The package, with its extras, and the target of `package[extra] @ target`.
pub(super) fn direct_reference(requirement: &str) -> Option<(&str, &str)> {
    let (package, target) = requirement.split_once('@')?;
    let package = package.trim();
    let name = package.split_once('[').map_or(package, |(name, _)| name).trim_end();
    let is_name = !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it));
    (is_name && !name.starts_with('.')).then_some((package, target.trim()))
}

/// Splits `./pkg[extra]` into the path and the extras with their brackets.
pub(super) fn split_extras(path: &str) -> (&str, &str) {
    let inner = path.strip_suffix(']').and_then(|rest| rest.rfind('[').map(|at| (at, &rest[at + 1..])));
    match inner {
        Some((at, extras)) if at > 0 && !extras.is_empty() && !extras.contains(']') => path.split_at(at),
        _ => (path, ""),
    }
}

/// A `file:` URL, which may be relative.
pub(super) struct FileUrl {
    /// Decoded path.
    pub(super) path: String,
    /// Package with extras, from `egg=` in the fragment.
    pub(super) package: Option<String>,
    /// The fragment without the package.
    pub(super) fragment: String,
    pub(super) is_of_this_machine: bool,
}

impl FileUrl {
    /// Parses a text for which [`is_file_url`] holds.
    pub(super) fn parse(url: &str) -> Self {
        let rest = &url["file:".len()..];
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let (eggs, others): (Vec<&str>, Vec<&str>) =
            fragment.split('&').filter(|part| !part.is_empty()).partition(|part| part.starts_with("egg="));
        Self {
            path: percent_decoded(path),
            package: eggs.first().map(|egg| percent_decoded(&egg["egg=".len()..])),
            fragment: others.join("&"),
            is_of_this_machine: host.is_empty() || host == "localhost",
        }
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A path with percent-encoded bytes, for a URL.
pub(crate) fn encoded(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~+!".contains(&byte);
    path.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_that_pip_reads_are_decoded() {
        let utf16 =
            |to_bytes: fn(u16) -> [u8; 2]| "\u{feff}six # é\n".encode_utf16().flat_map(to_bytes).collect::<Vec<u8>>();
        for bytes in [
            b"six # \xc3\xa9\n".to_vec(),
            b"\xef\xbb\xbfsix # \xc3\xa9\n".to_vec(),
            utf16(u16::to_le_bytes),
            utf16(u16::to_be_bytes),
        ] {
            assert_eq!(decoded(&bytes).as_deref(), Ok("six # é\n"));
        }
        let latin = b"# -*- coding: latin-1 -*-\nsix # \xe9\n";
        assert_eq!(decoded(latin).as_deref(), Ok("# -*- coding: latin-1 -*-\nsix # é\n"));
        assert_eq!(decoded(b"six # \xe9\n"), Err("is not UTF-8 text".to_owned()));
        assert_eq!(decoded(b"# coding=koi8-r\n"), Err("is in the encoding koi8-r: save it as UTF-8".to_owned()));
    }

    #[test]
    fn continuations_and_comments_are_joined_as_in_pip() {
        let lines = logical_lines("six\\\n>=1\r\na#b # c\n# x \\\ntoolz \\\n# end\nlast \\");
        assert_eq!(lines, ["six>=1", "a#b", "toolz", "last"]);
    }
}

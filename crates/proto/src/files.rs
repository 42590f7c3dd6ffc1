//! Files of results, as the API lists them.

use hostler_model::WallTime;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer of `GET /jobs/{id}/tasks/{index}/files`: a page of one directory of a task's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FilePage {
    /// Path of the directory, in the form of [`FileView::path`]; empty for the top of the result.
    pub directory: String,
    /// Entries of the directory, directories first, then by name.
    pub files: Vec<FileView>,
    /// Number of entries of the directory.
    pub total: u64,
    /// Value of the query parameter `from` for the next page; absent on the last page.
    pub next: Option<u64>,
    /// Problems during the capture of the result, one sentence each: at most 100.
    pub problems: Vec<String>,
}

/// A file, directory or link in a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileView {
    /// Path in the result. Backslashes, and bytes that are not UTF-8, are written as `\xHH` with two hexadecimal digits.
    pub path: String,
    /// What the entry is.
    pub kind: FileKind,
    /// Size of a file, in bytes; absent for others.
    pub size_bytes: Option<u64>,
    /// Time of the last change.
    pub modified_at: WallTime,
    /// Target of a link, in the form of `path`; absent for others.
    pub target: Option<String>,
}

/// What an entry of a result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// Writes a path as text: backslashes and bytes that are not UTF-8 become `\xHH`.
#[must_use]
pub fn path_as_text(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\x5c"));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// Reads a path that [`path_as_text`] wrote; `None` if a backslash is not followed by `xHH`.
#[must_use]
pub fn path_from_text(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits =
            part.strip_prefix('x')?.get(..2).filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()))?;
        path.push(u8::from_str_radix(digits, 16).ok()?);
        path.extend(&part.as_bytes()[3..]);
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_readable_texts() {
        for (path, text) in
            [(&b"plots/a b.png"[..], "plots/a b.png"), (b"\xff\\x41\xc3\xbc", "\\xff\\x5cx41\u{fc}"), (b"a\nb", "a\nb")]
        {
            assert_eq!(path_as_text(path), text);
            assert_eq!(path_from_text(text).as_deref(), Some(path));
        }
        for text in ["\\", "\\x", "\\x4", "\\xzz", "a\\n", "\\x+1"] {
            assert_eq!(path_from_text(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_path_round_trips(path: Vec<u8>) {
            prop_assert_eq!(path_from_text(&path_as_text(&path)), Some(path));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text: String) {
            let _ = path_from_text(&text);
        }
    }
}

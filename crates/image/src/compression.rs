//! Recognises compressed files by their first bytes.

use std::{fmt, io};

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
    /// xz.
    Xz,
    /// bzip2.
    Bzip2,
}

impl Compression {
    /// Number of bytes that [`Compression::of`] needs.
    pub(crate) const START_BYTES: u64 = 6;

    /// Returns the compression of a file that starts with these bytes.
    pub(crate) fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            // The second is a frame of notes, which may come first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [b'B', b'Z', b'h', ..] => Some(Self::Bzip2),
            _ => None,
        }
    }

    /// The program that decompresses a file and keeps it.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Gzip => "gunzip --keep",
            Self::Zstd => "unzstd",
            Self::Xz => "unxz --keep",
            Self::Bzip2 => "bunzip2 --keep",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
        })
    }
}

/// An error of the archive's reader or of a decompressor, whose texts may quote bytes of the file.
pub(crate) fn without_content(error: io::Error) -> io::Error {
    match (error.raw_os_error(), error.kind()) {
        (Some(_), _) => error,
        (None, kind @ io::ErrorKind::UnexpectedEof) => io::Error::new(kind, "it ends too early"),
        (None, kind) => io::Error::new(kind, "it is damaged, or not a tar archive"),
    }
}

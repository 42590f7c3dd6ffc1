//! Entries with their names: the digests of their encodings.

use hostler_model::Digest;
use hostler_proto::manifest::Entry;

use crate::chunk::digest_of;

/// An entry and the digest of its encoding, which is computed once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    entry: Entry,
    name: Digest,
}

impl Named {
    /// Computes the digest of an entry.
    #[must_use]
    pub fn new(entry: Entry) -> Self {
        let name = digest_of(&hostler_proto::encode(&entry));
        Self { entry, name }
    }

    /// Combines an entry with its known digest.
    pub(crate) const fn again(entry: Entry, name: Digest) -> Self {
        Self { entry, name }
    }

    #[must_use]
    pub const fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns the digest of the encoded entry.
    #[must_use]
    pub const fn name(&self) -> &Digest {
        &self.name
    }
}

impl std::ops::Deref for Named {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

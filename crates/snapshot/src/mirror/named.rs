//! Entries with their names: the digest of all that is said of them.

use hostler_model::Digest;
use hostler_proto::manifest::Entry;

use crate::chunk::digest_of;

/// An entry and its name, which is worked out once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    entry: Entry,
    name: Digest,
}

impl Named {
    /// Names an entry.
    #[must_use]
    pub fn new(entry: Entry) -> Self {
        let name = digest_of(&rmp_serde::to_vec(&entry).expect("it is plain data"));
        Self { entry, name }
    }

    /// One that was named before.
    pub(crate) const fn again(entry: Entry, name: Digest) -> Self {
        Self { entry, name }
    }

    /// The entry.
    #[must_use]
    pub const fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The digest of all that is said of it.
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

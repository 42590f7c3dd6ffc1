//! References to images: where the root directory of a job comes from.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ParseError;

/// Maximum length of a reference in bytes.
const MAX_BYTES: usize = 4096;

/// A reference to an image on the job's node, such as `oci:/data/debian:12`.
///
/// Paths are absolute, or start in the job's folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = r"^(dir|oci|docker-archive):.+$")]
pub struct ImageRef(String);

/// The parts of an [`ImageRef`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageSource<'a> {
    /// A directory that contains a root file system.
    Directory {
        /// The directory.
        path: &'a str,
    },
    /// A directory with the OCI image layout.
    Layout {
        /// The directory with the file `index.json`.
        path: &'a str,
        /// The tag of the image. When absent, the layout must contain a single image.
        tag: Option<&'a str>,
    },
    /// An archive that `docker save` has written.
    Archive {
        /// The file.
        path: &'a str,
        /// The name of the image, such as `debian:12`. When absent, the archive must contain a single image.
        name: Option<&'a str>,
    },
}

impl ImageRef {
    /// Returns the reference as the user wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the kind of the image, its path and its tag.
    #[must_use]
    pub fn source(&self) -> ImageSource<'_> {
        parse(&self.0).expect("checked by the constructor")
    }
}

fn parse(text: &str) -> Option<ImageSource<'_>> {
    let is_fine = text.len() <= MAX_BYTES && !text.contains(char::is_control);
    let (kind, rest) = text.split_once(':').filter(|(_, rest)| is_fine && !rest.is_empty())?;
    match kind {
        "dir" => Some(ImageSource::Directory { path: rest }),
        "oci" => {
            // A colon in a directory's name begins no tag.
            let (path, tag) = match rest.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
                Some((path, tag)) => (path, Some(tag)),
                None => (rest, None),
            };
            let is_named = !path.is_empty() && tag.is_none_or(|tag| !tag.is_empty());
            is_named.then_some(ImageSource::Layout { path, tag })
        }
        "docker-archive" => {
            let (path, name) = rest.split_once(':').map_or((rest, None), |(path, name)| (path, Some(name)));
            let is_named = !path.is_empty() && name.is_none_or(|name| !name.is_empty());
            is_named.then_some(ImageSource::Archive { path, name })
        }
        _ => None,
    }
}

impl FromStr for ImageRef {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for ImageRef {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        const LOCAL: &str = "dir:PATH, oci:PATH[:TAG] or docker-archive:FILE[:NAME]";
        const PULLED: &str = "dir:PATH, oci:PATH[:TAG] or docker-archive:FILE[:NAME]; Hostler does not pull images from registries: \
             run `skopeo copy docker://NAME oci:DIR` first, and use oci:DIR";
        const PACKED: &str = "dir:PATH, oci:PATH[:TAG] or docker-archive:FILE[:NAME]; \
             run `skopeo copy oci-archive:FILE oci:DIR` first, and use oci:DIR";
        if parse(&text).is_some() {
            return Ok(Self(text));
        }
        let is_local = ["dir:", "oci:", "docker-archive:"].iter().any(|kind| text.starts_with(kind));
        if text.starts_with("oci-archive:") {
            return Err(ParseError::new(&text, PACKED));
        }
        let looks_pullable = !is_local && !text.starts_with(['/', '.']) && !text.is_empty();
        Err(ParseError::new(&text, if looks_pullable { PULLED } else { LOCAL }))
    }
}

impl From<ImageRef> for String {
    fn from(image: ImageRef) -> Self {
        image.0
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_names_kind_path_and_tag() {
        let source = |text| parse(text).expect("valid");
        assert_eq!(source("dir:/srv/a:b"), ImageSource::Directory { path: "/srv/a:b" });
        assert_eq!(source("oci:/data/debian"), ImageSource::Layout { path: "/data/debian", tag: None });
        assert_eq!(source("oci:images:12"), ImageSource::Layout { path: "images", tag: Some("12") });
        assert_eq!(source("oci:/a:b/debian"), ImageSource::Layout { path: "/a:b/debian", tag: None });
        assert_eq!(source("docker-archive:a.tar"), ImageSource::Archive { path: "a.tar", name: None });
        let named = ImageSource::Archive { path: "/a.tar", name: Some("host:5000/debian:12") };
        assert_eq!(source("docker-archive:/a.tar:host:5000/debian:12"), named);
    }

    #[test]
    fn invalid_reference_says_what_to_write() {
        let error = |text: &str| text.parse::<ImageRef>().expect_err("invalid").to_string();
        for pulled in ["debian:12", "docker://debian", "ghcr.io/a/b@sha256:00", "debian"] {
            assert!(error(pulled).contains("skopeo copy"), "{}", error(pulled));
        }
        for local in ["", "/data/debian", "./a.tar", "dir:", "oci::tag", "oci:/a:", "docker-archive::name", "dir:/a\nb"]
        {
            assert!(error(local).contains("oci:PATH") && !error(local).contains("skopeo"), "{}", error(local));
        }
    }
}

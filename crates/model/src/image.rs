//! References to images: where the root directory of a job comes from.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ParseError;

/// Maximum length of a reference in bytes.
const MAX_BYTES: usize = 4096;

/// A reference to an image on the job's node or in a registry, such as `oci:/data/debian:12` or `docker://debian:12`.
///
/// Paths are absolute, or start in the job's folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(
    value_type = String,
    format = "image-reference",
    max_length = 4096,
    pattern = r"^(dir|oci|oci-archive|docker-archive|docker):[^\x00-\x1f\x7f-\x9f]+$"
)]
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
        /// The name or digest of the image. When absent, the layout must contain a single image.
        name: Option<&'a str>,
    },
    /// An archive that `docker save` has written, or one of an OCI layout.
    Archive {
        /// The file.
        path: &'a str,
        /// The name of the image, such as `debian:12`. When absent, the archive must contain a single image.
        name: Option<&'a str>,
    },
    /// An image in a registry.
    Registry(RegistryImage<'a>),
}

/// Where an image is in a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryImage<'a> {
    /// Host of the registry, with its port if it has one. `docker.io` is Docker Hub.
    pub host: &'a str,
    /// The repository as the reference has it. Official images of Docker Hub lack their prefix `library/`.
    pub repository: &'a str,
    /// The tag, unless there is a digest.
    pub tag: &'a str,
    /// Digest of the manifest or index, `sha256:` and 64 hexadecimal digits.
    pub digest: Option<&'a str>,
}

/// Docker Hub's name in references.
pub const DOCKER_HUB: &str = "docker.io";

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
        "oci" => path_and_name(rest).map(|(path, name)| ImageSource::Layout { path, name }),
        "oci-archive" | "docker-archive" => path_and_name(rest).map(|(path, name)| ImageSource::Archive { path, name }),
        "docker" => registry_image(rest.strip_prefix("//")?).map(ImageSource::Registry),
        _ => None,
    }
}

/// Splits `PATH[:NAME]` at the first colon, as skopeo does, and `PATH@DIGEST`: names contain colons, and paths rarely.
fn path_and_name(text: &str) -> Option<(&str, Option<&str>)> {
    let is_path = |path: &str| !path.is_empty() && !path.contains(':');
    let by_digest = text.rsplit_once('@').filter(|(path, digest)| is_path(path) && is_digest(digest));
    let (path, name) = match by_digest.or_else(|| text.split_once(':')) {
        Some((path, name)) => (path, Some(name)),
        None => (text, None),
    };
    (!path.is_empty() && name != Some("")).then_some((path, name))
}

fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:").unwrap_or_default();
    hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Parses `[HOST[:PORT]/]REPOSITORY[:TAG][@DIGEST]`, with the rules that Docker and skopeo have for defaults.
fn registry_image(text: &str) -> Option<RegistryImage<'_>> {
    const MAX_REPOSITORY_BYTES: usize = 255;
    const MAX_TAG_BYTES: usize = 128;
    let (named, digest) = text.split_once('@').map_or((text, None), |(named, digest)| (named, Some(digest)));
    let (host, path) = match named.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
        _ => (DOCKER_HUB, named),
    };
    let host = if host == "index.docker.io" { DOCKER_HUB } else { host };
    let (repository, tag) = path.rsplit_once(':').unwrap_or((path, "latest"));
    let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let ends = [part.bytes().next(), part.bytes().last()];
        let is_between = |byte: u8| is_lower(byte) || matches!(byte, b'.' | b'_' | b'-');
        ends.into_iter().all(|end| end.is_some_and(is_lower)) && part.bytes().all(is_between)
    };
    let is_repository = repository.len() <= MAX_REPOSITORY_BYTES && repository.split('/').all(is_part);
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_tag = tag.len() <= MAX_TAG_BYTES
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'));
    let is_fine = is_host(host) && is_repository && is_tag && digest.is_none_or(is_digest);
    is_fine.then_some(RegistryImage { host, repository, tag, digest })
}

/// Whether a text is a host name or an address, with or without a port.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, port)) => (address, Some(port.strip_prefix(':').unwrap_or_default())),
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let is_name = match text.starts_with('[') {
        true => name.parse::<std::net::Ipv6Addr>().is_ok(),
        false => {
            let is_label = |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
            let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
            name.len() <= 253 && name.split('.').all(is_label) && name.bytes().all(is_fine)
        }
    };
    is_name && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
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
        const LOCAL: &str =
            "docker://NAME[:TAG], oci:DIR[:NAME], oci-archive:FILE[:NAME], docker-archive:FILE[:NAME] or dir:DIR";
        const PULLED: &str = "docker://NAME[:TAG], e.g. docker://debian:12 or docker://ghcr.io/owner/app:1, for an image in a \
             registry; oci:DIR[:NAME], oci-archive:FILE[:NAME], docker-archive:FILE[:NAME] or dir:DIR for one on the node";
        if parse(&text).is_some() {
            return Ok(Self(text));
        }
        let is_local = ["dir:", "oci:", "oci-archive:", "docker-archive:"].iter().any(|kind| text.starts_with(kind));
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
        assert_eq!(source("oci:/data/debian"), ImageSource::Layout { path: "/data/debian", name: None });
        assert_eq!(source("oci:images:12"), ImageSource::Layout { path: "images", name: Some("12") });
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (whole, name) in [
            ("oci:images:docker.io/library/mini:1.0".to_owned(), "docker.io/library/mini:1.0"),
            (format!("oci:images@{digest}"), &digest),
            (format!("oci:images:a/b:1@{digest}"), &format!("a/b:1@{digest}")),
            ("oci:images:@sha256:00".to_owned(), "@sha256:00"),
        ] {
            assert_eq!(
                parse(&whole).expect("valid"),
                ImageSource::Layout { path: "images", name: Some(name) },
                "{whole}"
            );
        }
        assert_eq!(source("oci-archive:user@host.tar"), ImageSource::Archive { path: "user@host.tar", name: None });
        assert_eq!(source("docker-archive:a.tar"), ImageSource::Archive { path: "a.tar", name: None });
        let named = ImageSource::Archive { path: "/a.tar", name: Some("host:5000/debian:12") };
        assert_eq!(source("docker-archive:/a.tar:host:5000/debian:12"), named);
    }

    #[test]
    fn invalid_reference_says_what_to_write() {
        let error = |text: &str| text.parse::<ImageRef>().expect_err("invalid").to_string();
        for pulled in ["debian:12", "ghcr.io/a/b@sha256:00", "debian", "docker:debian", "docker://"] {
            assert!(error(pulled).contains("e.g. docker://debian:12"), "{}", error(pulled));
        }
        for local in [
            "",
            "/data/debian",
            "./a.tar",
            "dir:",
            "oci::tag",
            "oci:/a:",
            "oci-archive:",
            "docker-archive::name",
            "dir:/a\nb",
        ] {
            assert!(error(local).contains("oci:DIR") && !error(local).contains("e.g."), "{}", error(local));
        }
    }

    #[test]
    fn image_in_a_registry_has_the_defaults_of_docker() {
        let parts = |text: &str| match parse(text) {
            Some(ImageSource::Registry(RegistryImage { host, repository, tag, digest })) => {
                format!("{host} {repository} {tag} {}", digest.is_some())
            }
            other => panic!("{text}: {other:?}"),
        };
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, expected) in [
            ("docker://debian", "docker.io debian latest false"),
            ("docker://debian:12", "docker.io debian 12 false"),
            ("docker://index.docker.io/me/app", "docker.io me/app latest false"),
            ("docker://me/app:1.0_x-y", "docker.io me/app 1.0_x-y false"),
            ("docker://localhost/app", "localhost app latest false"),
            ("docker://registry.example.com:5000/team/app:1", "registry.example.com:5000 team/app 1 false"),
            ("docker://[::1]:5000/app", "[::1]:5000 app latest false"),
            (&format!("docker://debian@{digest}"), "docker.io debian latest true"),
            (&format!("docker://ghcr.io/a__b/c.d:1@{digest}"), "ghcr.io a__b/c.d 1 true"),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
        for wrong in [
            "docker://Debian",
            "docker://a//b",
            "docker://a/../b",
            "docker://a:",
            "docker://a:-1",
            "docker://a@sha256:00",
            "docker://a@sha512:00",
            "docker://host:0/a",
            "docker://host:x/a",
            "docker://-host.example/a",
            "docker://user@host/a",
            "docker://host.example/a?x",
            "docker://[::g]/a",
            "docker://host.example/",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}

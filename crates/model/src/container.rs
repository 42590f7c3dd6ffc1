//! Container engines of nodes, and the images that they run jobs in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Feature, ParseError};

/// Maximum length of an image's name in bytes.
const MAX_BYTES: usize = 4096;

/// A program that runs containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// Docker. Its containers are processes of its daemon, outside of the job's control group.
    Docker,
    /// Podman.
    Podman,
    /// Apptainer.
    Apptainer,
}

impl Engine {
    /// Every engine.
    pub const ALL: [Self; 3] = [Self::Docker, Self::Podman, Self::Apptainer];

    /// Returns the name of the engine, which is also that of its program.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Apptainer => "apptainer",
        }
    }

    /// Returns the feature of nodes that run jobs with this engine.
    #[must_use]
    pub fn feature(self) -> Feature {
        format!("engine-{self}").parse().expect("a word")
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Engine {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|engine| engine.as_str() == text);
        found.ok_or_else(|| ParseError::new(text, "docker, podman or apptainer"))
    }
}

/// The container of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Container {
    /// The engine that runs it.
    pub engine: Engine,
    /// Its image, as the engine knows it.
    pub image: EngineImage,
}

/// An image as an engine knows it, such as `debian:12`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = r"^[^-\s\x00-\x1f\x7f-\x9f][^\s\x00-\x1f\x7f-\x9f]*$", max_length = 4096)]
pub struct EngineImage(String);

impl EngineImage {
    /// Returns the image as the user wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the image as an argument of an engine. `docker://` is how Apptainer, and only Apptainer, names images of
    /// registries.
    #[must_use]
    pub fn argument(&self, engine: Engine) -> String {
        let name = self.0.strip_prefix("docker://");
        let is_file = self.0.starts_with(['/', '.']) || self.0.contains("://") || self.0.ends_with(".sif");
        match engine {
            Engine::Docker | Engine::Podman => name.unwrap_or(&self.0).to_owned(),
            Engine::Apptainer if is_file => self.0.clone(),
            Engine::Apptainer => format!("docker://{}", self.0),
        }
    }
}

impl TryFrom<String> for EngineImage {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        let name = text.strip_prefix("docker://").unwrap_or(&text);
        let is_fine = !name.is_empty() && !name.starts_with('-') && text.len() <= MAX_BYTES;
        if is_fine && !text.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Ok(Self(text));
        }
        Err(ParseError::new(&text, "an image as the engine knows it, such as debian:12"))
    }
}

impl FromStr for EngineImage {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::try_from(text.to_owned())
    }
}

impl From<EngineImage> for String {
    fn from(image: EngineImage) -> Self {
        image.0
    }
}

impl fmt::Display for EngineImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_written_as_its_engine_knows_it() {
        let all = |text: &str| {
            let image: EngineImage = text.parse().expect("valid");
            Engine::ALL.map(|engine| image.argument(engine))
        };
        assert_eq!(all("debian:12"), ["debian:12", "debian:12", "docker://debian:12"]);
        assert_eq!(all("docker://ghcr.io/a/b"), ["ghcr.io/a/b", "ghcr.io/a/b", "docker://ghcr.io/a/b"]);
        for file in ["/data/a.sif", "./a", "a.sif", "library://a/b"] {
            assert_eq!(all(file)[2], file);
        }
    }

    #[test]
    fn image_is_never_taken_for_an_option() {
        for text in ["", "-v", "--privileged", "docker://", "docker://--privileged", "a b", "a\nb"] {
            text.parse::<EngineImage>().expect_err(text);
        }
    }

    #[test]
    fn engines_have_features_of_their_own() {
        assert_eq!(Engine::Podman.feature().as_str(), "engine-podman");
        assert_eq!("apptainer".parse(), Ok(Engine::Apptainer));
        "Docker".parse::<Engine>().expect_err("names have small letters");
    }
}

//! Finds the configuration and the layers of an image on the disk, and in the documents of a registry.
//!
//! The configuration lists the digests of the uncompressed layers, so its own digest names the whole content. It does not
//! depend on the form of the image, unless a program that copies the image rewrites the configuration.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tar::{Archive, EntryType};

use crate::digest::Sha256;
use crate::layer::LayerOrder;

/// Maximum size in bytes of an index, a manifest or a configuration. Real ones have some kilobytes.
pub const MAX_JSON_BYTES: u64 = 4 << 20;

/// Maximum number of layers. Docker allows 127.
const MAX_LAYERS: usize = 500;

/// Maximum number of entries of an archive with an image; a few for each layer.
const MAX_ARCHIVE_ENTRIES: usize = 10_000;

/// Maximum number of variables in an image, and of words of its command, and the maximum length of each in bytes.
const MAX_WORDS: (usize, usize) = (1000, 32 << 10);

/// Maximum length of a working directory in bytes.
const MAX_PATH_BYTES: usize = 4095;

/// An index may contain another one.
const MAX_INDEXES: usize = 3;

/// An image whose files are open.
#[derive(Debug)]
pub struct Image {
    /// Digest of the configuration, which Docker calls the image's id.
    pub id: Sha256,
    /// What the image sets.
    pub config: Config,
    /// The layers, lowest first.
    pub layers: Vec<Layer>,
}

/// A layer of an image.
#[derive(Debug)]
pub struct Layer {
    /// The open file, which may contain other layers too.
    pub file: File,
    /// Where the layer is.
    pub order: LayerOrder,
}

/// What an image sets for its programs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Config {
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// Program and first arguments of the entry point.
    pub entrypoint: Vec<String>,
    /// Arguments of the entry point, unless others are given. Without an entry point, a program and its arguments.
    pub command: Vec<String>,
    /// Directory in which the entry point starts.
    pub directory: Option<String>,
}

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file cannot be read.
    #[error("cannot read {file}: {error}")]
    Read {
        /// Path of the file.
        file: String,
        /// Reason.
        error: io::Error,
    },
    /// A file of the image has unexpected content.
    #[error("{file} {why}")]
    Content {
        /// Path of the file.
        file: String,
        /// What is wrong, as a verb phrase.
        why: String,
    },
    /// The tag does not name one image.
    #[error("{0}")]
    Choice(String),
}

impl ImageError {
    fn content(file: &str, why: impl Into<String>) -> Self {
        Self::Content { file: file.to_owned(), why: why.into() }
    }
}

#[derive(Debug, Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    annotations: HashMap<String, String>,
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

/// An index or a manifest.
#[derive(Debug, Deserialize)]
struct Manifest {
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

#[derive(Debug, Deserialize)]
struct ConfigFile {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    config: Option<Settings>,
    rootfs: Rootfs,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Settings {
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Rootfs {
    diff_ids: Vec<String>,
}

/// One image of an archive of `docker save`.
#[derive(Debug, Deserialize)]
struct Saved {
    #[serde(rename = "Config")]
    config: String,
    #[serde(rename = "RepoTags")]
    tags: Option<Vec<String>>,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

impl Image {
    /// Opens the image with this tag in an OCI layout, or its only image.
    ///
    /// # Errors
    /// If there is no such image, or if a file is missing or damaged.
    pub fn in_layout(directory: &Path, tag: Option<&str>) -> Result<Self, ImageError> {
        let index_path = directory.join("index.json");
        let index: Manifest = parse(&shown(&index_path), &read_small(&index_path)?)?;
        let file = shown(&index_path);
        let mut manifests =
            index.manifests.ok_or_else(|| ImageError::content(&file, "is not an index of an OCI layout"))?;
        if let Some(tag) = tag {
            let tags: Vec<String> = manifests.iter().filter_map(|it| tag_of(it).map(str::to_owned)).collect();
            manifests.retain(|manifest| tag_of(manifest) == Some(tag));
            if manifests.is_empty() {
                return Err(no_such(&file, tag, &tags));
            }
        }
        for _ in 0..MAX_INDEXES {
            let chosen = choose(&file, manifests)?;
            let (path, bytes) = blob(directory, &chosen.digest)?;
            let manifest: Manifest = parse(&path, &bytes)?;
            match manifest {
                Manifest { manifests: Some(inner), .. } => manifests = inner,
                Manifest { config: Some(config), layers: Some(layers), .. } => {
                    return Self::of_manifest(directory, &config, &layers);
                }
                Manifest { .. } => return Err(ImageError::content(&path, "is not an image manifest")),
            }
        }
        Err(ImageError::content(&file, "contains indexes in indexes"))
    }

    fn of_manifest(directory: &Path, config: &Descriptor, layers: &[Descriptor]) -> Result<Self, ImageError> {
        let (path, bytes) = blob(directory, &config.digest)?;
        let (config, diff_ids) = read_config(&path, &bytes)?;
        if layers.len() != diff_ids.len() {
            return Err(ImageError::content(&path, "lists another number of layers than the manifest"));
        }
        let mut open = Vec::new();
        for (layer, diff_id) in layers.iter().zip(diff_ids) {
            let digest = digest(&path, &layer.digest)?;
            let path = blob_path(directory, &digest);
            let (file, length) = open_file(&path)?;
            open.push(Layer { file, order: LayerOrder { offset: 0, length, digest: Some(digest), diff_id } });
        }
        Ok(Self { id: Sha256::of(&bytes), config, layers: open })
    }

    /// Opens the image with this name in an archive of `docker save`, or its only image.
    ///
    /// # Errors
    /// If there is no such image, or if the archive is damaged.
    pub fn in_archive(path: &Path, name: Option<&str>) -> Result<Self, ImageError> {
        let shown = shown(path);
        let (file, file_length) = open_file(path)?;
        let failed = |error| ImageError::Read { file: shown.clone(), error };
        let parts = Parts::find(&shown, &file)?;
        let images: Vec<Saved> = parse(&shown, &parts.small(&shown, &file, "manifest.json")?)?;
        let image = choose_saved(&shown, images, name)?;
        let bytes = parts.small(&shown, &file, &image.config)?;
        let (config, diff_ids) = read_config(&shown, &bytes)?;
        if image.layers.len() != diff_ids.len() {
            return Err(ImageError::content(&shown, "lists another number of layers than its configuration"));
        }
        let mut layers = Vec::new();
        for (layer, diff_id) in image.layers.iter().zip(diff_ids) {
            let (offset, length) = parts.find_part(&shown, layer)?;
            // The header may state any size.
            let length = length.min(file_length.saturating_sub(offset));
            let file = file.try_clone().map_err(failed)?;
            layers.push(Layer { file, order: LayerOrder { offset, length, digest: None, diff_id } });
        }
        Ok(Self { id: Sha256::of(&bytes), config, layers })
    }
}

/// A part of an image in a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blob {
    /// Its digest.
    pub digest: Sha256,
    /// Its size in bytes, as the image says.
    pub size: u64,
}

impl Blob {
    fn of(file: &str, descriptor: &Descriptor) -> Result<Self, ImageError> {
        Ok(Self { digest: digest(file, &descriptor.digest)?, size: descriptor.size })
    }
}

/// What a registry has under a tag or digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    /// A list of images for several processors. This is the manifest of the image for this one.
    Index(Sha256),
    /// A manifest, with the configuration that it names.
    Manifest {
        /// The configuration of the image.
        config: Blob,
    },
}

impl Document {
    /// Reads an index or a manifest. `name` is for messages.
    ///
    /// # Errors
    /// If it is neither, or if it has no image for this machine.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, ImageError> {
        let found: Manifest = parse(name, bytes)?;
        match found {
            Manifest { manifests: Some(all), .. } => {
                // The first one, as other programs choose among several variants of a processor; rather one that says so.
                let mut fitting = all.iter().filter(|manifest| fits(manifest));
                let first = fitting.clone().next();
                let Some(chosen) = fitting.find(|it| it.platform.is_some()).or(first) else {
                    return Err(no_fitting(name));
                };
                Ok(Self::Index(digest(name, &chosen.digest)?))
            }
            Manifest { config: Some(config), layers: Some(_), .. } => {
                let config = Blob::of(name, &config)?;
                if config.size > MAX_JSON_BYTES {
                    return Err(ImageError::content(name, "has a configuration of more than 4 MiB"));
                }
                Ok(Self::Manifest { config })
            }
            Manifest { .. } => Err(ImageError::content(name, "is not an image manifest")),
        }
    }
}

/// An image whose layers are in a registry.
#[derive(Debug)]
pub struct Remote {
    /// Digest of the configuration, as in [`Image::id`].
    pub id: Sha256,
    /// What the image sets.
    pub config: Config,
    /// The layers, lowest first.
    pub layers: Vec<LayerOrder>,
}

impl Remote {
    /// Reads a manifest and the configuration that it names. `name` is for messages.
    ///
    /// # Errors
    /// If one of them has unexpected content, or if the configuration is not the one that the manifest names.
    pub fn parse(name: &str, manifest: &[u8], config: &[u8]) -> Result<Self, ImageError> {
        let manifest: Manifest = parse(name, manifest)?;
        let (Some(expected), Some(layers)) = (manifest.config, manifest.layers) else {
            return Err(ImageError::content(name, "is not an image manifest"));
        };
        let id = Sha256::of(config);
        if digest(name, &expected.digest)? != id {
            return Err(ImageError::content(name, "has another configuration than its manifest says"));
        }
        let (config, diff_ids) = read_config(name, config)?;
        if layers.len() != diff_ids.len() {
            return Err(ImageError::content(name, "lists another number of layers than the manifest"));
        }
        let order = |(layer, diff_id)| {
            let Blob { digest, size } = Blob::of(name, layer)?;
            Ok(LayerOrder { offset: 0, length: size, digest: Some(digest), diff_id })
        };
        let layers = layers.iter().zip(diff_ids).map(order).collect::<Result<_, _>>()?;
        Ok(Self { id, config, layers })
    }
}

/// Where the files of an archive are.
#[derive(Debug, Default)]
struct Parts {
    /// Position and size by name.
    files: HashMap<String, (u64, u64)>,
    /// Names of files that are links to other files, as Docker writes repeated layers.
    links: HashMap<String, String>,
}

impl Parts {
    /// Reads the headers of an archive. Long names are not read: Docker writes none, and they could have any length.
    fn find(shown: &str, file: &File) -> Result<Self, ImageError> {
        let failed = |error| ImageError::Read { file: shown.to_owned(), error };
        let mut parts = Self::default();
        let mut archive = Archive::new(file);
        for (count, entry) in archive.entries_with_seek().map_err(failed)?.raw(true).enumerate() {
            let entry = entry.map_err(failed)?;
            if count >= MAX_ARCHIVE_ENTRIES {
                return Err(ImageError::content(shown, "has too many entries for an archive of `docker save`"));
            }
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_start_matches("./").to_owned();
            let name = text(&entry.path_bytes());
            match entry.header().entry_type() {
                EntryType::Regular => {
                    parts.files.insert(name, (entry.raw_file_position(), entry.size()));
                }
                EntryType::Symlink => {
                    let target = text(&entry.link_name_bytes().unwrap_or_default());
                    parts.links.insert(name, target.trim_start_matches("../").to_owned());
                }
                _ => {}
            }
        }
        Ok(parts)
    }

    fn find_part(&self, shown: &str, name: &str) -> Result<(u64, u64), ImageError> {
        let name = self.links.get(name).map_or(name, String::as_str);
        let found = self.files.get(name).copied();
        found.ok_or_else(|| {
            ImageError::content(shown, format!("has no entry {:?}; is it from `docker save`?", short(name)))
        })
    }

    fn small(&self, shown: &str, mut file: &File, name: &str) -> Result<Vec<u8>, ImageError> {
        let (offset, length) = self.find_part(shown, name)?;
        if length > MAX_JSON_BYTES {
            return Err(ImageError::content(shown, format!("has an entry {:?} of more than 4 MiB", short(name))));
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(offset))
            .and_then(|_| file.take(length).read_to_end(&mut bytes))
            .map_err(|error| ImageError::Read { file: shown.to_owned(), error })?;
        Ok(bytes)
    }
}

/// Whether a manifest is for this machine, as far as its index says.
fn fits(manifest: &Descriptor) -> bool {
    manifest.platform.as_ref().is_none_or(|it| it.os == "linux" && it.architecture == architecture())
}

fn no_fitting(file: &str) -> ImageError {
    ImageError::Choice(format!("{file} has no image for {}", architecture()))
}

/// Chooses the manifest for this machine.
fn choose(file: &str, manifests: Vec<Descriptor>) -> Result<Descriptor, ImageError> {
    let mut fitting: Vec<Descriptor> = manifests.into_iter().filter(fits).collect();
    match (fitting.pop(), fitting.as_slice()) {
        (Some(only), []) => Ok(only),
        (None, _) => Err(no_fitting(file)),
        (Some(last), others) => {
            let tags = listed(others.iter().chain([&last]).filter_map(tag_of));
            Err(ImageError::Choice(format!("{file} has several images; name one by its tag: {tags}")))
        }
    }
}

fn choose_saved(file: &str, mut images: Vec<Saved>, name: Option<&str>) -> Result<Saved, ImageError> {
    let tags: Vec<String> = images.iter().flat_map(|image| image.tags.iter().flatten().cloned()).collect();
    if let Some(name) = name {
        let full = if name.rsplit('/').next().unwrap_or(name).contains(':') {
            name.to_owned()
        } else {
            format!("{name}:latest")
        };
        images.retain(|image| image.tags.iter().flatten().any(|tag| *tag == full));
        return images.pop().ok_or_else(|| no_such(file, &full, &tags));
    }
    match (images.pop(), images.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(ImageError::content(file, "contains no image")),
        (Some(_), false) => {
            let tags = listed(tags.iter().map(String::as_str));
            Err(ImageError::Choice(format!("{file} has several images; name one: {tags}")))
        }
    }
}

fn no_such(file: &str, tag: &str, tags: &[String]) -> ImageError {
    let known = listed(tags.iter().map(String::as_str));
    ImageError::Choice(format!("{file} has no image {:?}; it has: {known}", short(tag)))
}

/// The first tags of an image, for a message.
fn listed<'a>(tags: impl Iterator<Item = &'a str>) -> String {
    let tags: Vec<String> = tags.take(10).map(short).collect();
    if tags.is_empty() { "none has a tag".to_owned() } else { tags.join(", ") }
}

/// The start of a name, which may have any length, for a message.
fn short(name: &str) -> String {
    const SHOWN: usize = 80;
    let mut shown: String = name.chars().take(SHOWN).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown
}

fn tag_of(manifest: &Descriptor) -> Option<&str> {
    manifest.annotations.get("org.opencontainers.image.ref.name").map(String::as_str)
}

/// The machine's processor, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

fn read_config(file: &str, bytes: &[u8]) -> Result<(Config, Vec<Sha256>), ImageError> {
    let config: ConfigFile = parse(file, bytes)?;
    if !config.architecture.is_empty() && config.architecture != architecture() {
        let why = format!("is an image for {}, and this node is {}", short(&config.architecture), architecture());
        return Err(ImageError::content(file, why));
    }
    if config.rootfs.diff_ids.len() > MAX_LAYERS {
        return Err(ImageError::content(file, format!("has more than {MAX_LAYERS} layers")));
    }
    let diff_ids = config.rootfs.diff_ids.iter().map(|id| digest(file, id)).collect::<Result<_, _>>()?;
    let settings = config.config.unwrap_or_default();
    let (all, entrypoint) = (settings.env.unwrap_or_default(), settings.entrypoint.unwrap_or_default());
    let (command, directory) = (settings.cmd.unwrap_or_default(), settings.working_dir.unwrap_or_default());
    let (most, most_bytes) = MAX_WORDS;
    for (words, name) in [(&all, "environment variables"), (&entrypoint, "an entry point"), (&command, "a command")] {
        if words.len() > most || words.iter().any(|word| word.len() > most_bytes || word.contains('\0')) {
            let why = format!("exceeds the limits for {name}: {most} words of {most_bytes} bytes, without NUL");
            return Err(ImageError::content(file, why));
        }
    }
    if directory.len() > MAX_PATH_BYTES || directory.contains('\0') {
        return Err(ImageError::content(file, "exceeds the limit for the working directory"));
    }
    let directory = Some(directory).filter(|directory| directory.starts_with('/') && directory != "/");
    let split = |variable: &String| variable.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let env = all.iter().filter_map(split).filter(|(name, _)| !name.is_empty()).collect();
    Ok((Config { env, entrypoint, command, directory }, diff_ids))
}

fn digest(file: &str, text: &str) -> Result<Sha256, ImageError> {
    // The text may be of a server that the user cannot reach.
    let why = "has a digest that is not `sha256:` and 64 lowercase hexadecimal digits";
    text.parse().map_err(|_| ImageError::content(file, why))
}

fn blob_path(directory: &Path, digest: &Sha256) -> std::path::PathBuf {
    directory.join("blobs/sha256").join(digest.hex())
}

/// Reads a small blob and verifies its digest. Returns its path too.
fn blob(directory: &Path, name: &str) -> Result<(String, Vec<u8>), ImageError> {
    let expected = digest(&shown(directory), name)?;
    let path = blob_path(directory, &expected);
    let bytes = read_small(&path)?;
    if Sha256::of(&bytes) != expected {
        return Err(ImageError::content(&shown(&path), "has another digest than its name; copy the image again"));
    }
    Ok((shown(&path), bytes))
}

/// Reads a regular file of at most [`MAX_JSON_BYTES`]. Follows no links of `/proc`, and does not wait for pipes.
///
/// # Errors
/// If the file cannot be read, or has more.
pub fn read_small(path: &Path) -> Result<Vec<u8>, ImageError> {
    let (file, length) = open_file(path)?;
    if length > MAX_JSON_BYTES {
        return Err(ImageError::content(&shown(path), "has more than 4 MiB"));
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_JSON_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| ImageError::Read { file: shown(path), error })?;
    Ok(bytes)
}

/// Opens a regular file. Returns its size too.
fn open_file(path: &Path) -> Result<(File, u64), ImageError> {
    let failed = |error| ImageError::Read { file: shown(path), error };
    // A pipe would let the reader wait. Links such as those in `/proc/self/fd` lead where no path of the user does.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = loop {
        match openat2(AT_FDCWD, path, how) {
            Err(Errno::EINTR) => {}
            opened => break File::from(opened.map_err(|errno| failed(errno.into()))?),
        }
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(ImageError::content(&shown(path), "is not a regular file"));
    }
    Ok((file, metadata.len()))
}

fn parse<T: DeserializeOwned>(file: &str, bytes: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| {
        // The text of the error may contain a string of the document, which may be of a server that the user cannot reach.
        let place = format!("(line {}, column {})", error.line(), error.column());
        ImageError::content(file, format!("is not the description of an image {place}"))
    })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests;

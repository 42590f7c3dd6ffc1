//! Finds the configuration and the layers of an image on the disk, and in the documents of a registry.
//!
//! The configuration lists the digests of the uncompressed layers, so its own digest names the whole content. It does not
//! depend on the form of the image, unless a program that copies the image rewrites the configuration.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tar::{Archive, EntryType};

use crate::compression::{Compression, without_content};
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
    /// The name does not name one image.
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
    /// Opens the image with this name or digest in an OCI layout, or its only image.
    ///
    /// # Errors
    /// If there is no such image, or if a file is missing or damaged.
    pub fn in_layout(directory: &Path, name: Option<&str>) -> Result<Self, ImageError> {
        Self::by_index(&Store::Directory(directory), name)
    }

    /// Opens the image with this name in an archive of `docker save` or of an OCI layout, or its only image.
    ///
    /// # Errors
    /// If there is no such image, or if the archive is damaged or compressed.
    pub fn in_archive(path: &Path, name: Option<&str>) -> Result<Self, ImageError> {
        let archive = Archived::open(path)?;
        let (is_saved, is_layout) = (archive.has("manifest.json"), archive.has("index.json"));
        let store = Store::Archive(archive);
        match (is_saved, is_layout) {
            (true, _) => Self::saved(&store, name),
            (false, true) => Self::by_index(&store, name),
            (false, false) => {
                let why = "is not an archive of an image: it has neither a manifest.json nor an index.json";
                Err(ImageError::content(&store.shown(""), why))
            }
        }
    }

    fn by_index(store: &Store<'_>, name: Option<&str>) -> Result<Self, ImageError> {
        let file = store.shown("index.json");
        let index: Manifest = parse(&file, &store.small("index.json")?)?;
        let mut manifests =
            index.manifests.ok_or_else(|| ImageError::content(&file, "is not an index of an OCI layout"))?;
        if let Some(name) = name {
            let known: Vec<String> = manifests.iter().map(|it| label(it).to_owned()).collect();
            manifests.retain(|manifest| is_called(manifest, name));
            if manifests.is_empty() {
                return Err(no_such(&file, name, &known));
            }
        }
        let mut chosen = choose(&file, manifests)?;
        for _ in 0..MAX_INDEXES {
            let (path, bytes) = store.blob(&chosen.digest)?;
            let manifest: Manifest = parse(&path, &bytes)?;
            match manifest {
                Manifest { manifests: Some(inner), .. } => {
                    chosen = first_fitting(inner).ok_or_else(|| no_fitting(&path))?;
                }
                Manifest { config: Some(config), layers: Some(layers), .. } => {
                    return Self::of_manifest(store, &config, &layers);
                }
                Manifest { .. } => return Err(ImageError::content(&path, "is not an image manifest")),
            }
        }
        Err(ImageError::content(&file, "contains indexes in indexes"))
    }

    fn of_manifest(store: &Store<'_>, config: &Descriptor, layers: &[Descriptor]) -> Result<Self, ImageError> {
        let (path, bytes) = store.blob(&config.digest)?;
        let (config, diff_ids) = read_config(&path, &bytes)?;
        if layers.len() != diff_ids.len() {
            return Err(ImageError::content(&path, "lists another number of layers than the manifest"));
        }
        let mut open = Vec::new();
        for (layer, diff_id) in layers.iter().zip(diff_ids) {
            let digest = digest(&path, &layer.digest)?;
            open.push(store.layer(&blob_name(&digest), Some(digest), diff_id)?);
        }
        Ok(Self { id: Sha256::of(&bytes), config, layers: open })
    }

    fn saved(store: &Store<'_>, name: Option<&str>) -> Result<Self, ImageError> {
        let shown = store.shown("manifest.json");
        let images: Vec<Saved> = parse(&shown, &store.small("manifest.json")?)?;
        let image = choose_saved(&shown, images, name)?;
        let bytes = store.small(&image.config)?;
        let (config, diff_ids) = read_config(&shown, &bytes)?;
        if image.layers.len() != diff_ids.len() {
            return Err(ImageError::content(&shown, "lists another number of layers than its configuration"));
        }
        let layer = |(layer, diff_id): (&String, Sha256)| store.layer(layer, None, diff_id);
        let layers = image.layers.iter().zip(diff_ids).map(layer).collect::<Result<_, _>>()?;
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
                let chosen = first_fitting(all).ok_or_else(|| no_fitting(name))?;
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

/// Where the files of an image are.
enum Store<'a> {
    Directory(&'a Path),
    Archive(Archived),
}

impl Store<'_> {
    /// What messages call a file.
    fn shown(&self, name: &str) -> String {
        match self {
            Self::Directory(directory) => shown(&directory.join(name)),
            Self::Archive(archive) => archive.shown.clone(),
        }
    }

    /// Reads a file of at most [`MAX_JSON_BYTES`].
    fn small(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        match self {
            Self::Directory(directory) => read_small(&directory.join(name)),
            Self::Archive(archive) => archive.small(name),
        }
    }

    /// Reads a small blob and verifies its digest. Returns what messages call it, too.
    fn blob(&self, digest_text: &str) -> Result<(String, Vec<u8>), ImageError> {
        let expected = digest(&self.shown(""), digest_text)?;
        let name = blob_name(&expected);
        let (shown, bytes) = (self.shown(&name), self.small(&name)?);
        if Sha256::of(&bytes) != expected {
            return Err(ImageError::content(&shown, "has another digest than its name; copy the image again"));
        }
        Ok((shown, bytes))
    }

    fn layer(&self, name: &str, digest: Option<Sha256>, diff_id: Sha256) -> Result<Layer, ImageError> {
        let (file, offset, length) = match self {
            Self::Directory(directory) => {
                let (file, length) = open_file(&directory.join(name))?;
                (file, 0, length)
            }
            Self::Archive(archive) => {
                let (offset, length) = archive.find(name)?;
                (archive.file.try_clone().map_err(|error| archive.failed(error))?, offset, length)
            }
        };
        Ok(Layer { file, order: LayerOrder { offset, length, digest, diff_id } })
    }
}

/// An open archive.
struct Archived {
    shown: String,
    file: File,
    /// Position and size by name.
    files: HashMap<String, (u64, u64)>,
    /// Names of files that are links to other files, as Docker writes repeated layers.
    links: HashMap<String, String>,
}

impl Archived {
    /// Reads the headers of an archive. Long names are not read: Docker writes none, and they could have any length.
    fn open(path: &Path) -> Result<Self, ImageError> {
        let (file, file_length) = open_file(path)?;
        let mut found = Self { shown: shown(path), file, files: HashMap::new(), links: HashMap::new() };
        let mut start = Vec::new();
        (&found.file).take(Compression::START_BYTES).read_to_end(&mut start).map_err(|error| found.failed(error))?;
        if let Some(compression) = Compression::of(&start) {
            let name = path.file_name().unwrap_or_default().display();
            let why = format!(
                "is compressed with {compression}; run `{} {name}` in its directory, and use the file that it writes",
                compression.command()
            );
            return Err(ImageError::content(&found.shown, why));
        }
        let file = found.file.try_clone().map_err(|error| found.failed(error))?;
        let damaged = |error| ImageError::Read { file: shown(path), error: without_content(error) };
        (&file).seek(SeekFrom::Start(0)).map_err(damaged)?;
        for (count, entry) in Archive::new(&file).entries_with_seek().map_err(damaged)?.raw(true).enumerate() {
            let entry = entry.map_err(damaged)?;
            if count >= MAX_ARCHIVE_ENTRIES {
                return Err(ImageError::content(&found.shown, "has too many entries for an archive of an image"));
            }
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_start_matches("./").to_owned();
            let name = text(&entry.path_bytes());
            match entry.header().entry_type() {
                EntryType::Regular => {
                    let offset = entry.raw_file_position();
                    // The header may state any size.
                    found.files.insert(name, (offset, entry.size().min(file_length.saturating_sub(offset))));
                }
                EntryType::Symlink => {
                    let target = text(&entry.link_name_bytes().unwrap_or_default());
                    found.links.insert(name, target.trim_start_matches("../").to_owned());
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn failed(&self, error: io::Error) -> ImageError {
        ImageError::Read { file: self.shown.clone(), error }
    }

    fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    fn find(&self, name: &str) -> Result<(u64, u64), ImageError> {
        let name = self.links.get(name).map_or(name, String::as_str);
        let found = self.files.get(name).copied();
        let missing = || format!("has no entry {:?}; write the archive again", short(name));
        found.ok_or_else(|| ImageError::content(&self.shown, missing()))
    }

    fn small(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let (offset, length) = self.find(name)?;
        if length > MAX_JSON_BYTES {
            return Err(ImageError::content(&self.shown, format!("has an entry {:?} of more than 4 MiB", short(name))));
        }
        let (mut file, mut bytes) = (&self.file, Vec::new());
        file.seek(SeekFrom::Start(offset))
            .and_then(|_| file.take(length).read_to_end(&mut bytes))
            .map_err(|error| self.failed(error))?;
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

/// Chooses a manifest as other programs do among several variants of a processor: the first one, rather one that names its
/// processor.
fn first_fitting(manifests: Vec<Descriptor>) -> Option<Descriptor> {
    let mut fitting: Vec<Descriptor> = manifests.into_iter().filter(fits).collect();
    let named = fitting.iter().position(|it| it.platform.is_some()).unwrap_or(0);
    (named < fitting.len()).then(|| fitting.swap_remove(named))
}

/// Chooses the only image for this machine, which may have several names.
fn choose(file: &str, manifests: Vec<Descriptor>) -> Result<Descriptor, ImageError> {
    let mut seen = HashSet::new();
    let fitting = manifests.into_iter().filter(|it| fits(it) && seen.insert(it.digest.clone()));
    let mut fitting: Vec<Descriptor> = fitting.collect();
    match (fitting.pop(), fitting.as_slice()) {
        (Some(only), []) => Ok(only),
        (None, _) => Err(no_fitting(file)),
        (Some(last), others) => {
            let labels = listed(others.iter().chain([&last]).map(label));
            Err(ImageError::Choice(format!("{file} has several images; name one: {labels}")))
        }
    }
}

/// Annotations of an index with an image's name: that of the OCI layout, which is a tag or a whole name, and the whole name in
/// the layouts of Docker.
const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// Whether an image has this name or digest. `NAME@DIGEST` means the digest, as for Docker.
fn is_called(manifest: &Descriptor, name: &str) -> bool {
    match name.rfind("sha256:").filter(|at| *at == 0 || name[..*at].ends_with('@')) {
        Some(at) if manifest.digest == name[at..] => true,
        _ => NAMES.iter().filter_map(|key| manifest.annotations.get(*key)).any(|it| familiar(it) == familiar(name)),
    }
}

/// A name without what Docker adds to names of images on Docker Hub.
fn familiar(name: &str) -> &str {
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    name.strip_prefix("library/").unwrap_or(name)
}

/// What names an image of an index in a message.
fn label(manifest: &Descriptor) -> &str {
    NAMES.iter().find_map(|key| manifest.annotations.get(*key)).unwrap_or(&manifest.digest)
}

fn choose_saved(file: &str, mut images: Vec<Saved>, name: Option<&str>) -> Result<Saved, ImageError> {
    let tags: Vec<String> = images.iter().flat_map(|image| image.tags.iter().flatten().cloned()).collect();
    if let Some(name) = name {
        let full = if name.rsplit('/').next().unwrap_or(name).contains(':') {
            name.to_owned()
        } else {
            format!("{name}:latest")
        };
        images.retain(|image| image.tags.iter().flatten().any(|tag| familiar(tag) == familiar(&full)));
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

fn blob_name(digest: &Sha256) -> String {
    format!("blobs/sha256/{}", digest.hex())
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

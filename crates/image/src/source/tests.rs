//! Tests of images in OCI layouts and in archives of `docker save`.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use super::*;

/// An OCI layout with the images of a test.
struct Layout {
    directory: TempDir,
    manifests: Vec<serde_json::Value>,
}

impl Layout {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(directory.path().join("blobs/sha256")).expect("writable");
        Self { directory, manifests: Vec::new() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    fn blob(&self, bytes: &[u8]) -> String {
        let digest = Sha256::of(bytes);
        fs::write(self.path().join(blob_name(&digest)), bytes).expect("writable");
        digest.to_string()
    }

    /// Adds an image with one layer, and returns its id.
    fn add(&mut self, tag: &str, layer: &[u8], env: &[&str], architecture: &str) -> String {
        let config = json!({
            "architecture": architecture, "config": { "Env": env }, "rootfs": { "diff_ids": [Sha256::of(layer).to_string()] },
        });
        let id = self.blob(config.to_string().as_bytes());
        let manifest = json!({ "config": { "digest": id }, "layers": [{ "digest": self.blob(layer) }] });
        let digest = self.blob(manifest.to_string().as_bytes());
        self.manifests.push(json!({
            "digest": digest, "annotations": { "org.opencontainers.image.ref.name": tag },
            "platform": { "architecture": architecture, "os": "linux" },
        }));
        self.write();
        id
    }

    fn write(&self) {
        let index = json!({ "manifests": self.manifests }).to_string();
        fs::write(self.directory.path().join("index.json"), index).expect("writable");
    }

    fn error(&self, tag: Option<&str>) -> String {
        Image::in_layout(&self.path(), tag).expect_err("refused").to_string()
    }
}

#[test]
fn layout_has_its_images_by_tag() {
    let mut layout = Layout::new();
    let first = layout.add("1", b"one", &["A=b=c", "PATH=/bin", "broken", "=x"], architecture());
    let image = Image::in_layout(&layout.path(), None).expect("the only image");
    assert_eq!(image.id.to_string(), first);
    let expected = [("A", "b=c"), ("PATH", "/bin")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(image.config.env, expected);
    assert_eq!(image.layers.len(), 1);
    assert_eq!(image.layers[0].order.digest, Some(Sha256::of(b"one")));
    let second = layout.add("2", b"two", &[], architecture());
    assert_eq!(Image::in_layout(&layout.path(), Some("2")).expect("it exists").id.to_string(), second);
    assert!(layout.error(None).contains("several images; name one: 1, 2"));
    assert!(layout.error(Some("3")).contains("no image \"3\"; it has: 1, 2"));
}

#[test]
fn names_of_layouts_may_be_whole_references_and_digests() {
    let mut layout = Layout::new();
    let (mini, other) = ("docker.io/library/mini:1.0", "quay.io:443/a/b:2@sha256:unusual");
    let ids = [mini, other, "plain"].map(|name| layout.add(name, name.as_bytes(), &[], architecture()));
    // As Docker names images: the tag, and the whole name beside it.
    layout.manifests[2]["annotations"]["io.containerd.image.name"] = json!("docker.io/team/app:plain");
    layout.write();
    let digest = |at: usize| layout.manifests[at]["digest"].as_str().expect("text");
    let by_name = format!("any/name@{}", digest(1));
    for (name, at) in [
        (mini, 0),
        ("mini:1.0", 0),
        (other, 1),
        ("plain", 2),
        ("team/app:plain", 2),
        (digest(0), 0),
        (by_name.as_str(), 1),
    ] {
        let found = Image::in_layout(&layout.path(), Some(name)).expect(name);
        assert_eq!(found.id.to_string(), ids[at], "{name}");
    }
    for none in ["mini", "1.0", "sha256:00", "mini@sha256:00"] {
        let error = layout.error(Some(none));
        assert!(error.contains("; it has: docker.io/library/mini:1.0, quay.io:443"), "{error}");
    }
    // One image with two names needs no choice, and one without a name can be chosen by its digest.
    let mut again = Layout::new();
    let id = again.add("1", b"one", &[], architecture());
    again.manifests.push(again.manifests[0].clone());
    again.manifests[1]["annotations"] = json!({ "org.opencontainers.image.ref.name": "latest" });
    again.write();
    assert_eq!(Image::in_layout(&again.path(), None).expect("one image").id.to_string(), id);
    again.add("2", b"two", &[], architecture());
    again.manifests[2]["annotations"] = json!({});
    again.write();
    let error = again.error(None);
    assert!(
        error.contains(&format!("name one: 1, {}", again.manifests[2]["digest"].as_str().expect("text"))),
        "{error}"
    );
}

#[test]
fn archive_of_a_layout_has_the_same_images_and_a_compressed_one_says_what_to_run() {
    let mut layout = Layout::new();
    let ids = ["docker.io/library/a:1", "b"].map(|name| layout.add(name, name.as_bytes(), &[], architecture()));
    let mut all = tar::Builder::new(Vec::new());
    all.append_dir_all(".", layout.path()).expect("readable");
    let plain = all.into_inner().expect("writable");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("image.tar");
    fs::write(&path, &plain).expect("writable");
    for (name, id) in [("docker.io/library/a:1", &ids[0]), ("b", &ids[1])] {
        let image = Image::in_archive(&path, Some(name)).expect(name);
        assert_eq!(image.id.to_string(), *id);
        let nothing = crate::Limits { bytes: 0, entries: 0 };
        for layer in &image.layers {
            crate::layer::unpack(&layer.file, &layer.order, None, nothing).expect("the same digest");
        }
    }
    let error = |path: &Path| Image::in_archive(path, None).expect_err("refused").to_string();
    assert!(error(&path).contains("several images; name one: docker.io/library/a:1, b"), "{}", error(&path));
    for (start, why) in [
        (&b"\x1f\x8b\x08\x00\xff\xfe"[..], "is compressed with gzip; run `gunzip --keep packed` in its directory"),
        (b"\x28\xb5\x2f\xfd\xff", "is compressed with zstd; run `unzstd packed`"),
        (b"\xfd7zXZ\0\xff", "is compressed with xz; run `unxz --keep packed`"),
        (b"BZh9\xff", "is compressed with bzip2; run `bunzip2 --keep packed`"),
        (&[0xff; 2000], "it is damaged, or not a tar archive"),
        (&plain[..700], "it is damaged, or not a tar archive"),
        (b"", "neither a manifest.json nor an index.json"),
    ] {
        fs::write(directory.path().join("packed"), start).expect("writable");
        let error = error(&directory.path().join("packed"));
        assert!(error.contains(why) && !error.contains('\u{fffd}'), "{error}");
    }
}

#[test]
fn layout_with_wrong_content_is_refused() {
    let mut layout = Layout::new();
    assert!(layout.error(None).contains("cannot read"), "a missing index");
    let id = layout.add("1", b"one", &[], "mips");
    assert!(layout.error(None).contains("no image for"));
    layout = Layout::new();
    layout.add("1", b"one", &[&"x".repeat(40 << 10)], architecture());
    assert!(layout.error(None).contains("environment variables"));
    for (key, value, why) in [
        ("Entrypoint", json!(["x".repeat(40 << 10)]), "the limits for an entry point"),
        ("Cmd", json!(vec!["x"; 2000]), "the limits for a command"),
        ("WorkingDir", json!("/x".repeat(4000)), "the limit for the working directory"),
        ("Entrypoint", json!("sh"), "not the description of an image"),
    ] {
        let text = json!({ "config": { key: value }, "rootfs": { "diff_ids": [] } }).to_string();
        assert!(read_config("config", text.as_bytes()).expect_err(key).to_string().contains(why), "{key}");
    }
    layout = Layout::new();
    let own = layout.add("1", b"one", &[], architecture());
    fs::write(layout.path().join(blob_name(&own.parse().expect("a digest"))), "{}").expect("writable");
    assert!(layout.error(None).contains("another digest than its name"));
    fs::remove_file(layout.path().join(blob_name(&own.parse().expect("a digest")))).expect("it exists");
    assert!(layout.error(None).contains("cannot read"));
    let index = |text: &str| fs::write(layout.path().join("index.json"), text).expect("writable");
    index(r#"{"manifests":[{"digest":"sha256:../../../../etc/passwd"}]}"#);
    assert!(layout.error(None).contains("has a digest that is not `sha256:`"));
    index(&json!({ "manifests": [{ "digest": id }] }).to_string());
    layout.error(None);
    index(&" ".repeat(5 << 20));
    assert!(layout.error(None).contains("more than 4 MiB"));
    fs::remove_file(layout.path().join("index.json")).expect("it exists");
    nix::unistd::mkfifo(&layout.path().join("index.json"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    assert!(layout.error(None).contains("not a regular file"));
}

#[test]
fn archive_of_docker_save_has_its_images_by_name() {
    let config = |layer: &[u8]| {
        json!({ "architecture": architecture(), "rootfs": { "diff_ids": vec![Sha256::of(layer).to_string(); 2] } })
            .to_string()
    };
    let manifest = json!([
        { "Config": "a.json", "RepoTags": ["a:1", "host:5000/x/a:latest"], "Layers": ["l/layer.tar", "m/layer.tar"] },
        { "Config": "b.json", "RepoTags": null, "Layers": ["l/layer.tar"] },
    ])
    .to_string();
    let mut all = tar::Builder::new(Vec::new());
    let mut add = |name: &str, text: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        all.append_data(&mut header, name, text.as_bytes()).expect("writable");
    };
    add("l/layer.tar", "layer");
    add("a.json", &config(b"layer"));
    add("b.json", &config(b"layer"));
    add("manifest.json", &manifest);
    // As Docker writes a layer that it has written already.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::Symlink);
    header.set_size(0);
    all.append_link(&mut header, "m/layer.tar", "../l/layer.tar").expect("writable");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), all.into_inner().expect("writable")).expect("writable");

    for name in ["a:1", "host:5000/x/a"] {
        let image = Image::in_archive(file.path(), Some(name)).expect("it exists");
        assert_eq!(image.id, Sha256::of(config(b"layer").as_bytes()));
        for layer in &image.layers {
            crate::layer::unpack(&layer.file, &layer.order, None, crate::Limits { bytes: 0, entries: 0 })
                .expect("same digest");
        }
    }
    let error = |name| Image::in_archive(file.path(), name).expect_err("refused").to_string();
    assert!(error(None).contains("several images; name one: a:1"));
    assert!(error(Some("b")).contains("no image \"b:latest\""));
    let damaged = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(damaged.path(), "not an archive").expect("writable");
    assert!(Image::in_archive(damaged.path(), None).is_err());
}

#[test]
fn messages_do_not_grow_with_the_names_in_an_image() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let long = "\u{1}".repeat(1 << 20);
    let error = |manifest: &serde_json::Value, name: Option<&str>| {
        let path = directory.path().join("saved.tar");
        let mut all = tar::Builder::new(File::create(&path).expect("writable"));
        let text = manifest.to_string();
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        all.append_data(&mut header, "manifest.json", text.as_bytes()).expect("writable");
        all.finish().expect("writable");
        Image::in_archive(&path, name).expect_err("refused").to_string()
    };
    let saved = |tag: &str| json!({ "Config": long.clone() + ".json", "RepoTags": [tag], "Layers": [] });
    for (manifest, name) in [
        (json!([saved("a")]), None),
        (json!([saved(&long), saved(&long)]), None),
        (json!([saved(&long)]), Some(long.as_str())),
        (json!([long.clone()]), None),
    ] {
        let message = error(&manifest, name);
        assert!(message.len() < 2000, "{} bytes: {}", message.len(), message.chars().take(200).collect::<String>());
    }
}

#[test]
fn no_file_is_read_through_a_link_of_a_process() {
    let mut layout = Layout::new();
    layout.add("1", b"one", &[], architecture());
    let directory = File::open(layout.path()).expect("readable");
    let open = std::os::fd::AsRawFd::as_raw_fd(&directory);
    for path in [format!("/proc/self/fd/{open}"), format!("/proc/self/root{}", layout.path().display())] {
        let refused = Image::in_layout(Path::new(&path), None).expect_err("refused").to_string();
        assert!(refused.contains("symbolic links"), "{refused}");
    }
}

#[test]
fn configuration_names_entry_point_and_directory() {
    let config = |text: &str| read_config("config", text.as_bytes()).expect("valid").0;
    let all = config(
        r#"{"config":{"Entrypoint":["/bin/a","b"],"Cmd":["c"],"WorkingDir":"/d","User":"e"},"rootfs":{"diff_ids":[]}}"#,
    );
    assert_eq!((all.entrypoint, all.command), (vec!["/bin/a".to_owned(), "b".to_owned()], vec!["c".to_owned()]));
    assert_eq!(all.directory.as_deref(), Some("/d"));
    for nothing in [r#"{"WorkingDir":"","Cmd":null}"#, r#"{"WorkingDir":"/"}"#, r#"{"WorkingDir":"relative"}"#] {
        let found = config(&format!(r#"{{"config":{nothing},"rootfs":{{"diff_ids":[]}}}}"#));
        assert_eq!(found, Config::default(), "{nothing}");
    }
}

#[test]
fn manifest_for_this_machine_comes_before_one_without_a_platform() {
    let id = |name: &str| Sha256::of(name.as_bytes()).to_string();
    let own = json!({ "digest": id("own"), "size": 1, "platform": { "os": "linux", "architecture": architecture() } });
    let unknown = json!({ "digest": id("unknown"), "size": 1 });
    let chosen = |all: &[&serde_json::Value]| {
        let text = json!({ "manifests": all }).to_string();
        Document::parse("index", text.as_bytes()).expect("an image")
    };
    let index = |name: &str| Document::Index(Sha256::of(name.as_bytes()));
    assert_eq!(chosen(&[&unknown, &own]), index("own"));
    assert_eq!(chosen(&[&unknown]), index("unknown"));
}

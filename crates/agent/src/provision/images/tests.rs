//! Tests of the cache of images. Layers are unpacked in this process, and the registry is a table.

use std::cell::RefCell;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Mutex as Lock;

use hostler_image::{LayerOrder, Limits};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::process::{FULL, result};
use super::*;
use crate::provision::environment::{Ended, Step};

/// Runs the steps without processes. Answers for registries: by host and repository, their only image.
#[derive(Default)]
struct Fake {
    registries: HashMap<String, Built>,
    /// Number of layers that were downloaded, and unpacked or verified.
    counts: Lock<(u32, u32)>,
    /// The digests that requests for descriptions have named as known.
    asked: Mutex<Vec<Value>>,
}

/// An image in memory.
#[derive(Clone)]
struct Built {
    layer: Vec<u8>,
    config: String,
    manifest: String,
}

/// An image with a file of some size.
fn built(name: &str, bytes: usize) -> Built {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, format!("etc/{name}"), &*vec![b'x'; bytes]).expect("writable");
    let layer = archive.into_inner().expect("writable");
    let config = json!({ "rootfs": { "diff_ids": [Sha256::of(&layer).to_string()] } }).to_string();
    let blob = |bytes: &[u8]| json!({ "digest": Sha256::of(bytes).to_string(), "size": bytes.len() });
    let manifest = json!({ "config": blob(config.as_bytes()), "layers": [blob(&layer)] }).to_string();
    Built { layer, config, manifest }
}

impl Built {
    fn id(&self) -> String {
        Sha256::of(self.config.as_bytes()).hex()
    }

    /// Writes the image as an OCI layout.
    fn write(&self, directory: &Path) {
        let blobs = directory.join("blobs/sha256");
        fs::create_dir_all(&blobs).expect("writable");
        for blob in [self.layer.as_slice(), self.config.as_bytes(), self.manifest.as_bytes()] {
            fs::write(blobs.join(Sha256::of(blob).hex()), blob).expect("writable");
        }
        let index = json!({ "manifests": [{ "digest": Sha256::of(self.manifest.as_bytes()).to_string() }] });
        fs::write(directory.join("index.json"), index.to_string()).expect("writable");
    }
}

impl Runner for Fake {
    fn goes_on(&self) -> Result<(), Stopped> {
        Ok(())
    }

    fn run(&self, step: &Step, output: &mut dyn FnMut(&[u8])) -> Result<Ended, Stopped> {
        let argv: Vec<&str> = step.argv.iter().map(|word| word.to_str().expect("text")).collect();
        let mut input = step.input.as_ref().expect("both steps have input").try_clone()?;
        if argv[1] == "fetch-image" {
            let mut text = String::new();
            input.read_to_string(&mut text)?;
            let order: Value = serde_json::from_str(&text).expect("JSON");
            let name = format!("{}/{}", order["host"], order["repository"]).replace('"', "");
            let Some(image) = self.registries.get(&name) else {
                output(b"error: no such image");
                return Ok(Ended::Exited(1));
            };
            if let Some(layer) = order["want"].get("Layer") {
                lock(&self.counts).0 += 1;
                fs::write(layer["path"].as_str().expect("a path"), &image.layer)?;
            } else {
                let digest = Sha256::of(image.manifest.as_bytes()).to_string();
                lock(&self.asked).push(order["want"]["Description"]["known"].clone());
                let said =
                    json!({ "named": digest, "digest": digest, "manifest": image.manifest, "config": image.config });
                output(json!({ "New": said }).to_string().as_bytes());
            }
            return Ok(Ended::Exited(0));
        }
        lock(&self.counts).1 += 1;
        let of = |name: &str| argv.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let number = |name: &str| of(name).and_then(|text| text.parse().ok()).expect("a number");
        let order = LayerOrder {
            offset: number("--offset"),
            length: number("--length"),
            digest: of("--digest").map(|text| text.parse().expect("a digest")),
            diff_id: of("--diff-id").and_then(|text| text.parse().ok()).expect("a digest"),
        };
        let root = of("--into").map(|path| OwnedFd::from(File::open(path).expect("readable")));
        let limits = Limits { bytes: number("--max-bytes"), entries: number("--max-entries") };
        let done = hostler_image::layer::unpack(&input, &order, root.as_ref(), limits);
        let done = result(done);
        output(done.as_ref().map_or_else(ToString::to_string, String::clone).as_bytes());
        Ok(Ended::Exited(done.is_err().into()))
    }
}

/// A cache in a temporary directory.
struct Cache {
    directory: TempDir,
    images: Images,
    fake: Fake,
    log: RefCell<String>,
}

impl Cache {
    fn new(cap_bytes: u64, plain_http: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("runs")).expect("writable");
        let plain_http = plain_http.iter().map(ToString::to_string).collect();
        let settings = ImageSettings { plain_http, ..ImageSettings::default() };
        let images = Images::open(at("images"), at("runs"), settings).expect("writable");
        Self { images: Images { cap_bytes, ..images }, directory, fake: Fake::default(), log: RefCell::default() }
    }

    /// Obtains an image for a run, which then lasts until it is removed.
    fn obtain(&self, image: &str, run: &str) -> Result<Obtained, String> {
        fs::create_dir_all(self.directory.path().join("runs").join(run)).expect("writable");
        let image = image.parse().expect(image);
        let wanted = Wanted {
            image: &image,
            run,
            folder: self.directory.path(),
            user: None,
            home: Some(self.directory.path()),
            has_login: true,
            own: None,
            program: "hostler",
        };
        let mut log = |text: &[u8]| self.log.borrow_mut().push_str(&String::from_utf8_lossy(text));
        self.images.obtain(&wanted, &self.fake, &mut log).map_err(|failure| failure.to_string())
    }

    fn end(&self, run: &str) {
        fs::remove_dir(self.directory.path().join("runs").join(run)).expect("it exists");
    }

    /// The ids of the unpacked images, in the order of these.
    fn has(&self, all: &[&Built]) -> Vec<bool> {
        let names = fs::read_dir(self.directory.path().join("images")).expect("readable");
        let there: HashSet<String> =
            names.map(|entry| entry.expect("readable").file_name().into_string().expect("text")).collect();
        assert!(there.iter().all(|name| !name.starts_with(ATTEMPT)), "{there:?}");
        all.iter().map(|image| there.contains(&image.id())).collect()
    }

    /// Makes an image's last use so many seconds older.
    fn age(&self, image: &Built, secs: u64) {
        let path = self.directory.path().join("images").join(image.id()).join("image");
        let file = File::options().write(true).open(path).expect("there");
        file.set_modified(SystemTime::now() - Duration::from_secs(secs)).expect("ours");
    }
}

#[test]
fn images_that_were_not_used_for_longest_are_removed_but_none_of_a_run() {
    const BYTES: usize = 1 << 20;
    // Room for two and a half.
    let cache = Cache::new(5 * BYTES as u64 / 2, &[]);
    let all = ["a", "b", "c", "d"].map(|name| built(name, BYTES));
    let [a, b, c, d] = &all;
    for (image, name) in all.iter().zip(["a", "b", "c", "d"]) {
        image.write(&cache.directory.path().join(name));
    }
    let has = || cache.has(&[a, b, c, d]);
    cache.obtain("oci:a", "1").expect("there");
    cache.age(a, 300);
    cache.obtain("oci:b", "2").expect("there");
    cache.age(b, 200);
    cache.end("2");
    assert_eq!(has(), [true, true, false, false]);
    // The oldest one is in use.
    cache.obtain("oci:c", "3").expect("there");
    assert_eq!(has(), [true, false, true, false]);
    // Everything is in use: nothing is removed, and the next image is unpacked all the same.
    cache.obtain("oci:b", "4").expect("there");
    assert_eq!(has(), [true, true, true, false]);
    // A later use counts, not the first.
    for run in ["1", "3", "4"] {
        cache.end(run);
    }
    cache.age(c, 100);
    cache.age(b, 50);
    cache.obtain("oci:a", "5").expect("there");
    assert_eq!(has(), [true, true, false, false], "c was not used for longest");
    cache.obtain("oci:d", "6").expect("there");
    assert_eq!(has(), [true, false, false, true]);
    assert!(cache.directory.path().join("images").join(d.id()).join("root/etc/d").exists());
}

#[test]
fn image_of_a_registry_is_pulled_once_and_proved_by_its_repository() {
    let mut cache = Cache::new(1 << 30, &["registry.lan:5000"]);
    let image = built("a", 1000);
    for name in ["registry.lan:5000/team/app", "registry.lan:5000/other/app", "localhost:5000/app"] {
        cache.fake.registries.insert(name.to_owned(), image.clone());
    }
    let obtain = |name: &str, run: &str| {
        let before = *lock(&cache.fake.counts);
        cache.log.borrow_mut().clear();
        let got = cache.obtain(&format!("docker://{name}"), run);
        let after = *lock(&cache.fake.counts);
        (got.map(|it| it.id), (after.0 - before.0, after.1 - before.1), cache.log.borrow().clone())
    };
    let id = Ok(Some(format!("sha256:{}", image.id())));
    let digest = Sha256::of(image.manifest.as_bytes());
    let (got, counts, log) = obtain("registry.lan:5000/team/app:1", "1");
    assert_eq!((&got, counts), (&id, (1, 1)));
    assert!(
        log.contains(&format!("docker://registry.lan:5000/team/app:1 is docker://registry.lan:5000/team/app@{digest}"))
    );
    assert!(log.contains("pulled and unpacked in"), "{log}");
    // The same repository has proved to contain the layers.
    let (got, counts, log) = obtain(&format!("registry.lan:5000/team/app@{digest}"), "2");
    assert_eq!((&got, counts), (&id, (0, 0)));
    assert!(log.contains("found in the cache"), "{log}");
    // Another one has to prove it once.
    for (run, expected) in [("3", (1, 1)), ("4", (0, 0))] {
        let (got, counts, _) = obtain("registry.lan:5000/other/app", run);
        assert_eq!((&got, counts), (&id, expected));
    }
    // On this machine, another user's server may answer.
    let (got, counts, _) = obtain("localhost:5000/app", "5");
    let refused = got.expect_err("it is not listed");
    assert!(refused.contains("can list it in `[images] plain_http`") && counts == (0, 0), "{refused}");
    // A user who may not read the repository does not get its image from the cache.
    let (got, _, _) = obtain("registry.lan:5000/secret", "7");
    assert_eq!(got.expect_err("unknown"), "cannot pull the image: no such image");
    assert_eq!(cache.has(&[&image]), [true]);
    // Jobs at the same time share an answer: the registry was asked once for each name.
    assert_eq!(*lock(&cache.fake.asked), [Value::Null, Value::Null, Value::Null]);
    // Later ones ask whether the tag names the same.
    for answer in lock(&cache.images.answers).values() {
        lock(answer).age(Duration::from_secs(60));
    }
    let (got, counts, _) = obtain("registry.lan:5000/other/app", "8");
    assert_eq!((&got, counts), (&id, (0, 0)));
    assert_eq!(lock(&cache.fake.asked).last(), Some(&Value::String(digest.to_string())));
}

#[test]
fn layer_that_is_larger_than_half_of_the_free_space_is_not_downloaded() {
    let mut cache = Cache::new(1 << 30, &["registry.lan:5000"]);
    let first = built("a", 1000);
    let mut image = first.clone();
    cache.fake.registries.insert("registry.lan:5000/first".to_owned(), image.clone());
    cache.obtain("docker://registry.lan:5000/first", "1").expect("there");
    let too_large = half_free(cache.directory.path()).expect("readable") + (1 << 30);
    let claim = |manifest: &str| {
        let mut manifest: Value = serde_json::from_str(manifest).expect("JSON");
        manifest["layers"][0]["size"] = too_large.into();
        manifest.to_string()
    };
    image.manifest = claim(&image.manifest);
    cache.fake.registries.insert("registry.lan:5000/huge".to_owned(), image);
    // Also if the image is there, and only its layers must be proved.
    let refused = cache.obtain("docker://registry.lan:5000/huge", "2").expect_err("a huge layer");
    // On a large disk, the limit of all images is smaller.
    let limit = if too_large > IMAGE_BYTES { "32 GiB" } else { "half of the free space" };
    assert!(refused.contains("layer 1 of the image") && refused.contains(limit), "{refused}");
    assert_eq!(lock(&cache.fake.counts).0, 1);
    // A claimed size removes no image if that would not make enough room.
    let mut other = built("b", 1000);
    other.manifest = claim(&other.manifest);
    cache.fake.registries.insert("registry.lan:5000/other".to_owned(), other);
    assert_eq!(cache.has(&[&first]), [true]);
    cache.end("1");
    cache.end("2");
    cache.obtain("docker://registry.lan:5000/other", "3").expect_err("it is still too large");
    assert_eq!(cache.has(&[&first]), [true]);
    assert_eq!(lock(&cache.fake.counts).0, 1);
}

#[test]
fn only_as_many_old_images_as_needed_make_room_for_a_new_one() {
    const BYTES: usize = 1 << 20;
    let cache = Cache::new(1 << 30, &[]);
    let all = ["a", "b", "c"].map(|name| built(name, BYTES));
    let [a, b, c] = &all;
    for (age, (image, name)) in all.iter().zip(["a", "b", "c"]).enumerate() {
        image.write(&cache.directory.path().join(name));
        cache.obtain(&format!("oci:{name}"), name).expect("there");
        cache.age(image, 300 - 100 * age as u64);
    }
    cache.end("b");
    cache.end("c");
    // What a run uses counts for nothing.
    assert!(!cache.images.make_room(3 * BYTES as u64 / 2));
    assert_eq!(cache.has(&[a, b, c]), [true; 3]);
    assert!(cache.images.make_room(BYTES as u64 / 4));
    assert_eq!(cache.has(&[a, b, c]), [true, false, true]);
}

#[test]
fn text_of_a_layer_cannot_pass_for_missing_room() {
    let cache = Cache::new(1 << 30, &[]);
    let (old, mut image) = (built("a", 1000), built("b", 1000));
    old.write(&cache.directory.path().join("a"));
    cache.obtain("oci:a", "1").expect("there");
    cache.end("1");
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    let name = format!("../{FULL}1\n{FULL}1: {ROOM}");
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_size(0);
    header.set_cksum();
    archive.append(&header, io::empty()).expect("writable");
    image.layer = archive.into_inner().expect("writable");
    let digest = |bytes: &[u8]| Sha256::of(bytes).to_string();
    image.config = json!({ "rootfs": { "diff_ids": [digest(&image.layer)] } }).to_string();
    let blob = |bytes: &[u8]| json!({ "digest": digest(bytes), "size": bytes.len() });
    image.manifest = json!({ "config": blob(image.config.as_bytes()), "layers": [blob(&image.layer)] }).to_string();
    image.write(&cache.directory.path().join("b"));
    let refused = cache.obtain("oci:b", "2").expect_err("a hostile name");
    assert!(refused.contains(ROOM) && refused.contains("has `..` in its path"), "{refused}");
    assert_eq!((cache.has(&[&old, &image]), *lock(&cache.fake.counts)), (vec![true, false], (0, 2)));
}

#[test]
fn image_that_another_job_has_unpacked_meanwhile_is_pinned() {
    let cache = Cache::new(1 << 30, &[]);
    let image = built("a", 1000);
    image.write(&cache.directory.path().join("a"));
    cache.obtain("oci:a", "1").expect("there");
    cache.end("1");
    // As if this job had not seen the image before it unpacked it too.
    fs::create_dir(cache.directory.path().join("runs/2")).expect("writable");
    let name = "oci:a".parse().expect("an image");
    let wanted = Wanted {
        image: &name,
        run: "2",
        folder: cache.directory.path(),
        user: None,
        home: None,
        has_login: true,
        own: None,
        program: "hostler",
    };
    let found = Image::in_layout(&cache.directory.path().join("a"), None).expect("there").into();
    cache.images.unpack(&image.id(), &found, &wanted, &cache.fake).expect("unpacked twice");
    cache.images.evict(0);
    assert_eq!(cache.has(&[&image]), [true]);
    cache.end("2");
    cache.images.evict(0);
    assert_eq!(cache.has(&[&image]), [false]);
}

#[test]
fn layer_that_differs_from_its_manifest_leaves_nothing() {
    let mut cache = Cache::new(1 << 30, &[]);
    let mut image = built("a", 1000);
    image.layer = built("b", 1000).layer;
    cache.fake.registries.insert("registry.example/app".to_owned(), image.clone());
    let refused = cache.obtain("docker://registry.example/app", "1").expect_err("another layer");
    assert!(refused.contains("has the digest sha256:"), "{refused}");
    assert_eq!(cache.has(&[&image]), [false]);
}

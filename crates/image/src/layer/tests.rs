//! Tests of layers: whiteouts, links, limits, digests, and entries that are hostile.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use proptest::prelude::*;
use tar::{Builder, Header};
use tempfile::TempDir;

use super::*;

const PLENTY: Limits = Limits { bytes: 1 << 20, entries: 1000 };

/// An entry of an archive: kind, path, content or link target, and mode.
type Part<'a> = (EntryType, &'a str, &'a str, u32);

/// Writes an archive without the checks of the library, which refuses hostile paths.
fn archive(parts: &[Part<'_>]) -> Vec<u8> {
    let mut all = Builder::new(Vec::new());
    for (kind, path, text, mode) in parts {
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        header.set_mtime(1_000_000_000);
        let is_file = *kind == EntryType::Regular;
        if !is_file {
            header.as_mut_bytes()[157..157 + text.len()].copy_from_slice(text.as_bytes());
        }
        header.set_size(if is_file { text.len() as u64 } else { 0 });
        header.set_cksum();
        all.append(&header, if is_file { text.as_bytes() } else { b"" }).expect("writable");
    }
    all.into_inner().expect("writable")
}

const fn file<'a>(path: &'a str, text: &'a str) -> Part<'a> {
    (EntryType::Regular, path, text, 0o644)
}

const fn link<'a>(path: &'a str, target: &'a str) -> Part<'a> {
    (EntryType::Symlink, path, target, 0o777)
}

struct Place {
    /// The parent of the target, where nothing may appear.
    outside: TempDir,
    root: OwnedFd,
}

impl Place {
    fn new() -> Self {
        let outside = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(outside.path().join("root")).expect("writable");
        let root = File::open(outside.path().join("root")).expect("readable").into();
        Self { outside, root }
    }

    fn unpack(&self, packed: &[u8], plain: &[u8], limits: Limits) -> Result<Applied, LayerError> {
        let mut blob = tempfile::tempfile().expect("a temporary file");
        blob.write_all(b"before").and_then(|()| blob.write_all(packed)).expect("writable");
        let (digest, diff_id) = (Some(Sha256::of(packed)), Sha256::of(plain));
        let order = LayerOrder { offset: 6, length: packed.len() as u64, digest, diff_id };
        unpack(&blob, &order, Some(&self.root), limits)
    }

    fn apply(&self, parts: &[Part<'_>]) -> Result<Applied, LayerError> {
        let plain = archive(parts);
        self.unpack(&plain, &plain, PLENTY)
    }

    /// All paths below the target, with the contents of files and the targets of links.
    fn tree(&self) -> BTreeMap<String, String> {
        fn walk(at: &Path, prefix: &str, all: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(at).expect("readable").map(|entry| entry.expect("readable")) {
                let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
                let kind = entry.file_type().expect("readable");
                if kind.is_dir() {
                    walk(&entry.path(), &format!("{path}/"), all);
                    all.insert(path, "directory".into());
                } else if kind.is_symlink() {
                    all.insert(path, format!("-> {}", fs::read_link(entry.path()).expect("readable").display()));
                } else {
                    all.insert(path, fs::read_to_string(entry.path()).expect("readable"));
                }
            }
        }
        let mut all = BTreeMap::new();
        walk(&self.outside.path().join("root"), "", &mut all);
        all
    }

    fn has(&self, expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        assert_eq!(self.tree(), expected);
        self.is_alone();
    }

    fn is_alone(&self) {
        let names = fs::read_dir(self.outside.path()).expect("readable").count();
        assert_eq!(names, 1, "the layer wrote outside of its directory");
    }
}

#[test]
fn layers_replace_and_remove_files_of_lower_layers() {
    let place = Place::new();
    let lower =
        [file("./etc/a", "1"), file("etc/b", "1"), file("opt/x/deep", "1"), link("usr", "opt"), file("c/d", "1")];
    place.apply(&lower).expect("the lower layer");
    let upper = [
        file("etc/.wh.a", ""),
        // Both in this order: a whiteout removes nothing of its own layer.
        file("opt/new", "2"),
        file("opt/.wh..wh..opq", ""),
        file("etc/b", "22"),
        (EntryType::Directory, "usr", "", 0o700),
        file(".wh.c", ""),
        file("c", "a file"),
        file("etc/.wh.missing", ""),
        file("missing/.wh.file", ""),
        file(".wh..wh.plnk", ""),
    ];
    place.apply(&upper).expect("the upper layer");
    place.has(&[
        ("etc", "directory"),
        ("etc/b", "22"),
        ("opt", "directory"),
        ("opt/new", "2"),
        ("usr", "directory"),
        ("c", "a file"),
    ]);
}

#[test]
fn links_of_lower_layers_work_and_none_leads_outside() {
    let place = Place::new();
    place
        .apply(&[file("usr/lib/a", "1"), link("lib", "usr/lib"), link("up", "../.."), link("abs", "/usr")])
        .expect("fine");
    place.apply(&[file("lib/b", "2"), file("up/x", "3"), file("abs/y", "4")]).expect("fine");
    place.has(&[
        ("abs", "-> /usr"),
        ("lib", "-> usr/lib"),
        ("up", "-> ../.."),
        ("usr", "directory"),
        ("usr/lib", "directory"),
        ("usr/lib/a", "1"),
        ("usr/lib/b", "2"),
        ("usr/y", "4"),
        ("x", "3"),
    ]);
}

#[test]
fn hostile_entries_are_refused() {
    let outside = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(outside.path(), "untouched").expect("writable");
    let target = outside.path().to_str().expect("text");
    let hard = |path, target| (EntryType::Link, path, target, 0o644);
    let refused: [&[Part<'_>]; 9] = [
        &[file("../escaped", "x")],
        &[file("a/../../escaped", "x")],
        &[file(".wh...", "")],
        &[file(".wh..", "")],
        &[file(".wh.", "")],
        &[hard("a", target)],
        &[hard("a", "../b")],
        &[hard("a", "missing")],
        &[link("d", "/tmp"), hard("a", "d/../escaped")],
    ];
    for parts in refused {
        let place = Place::new();
        let error = place.apply(parts).expect_err("refused");
        place.is_alone();
        assert!(!error.to_string().is_empty());
    }
    // These are resolved in the image, where they reach nothing.
    let place = Place::new();
    place.apply(&[link("a", target), file("a", "replaced"), link("b", "/"), file("b/etc/x", "y")]).expect("harmless");
    assert_eq!(place.tree().get("a").map(String::as_str), Some("replaced"));
    assert_eq!(place.tree().get("etc/x").map(String::as_str), Some("y"));
    assert_eq!(fs::read_to_string(outside.path()).expect("readable"), "untouched");
    place.is_alone();
}

#[test]
fn devices_and_special_bits_are_left_out() {
    let place = Place::new();
    place
        .apply(&[
            (EntryType::Char, "dev/sda", "", 0o666),
            (EntryType::Block, "dev/sdb", "", 0o666),
            (EntryType::Fifo, "pipe", "", 0o666),
            (EntryType::Regular, "su", "x", 0o6755),
            (EntryType::Regular, "secret", "x", 0o600),
            (EntryType::Directory, "private", "", 0o1000),
        ])
        .expect("harmless");
    let root = place.outside.path().join("root");
    let mode = |name: &str| fs::metadata(root.join(name)).expect("it exists").permissions().mode() & 0o7777;
    assert_eq!((mode("su"), mode("secret"), mode("private")), (0o755, 0o644, 0o755));
    assert_eq!(fs::metadata(root.join("su")).expect("it exists").mtime(), 1_000_000_000);
    assert_eq!(place.tree().len(), 3, "{:?}", place.tree());
}

#[test]
fn sizes_and_numbers_have_limits() {
    let limit = |limits, parts: &[Part<'_>]| {
        let plain = archive(parts);
        Place::new().unpack(&plain, &plain, limits).expect_err("beyond the limit").to_string()
    };
    let few = Limits { entries: 2, ..PLENTY };
    assert!(limit(few, &[file("a", ""), file("b", ""), file("c", "")]).contains("entries"));
    assert!(limit(few, &[file("a/b/c", ""), file("d", "")]).contains("entries"), "parent directories count");
    // The rest is counted, but not written.
    let (plain, place) = (archive(&[file("a", "12"), file("b", "34"), file("c", "5")]), Place::new());
    let error = place.unpack(&plain, &plain, Limits { bytes: 3, ..PLENTY }).expect_err("beyond the limit");
    let written: usize = place.tree().values().map(|text| text.trim_matches('\0').len()).sum();
    assert!(matches!(error, LayerError::Bytes { missing: 2 }) && written == 2, "{error}");
    let deep = "d/".repeat(45);
    let mut path = PathBuf::from(&deep);
    path.extend([&deep, &deep]);
    assert!(plain_path(path.as_os_str().as_bytes()).is_err());

    // A bomb: a few bytes that stand for many. The limit of bytes on the disk would allow it.
    let huge = Limits { bytes: u64::MAX, ..PLENTY };
    let plain = sparse("bomb", 0, b"", 0o777_777_777_777);
    let error = Place::new().unpack(&plain, &plain, huge).expect_err("a bomb").to_string();
    assert!(error.contains("\"bomb\" makes the layer larger than 32 GiB"), "{error}");
    // Also where no file has the bytes.
    let mut endless = Hashing::new(io::repeat(0).take(4000), 3000);
    let error = read_error(io::copy(&mut endless, &mut io::sink()).expect_err("endless")).to_string();
    assert!(error.contains("32 GiB for an uncompressed layer"), "{error}");
}

/// A file of GNU's old sparse format with one part, without the end of the archive.
fn sparse(path: &str, offset: u64, part: &[u8], size: u64) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
    header.set_entry_type(EntryType::GNUSparse);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(part.len() as u64);
    let gnu = header.as_gnu_mut().expect("a GNU header");
    for (at, (offset, length)) in [(offset, part.len() as u64), (size, 0)].into_iter().enumerate() {
        gnu.sparse[at].offset[..12].copy_from_slice(format!("{offset:012o}").as_bytes());
        gnu.sparse[at].numbytes[..12].copy_from_slice(format!("{length:012o}").as_bytes());
    }
    gnu.realsize[..12].copy_from_slice(format!("{size:012o}").as_bytes());
    header.set_cksum();
    let mut plain = header.as_bytes().to_vec();
    plain.extend(part);
    plain.resize(plain.len().next_multiple_of(512), 0);
    plain
}

#[test]
fn zeros_become_holes_and_count_for_nothing() {
    // What `useradd -u 1100000` leaves in an image, and a database with data behind zeros.
    let (zeros, mut data) = ("\0".repeat(6 << 20), "\0".repeat(1 << 20));
    data.push_str("end");
    let plain = archive(&[file("var/log/lastlog", &zeros), file("data", &data), file("empty", "")]);
    for packed in [plain.clone(), gzip(&plain), zstd::encode_all(&plain[..], 1).expect("compressible")] {
        let place = Place::new();
        let applied = place.unpack(&packed, &plain, PLENTY).expect("Docker runs it");
        assert_eq!((applied.bytes, applied.entries), (3, 5));
        let found = |name: &str| fs::metadata(place.outside.path().join("root").join(name)).expect("it exists");
        assert_eq!((found("var/log/lastlog").len(), found("empty").len()), (6 << 20, 0));
        assert!(found("var/log/lastlog").blocks() == 0 && found("data").blocks() * 512 <= 2 * CHUNK as u64);
        assert_eq!(place.tree()["data"], data);
    }
}

#[test]
fn sparse_files_are_read_or_refused_but_never_wrong() {
    let whole = [sparse("sparse", 1 << 20, b"part", (1 << 20) + 4), archive(&[file("next", "1")])].concat();
    let place = Place::new();
    assert_eq!(place.unpack(&whole, &whole, PLENTY).expect("GNU tar writes this"), Applied { bytes: 5, entries: 2 });
    let expected = format!("{}part", "\0".repeat(1 << 20));
    place.has(&[("next", "1"), ("sparse", &expected)]);
    let mut all = Builder::new(Vec::new());
    all.append_pax_extensions([("GNU.sparse.major", &b"1"[..])]).expect("writable");
    let mut pax = all.into_inner().expect("writable");
    pax.truncate(1024);
    pax.extend(archive(&[file("GNUSparseFile.0/sparse", "1\n0\n")]));
    let error = Place::new().unpack(&pax, &pax, PLENTY).expect_err("another format").to_string();
    assert!(error.contains("without `tar --sparse`"), "{error}");
}

#[test]
fn opaque_whiteout_hides_the_children_and_keeps_the_directory() {
    let lower = [file("opt/a/b", "1"), link("link", "opt/a"), file("x", "1")];
    let kept = [("link", "-> opt/a"), ("opt", "directory"), ("opt/a", "directory"), ("x", "1")];
    for (opaque, expected) in [
        ("opt/.wh..wh..opq", &[kept[0], kept[1], kept[3]][..]),
        ("opt/a/.wh..wh..opq", &kept),
        // As for files, a link in the path leads to its directory.
        ("link/.wh..wh..opq", &kept),
        ("./.wh..wh..opq", &[]),
    ] {
        let place = Place::new();
        place.apply(&lower).expect("the lower layer");
        place.apply(&[file(opaque, "")]).expect("only a whiteout");
        place.has(expected);
    }
    for harmless in ["x/.wh..wh..opq", "none/.wh..wh..opq", "opt/a/b/.wh..wh..opq"] {
        let place = Place::new();
        place.apply(&lower).expect("the lower layer");
        place.apply(&[file(harmless, "")]).expect("nothing to hide");
        assert_eq!(place.tree().len(), 5, "{harmless}");
    }
}

#[test]
fn directory_of_an_old_archive_is_no_file() {
    let mut plain = archive(&[(EntryType::Directory, "d/", "", 0o755), file("d/a", "1")]);
    plain[KIND_BYTE] = 0;
    // The kind is part of the checksum.
    let sum = format!("{:06o}\0", checksum(&plain[..512]));
    plain[148..155].copy_from_slice(sum.as_bytes());
    let place = Place::new();
    place.unpack(&plain, &plain, PLENTY).expect("Docker runs it");
    place.has(&[("d", "directory"), ("d/a", "1")]);
}

/// The sum of a header's bytes, with spaces in place of the sum itself.
fn checksum(header: &[u8]) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    sum(&header[..148]) + 8 * u32::from(b' ') + sum(&header[156..])
}

#[test]
fn errors_have_no_bytes_of_the_layer() {
    let mut plain = archive(&[file("a", "1")]);
    plain[148..156].fill(0xff);
    for (packed, why) in [
        (plain.clone(), "it is damaged, or not a tar archive"),
        (gzip(&plain), "it is damaged, or not a tar archive"),
        (b"\x1f\x8b\x01\x02 not gzip \xff".to_vec(), "it is damaged"),
        (gzip(&archive(&[file("a", "1")]))[..40].to_vec(), "it ends too early"),
        (archive(&[file("a", "1234")])[..514].to_vec(), "it ends too early"),
        (b"\xfd7zXZ\0\xff".to_vec(), "compressed with xz; write the image again"),
        (b"BZh9\xff".to_vec(), "compressed with bzip2"),
    ] {
        let error = Place::new().unpack(&packed, &plain, PLENTY).expect_err("unreadable").to_string();
        assert!(error.contains(why) && !error.contains('\u{fffd}'), "{error}");
    }
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).and_then(|()| encoder.finish()).expect("compressible")
}

#[test]
fn compressed_layers_are_verified_before_and_after() {
    let plain = archive(&[file("a", "1")]);
    let zstd = zstd::encode_all(&plain[..], 1).expect("compressible");
    let with_notes = [b"\x50\x2a\x4d\x18\x03\0\0\0abc", &zstd[..]].concat();
    for packed in [plain.clone(), gzip(&plain), zstd, with_notes] {
        let place = Place::new();
        let applied = place.unpack(&packed, &plain, PLENTY).expect("fine");
        assert_eq!(applied, Applied { bytes: 1, entries: 1 });
        place.has(&[("a", "1")]);
        let error = Place::new().unpack(&packed, b"other", PLENTY).expect_err("another layer");
        assert!(matches!(error, LayerError::Digest { .. }), "{error}");
        let mut blob = tempfile::tempfile().expect("a temporary file");
        blob.write_all(&packed).expect("writable");
        let order = LayerOrder {
            offset: 0,
            length: packed.len() as u64,
            digest: Some(Sha256::of(b"other")),
            diff_id: Sha256::of(&plain),
        };
        assert!(matches!(unpack(&blob, &order, None, PLENTY), Err(LayerError::Digest { .. })));
    }
    let cut = &gzip(&plain)[..40];
    assert!(Place::new().unpack(cut, &plain, PLENTY).is_err());
}

#[test]
fn two_sizes_of_one_entry_are_refused() {
    let mut all = Builder::new(Vec::new());
    all.append_pax_extensions([("size", &b"0"[..])]).expect("writable");
    let mut plain = all.into_inner().expect("writable");
    // Without the end of the archive.
    plain.truncate(1024);
    plain.extend(archive(&[file("a", &"x".repeat(512))]));
    let error = Place::new().unpack(&plain, &plain, PLENTY).expect_err("ambiguous").to_string();
    assert!(error.contains("two different sizes"), "{error}");
}

/// Paths, kinds and targets that lead to each other, and outside.
fn hostile() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    prop::collection::vec((0..6_usize, 0..14_usize, 0..14_usize), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_entries_writes_outside(layers in prop::collection::vec(hostile(), 1..4)) {
        const PATHS: [&str; 14] = [
            "a", "b", "a/b", "b/a", "../a", "/a", "a/../b", ".wh.a", "a/.wh.b", "a/.wh..wh..opq", ".wh..wh..opq", "../..",
            "./a/./b", "a/b/c",
        ];
        let kinds = [
            EntryType::Regular, EntryType::Directory, EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Fifo,
        ];
        let place = Place::new();
        let before = fs::metadata(place.outside.path()).expect("it exists").mtime_nsec();
        for layer in &layers {
            let parts: Vec<Part<'_>> =
                layer.iter().map(|(kind, path, target)| (kinds[*kind], PATHS[*path], PATHS[*target], 0o777)).collect();
            // Refused or not: nothing appears outside, and nothing special inside.
            let _ = place.apply(&parts);
        }
        place.is_alone();
        prop_assert_eq!(before, fs::metadata(place.outside.path()).expect("it exists").mtime_nsec());
        place.tree();
    }
}

//! Measures each step from capture to delivery: `cargo run --release -p hostler-snapshot --example measure [FILES]
//! [MIB] [BIG_MIB]`.
//!
//! Each step is repeated; the program prints the minimum and the median time. The page cache is warm, as for a folder
//! in use.

#![allow(clippy::print_stdout, reason = "the program prints its results")]

use std::fs;
use std::path::Path;
use std::time::Instant;

use hostler_snapshot::{
    Baseline, CaptureOptions, ChangesOptions, ChunkStore, Delivery, LayoutOptions, OnConflict, Scan, capture, changes,
    lay_out, pack, wire,
};

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let (files, mib, big_mib) =
        (numbers.next().unwrap_or(2000), numbers.next().unwrap_or(100), numbers.next().unwrap_or(0));
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let folder = dir.path().join("folder");
    make_folder(&folder, files, mib << 20, big_mib << 20);
    println!("{files} files of {mib} MiB, one of {big_mib} MiB");

    let options = CaptureOptions::default();
    time("scan", 9, || Scan::of(&folder).expect("readable"));
    let one_thread = CaptureOptions { threads: 1, ..CaptureOptions::default() };
    time("capture, 1 thread", 9, || capture(&folder, &one_thread, &|_| ()).expect("readable"));
    time("capture", 9, || capture(&folder, &options, &|_| ()).expect("readable"));

    let captured = capture(&folder, &options, &|_| ()).expect("readable");
    let wanted: Vec<_> = captured.sources.digests().collect();
    println!("{} chunks, manifest of {} bytes", wanted.len(), hostler_proto::encode(&captured.manifest).len());
    let body: Vec<Vec<u8>> = time("pack: read again, compress", 3, || {
        captured.sources.pack(&wanted).map(|it| it.expect("unchanged")).collect()
    });
    let mut round = 0;
    let store = time("unpack: check, store, sync", 3, || {
        round += 1;
        let store = ChunkStore::open(&dir.path().join(format!("chunks-{round}"))).expect("writable");
        let mut decoder = pack::Decoder::default();
        for frame in &body {
            decoder.feed(frame);
            while let Some(frame) = decoder.next_frame().expect("well-formed") {
                store.insert_wire(&frame.digest, &frame.wire).expect("intact");
            }
        }
        store.sync().expect("the disk works");
        store
    });
    time("missing, of an unchanged folder", 9, || assert!(store.missing(&wanted).is_empty()));

    let mut round = 0;
    let mut lay = |store: &ChunkStore| {
        round += 1;
        let work = dir.path().join(format!("work-{round}"));
        let laid_out =
            lay_out(&captured.manifest, store, &work, &LayoutOptions::default()).expect("the disk has space");
        (work, laid_out)
    };
    let (work, laid_out) = time("lay out", 9, || lay(&store));
    let store = store.sharing_files();
    if store.shares_files() {
        time("lay out, seen for the first time", 1, || lay(&store));
        time("lay out, keeping whole files", 1, || lay(&store));
        time("lay out, sharing blocks", 9, || lay(&store));
    } else {
        println!("this file system cannot share blocks between files: try TMPDIR on btrfs or XFS");
    }
    let options = ChangesOptions::default();
    time("changes, none", 9, || drop(changes(&work, &captured.manifest, &laid_out.baseline, &options)));
    time("changes, none, without baseline", 9, || {
        drop(changes(&work, &captured.manifest, &Baseline::default(), &options));
    });
    let mut round = 0;
    time("deliver: decompress, write, sync", 3, || {
        round += 1;
        let home = dir.path().join(format!("home-{round}"));
        let mut delivery = Delivery::plan(&home, &captured.manifest, OnConflict::Refuse, None).expect("empty");
        for digest in delivery.missing() {
            delivery.accept(&digest, &store.get_wire(&digest).expect("it exists")).expect("the disk has space");
        }
        delivery.finish().expect("complete")
    });
    let raw = fs::read(folder.join("d0/f0")).expect("the test owns it");
    time("compress one file", 9, || wire::encode(&raw));
}

/// Makes files of equal size, a hundred per directory. Half of each file is compressible.
fn make_folder(folder: &Path, files: usize, bytes: usize, big_bytes: usize) {
    let mut noise = blake3::Hasher::new().finalize_xof();
    for index in 0..files {
        let directory = folder.join(format!("d{}", index / 100));
        fs::create_dir_all(&directory).expect("writable");
        let mut content = vec![b'a'; bytes / files];
        let half = content.len() / 2;
        noise.fill(&mut content[..half]);
        fs::write(directory.join(format!("f{index}")), content).expect("writable");
    }
    if big_bytes > 0 {
        let mut content = vec![0; big_bytes];
        noise.fill(&mut content);
        fs::write(folder.join("big"), content).expect("writable");
    }
}

fn time<T>(what: &str, rounds: usize, mut step: impl FnMut() -> T) -> T {
    let mut times = Vec::new();
    let mut last = None;
    for _ in 0..rounds {
        let start = Instant::now();
        last = Some(step());
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("{what:34} least {:9.3?}  median {:9.3?}", times[0], times[rounds / 2]);
    last.expect("at least one round")
}

//! Entry points for the fuzz targets. Not part of the product.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use hostler_model::Digest;
use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind};
use hostler_snapshot::chunk::digest_of;
use hostler_snapshot::mirror::{Named, Placing};
use hostler_snapshot::wire;

use crate::frame::read_blocking;
use crate::mirror::{Message, ResultReceiver, Tree, entries_in_parts};
use crate::{
    Caller, Command, Destination, DirectoryId, Event, ExecRequest, Frame, Open, Proof, Refusal, RefusalKind, Reply,
    Report, Start, StepStart, Stream, TreeSpec, WindowSize, shared_files,
};

/// Reads bytes as frames, as either end of a connection does, and returns the number of valid frames.
///
/// # Panics
/// Panics when encoding and decoding changes a frame, or when a path in a valid frame is not absolute.
pub fn frames(mut bytes: &[u8]) -> usize {
    let mut understood = 0;
    while let Ok(Some(read)) = read_blocking(&mut bytes) {
        let mut again = Vec::new();
        read.encode(1, &mut again);
        let again = read_blocking(&mut &again[..]);
        assert_eq!(again.expect("decoding succeeds after encoding").as_ref(), Some(&read));
        if let Frame::Open(Open::Start(start)) = &read {
            assert!(start.written.to_vec().iter().all(|path| path.is_absolute()));
            assert!(shared_files::named(&start.command).iter().all(|path| path.is_absolute()));
        }
        understood += 1;
    }
    understood
}

/// Returns valid frames of all kinds and directions.
///
/// # Panics
/// Never.
#[must_use]
pub fn valid_frames() -> Vec<Vec<u8>> {
    let argv = ["gcc", "-c", "x.c"].map(OsString::from);
    let mut command = Command::new(&argv, [("PATH".into(), "/usr/bin".into())], "/src".into());
    let step = StepStart::new(command.clone(), Some(b"build".to_vec().into()), &[("RANK".into(), "1".into())]);
    command.directory_id = Some(DirectoryId { boot: "b".into(), device: 1, inode: 2 });
    command.proof = Proof::File(format!("{}1", Proof::FILE_PREFIX));
    command.tree = Some(TreeSpec::new("/src".into(), Digest([7; 32]), None));
    let node = || "n1".parse().expect("a name");
    let ask = ExecRequest {
        command: command.clone(),
        constraint: None,
        only: vec![node()],
        not: Vec::new(),
        prefer_local: false,
        rank: None,
        mirrors_tree: true,
        explain: false,
    };
    let caller = Caller { name: "ada".into(), uid: 2000 };
    let start = Start { command, caller, written: ["/src/x.h".into()].into_iter().collect() };
    let refusal = Refusal {
        kind: RefusalKind::Unproven,
        code: 126,
        message: "no".into(),
        hints: vec!["do".into()],
        lacks_directory: true,
    };
    let placed = Destination { node: node(), how: None, cost: None, tried: Vec::new(), advisory: Vec::new() };
    let opens = [
        Open::Exec(Box::new(ask)),
        Open::Start(Box::new(start)),
        Open::Step(Box::new(step)),
        Open::Hold,
        Open::Claim(Box::default()),
        Open::Watch(7),
    ];
    let replies = [
        Reply::RunHere(Box::new(placed)),
        Reply::Explained(Box::default()),
        Reply::Started(Box::default()),
        Reply::Refused(Box::new(refusal)),
        Reply::Ended(Box::new(Report { code: 143, signal: Some(15), ..Report::default() })),
    ];
    let events = [
        Event::ProveDirectory("name".into()),
        Event::Proof(Proof::Seen { inode: 3, changed_ns: -1 }),
        Event::RemoveProof,
        Event::DescribeTree,
        Event::Tree(Box::new(TreeSpec::new("/src".into(), Digest([7; 32]), None))),
        Event::ResetTree,
        Event::Signal(15),
        Event::Resize(WindowSize { rows: 24, columns: 80 }),
        Event::Cancel,
        Event::Stopped(20),
        Event::Release(1),
    ];
    let mut all = vec![
        Frame::Data(Stream::STDIN, b"input".to_vec()),
        Frame::Data(Stream::TREE, b"piece".to_vec()),
        Frame::Credit(Stream::STDOUT, 2),
        Frame::Close(Stream::STDERR),
        Frame::Ping,
        Frame::Pong,
    ];
    all.extend(opens.map(Frame::Open));
    all.extend(replies.map(Frame::Reply));
    all.extend(events.map(Frame::Event));
    let bytes = |frame: &Frame| {
        let mut bytes = Vec::new();
        frame.encode(1, &mut bytes);
        bytes
    };
    all.iter().map(bytes).collect()
}

/// Reads bytes as a caller's description of a tree and assembles the tree. Returns whether the description was valid.
///
/// # Panics
/// Panics when an accepted tree has another digest than announced, or contains a path that leads out of it.
pub fn tree(bytes: &[u8]) -> bool {
    let (mut described, mut told) = (None, Vec::new());
    for message in crate::mirror::messages_in(bytes) {
        match message {
            Message::Described { tree, mode, tags } => described = Some((tree, mode, tags.into_vec())),
            Message::Entries { entries, .. } => told.extend(entries),
            _ => {}
        }
    }
    let Some((digest, mode, tags)) = described else { return false };
    let Ok(tree) = Tree::default().recognise(&tags).complete(digest, mode, told) else { return false };
    assert_eq!(tree.digest(), digest);
    let is_inside = |path: &[u8]| path.split(|&byte| byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."));
    assert!(tree.entries.iter().all(|entry| is_inside(&entry.path)));
    true
}

/// Decodes `bytes` as the stream of files that a command wrote, and writes them below `root`. Returns whether all files
/// were written.
///
/// # Panics
/// Panics when the directory cannot be opened.
pub fn homecoming(bytes: &[u8], root: &Path) -> bool {
    let mut home = ResultReceiver::new(Placing::begin(root, 1).expect("the directory exists"), 0);
    bytes.chunks(crate::PIECE_BYTES).for_each(|piece| home.take(piece));
    home.finish(&[]).is_ok()
}

/// Returns valid conversations about a tree, from callers and nodes.
#[must_use]
pub fn honest_conversations() -> Vec<Vec<u8>> {
    let content = Content { size: 3, chunks: vec![Chunk { digest: digest_of(b"int"), len: 3 }] };
    let entry = |path: &str, kind| Entry { path: path.into(), mode: 0o755, modified_ns: 5, kind };
    let entries = vec![
        entry("d", EntryKind::Directory),
        entry("d/a.c", EntryKind::File(content)),
        entry("l", EntryKind::Symlink { target: b"d/a.c".into() }),
    ];
    let named = entries.iter().map(|entry| Arc::new(Named::new(entry.clone()))).collect();
    let tree = Tree { mode: 0o755, entries: named };
    let (digest, tags) = tree.digest_and_tags();
    let chunk = Message::Chunk(wire::encode(b"int").into());
    let told = [vec![Message::Described { tree: digest, mode: 0o755, tags: tags.into() }], entries_in_parts(entries)];
    let gone = Message::Gone { removed: vec![b"old".to_vec().into()], emptied: vec![b"d".to_vec().into()] };
    let ran = Message::Ran { began_ns: 1, ended_ns: 9 };
    let written = [vec![ran, gone], told[1].clone(), vec![chunk, Message::Done]];
    [told.concat(), written.concat()].iter().map(|said| crate::mirror::bytes_of(said)).collect()
}

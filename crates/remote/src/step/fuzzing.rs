//! What the fuzz targets need of this crate's inside. Not in the product.

use std::ffi::OsString;

use super::frame::{self, Directory, Frame, Start};

/// Reads bytes as either end of a step would, frame by frame; says how many were understood. Each must come back as it was when it is
/// written and read again.
///
/// # Panics
/// When one does not.
pub fn frames(mut bytes: &[u8]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it needs nothing");
    let mut understood = 0;
    while let Ok(Some(read)) = runtime.block_on(frame::read(&mut bytes)) {
        let again = runtime.block_on(frame::read(&mut &read.encode()[..]));
        assert_eq!(again.expect("it was read before"), Some(read));
        understood += 1;
    }
    understood
}

/// Honest frames of both directions.
#[must_use]
pub fn honest_frames() -> Vec<Vec<u8>> {
    let argv = ["orted", "-mca", "ess"].map(OsString::from);
    let environment = [("PATH".into(), "/usr/bin".into())];
    let start = Start::new(&argv, &environment, Directory::Within("here".into()), true);
    let all = [
        Frame::Start(Box::new(start)),
        Frame::Input(b"input".to_vec()),
        Frame::InputEnd,
        Frame::Signal(15),
        Frame::Started,
        Frame::Taken,
        Frame::Stdout(b"out".to_vec()),
        Frame::Stderr(b"err".to_vec()),
        Frame::Ended(143),
        Frame::Refused(127, "no such file".into()),
    ];
    all.iter().map(Frame::encode).collect()
}

//! Live output: a run's output file, sent to the head as it grows.
//!
//! The file is the truth and the reader's offset the only state, so a broken stream is continued by asking again.

use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use hostler_client::{Client, Uplink};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::engine::Handle;
use crate::readiness::Readiness;
use hostler_model::RunId;

/// How much is read at once, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// How often it is looked whether the run has ended, and whether a file that the kernel cannot watch has grown.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Sends the file at `path` from `from` on; with `follow` until the run has ended.
pub(crate) async fn send(
    head: &Client,
    stream: &str,
    path: PathBuf,
    from: u64,
    follow: Option<(Handle, RunId)>,
) -> anyhow::Result<()> {
    let mut uplink = head.send_stream(stream);
    let mut offset = from;
    let mut file = None;
    let watch = Watch::on(path.parent().unwrap_or(&path));
    loop {
        // Asked before reading: what was written before the end is then surely read.
        let goes_on = match &follow {
            Some((engine, run)) => engine.is_live(*run),
            None => false,
        };
        if file.is_none() {
            file = open_at(&path, offset).await;
        }
        if let Some(file) = &mut file {
            offset += send_rest(file, &mut uplink).await?;
        }
        if !goes_on {
            return Ok(uplink.finish().await?);
        }
        tokio::select! {
            () = watch.changed() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = uplink.closed() => return Ok(()),
        }
    }
}

async fn open_at(path: &Path, offset: u64) -> Option<File> {
    let mut file = File::open(path).await.ok()?;
    file.seek(SeekFrom::Start(offset)).await.ok()?;
    Some(file)
}

/// Sends what is there; returns how many bytes that was.
async fn send_rest(file: &mut File, uplink: &mut Uplink) -> anyhow::Result<u64> {
    let mut sent = 0;
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        if file.read_buf(&mut piece).await? == 0 {
            return Ok(sent);
        }
        sent += piece.len() as u64;
        uplink.send(Bytes::from(piece)).await?;
    }
}

/// Tells when something in a directory is written; where the kernel cannot say, never.
struct Watch(Option<Readiness<Inotify>>);

impl Watch {
    fn on(directory: &Path) -> Self {
        let watch = || {
            let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?;
            inotify.add_watch(directory, AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE).ok()?;
            Readiness::of(inotify).ok()
        };
        Self(watch())
    }

    async fn changed(&self) {
        let Some(inotify) = &self.0 else { return std::future::pending().await };
        inotify.readable().await;
        // Which file it was does not matter; the queue only has to be emptied.
        while inotify.owner().read_events().is_ok_and(|events| !events.is_empty()) {}
    }
}

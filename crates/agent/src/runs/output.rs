//! Live output: sends a run's output file to the head as it grows.
//!
//! The reader's offset in the file is the only state, so the head can resume a broken stream with a new request. Of a
//! file above the size limit, only the start is sent, followed by a notice.

use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use hostler_client::{Client, Uplink};
use hostler_model::format_bytes;
use nix::libc;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::readiness::Readiness;

/// Read size in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Interval at which the agent checks whether the run has ended. If the kernel cannot watch the file, also the interval
/// of checks for new output.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of reads from the kernel's event queue per wakeup: a job may write faster than the events are read.
const HEARD_AT_ONCE: usize = 16;

/// Notice that replaces the rest of an output above the size limit.
pub(crate) fn cut_notice(cap_bytes: u64) -> Vec<u8> {
    let kept = format_bytes(cap_bytes);
    format!("\nhostler: the rest of this output was cut: {kept} are kept (setting output-cap)\n").into_bytes()
}

/// The part of an output file to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// Offset of the first byte.
    pub(crate) from: u64,
    /// Start this many bytes before the end instead.
    pub(crate) tail: Option<u64>,
    /// Maximum number of bytes.
    pub(crate) limit: Option<u64>,
    /// Size limit of outputs.
    pub(crate) cap_bytes: u64,
}

/// Sends a part of the file at `path`, and continues while `is_live`.
pub(crate) async fn send(
    head: &Client,
    stream: &str,
    path: PathBuf,
    part: Part,
    is_live: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let watch = Watch::on(path.parent().unwrap_or(&path));
    let mut file = Capped::open(&path, part).await;
    let (offset, size) = file.as_ref().map_or((0, 0), |file| (file.offset, file.size_bytes));
    let mut uplink = head.send_stream(stream, offset, size);
    loop {
        // Check before reading, so that everything written before the end is read.
        let goes_on = is_live();
        if file.is_none() {
            // The run had no output when the head was told where the stream starts.
            file = Capped::open(&path, Part { tail: None, ..part }).await;
        }
        if let Some(file) = &mut file {
            file.send_rest(&mut uplink).await?;
        }
        if !goes_on || file.as_ref().is_some_and(|file| file.offset >= file.end) {
            return Ok(uplink.finish().await?);
        }
        tokio::select! {
            () = watch.changed() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = uplink.closed() => return Ok(()),
        }
    }
}

/// An output file with a size limit.
struct Capped {
    file: File,
    offset: u64,
    /// Where to stop.
    end: u64,
    /// Size when the file was opened, with the notice that replaces the rest of a large output.
    size_bytes: u64,
    cap_bytes: u64,
}

impl Capped {
    async fn open(path: &Path, Part { from, tail, limit, cap_bytes }: Part) -> Option<Self> {
        // Do not follow links, and do not block on other file types.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).await.ok()?;
        let size_bytes = match file.metadata().await.ok()?.len() {
            len if len > cap_bytes => cap_bytes + cut_notice(cap_bytes).len() as u64,
            len => len,
        };
        let offset = tail.map_or(from, |tail| size_bytes.saturating_sub(tail));
        file.seek(SeekFrom::Start(offset)).await.ok()?;
        let end = limit.map_or(u64::MAX, |limit| offset.saturating_add(limit));
        Some(Self { file, offset, end, size_bytes, cap_bytes })
    }

    /// Sends all data up to the current end.
    async fn send_rest(&mut self, uplink: &mut Uplink) -> anyhow::Result<()> {
        let end = self.end.min(self.cap_bytes);
        while self.offset < end {
            let left = usize::try_from(end - self.offset).unwrap_or(usize::MAX);
            let mut piece = Vec::with_capacity(left.min(PIECE_BYTES));
            if (&mut self.file).take(left as u64).read_buf(&mut piece).await? == 0 {
                return Ok(());
            }
            self.send(piece, uplink).await?;
        }
        if self.offset < self.end && self.file.metadata().await?.len() > self.cap_bytes {
            let mut notice = cut_notice(self.cap_bytes);
            let sent = usize::try_from(self.offset - self.cap_bytes).unwrap_or(usize::MAX);
            notice.drain(..sent.min(notice.len()));
            notice.truncate(usize::try_from(self.end - self.offset).unwrap_or(usize::MAX));
            if !notice.is_empty() {
                self.send(notice, uplink).await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, piece: Vec<u8>, uplink: &mut Uplink) -> anyhow::Result<()> {
        self.offset += piece.len() as u64;
        Ok(uplink.send(Bytes::from(piece)).await?)
    }
}

/// Reports writes in a directory. If the kernel cannot watch the directory, reports nothing.
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
        // The events do not matter; the queue only has to be emptied.
        for _ in 0..HEARD_AT_ONCE {
            if inotify.owner().read_events().map_or(true, |events| events.is_empty()) {
                return;
            }
        }
    }
}

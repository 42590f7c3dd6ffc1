//! Terminals: carries bytes between a run's shepherd and the head, for the user who attached.

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use hostler_client::{Client, TerminalMessage};
use hostler_shepherd::{Attachment, WindowSize, resize_frame, terminal_input_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::runs::directory::RunDirectory;

/// Read size for terminal output, and maximum size of a forwarded piece of input, in bytes.
const PIECE_BYTES: usize = 16 << 10;

/// Maximum size of input that is buffered because the job has not read it, in bytes. While the buffer is full, the
/// agent does not notice that the user detaches.
const AHEAD_BYTES: usize = 1 << 20;

/// Joins a run's terminal with the head's stream until either side closes.
pub(crate) async fn join(
    head: &Client,
    stream: &str,
    directory: &RunDirectory,
    rows: u16,
    columns: u16,
) -> anyhow::Result<()> {
    let path = directory.path().to_owned();
    // The shepherd answers only when its program has started, which the file system of the program may delay.
    let open = move || Attachment::open(&path, WindowSize { rows, columns });
    let attachment = tokio::task::spawn_blocking(open).await?.context("cannot attach")?;
    let near = attachment.into_stream();
    near.set_nonblocking(true)?;
    let (mut from_job, mut to_job) = UnixStream::from_std(near)?.into_split();
    let mut person = head.stream_terminal(stream).await?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut typed = BytesMut::new();
    loop {
        tokio::select! {
            read = from_job.read(&mut piece) => match read? {
                0 => break,
                len => person.send(Bytes::copy_from_slice(&piece[..len])).await?,
            },
            written = to_job.write_buf(&mut typed), if !typed.is_empty() => drop(written?),
            message = person.next(), if typed.len() < AHEAD_BYTES => match message? {
                Some(TerminalMessage::Output(bytes)) => {
                    bytes.chunks(PIECE_BYTES).for_each(|piece| typed.extend_from_slice(&terminal_input_frame(piece)));
                }
                Some(TerminalMessage::Resize(size)) => {
                    let size = WindowSize { rows: size.rows, columns: size.columns };
                    typed.extend_from_slice(&resize_frame(size));
                }
                None => break,
            },
        }
    }
    person.leave().await;
    Ok(())
}

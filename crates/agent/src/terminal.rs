//! A job's terminal on its way to the person who has attached: bytes both ways between the shepherd and the head.

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use hostler_client::{Client, TerminalMessage};
use hostler_shepherd::{Attachment, WindowSize, resize_frame, terminal_input_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::directory::RunDirectory;

/// How much is read from the terminal at once, and the longest piece of what was typed that is passed on, in bytes.
const PIECE_BYTES: usize = 16 << 10;

/// How much is taken of what somebody types ahead of a job that does not read it, in bytes. As long as it is less, it is noticed when
/// they leave.
const AHEAD_BYTES: usize = 1 << 20;

/// Joins the terminal of a run with the head's stream, until either side leaves.
pub(crate) async fn join(
    head: &Client,
    stream: &str,
    directory: &RunDirectory,
    rows: u16,
    columns: u16,
) -> anyhow::Result<()> {
    let attachment = Attachment::open(directory.path(), WindowSize { rows, columns }).context("cannot attach")?;
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

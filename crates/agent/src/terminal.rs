//! A job's terminal on its way to the person who has attached: bytes both ways between the shepherd and the head.

use anyhow::Context;
use hostler_client::{Client, TerminalMessage};
use hostler_shepherd::{Attachment, WindowSize, resize_frame, terminal_input_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::directory::RunDirectory;

/// How much is read from the terminal at once, in bytes.
const PIECE_BYTES: usize = 16 << 10;

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
    loop {
        tokio::select! {
            read = from_job.read(&mut piece) => match read? {
                0 => break,
                len => person.send(bytes::Bytes::copy_from_slice(&piece[..len])).await?,
            },
            message = person.next() => match message? {
                Some(TerminalMessage::Output(bytes)) => to_job.write_all(&terminal_input_frame(&bytes)).await?,
                Some(TerminalMessage::Resize(size)) => {
                    let size = WindowSize { rows: size.rows, columns: size.columns };
                    to_job.write_all(&resize_frame(size)).await?;
                }
                None => break,
            },
        }
    }
    person.leave().await;
    Ok(())
}

//! Standard input and output as one connection.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use nix::unistd::dup2_stdout;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, Stdin, Stdout, stdin, stdout};

/// Reads from standard input and writes to standard output. Shutting it down closes standard output, so that its reader
/// sees the end.
pub(super) struct Stdio {
    input: Stdin,
    output: Stdout,
}

impl Stdio {
    pub(super) fn take() -> Self {
        Self { input: stdin(), output: stdout() }
    }
}

impl AsyncRead for Stdio {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stdio {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.output).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.output).poll_flush(cx))?;
        // Later output of this program must not reach a file that gets the number of standard output.
        dup2_stdout(File::options().write(true).open("/dev/null")?)?;
        Poll::Ready(Ok(()))
    }
}

//! The socket of a connection, plain or with TLS. Files are sent to a plain socket with `sendfile`;
//! for TLS they are read and encrypted in this process.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::close::{CLOSE_TIMEOUT, MAX_DISCARDED, shutdown_write};
use super::send_buffer::SendBuffer;

pub(super) enum Socket {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl Socket {
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Secure(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }

    /// Sends until the buffer is empty (true), or its budget for one call is used up (false).
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut SendBuffer,
    ) -> Poll<io::Result<bool>> {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Secure(stream) => {
                return if ready!(buffer.poll_copy(cx, stream.as_mut()))? {
                    Pin::new(stream).poll_flush(cx).map_ok(|()| true)
                } else {
                    Poll::Ready(Ok(false))
                };
            }
        };
        loop {
            match stream.try_io(Interest::WRITABLE, || buffer.write_to(stream.as_fd())) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(stream.poll_write_ready(cx))?;
                }
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Shuts down the sending side. With `has_input` the client may still send, and its input is
    /// discarded for a while: unread input would reset the connection and destroy the response (RFC
    /// 9112 section 9.6).
    pub async fn end(&mut self, has_input: bool) {
        match self {
            Self::Plain(stream) => {
                shutdown_write(&*stream);
                if !has_input && !matches!(stream.try_read(&mut [0]), Ok(1)) {
                    return;
                }
            }
            Self::Secure(stream) => {
                let _ = timeout(CLOSE_TIMEOUT, stream.shutdown()).await;
                if !has_input {
                    return;
                }
            }
        }
        let _ = timeout(CLOSE_TIMEOUT, self.closed()).await;
    }

    /// Discards input until the client closes the connection, or has sent [`MAX_DISCARDED`] bytes.
    pub async fn closed(&mut self) {
        let mut piece = [0; 512];
        let mut rest = MAX_DISCARDED;
        while rest > 0 {
            let read = match self {
                Self::Plain(stream) => stream.read(&mut piece).await,
                Self::Secure(stream) => stream.read(&mut piece).await,
            };
            match read {
                Ok(count @ 1..) => rest = rest.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }
}

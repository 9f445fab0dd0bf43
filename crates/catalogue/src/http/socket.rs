//! What a connection reads from and writes to: a socket as it is, or one with TLS. A plain socket is sent files by the
//! kernel; for TLS they are read and encrypted here.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::ending::{MOST, PATIENCE, finish};
use super::outgoing::Outgoing;

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

    /// Sends until everything is sent (true), or others should have their turn (false).
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        outgoing: &mut Outgoing,
    ) -> Poll<io::Result<bool>> {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Secure(stream) => {
                return if ready!(outgoing.poll_copy(cx, stream.as_mut()))? {
                    Pin::new(stream).poll_flush(cx).map_ok(|()| true)
                } else {
                    Poll::Ready(Ok(false))
                };
            }
        };
        loop {
            match stream.try_io(Interest::WRITABLE, || outgoing.write_to(stream.as_fd())) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(stream.poll_write_ready(cx))?;
                }
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Ends our side, and has what was sent arrive. `is_talking` is whether the client may send what is not read.
    pub async fn end(&mut self, is_talking: bool) {
        match self {
            Self::Plain(stream) => {
                finish(&*stream);
                if !is_talking && !matches!(stream.try_read(&mut [0]), Ok(1)) {
                    return;
                }
            }
            Self::Secure(stream) => {
                let _ = timeout(PATIENCE, stream.shutdown()).await;
                if !is_talking {
                    return;
                }
            }
        }
        // What a client still sends would destroy our answer if it were not read (RFC 9112 section 9.6).
        let _ = timeout(PATIENCE, self.closed()).await;
    }

    /// Ends when the client does, or has said too much: it is of no interest.
    pub async fn closed(&mut self) {
        let mut piece = [0; 512];
        let mut rest = MOST;
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

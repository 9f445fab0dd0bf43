//! The channel as `session` drives it, with multiplexer, tokio and TCP.

use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Context as _;
use levada_core::{Framing, Identity, SecretKey, SystemRandom};
use levada_session::{Class, ClientConfig, Options, ServerConfig, accept, connect};
use levada_transport::{Tcp, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::ends::{Meter, block_on};

/// The length of an application's read buffer, in bytes: about what a busy driver reads at once.
pub const PART: usize = 256 * 1024;
/// The time limit for closing.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The keys of the two ends.
pub struct Keys {
    /// The connecting end.
    pub client: ClientConfig,
    /// The accepting end.
    pub server: ServerConfig,
    /// The accepting end's identity.
    pub identity: Identity,
}

impl Keys {
    /// Two new identities.
    pub fn new() -> anyhow::Result<Self> {
        let client = SecretKey::generate(&SystemRandom)?;
        let server = SecretKey::generate(&SystemRandom)?;
        Ok(Self {
            client: ClientConfig::new(&client)?,
            server: ServerConfig::new(&server)?,
            identity: server.identity(),
        })
    }
}

/// How many messages one call sends with [`Calls::Many`].
pub const MANY: usize = 64;

/// How messages are handed to the channel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// A call for each message.
    Each,
    /// A call for [`MANY`] messages.
    Many,
    /// A call for each message, and the next one after the write to the socket.
    Unbatched,
}

/// Sends messages until stopped.
pub fn send(
    keys: &Keys,
    socket: TcpStream,
    framing: Framing,
    calls: Calls,
    message: &[u8],
    meter: &Meter,
) -> anyhow::Result<()> {
    block_on(async {
        let written = Arc::new(Notify::new());
        let socket = Tcp::new(tokio::net::TcpStream::from_std(socket)?)?;
        let transport: Box<dyn Transport> = if calls == Calls::Unbatched {
            Box::new(NotifyOnWrite { socket, written: written.clone() })
        } else {
            Box::new(socket)
        };
        let options = Options { framing, ..Options::default() };
        let connection = connect(transport, &keys.client, Some(keys.identity), options).await?;
        let mut stream = connection.open(Class::Bulk)?;
        let many = [message; MANY];
        meter.start();
        while !meter.stopped() {
            match calls {
                Calls::Each => stream.send(message).await?,
                Calls::Many => stream.send_all(&many).await?,
                Calls::Unbatched => {
                    stream.send(message).await?;
                    written.notified().await;
                }
            }
        }
        connection.close(0, "");
        let _ = timeout(CLOSE_TIMEOUT, connection.flushed()).await;
        Ok(())
    })
}

/// Receives messages until the stream ends.
pub fn receive(keys: &Keys, socket: TcpStream, meter: &Meter) -> anyhow::Result<()> {
    block_on(async {
        let transport = Box::new(Tcp::new(tokio::net::TcpStream::from_std(socket)?)?);
        let connection = accept(transport, &keys.server, Options::default()).await?;
        let mut stream = connection.accept().await.context("no stream")?;
        let mut part = vec![0; PART];
        meter.start();
        while let Some((length, _end)) = stream.read(&mut part).await? {
            meter.count(length);
        }
        Ok(())
    })
}

/// A transport that notifies after each complete write.
struct NotifyOnWrite {
    socket: Tcp,
    written: Arc<Notify>,
}

impl Transport for NotifyOnWrite {}

impl AsyncRead for NotifyOnWrite {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for NotifyOnWrite {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, bytes));
        if matches!(written, Ok(length) if length == bytes.len()) {
            self.written.notify_one();
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

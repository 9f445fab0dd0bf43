//! rustls with the channel's algorithms and key types.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use rustls::client::Resumption;
use rustls::{ClientConfig, HandshakeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::dial::{Dial, MESSAGE, check_handshake, with_nodelay};
use crate::channels::tls::{Keys, server_name};

/// Both ends.
pub struct Tls {
    keys: Keys,
    /// A configuration without a ticket for each connection with a full handshake.
    fresh: Vec<Arc<ClientConfig>>,
}

impl Tls {
    /// Prepares `count` connections, before the measurement.
    pub fn new(count: usize, resumed: bool) -> anyhow::Result<Self> {
        let keys = Keys::new()?;
        let fresh = |_| {
            let mut config = (*keys.client).clone();
            config.resumption = Resumption::default();
            Arc::new(config)
        };
        let count = if resumed { 0 } else { count };
        Ok(Self { fresh: (0..count).map(fresh).collect(), keys })
    }
}

impl Dial for Tls {
    type Open = TlsStream<TcpStream>;

    async fn dial(&self, number: usize, address: SocketAddr) -> anyhow::Result<Self::Open> {
        let socket = with_nodelay(TcpStream::connect(address).await?)?;
        let config = self.fresh.get(number).unwrap_or(&self.keys.client);
        let connector = TlsConnector::from(config.clone());
        let mut stream = connector.connect(server_name()?, socket).await?;
        stream.write_all(&MESSAGE).await?;
        stream.flush().await?;
        stream.read_u8().await?;
        let kind = stream.get_ref().1.handshake_kind().context("no handshake")?;
        check_handshake(number, self.fresh.is_empty(), kind == HandshakeKind::Resumed)?;
        Ok(stream)
    }

    async fn close(&self, mut stream: Self::Open) -> anyhow::Result<()> {
        stream.shutdown().await?;
        Ok(())
    }

    async fn serve(&self, socket: TcpStream) -> anyhow::Result<()> {
        let mut stream =
            TlsAcceptor::from(self.keys.server.clone()).accept(with_nodelay(socket)?).await?;
        let mut message = MESSAGE;
        stream.read_exact(&mut message).await?;
        stream.write_all(&message).await?;
        stream.flush().await?;
        // Reads until the client closes.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
        stream.shutdown().await?;
        Ok(())
    }
}

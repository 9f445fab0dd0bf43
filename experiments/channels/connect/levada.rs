//! The channel as `session` drives it.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use levada_core::{Framing, Identity, SecretKey, SystemRandom};
use levada_session::{
    Class, ClientConfig, Connection, Options, ServerConfig, Stream, accept, connect,
};
use levada_transport::Tcp;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dial::{CLOSE_TIMEOUT, Dial, MESSAGE, check_handshake};

/// Both ends.
pub struct Levada {
    framing: Framing,
    server: ServerConfig,
    identity: Identity,
    /// One that stores tickets; or one without tickets for each connection.
    clients: Vec<ClientConfig>,
    resumed: bool,
}

impl Levada {
    /// Prepares `count` connections, before the measurement.
    pub fn new(framing: Framing, count: usize, resumed: bool) -> anyhow::Result<Self> {
        let client = SecretKey::generate(&SystemRandom)?;
        let server = SecretKey::generate(&SystemRandom)?;
        let clients = (0..if resumed { 1 } else { count }).map(|_| ClientConfig::new(&client));
        Ok(Self {
            framing,
            server: ServerConfig::new(&server)?,
            identity: server.identity(),
            clients: clients.collect::<Result<_, _>>()?,
            resumed,
        })
    }
}

impl Dial for Levada {
    type Open = (Connection, Stream);

    async fn dial(&self, number: usize, address: SocketAddr) -> anyhow::Result<Self::Open> {
        let socket = Tcp::new(TcpStream::connect(address).await?)?;
        let client = &self.clients[if self.resumed { 0 } else { number }];
        let options = Options { framing: self.framing, ..Options::default() };
        let connection = connect(Box::new(socket), client, Some(self.identity), options).await?;
        let mut stream = connection.open(Class::Interactive)?;
        stream.send(&MESSAGE).await?;
        stream.read(&mut [0]).await?.context("no reply")?;
        check_handshake(number, self.resumed, connection.resumed())?;
        Ok((connection, stream))
    }

    async fn close(&self, (connection, _stream): Self::Open) -> anyhow::Result<()> {
        connection.close(0, "");
        timeout(CLOSE_TIMEOUT, connection.flushed())
            .await
            .context("the close was not flushed in time")?;
        if self.resumed {
            ensure!(self.clients[0].has_ticket(&self.identity), "the server sent no ticket");
        }
        Ok(())
    }

    async fn serve(&self, socket: TcpStream) -> anyhow::Result<()> {
        let transport = Box::new(Tcp::new(socket)?);
        let connection = accept(transport, &self.server, Options::default()).await?;
        let mut stream = connection.accept().await.context("no stream")?;
        let message = stream.receive(MESSAGE.len()).await?.context("no message")?;
        stream.send(&message).await?;
        // The reply was sent; errors of the close are ignored.
        let _ = connection.closed().await;
        let _ = timeout(CLOSE_TIMEOUT, connection.flushed()).await;
        Ok(())
    }
}

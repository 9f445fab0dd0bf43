//! TCP alone: what any connection costs, and what the link makes of it.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::dial::{Dial, MESSAGE, prepared};

/// No handshake but TCP's own.
pub struct Tcp;

impl Dial for Tcp {
    type Open = TcpStream;

    async fn dial(&self, _number: usize, address: SocketAddr) -> anyhow::Result<TcpStream> {
        let mut socket = prepared(TcpStream::connect(address).await?)?;
        socket.write_all(&MESSAGE).await?;
        socket.read_u8().await?;
        Ok(socket)
    }

    async fn hang_up(&self, mut socket: TcpStream) -> anyhow::Result<()> {
        socket.shutdown().await?;
        Ok(())
    }

    async fn answer(&self, mut socket: TcpStream) -> anyhow::Result<()> {
        let mut message = MESSAGE;
        socket.read_exact(&mut message).await?;
        socket.write_all(&message).await?;
        // The client has closed when nothing comes any more.
        tokio::io::copy(&mut socket, &mut tokio::io::sink()).await?;
        Ok(())
    }
}

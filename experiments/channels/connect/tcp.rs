//! Plain TCP: the baseline of any connection on the link.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::dial::{Dial, MESSAGE, with_nodelay};

/// TCP without a further handshake.
pub struct Tcp;

impl Dial for Tcp {
    type Open = TcpStream;

    async fn dial(&self, _number: usize, address: SocketAddr) -> anyhow::Result<TcpStream> {
        let mut socket = with_nodelay(TcpStream::connect(address).await?)?;
        socket.write_all(&MESSAGE).await?;
        socket.read_u8().await?;
        Ok(socket)
    }

    async fn close(&self, mut socket: TcpStream) -> anyhow::Result<()> {
        socket.shutdown().await?;
        Ok(())
    }

    async fn serve(&self, socket: TcpStream) -> anyhow::Result<()> {
        let mut socket = with_nodelay(socket)?;
        let mut message = MESSAGE;
        socket.read_exact(&mut message).await?;
        socket.write_all(&message).await?;
        // Reads until the client closes.
        tokio::io::copy(&mut socket, &mut tokio::io::sink()).await?;
        Ok(())
    }
}

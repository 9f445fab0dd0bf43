//! What is compared: kernel TCP and QUIC by congestion controller, bare and below Levada's channel.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use levada_core::{Identity, SecretKey, SystemRandom};
use levada_session::{Class, ClientConfig, Options, ServerConfig, accept, connect};
use levada_transport::quic::{Congestion, Endpoint, QuicOptions};
use levada_transport::{Quic, Tcp, Transport};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::flow::{End, Flow, Meter, block_on};
use crate::testbed::Testbed;

/// The length of a write and of a read buffer, in bytes.
const PART: usize = 64 * 1024;
/// The time limit for connecting, and for one write.
const WAIT: Duration = Duration::from_secs(20);
/// How long a receiver waits before it checks whether the run is over.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

/// A protocol with its congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The kernel's TCP.
    Tcp(Kernel),
    /// Levada's channel over it.
    ChannelTcp(Kernel),
    /// QUIC's stream.
    Quic(Congestion),
    /// Levada's channel over it.
    ChannelQuic(Congestion),
}

/// A congestion controller of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    Cubic,
    Bbr,
}

/// All controllers of QUIC.
pub const CONTROLLERS: [Congestion; 4] =
    [Congestion::Tolerant, Congestion::Cubic, Congestion::NewReno, Congestion::Bbr];

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(kernel) => write!(f, "tcp/{}", kernel.name()),
            Self::ChannelTcp(kernel) => write!(f, "levada/tcp/{}", kernel.name()),
            Self::Quic(congestion) => write!(f, "quic/{}", name(*congestion)),
            Self::ChannelQuic(congestion) => write!(f, "levada/quic/{}", name(*congestion)),
        }
    }
}

impl Kernel {
    fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

fn name(congestion: Congestion) -> &'static str {
    match congestion {
        Congestion::Tolerant => "tolerant",
        Congestion::Cubic => "cubic",
        Congestion::NewReno => "newreno",
        Congestion::Bbr => "bbr",
    }
}

impl Subject {
    /// A new flow, which sends from the near end to the far end without pause.
    pub fn flow(self, testbed: &Testbed, delay: Duration) -> anyhow::Result<Flow<'_>> {
        let (near, far) = match self {
            Self::Tcp(kernel) => {
                let (listener, address) = testbed.listen()?;
                let near: End<'_> = Box::new(move |meter| send_tcp(kernel, address, meter));
                (near, Box::new(move |meter: &Meter| receive_tcp(&listener, meter)) as End<'_>)
            }
            Self::ChannelTcp(kernel) => {
                let (listener, address) = testbed.listen()?;
                let keys = Keys::new()?;
                let client = keys.client;
                let server = keys.server;
                let identity = keys.identity;
                let near: End<'_> = Box::new(move |meter| {
                    block_on(meter, async {
                        let socket = connected(kernel, address)?;
                        socket.set_nonblocking(true)?;
                        let tcp = Tcp::new(tokio::net::TcpStream::from_std(socket)?)?;
                        send_channel(Box::new(tcp), &client, identity, meter).await
                    })
                });
                let far: End<'_> = Box::new(move |meter| {
                    block_on(meter, async {
                        let (socket, _) = listener.accept()?;
                        socket.set_nonblocking(true)?;
                        let tcp = Tcp::new(tokio::net::TcpStream::from_std(socket)?)?;
                        receive_channel(Box::new(tcp), &server, meter).await
                    })
                });
                (near, far)
            }
            Self::Quic(congestion) => {
                let (socket, address) = bound(testbed)?;
                let near: End<'_> = Box::new(move |meter| {
                    block_on(meter, async {
                        let quic = dial(congestion, address).await?;
                        send_bare(quic, meter).await
                    })
                });
                let far: End<'_> = Box::new(move |meter| {
                    block_on(meter, async {
                        receive_bare(accepted(congestion, socket).await?, meter).await
                    })
                });
                (near, far)
            }
            Self::ChannelQuic(congestion) => {
                let (socket, address) = bound(testbed)?;
                let keys = Keys::new()?;
                let client = keys.client;
                let server = keys.server;
                let identity = keys.identity;
                let near: End<'_> = Box::new(move |meter| {
                    block_on(meter, async {
                        let quic = dial(congestion, address).await?;
                        send_channel(Box::new(quic), &client, identity, meter).await
                    })
                });
                let far: End<'_> = Box::new(move |meter| {
                    block_on(meter, async {
                        let quic = accepted(congestion, socket).await?;
                        receive_channel(Box::new(quic), &server, meter).await
                    })
                });
                (near, far)
            }
        };
        Ok(Flow { near, far, delay })
    }
}

/// The keys of a channel's two ends.
struct Keys {
    client: ClientConfig,
    server: ServerConfig,
    identity: Identity,
}

impl Keys {
    fn new() -> anyhow::Result<Self> {
        let client = SecretKey::generate(&SystemRandom)?;
        let server = SecretKey::generate(&SystemRandom)?;
        Ok(Self {
            client: ClientConfig::new(&client)?,
            server: ServerConfig::new(&server)?,
            identity: server.identity(),
        })
    }
}

/// A TCP connection with this controller.
fn connected(kernel: Kernel, address: SocketAddr) -> anyhow::Result<std::net::TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_congestion(kernel.name().as_bytes())?;
    socket.connect_timeout(&address.into(), WAIT)?;
    Ok(socket.into())
}

fn send_tcp(kernel: Kernel, address: SocketAddr, meter: &Meter) -> anyhow::Result<()> {
    let mut socket = connected(kernel, address)?;
    socket.set_write_timeout(Some(WAIT))?;
    meter.start();
    let part = vec![7; PART];
    while !meter.stopped() {
        socket.write_all(&part)?;
    }
    // The queue of the link is empty for the next run.
    Ok(socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO))?)
}

fn receive_tcp(listener: &TcpListener, meter: &Meter) -> anyhow::Result<()> {
    let (mut socket, _) = listener.accept()?;
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut part = vec![0; PART];
    meter.start();
    while !meter.stopped() {
        match socket.read(&mut part) {
            Ok(length) => meter.count(length),
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn bound(testbed: &Testbed) -> anyhow::Result<(UdpSocket, SocketAddr)> {
    let address = SocketAddr::new(testbed.far_address(), 0);
    let socket = testbed.far(|| UdpSocket::bind(address))??;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

async fn dial(congestion: Congestion, address: SocketAddr) -> anyhow::Result<Quic> {
    let options = QuicOptions { handshakes: 0, congestion, ..QuicOptions::default() };
    let (endpoint, _) = Endpoint::new(UdpSocket::bind("0.0.0.0:0")?, options)?;
    Ok(endpoint.connect(address, WAIT).await?)
}

async fn accepted(congestion: Congestion, socket: UdpSocket) -> anyhow::Result<Quic> {
    let options = QuicOptions { congestion, ..QuicOptions::default() };
    let (_, mut listener) = Endpoint::new(socket, options)?;
    let accepted = timeout(WAIT, listener.accept()).await?;
    Ok(accepted.context("the endpoint was closed")?.0)
}

async fn send_bare(mut quic: Quic, meter: &Meter) -> anyhow::Result<()> {
    let part = vec![7; PART];
    meter.start();
    while !meter.stopped() {
        timeout(WAIT, quic.write_all(&part)).await??;
    }
    Ok(())
}

async fn receive_bare(mut quic: Quic, meter: &Meter) -> anyhow::Result<()> {
    quic.limit_unread(None);
    let mut part = vec![0; PART];
    meter.start();
    while !meter.stopped() {
        if let Ok(length) = timeout(READ_TIMEOUT, quic.read(&mut part)).await {
            meter.count(length?);
        }
    }
    Ok(())
}

async fn send_channel(
    transport: Box<dyn Transport>,
    config: &ClientConfig,
    identity: Identity,
    meter: &Meter,
) -> anyhow::Result<()> {
    let connection = connect(transport, config, Some(identity), Options::default()).await?;
    let mut stream = connection.open(Class::Bulk)?;
    let part = Arc::new(vec![7; PART]);
    meter.start();
    while !meter.stopped() {
        timeout(WAIT, stream.send(&part)).await??;
    }
    Ok(())
}

async fn receive_channel(
    transport: Box<dyn Transport>,
    config: &ServerConfig,
    meter: &Meter,
) -> anyhow::Result<()> {
    let connection = accept(transport, config, Options::default()).await?;
    let mut stream = connection.accept().await.context("no stream")?;
    let mut part = vec![0; PART];
    meter.start();
    while !meter.stopped() {
        if let Ok(read) = timeout(READ_TIMEOUT, stream.read(&mut part)).await {
            meter.count(read?.map_or(0, |(length, _)| length));
        }
    }
    Ok(())
}

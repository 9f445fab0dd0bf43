//! The ways to cross middleboxes that are compared, over sockets.

use std::fmt;
use std::future::{Future, pending};
use std::time::Instant;

use anyhow::Context;
use levada_contexts::{Kem, Purpose, Relay, Right};
use levada_contexts::{accept_path, connect_path, relay};
use levada_core::{Identity, SecretKey, SystemRandom};
use levada_session::{Class, ClientConfig, Options, ServerConfig};
use levada_transport::{Tcp, Transport};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::end::End;
use super::levada::{Parties, Pass};
use super::tls::full_handshakes;
use crate::channels::tls::{Keys, server_name};

/// The buffer of a middlebox that passes bytes on, for each direction: the largest read of a
/// middlebox of Levada.
const BUFFER: usize = 128 * 1024;

/// A way to cross middleboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Without encryption; middleboxes pass bytes on.
    Plain,
    /// TLS end to end; middleboxes pass bytes on.
    E2e,
    /// A TLS session for each link.
    Split,
    /// Without encryption; middleboxes pass bytes on with the transport of Levada: the most that
    /// one of its middleboxes could carry.
    Relay,
    /// A session with middleboxes, which have this right in every context.
    Levada(Kem, Right),
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kem, right) = match self {
            Self::Plain => return f.write_str("plain"),
            Self::E2e => return f.write_str("e2e"),
            Self::Split => return f.write_str("split"),
            Self::Relay => return f.write_str("relay"),
            Self::Levada(kem, right) => (kem, right),
        };
        let kem = match kem {
            Kem::X25519 => "x25519",
            Kem::Hybrid => "hybrid",
        };
        let right = match right {
            Right::None => "/no rights",
            Right::Read => "/reader",
            Right::Write => "",
        };
        write!(f, "levada/{kem}{right}")
    }
}

/// Two ends of a stream.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The keys of all parties for one mode.
pub struct Setup {
    /// Every socket sends short segments at once.
    pub nodelay: bool,
    kind: Kind,
}

enum Kind {
    Plain,
    E2e(Keys),
    Relay,
    /// By link, the client's first.
    Split(Vec<Keys>),
    Levada(Box<Parties>),
    /// Without a middlebox, the same identities use an ordinary connection.
    Direct(Box<(SecretKey, ServerConfig)>, Identity),
}

impl Setup {
    /// New keys for this mode.
    pub fn new(mode: Mode, middleboxes: usize, purposes: &[Purpose]) -> anyhow::Result<Self> {
        let kind = match mode {
            Mode::Plain => Kind::Plain,
            Mode::Relay => Kind::Relay,
            Mode::E2e => Kind::E2e(full_handshakes()?),
            Mode::Split => {
                let links = (0..=middleboxes).map(|_| full_handshakes());
                Kind::Split(links.collect::<anyhow::Result<_>>()?)
            }
            Mode::Levada(..) if middleboxes == 0 => {
                let key = || SecretKey::generate(&SystemRandom);
                let client = key()?;
                let server = key()?;
                Kind::Direct(Box::new((client, ServerConfig::new(&server)?)), server.identity())
            }
            Mode::Levada(kem, right) => {
                Kind::Levada(Box::new(Parties::new(kem, (middleboxes, right), purposes, false)?))
            }
        };
        Ok(Self { nodelay: true, kind })
    }

    /// Connects over `socket`, which leads to the first middlebox, with a full handshake.
    pub async fn connect(&self, socket: TcpStream) -> anyhow::Result<End> {
        socket.set_nodelay(self.nodelay)?;
        let keys = match &self.kind {
            Kind::Plain | Kind::Relay => return Ok(End::Stream(Box::new(socket))),
            Kind::E2e(keys) => keys,
            Kind::Split(links) => &links[0],
            Kind::Direct(keys, server) => {
                // Without a ticket, so that the handshake is full.
                let config = ClientConfig::new(&keys.0)?;
                let transport = self.transport(socket)?;
                let connection =
                    levada_session::connect(transport, &config, Some(*server), Options::default());
                let connection = connection.await?;
                let stream = connection.open(Class::Bulk)?;
                return Ok(End::Direct(stream, connection));
            }
            Kind::Levada(parties) => {
                let (config, tickets, path) = parties.client();
                let transport = self.transport(socket)?;
                let session = connect_path(transport, config, tickets, path).await?;
                return Ok(End::Path(session));
            }
        };
        let connector = TlsConnector::from(keys.client.clone());
        Ok(End::Stream(Box::new(connector.connect(server_name()?, socket).await?)))
    }

    /// Accepts what [`Self::connect`] has sent through the last middlebox.
    pub async fn accept(&self, socket: TcpStream) -> anyhow::Result<End> {
        socket.set_nodelay(self.nodelay)?;
        let keys = match &self.kind {
            Kind::Plain | Kind::Relay => return Ok(End::Stream(Box::new(socket))),
            Kind::E2e(keys) => keys,
            Kind::Split(links) => &links[links.len() - 1],
            Kind::Direct(keys, _) => {
                let transport = self.transport(socket)?;
                let connection =
                    levada_session::accept(transport, &keys.1, Options::default()).await?;
                let stream = connection.accept().await.context("no stream")?;
                return Ok(End::Direct(stream, connection));
            }
            Kind::Levada(parties) => {
                let transport = self.transport(socket)?;
                let session = accept_path(transport, parties.server()).await?;
                session.start(true, None)?;
                return Ok(End::Path(session));
            }
        };
        let acceptor = TlsAcceptor::from(keys.server.clone());
        Ok(End::Stream(Box::new(acceptor.accept(socket).await?)))
    }

    /// Carries a connection as middlebox `number`, counted from 0; both sockets are connected.
    pub async fn carry(
        &self,
        number: usize,
        mut near: TcpStream,
        mut far: TcpStream,
    ) -> anyhow::Result<()> {
        near.set_nodelay(self.nodelay)?;
        far.set_nodelay(self.nodelay)?;
        match &self.kind {
            Kind::Plain | Kind::E2e(_) | Kind::Direct(..) => pass(&mut near, &mut far).await,
            Kind::Relay => pass(&mut self.transport(near)?, &mut self.transport(far)?).await,
            Kind::Split(links) => {
                let acceptor = TlsAcceptor::from(links[number].server.clone());
                let connector = TlsConnector::from(links[number + 1].client.clone());
                // Both handshakes at once.
                let (mut near, mut far) = tokio::try_join!(
                    acceptor.accept(near),
                    connector.connect(server_name()?, far)
                )?;
                pass(&mut near, &mut far).await
            }
            Kind::Levada(parties) => {
                let hop = Relay::new(parties.hop(number), Box::new(Pass), Instant::now());
                let near = self.transport(near)?;
                let far = self.transport(far)?;
                Ok(relay(hop, near, Vec::new(), |_, _| async { Ok(far) }, || true).await?)
            }
        }
    }

    fn transport(&self, socket: TcpStream) -> anyhow::Result<Box<dyn Transport>> {
        // The transport switches Nagle's algorithm off.
        let options = SockRef::from(&socket).try_clone()?;
        let transport = Tcp::new(socket)?;
        options.set_tcp_nodelay(self.nodelay)?;
        Ok(Box::new(transport))
    }
}

async fn pass(near: &mut impl Io, far: &mut impl Io) -> anyhow::Result<()> {
    copy_bidirectional_with_sizes(near, far, BUFFER, BUFFER).await?;
    Ok(())
}

/// A listener's connections, each carried or served by a task of its own, until the future is
/// dropped.
pub async fn accept_all<F: Future<Output = anyhow::Result<()>> + Send + 'static>(
    listener: std::net::TcpListener,
    serve: impl Fn(TcpStream) -> F,
) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                tasks.spawn(serve(accepted?.0));
            }
            // A failure here is one at the client, too, which reports it.
            _ = async { if tasks.join_next().await.is_none() { pending::<()>().await } } => {}
        }
    }
}

//! Accepts connections and runs them until the server stops.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use levada_core::source_of;
use rustix::net::{SocketFlags, acceptfrom_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use uapi::c::{IPPROTO_TCP, TCP_DEFER_ACCEPT};

use super::connection::{Connection, Step};
use super::limiter::ConnectionPermit;
use super::site::Site;
use super::socket::Socket;

/// How long responses that were begun may take after the server was stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the server then checks whether they are done.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The delay after a failed accept: file descriptors or memory are exhausted.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// How long the kernel defers a connection on which no request has arrived (`TCP_DEFER_ACCEPT`), in
/// seconds.
const DEFER_ACCEPT: i32 = 1;
/// How long the TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How many connections are accepted before the task yields.
const ACCEPT_BUDGET: u32 = 32;

/// Serves `site` on `listener` until `stop` completes; responses that were begun then have five
/// seconds. Dropping the future closes all connections.
///
/// # Errors
/// The listener cannot be registered or configured.
pub async fn serve(
    site: Arc<Site>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = register(listener)?;
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    let mut accepted_count: u32 = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = accept(&listener) => accepted,
        };
        match accepted {
            Ok((socket, source)) => {
                start(&site, site.limits.connections.acquire(source), socket, &mut connections);
            }
            Err(error) if is_client_abort(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "the HTTP port cannot accept connections");
                sleep(ACCEPT_RETRY).await;
            }
        }
        while connections.try_join_next().is_some() {}
        accepted_count = accepted_count.wrapping_add(1);
        if accepted_count.is_multiple_of(ACCEPT_BUDGET) {
            tokio::task::yield_now().await;
        }
    }
    drop(listener);
    site.stop();
    let until = Instant::now() + STOP_TIMEOUT;
    while site.busy() > 0 && Instant::now() < until {
        sleep(STOP_POLL_INTERVAL).await;
    }
    connections.shutdown().await;
    Ok(())
}

/// Registers the listener so that the server wakes only for a connection with a request.
/// `TCP_DEFER_ACCEPT` (tcp(7)) keeps the kernel from reporting a connection before its first bytes
/// arrive. Tokio's own `accept` would register every accepted socket with the reactor, including
/// those whose first request is answered without waiting.
#[allow(deprecated)] // Unsound for a type that does not own its descriptor. std's listener does; the alternative is `unsafe`.
fn register(listener: TcpListener) -> io::Result<AsyncFd<StdListener>> {
    let listener = listener.into_std()?;
    uapi::setsockopt(listener.as_raw_fd(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &DEFER_ACCEPT)?;
    AsyncFd::with_interest(listener, Interest::READABLE)
}

/// The next connection, and the source that it is counted for.
async fn accept(listener: &AsyncFd<StdListener>) -> io::Result<(StdStream, IpAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let accept = |listener: &StdListener| Ok(acceptfrom_with(listener, flags)?);
    let (socket, address) = listener.async_io(Interest::READABLE, accept).await?;
    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
    let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    Ok((socket.into(), source_of(address)))
}

/// The client closed the connection before it was accepted.
fn is_client_abort(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

fn start(
    site: &Arc<Site>,
    permit: ConnectionPermit,
    socket: StdStream,
    connections: &mut JoinSet<()>,
) {
    let connection = Connection::new(Arc::clone(site), permit);
    let activity = connection.activity();
    let pending = match site.tls_acceptor() {
        Some(acceptor) => Pending::Secure(acceptor, connection, socket),
        None => match connection.answer_first(socket) {
            Some((connection, socket, step)) => Pending::Plain(connection, socket, step),
            None => return,
        },
    };
    activity.spawned(connections.spawn(pending.run()));
}

/// A connection that needs a task.
enum Pending {
    Plain(Connection, StdStream, Step),
    Secure(TlsAcceptor, Connection, StdStream),
}

impl Pending {
    async fn run(self) {
        match self {
            Self::Plain(connection, socket, step) => {
                // Responses are written whole, so Nagle's algorithm would only delay them. The last
                // one is sent with the FIN.
                if connection.keeps_alive() {
                    let _ = socket.set_nodelay(true);
                }
                if let Ok(stream) = TcpStream::from_std(socket) {
                    connection.run(Socket::Plain(stream), step).await;
                }
            }
            Self::Secure(acceptor, connection, socket) => {
                let _ = socket.set_nodelay(true);
                let Ok(stream) = TcpStream::from_std(socket) else { return };
                if let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                    connection.run(Socket::Secure(Box::new(stream)), Step::Read).await;
                }
            }
        }
    }
}

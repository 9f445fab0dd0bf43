//! Accepts connections, not too many at once.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::{SocketFlags, acceptfrom_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use uapi::c::{IPPROTO_TCP, TCP_DEFER_ACCEPT};

use super::Site;
use super::connection::{Connection, Step};
use super::places::{Place, source_of};
use super::socket::Socket;

/// How long answers that are on their way may take when the server ends.
const GRACE: Duration = Duration::from_secs(5);
/// How often it is looked whether they are done.
const LOOK: Duration = Duration::from_millis(20);
/// When there are no file descriptors left, or no memory: until some are free.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the kernel keeps a client to itself that says nothing, in seconds.
const SILENCE: i32 = 1;
/// How long the handshake of TLS may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// After so many connections in one go others have their turn.
const TURN: u32 = 32;

/// Serves `site` on `listener` until `stop`; then answers that are on their way have five seconds. If it is dropped, all
/// connections end.
///
/// # Errors
/// The listener cannot be used.
pub async fn serve(
    site: Arc<Site>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = watch(listener)?;
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    let mut turn = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = accept(&listener) => accepted,
        };
        match accepted {
            Ok((socket, source)) => {
                begin(&site, site.places.take(source), socket, &mut connections);
            }
            Err(error) if is_theirs(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "the HTTP port cannot accept");
                sleep(PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
        turn += 1;
        if turn % TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
    drop(listener);
    site.stopping.store(true, Ordering::Relaxed);
    let until = Instant::now() + GRACE;
    while site.busy.load(Ordering::Relaxed) > 0 && Instant::now() < until {
        sleep(LOOK).await;
    }
    connections.shutdown().await;
    Ok(())
}

/// Has the kernel and the runtime tell when somebody has asked for something, and nothing more. The kernel would wake the
/// server for a connection before its request is there (`TCP_DEFER_ACCEPT`, tcp(7)); the runtime's own way to accept would
/// have it watch also connections that are over before there is anything to wait for.
#[allow(deprecated)] // Unsound for what does not own its descriptor; std's listener does, and `unsafe` is not for here.
fn watch(listener: TcpListener) -> io::Result<AsyncFd<StdListener>> {
    let listener = listener.into_std()?;
    uapi::setsockopt(listener.as_raw_fd(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &SILENCE)?;
    AsyncFd::with_interest(listener, Interest::READABLE)
}

/// The next connection, and whom it is counted for.
async fn accept(listener: &AsyncFd<StdListener>) -> io::Result<(StdStream, IpAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let accept = |listener: &StdListener| Ok(acceptfrom_with(listener, flags)?);
    let (socket, address) = listener.async_io(Interest::READABLE, accept).await?;
    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
    let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    Ok((socket.into(), source_of(address)))
}

/// The client has gone before it was accepted.
fn is_theirs(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

fn begin(site: &Arc<Site>, place: Place, socket: StdStream, connections: &mut JoinSet<()>) {
    let connection = Connection::new(Arc::clone(site), place);
    let slot = connection.slot();
    let serve = match site.tls() {
        Some(acceptor) => Serve::Secure(acceptor, connection, socket),
        None => match connection.begin(socket) {
            Some((connection, socket, step)) => Serve::Plain(connection, socket, step),
            None => return,
        },
    };
    connections.spawn(async move {
        tokio::select! {
            biased;
            () = slot.gone() => {}
            () = serve.go_on() => {}
        }
    });
}

/// A connection that is not over yet.
enum Serve {
    Plain(Connection, StdStream, Step),
    Secure(TlsAcceptor, Connection, StdStream),
}

impl Serve {
    async fn go_on(self) {
        match self {
            Self::Plain(connection, socket, step) => {
                // Answers are written whole: nothing gains by waiting for more. The last one leaves with the
                // connection's end.
                if connection.stays() {
                    let _ = socket.set_nodelay(true);
                }
                if let Ok(stream) = TcpStream::from_std(socket) {
                    connection.run(Socket::Plain(stream), step).await;
                }
            }
            Self::Secure(acceptor, connection, socket) => {
                let _ = socket.set_nodelay(true);
                let Ok(stream) = TcpStream::from_std(socket) else { return };
                if let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await {
                    connection.run(Socket::Secure(Box::new(stream)), Step::Read).await;
                }
            }
        }
    }
}

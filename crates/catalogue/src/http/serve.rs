//! Accepts connections, not too many at once.

use std::io;
use std::net::{TcpListener as StdListener, TcpStream as StdStream};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::{SocketFlags, accept_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use uapi::c::{IPPROTO_TCP, TCP_DEFER_ACCEPT};

use super::Site;
use super::connection::{Connection, Step};

/// How long answers that are on their way may take when the server ends.
const GRACE: Duration = Duration::from_secs(5);
/// How often it is looked whether they are done.
const LOOK: Duration = Duration::from_millis(20);
/// When there are no file descriptors left, or no memory: until some are free.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the kernel keeps a client to itself that says nothing, in seconds.
const SILENCE: i32 = 1;
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
    let places = Arc::new(Semaphore::new(site.config.connections));
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    let mut turn = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((place, socket)) => begin(&site, place, socket, &mut connections),
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

/// The next connection. Those for which there is no place wait in the kernel.
async fn accept(
    listener: &AsyncFd<StdListener>,
    places: &Arc<Semaphore>,
) -> io::Result<(OwnedSemaphorePermit, StdStream)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket =
        listener.async_io(Interest::READABLE, |listener| Ok(accept_with(listener, flags)?)).await?;
    Ok((place, socket.into()))
}

/// The client has gone before it was accepted.
fn is_theirs(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

fn begin(
    site: &Arc<Site>,
    place: OwnedSemaphorePermit,
    socket: StdStream,
    connections: &mut JoinSet<()>,
) {
    if let Some((connection, socket, step)) = Connection::new(Arc::clone(site), place).begin(socket)
    {
        connections.spawn(go_on(connection, socket, step));
    }
}

async fn go_on(connection: Connection, socket: StdStream, step: Step) {
    // Answers are written whole: nothing gains by waiting for more. The last one leaves with the connection's end.
    if connection.stays() {
        let _ = socket.set_nodelay(true);
    }
    if let Ok(stream) = TcpStream::from_std(socket) {
        connection.run(stream, step).await;
    }
}

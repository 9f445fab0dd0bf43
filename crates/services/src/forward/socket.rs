//! The sockets at both ends of what is carried: TCP and Unix, connected and listening.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::fs::{Mode, chmod};
use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_linger, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, lookup_host};
use tokio::time::{sleep, timeout};

use super::address::{Address, Host};

/// A connection on which nothing passes is asked for a sign of life after so long, and so often again…
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(15);
/// …until so many were not answered: a peer that has vanished is noticed after two minutes.
const KEEP_ALIVE_COUNT: u32 = 4;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// How long accepting pauses when no more files can be opened, and connecting when a queue is full.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a name may take to be resolved.
const RESOLVE: Duration = Duration::from_secs(5);

/// A connection. One that is closed before [`Self::end`], be it because this process was killed, is reset, so that nobody
/// takes what was cut for an end; a Unix socket knows no reset, and ends.
pub struct Socket {
    pub(super) stream: Connected,
}

/// What a connection is made of.
pub(super) enum Connected {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// A TCP connection that sends at once, and notices when its peer has vanished.
    ///
    /// # Errors
    /// The operating system's, if the socket is not connected any more.
    pub fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        // Whoever closes it now sends a reset; its data can be ended all the same.
        stream.set_zero_linger()?;
        set_socket_keepalive(&stream, true)?;
        set_tcp_keepidle(&stream, KEEP_ALIVE)?;
        set_tcp_keepintvl(&stream, KEEP_ALIVE_AGAIN)?;
        set_tcp_keepcnt(&stream, KEEP_ALIVE_COUNT)?;
        Ok(Self { stream: Connected::Tcp(stream) })
    }

    /// A Unix socket.
    pub fn unix(stream: UnixStream) -> Self {
        Self { stream: Connected::Unix(stream) }
    }

    /// Connects to `address`, which this side has chosen itself. All of it takes at most `limit`, the name included.
    ///
    /// # Errors
    /// The last address's error, or `TimedOut`; `Unsupported` for datagrams.
    pub async fn connect(address: &Address, limit: Duration) -> io::Result<Self> {
        let connected = async {
            match address {
                Address::Unix(path) => connect_unix(path).await.map(Self::unix),
                Address::Tcp(_) => Self::connect_any(&resolve(address).await?, limit).await,
                Address::Udp(_) => Err(io::ErrorKind::Unsupported.into()),
            }
        };
        timeout(limit, connected).await?
    }

    /// Connects to the first of these addresses that takes it. One that stands alone has `limit`, one of several two
    /// fifths of that.
    pub(super) async fn connect_any(places: &[SocketAddr], limit: Duration) -> io::Result<Self> {
        let each = if places.len() > 1 { limit * 2 / 5 } else { limit };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for place in places {
            match timeout(each, TcpStream::connect(*place)).await {
                Ok(Ok(stream)) => return Self::tcp(stream),
                Ok(Err(error)) => last = error,
                Err(elapsed) => last = elapsed.into(),
            }
        }
        Err(last)
    }

    /// Both directions have ended: the connection is closed in good order, and the system still sends what is left.
    pub fn end(self) {
        if let Connected::Tcp(stream) = &self.stream {
            // If that cannot be said, it is reset, which is the lesser evil.
            let _ = set_socket_linger(stream, None);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Connected::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Connected::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Connected::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Connected::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    /// Sockets keep nothing back.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Connected::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Connected::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Connects to a Unix socket. One whose queue is full says so at once, where TCP would be silent: it is asked again, for
/// as long as the caller waits.
pub(super) async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(PAUSE).await,
            connected => return connected,
        }
    }
}

/// The addresses of a place that this side has chosen itself.
///
/// # Errors
/// The resolver's, `TimedOut`, or `NotFound` for a name without addresses and a path.
pub async fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    let place = address.place().ok_or(io::ErrorKind::NotFound)?;
    let found: Vec<SocketAddr> = match &place.host {
        Host::Address(host) => vec![(*host, place.port).into()],
        Host::Name(name) => {
            timeout(RESOLVE, lookup_host((name.as_str(), place.port))).await??.collect()
        }
    };
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
}

/// Accepts connections.
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket, whose file is removed with it.
    Unix(UnixListener, SocketFile),
}

/// The file of a listening Unix socket; removed when dropped, unless it is another one by then.
pub struct SocketFile {
    path: PathBuf,
    number: Option<(u64, u64)>,
}

impl SocketFile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), number: number_of(path) }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have removed it, and somebody else may listen there now.
        if self.number.is_some() && number_of(&self.path) == self.number {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and number of a file.
fn number_of(path: &Path) -> Option<(u64, u64)> {
    let file = std::fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

impl Listener {
    /// Listens at `address`; port 0 is a free one. A Unix socket is for this user alone (0600), and takes the place of
    /// one that nobody listens at any more.
    ///
    /// # Errors
    /// The operating system's; `Unsupported` for datagrams.
    pub async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(_) => {
                Ok(Self::Tcp(TcpListener::bind(resolve(address).await?.as_slice()).await?))
            }
            Address::Unix(path) => {
                remove_left_behind(path).await;
                let listener = listen_privately(path)?;
                let file = SocketFile::new(path);
                Ok(Self::Unix(UnixListener::from_std(listener)?, file))
            }
            Address::Udp(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Where it listens, as one types it.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map(|address| address.to_string()).unwrap_or_default()
            }
            Self::Unix(_, file) => Address::Unix(file.path.clone()).to_string(),
        }
    }

    /// The next connection, and whose it is. Errors of single connections are passed over; when no more files can be
    /// opened, it waits until some can.
    pub async fn accept(&self) -> (Socket, String) {
        loop {
            let accepted = match self {
                Self::Tcp(listener) => listener
                    .accept()
                    .await
                    .and_then(|(stream, peer)| Ok((Socket::tcp(stream)?, peer.to_string()))),
                Self::Unix(listener, file) => listener.accept().await.map(|(stream, _)| {
                    (Socket::unix(stream), Address::Unix(file.path.clone()).to_string())
                }),
            };
            match accepted {
                Ok(accepted) => return accepted,
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

/// A listener that was killed leaves its socket behind, and nobody answers there.
async fn remove_left_behind(path: &Path) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if !is_socket {
        return;
    }
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if UnixStream::connect(path).await.is_err_and(refused) {
        let _ = std::fs::remove_file(path);
    }
}

/// Between binding and listening nobody can connect: that is when the socket is made this user's own.
fn listen_privately(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let owned = chmod(path, Mode::RUSR | Mode::WUSR);
    if let Err(error) = owned.and_then(|()| listen(&socket, BACKLOG)) {
        let _ = std::fs::remove_file(path);
        return Err(error.into());
    }
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn a_unix_socket_is_private_and_its_file_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let address = Address::Unix(path.clone());
        let listener = Listener::bind(&address).await.unwrap();
        assert_eq!(listener.address(), address.to_string());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let limit = Duration::from_secs(10);
        let (near, _far) = tokio::join!(Socket::connect(&address, limit), listener.accept());
        near.unwrap().end();
        // Somebody listens there.
        let taken = Listener::bind(&address).await.err().unwrap();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
        // Left behind by somebody who was killed, and something that is no socket.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::bind(&address).await.unwrap());
        std::fs::write(&path, "kept").unwrap();
        assert!(Listener::bind(&address).await.is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        std::fs::remove_file(&path).unwrap();
        // Another one that listens there now keeps its file.
        let first = Listener::bind(&address).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Listener::bind(&address).await.unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_unix_socket_whose_queue_is_full_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&socket, 0).unwrap();
        let listener = std::os::unix::net::UnixListener::from(socket);
        let mut queue = Vec::new();
        loop {
            match UnixStream::connect(&path).await {
                Ok(one) => queue.push(one),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    break;
                }
            }
            assert!(queue.len() < 100, "the queue takes everybody");
        }
        let address = Address::Unix(path);
        let hangs = Socket::connect(&address, Duration::from_millis(200)).await.err().unwrap();
        assert_eq!(hangs.kind(), io::ErrorKind::TimedOut);
        let waits = tokio::spawn(async move {
            Socket::connect(&address, Duration::from_secs(30)).await.is_ok()
        });
        // The listener stays: one that is gone refuses whoever still waits.
        let accepted = tokio::task::spawn_blocking(move || (listener.accept().is_ok(), listener));
        let (accepted, _listener) = accepted.await.unwrap();
        assert!(accepted && waits.await.unwrap());
    }

    #[tokio::test]
    async fn a_free_port_is_told_and_nobody_there_is_refused() {
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address: Address = listener.address().parse().unwrap();
        let limit = Duration::from_secs(10);
        let (near, far) = tokio::join!(Socket::connect(&address, limit), listener.accept());
        drop(near.unwrap());
        let (mut far, _) = far;
        let read = far.read(&mut [0; 1]).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let (near, far) = tokio::join!(Socket::connect(&address, limit), listener.accept());
        near.unwrap().end();
        let (mut far, _) = far;
        assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0);
        drop(listener);
        let refused = Socket::connect(&address, limit).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}

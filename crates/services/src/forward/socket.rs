//! The sockets at both ends of a forwarded connection: TCP and Unix, connected and listening.

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
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream, lookup_host};
use tokio::time::{sleep, timeout};

use super::address::{Address, Host};

/// TCP keep-alive (tcp(7)): the idle time before the first probe, the interval of further ones, and
/// their number. A peer that has vanished is detected after two minutes.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEP_ALIVE_COUNT: u32 = 4;
/// The backlog of a listening Unix socket.
const BACKLOG: i32 = 1024;
/// The pause before a retry: of an accept that failed, for example for lack of files, and of a
/// connect to a full backlog.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How long the resolution of a name may take.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection. Dropped without [`Self::end`], or if this process is killed, a TCP connection is
/// reset, so that its peer detects the cut. A Unix socket has no reset, and is closed.
pub struct Socket {
    pub(super) stream: Connected,
}

/// The stream of a [`Socket`].
pub(super) enum Connected {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// A TCP connection with TCP_NODELAY and keep-alive.
    ///
    /// # Errors
    /// The operating system's, if the socket is no longer connected.
    pub fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        // A close sends a reset from now on. Shutting down one direction still ends it in good
        // order.
        stream.set_zero_linger()?;
        set_socket_keepalive(&stream, true)?;
        set_tcp_keepidle(&stream, KEEP_ALIVE_IDLE)?;
        set_tcp_keepintvl(&stream, KEEP_ALIVE_INTERVAL)?;
        set_tcp_keepcnt(&stream, KEEP_ALIVE_COUNT)?;
        Ok(Self { stream: Connected::Tcp(stream) })
    }

    /// A Unix socket.
    pub fn unix(stream: UnixStream) -> Self {
        Self { stream: Connected::Unix(stream) }
    }

    /// Connects to `address`, which this side has chosen, without rules. It takes at most `limit`,
    /// with the resolution of the name.
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

    /// Connects to the first of these addresses that accepts. A single address has `limit`, each of
    /// several two fifths of that.
    pub(super) async fn connect_any(addresses: &[SocketAddr], limit: Duration) -> io::Result<Self> {
        let each = if addresses.len() > 1 { limit * 2 / 5 } else { limit };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            match timeout(each, connect_tcp(*address)).await {
                Ok(Ok(stream)) => return Self::tcp(stream),
                Ok(Err(error)) => last = error,
                Err(elapsed) => last = elapsed.into(),
            }
        }
        Err(last)
    }

    /// Closes the connection in good order after both directions have ended: the kernel still sends
    /// buffered data.
    pub fn end(self) {
        if let Connected::Tcp(stream) = &self.stream {
            // If the option cannot be set, the connection is reset.
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

    /// Nothing is buffered here.
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

/// Connects with the option that resets the connection when it is closed: the peer may have
/// accepted it before the caller has seen that, and is then cut off by a reset too.
async fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_zero_linger()?;
    socket.connect(address).await
}

/// Connects to a Unix socket. If its backlog is full, `connect` fails at once, where TCP would
/// wait: it is retried until the caller drops the future.
pub(super) async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(RETRY_PAUSE).await,
            connected => return connected,
        }
    }
}

/// Resolves an address that this side has chosen, without rules.
///
/// # Errors
/// The resolver's, `TimedOut`, or `NotFound` for a name without addresses and for a path.
pub async fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    let target = address.host_port().ok_or(io::ErrorKind::NotFound)?;
    let found: Vec<SocketAddr> = match &target.host {
        Host::Address(host) => vec![(*host, target.port).into()],
        Host::Name(name) => {
            timeout(RESOLVE_TIMEOUT, lookup_host((name.as_str(), target.port))).await??.collect()
        }
    };
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
}

/// Accepts connections.
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket, whose file is removed when it is dropped.
    Unix(UnixListener, SocketFile),
}

/// The file of a listening Unix socket; removed when dropped, unless it was replaced.
pub struct SocketFile {
    path: PathBuf,
    file_id: Option<(u64, u64)>,
}

impl SocketFile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file_id: file_id(path) }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may have been removed, and another process may listen there now.
        if self.file_id.is_some() && file_id(&self.path) == self.file_id {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode number of a file.
fn file_id(path: &Path) -> Option<(u64, u64)> {
    let file = std::fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

impl Listener {
    /// Listens at `address`; port 0 means any free one. A Unix socket is accessible to this user
    /// only (0600), and replaces a stale one.
    ///
    /// # Errors
    /// The operating system's; `Unsupported` for datagrams.
    pub async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(_) => {
                Ok(Self::Tcp(TcpListener::bind(resolve(address).await?.as_slice()).await?))
            }
            Address::Unix(path) => {
                remove_stale(path).await;
                let listener = listen_privately(path)?;
                let file = SocketFile::new(path);
                Ok(Self::Unix(UnixListener::from_std(listener)?, file))
            }
            Address::Udp(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The address at which it listens, as typed.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map(|address| address.to_string()).unwrap_or_default()
            }
            Self::Unix(_, file) => Address::Unix(file.path.clone()).to_string(),
        }
    }

    /// The next connection, and the address of its peer. Errors are retried after 20 ms: those of
    /// single connections, and the lack of free file descriptors.
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
                Err(_) => sleep(RETRY_PAUSE).await,
            }
        }
    }
}

/// Removes the socket of a listener that was killed: a connect to it is refused.
async fn remove_stale(path: &Path) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if !is_socket {
        return;
    }
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if UnixStream::connect(path).await.is_err_and(refused) {
        let _ = std::fs::remove_file(path);
    }
}

/// Sets the mode between `bind` and `listen`, when no client can connect yet.
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
    async fn a_unix_socket_is_private_and_its_file_is_removed() {
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
        // The first listener is still open.
        let taken = Listener::bind(&address).await.err().unwrap();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
        // A stale socket, and a file that is not a socket.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::bind(&address).await.unwrap());
        std::fs::write(&path, "kept").unwrap();
        assert!(Listener::bind(&address).await.is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        std::fs::remove_file(&path).unwrap();
        // A listener does not remove the file of the one that replaced it.
        let first = Listener::bind(&address).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Listener::bind(&address).await.unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_connect_waits_for_a_unix_socket_with_a_full_backlog() {
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
            assert!(queue.len() < 100, "the backlog is unlimited");
        }
        let address = Address::Unix(path);
        let hangs = Socket::connect(&address, Duration::from_millis(200)).await.err().unwrap();
        assert_eq!(hangs.kind(), io::ErrorKind::TimedOut);
        let waits = tokio::spawn(async move {
            Socket::connect(&address, Duration::from_secs(30)).await.is_ok()
        });
        // The listener is kept: a closed one refuses the connections that wait.
        let accepted = tokio::task::spawn_blocking(move || (listener.accept().is_ok(), listener));
        let (accepted, _listener) = accepted.await.unwrap();
        assert!(accepted && waits.await.unwrap());
    }

    #[tokio::test]
    async fn a_listener_reports_its_free_port_and_refuses_once_closed() {
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

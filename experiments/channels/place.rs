//! Where the two ends are: on this host, or in the lab with a link between them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// Two hosts.
pub enum Place {
    /// Both are this one.
    Loopback,
}

impl Place {
    /// Where the far end is reached.
    pub fn far_address(&self) -> IpAddr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Runs `work` at the near end, on a thread that may be pinned.
    pub fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match self {
            Self::Loopback => work(),
        }
    }

    /// Runs `work` at the far end.
    pub fn far<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match self {
            Self::Loopback => work(),
        }
    }

    /// A listener at the far end, and its address.
    pub fn listen(&self) -> io::Result<(TcpListener, SocketAddr)> {
        let address = SocketAddr::new(self.far_address(), 0);
        let listener = self.far(|| TcpListener::bind(address))?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    /// Two ends of one TCP connection, ready for tokio.
    pub fn connected(&self) -> io::Result<(TcpStream, TcpStream)> {
        let (listener, address) = self.listen()?;
        let near = self.near(|| TcpStream::connect(address))?;
        let (far, _) = listener.accept()?;
        for socket in [&near, &far] {
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
        }
        Ok((near, far))
    }
}

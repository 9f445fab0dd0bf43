//! What the kernel says of an offered socket. A client cannot state anything of this itself.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use levada_ring::wire::Refusal;
use rustix::net::{AddressFamily, SocketType, getpeername, getsockname, ipproto, sockopt};
use uapi::c::{
    IP_TRANSPARENT, IPPROTO_IP, IPPROTO_IPV6, IPV6_TRANSPARENT, SO_BINDTOIFINDEX, SO_NETNS_COOKIE,
    SOL_SOCKET,
};

/// One end of a TCP connection. The other end is [`reversed`](Self::reversed).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoints {
    /// The network namespace of the socket, by a number that is not used again until the kernel
    /// restarts.
    pub namespace: u64,
    /// The address of the socket.
    pub local: SocketAddr,
    /// The address that it is connected to.
    pub remote: SocketAddr,
}

impl Endpoints {
    /// Reads them from a connected TCP socket.
    ///
    /// # Errors
    /// [`Refusal::NotTcp`] for any other descriptor, and for sockets whose addresses do not say
    /// which connection they belong to: a socket that is bound to a device, since others can have
    /// the same addresses on another device; and one with IP_TRANSPARENT. A transparent proxy has
    /// two, towards the client and towards the server, with the addresses of each other.
    pub fn of(socket: impl AsFd) -> Result<Self, Refusal> {
        read(socket.as_fd()).ok().flatten().ok_or(Refusal::NotTcp)
    }

    /// As the other end sees the connection.
    pub fn reversed(&self) -> Self {
        Self { namespace: self.namespace, local: self.remote, remote: self.local }
    }
}

fn read(socket: BorrowedFd<'_>) -> std::io::Result<Option<Endpoints>> {
    let is_stream = sockopt::socket_type(socket)? == SocketType::STREAM;
    if !is_stream || sockopt::socket_protocol(socket)? != Some(ipproto::TCP) {
        return Ok(None);
    }
    let (level, transparent) = match sockopt::socket_domain(socket)? {
        AddressFamily::INET => (IPPROTO_IP, IP_TRANSPARENT),
        AddressFamily::INET6 => (IPPROTO_IPV6, IPV6_TRANSPARENT),
        _ => return Ok(None),
    };
    if option(socket, level, transparent, 0_i32)? != 0
        || option(socket, SOL_SOCKET, SO_BINDTOIFINDEX, 0_i32)? != 0
    {
        return Ok(None);
    }
    let namespace = option(socket, SOL_SOCKET, SO_NETNS_COOKIE, 0_u64)?;
    let local = plain(getsockname(socket)?.try_into()?);
    // It fails unless the socket is connected.
    let Some(remote) = getpeername(socket)? else { return Ok(None) };
    Ok(Some(Endpoints { namespace, local, remote: plain(remote.try_into()?) }))
}

fn option<T: uapi::Pod>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    mut value: T,
) -> std::io::Result<T> {
    uapi::getsockopt(socket.as_raw_fd(), level, name, &mut value)?;
    Ok(value)
}

/// An IPv4 socket can be connected to an IPv6 one, whose addresses are mapped (RFC 4291 section
/// 2.5.5.2). Flow labels and scopes are not part of the address: sockets with link-local addresses
/// are bound to a device.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn connected(listen: &str, connect: &str) -> (TcpStream, TcpStream, TcpListener) {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        let near = TcpStream::connect((connect, port)).unwrap();
        (near, listener.accept().unwrap().0, listener)
    }

    #[test]
    fn both_ends_of_a_connection_have_each_others_addresses() {
        for (listen, connect) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")]
        {
            let (near, far, _listener) = connected(listen, connect);
            let near = Endpoints::of(&near).unwrap();
            assert_eq!(Endpoints::of(&far), Ok(near.reversed()));
            assert_eq!(near.local.is_ipv4(), connect == "127.0.0.1");
            assert_ne!(near.namespace, 0);
        }
    }

    #[test]
    fn other_descriptors_are_refused() {
        let refused =
            |socket: &dyn AsFd| assert_eq!(Endpoints::of(socket.as_fd()), Err(Refusal::NotTcp));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagram = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagram.connect(datagram.local_addr().unwrap()).unwrap();
        refused(&listener);
        refused(&datagram);
        refused(&UnixStream::pair().unwrap().0);
        refused(&std::io::pipe().unwrap().0);
        let unconnected =
            rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        refused(&unconnected);
    }

    #[test]
    fn a_socket_that_is_bound_to_a_device_is_refused() {
        let (near, far, _listener) = connected("127.0.0.1:0", "127.0.0.1");
        uapi::setsockopt(near.as_raw_fd(), SOL_SOCKET, uapi::c::SO_BINDTODEVICE, b"lo\0").unwrap();
        assert_eq!(Endpoints::of(&near), Err(Refusal::NotTcp));
        assert!(Endpoints::of(&far).is_ok());
    }

    #[test]
    fn a_transparent_socket_is_refused() {
        let (near, ..) = connected("127.0.0.1:0", "127.0.0.1");
        match uapi::setsockopt(near.as_raw_fd(), IPPROTO_IP, IP_TRANSPARENT, &1_i32) {
            Ok(()) => assert_eq!(Endpoints::of(&near), Err(Refusal::NotTcp)),
            // It needs CAP_NET_ADMIN.
            Err(error) => assert_eq!(error.0, uapi::c::EPERM),
        }
    }
}

//! Checks that an offered socket is still the connection that was offered.
//!
//! The addresses of a closed connection can be used again at once. Without this check, a process
//! could offer a connection, close it, and be paired with the next one of the same addresses.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use uapi::c::{SO_COOKIE, SO_NETNS_COOKIE, SOL_SOCKET};

use crate::closing::close;
use crate::identity::Endpoints;

/// The identity of an offered socket while its offer waits.
#[derive(Debug)]
pub enum Identity {
    /// The kernel's number of the socket, which it gives to no other one. The socket is closed
    /// here.
    Cookie(u64),
    /// The socket itself, where the kernel cannot be asked by number: in another network namespace.
    /// The connection ends when its processes have closed it, and this is dropped.
    Socket(OwnedFd),
}

/// Asks the kernel for sockets by their addresses and number: sock_diag(7).
pub struct Kernel {
    diagnosis: Option<Diagnosis>,
}

struct Diagnosis {
    socket: OwnedFd,
    namespace: u64,
}

/// Sizes of `nlmsghdr` and of `inet_diag_req_v2`, in bytes.
const HEADER: usize = 16;
const REQUEST: usize = 56;
/// SOCK_DIAG_BY_FAMILY.
const BY_FAMILY: u16 = 20;
/// NLM_F_REQUEST.
const IS_REQUEST: u16 = 1;
/// The offset of the socket's state in a response.
const STATE: usize = HEADER + 1;
/// TCP_TIME_WAIT: the addresses can be used again, as after [`CLOSED`].
const TIME_WAIT: u8 = 6;
/// TCP_CLOSE.
const CLOSED: u8 = 7;
/// TCP_LISTEN.
const LISTENING: u8 = 10;
/// INET_DIAG_NOCOOKIE: a socket with any number.
const ANY: u64 = u64::MAX;

impl Kernel {
    /// Without the kernel's diagnosis, offered sockets stay open here while their offers wait.
    pub fn new() -> Self {
        Self { diagnosis: Diagnosis::open().ok() }
    }

    /// Returns the identity of a socket with these addresses.
    pub fn identify(&self, socket: OwnedFd, endpoints: &Endpoints) -> Identity {
        let is_here = |diagnosis: &&Diagnosis| diagnosis.namespace == endpoints.namespace;
        let cookie =
            self.diagnosis.as_ref().filter(is_here).and_then(|_| number(&socket, SO_COOKIE));
        match cookie {
            Some(cookie) => {
                close(socket);
                Identity::Cookie(cookie)
            }
            None => Identity::Socket(socket),
        }
    }

    /// The network namespace that the kernel is asked about.
    pub fn namespace(&self) -> Option<u64> {
        self.diagnosis.as_ref().map(|diagnosis| diagnosis.namespace)
    }

    /// Returns true if there is a connected socket with these addresses now, in this namespace.
    pub fn exists(&self, endpoints: &Endpoints) -> bool {
        let is_connected = |one: &Diagnosis| one.is_connected(ANY, endpoints) == Ok(true);
        self.diagnosis.as_ref().is_some_and(is_connected)
    }

    /// Returns true if the socket is connected with these addresses now.
    pub fn is_connected(&self, identity: &Identity, endpoints: &Endpoints) -> bool {
        match identity {
            Identity::Socket(socket) => Endpoints::of(socket).as_ref() == Ok(endpoints),
            Identity::Cookie(cookie) => self
                .diagnosis
                .as_ref()
                .is_some_and(|diagnosis| diagnosis.is_connected(*cookie, endpoints) == Ok(true)),
        }
    }
}

impl Diagnosis {
    fn open() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::SOCK_DIAG);
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        let namespace = number(&socket, SO_NETNS_COOKIE).ok_or(Errno::NOPROTOOPT)?;
        Ok(Self { socket, namespace })
    }

    /// # Errors
    /// Those of send(2) and recv(2). The kernel answers within the call of send(2).
    fn is_connected(&self, cookie: u64, endpoints: &Endpoints) -> Result<bool, Errno> {
        rustix::net::send(&self.socket, &request(cookie, endpoints), SendFlags::DONTWAIT)?;
        let mut response = [0; 1024];
        let (length, _) = rustix::net::recv(&self.socket, &mut response, RecvFlags::DONTWAIT)?;
        let response = &response[..length];
        let is_socket = response.get(4..6) == Some(&BY_FAMILY.to_ne_bytes());
        Ok(is_socket
            && response
                .get(STATE)
                .is_some_and(|state| ![TIME_WAIT, CLOSED, LISTENING].contains(state)))
    }
}

/// The request for the one socket with this number and these addresses.
fn request(cookie: u64, endpoints: &Endpoints) -> [u8; HEADER + REQUEST] {
    let mut bytes = [0; HEADER + REQUEST];
    let mut at = 0;
    let mut put = |part: &[u8]| {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    put(&((HEADER + REQUEST) as u32).to_ne_bytes());
    put(&BY_FAMILY.to_ne_bytes());
    put(&IS_REQUEST.to_ne_bytes());
    put(&[0; 8]);
    let family = if endpoints.local.is_ipv4() { uapi::c::AF_INET } else { uapi::c::AF_INET6 };
    put(&[family as u8, uapi::c::IPPROTO_TCP as u8, 0, 0]);
    // In any state.
    put(&u32::MAX.to_ne_bytes());
    put(&endpoints.local.port().to_be_bytes());
    put(&endpoints.remote.port().to_be_bytes());
    put(&address(endpoints.local));
    put(&address(endpoints.remote));
    // Of any device.
    put(&0_u32.to_ne_bytes());
    put(&(cookie as u32).to_ne_bytes());
    put(&((cookie >> 32) as u32).to_ne_bytes());
    bytes
}

fn address(address: SocketAddr) -> [u8; 16] {
    let mut bytes = [0; 16];
    match address.ip() {
        IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes = ip.octets(),
    }
    bytes
}

/// An option of a socket that is a number of 64 bits.
fn number(socket: &OwnedFd, option: i32) -> Option<u64> {
    let mut number = 0_u64;
    uapi::getsockopt(socket.as_fd().as_raw_fd(), SOL_SOCKET, option, &mut number).ok()?;
    Some(number)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt::set_socket_linger;

    use super::*;
    use crate::tests::support::SameAddress;

    /// Both ends of a connection, to the address and from a port that are given.
    fn connected(listen: &str, connect: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        let near = TcpStream::connect((connect, port)).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn identities(kernel: &Kernel, socket: &TcpStream) -> Vec<Identity> {
        let duplicate = || OwnedFd::from(socket.try_clone().unwrap());
        let endpoints = Endpoints::of(socket).unwrap();
        let cookie = kernel.identify(duplicate(), &endpoints);
        assert!(matches!(cookie, Identity::Cookie(_)));
        vec![cookie, Identity::Socket(duplicate())]
    }

    #[test]
    fn a_connection_is_found_until_it_ends() {
        let kernel = Kernel::new();
        for (listen, connect) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")]
        {
            let (near, far) = connected(listen, connect);
            for socket in [&near, &far] {
                let endpoints = Endpoints::of(socket).unwrap();
                for identity in identities(&kernel, socket) {
                    assert!(kernel.is_connected(&identity, &endpoints), "{listen} {connect}");
                    assert!(!kernel.is_connected(&identity, &endpoints.reversed()));
                }
            }
            let endpoints = Endpoints::of(&far).unwrap();
            let [cookie, _socket] = <[Identity; 2]>::try_from(identities(&kernel, &far)).unwrap();
            drop(_socket);
            set_socket_linger(&far, Some(std::time::Duration::ZERO)).unwrap();
            drop(far);
            assert!(!kernel.is_connected(&cookie, &endpoints), "{listen} {connect}");
        }
    }

    #[test]
    fn another_connection_with_the_same_addresses_is_another_one() {
        let kernel = Kernel::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = SameAddress::new(2);
        let (near, far) = client.connect(&listener);
        let endpoints = Endpoints::of(&near).unwrap();
        let cookie = kernel.identify(OwnedFd::from(near.try_clone().unwrap()), &endpoints);
        drop((near, far));
        let (again, _far) = client.connect(&listener);
        assert_eq!(Endpoints::of(&again), Ok(endpoints));
        assert!(!kernel.is_connected(&cookie, &endpoints));
    }

    #[test]
    fn without_a_diagnosis_the_socket_is_kept() {
        let kernel = Kernel { diagnosis: None };
        let (near, _far) = connected("127.0.0.1:0", "127.0.0.1");
        let endpoints = Endpoints::of(&near).unwrap();
        let kept = kernel.identify(OwnedFd::from(near.try_clone().unwrap()), &endpoints);
        assert!(matches!(kept, Identity::Socket(_)));
        assert!(kernel.is_connected(&kept, &endpoints));
        near.shutdown(std::net::Shutdown::Both).unwrap();
        drop(_far);
    }
}

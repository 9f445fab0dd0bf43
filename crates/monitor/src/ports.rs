//! Ports that are bound for connections which the kernel does not know.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

use levada_ring::SEGMENTS;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};
use rustix::process::{Resource, getrlimit};

/// Blocks of [`SEGMENTS`] ports, from 61000 on: the kernel takes none of them itself by default
/// (ip(7)), and no well-known service listens there.
const BLOCKS: u64 = (65536 - FIRST) / SEGMENTS as u64;
const FIRST: u64 = 61056;
const _: () = assert!(FIRST.is_multiple_of(SEGMENTS as u64));

/// [`SEGMENTS`] ports in a row, which no other socket gets as long as this is not dropped.
pub struct Ports {
    first: u16,
    _sockets: Vec<OwnedFd>,
}

impl Ports {
    /// Binds a block. `None` if none is free, or without descriptors: at most half of those that
    /// this process may have are for ports.
    pub fn bind() -> Option<Self> {
        let start = RandomState::new().hash_one(0) % BLOCKS;
        let first = |at| FIRST + (start + at) % BLOCKS * SEGMENTS as u64;
        (0..BLOCKS).find_map(|at| Self::bind_from(first(at) as u16))
    }

    fn bind_from(first: u16) -> Option<Self> {
        let ports = (first..=u16::MAX).take(SEGMENTS);
        let sockets: Option<Vec<OwnedFd>> = ports.map(bound).collect();
        let sockets = sockets.filter(|sockets| sockets.iter().all(is_low))?;
        Some(Self { first, _sockets: sockets })
    }

    /// The first of them.
    pub fn first(&self) -> u16 {
        self.first
    }
}

/// Returns true for a descriptor in the lower half of the numbers that this process may have.
fn is_low(descriptor: &OwnedFd) -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u64::from(descriptor.as_raw_fd().unsigned_abs()) < limit / 2
}

/// A socket that is bound to a port of all addresses, of IPv4 and, where that exists, of IPv6.
fn bound(port: u16) -> Option<OwnedFd> {
    match bound_to_both(port) {
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {
            let socket = socket(AddressFamily::INET).ok()?;
            bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).ok()?;
            share(socket)
        }
        both => both.ok().and_then(share),
    }
}

/// A server with SO_REUSEADDR may listen at the port all the same. Not before the port is bound:
/// two sockets with this option that do not listen may have the same port.
fn share(socket: OwnedFd) -> Option<OwnedFd> {
    sockopt::set_socket_reuseaddr(&socket, true).ok()?;
    Some(socket)
}

fn bound_to_both(port: u16) -> Result<OwnedFd, Errno> {
    let socket = socket(AddressFamily::INET6)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    Ok(socket)
}

fn socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::net::listen;

    use super::*;

    #[test]
    fn servers_may_listen_at_bound_ports_and_two_clients_share_none() {
        let ports = Ports::bind().unwrap();
        assert!(Ports::bind_from(ports.first()).is_none());
        let other = Ports::bind().unwrap();
        assert!(ports.first().abs_diff(other.first()) >= SEGMENTS as u16);
        let last = ports.first() + (SEGMENTS as u16 - 1);
        for port in [ports.first(), last] {
            // The standard library sets SO_REUSEADDR.
            assert!(TcpListener::bind(("127.0.0.1", port)).is_ok());
            // A socket without it gets another port.
            let family = AddressFamily::INET;
            let plain =
                socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
            let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
            assert_eq!(bind(&plain, &address), Err(Errno::ADDRINUSE));
            assert!(listen(&plain, 1).is_ok());
        }
    }
}

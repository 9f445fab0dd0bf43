//! Ports that are bound for connections which the kernel does not know.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

use levada_ring::SEGMENTS;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};

/// Attempts to find so many free ports in a row.
const ATTEMPTS: u64 = 64;
/// Ranges in which they are looked for, in turn: those from which the kernel takes no ports itself by
/// default (ip(7)). There, ended connections would leave no ports in a row.
const RANGES: [std::ops::Range<u64>; 2] = [61000..65536, 16384..32768];

/// [`SEGMENTS`] ports in a row, which no other socket gets as long as this is not dropped.
pub struct Ports {
    first: u16,
    _sockets: Vec<OwnedFd>,
}

impl Ports {
    /// Binds ports. `None` if there are none, or no descriptors.
    pub fn bind() -> Option<Self> {
        let random = RandomState::new();
        (0..ATTEMPTS).find_map(|attempt| {
            let range = &RANGES[attempt as usize % RANGES.len()];
            let room = range.end - range.start - SEGMENTS as u64;
            let first = range.start + random.hash_one(attempt) % room;
            let ports = first..first + SEGMENTS as u64;
            let sockets: Option<_> = ports.map(|port| bound(port as u16)).collect();
            sockets.map(|sockets| Self { first: first as u16, _sockets: sockets })
        })
    }

    /// The first of them.
    pub fn first(&self) -> u16 {
        self.first
    }
}

/// A socket that is bound to a port of all addresses, of IPv4 and, where that exists, of IPv6.
fn bound(port: u16) -> Option<OwnedFd> {
    match bound_to_both(port) {
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {
            let socket = socket(AddressFamily::INET).ok()?;
            bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).ok()?;
            Some(socket)
        }
        both => both.ok(),
    }
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

    use super::*;

    #[test]
    fn bound_ports_are_given_to_no_other_socket() {
        let ports = Ports::bind().unwrap();
        let last = ports.first() + SEGMENTS as u16 - 1;
        for port in [ports.first(), last] {
            assert!(TcpListener::bind(("127.0.0.1", port)).is_err());
            assert!(TcpListener::bind(("::1", port)).is_err());
        }
        drop(ports);
        assert!(TcpListener::bind(("127.0.0.1", last)).is_ok());
    }
}

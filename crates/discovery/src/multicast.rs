//! The interfaces and sockets of multicast DNS on this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use crate::DiscoveryError;

/// The port of multicast DNS (RFC 6762 section 3).
pub(crate) const PORT: u16 = 5353;
/// Its IPv4 group.
pub(crate) const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
/// Its IPv6 group.
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);

/// An interface that multicast DNS can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The operating system's name.
    pub name: String,
    /// Whether it is a loopback interface.
    pub is_loopback: bool,
}

/// The interfaces that are up and can join the multicast DNS groups. Sends nothing.
///
/// # Errors
/// [`DiscoveryError::NoMulticast`] if there is none, or another process has the port without
/// sharing it.
pub fn usable_interfaces() -> Result<Vec<Interface>, DiscoveryError> {
    let v4 = socket(Domain::IPV4);
    let v6 = socket(Domain::IPV6);
    if let (Err(error), Err(_)) = (&v4, &v6) {
        return Err(DiscoveryError::NoMulticast(format!("UDP port {PORT}: {error}")));
    }
    let interfaces = if_addrs::get_if_addrs()
        .map_err(|error| DiscoveryError::NoMulticast(format!("the interfaces: {error}")))?;
    let mut usable: Vec<Interface> = Vec::new();
    for interface in interfaces.iter().filter(|one| one.is_oper_up() && !one.is_p2p()) {
        let joins = match interface.ip() {
            IpAddr::V4(ip) => {
                v4.as_ref().is_ok_and(|socket| socket.join_multicast_v4(&GROUP_V4, &ip).is_ok())
            }
            IpAddr::V6(_) => {
                let index = interface.index.unwrap_or(0);
                v6.as_ref().is_ok_and(|socket| socket.join_multicast_v6(&GROUP_V6, index).is_ok())
            }
        };
        let name = interface.name.clone();
        let is_loopback = interface.is_loopback();
        match usable.iter_mut().find(|known| known.name == name) {
            Some(known) => known.is_loopback |= is_loopback,
            None if joins => usable.push(Interface { name, is_loopback }),
            None => {}
        }
    }
    if usable.is_empty() {
        return Err(DiscoveryError::NoMulticast("no interface supports it".into()));
    }
    Ok(usable)
}

/// A socket on the port of multicast DNS, shared with other responders (RFC 6762 section 15.1).
pub(crate) fn socket(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    let any: IpAddr = if domain == Domain::IPV6 {
        socket.set_only_v6(true)?;
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    socket.bind(&SocketAddr::from((any, PORT)).into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_usable() {
        let usable = usable_interfaces().unwrap();
        assert!(usable.iter().any(|interface| interface.is_loopback), "{usable:?}");
    }
}

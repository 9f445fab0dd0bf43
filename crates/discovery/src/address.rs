//! Announced addresses: their validation, and the order in which to try them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use mdns_sd::ScopedIp;

/// The indices of this machine's loopback interfaces.
pub(crate) struct Loopback(BTreeSet<u32>);

impl Loopback {
    /// The current ones.
    pub(crate) fn current() -> Self {
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let loopback = interfaces.iter().filter(|interface| interface.is_loopback());
        Self(loopback.filter_map(|interface| interface.index).collect())
    }

    /// The announced address, if a node can listen there. A loopback address is accepted only from
    /// a loopback interface: announced by another machine it would direct the client to services of
    /// its own machine.
    pub(crate) fn validate(&self, announced: &ScopedIp, port: u16) -> Option<SocketAddr> {
        match announced {
            _ if port == 0 => None,
            ScopedIp::V4(v4) => {
                let mut on = v4.interface_ids().iter();
                let here = || on.any(|interface| self.0.contains(&interface.index));
                let valid = is_valid_v4(v4.addr(), here);
                valid.then(|| SocketAddrV4::new(*v4.addr(), port).into())
            }
            ScopedIp::V6(v6) => {
                let index = v6.scope_id().index;
                let valid = is_valid_v6(v6.addr(), || self.0.contains(&index));
                let scope = if v6.addr().is_unicast_link_local() { index } else { 0 };
                valid.then(|| SocketAddrV6::new(*v6.addr(), port, 0, scope).into())
            }
            _ => None,
        }
    }
}

fn is_valid_v4(address: &Ipv4Addr, here: impl FnOnce() -> bool) -> bool {
    if address.is_loopback() {
        return here();
    }
    !(address.is_unspecified() || address.is_multicast() || address.is_broadcast())
}

fn is_valid_v6(address: &Ipv6Addr, here: impl FnOnce() -> bool) -> bool {
    if address.is_loopback() {
        return here();
    }
    !(address.is_unspecified() || address.is_multicast() || address.to_ipv4_mapped().is_some())
}

/// The order in which addresses are tried: routable, then loopback, then link-local ones, whose
/// scope id may change; IPv4 first within each.
pub(crate) fn order(address: &SocketAddr) -> (u8, bool, SocketAddr) {
    let reach = match address.ip() {
        ip if ip.is_loopback() => 1,
        IpAddr::V4(ip) if ip.is_link_local() => 2,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => 2,
        _ => 0,
    };
    (reach, address.is_ipv6(), *address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Validates an address announced on an unknown interface.
    fn validate(ip: &str, port: u16) -> Option<SocketAddr> {
        let ip: IpAddr = ip.parse().unwrap();
        Loopback(BTreeSet::from([1])).validate(&ip.into(), port)
    }

    #[test]
    fn accepts_only_addresses_of_hosts() {
        assert_eq!(validate("192.0.2.1", 7), Some("192.0.2.1:7".parse().unwrap()));
        assert_eq!(validate("2001:db8::1", 7), Some("[2001:db8::1]:7".parse().unwrap()));
        assert_eq!(validate("192.0.2.1", 0), None);
        for ip in ["0.0.0.0", "224.0.0.251", "255.255.255.255", "::", "ff02::fb", "::ffff:1.2.3.4"]
        {
            assert_eq!(validate(ip, 7), None, "{ip}");
        }
    }

    #[test]
    fn rejects_loopback_addresses_from_other_interfaces() {
        for ip in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert_eq!(validate(ip, 7), None, "{ip}");
        }
        assert!(is_valid_v4(&Ipv4Addr::LOCALHOST, || true));
        assert!(is_valid_v6(&Ipv6Addr::LOCALHOST, || true));
        assert!(!Loopback::current().0.is_empty());
    }

    #[test]
    fn routable_addresses_come_first_and_link_local_ones_last() {
        let mut addresses: Vec<SocketAddr> =
            ["[fe80::1]:1", "[::1]:1", "127.0.0.1:1", "[2001:db8::1]:1", "192.0.2.1:1"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
        addresses.sort_by_key(order);
        let sorted: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let expected = ["192.0.2.1:1", "[2001:db8::1]:1", "127.0.0.1:1", "[::1]:1", "[fe80::1]:1"];
        assert_eq!(sorted, expected);
    }
}

//! Addresses as neighbours announce them: which can be meant, and which to try first.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use mdns_sd::ScopedIp;

/// The interfaces of this machine that lead nowhere else, by index.
pub(crate) struct Loopback(BTreeSet<u32>);

impl Loopback {
    /// Those that are there now.
    pub(crate) fn now() -> Self {
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let loopback = interfaces.iter().filter(|interface| interface.is_loopback());
        Self(loopback.filter_map(|interface| interface.index).collect())
    }

    /// The address that was announced, if it can be meant. One of loopback can only by this machine: from
    /// elsewhere it would lead us to our own services.
    pub(crate) fn plausible(&self, announced: &ScopedIp, port: u16) -> Option<SocketAddr> {
        match announced {
            _ if port == 0 => None,
            ScopedIp::V4(v4) => {
                let mut on = v4.interface_ids().iter();
                let here = || on.any(|interface| self.0.contains(&interface.index));
                let good = good_v4(v4.addr(), here);
                good.then(|| SocketAddrV4::new(*v4.addr(), port).into())
            }
            ScopedIp::V6(v6) => {
                let index = v6.scope_id().index;
                let good = good_v6(v6.addr(), || self.0.contains(&index));
                let scope = if v6.addr().is_unicast_link_local() { index } else { 0 };
                good.then(|| SocketAddrV6::new(*v6.addr(), port, 0, scope).into())
            }
            _ => None,
        }
    }
}

fn good_v4(address: &Ipv4Addr, here: impl FnOnce() -> bool) -> bool {
    if address.is_loopback() {
        return here();
    }
    !(address.is_unspecified() || address.is_multicast() || address.is_broadcast())
}

fn good_v6(address: &Ipv6Addr, here: impl FnOnce() -> bool) -> bool {
    if address.is_loopback() {
        return here();
    }
    !(address.is_unspecified() || address.is_multicast() || address.to_ipv4_mapped().is_some())
}

/// The order in which addresses are tried: those of a network, then loopback, then those of one link only,
/// whose interface may be called otherwise tomorrow; IPv4 first within each.
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

    /// As announced on no known interface.
    fn plausible(ip: &str, port: u16) -> Option<SocketAddr> {
        let ip: IpAddr = ip.parse().unwrap();
        Loopback(BTreeSet::from([1])).plausible(&ip.into(), port)
    }

    #[test]
    fn only_addresses_of_hosts_can_be_meant() {
        assert_eq!(plausible("192.0.2.1", 7), Some("192.0.2.1:7".parse().unwrap()));
        assert_eq!(plausible("2001:db8::1", 7), Some("[2001:db8::1]:7".parse().unwrap()));
        assert_eq!(plausible("192.0.2.1", 0), None);
        for ip in ["0.0.0.0", "224.0.0.251", "255.255.255.255", "::", "ff02::fb", "::ffff:1.2.3.4"]
        {
            assert_eq!(plausible(ip, 7), None, "{ip}");
        }
    }

    #[test]
    fn loopback_from_another_interface_is_a_trap() {
        for ip in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert_eq!(plausible(ip, 7), None, "{ip}");
        }
        assert!(good_v4(&Ipv4Addr::LOCALHOST, || true));
        assert!(good_v6(&Ipv6Addr::LOCALHOST, || true));
        assert!(!Loopback::now().0.is_empty());
    }

    #[test]
    fn the_network_comes_first_and_single_links_last() {
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

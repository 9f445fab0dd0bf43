//! The addresses of listening sockets of this machine.

use std::net::{IpAddr, SocketAddr};

use crate::known::MOST_ADDRESSES;

/// The addresses at which `listening` can be reached, `host:port` each: the machine's own addresses
/// replace unspecified ones, loopback is last. For the user of this machine; other machines receive
/// [`published`].
pub fn reachable(listening: &[SocketAddr]) -> Vec<String> {
    let mut addresses = own_addresses(listening);
    keep_one_of_loopback(&mut addresses, |address| address.ip().is_loopback());
    addresses.iter().map(ToString::to_string).collect()
}

/// The addresses for other machines: `advertised`, then the machine's own, with the tag of this
/// machine at those of loopback (see [`super`]).
pub fn published(listening: &[SocketAddr], advertised: &[String]) -> Vec<String> {
    let mut all: Vec<(String, bool)> = Vec::new();
    let own = own_addresses(listening);
    let own = own.iter().filter_map(|one| Some((super::handed_out(one)?, one.ip().is_loopback())));
    for (text, is_loopback) in advertised.iter().map(|text| (text.clone(), false)).chain(own) {
        if !all.iter().any(|(known, _)| *known == text) {
            all.push((text, is_loopback));
        }
    }
    keep_one_of_loopback(&mut all, |(_, is_loopback)| *is_loopback);
    all.into_iter().map(|(text, _)| text).collect()
}

fn own_addresses(listening: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for bound in listening {
        if !bound.ip().is_unspecified() {
            addresses.push(*bound);
            continue;
        }
        let own = interface_addresses()
            .filter(|ip| bound.is_ipv6() || ip.is_ipv4())
            .map(|ip| SocketAddr::new(ip, bound.port()));
        addresses.extend(own);
    }
    // Network addresses before loopback; IPv4 before IPv6 within each.
    addresses.sort_by_key(|address| (address.ip().is_loopback(), address.is_ipv6()));
    addresses.dedup();
    addresses
}

/// Truncates a list to the maximum of an invitation, and keeps one loopback address for guests on
/// this machine.
fn keep_one_of_loopback<T>(addresses: &mut Vec<T>, is_loopback: impl Fn(&T) -> bool) {
    let loopback = addresses.iter().position(is_loopback);
    if let Some(first) = loopback.filter(|first| *first >= MOST_ADDRESSES) {
        addresses.swap(first, MOST_ADDRESSES - 1);
    }
    addresses.truncate(MOST_ADDRESSES);
}

/// This machine's addresses, without link-local ones, whose scope is valid only on this machine.
fn interface_addresses() -> impl Iterator<Item = IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    interfaces.into_iter().map(|interface| interface.ip()).filter(|ip| match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specific_address_is_reachable_as_bound() {
        let listening = ["127.0.0.1:7".parse().unwrap(), "192.0.2.1:7".parse().unwrap()];
        assert_eq!(reachable(&listening), ["192.0.2.1:7", "127.0.0.1:7"]);
    }

    #[test]
    fn advertised_addresses_come_first_and_loopback_has_a_tag() {
        let listening: Vec<SocketAddr> =
            ["127.0.0.1:7", "192.0.2.1:7", "169.254.1.1:7", "[fe80::1]:7"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
        let all = published(&listening, &["box.example:80".into(), "192.0.2.1:7".into()]);
        assert_eq!(all[..2], ["box.example:80", "192.0.2.1:7"]);
        assert!(all.len() == 3 && all[2].starts_with("127.0.0.1:7@"), "{all:?}");
        let many: Vec<String> = (0..20).map(|number| format!("box{number}.example:1")).collect();
        let all = published(&listening, &many);
        assert!(all.len() == MOST_ADDRESSES && all[7].starts_with("127.0.0.1:7@"), "{all:?}");
    }

    #[test]
    fn an_unspecified_address_includes_loopback() {
        let all = reachable(&["0.0.0.0:7".parse().unwrap()]);
        assert!(all.contains(&"127.0.0.1:7".to_owned()), "{all:?}");
        assert!(all.len() <= MOST_ADDRESSES);
    }
}

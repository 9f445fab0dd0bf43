//! The records that a node announces: for each port that it listens on an instance, and a host with the
//! addresses that this port is bound to.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use mdns_sd::{IfKind, ServiceInfo};

use crate::{Announcement, DiscoveryError, SERVICE, txt};

/// Characters of the key in the name of an announcement, and in that of its host.
const KEY_IN_INSTANCE: usize = 8;
const KEY_IN_HOST: usize = 16;
/// The longest label, in bytes (RFC 1035 section 2.3.4).
const MAX_LABEL: usize = 63;
/// Bytes that stay free in it. Whoever announces the same makes the responder append a number, ` (2)` and so
/// on (RFC 6763 appendix D), and with a label that became too long by that nothing would be announced at all.
const NUMBER: usize = 8;

/// Where a node listens with one port.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    every_v4: bool,
    every_v6: bool,
    addresses: Vec<IpAddr>,
}

impl Bound {
    fn is_open_ended(&self) -> bool {
        self.every_v4 || self.every_v6
    }

    /// The interfaces, or single addresses of them, that an open-ended announcement takes addresses from.
    fn sources(&self) -> Vec<IfKind> {
        let every = [(self.every_v4, IfKind::IPv4), (self.every_v6, IfKind::IPv6)];
        let every = every.into_iter().filter_map(|(is_so, kind)| is_so.then_some(kind));
        every.chain(self.addresses.iter().map(|address| IfKind::Addr(*address))).collect()
    }
}

pub(crate) fn ports(listening: &[SocketAddr]) -> BTreeMap<u16, Bound> {
    let mut ports: BTreeMap<u16, Bound> = BTreeMap::new();
    for address in listening {
        let bound = ports.entry(address.port()).or_default();
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => bound.every_v4 = true,
            // A node that listens on every address of IPv6 does so on those of IPv4.
            IpAddr::V6(ip) if ip.is_unspecified() => {
                (bound.every_v4, bound.every_v6) = (true, true)
            }
            ip => bound.addresses.push(ip),
        }
    }
    ports
}

/// The interfaces that are needed at all; `None` for all. What is bound to loopback is told to nobody else.
pub(crate) fn interfaces(ports: &BTreeMap<u16, Bound>) -> Option<Vec<IfKind>> {
    if ports.values().any(Bound::is_open_ended) {
        return None;
    }
    let addresses = ports.values().flat_map(|bound| &bound.addresses);
    let kinds = addresses.map(|address| match address {
        IpAddr::V4(ip) if ip.is_loopback() => IfKind::LoopbackV4,
        IpAddr::V6(ip) if ip.is_loopback() => IfKind::LoopbackV6,
        ip => IfKind::Addr(*ip),
    });
    Some(kinds.collect())
}

/// The announcement of one port; `place` is its place among the ports. Host and announcement are called by
/// the key, so neither is like another's on this machine or elsewhere; and each port has a host of its own,
/// because an address may belong to one port alone.
pub(crate) fn service(
    announcement: &Announcement,
    place: usize,
    port: u16,
    bound: &Bound,
) -> Result<ServiceInfo, DiscoveryError> {
    let Announcement { name, identity, .. } = announcement;
    let key = identity.to_string();
    let key = key.strip_prefix("lv").unwrap_or(&key);
    let nth = if place > 0 { format!("-{port}") } else { String::new() };
    let host = format!("levada-{}{nth}.local.", &key[..KEY_IN_HOST.min(key.len())]);
    let instance = instance(name, &format!("-{}{nth}", &key[..KEY_IN_INSTANCE.min(key.len())]));
    let entries = txt::encode(name, identity);
    let auto = bound.is_open_ended();
    let fixed: &[IpAddr] = if auto { &[] } else { &bound.addresses };
    let service = ServiceInfo::new(SERVICE, &instance, &host, fixed, port, &entries[..])?;
    if !auto {
        return Ok(service);
    }
    let mut service = service.enable_addr_auto();
    service.set_interfaces(bound.sources());
    Ok(service)
}

/// The node's name, shortened where the label would be too long, and the suffix. Dots would have to be escaped,
/// and the plain name stands in the TXT record.
fn instance(name: &str, suffix: &str) -> String {
    let room = (MAX_LABEL - NUMBER).saturating_sub(suffix.len());
    let plain = name.chars().map(|c| if c == '.' { '-' } else { c });
    plain.take(room).collect::<String>() + suffix
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::Identity;

    fn announcement(listening: &[&str]) -> Announcement {
        Announcement {
            name: "well.home".into(),
            identity: Identity::from_bytes([7; 32]),
            listening: listening.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    fn services(listening: &[&str]) -> Vec<ServiceInfo> {
        let announcement = announcement(listening);
        let ports = ports(&announcement.listening);
        let each = ports.iter().enumerate();
        each.map(|(place, (port, bound))| service(&announcement, place, *port, bound).unwrap())
            .collect()
    }

    #[test]
    fn name_and_beginning_of_the_key_make_the_instance() {
        let key = Identity::from_bytes([7; 32]).to_string();
        let services = services(&["127.0.0.1:7", "127.0.0.1:9"]);
        let names: Vec<&str> = services.iter().map(ServiceInfo::get_fullname).collect();
        let first = format!("well-home-{}", &key[2..10]);
        assert_eq!(names[0], format!("{first}.{SERVICE}"));
        assert_eq!(names[1], format!("{first}-9.{SERVICE}"));
        assert_eq!(services[0].get_hostname(), format!("levada-{}.local.", &key[2..18]));
        assert_eq!(services[1].get_hostname(), format!("levada-{}-9.local.", &key[2..18]));
        let long = instance(&"a".repeat(63), "-abcdefgh-65535");
        assert_eq!(long.len(), MAX_LABEL - NUMBER);
        assert!(long.ends_with("a-abcdefgh-65535"));
    }

    #[test]
    fn only_addresses_that_are_listened_on_are_announced() {
        let fixed = &services(&["127.0.0.1:7", "192.0.2.1:7"])[0];
        assert!(!fixed.is_addr_auto());
        let mut addresses: Vec<String> =
            fixed.get_addresses().iter().map(ToString::to_string).collect();
        addresses.sort();
        assert_eq!(addresses, ["127.0.0.1", "192.0.2.1"]);
        for every in ["0.0.0.0:7", "[::]:7"] {
            let service = &services(&[every])[0];
            assert!(service.is_addr_auto() && service.get_addresses().is_empty(), "{every}");
        }
        let bound = ports(&announcement(&["0.0.0.0:7"]).listening);
        assert_eq!((bound[&7].every_v4, bound[&7].every_v6), (true, false));
        let bound = ports(&announcement(&["[::]:7"]).listening);
        assert_eq!((bound[&7].every_v4, bound[&7].every_v6), (true, true));
    }

    #[test]
    fn what_is_bound_to_loopback_is_told_to_nobody_else() {
        let few = |listening: &[&str]| interfaces(&ports(&announcement(listening).listening));
        assert!(matches!(few(&["127.0.0.1:7"]).unwrap()[..], [IfKind::LoopbackV4]));
        assert!(matches!(few(&["[::1]:7"]).unwrap()[..], [IfKind::LoopbackV6]));
        assert!(matches!(few(&["192.0.2.1:7"]).unwrap()[..], [IfKind::Addr(_)]));
        assert!(few(&["127.0.0.1:7", "0.0.0.0:9"]).is_none());
    }
}

//! The records of a node: for each listening port a service instance, and a host with the addresses
//! that this port is bound to.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use levada_core::Identity;
use mdns_sd::{IfKind, ServiceInfo};

use crate::{DiscoveryError, SERVICE, txt};

/// Characters of the key in the instance name and in the host name.
const KEY_IN_INSTANCE: usize = 8;
const KEY_IN_HOST: usize = 16;
/// The longest label, in bytes (RFC 1035 section 2.3.4).
const MAX_LABEL: usize = 63;
/// Bytes that stay free in an instance label. On a name conflict the responder appends ` (2)` and
/// so on (RFC 6763 appendix D); a label that exceeded 63 bytes by that would not be announced at
/// all.
const CONFLICT_SUFFIX: usize = 8;

/// The content of a node's announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The node's name.
    pub name: String,
    /// The node's identity.
    pub identity: Identity,
    /// The listening addresses. An unspecified address stands for every address of an interface,
    /// also one added later. Each interface announces only the addresses that are reachable
    /// through it.
    pub listening: Vec<SocketAddr>,
}

/// The addresses that one port is bound to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    any_v4: bool,
    any_v6: bool,
    addresses: Vec<IpAddr>,
}

impl Bound {
    fn is_wildcard(&self) -> bool {
        self.any_v4 || self.any_v6
    }

    /// The address families and single addresses that a wildcard announcement covers.
    fn sources(&self) -> Vec<IfKind> {
        let families = [(self.any_v4, IfKind::IPv4), (self.any_v6, IfKind::IPv6)];
        let families = families.into_iter().filter_map(|(is_set, kind)| is_set.then_some(kind));
        families.chain(self.addresses.iter().map(|address| IfKind::Addr(*address))).collect()
    }
}

/// Groups the listening addresses by port.
pub(crate) fn ports(listening: &[SocketAddr]) -> BTreeMap<u16, Bound> {
    let mut ports: BTreeMap<u16, Bound> = BTreeMap::new();
    for address in listening {
        let bound = ports.entry(address.port()).or_default();
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => bound.any_v4 = true,
            // A node binds `[::]` as a dual-stack socket.
            IpAddr::V6(ip) if ip.is_unspecified() => (bound.any_v4, bound.any_v6) = (true, true),
            ip => bound.addresses.push(ip),
        }
    }
    ports
}

/// The interfaces to announce on; `None` for all. A loopback address is announced on loopback only.
pub(crate) fn interfaces(ports: &BTreeMap<u16, Bound>) -> Option<Vec<IfKind>> {
    if ports.values().any(Bound::is_wildcard) {
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

/// The service instance of one port; `index` is its position among the ports. Host and instance
/// names contain the key, so that they are unique. Each port has its own host name, because ports
/// may be bound to different addresses.
pub(crate) fn service(
    announcement: &Announcement,
    index: usize,
    port: u16,
    bound: &Bound,
) -> Result<ServiceInfo, DiscoveryError> {
    let Announcement { name, identity, .. } = announcement;
    let key = identity.to_string();
    let key = key.strip_prefix("lv").unwrap_or(&key);
    let suffix = if index > 0 { format!("-{port}") } else { String::new() };
    let host = format!("levada-{}{suffix}.local.", &key[..KEY_IN_HOST.min(key.len())]);
    let instance = instance(name, &format!("-{}{suffix}", &key[..KEY_IN_INSTANCE.min(key.len())]));
    let entries = txt::encode(name, identity);
    let auto = bound.is_wildcard();
    let fixed: &[IpAddr] = if auto { &[] } else { &bound.addresses };
    let service = ServiceInfo::new(SERVICE, &instance, &host, fixed, port, &entries[..])?;
    if !auto {
        return Ok(service);
    }
    let mut service = service.enable_addr_auto();
    service.set_interfaces(bound.sources());
    Ok(service)
}

/// The node's name, shortened if the label would be too long, and the suffix. Dots, which would
/// need escapes, are replaced; the TXT record has the unchanged name.
fn instance(name: &str, suffix: &str) -> String {
    let max = (MAX_LABEL - CONFLICT_SUFFIX).saturating_sub(suffix.len());
    let plain = name.chars().map(|c| if c == '.' { '-' } else { c });
    plain.take(max).collect::<String>() + suffix
}

#[cfg(test)]
mod tests {
    use super::*;

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
        each.map(|(index, (port, bound))| service(&announcement, index, *port, bound).unwrap())
            .collect()
    }

    #[test]
    fn instance_and_host_names_contain_the_start_of_the_key() {
        let key = Identity::from_bytes([7; 32]).to_string();
        let services = services(&["127.0.0.1:7", "127.0.0.1:9"]);
        let names: Vec<&str> = services.iter().map(ServiceInfo::get_fullname).collect();
        let first = format!("well-home-{}", &key[2..10]);
        assert_eq!(names[0], format!("{first}.{SERVICE}"));
        assert_eq!(names[1], format!("{first}-9.{SERVICE}"));
        assert_eq!(services[0].get_hostname(), format!("levada-{}.local.", &key[2..18]));
        assert_eq!(services[1].get_hostname(), format!("levada-{}-9.local.", &key[2..18]));
        let long = instance(&"a".repeat(63), "-abcdefgh-65535");
        assert_eq!(long.len(), MAX_LABEL - CONFLICT_SUFFIX);
        assert!(long.ends_with("a-abcdefgh-65535"));
    }

    #[test]
    fn only_listening_addresses_are_announced() {
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
        assert_eq!((bound[&7].any_v4, bound[&7].any_v6), (true, false));
        let bound = ports(&announcement(&["[::]:7"]).listening);
        assert_eq!((bound[&7].any_v4, bound[&7].any_v6), (true, true));
    }

    #[test]
    fn loopback_addresses_are_announced_on_loopback_only() {
        let needed = |listening: &[&str]| interfaces(&ports(&announcement(listening).listening));
        assert!(matches!(needed(&["127.0.0.1:7"]).unwrap()[..], [IfKind::LoopbackV4]));
        assert!(matches!(needed(&["[::1]:7"]).unwrap()[..], [IfKind::LoopbackV6]));
        assert!(matches!(needed(&["192.0.2.1:7"]).unwrap()[..], [IfKind::Addr(_)]));
        assert!(needed(&["127.0.0.1:7", "0.0.0.0:9"]).is_none());
    }
}

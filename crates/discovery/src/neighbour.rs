//! Neighbours, and the bounded collection of their announcements.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;

use levada_core::Identity;
use mdns_sd::{ResolvedService, ServiceEvent};

use crate::address::{Loopback, order};
use crate::txt::{self, TxtRecord};

/// Most announcements that are not of a target, and as many whose name is a target.
pub const MAX_NEIGHBOURS: usize = 1024;
/// Most addresses of one neighbour.
pub const MAX_ADDRESSES: usize = 16;
/// Most announcements of a target key: a node has one for each port.
const MAX_OF_KEY: usize = 16;
/// The longest instance name, in bytes: 255 (RFC 1035 section 2.3.4), each as an escape of 4
/// characters.
const MAX_INSTANCE: usize = 4 * 255;

/// An announced node. Its fields are unauthenticated claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The claimed name, which is well-formed.
    pub name: String,
    /// The claimed key.
    pub identity: Identity,
    /// The claimed addresses, in the order in which to try them; at most [`MAX_ADDRESSES`].
    pub addresses: Vec<SocketAddr>,
}

/// The result of [`crate::browse`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrowseResult {
    /// The neighbours, by name, then by key.
    pub neighbours: Vec<Neighbour>,
    /// Whether announcements were dropped because of a limit.
    pub truncated: bool,
}

impl BrowseResult {
    /// All claims of a key, under any name, merged into one neighbour with the first of the names.
    /// So a false claim of a key cannot hide the node that has it.
    pub fn merged(&self, identity: &Identity) -> Option<Neighbour> {
        let mut claims = self.neighbours.iter().filter(|one| one.identity == *identity);
        let mut found = claims.next()?.clone();
        for other in claims {
            found.addresses.extend(&other.addresses);
        }
        found.addresses = bounded(found.addresses);
        Some(found)
    }
}

/// The names and keys that a query is for. They have separate limits, so that other announcements
/// cannot displace them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Names.
    pub names: BTreeSet<String>,
    /// Keys.
    pub keys: BTreeSet<Identity>,
}

/// Collects announcements within limits.
pub(crate) struct Collector {
    targets: Targets,
    loopback: Loopback,
    /// By instance name and key, so that an announcement of the same instance with another key does
    /// not replace one.
    announced: HashMap<(String, Identity), Entry>,
    truncated: bool,
}

/// An announcement, and the limit that it counts against.
struct Entry {
    kind: Kind,
    neighbour: Neighbour,
}

/// Which target an announcement matches. Each kind has its own limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Key,
    Name,
    Other,
}

impl Targets {
    fn kind(&self, neighbour: &Neighbour) -> Kind {
        if self.keys.contains(&neighbour.identity) {
            Kind::Key
        } else if self.names.contains(&neighbour.name) {
            Kind::Name
        } else {
            Kind::Other
        }
    }
}

impl Collector {
    pub(crate) fn new(targets: Targets) -> Self {
        let loopback = Loopback::current();
        Self { targets, loopback, announced: HashMap::new(), truncated: false }
    }

    pub(crate) fn handle(&mut self, event: &ServiceEvent) {
        match event {
            ServiceEvent::ServiceResolved(service) => self.handle_resolved(service),
            ServiceEvent::ServiceRemoved(_, instance) => {
                self.announced.retain(|(known, _), _| known != instance);
            }
            _ => {}
        }
    }

    fn handle_resolved(&mut self, service: &ResolvedService) {
        if service.fullname.len() > MAX_INSTANCE {
            return;
        }
        let entries = service.txt_properties.iter().map(|entry| (entry.key(), entry.val()));
        let Some(TxtRecord { name, identity }) = txt::decode(entries) else { return };
        let addresses = service.addresses.iter();
        let addresses = addresses.filter_map(|ip| self.loopback.validate(ip, service.port));
        let addresses = bounded(addresses.collect());
        if addresses.is_empty() {
            return;
        }
        self.insert(service.fullname.clone(), Neighbour { name, identity, addresses });
    }

    fn insert(&mut self, instance: String, neighbour: Neighbour) {
        let kind = self.targets.kind(&neighbour);
        let key = (instance, neighbour.identity);
        // An update needs no room, unless it moves the announcement to another kind.
        let is_update = self.announced.get(&key).is_some_and(|known| known.kind == kind);
        if !is_update && !self.has_room(kind, &neighbour.identity) {
            self.truncated = true;
            return;
        }
        self.announced.insert(key, Entry { kind, neighbour });
    }

    fn has_room(&self, kind: Kind, identity: &Identity) -> bool {
        let others = self.announced.values().filter(|one| one.kind == kind);
        match kind {
            Kind::Key => {
                others.filter(|one| one.neighbour.identity == *identity).count() < MAX_OF_KEY
            }
            Kind::Name | Kind::Other => others.count() < MAX_NEIGHBOURS,
        }
    }

    /// Whether an announcement has this key.
    pub(crate) fn contains(&self, identity: &Identity) -> bool {
        self.announced.keys().any(|(_, known)| known == identity)
    }

    /// The neighbours, with the announcements of the same name and key merged.
    pub(crate) fn finish(self) -> BrowseResult {
        let mut merged: BTreeMap<(String, Identity), Vec<SocketAddr>> = BTreeMap::new();
        for Entry { neighbour, .. } in self.announced.into_values() {
            let Neighbour { name, identity, addresses } = neighbour;
            merged.entry((name, identity)).or_default().extend(addresses);
        }
        let neighbours = merged.into_iter().map(|((name, identity), addresses)| Neighbour {
            name,
            identity,
            addresses: bounded(addresses),
        });
        BrowseResult { neighbours: neighbours.collect(), truncated: self.truncated }
    }
}

/// Sorts the addresses in the order in which to try them, removes duplicates, and cuts to
/// [`MAX_ADDRESSES`].
fn bounded(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    addresses.sort_by_key(order);
    addresses.dedup();
    addresses.truncate(MAX_ADDRESSES);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(number: u16) -> Identity {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        Identity::from_bytes(bytes)
    }

    fn neighbour(name: &str, number: u16) -> Neighbour {
        let addresses = vec![SocketAddr::from(([192, 0, 2, 1], 1 + number))];
        Neighbour { name: name.into(), identity: identity(number), addresses }
    }

    fn collector(name: &str, key: u16) -> Collector {
        let names = BTreeSet::from([name.to_owned()]);
        Collector::new(Targets { names, keys: BTreeSet::from([identity(key)]) })
    }

    #[test]
    fn announcements_of_one_key_are_one_neighbour() {
        let mut collector = collector("-", 9999);
        let mut second = neighbour("well", 1);
        second.addresses = vec!["192.0.2.2:9".parse().unwrap(), "192.0.2.1:2".parse().unwrap()];
        collector.insert("well-1".into(), neighbour("well", 1));
        collector.insert("well-1-9".into(), second);
        collector.insert("well-1".into(), neighbour("well", 2));
        let result = collector.finish();
        assert!(!result.truncated);
        let found: Vec<_> =
            result.neighbours.iter().map(|one| (one.identity, one.addresses.len())).collect();
        assert_eq!(found, [(identity(1), 2), (identity(2), 1)]);
    }

    #[test]
    fn claims_of_a_key_under_several_names_are_merged() {
        let mut collector = collector("-", 9999);
        let mut false_claim = neighbour("a", 1);
        false_claim.addresses = vec!["192.0.2.9:9".parse().unwrap()];
        collector.insert("a".into(), false_claim);
        collector.insert("well-1".into(), neighbour("well", 1));
        let result = collector.finish();
        let addresses = result.merged(&identity(1)).unwrap().addresses;
        assert_eq!(addresses.len(), 2);
        assert!(addresses.contains(&neighbour("well", 1).addresses[0]));
        assert_eq!(result.merged(&identity(2)), None);
    }

    #[test]
    fn other_announcements_do_not_displace_targets() {
        let mut collector = collector("well", 9999);
        let too_many = u16::try_from(MAX_NEIGHBOURS).unwrap() + 10;
        for number in 0..too_many {
            collector.insert(format!("x{number}"), neighbour(&format!("x{number}"), number));
            collector.insert(format!("y{number}"), neighbour("well", number));
            collector.insert(format!("z{number}"), neighbour("z", 9999));
        }
        assert!(collector.truncated);
        assert_eq!(collector.announced.len(), 2 * MAX_NEIGHBOURS + MAX_OF_KEY);
        assert!(collector.contains(&identity(9999)) && !collector.contains(&identity(9998)));
        // A known announcement can be updated at the limit.
        collector.insert("x0".into(), neighbour("x", 0));
        assert!(collector.finish().neighbours.iter().any(|one| one.name == "x"));
    }

    #[test]
    fn renaming_an_announcement_does_not_bypass_the_limits() {
        let mut collector = collector("well", 9999);
        let most = u16::try_from(MAX_NEIGHBOURS).unwrap();
        for round in 0..3 {
            for number in 0..most {
                // First under another name, then under the target's.
                let instance = format!("x{round}-{number}");
                collector.insert(instance.clone(), neighbour("x", round * most + number));
                collector.insert(instance, neighbour("well", round * most + number));
            }
        }
        assert!(collector.truncated);
        assert!(collector.announced.len() <= 2 * MAX_NEIGHBOURS);
    }

    #[test]
    fn a_goodbye_removes_the_instance() {
        let mut collector = collector("-", 9999);
        collector.insert("a".into(), neighbour("a", 1));
        collector.insert("b".into(), neighbour("b", 2));
        collector.handle(&ServiceEvent::ServiceRemoved(String::new(), "a".into()));
        assert_eq!(collector.finish().neighbours, [neighbour("b", 2)]);
    }

    #[test]
    fn addresses_are_cut_to_the_limit() {
        let many = (0..=255).map(|last| SocketAddr::from(([192, 0, 2, last], 1)));
        let kept = bounded(many.clone().chain(many).collect());
        assert_eq!(kept.len(), MAX_ADDRESSES);
        assert_eq!(kept[0], "192.0.2.0:1".parse().unwrap());
    }
}

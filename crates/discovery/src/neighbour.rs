//! What was announced, collected within bounds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;

use levada_core::Identity;
use mdns_sd::{ResolvedService, ServiceEvent};

use crate::address::{Loopback, order};
use crate::txt::{self, Described};

/// Neighbours of one kind that are kept: those nobody asked for, and those with a name that was.
pub const MAX_NEIGHBOURS: usize = 1024;
/// Addresses that are kept of one neighbour.
pub const MAX_ADDRESSES: usize = 16;
/// Announcements that are kept of a key that was asked for: a node has one for each port.
const MAX_OF_KEY: usize = 16;
/// The longest name of an announcement, in bytes: 255 (RFC 1035 section 2.3.4), each written as an escape.
const MAX_INSTANCE: usize = 4 * 255;

/// A node as it announces itself. Nothing of it is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The name that it gives itself; it has the form of one.
    pub name: String,
    /// The key that it claims to have.
    pub identity: Identity,
    /// Where it says that it listens, in the order in which to try; at most [`MAX_ADDRESSES`].
    pub addresses: Vec<SocketAddr>,
}

/// What a look around has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Who announces himself, by name, then by key.
    pub neighbours: Vec<Neighbour>,
    /// There are more than are kept.
    pub more: bool,
}

impl Seen {
    /// All that is announced of a key, under whatever names, as one neighbour, which has the first of them:
    /// who announces a key that is not his does not hide who has it.
    pub fn of(&self, identity: &Identity) -> Option<Neighbour> {
        let mut claims = self.neighbours.iter().filter(|one| one.identity == *identity);
        let mut found = claims.next()?.clone();
        for other in claims {
            found.addresses.extend(&other.addresses);
        }
        found.addresses = bounded(found.addresses);
        Some(found)
    }
}

/// Whom one looks for: they keep their place, however many others crowd the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Names.
    pub names: BTreeSet<String>,
    /// Keys.
    pub keys: BTreeSet<Identity>,
}

/// Takes in announcements and the ends of announcements.
pub(crate) struct Collector {
    wanted: Wanted,
    loopback: Loopback,
    /// By the name of the announcement and the key in it: who announces the same under another key does
    /// not push the other out.
    announced: HashMap<(String, Identity), Kept>,
    more: bool,
}

/// An announcement, and whose room it takes.
struct Kept {
    kind: Kind,
    neighbour: Neighbour,
}

/// Why an announcement is kept. Each kind has room of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Key,
    Name,
    Other,
}

impl Wanted {
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
    pub(crate) fn new(wanted: Wanted) -> Self {
        Self { wanted, loopback: Loopback::now(), announced: HashMap::new(), more: false }
    }

    pub(crate) fn take(&mut self, event: &ServiceEvent) {
        match event {
            ServiceEvent::ServiceResolved(service) => self.resolved(service),
            ServiceEvent::ServiceRemoved(_, instance) => {
                self.announced.retain(|(known, _), _| known != instance);
            }
            _ => {}
        }
    }

    fn resolved(&mut self, service: &ResolvedService) {
        if service.fullname.len() > MAX_INSTANCE {
            return;
        }
        let entries = service.txt_properties.iter().map(|entry| (entry.key(), entry.val()));
        let Some(Described { name, identity }) = txt::decode(entries) else { return };
        let plausible = service.addresses.iter();
        let plausible = plausible.filter_map(|ip| self.loopback.plausible(ip, service.port));
        let addresses = bounded(plausible.collect());
        if addresses.is_empty() {
            return;
        }
        self.keep(service.fullname.clone(), Neighbour { name, identity, addresses });
    }

    fn keep(&mut self, instance: String, neighbour: Neighbour) {
        let kind = self.wanted.kind(&neighbour);
        let key = (instance, neighbour.identity);
        // Who is known may change, but not move by that into room that is taken.
        let stays = self.announced.get(&key).is_some_and(|known| known.kind == kind);
        if !stays && !self.has_room(kind, &neighbour.identity) {
            self.more = true;
            return;
        }
        self.announced.insert(key, Kept { kind, neighbour });
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

    /// Whether some announcement has this key.
    pub(crate) fn has(&self, identity: &Identity) -> bool {
        self.announced.keys().any(|(_, known)| known == identity)
    }

    /// Everybody, each name of each key once.
    pub(crate) fn seen(self) -> Seen {
        let mut merged: BTreeMap<(String, Identity), Vec<SocketAddr>> = BTreeMap::new();
        for Kept { neighbour, .. } in self.announced.into_values() {
            let Neighbour { name, identity, addresses } = neighbour;
            merged.entry((name, identity)).or_default().extend(addresses);
        }
        let neighbours = merged.into_iter().map(|((name, identity), addresses)| Neighbour {
            name,
            identity,
            addresses: bounded(addresses),
        });
        Seen { neighbours: neighbours.collect(), more: self.more }
    }
}

/// The first addresses, each once, in the order in which to try them.
fn bounded(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    addresses.sort_by_key(order);
    addresses.dedup();
    addresses.truncate(MAX_ADDRESSES);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn someone(number: u16) -> Identity {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        Identity::from_bytes(bytes)
    }

    fn neighbour(name: &str, number: u16) -> Neighbour {
        let addresses = vec![SocketAddr::from(([192, 0, 2, 1], 1 + number))];
        Neighbour { name: name.into(), identity: someone(number), addresses }
    }

    fn collector(name: &str, key: u16) -> Collector {
        let names = BTreeSet::from([name.to_owned()]);
        Collector::new(Wanted { names, keys: BTreeSet::from([someone(key)]) })
    }

    #[test]
    fn announcements_of_one_key_are_one_neighbour() {
        let mut collector = collector("-", 9999);
        let mut second = neighbour("well", 1);
        second.addresses = vec!["192.0.2.2:9".parse().unwrap(), "192.0.2.1:2".parse().unwrap()];
        collector.keep("well-1".into(), neighbour("well", 1));
        collector.keep("well-1-9".into(), second);
        collector.keep("well-1".into(), neighbour("well", 2));
        let seen = collector.seen();
        assert!(!seen.more);
        let found: Vec<_> =
            seen.neighbours.iter().map(|one| (one.identity, one.addresses.len())).collect();
        assert_eq!(found, [(someone(1), 2), (someone(2), 1)]);
    }

    #[test]
    fn claims_of_a_key_under_several_names_are_one_when_it_is_looked_for() {
        let mut collector = collector("-", 9999);
        let mut false_one = neighbour("a", 1);
        false_one.addresses = vec!["192.0.2.9:9".parse().unwrap()];
        collector.keep("a".into(), false_one);
        collector.keep("well-1".into(), neighbour("well", 1));
        let seen = collector.seen();
        let addresses = seen.of(&someone(1)).unwrap().addresses;
        assert_eq!(addresses.len(), 2);
        assert!(addresses.contains(&neighbour("well", 1).addresses[0]));
        assert_eq!(seen.of(&someone(2)), None);
    }

    #[test]
    fn who_is_wanted_keeps_a_place_in_any_crowd() {
        let mut collector = collector("well", 9999);
        let crowd = u16::try_from(MAX_NEIGHBOURS).unwrap() + 10;
        for number in 0..crowd {
            collector.keep(format!("x{number}"), neighbour(&format!("x{number}"), number));
            collector.keep(format!("y{number}"), neighbour("well", number));
            collector.keep(format!("z{number}"), neighbour("z", 9999));
        }
        assert!(collector.more);
        assert_eq!(collector.announced.len(), 2 * MAX_NEIGHBOURS + MAX_OF_KEY);
        assert!(collector.has(&someone(9999)) && !collector.has(&someone(9998)));
        // Who is known already may change.
        collector.keep("x0".into(), neighbour("x", 0));
        assert!(collector.seen().neighbours.iter().any(|one| one.name == "x"));
    }

    #[test]
    fn who_takes_another_name_takes_no_more_room_by_that() {
        let mut collector = collector("well", 9999);
        let most = u16::try_from(MAX_NEIGHBOURS).unwrap();
        for round in 0..3 {
            for number in 0..most {
                // First as somebody, then under the name that is looked for.
                let instance = format!("x{round}-{number}");
                collector.keep(instance.clone(), neighbour("x", round * most + number));
                collector.keep(instance, neighbour("well", round * most + number));
            }
        }
        assert!(collector.more);
        assert!(collector.announced.len() <= 2 * MAX_NEIGHBOURS);
    }

    #[test]
    fn an_end_takes_away_what_was_announced_under_that_name() {
        let mut collector = collector("-", 9999);
        collector.keep("a".into(), neighbour("a", 1));
        collector.keep("b".into(), neighbour("b", 2));
        collector.take(&ServiceEvent::ServiceRemoved(String::new(), "a".into()));
        assert_eq!(collector.seen().neighbours, [neighbour("b", 2)]);
    }

    #[test]
    fn of_many_addresses_the_first_are_kept() {
        let many = (0..=255).map(|last| SocketAddr::from(([192, 0, 2, last], 1)));
        let kept = bounded(many.clone().chain(many).collect());
        assert_eq!(kept.len(), MAX_ADDRESSES);
        assert_eq!(kept[0], "192.0.2.0:1".parse().unwrap());
    }
}

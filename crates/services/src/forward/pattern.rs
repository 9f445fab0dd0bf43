//! Patterns of addresses: in the configuration, and in a session's parameters, which narrow it.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use super::address::{Address, Host, HostPort, MAX_ADDRESS, UDP, UNIX, number, socket_path, split};
use super::hosts::{Hosts, Origin};

/// The prefix of an address to listen at for connections, which are carried to the client.
pub const LISTEN: &str = "listen:";

/// A set of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Addresses to listen at, not addresses to connect to.
    pub(super) listen: bool,
    addresses: Addresses,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Addresses {
    Ip { udp: bool, hosts: Hosts, ports: RangeInclusive<u16> },
    Unix(PathBuf),
}

/// Not a pattern.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error(
    "{0:?} is not an address or pattern: expected HOST:PORT, udp:HOST:PORT, unix:/PATH, or `listen:` and one of them; \
     HOST is a name, *.NAME, an address, ADDRESS/BITS (IPv6 in brackets) or *, PORT a number, FIRST-LAST or *"
)]
pub struct PatternError(String);

impl Pattern {
    /// Whether `address` is one of these. `resolved` is the IP address to which its host is
    /// resolved, if it has a host.
    pub(super) fn permits(
        &self,
        address: &Address,
        resolved: Option<IpAddr>,
        origin: Origin,
    ) -> bool {
        if self.listen {
            return false;
        }
        let (target, over_udp) = match (address, &self.addresses) {
            (Address::Unix(path), Addresses::Unix(allowed)) => return path == allowed,
            (Address::Tcp(target), _) => (target, false),
            (Address::Udp(target), _) => (target, true),
            (Address::Unix(_), Addresses::Ip { .. }) => return false,
        };
        let Addresses::Ip { udp, hosts, ports } = &self.addresses else { return false };
        let Some(resolved) = resolved else { return false };
        let port = target.port != 0 && ports.contains(&target.port);
        *udp == over_udp && port && hosts.permit(&target.host, resolved, origin)
    }

    /// Whether this pattern, of a session's parameters, may permit `address`, before its name is
    /// resolved.
    pub fn may_permit(&self, address: &Address) -> bool {
        let one = address.to_string().parse();
        one.is_ok_and(|one| self.overlaps(&one, Origin::Session))
    }

    /// Whether one of `other` may be one of these, before names are resolved. A single address does
    /// not overlap with a name, whatever the name is resolved to.
    pub(super) fn overlaps(&self, other: &Self, origin: Origin) -> bool {
        if self.listen != other.listen {
            return false;
        }
        match (&self.addresses, &other.addresses) {
            (Addresses::Unix(a), Addresses::Unix(b)) => a == b,
            (
                Addresses::Ip { udp, hosts, ports },
                Addresses::Ip { udp: other_udp, hosts: other_hosts, ports: other_ports },
            ) => {
                let meet = ports.start() <= other_ports.end() && other_ports.start() <= ports.end();
                udp == other_udp && meet && hosts.overlap(other_hosts, origin)
            }
            _ => false,
        }
    }

    /// The address, if the pattern has only one.
    pub fn single(&self) -> Option<Address> {
        let (udp, hosts, ports) = match &self.addresses {
            Addresses::Unix(path) => return Some(Address::Unix(path.clone())),
            Addresses::Ip { udp, hosts, ports } => (*udp, hosts, ports),
        };
        let host = match hosts {
            Hosts::Name(name) => Host::Name(name.clone()),
            Hosts::Net(net) if net.is_single() => Host::Address(net.address),
            _ => return None,
        };
        let port = (ports.start() == ports.end()).then(|| *ports.start())?;
        Some(Address::Tcp(HostPort { host, port }).with_udp(udp))
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let wrong = || PatternError(text.chars().take(MAX_ADDRESS).collect());
        if text.len() > MAX_ADDRESS + LISTEN.len() {
            return Err(wrong());
        }
        let rest = text.strip_prefix(LISTEN);
        let addresses = parse_addresses(rest.unwrap_or(text), rest.is_some()).ok_or_else(wrong)?;
        Ok(Self { listen: rest.is_some(), addresses })
    }
}

fn parse_addresses(text: &str, listen: bool) -> Option<Addresses> {
    if let Some(path) = text.strip_prefix(UNIX) {
        return socket_path(path).map(Addresses::Unix);
    }
    let (udp, rest) = match text.strip_prefix(UDP) {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (hosts, ports) = split(rest)?;
    let hosts = Hosts::parse(hosts)?;
    let ports = parse_ports(ports)?;
    // A listener is for TCP or a Unix socket, and its host is an IP address of this machine.
    if listen && (udp || !matches!(hosts, Hosts::Net(_))) {
        return None;
    }
    // Port 0 is not valid to connect to; to listen at, it means any free port.
    if !listen && *ports.end() == 0 {
        return None;
    }
    Some(Addresses::Ip { udp, hosts, ports })
}

fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    if text == "*" {
        return Some(0..=u16::MAX);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first = number(first)?;
    let last = number(last)?;
    (first <= last).then_some(first..=last)
}

/// The text that [`Pattern::from_str`] accepts.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.listen {
            f.write_str(LISTEN)?;
        }
        match &self.addresses {
            Addresses::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            Addresses::Ip { udp, hosts, ports } => {
                let udp = if *udp { UDP } else { "" };
                write!(f, "{udp}{hosts}:")?;
                match (*ports.start(), *ports.end()) {
                    (0, u16::MAX) => f.write_str("*"),
                    (first, last) if first == last => first.fmt(f),
                    (first, last) => write!(f, "{first}-{last}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Whether `allowed` permits `address`, whose host is resolved to `resolved`, or is an address
    /// itself.
    fn permits(allowed: &str, address: &str, resolved: &str, origin: Origin) -> bool {
        let address: Address = address.parse().unwrap();
        let resolved = match (resolved, address.host_port().map(|target| &target.host)) {
            ("", Some(Host::Address(address))) => Some(*address),
            ("", _) => None,
            (resolved, _) => Some(resolved.parse().unwrap()),
        };
        pattern(allowed).permits(&address, resolved, origin)
    }

    #[test]
    fn arbitrary_text_never_panics_and_patterns_round_trip() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let texts = [text.clone(), format!("listen:{text}:*"), format!("[{text}/9]:1-2")];
            for text in texts {
                if let Ok(pattern) = text.parse::<Pattern>() {
                    assert_eq!(pattern.to_string().parse(), Ok(pattern));
                }
            }
        });
    }

    #[test]
    fn addresses_networks_and_ports_are_matched() {
        for (allowed, address, permitted) in [
            ("192.0.2.1:80", "192.0.2.1:80", true),
            ("192.0.2.1:80", "192.0.2.1:81", false),
            ("192.0.2.1:80", "udp:192.0.2.1:80", false),
            ("udp:192.0.2.1:80", "udp:192.0.2.1:80", true),
            ("192.0.2.0/24:80-90", "192.0.2.255:90", true),
            ("192.0.2.0/24:80-90", "192.0.3.0:90", false),
            ("192.0.2.0/24:80-90", "192.0.2.1:91", false),
            ("0.0.0.0/0:*", "127.0.0.1:1", true),
            ("0.0.0.0/0:*", "192.0.2.1:0", false),
            ("0.0.0.0/0:*", "[2001:db8::1]:1", false),
            ("[2001:db8::/32]:*", "[2001:db8:ffff::1]:1", true),
            ("[2001:db8::/32]:*", "[2001:db9::1]:1", false),
            ("[::/0]:*", "192.0.2.1:1", false),
            ("192.0.2.1:80", "[::ffff:192.0.2.1]:80", true),
            ("unix:/run/a", "unix:/run/a", true),
            ("unix:/run/a", "unix:/run/b", false),
            ("*:*", "unix:/run/a", false),
            ("listen:192.0.2.1:80", "192.0.2.1:80", false),
        ] {
            for origin in [Origin::Node, Origin::Session] {
                assert_eq!(permits(allowed, address, "", origin), permitted, "{allowed} {address}");
            }
        }
    }

    #[test]
    fn a_name_is_permitted_only_with_an_address_that_is_allowed() {
        for (allowed, address, resolved, permitted) in [
            ("db.example:1", "db.example:1", "192.0.2.1", true),
            ("db.example:1", "DB.example.:1", "192.0.2.1", true),
            ("db.example:1", "www.example:1", "192.0.2.1", false),
            ("db.example:1", "192.0.2.1:1", "", false),
            ("*.example:1", "db.example:1", "192.0.2.1", true),
            ("*.example:1", "a.db.example:1", "192.0.2.1", true),
            ("*.example:1", "example:1", "192.0.2.1", false),
            ("*.example:1", "dbexample:1", "192.0.2.1", false),
            // A name that is resolved to this machine, or to its link.
            ("db.example:1", "db.example:1", "127.0.0.1", false),
            ("*.example:1", "db.example:1", "::1", false),
            ("*:1", "db.example:1", "169.254.1.1", false),
            ("*:1", "db.example:1", "::ffff:127.0.0.1", false),
            ("*:1", "db.example:1", "0.0.0.0", false),
            ("*:1", "127.0.0.1:1", "", false),
            ("*:1", "db.example:1", "192.0.2.1", true),
            ("localhost:1", "localhost:1", "127.0.0.1", true),
            ("localhost:1", "localhost:1", "169.254.1.1", false),
            // A pattern of addresses permits each name that is resolved to one of them.
            ("127.0.0.0/8:1", "db.example:1", "127.0.0.1", true),
            ("192.0.2.0/24:1", "db.example:1", "192.0.2.9", true),
            ("192.0.2.0/24:1", "db.example:1", "127.0.0.1", false),
        ] {
            let found = permits(allowed, address, resolved, Origin::Node);
            assert_eq!(found, permitted, "{allowed} {address} {resolved}");
        }
        // The session only narrows: special addresses are the configuration's decision.
        assert!(permits("db.example:1", "db.example:1", "127.0.0.1", Origin::Session));
        assert!(permits("*:*", "db.example:1", "127.0.0.1", Origin::Session));
        assert!(!permits("192.0.2.0/24:1", "db.example:1", "127.0.0.1", Origin::Session));
    }

    #[test]
    fn patterns_that_share_no_address_do_not_overlap() {
        for (node, session, overlap) in [
            ("192.0.2.0/24:80", "192.0.2.7:80", true),
            ("192.0.2.0/24:80", "192.0.3.7:80", false),
            ("192.0.2.0/24:80", "192.0.2.7:*", true),
            ("192.0.2.7:80", "192.0.2.0/24:1-100", true),
            ("192.0.2.7:80", "192.0.2.0/24:81-100", false),
            ("192.0.2.7:80", "udp:192.0.2.7:80", false),
            ("192.0.2.7:80", "db.example:80", true),
            ("db.example:80", "192.0.2.7:80", false),
            ("db.example:80", "192.0.2.0/24:80", true),
            ("db.example:80", "www.example:80", false),
            ("db.example:80", "*.example:80", true),
            ("*.example:80", "db.example:80", true),
            ("*.example:80", "*.b.example:80", true),
            ("*.example:80", "*.test:80", false),
            ("*:80", "127.0.0.1:80", false),
            ("*:80", "127.0.0.0/8:80", true),
            ("127.0.0.1:80", "*:*", true),
            ("unix:/run/a", "unix:/run/a", true),
            ("unix:/run/a", "*:*", false),
            ("listen:127.0.0.1:*", "listen:127.0.0.1:0", true),
            ("listen:127.0.0.1:8080", "listen:127.0.0.1:0", false),
            ("listen:127.0.0.1:*", "127.0.0.1:1", false),
            ("127.0.0.1:*", "listen:127.0.0.1:1", false),
        ] {
            let found = pattern(node).overlaps(&pattern(session), Origin::Node);
            assert_eq!(found, overlap, "{node} {session}");
        }
        let may_permit =
            |named: &str, address: &str| pattern(named).may_permit(&address.parse().unwrap());
        assert!(
            may_permit("*:*", "127.0.0.1:80") && may_permit("192.0.2.0/24:80", "www.example:80")
        );
        assert!(
            !may_permit("192.0.2.1:80", "192.0.2.2:80")
                && !may_permit("a.example:80", "192.0.2.1:80")
        );
        assert!(!may_permit("listen:127.0.0.1:80", "127.0.0.1:80"));
    }

    #[test]
    fn a_pattern_of_one_address_is_detected() {
        for text in ["db.example:80", "192.0.2.1:80", "udp:[2001:db8::1]:53", "unix:/run/a"] {
            assert_eq!(pattern(text).single().unwrap().to_string(), text);
        }
        assert_eq!(pattern("listen:127.0.0.1:0").single().unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(pattern("192.0.2.1/32:80").to_string(), "192.0.2.1:80");
        for text in ["*:80", "*.example:80", "192.0.2.0/24:80", "db.example:*", "db.example:1-2"] {
            assert_eq!(pattern(text).single(), None);
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for text in [
            "",
            "*",
            "*:",
            "80",
            "**.example:1",
            "*example:1",
            "a.*.b:1",
            "192.0.2.0/33:1",
            "192.0.2.1/24:1",
            "192.0.2.0/:1",
            "2001:db8::/32:1",
            "[2001:db8::/129]:1",
            "[192.0.2.0/24]:1",
            "[::ffff:0:0/96]:1",
            "host/8:1",
            "host:2-1",
            "host:1-",
            "host:0",
            "host:1,2",
            "unix:a",
            "listen:host:1",
            "listen:*:1",
            "listen:udp:127.0.0.1:1",
            "udp:listen:127.0.0.1:1",
            "listen:",
            "listen:listen:127.0.0.1:1",
        ] {
            assert!(text.parse::<Pattern>().is_err(), "{text:?}");
        }
    }
}

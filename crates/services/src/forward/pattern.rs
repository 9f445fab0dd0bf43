//! Which addresses are allowed: the patterns of the configuration, and those of a session's parameters, which narrow
//! them.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use super::address::{Address, Host, MAX_ADDRESS, UDP, UNIX, name, number, socket_path, split};

/// In front of an address at which connections are accepted, to be carried to the client.
pub const LISTEN: &str = "listen:";

/// A set of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Addresses to listen at, not such to connect to.
    pub(super) listen: bool,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Place { udp: bool, hosts: Hosts, ports: RangeInclusive<u16> },
    Unix(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    /// `*`
    Any,
    Net(Net),
    Name(String),
    /// `*.example`: every name that ends so; the dot is a part of it.
    Suffix(String),
}

/// An address and how many of its bits count (CIDR, RFC 4632 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Net {
    address: IpAddr,
    bits: u8,
}

/// Not a pattern.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error(
    "{0:?} is no address or pattern: expected HOST:PORT, udp:HOST:PORT, unix:/PATH, or `listen:` and one of them; \
     HOST is a name, *.NAME, an address, ADDRESS/BITS (IPv6 in brackets) or *, PORT a number, FIRST-LAST or *"
)]
pub struct PatternError(String);

/// Who wrote patterns, and so what they are good for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The node's configuration. A name that it allows is not allowed to be a [special](is_special) address: whoever
    /// answers for the name would otherwise reach what nobody has allowed.
    Node,
    /// The session's parameters: they only narrow what the configuration allows.
    Session,
}

impl Pattern {
    /// Whether `address` is one of these. Of a place, `resolved` is the address that its host has now.
    pub(super) fn permits(&self, address: &Address, resolved: Option<IpAddr>, by: By) -> bool {
        if self.listen {
            return false;
        }
        let (place, over_udp) = match (address, &self.what) {
            (Address::Unix(path), What::Unix(allowed)) => return path == allowed,
            (Address::Tcp(place), _) => (place, false),
            (Address::Udp(place), _) => (place, true),
            (Address::Unix(_), What::Place { .. }) => return false,
        };
        let What::Place { udp, hosts, ports } = &self.what else { return false };
        let Some(resolved) = resolved else { return false };
        let port = place.port != 0 && ports.contains(&place.port);
        *udp == over_udp && port && hosts.permit(&place.host, resolved, by)
    }

    /// Whether `address` may be one of these, of a session's parameters, as far as can be said before its name is resolved.
    pub fn may_be(&self, address: &Address) -> bool {
        let one = address.to_string().parse();
        one.is_ok_and(|one| self.overlaps(&one, By::Session))
    }

    /// Whether something of `other` may be among these, as far as can be said before names are resolved.
    /// A single address is not among names, whatever they may be resolved to.
    pub(super) fn overlaps(&self, other: &Self, by: By) -> bool {
        if self.listen != other.listen {
            return false;
        }
        match (&self.what, &other.what) {
            (What::Unix(a), What::Unix(b)) => a == b,
            (
                What::Place { udp, hosts, ports },
                What::Place { udp: other_udp, hosts: other_hosts, ports: other_ports },
            ) => {
                let meet = ports.start() <= other_ports.end() && other_ports.start() <= ports.end();
                udp == other_udp && meet && hosts.overlap(other_hosts, by)
            }
            _ => false,
        }
    }

    /// The one address that this is; `None` if it may be several.
    pub fn single(&self) -> Option<Address> {
        let (udp, hosts, ports) = match &self.what {
            What::Unix(path) => return Some(Address::Unix(path.clone())),
            What::Place { udp, hosts, ports } => (*udp, hosts, ports),
        };
        let host = match hosts {
            Hosts::Name(name) => Host::Name(name.clone()),
            Hosts::Net(net) if net.is_single() => Host::Address(net.address),
            _ => return None,
        };
        let port = (ports.start() == ports.end()).then(|| *ports.start())?;
        Some(Address::Tcp(super::address::Place { host, port }).with_udp(udp))
    }
}

impl Hosts {
    fn permit(&self, host: &Host, resolved: IpAddr, by: By) -> bool {
        let harmless = by == By::Session || !is_special(resolved);
        match self {
            Self::Net(net) => net.contains(resolved),
            Self::Any => harmless,
            Self::Name(allowed) => {
                // That name is loopback by definition (RFC 6761 section 6.3): who allows it means that.
                let local = allowed == "localhost" && resolved.is_loopback();
                matches!(host, Host::Name(name) if name == allowed) && (harmless || local)
            }
            Self::Suffix(suffix) => {
                matches!(host, Host::Name(name) if name.ends_with(suffix)) && harmless
            }
        }
    }

    fn overlap(&self, other: &Self, by: By) -> bool {
        match (self, other) {
            (Self::Any, Self::Net(net)) if by == By::Node && net.is_single() => {
                !is_special(net.address)
            }
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Net(a), Self::Net(b)) => a.meets(*b),
            // One address is not a name, though a name may have it.
            (Self::Name(_) | Self::Suffix(_), Self::Net(net)) => !net.is_single(),
            (Self::Net(_), Self::Name(_) | Self::Suffix(_)) => true,
            (Self::Name(a), Self::Name(b)) => a == b,
            (Self::Name(name), Self::Suffix(suffix)) | (Self::Suffix(suffix), Self::Name(name)) => {
                name.ends_with(suffix)
            }
            (Self::Suffix(a), Self::Suffix(b)) => a.ends_with(b) || b.ends_with(a),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        if let Some(suffix) = text.strip_prefix("*.") {
            return Some(Self::Suffix(format!(".{}", name(suffix)?)));
        }
        let inner = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        let Some((address, bits)) = inner.unwrap_or(text).split_once('/') else {
            return Some(match Host::parse(text)? {
                Host::Name(name) => Self::Name(name),
                Host::Address(address) => Self::Net(Net::single(address)),
            });
        };
        let address: IpAddr = match inner {
            Some(_) => IpAddr::V6(address.parse().ok()?),
            None => IpAddr::V4(address.parse().ok()?),
        };
        // Of IPv4 within IPv6 nothing is left when addresses are compared.
        if address.to_canonical() != address {
            return None;
        }
        Net::new(address, u8::try_from(number(bits)?).ok()?).map(Self::Net)
    }
}

impl Net {
    /// `None` if there are not so many bits, or some that do not count are set: that is a slip, and could mean either.
    fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let net = Self { address, bits };
        let most = Self::single(address).bits;
        (bits <= most && net.head(address) == address_bits(address)).then_some(net)
    }

    fn single(address: IpAddr) -> Self {
        Self { address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    fn is_single(self) -> bool {
        self == Self::single(self.address)
    }

    fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.address.is_ipv4() == address.is_ipv4() && self.head(address) == self.head(self.address)
    }

    fn meets(self, other: Self) -> bool {
        let holds = |a: Self, b: Self| a.bits <= b.bits && a.contains(b.address);
        holds(self, other) || holds(other, self)
    }

    /// The bits of `address` that count.
    fn head(self, address: IpAddr) -> u128 {
        let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
        address_bits(address) & mask
    }
}

/// The bits of an address, from the highest on.
fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Addresses that mean this machine, this link, or many: a pattern that does not name them as addresses never allows
/// them (loopback, link-local, unspecified and "this network", multicast, broadcast; RFC 6890).
pub(super) fn is_special(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.octets()[0] == 0
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unicast_link_local()
                || v6.is_multicast()
                || v6.is_unspecified()
        }
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
        let what = parse_what(rest.unwrap_or(text), rest.is_some()).ok_or_else(wrong)?;
        Ok(Self { listen: rest.is_some(), what })
    }
}

fn parse_what(text: &str, listen: bool) -> Option<What> {
    if let Some(path) = text.strip_prefix(UNIX) {
        return socket_path(path).map(What::Unix);
    }
    let (udp, place) = match text.strip_prefix(UDP) {
        Some(place) => (true, place),
        None => (false, text),
    };
    let (hosts, ports) = split(place)?;
    let (hosts, ports) = (Hosts::parse(hosts)?, parse_ports(ports)?);
    // One listens for streams, and at addresses: a name says nothing about those of this machine.
    if listen && (udp || !matches!(hosts, Hosts::Net(_))) {
        return None;
    }
    // No connection goes to port 0; to listen there means at any free one.
    if !listen && *ports.end() == 0 {
        return None;
    }
    Some(What::Place { udp, hosts, ports })
}

fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    if text == "*" {
        return Some(0..=u16::MAX);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some(first..=last)
}

/// As it is read.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.listen {
            f.write_str(LISTEN)?;
        }
        match &self.what {
            What::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            What::Place { udp, hosts, ports } => {
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

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Name(name) => f.write_str(name),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
            Self::Net(net) if net.is_single() => Host::Address(net.address).fmt(f),
            Self::Net(Net { address: IpAddr::V4(address), bits }) => write!(f, "{address}/{bits}"),
            Self::Net(Net { address: IpAddr::V6(address), bits }) => {
                write!(f, "[{address}/{bits}]")
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

    /// Whether `allowed` permits `address`, whose host is resolved to `resolved`, or is an address itself.
    fn permits(allowed: &str, address: &str, resolved: &str, by: By) -> bool {
        let address: Address = address.parse().unwrap();
        let resolved = match (resolved, address.place().map(|place| &place.host)) {
            ("", Some(Host::Address(address))) => Some(*address),
            ("", _) => None,
            (resolved, _) => Some(resolved.parse().unwrap()),
        };
        pattern(allowed).permits(&address, resolved, by)
    }

    #[test]
    fn arbitrary_text_never_panics_and_what_is_written_is_read_again() {
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
    fn addresses_networks_and_ports_are_compared_as_numbers() {
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
            for by in [By::Node, By::Session] {
                assert_eq!(permits(allowed, address, "", by), permitted, "{allowed} {address}");
            }
        }
    }

    #[test]
    fn a_name_leads_only_where_its_rule_or_a_rule_for_addresses_allows() {
        for (allowed, address, resolved, permitted) in [
            ("db.example:1", "db.example:1", "192.0.2.1", true),
            ("db.example:1", "DB.example.:1", "192.0.2.1", true),
            ("db.example:1", "www.example:1", "192.0.2.1", false),
            ("db.example:1", "192.0.2.1:1", "", false),
            ("*.example:1", "db.example:1", "192.0.2.1", true),
            ("*.example:1", "a.db.example:1", "192.0.2.1", true),
            ("*.example:1", "example:1", "192.0.2.1", false),
            ("*.example:1", "dbexample:1", "192.0.2.1", false),
            // A name that is suddenly this machine, or its link.
            ("db.example:1", "db.example:1", "127.0.0.1", false),
            ("*.example:1", "db.example:1", "::1", false),
            ("*:1", "db.example:1", "169.254.1.1", false),
            ("*:1", "db.example:1", "::ffff:127.0.0.1", false),
            ("*:1", "db.example:1", "0.0.0.0", false),
            ("*:1", "127.0.0.1:1", "", false),
            ("*:1", "db.example:1", "192.0.2.1", true),
            ("localhost:1", "localhost:1", "127.0.0.1", true),
            ("localhost:1", "localhost:1", "169.254.1.1", false),
            // A rule for addresses holds for every name that has one of them, and for no other address of it.
            ("127.0.0.0/8:1", "db.example:1", "127.0.0.1", true),
            ("192.0.2.0/24:1", "db.example:1", "192.0.2.9", true),
            ("192.0.2.0/24:1", "db.example:1", "127.0.0.1", false),
        ] {
            let found = permits(allowed, address, resolved, By::Node);
            assert_eq!(found, permitted, "{allowed} {address} {resolved}");
        }
        // The session only narrows: what is special is for the node to say.
        assert!(permits("db.example:1", "db.example:1", "127.0.0.1", By::Session));
        assert!(permits("*:*", "db.example:1", "127.0.0.1", By::Session));
        assert!(!permits("192.0.2.0/24:1", "db.example:1", "127.0.0.1", By::Session));
    }

    #[test]
    fn what_can_never_be_permitted_does_not_overlap() {
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
            let found = pattern(node).overlaps(&pattern(session), By::Node);
            assert_eq!(found, overlap, "{node} {session}");
        }
        let may_be = |named: &str, address: &str| pattern(named).may_be(&address.parse().unwrap());
        assert!(may_be("*:*", "127.0.0.1:80") && may_be("192.0.2.0/24:80", "www.example:80"));
        assert!(!may_be("192.0.2.1:80", "192.0.2.2:80") && !may_be("a.example:80", "192.0.2.1:80"));
        assert!(!may_be("listen:127.0.0.1:80", "127.0.0.1:80"));
    }

    #[test]
    fn one_address_is_told_from_many() {
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
    fn what_is_no_pattern_is_refused() {
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

//! The host part of a pattern: any host, a network, a name or all names below one.

use std::fmt;
use std::net::IpAddr;

use super::address::{Host, name, number};

/// The hosts of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hosts {
    /// `*`
    Any,
    Net(Net),
    Name(String),
    /// `*.example`: all names that end with `.example`. The dot is part of the value.
    Suffix(String),
}

/// A network: an address and the length of its prefix (CIDR, RFC 4632 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Net {
    pub(super) address: IpAddr,
    bits: u8,
}

/// The source of a pattern, which decides about [special](is_special) addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The node's configuration. A name in it does not permit a special address: otherwise the
    /// operator of the name's DNS zone could give access to this machine or its local network.
    Node,
    /// The session's parameters: they only narrow what the configuration allows.
    Session,
}

impl Hosts {
    /// Whether `host`, which is resolved to `resolved`, is one of these.
    pub(super) fn permit(&self, host: &Host, resolved: IpAddr, origin: Origin) -> bool {
        let ordinary = origin == Origin::Session || !is_special(resolved);
        match self {
            Self::Net(net) => net.contains(resolved),
            Self::Any => ordinary,
            Self::Name(allowed) => {
                // `localhost` is loopback by definition (RFC 6761 section 6.3).
                let local = allowed == "localhost" && resolved.is_loopback();
                matches!(host, Host::Name(name) if name == allowed) && (ordinary || local)
            }
            Self::Suffix(suffix) => {
                matches!(host, Host::Name(name) if name.ends_with(suffix)) && ordinary
            }
        }
    }

    /// Whether one of `other` may be one of these, before names are resolved.
    pub(super) fn overlap(&self, other: &Self, origin: Origin) -> bool {
        match (self, other) {
            (Self::Any, Self::Net(net)) if origin == Origin::Node && net.is_single() => {
                !is_special(net.address)
            }
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Net(a), Self::Net(b)) => a.overlaps(*b),
            // A single address is not a name, although a name may be resolved to it.
            (Self::Name(_) | Self::Suffix(_), Self::Net(net)) => !net.is_single(),
            (Self::Net(_), Self::Name(_) | Self::Suffix(_)) => true,
            (Self::Name(a), Self::Name(b)) => a == b,
            (Self::Name(name), Self::Suffix(suffix)) | (Self::Suffix(suffix), Self::Name(name)) => {
                name.ends_with(suffix)
            }
            (Self::Suffix(a), Self::Suffix(b)) => a.ends_with(b) || b.ends_with(a),
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
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
        // IPv4-mapped networks would match nothing: addresses are compared in their IPv4 form.
        if address.to_canonical() != address {
            return None;
        }
        Net::new(address, u8::try_from(number(bits)?).ok()?).map(Self::Net)
    }
}

impl Net {
    /// `None` if `bits` is too large, or a bit of `address` after the prefix is set, which is a
    /// mistake with two possible meanings.
    fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let net = Self { address, bits };
        let most = Self::single(address).bits;
        (bits <= most && net.prefix(address) == address_bits(address)).then_some(net)
    }

    fn single(address: IpAddr) -> Self {
        Self { address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    pub(super) fn is_single(self) -> bool {
        self == Self::single(self.address)
    }

    fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.address.is_ipv4() == address.is_ipv4()
            && self.prefix(address) == self.prefix(self.address)
    }

    fn overlaps(self, other: Self) -> bool {
        let holds = |a: Self, b: Self| a.bits <= b.bits && a.contains(b.address);
        holds(self, other) || holds(other, self)
    }

    /// The bits of `address` in the prefix.
    fn prefix(self, address: IpAddr) -> u128 {
        let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
        address_bits(address) & mask
    }
}

/// The bits of an address, aligned to the highest bit.
fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Addresses of this machine, of its link, or of several machines: only a pattern with an address
/// permits them (loopback, link-local, unspecified and "this network", multicast, broadcast; RFC
/// 6890).
fn is_special(address: IpAddr) -> bool {
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

//! Where a forwarded connection goes, as one types it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// In front of an address to which datagrams are sent.
pub(super) const UDP: &str = "udp:";
/// In front of the path of a Unix socket.
pub(super) const UNIX: &str = "unix:";
/// The longest text of an address, in bytes.
pub const MAX_ADDRESS: usize = 512;
/// The longest name of a host, in bytes (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 253;
/// The longest path of a Unix socket, in bytes: `sun_path` without its last byte (unix(7)).
const MAX_PATH: usize = 107;

/// Where a connection goes, or where one listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Tcp(Place),
    /// Datagrams of UDP.
    Udp(Place),
    /// A Unix socket, by its absolute path.
    Unix(PathBuf),
}

/// A host and one of its ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The host.
    pub host: Host,
    /// The port; 0 stands for a free one where one listens, and for nothing elsewhere.
    pub port: u16,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// By its address. An IPv4 address within IPv6 (RFC 4291 section 2.5.5.2) is an IPv4 address.
    Address(IpAddr),
    /// By its name, in lower case and without a dot at the end.
    Name(String),
}

/// Not an address.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{0:?} is no address: expected HOST:PORT, [IPV6]:PORT, udp:HOST:PORT or unix:/PATH")]
pub struct AddressError(pub(super) String);

impl Address {
    /// TCP to this place, or datagrams to it.
    pub fn with_udp(self, udp: bool) -> Self {
        match self {
            Self::Tcp(place) | Self::Udp(place) if udp => Self::Udp(place),
            other => other,
        }
    }

    /// The host and the port of datagrams; `None` of what carries bytes.
    pub(super) fn udp_place(&self) -> Option<&Place> {
        match self {
            Self::Udp(place) => Some(place),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// The host and the port, if there are any.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Tcp(place) | Self::Udp(place) => Some(place),
            Self::Unix(_) => None,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.chars().take(MAX_ADDRESS).collect());
        if text.len() > MAX_ADDRESS {
            return Err(wrong());
        }
        if let Some(path) = text.strip_prefix(UNIX) {
            return socket_path(path).map(Self::Unix).ok_or_else(wrong);
        }
        let (udp, place) = match text.strip_prefix(UDP) {
            Some(place) => (true, place),
            None => (false, text),
        };
        let (host, port) = split(place).ok_or_else(wrong)?;
        let place = Place {
            host: Host::parse(host).ok_or_else(wrong)?,
            port: number(port).ok_or_else(wrong)?,
        };
        Ok(Self::Tcp(place).with_udp(udp))
    }
}

/// As it is read.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => place.fmt(f),
            Self::Udp(place) => write!(f, "{UDP}{place}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Host {
    /// Reads an address or a name; an IPv6 address stands in brackets.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('[') {
            let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
            return Some(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        match text.parse() {
            Ok(address) => Some(Self::Address(IpAddr::V4(address))),
            Err(_) => name(text).map(Self::Name),
        }
    }
}

impl FromStr for Host {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text).ok_or_else(|| AddressError(text.chars().take(MAX_ADDRESS).collect()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Host and port of `HOST:PORT`; the host keeps its brackets.
pub(super) fn split(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    // An IPv6 address without brackets could end with anything.
    let bracketed = host.starts_with('[') && host.ends_with(']');
    (bracketed || !host.contains(':')).then_some((host, port))
}

/// A port, in digits: the standard parser would take a sign.
pub(super) fn number(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// A host's name: labels of letters, digits, `-` and `_` (RFC 1123 section 2.1, and what is used all the same). The last
/// one has a letter: what looks like a number could be taken for an address by a resolver, which this side would not see.
pub(super) fn name(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(plain);
    let last = text.rsplit('.').next()?;
    let hexadecimal = last.starts_with("0x") || last.starts_with("0X");
    let named = last.bytes().any(|byte| byte.is_ascii_alphabetic()) && !hexadecimal;
    let fits = text.len() <= MAX_NAME && named && text.split('.').all(label);
    fits.then(|| text.to_ascii_lowercase())
}

/// The path of a Unix socket: absolute, as short as the system demands, and without detours.
pub(super) fn socket_path(text: &str) -> Option<PathBuf> {
    let parts = text.strip_prefix('/')?.split('/');
    let direct = parts.into_iter().all(|part| !part.is_empty() && part != "." && part != "..");
    let fits = text.len() <= MAX_PATH && !text.contains(char::is_control);
    (direct && fits).then(|| Path::new(text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbitrary_text_never_panics_and_what_is_written_is_read_again() {
        bolero::check!().with_type::<String>().for_each(|text| {
            for text in [text.clone(), format!("udp:{text}:1"), format!("unix:/{text}")] {
                if let Ok(address) = text.parse::<Address>() {
                    assert_eq!(address.to_string().parse(), Ok(address));
                }
            }
        });
    }

    #[test]
    fn addresses_are_read_and_written_in_one_form() {
        for (typed, written) in [
            ("host:80", "host:80"),
            ("Host.Example.:80", "host.example:80"),
            ("192.0.2.1:0", "192.0.2.1:0"),
            ("[2001:DB8::1]:22", "[2001:db8::1]:22"),
            ("[::ffff:192.0.2.1]:22", "192.0.2.1:22"),
            ("udp:192.0.2.1:53", "udp:192.0.2.1:53"),
            ("udp:[::1]:53", "udp:[::1]:53"),
            ("unix:/run/a b.sock", "unix:/run/a b.sock"),
            ("xn--bcher-kva.example:443", "xn--bcher-kva.example:443"),
            ("_a.b-c.1x:65535", "_a.b-c.1x:65535"),
        ] {
            assert_eq!(typed.parse::<Address>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let long = format!("{}:80", "a.".repeat(127) + "a");
        for text in [
            "",
            "host",
            "host:",
            ":80",
            "host:80x",
            "host:+80",
            "host:65536",
            "2001:db8::1:22",
            "[2001:db8::1]22",
            "[192.0.2.1]:80",
            "[::1%eth0]:80",
            "192.0.2:80",
            "127.1:80",
            "0x7f.1:80",
            "2130706433:80",
            "host.0x7f:80",
            "ho st:80",
            "höst:80",
            "a..b:80",
            "unix:",
            "unix:run/a",
            "unix:/",
            "unix:/run/../a",
            "unix:/run//a",
            "unix:/run/a/",
            "unix:/run/\n",
            "udp:unix:/a",
            "udp:host",
            "*:80",
            "host:*",
            &long,
        ] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
        assert!(format!("unix:/{}", "a".repeat(107)).parse::<Address>().is_err());
        assert!("a".repeat(600).parse::<Address>().unwrap_err().to_string().len() < 700);
    }
}

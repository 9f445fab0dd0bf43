//! Addresses of forwarded connections, as typed.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// The prefix of a UDP address.
pub(super) const UDP: &str = "udp:";
/// The prefix of the path of a Unix socket.
pub(super) const UNIX: &str = "unix:";
/// The longest text of an address, in bytes.
pub const MAX_ADDRESS: usize = 512;
/// The longest name of a host, in bytes (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 253;
/// The longest path of a Unix socket, in bytes: `sun_path` without its last byte (unix(7)).
const MAX_PATH: usize = 107;

/// An address to connect to or to listen at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Tcp(HostPort),
    /// UDP.
    Udp(HostPort),
    /// A Unix socket, by its absolute path.
    Unix(PathBuf),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The host.
    pub host: Host,
    /// The port. 0 means any free port to listen at, and is not valid to connect to.
    pub port: u16,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An IP address. An IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2) becomes an IPv4
    /// address.
    Address(IpAddr),
    /// A name, in lower case and without a dot at the end.
    Name(String),
}

/// Not an address.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{0:?} is not an address: expected HOST:PORT, [IPV6]:PORT, udp:HOST:PORT or unix:/PATH")]
pub struct AddressError(pub(super) String);

impl Address {
    /// With `udp`, a TCP address becomes a UDP address; others stay as they are.
    pub fn with_udp(self, udp: bool) -> Self {
        match self {
            Self::Tcp(target) | Self::Udp(target) if udp => Self::Udp(target),
            other => other,
        }
    }

    /// The host and the port of a UDP address; `None` for others.
    pub(super) fn udp_target(&self) -> Option<&HostPort> {
        match self {
            Self::Udp(target) => Some(target),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// The host and the port; `None` for a Unix socket.
    pub fn host_port(&self) -> Option<&HostPort> {
        match self {
            Self::Tcp(target) | Self::Udp(target) => Some(target),
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
        let (udp, rest) = match text.strip_prefix(UDP) {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (host, port) = split(rest).ok_or_else(wrong)?;
        let target = HostPort {
            host: Host::parse(host).ok_or_else(wrong)?,
            port: number(port).ok_or_else(wrong)?,
        };
        Ok(Self::Tcp(target).with_udp(udp))
    }
}

/// The text that [`Address::from_str`] accepts.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(target) => target.fmt(f),
            Self::Udp(target) => write!(f, "{UDP}{target}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Host {
    /// Parses an address or a name; an IPv6 address is in brackets.
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
    // In an IPv6 address without brackets the last group could be the port.
    let bracketed = host.starts_with('[') && host.ends_with(']');
    (bracketed || !host.contains(':')).then_some((host, port))
}

/// A port in digits; the standard parser accepts a sign.
pub(super) fn number(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// A host's name: labels of letters, digits, `-` (RFC 1123 section 2.1), and of `_`, which is also
/// in use. The last label has a letter: a resolver could read a number as an address, without a
/// check of that address here.
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

/// The path of a Unix socket: absolute, within the system's limit, and without `.`, `..` and empty
/// components.
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
    fn arbitrary_text_never_panics_and_addresses_round_trip() {
        bolero::check!().with_type::<String>().for_each(|text| {
            for text in [text.clone(), format!("udp:{text}:1"), format!("unix:/{text}")] {
                if let Ok(address) = text.parse::<Address>() {
                    assert_eq!(address.to_string().parse(), Ok(address));
                }
            }
        });
    }

    #[test]
    fn addresses_have_one_canonical_form() {
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
    fn invalid_addresses_are_refused() {
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

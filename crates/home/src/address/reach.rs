//! The machines that can use an address, by its text alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::split;

/// The machines that can use an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Every machine, as far as its text shows: a name, or a public address.
    Everywhere,
    /// Machines of the same private network (RFC 1918, RFC 4193, RFC 6598).
    PrivateNetwork,
    /// This machine.
    ThisMachine,
}

impl Reach {
    /// The limit for users; `None` if there is none.
    pub fn limit(self) -> Option<&'static str> {
        match self {
            Self::Everywhere => None,
            Self::PrivateNetwork => Some("private network"),
            Self::ThisMachine => Some("this machine"),
        }
    }
}

/// The machines that can use this address.
pub fn reach(text: &str) -> Reach {
    let Ok(address) = split(text).0.parse::<SocketAddr>() else { return Reach::Everywhere };
    match address.ip().to_canonical() {
        ip if ip.is_loopback() => Reach::ThisMachine,
        IpAddr::V4(ip) if ip.is_private() || is_shared(ip) => Reach::PrivateNetwork,
        IpAddr::V6(ip) if ip.is_unique_local() => Reach::PrivateNetwork,
        _ => Reach::Everywhere,
    }
}

/// Returns true for 100.64.0.0/10, the addresses behind the NAT of a carrier (RFC 6598).
fn is_shared(ip: Ipv4Addr) -> bool {
    let [first, second, ..] = ip.octets();
    first == 100 && second & 0xc0 == 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_loopback_addresses_are_recognised() {
        for text in ["box.example:1", "192.0.2.1:1", "[2001:db8::1]:1", "100.128.0.1:1"] {
            assert_eq!(reach(text), Reach::Everywhere, "{text}");
        }
        for text in ["10.0.0.1:1", "172.16.0.1:1", "192.168.1.7:1", "100.64.0.1:1", "[fd00::1]:1"] {
            assert_eq!(reach(text), Reach::PrivateNetwork, "{text}");
        }
        for text in ["127.0.0.1:1", "[::1]:1", "127.0.0.1:1@0123456789abcdef0123"] {
            assert_eq!(reach(text), Reach::ThisMachine, "{text}");
        }
    }
}

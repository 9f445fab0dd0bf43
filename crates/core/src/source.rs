//! The source of a connection, which limits are counted by.

use std::net::IpAddr;

/// The source that an address belongs to: the IPv4 address, or the /64 prefix of an IPv6 address,
/// which commonly belongs to one host (RFC 4291 section 2.5.4).
pub fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) & (u128::MAX << 64)).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_hosts() {
        let source = |text: &str| source_of(text.parse().unwrap()).to_string();
        assert_eq!(source("192.0.2.7"), "192.0.2.7");
        assert_eq!(source("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(source("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}

//! Resolves host names for [`super::client`]. A server must not lead this machine to addresses that
//! the server itself may not reach, by a redirect or by another answer of the DNS: server-side
//! request forgery.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use thiserror::Error;
use ureq::Error as HttpError;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Resolves each name to public addresses, and to those of the kinds that the first name had.
#[derive(Debug, Default)]
pub struct SameKind {
    resolver: DefaultResolver,
    first: OnceLock<BTreeSet<Kind>>,
}

/// From where an address can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// This machine.
    Loopback,
    /// This link.
    LinkLocal,
    /// This site, and what is reserved.
    Private,
    /// Anywhere.
    Public,
}

/// The host of a redirect has none of the permitted addresses.
#[derive(Debug, Error)]
#[error(
    "it leads to {0}, which has only addresses of this machine or network, unlike the server itself"
)]
pub struct LeadsInside(String);

impl Resolver for SameKind {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, HttpError> {
        let found = self.resolver.resolve(uri, config, timeout)?;
        let kinds = || found.iter().map(|address| kind_of(address.ip())).collect();
        let permitted = self.first.get_or_init(kinds);
        let mut all = self.empty();
        for address in found.iter() {
            let kind = kind_of(address.ip());
            if kind == Kind::Public || permitted.contains(&kind) {
                all.push(*address);
            }
        }
        if all.is_empty() {
            let host = uri.host().unwrap_or_default().to_owned();
            return Err(HttpError::Io(io::Error::other(LeadsInside(host))));
        }
        Ok(all)
    }
}

fn kind_of(ip: IpAddr) -> Kind {
    match ip.to_canonical() {
        IpAddr::V4(ip) => kind_of_v4(ip),
        IpAddr::V6(ip) => kind_of_v6(ip),
    }
}

fn kind_of_v4(ip: Ipv4Addr) -> Kind {
    let [first, second, ..] = ip.octets();
    match first {
        // 0.0.0.0 leads to this machine.
        0 | 127 => Kind::Loopback,
        169 if second == 254 => Kind::LinkLocal,
        // RFC 6598.
        100 if second & 0xc0 == 64 => Kind::Private,
        // Multicast, reserved, broadcast.
        224.. => Kind::Private,
        _ if ip.is_private() => Kind::Private,
        _ => Kind::Public,
    }
}

fn kind_of_v6(ip: Ipv6Addr) -> Kind {
    let [a, b, c, .., g, h] = ip.segments();
    let embedded = |high: u16, low: u16| {
        let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
        kind_of_v4(Ipv4Addr::new(a, b, c, d))
    };
    match a {
        _ if ip.is_loopback() || ip.is_unspecified() => Kind::Loopback,
        _ if ip.is_unicast_link_local() => Kind::LinkLocal,
        // NAT64 (RFC 6052) and 6to4 (RFC 3056) lead to an IPv4 address.
        0x64 if b == 0xff9b => embedded(g, h),
        0x2002 => embedded(b, c),
        0x2000..=0x3fff => Kind::Public,
        _ => Kind::Private,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_kind_of_where_they_lead() {
        for (kind, addresses) in [
            (
                Kind::Loopback,
                &["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"][..],
            ),
            (Kind::Loopback, &["64:ff9b::7f00:1", "2002:7f00:1::"]),
            (Kind::LinkLocal, &["169.254.169.254", "fe80::1"]),
            (Kind::Private, &["10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd00::1"]),
            (Kind::Private, &["224.0.0.1", "255.255.255.255", "ff02::1", "100::1"]),
            (
                Kind::Public,
                &["192.0.2.1", "100.63.0.1", "172.32.0.1", "2001:db8::1", "2002:c000:201::"],
            ),
        ] {
            for address in addresses {
                assert_eq!(kind_of(address.parse().unwrap()), kind, "{address}");
            }
        }
    }

    #[test]
    fn a_redirect_leads_to_public_addresses_or_to_the_kind_of_the_first() {
        let timeout = NextTimeout {
            after: ureq::unversioned::transport::time::Duration::NotHappening,
            reason: ureq::Timeout::Resolve,
            per_read: None,
            per_write: None,
        };
        let lead = |first: &str, second: &str| {
            let resolver = SameKind::default();
            let resolve = |host: &str| {
                let uri = format!("http://{host}/").parse().unwrap();
                resolver.resolve(&uri, &Config::default(), timeout)
            };
            resolve(first).unwrap();
            resolve(second).map(|found| found.len())
        };
        for (first, second) in
            [("192.0.2.1", "192.0.2.2"), ("127.0.0.1", "[::1]"), ("10.0.0.1", "192.0.2.1")]
        {
            assert_eq!(lead(first, second).unwrap(), 1, "{first} to {second}");
        }
        for (first, second) in [
            ("192.0.2.1", "127.0.0.1"),
            ("192.0.2.1", "169.254.169.254"),
            ("192.0.2.1", "[fd00::1]"),
            ("10.0.0.1", "127.0.0.1:5383"),
        ] {
            let error = lead(first, second).unwrap_err().to_string();
            assert!(error.contains("only addresses of this machine or network"), "{error}");
        }
    }
}

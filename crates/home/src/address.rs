//! Addresses as text, in pins, invitations and capabilities. They are hints and are not
//! authenticated.
//!
//! `HOST:PORT` means the same on every machine. An address of loopback or of a single link does
//! not: its text is `HOST:PORT@TAG`, and it is dialled only on the machine with this TAG. Without a
//! tag, such an address is dialled only if the user types it, and then gets the tag of this
//! machine.

mod machine;
mod own;
mod reach;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use tokio::net::lookup_host;
use tokio::time::timeout;

pub use own::{published, reachable};
pub use reach::{Reach, reach};

/// Maximum length of an address in bytes: that of a name in a text form (`docs/protocol.md`, "Text
/// forms").
const MAX_ADDRESS: usize = 255;
/// How long the resolution of a name may take.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of addresses of one name that are tried.
const MAX_OF_NAME: usize = 16;

/// Why a text is not an address that other machines can use.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum AdvertiseError {
    /// It is not `HOST:PORT`.
    #[error("expected HOST:PORT, such as box.example:5382, 192.0.2.1:5382 or [2001:db8::1]:5382")]
    Form,
    /// It is of loopback, of a single link, or of no host.
    #[error(
        "it is an address of loopback, of one link, or of no host: other machines cannot use it"
    )]
    Local,
}

/// Checks an address for other machines: a DNS name, or an IPv4 or IPv6 address that means the same
/// everywhere, with its port.
///
/// # Errors
/// [`AdvertiseError`] names the fault.
pub fn advertised(text: &str) -> Result<String, AdvertiseError> {
    let (host, port) = text.rsplit_once(':').ok_or(AdvertiseError::Form)?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if text.len() > MAX_ADDRESS || !is_number || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(AdvertiseError::Form);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        let ip = address.ip();
        let is_usable = !is_local(ip) && !ip.is_multicast() && !text.contains('%');
        return if is_usable { Ok(text.to_owned()) } else { Err(AdvertiseError::Local) };
    }
    match is_name(host) {
        false => Err(AdvertiseError::Form),
        true if is_localhost(host) => Err(AdvertiseError::Local),
        true => Ok(text.to_owned()),
    }
}

/// Whether `host` is a host name: labels of letters, digits, `-` and `_`, the last with a letter,
/// which distinguishes it from an address (RFC 1123 section 2.1).
fn is_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let mut labels = host.split('.');
    let all = labels.clone().all(|one| (1..=63).contains(&one.len()) && one.bytes().all(plain));
    let last = labels.next_back().unwrap_or_default();
    all && host.len() <= 253 && last.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Whether `host` is a name of loopback (RFC 6761 section 6.3).
fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

/// Whether `ip` means another host, or none, on another machine: it is loopback, link-local or
/// unspecified.
fn is_local(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified(),
    }
}

/// The text of an address of this machine, or of one that was announced to it.
pub fn of_socket(address: &SocketAddr) -> String {
    if is_local(address.ip()) { tagged(&address.to_string()) } else { address.to_string() }
}

/// The text of a socket address, for a list that other processes use; `None` if they could not.
pub fn handed_out(address: &SocketAddr) -> Option<String> {
    let ip = address.ip();
    let is_usable = !is_local(ip) || (ip.to_canonical().is_loopback() && machine::is_known());
    is_usable.then(|| of_socket(address))
}

/// The addresses for one that the user typed. It is always dialled, so the tag of this machine is
/// added where it may be of this machine.
pub fn typed(text: &str) -> Vec<String> {
    let (host_port, _) = split(text);
    match host_port.parse::<SocketAddr>() {
        Ok(address) if is_local(address.ip()) => vec![tagged(host_port)],
        Ok(_) => vec![host_port.to_owned()],
        Err(_) => {
            let host = host_port.rsplit_once(':').map_or(host_port, |(host, _)| host);
            let everywhere = (!is_localhost(host)).then(|| host_port.to_owned());
            // `/etc/hosts` may map the name to loopback.
            everywhere.into_iter().chain([tagged(host_port)]).collect()
        }
    }
}

/// The text for users: without the tag of this machine.
pub fn shown(text: &str) -> &str {
    match split(text) {
        (host_port, Some(tag)) if tag == machine::tag() => host_port,
        _ => text,
    }
}

/// Whether it may be dialled on this machine, by its text alone.
pub fn is_usable(text: &str) -> bool {
    match split(text) {
        (_, Some(tag)) => tag == machine::tag(),
        (host_port, None) => {
            !host_port.parse::<SocketAddr>().is_ok_and(|address| is_local(address.ip()))
        }
    }
}

/// Whether it is an address of a single link, which other machines cannot use.
pub fn is_of_link(text: &str) -> bool {
    let ip = split(text).0.parse::<SocketAddr>().map(|address| address.ip());
    ip.is_ok_and(|ip| is_local(ip) && !ip.to_canonical().is_loopback())
}

/// Resolves an address to socket addresses, both families in turn (RFC 8305 section 4). Without a
/// tag, those of this machine are left out.
///
/// # Errors
/// The error of the resolver; `TimedOut` after 5 s; `NotFound` if no address is left.
pub async fn resolve(text: &str) -> io::Result<Vec<SocketAddr>> {
    let not_found = |text| Err(io::Error::new(io::ErrorKind::NotFound, text));
    if !is_usable(text) {
        return not_found("an address of another machine's loopback, or of one link");
    }
    let (host_port, tag) = split(text);
    let mut found: Vec<SocketAddr> = Vec::new();
    for address in timeout(RESOLVE_TIMEOUT, lookup_host(host_port)).await?? {
        let is_usable = tag.is_some() || !is_local(address.ip());
        if is_usable && found.len() < MAX_OF_NAME && !found.contains(&address) {
            found.push(address);
        }
    }
    if found.is_empty() {
        return not_found("the name has no address, or none but loopback");
    }
    Ok(interleave(found))
}

/// Alternates between the two families, beginning with that of the first address.
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let mut first = first.into_iter();
    let mut second = second.into_iter();
    let mut interleaved = Vec::new();
    loop {
        match (first.next(), second.next()) {
            (None, None) => return interleaved,
            (one, other) => interleaved.extend(one.into_iter().chain(other)),
        }
    }
}

fn tagged(host_port: &str) -> String {
    format!("{host_port}@{}", machine::tag())
}

/// Splits `HOST:PORT@TAG` into `HOST:PORT` and the tag, if there is one.
fn split(text: &str) -> (&str, Option<&str>) {
    text.rsplit_once('@').map_or((text, None), |(host_port, tag)| (host_port, Some(tag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_addresses_that_other_machines_can_use() {
        for good in [
            "box.example:5382",
            "box:1",
            "box.example.:65535",
            "192.0.2.1:5382",
            "[2001:db8::1]:5382",
            "10.0.0.1:5382",
            "xn--bcher-kva.example:443",
        ] {
            assert_eq!(advertised(good).as_deref(), Ok(good));
        }
        for local in [
            "127.0.0.1:1",
            "[::1]:1",
            "0.0.0.0:1",
            "[::]:1",
            "169.254.1.1:1",
            "[fe80::1]:1",
            "[fe80::1%2]:1",
            "[::ffff:127.0.0.1]:1",
            "224.0.0.1:1",
            "localhost:1",
            "a.Localhost.:1",
        ] {
            assert_eq!(advertised(local), Err(AdvertiseError::Local), "{local}");
        }
        let long = format!("{}:1", "a.".repeat(127));
        for wrong in [
            "",
            "box",
            "box:",
            ":1",
            "box:0",
            "box:+1",
            "box:65536",
            "2001:db8::1:1",
            "a b:1",
            "127.1:1",
            "box:1@tag",
            &long,
        ] {
            assert_eq!(advertised(wrong), Err(AdvertiseError::Form), "{wrong}");
        }
    }

    #[test]
    fn local_addresses_have_a_tag_and_only_that_of_this_machine_is_dialled() {
        for local in ["127.0.0.1:7", "[::1]:7", "169.254.0.1:7", "[fe80::1%2]:7", "0.0.0.0:7"] {
            let text = of_socket(&local.parse().unwrap());
            assert!(text.len() > local.len() + 10 && text.starts_with(&format!("{local}@")));
            assert!(is_usable(&text) && !is_usable(local));
            assert!(!is_usable(&format!("{local}@0123456789abcdef0123")));
            assert_eq!((shown(&text), &typed(local)[..]), (local, &[text.clone()][..]));
            // A pasted address with the tag of another machine.
            assert_eq!(typed(&format!("{local}@0123456789abcdef0123")), [text]);
        }
        let global = "192.0.2.1:7";
        assert_eq!(of_socket(&global.parse().unwrap()), global);
        assert_eq!(typed(global), [global]);
        assert!(is_usable(global) && is_usable("box.example:7"));
        let foreign = "127.0.0.1:7@0123456789abcdef0123";
        assert_eq!(shown(foreign), foreign);
        assert_eq!(handed_out(&"169.254.0.1:7".parse().unwrap()), None);
    }

    #[tokio::test]
    async fn resolves_to_loopback_only_if_typed() {
        assert!(resolve("localhost:7").await.is_err());
        assert!(resolve("127.0.0.1:7").await.is_err());
        let [localhost] = &typed("localhost:7")[..] else { panic!("two addresses") };
        assert!(resolve(localhost).await.unwrap().iter().all(|found| found.ip().is_loopback()));
        assert_eq!(typed("box:7").len(), 2);
        assert_eq!(resolve("192.0.2.1:7").await.unwrap(), ["192.0.2.1:7".parse().unwrap()]);
    }

    #[test]
    fn interleaves_the_families() {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let given = all(&["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", "192.0.2.1:1"]);
        let expected: Vec<SocketAddr> =
            all(&["[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1", "[2001:db8::3]:1"]);
        assert_eq!(interleave(given), expected);
    }

    #[test]
    fn arbitrary_text_never_panics() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let _ = (advertised(text), shown(text), is_usable(text), typed(text));
        });
    }
}

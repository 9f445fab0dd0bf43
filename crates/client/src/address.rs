//! Addresses as text, in pins, invitations and capabilities: hints, never trusted.
//!
//! `HOST:PORT` means the same on every machine. An address of loopback or of a single link does not: it is written
//! `HOST:PORT@TAG`, and is dialled only where TAG stands for this machine ([`machine`]). Without a tag, only an address that
//! the user types is dialled; [`typed`] gives it this machine's.

mod machine;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// The longest address, in bytes: a name in a text form (`docs/protocol.md`, "Text forms").
const MAX_ADDRESS: usize = 255;
/// How long a name may take to be resolved.
const RESOLVE: Duration = Duration::from_secs(5);
/// Addresses of one name that are tried.
const MOST_OF_NAME: usize = 16;

/// Not an address that other machines can use.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum AdvertiseError {
    /// It has another form.
    #[error("expected HOST:PORT, such as box.example:5382, 192.0.2.1:5382 or [2001:db8::1]:5382")]
    Form,
    /// It leads to whatever machine dials it, or to no machine.
    #[error(
        "it is an address of loopback, of one link, or of no host: other machines cannot use it"
    )]
    Local,
}

/// An address for others: a DNS name, or an IPv4 or IPv6 address that means the same everywhere, with its port.
///
/// # Errors
/// [`AdvertiseError`] says what is wrong.
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

/// A host's name: labels of letters, digits, `-` and `_`; the last has a letter, so that it is no address (RFC 1123
/// section 2.1).
fn is_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let mut labels = host.split('.');
    let all = labels.clone().all(|one| (1..=63).contains(&one.len()) && one.bytes().all(plain));
    let last = labels.next_back().unwrap_or_default();
    all && host.len() <= 253 && last.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Names of loopback (RFC 6761 section 6.3).
fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

/// Whether `ip` means another host, or none, on another machine: loopback, link-local, unspecified.
fn is_local(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified(),
    }
}

/// The text of an address of this machine, or of one that was announced to it.
pub(crate) fn of_socket(address: &SocketAddr) -> String {
    if is_local(address.ip()) { tagged(&address.to_string()) } else { address.to_string() }
}

/// As [`of_socket`], for a list that is handed out; `None` if another process could not use it.
pub fn handed_out(address: &SocketAddr) -> Option<String> {
    let ip = address.ip();
    let is_usable = !is_local(ip) || (ip.to_canonical().is_loopback() && machine::is_known());
    is_usable.then(|| of_socket(address))
}

/// The addresses that an address typed by the user stands for. It is always dialled, so one that could mean this
/// machine has its tag.
pub(crate) fn typed(text: &str) -> Vec<String> {
    let (place, _) = split(text);
    match place.parse::<SocketAddr>() {
        Ok(address) if is_local(address.ip()) => vec![tagged(place)],
        Ok(_) => vec![place.to_owned()],
        Err(_) => {
            let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
            let everywhere = (!is_localhost(host)).then(|| place.to_owned());
            // The name may stand for loopback in `/etc/hosts`.
            everywhere.into_iter().chain([tagged(place)]).collect()
        }
    }
}

/// As people read it: without the tag of this machine.
pub fn shown(text: &str) -> &str {
    match split(text) {
        (place, Some(tag)) if tag == machine::tag() => place,
        _ => text,
    }
}

/// Whether it may be dialled here, as far as its text says.
pub(crate) fn is_usable(text: &str) -> bool {
    match split(text) {
        (_, Some(tag)) => tag == machine::tag(),
        (place, None) => !place.parse::<SocketAddr>().is_ok_and(|address| is_local(address.ip())),
    }
}

/// Whether it is an address of a single link: another machine has no use for it.
pub(crate) fn is_of_link(text: &str) -> bool {
    let ip = split(text).0.parse::<SocketAddr>().map(|address| address.ip());
    ip.is_ok_and(|ip| is_local(ip) && !ip.to_canonical().is_loopback())
}

/// Where to dial: every address of the name, both families in turn (RFC 8305 section 4). Without a tag, those that mean
/// this machine are left out.
///
/// # Errors
/// The resolver's; `TimedOut`; `NotFound` if nothing is left.
pub(crate) async fn resolve(text: &str) -> io::Result<Vec<SocketAddr>> {
    let refused = |why| Err(io::Error::new(io::ErrorKind::NotFound, why));
    if !is_usable(text) {
        return refused("an address of another machine's loopback, or of one link");
    }
    let (place, tag) = split(text);
    let mut found: Vec<SocketAddr> = Vec::new();
    for address in timeout(RESOLVE, lookup_host(place)).await?? {
        let is_meant = tag.is_some() || !is_local(address.ip());
        if is_meant && found.len() < MOST_OF_NAME && !found.contains(&address) {
            found.push(address);
        }
    }
    if found.is_empty() {
        return refused("the name has no address, or none but loopback");
    }
    Ok(in_turn(found))
}

/// Both families in turn, beginning with the first.
fn in_turn(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut turns = Vec::new();
    loop {
        match (first.next(), second.next()) {
            (None, None) => return turns,
            (one, other) => turns.extend(one.into_iter().chain(other)),
        }
    }
}

fn tagged(place: &str) -> String {
    format!("{place}@{}", machine::tag())
}

/// The place, and the tag of the machine on which it is meant.
fn split(text: &str) -> (&str, Option<&str>) {
    text.rsplit_once('@').map_or((text, None), |(place, tag)| (place, Some(tag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_advertised_means_the_same_everywhere() {
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
    fn what_means_another_machine_elsewhere_has_a_tag_and_only_this_ones_is_dialled() {
        for local in ["127.0.0.1:7", "[::1]:7", "169.254.0.1:7", "[fe80::1%2]:7", "0.0.0.0:7"] {
            let text = of_socket(&local.parse().unwrap());
            assert!(text.len() > local.len() + 10 && text.starts_with(&format!("{local}@")));
            assert!(is_usable(&text) && !is_usable(local));
            assert!(!is_usable(&format!("{local}@0123456789abcdef0123")));
            assert_eq!((shown(&text), &typed(local)[..]), (local, &[text.clone()][..]));
            // Pasted from where tags are shown.
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
    async fn a_name_leads_to_loopback_only_if_it_was_typed() {
        assert!(resolve("localhost:7").await.is_err());
        assert!(resolve("127.0.0.1:7").await.is_err());
        let [localhost] = &typed("localhost:7")[..] else { panic!("two addresses") };
        assert!(resolve(localhost).await.unwrap().iter().all(|found| found.ip().is_loopback()));
        assert_eq!(typed("box:7").len(), 2);
        assert_eq!(resolve("192.0.2.1:7").await.unwrap(), ["192.0.2.1:7".parse().unwrap()]);
    }

    #[test]
    fn families_are_tried_in_turn() {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let given = all(&["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", "192.0.2.1:1"]);
        let turns: Vec<SocketAddr> =
            all(&["[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1", "[2001:db8::3]:1"]);
        assert_eq!(in_turn(given), turns);
    }

    #[test]
    fn arbitrary_text_never_panics() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let _ = (advertised(text), shown(text), is_usable(text), typed(text));
        });
    }
}

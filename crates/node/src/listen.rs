//! Listening sockets, and the addresses at which they can be reached.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use levada_transport::quic::{Endpoint, QuicListener, QuicOptions};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::config::{Config, Http, Middlebox};
use levada_client::DEFAULT_PORT;
use levada_client::address;
use levada_client::known::MOST_ADDRESSES;

use crate::error::UpError;
use crate::overrides::Overrides;

/// The length of the accept queue, in connections. The kernel lowers it to its own limit (`net.core.somaxconn`, by default this
/// value).
const BACKLOG: i32 = 4096;
/// How long a UDP port may be in use. An earlier run of the node in this process closes it only after its connections.
const UDP_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause before it is tried again.
const UDP_PAUSE: Duration = Duration::from_millis(50);
/// The default port for HTTP.
pub(crate) const HTTP_PORT: u16 = 5383;

/// Binds the ports for everything encrypted. `previous` are the addresses of an earlier run in this process,
/// which are bound again.
pub(crate) fn bind(
    config: &Config,
    overrides: &Overrides,
    previous: &[SocketAddr],
    notes: &mut Vec<String>,
) -> Result<Vec<TcpListener>, UpError> {
    if !previous.is_empty() {
        return previous
            .iter()
            .map(|address| bind_one(*address).map_err(failed(address)))
            .collect();
    }
    let wanted = match &config.listen {
        _ if !overrides.listen.is_empty() => &overrides.listen,
        Some(configured) => configured,
        None => return default_port(notes),
    };
    wanted.iter().map(|address| bind_one(*address).map_err(failed(address))).collect()
}

/// Binds the UDP ports of the addresses at which the node listens; at most `handshakes` are open at each.
pub(crate) async fn bind_udp(
    listening: &[SocketAddr],
    handshakes: usize,
) -> Result<Vec<(Endpoint, QuicListener)>, UpError> {
    let options = QuicOptions::default();
    let options = QuicOptions { handshakes: handshakes.min(options.handshakes), ..options };
    let since = Instant::now();
    let mut bound = Vec::new();
    for address in listening {
        let socket = loop {
            match bind_one_udp(*address) {
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse
                        && since.elapsed() < UDP_TIMEOUT =>
                {
                    sleep(UDP_PAUSE).await;
                }
                other => break other,
            }
        };
        let endpoint = socket.and_then(|socket| Endpoint::new(socket, options));
        bound.push(endpoint.map_err(failed_with_udp(*address))?);
    }
    Ok(bound)
}

/// Binds the HTTP port; `None` if it is disabled.
pub(crate) fn bind_http(
    config: &Config,
    overrides: &Overrides,
    notes: &mut Vec<String>,
) -> Result<Option<TcpListener>, UpError> {
    let wanted = match (overrides.http, config.http) {
        (Some(address), _) | (None, Http::At(address)) => Some(address),
        (None, Http::Off) => return Ok(None),
        (None, Http::Standard) => None,
    };
    if let Some(address) = wanted {
        return Ok(Some(bind_one(address).map_err(failed(&address))?));
    }
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, HTTP_PORT));
    if let Ok(listener) = bind_one(default) {
        return Ok(Some(listener));
    }
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = bind_one(free).map_err(failed(&free))?;
    notes.push(format!("port {HTTP_PORT} is taken; HTTP uses a free one"));
    Ok(Some(listener))
}

/// Binds the address of `[middlebox]`; `None` if the node is no middlebox.
pub(crate) fn bind_middlebox(
    config: Option<&Middlebox>,
    overrides: &Overrides,
) -> Result<Option<TcpListener>, UpError> {
    // `catalogue serve` serves only the catalogue.
    let Some(middlebox) = config.filter(|_| !overrides.only_catalogue) else { return Ok(None) };
    let address = middlebox.listen;
    bind_one(address).map(Some).map_err(failed_as_middlebox(address))
}

/// Binds all addresses of both families on the default port, or on a free port if that is taken.
fn default_port(notes: &mut Vec<String>) -> Result<Vec<TcpListener>, UpError> {
    for port in [DEFAULT_PORT, 0] {
        let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        match bind_one(any6).or_else(|error| {
            // A host without IPv6. If the port is taken, both fail, and that error is returned.
            bind_one(any4).map_err(|other| {
                if other.kind() == io::ErrorKind::AddrInUse { other } else { error }
            })
        }) {
            Ok(listener) => return Ok(vec![listener]),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && port != 0 => {
                notes.push(format!("port {port} is taken; a free one is used"));
            }
            Err(error) => return Err(failed(&any6)(error)),
        }
    }
    Err(UpError("no port is free".into()))
}

pub(crate) fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Binds a UDP port, for both families if the address is `[::]`.
pub(crate) fn bind_one_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// The error of the middlebox at `address`.
pub(crate) fn failed_as_middlebox(address: SocketAddr) -> impl FnOnce(io::Error) -> UpError {
    move |error| {
        UpError(format!(
            "cannot listen on {address} as a middlebox: {error}; change `middlebox.listen` in config.toml"
        ))
    }
}

/// The error of a UDP port.
pub(crate) fn failed_with_udp(address: SocketAddr) -> impl FnOnce(io::Error) -> UpError {
    move |error| {
        UpError(format!(
            "cannot listen on UDP at {address}: {error}; choose another port with --listen, or set `udp = false` in config.toml"
        ))
    }
}

/// The error of another port of TCP.
pub(crate) fn failed<T: std::fmt::Display + ?Sized>(
    address: &T,
) -> impl FnOnce(io::Error) -> UpError + use<T> {
    let address = address.to_string();
    move |error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "; another program listens there, choose a port with --listen"
            }
            io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
            _ => "",
        };
        UpError(format!("cannot listen on {address}: {error}{hint}"))
    }
}

/// The addresses at which `listening` can be reached, `host:port` each: the machine's own addresses replace unspecified ones,
/// loopback is last. For the user of this machine; other machines receive [`handed_out`].
pub fn reachable_addresses(listening: &[SocketAddr]) -> Vec<String> {
    let mut addresses = own_addresses(listening);
    keep_one_of_loopback(&mut addresses, |address| address.ip().is_loopback());
    addresses.iter().map(ToString::to_string).collect()
}

/// The addresses for other machines: `advertised`, then the machine's own, with the tag of this machine at those of loopback
/// ([`levada_client::address`]).
pub fn handed_out(listening: &[SocketAddr], advertised: &[String]) -> Vec<String> {
    let mut all: Vec<(String, bool)> = Vec::new();
    let own = own_addresses(listening);
    let own =
        own.iter().filter_map(|one| Some((address::handed_out(one)?, one.ip().is_loopback())));
    for (text, is_loopback) in advertised.iter().map(|text| (text.clone(), false)).chain(own) {
        if !all.iter().any(|(known, _)| *known == text) {
            all.push((text, is_loopback));
        }
    }
    keep_one_of_loopback(&mut all, |(_, is_loopback)| *is_loopback);
    all.into_iter().map(|(text, _)| text).collect()
}

fn own_addresses(listening: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for bound in listening {
        if !bound.ip().is_unspecified() {
            addresses.push(*bound);
            continue;
        }
        let own = interface_addresses()
            .filter(|ip| bound.is_ipv6() || ip.is_ipv4())
            .map(|ip| SocketAddr::new(ip, bound.port()));
        addresses.extend(own);
    }
    // Network addresses before loopback; IPv4 before IPv6 within each.
    addresses.sort_by_key(|address| (address.ip().is_loopback(), address.is_ipv6()));
    addresses.dedup();
    addresses
}

/// Truncates a list to the maximum of an invitation, and keeps one loopback address for guests on this machine.
fn keep_one_of_loopback<T>(addresses: &mut Vec<T>, is_loopback: impl Fn(&T) -> bool) {
    let loopback = addresses.iter().position(is_loopback);
    if let Some(first) = loopback.filter(|first| *first >= MOST_ADDRESSES) {
        addresses.swap(first, MOST_ADDRESSES - 1);
    }
    addresses.truncate(MOST_ADDRESSES);
}

/// This machine's addresses, without link-local ones, whose scope is valid only on this machine.
fn interface_addresses() -> impl Iterator<Item = IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    interfaces.into_iter().map(|interface| interface.ip()).filter(|ip| match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specific_address_is_reachable_as_bound() {
        let listening = ["127.0.0.1:7".parse().unwrap(), "192.0.2.1:7".parse().unwrap()];
        assert_eq!(reachable_addresses(&listening), ["192.0.2.1:7", "127.0.0.1:7"]);
    }

    #[test]
    fn advertised_addresses_come_first_and_loopback_has_a_tag() {
        let listening: Vec<SocketAddr> =
            ["127.0.0.1:7", "192.0.2.1:7", "169.254.1.1:7", "[fe80::1]:7"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
        let all = handed_out(&listening, &["box.example:80".into(), "192.0.2.1:7".into()]);
        assert_eq!(all[..2], ["box.example:80", "192.0.2.1:7"]);
        assert!(all.len() == 3 && all[2].starts_with("127.0.0.1:7@"), "{all:?}");
        let many: Vec<String> = (0..20).map(|number| format!("box{number}.example:1")).collect();
        let all = handed_out(&listening, &many);
        assert!(all.len() == MOST_ADDRESSES && all[7].starts_with("127.0.0.1:7@"), "{all:?}");
    }

    #[test]
    fn an_unspecified_address_includes_loopback() {
        let all = reachable_addresses(&["0.0.0.0:7".parse().unwrap()]);
        assert!(all.contains(&"127.0.0.1:7".to_owned()), "{all:?}");
        assert!(all.len() <= MOST_ADDRESSES);
    }
}

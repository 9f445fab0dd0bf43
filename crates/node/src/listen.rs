//! Listening sockets, and the addresses at which they can be reached.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use levada_transport::quic::{self, Endpoint, QuicListener, QuicOptions};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::time::sleep;

use levada_client::DEFAULT_PORT;
use levada_config::{Config, Http, Middlebox};

use crate::error::UpError;
use crate::overrides::Overrides;

/// The length of the accept queue, in connections. The kernel lowers it to its own limit
/// (`net.core.somaxconn`, by default this value).
const BACKLOG: i32 = 4096;
/// How long a UDP port may be in use. An earlier run of the node in this process closes it only
/// after its connections.
const UDP_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause before it is tried again.
const UDP_PAUSE: Duration = Duration::from_millis(50);
/// The default port for HTTP.
pub(crate) const HTTP_PORT: u16 = 5383;

/// Binds the ports for everything encrypted. `previous` are the addresses of an earlier run in this
/// process, which are bound again.
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

/// Binds the UDP ports of the addresses at which the node listens; at most `handshakes` are open at
/// each.
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
            match quic::bind(*address) {
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

//! The ports that a node would listen at: which of them repeat each other, and which another
//! program has.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use levada_client::DEFAULT_PORT;
use levada_services::forward::client::Mode;
use levada_services::forward::{Address, Host};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::error::UpError;
use levada_config::{Config, ForwardSource, Http};
use levada_transport::quic;

use crate::listen::{HTTP_PORT, bind_one, failed, failed_as_middlebox, failed_with_udp};
use crate::overrides::Overrides;

/// A port of the configuration, of the command line, or a default one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its key, such as `listen` or `forward[0].listen`.
    pub key: String,
    /// The address with the port.
    pub address: SocketAddr,
    /// Whether it is one of UDP.
    pub is_udp: bool,
    /// Whether the node takes a free port instead if it is taken.
    pub is_replaceable: bool,
}

/// A port that was bound; dropping it frees the port.
pub struct Bound {
    _tcp: Option<TcpListener>,
    _udp: Option<UdpSocket>,
}

impl Port {
    fn new(key: impl Into<String>, address: SocketAddr) -> Self {
        Self { key: key.into(), address, is_udp: false, is_replaceable: false }
    }

    /// Whether the node starts without it, and tries again while it runs.
    pub fn is_of_forward(&self) -> bool {
        self.key.starts_with("forward")
    }

    /// Listens at it as a start does. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// The operating system's.
    pub fn bind(&self) -> io::Result<Bound> {
        if self.is_udp {
            return Ok(Bound { _tcp: None, _udp: Some(quic::bind(self.address)?) });
        }
        let bound = bind_one(self.address).or_else(|error| match self.address.ip() {
            // A host without IPv6.
            IpAddr::V6(ip) if ip.is_unspecified() && self.is_replaceable => {
                bind_one((Ipv4Addr::UNSPECIFIED, self.address.port()).into())
            }
            _ => Err(error),
        })?;
        Ok(Bound { _tcp: Some(bound), _udp: None })
    }

    /// The error of a start that cannot listen at it.
    pub fn failed(&self, error: io::Error) -> UpError {
        match self.key.as_str() {
            "middlebox.listen" => failed_as_middlebox(self.address)(error),
            _ if self.is_of_forward() => {
                UpError(format!("`{}`: cannot listen at {}: {error}", self.key, self.address))
            }
            _ if self.is_udp => failed_with_udp(self.address)(error),
            _ => failed(&self.address)(error),
        }
    }

    /// Whether both cannot be bound at the same time.
    fn repeats(&self, other: &Self) -> bool {
        self.is_udp == other.is_udp && overlap(self.address, other.address)
    }
}

/// Whether a socket at one address occupies the other one. `[::]` occupies a port for IPv4, too.
pub fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |wide: IpAddr, narrow: IpAddr| match wide {
        IpAddr::V6(ip) => ip.is_unspecified(),
        IpAddr::V4(ip) => ip.is_unspecified() && narrow.is_ipv4(),
    };
    let ip = one.ip();
    let other_ip = other.ip();
    let same = ip == other_ip || covers(ip, other_ip) || covers(other_ip, ip);
    one.port() != 0 && one.port() == other.port() && same
}

/// The addresses at which the running node of `status` listens, with those of its forwards.
pub fn of_running(status: &Value) -> Vec<SocketAddr> {
    let forwards = status["forwards"].as_array().into_iter().flatten();
    let lists = forwards.map(|forward| &forward["listening"]).chain([&status["listening"]]);
    let listed = lists.filter_map(Value::as_array).flatten();
    let others = [&status["http"], &status["middlebox"]["listening"]];
    listed.chain(others).filter_map(|address| address.as_str()?.parse().ok()).collect()
}

/// The ports of a start, in the order in which it binds them.
pub fn wanted(config: &Config, overrides: &Overrides) -> Vec<Port> {
    let listen = match &config.listen {
        _ if !overrides.listen.is_empty() => Some(&overrides.listen),
        configured => configured.as_ref(),
    };
    let listen: Vec<Port> = match listen {
        Some(list) => list.iter().map(|address| Port::new("listen", *address)).collect(),
        None => vec![replaceable("listen", Ipv6Addr::UNSPECIFIED.into(), DEFAULT_PORT)],
    };
    let http = match (overrides.http, config.http) {
        (Some(address), _) | (None, Http::At(address)) => Some(Port::new("http", address)),
        (None, Http::Standard) => Some(replaceable("http", Ipv4Addr::LOCALHOST.into(), HTTP_PORT)),
        (None, Http::Off) => None,
    };
    let udp: Vec<Port> = match config.udp || overrides.udp {
        true => listen.iter().map(|port| Port { is_udp: true, ..port.clone() }).collect(),
        false => Vec::new(),
    };
    let mut all: Vec<Port> = listen.into_iter().chain(http).collect();
    // `catalogue serve` serves only the catalogue.
    if overrides.only_catalogue {
        all.extend(udp);
        return all;
    }
    let middlebox = config.middlebox.as_ref();
    all.extend(middlebox.map(|middlebox| Port::new("middlebox.listen", middlebox.listen)));
    all.extend(udp);
    all.extend(config.forwards.iter().enumerate().flat_map(of_forward));
    all
}

fn replaceable(key: &str, ip: IpAddr, port: u16) -> Port {
    Port { is_replaceable: true, ..Port::new(key, (ip, port).into()) }
}

/// The ports of one forward; of a reverse one, the other node listens.
fn of_forward((index, source): (usize, &ForwardSource)) -> Vec<Port> {
    let is_udp = match source.plan.mode {
        Mode::Reverse(_) => return Vec::new(),
        Mode::Udp(_) => true,
        Mode::To(_) | Mode::Socks => false,
    };
    let port = |address: &Address| match address {
        Address::Tcp(place) | Address::Udp(place) => match place.host {
            Host::Address(ip) => Some(SocketAddr::from((ip, place.port))),
            Host::Name(_) => None,
        },
        Address::Unix(_) => None,
    };
    let key = format!("forward[{index}].listen");
    let ports = source.plan.listen.iter().filter_map(port);
    ports.map(|address| Port { is_udp, ..Port::new(key.as_str(), address) }).collect()
}

/// Two keys that use one port: the error of the second one, which the start would bind last. Those
/// of forwards do not prevent a start.
pub fn repeated(ports: &[Port]) -> impl Iterator<Item = (&Port, UpError)> {
    ports.iter().enumerate().filter_map(|(index, port)| {
        // The default port is replaced by a free one.
        let first = ports[..index].iter().find(|first| first.repeats(port))?;
        let keys = match first.key == port.key {
            true => format!("`{}` has the same port twice", port.key),
            false => format!("`{}` and `{}` use the same port", first.key, port.key),
        };
        let error = UpError(format!(
            "{keys}: {} and {}; give each its own in config.toml, or with --listen or --http",
            first.address, port.address
        ));
        (!port.is_replaceable).then_some((port, error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_address_overlaps_with_its_family() {
        let overlaps =
            |one: &str, other: &str| overlap(one.parse().unwrap(), other.parse().unwrap());
        for (one, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "[::1]:1", false),
            ("[::]:1", "127.0.0.1:1", true),
            ("[::]:1", "0.0.0.0:1", true),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            assert_eq!(overlaps(one, other), expected, "{one} {other}");
            assert_eq!(overlaps(other, one), expected, "{other} {one}");
        }
    }
}

//! Listeners that take connections by queues, and what a client and a server have in common.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use levada_ring::Pool;
use levada_ring::queue::{LISTENERS, NAMES};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, getsockname, ipproto, socketpair, sockopt,
};
use uapi::c::{
    IP_TRANSPARENT, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_TRANSPARENT, SO_BINDTOIFINDEX,
    SO_NETNS_COOKIE, SO_REUSEPORT, SOL_SOCKET, TCP_FASTOPEN,
};

use crate::ports::Ports;

/// The time for which no ports are looked for after there were none.
const PAUSE: Duration = Duration::from_secs(60);
/// Pairs that a process is in, as client and as server. Further ones stay on TCP.
const PAIRS: usize = 256;

/// A listener, as the kernel describes it.
#[derive(Debug)]
pub struct Listening {
    /// The network namespace of the socket, see [`Endpoints`](crate::identity::Endpoints).
    pub namespace: u64,
    address: SocketAddr,
    /// The listener takes connections of IPv4, too.
    is_dual: bool,
    /// As in [`Request::Listen`](levada_ring::wire::Request::Listen).
    name: u32,
}

impl Listening {
    /// `None` if the socket does not listen at a loopback address or at all addresses, if it shares
    /// its port with others, or if its connections depend on more than their addresses.
    pub fn of(socket: impl AsFd, name: u32) -> Option<Self> {
        let socket = socket.as_fd();
        let is_tcp = sockopt::socket_type(socket) == Ok(SocketType::STREAM)
            && sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP));
        if !is_tcp || sockopt::socket_acceptconn(socket) != Ok(true) || is_special(socket)? {
            return None;
        }
        let address = SocketAddr::try_from(getsockname(socket).ok()?).ok()?;
        let is_all = address.ip().is_unspecified();
        let is_loopback = [Ipv4Addr::LOCALHOST.into(), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        if !is_all && !is_loopback.contains(&address.ip()) {
            return None;
        }
        let is_dual = address.is_ipv6() && is_all && sockopt::ipv6_v6only(socket) == Ok(false);
        let namespace = option(socket, SOL_SOCKET, SO_NETNS_COOKIE, 0_u64)?;
        (name < NAMES).then_some(Self { namespace, address, is_dual, name })
    }

    /// Returns true if a connection to `remote` reaches this listener, unless a more specific one
    /// exists.
    fn takes(&self, remote: SocketAddr) -> bool {
        let ip = self.address.ip();
        let is_same_family = ip.is_ipv4() == remote.is_ipv4();
        self.address.port() == remote.port()
            && (ip == remote.ip()
                || ip.is_unspecified() && (is_same_family || self.is_dual && remote.is_ipv4()))
    }
}

/// Returns true for a socket that shares its port (SO_REUSEPORT), is bound to a device, is
/// transparent, or takes data with the first packet (TCP_FASTOPEN).
fn is_special(socket: BorrowedFd<'_>) -> Option<bool> {
    let (level, transparent) = match sockopt::socket_domain(socket).ok()? {
        AddressFamily::INET => (IPPROTO_IP, IP_TRANSPARENT),
        AddressFamily::INET6 => (IPPROTO_IPV6, IPV6_TRANSPARENT),
        _ => return Some(true),
    };
    let options = [
        (SOL_SOCKET, SO_REUSEPORT),
        (SOL_SOCKET, SO_BINDTOIFINDEX),
        (IPPROTO_TCP, TCP_FASTOPEN),
        (level, transparent),
    ];
    let values = options.map(|(level, name)| option(socket, level, name, 0_i32));
    Some(values.into_iter().any(|value| value != Some(0)))
}

fn option<T: uapi::Pod>(socket: BorrowedFd<'_>, level: i32, name: i32, mut value: T) -> Option<T> {
    uapi::getsockopt(socket.as_raw_fd(), level, name, &mut value).ok()?;
    Some(value)
}

/// What a client and a server have in common, and no other process has.
pub struct Pair {
    /// The segments of their connections.
    pub pool: OwnedFd,
    /// An end for each: when no process has one any more, the other one shows it.
    pub line: [OwnedFd; 2],
}

impl Pair {
    fn new() -> Option<Self> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok()?;
        Some(Self { pool: Pool::create().ok()?, line: [one, other] })
    }
}

/// The listeners, ports and pairs of all clients.
#[derive(Default)]
pub struct Routes {
    listeners: Vec<(u32, Listening)>,
    ports: HashMap<u32, Ports>,
    /// Until this time, no ports are looked for: there were none.
    without_ports: Option<Instant>,
    /// A client and the process that listens.
    pairs: HashSet<(u32, u32)>,
}

impl Routes {
    /// Notes a listener.
    pub fn listen(&mut self, client: u32, listening: Listening) {
        let place = |one: &Listening| one.name as usize % LISTENERS;
        // Those in the same place have ended; those of the same address have, or share it.
        self.listeners.retain(|(of, one)| {
            one.address != listening.address && (*of != client || place(one) != place(&listening))
        });
        self.listeners.push((client, listening));
    }

    /// Removes a listener that has ended.
    pub fn shut(&mut self, client: u32, name: u32) {
        self.listeners.retain(|(of, one)| (*of, one.name) != (client, name));
    }

    /// The process and the name of the listener that a connection of `client` to this address
    /// reaches. `None` if that is not certain, or if it is in the same process.
    pub fn find(&self, client: u32, remote: SocketAddr) -> Option<(u32, u32)> {
        let mut all = self.listeners.iter().filter(|(_, one)| one.takes(remote));
        let (peer, listening) = all.next()?;
        let is_only_one = all.next().is_none();
        (is_only_one && *peer != client).then_some((*peer, listening.name))
    }

    /// The first port that is bound for a client.
    pub fn ports_of(&mut self, client: u32) -> Option<u16> {
        if let Some(ports) = self.ports.get(&client) {
            return Some(ports.first());
        }
        if self.without_ports.is_some_and(|end| Instant::now() < end) {
            return None;
        }
        let Some(ports) = Ports::bind() else {
            self.without_ports = Instant::now().checked_add(PAUSE);
            return None;
        };
        let first = ports.first();
        self.ports.insert(client, ports);
        Some(first)
    }

    /// Makes what two processes have in common; `Some(None)` if they have it already. `None` if
    /// there can be none.
    pub fn pair_of(&mut self, client: u32, peer: u32) -> Option<Option<Pair>> {
        if self.pairs.contains(&(client, peer)) {
            return Some(None);
        }
        let has_room = |one: u32| {
            self.pairs.iter().filter(|(client, peer)| [*client, *peer].contains(&one)).count()
                < PAIRS
        };
        if !has_room(client) || !has_room(peer) {
            return None;
        }
        let pair = Pair::new()?;
        self.pairs.insert((client, peer));
        Some(Some(pair))
    }

    /// Takes [`pair_of`](Self::pair_of) back.
    pub fn forget_pair(&mut self, client: u32, peer: u32) {
        self.pairs.remove(&(client, peer));
    }

    /// Removes all of a client. Its ports are free again.
    pub fn leave(&mut self, client: u32) {
        self.listeners.retain(|(of, _)| *of != client);
        self.pairs.retain(|(one, other)| ![*one, *other].contains(&client));
        self.ports.remove(&client);
    }
}

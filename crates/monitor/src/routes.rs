//! Listeners that take connections by queues, and the pools of their clients.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_ring::Pool;
use levada_ring::queue::SLOTS;
use rustix::net::{AddressFamily, SocketType, getsockname, ipproto, sockopt};
use uapi::c::{
    IP_TRANSPARENT, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_TRANSPARENT, SO_BINDTOIFINDEX,
    SO_NETNS_COOKIE, SO_REUSEPORT, SOL_SOCKET, TCP_FASTOPEN,
};

use crate::ports::Ports;

/// The time for which no ports are looked for after there were none.
const PAUSE: Duration = Duration::from_secs(60);
/// Lines that a process has, as client and as server. What would need more stays on TCP.
const LINES: usize = 256;

/// A listener, as the kernel describes it.
#[derive(Debug)]
pub struct Listening {
    /// The network namespace of the socket, see [`Endpoints`](crate::identity::Endpoints).
    pub namespace: u64,
    /// SO_COOKIE: the socket, in whatever process.
    cookie: u64,
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
        let cookie = sockopt::socket_cookie(socket).ok()?;
        Some(Self { namespace, cookie, address, is_dual, name })
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

/// A process that has a listener.
#[derive(Clone, Copy)]
pub struct Member {
    /// Its number.
    pub client: u32,
    /// As in [`Request::Listen`](levada_ring::wire::Request::Listen).
    pub name: u32,
    /// As in [`Queue`](levada_ring::queue::Queue). No other process has had it.
    pub slot: u8,
}

/// A listener with the processes that have it.
pub struct Listener {
    number: u32,
    listening: Listening,
    members: Vec<Member>,
    /// Slots that were given to processes.
    slots: usize,
    /// The pools of its clients.
    pools: HashMap<u32, Arc<OwnedFd>>,
}

impl Listener {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The processes that have it.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The pools of its clients.
    pub fn pools(&self) -> &HashMap<u32, Arc<OwnedFd>> {
        &self.pools
    }

    fn has(&self, client: u32) -> bool {
        self.members.iter().any(|member| member.client == client)
    }

    /// Lines between this client and others, for their connections to the listener.
    fn lines(&self, client: u32) -> usize {
        let as_server = if self.has(client) { self.pools.len() } else { 0 };
        let as_client = if self.pools.contains_key(&client) { self.members.len() } else { 0 };
        as_server + as_client
    }
}

/// The listeners and ports of all clients.
#[derive(Default)]
pub struct Routes {
    listeners: Vec<Listener>,
    /// The number of the last listener.
    last: u32,
    ports: HashMap<u32, Ports>,
    /// Until this time, no ports are looked for: there were none.
    without_ports: Option<Instant>,
}

impl Routes {
    /// Notes a listener of a client, which may be one of others, too. `None` if it has no slot left.
    pub fn listen(&mut self, client: u32, listening: Listening) -> Option<(&Listener, Member)> {
        self.shut(client, listening.name);
        // Other listeners of the same address have ended, or share it.
        let has_ended =
            |one: &Listening| one.address == listening.address && one.cookie != listening.cookie;
        self.listeners.retain(|listener| !has_ended(&listener.listening));
        let is_it = |listener: &Listener| listener.listening.cookie == listening.cookie;
        let name = listening.name;
        let at = self.listeners.iter().position(is_it).unwrap_or_else(|| {
            self.last = self.last.wrapping_add(1);
            self.listeners.push(Listener {
                number: self.last,
                listening,
                members: Vec::new(),
                slots: 0,
                pools: HashMap::new(),
            });
            self.listeners.len() - 1
        });
        let listener = &mut self.listeners[at];
        if listener.has(client) || listener.slots >= SLOTS {
            return None;
        }
        let member = Member { client, name, slot: listener.slots as u8 };
        listener.slots += 1;
        listener.members.push(member);
        Some((listener, member))
    }

    /// Removes a listener that has ended in a client.
    pub fn shut(&mut self, client: u32, name: u32) {
        self.remove(|member| (member.client, member.name) == (client, name));
    }

    fn remove(&mut self, is_it: impl Fn(&Member) -> bool) {
        for listener in &mut self.listeners {
            listener.members.retain(|member| !is_it(member));
        }
        self.listeners.retain(|listener| !listener.members.is_empty());
    }

    /// The listener that a connection of `client` to this address reaches. `None` if that is not
    /// certain, or if the client has it itself.
    pub fn find(&self, client: u32, remote: SocketAddr) -> Option<&Listener> {
        let mut all = self.listeners.iter().filter(|one| one.listening.takes(remote));
        let listener = all.next()?;
        let is_only_one = all.next().is_none();
        (is_only_one && !listener.has(client)).then_some(listener)
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

    /// Makes a pool for a client of a listener. `None` without memory, or if one of its processes
    /// would have too many lines.
    pub fn make_pool(&mut self, client: u32, listener: u32) -> Option<Arc<OwnedFd>> {
        let at = self.listeners.iter().position(|one| one.number == listener)?;
        let members = self.listeners[at].members.iter().map(|member| member.client);
        let lines = |client: u32| self.listeners.iter().map(|one| one.lines(client)).sum::<usize>();
        let has_room = lines(client) + members.len() <= LINES;
        if !has_room || members.map(lines).any(|count| count >= LINES) {
            return None;
        }
        let pool = Arc::new(Pool::create().ok()?);
        self.listeners[at].pools.insert(client, Arc::clone(&pool));
        Some(pool)
    }

    /// Takes [`make_pool`](Self::make_pool) back.
    pub fn forget_pool(&mut self, client: u32, listener: u32) {
        for one in self.listeners.iter_mut().filter(|one| one.number == listener) {
            one.pools.remove(&client);
        }
    }

    /// Removes all of a client. Its ports are free again.
    pub fn leave(&mut self, client: u32) {
        self.remove(|member| member.client == client);
        for listener in &mut self.listeners {
            listener.pools.remove(&client);
        }
        self.ports.remove(&client);
    }
}

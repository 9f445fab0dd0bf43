//! What the parties keep for resumption: TLS tickets together with the secrets of the middleboxes.

mod hop;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_core::Identity;
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use rustls::server::StoresServerSessions;

use super::messages::MAX_TICKETS;
use super::path::ResumeId;
use super::schedule::{EndpointKeys, HopSecrets, Secret};
pub use hop::HopTickets;

/// How many servers a client keeps tickets of.
const SERVERS: usize = 512;
/// How many sessions a server keeps.
const SESSIONS: usize = 4096;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tickets of a client for sessions with middleboxes, in memory.
#[derive(Default)]
pub struct PathTickets(Mutex<Tickets>);

#[derive(Default)]
struct Tickets {
    of: HashMap<Identity, VecDeque<ClientTicket>>,
    /// The servers, the oldest first.
    order: VecDeque<Identity>,
}

/// A TLS ticket, and what the client kept for each middlebox.
pub(crate) struct ClientTicket {
    /// None once it is offered.
    tls: Option<Tls13ClientSessionValue>,
    hops: Vec<(Identity, ResumeId, Secret)>,
}

impl ClientTicket {
    /// The id and psk for a middlebox.
    pub(crate) fn of(&self, hop: &Identity) -> Option<(ResumeId, &Secret)> {
        let found = self.hops.iter().find(|(key, ..)| key == hop);
        found.map(|(_, id, psk)| (*id, psk))
    }
}

impl PathTickets {
    /// Takes a ticket of a server, the newest first. Each is used once.
    pub(crate) fn take(&self, server: &Identity) -> Option<ClientTicket> {
        lock(&self.0).of.get_mut(server)?.pop_back()
    }

    /// Forgets the tickets of a server.
    pub fn forget(&self, server: &Identity) {
        let mut tickets = lock(&self.0);
        tickets.of.remove(server);
        tickets.order.retain(|known| known != server);
    }

    pub(crate) fn insert(&self, server: Identity, ticket: ClientTicket) {
        let mut tickets = lock(&self.0);
        if !tickets.of.contains_key(&server) {
            tickets.order.push_back(server);
            if tickets.order.len() > SERVERS
                && let Some(oldest) = tickets.order.pop_front()
            {
                tickets.of.remove(&oldest);
            }
        }
        let of_server = tickets.of.entry(server).or_default();
        of_server.push_back(ticket);
        if of_server.len() > usize::from(MAX_TICKETS) {
            of_server.pop_front();
        }
    }
}

/// The ticket store of one client connection: offers one ticket, and collects those that arrive.
pub(crate) struct OneTicket {
    pub(crate) ticket: Option<ClientTicket>,
    offered: Mutex<Option<Tls13ClientSessionValue>>,
    received: Mutex<Vec<Tls13ClientSessionValue>>,
}

impl OneTicket {
    pub(crate) fn new(mut ticket: Option<ClientTicket>) -> Arc<Self> {
        let offered = Mutex::new(ticket.as_mut().and_then(|ticket| ticket.tls.take()));
        Arc::new(Self { ticket, offered, received: Mutex::default() })
    }

    /// The tickets that arrived since the last call, each with what is kept for its middleboxes;
    /// `first` is the number of the first one.
    pub(crate) fn collect(&self, first: u8, keys: &EndpointKeys) -> Vec<ClientTicket> {
        let received = std::mem::take(&mut *lock(&self.received));
        let ticket = |(number, tls)| {
            let kept = |(key, secrets): (_, &HopSecrets)| {
                (key, secrets.resume_id(number, &keys.th2), secrets.psk(number, &keys.th2))
            };
            ClientTicket { tls: Some(tls), hops: keys.by_identity().map(kept).collect() }
        };
        (first..MAX_TICKETS).zip(received).map(ticket).collect()
    }
}

impl fmt::Debug for OneTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneTicket")
    }
}

impl ClientSessionStore for OneTicket {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut received = lock(&self.received);
        if received.len() < usize::from(MAX_TICKETS) {
            received.push(value);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        lock(&self.offered).take()
    }
}

/// What a server keeps of a session for each middlebox: its key, the id, and y.
type HopResumes = Vec<(Identity, ResumeId, Secret)>;

/// The number of a TLS session; rustls draws it.
type SessionId = [u8; 32];

/// The sessions of a server that may be resumed, in memory.
#[derive(Default)]
pub struct PathSessions(Mutex<Sessions>);

#[derive(Default)]
struct Sessions {
    by_id: HashMap<SessionId, (Vec<u8>, HopResumes)>,
    order: VecDeque<SessionId>,
}

impl PathSessions {
    /// Forgets every session. Called when the policy changes.
    pub fn clear(&self) {
        *lock(&self.0) = Sessions::default();
    }

    fn insert(&self, id: SessionId, value: Vec<u8>, hops: HopResumes) {
        let mut sessions = lock(&self.0);
        sessions.order.push_back(id);
        sessions.by_id.insert(id, (value, hops));
        if sessions.order.len() > SESSIONS
            && let Some(oldest) = sessions.order.pop_front()
        {
            sessions.by_id.remove(&oldest);
        }
    }

    /// A session is erased when it is used.
    fn take(&self, id: &[u8]) -> Option<(Vec<u8>, HopResumes)> {
        lock(&self.0).by_id.remove(id)
    }
}

/// The session store of one server connection: a wrapper around [`PathSessions`] that keeps the
/// middleboxes' secrets beside the TLS session.
pub(crate) struct OneSession {
    all: Arc<PathSessions>,
    found: Mutex<Option<HopResumes>>,
    issued: Mutex<Issued>,
}

#[derive(Default)]
struct Issued {
    number: u8,
    /// None before the server has answered.
    keys: Option<Arc<EndpointKeys>>,
}

impl OneSession {
    pub(crate) fn new(all: Arc<PathSessions>) -> Arc<Self> {
        Arc::new(Self { all, found: Mutex::default(), issued: Mutex::default() })
    }

    /// What was kept beside the TLS session that the client named, and rustls looked up.
    pub(crate) fn found(&self) -> HopResumes {
        lock(&self.found).take().unwrap_or_default()
    }

    /// What tickets are issued for. Called before rustls issues them.
    pub(crate) fn issue(&self, keys: Arc<EndpointKeys>) {
        *lock(&self.issued) = Issued { number: 0, keys: Some(keys) };
    }
}

impl fmt::Debug for OneSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneSession")
    }
}

impl StoresServerSessions for OneSession {
    fn put(&self, id: Vec<u8>, value: Vec<u8>) -> bool {
        let mut issued = lock(&self.issued);
        let number = issued.number;
        let (Some(keys), Ok(id)) = (&issued.keys, id.try_into()) else { return false };
        let kept = |(key, secrets): (_, &HopSecrets)| {
            Some((key, secrets.resume_id(number, &keys.th2), secrets.y(number, &keys.th2)?))
        };
        let hops = keys.by_identity().filter_map(kept).collect();
        issued.number = number.saturating_add(1);
        self.all.insert(id, value, hops);
        true
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.take(id)
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        let (value, hops) = self.all.take(id)?;
        *lock(&self.found) = Some(hops);
        Some(value)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

//! Which offered sockets are the two ends of one connection. A state machine without I/O: time is
//! an argument.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use levada_ring::wire::Refusal;

use crate::identity::Endpoints;
use crate::liveness::Identity;

/// Offers of one client that wait.
pub const PENDING: usize = 4096;

/// A socket that a client has offered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Offer {
    /// The number of the client.
    pub client: u32,
    /// The number that the client gave the connection.
    pub connection: u64,
}

/// What becomes of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placed {
    /// It waits for the other end. An older offer of the same end, if there was one, is refused.
    Waiting {
        /// The older offer.
        replaced: Option<Offer>,
    },
    /// The other end was offered before.
    Paired {
        /// The offer of the other end.
        first: Offer,
    },
    /// It is refused.
    Refused(Refusal),
}

/// Clients, and their offers that wait.
pub struct State {
    /// How long an offer waits for that of the other end.
    offer_timeout: Duration,
    clients: HashMap<u32, Client>,
    pending: HashMap<Endpoints, Pending>,
    /// By age: every offer waits equally long.
    by_age: BTreeMap<u64, Endpoints>,
    next_age: u64,
}

#[derive(Default)]
struct Client {
    offers: HashMap<u64, Endpoints>,
    /// Clients that have what wakes this one.
    peers: HashSet<u32>,
}

struct Pending {
    offer: Offer,
    identity: Identity,
    age: u64,
    expiry: Duration,
}

impl State {
    /// Without clients.
    pub fn new(offer_timeout: Duration) -> Self {
        Self {
            offer_timeout,
            clients: HashMap::new(),
            pending: HashMap::new(),
            by_age: BTreeMap::new(),
            next_age: 0,
        }
    }

    /// Adds a client. Numbers are not used again while any client has the old one as its peer.
    pub fn join(&mut self, client: u32) {
        self.clients.entry(client).or_default();
    }

    /// Removes a client with its offers; returns the clients that have what wakes it.
    pub fn leave(&mut self, client: u32) -> Vec<u32> {
        let Some(gone) = self.clients.remove(&client) else { return Vec::new() };
        for endpoints in gone.offers.values() {
            self.remove(endpoints);
        }
        for peer in &gone.peers {
            if let Some(peer) = self.clients.get_mut(peer) {
                peer.peers.remove(&client);
            }
        }
        gone.peers.into_iter().collect()
    }

    /// The waiting offer of the other end, with what identifies its socket.
    pub fn counterpart(&self, endpoints: &Endpoints) -> Option<(Offer, &Identity)> {
        let pending = self.pending.get(&endpoints.reversed())?;
        Some((pending.offer, &pending.identity))
    }

    /// Pairs an offer with that of the other end, or lets it wait. `now` never decreases from call
    /// to call.
    pub fn place(
        &mut self,
        now: Duration,
        offer: Offer,
        endpoints: Endpoints,
        identity: Identity,
    ) -> Placed {
        self.withdraw(offer);
        // A socket that is connected to itself: it would be its own peer.
        if endpoints.local == endpoints.remote {
            return Placed::Refused(Refusal::NoPeer);
        }
        if let Some(first) = self.remove(&endpoints.reversed()) {
            return Placed::Paired { first };
        }
        let replaced = self.remove(&endpoints);
        let Some(client) = self.clients.get_mut(&offer.client) else {
            return Placed::Refused(Refusal::NoPeer);
        };
        if client.offers.len() >= PENDING {
            return Placed::Refused(Refusal::TooMany);
        }
        client.offers.insert(offer.connection, endpoints);
        let age = self.next_age;
        self.next_age += 1;
        self.by_age.insert(age, endpoints);
        let expiry = now + self.offer_timeout;
        self.pending.insert(endpoints, Pending { offer, identity, age, expiry });
        Placed::Waiting { replaced }
    }

    /// Removes a waiting offer.
    pub fn withdraw(&mut self, offer: Offer) {
        let client = self.clients.get(&offer.client);
        if let Some(endpoints) = client.and_then(|client| client.offers.get(&offer.connection)) {
            self.remove(&endpoints.clone());
        }
    }

    /// Notes that two clients have the eventfds of each other; `false` if they have them already,
    /// or are the same.
    pub fn introduce(&mut self, one: u32, other: u32) -> bool {
        let known = [one, other].iter().all(|client| self.clients.contains_key(client));
        if one == other || !known {
            return false;
        }
        let mut add = |client, peer| {
            self.clients.get_mut(&client).is_some_and(|client| client.peers.insert(peer))
        };
        add(one, other) | add(other, one)
    }

    /// Takes back [`introduce`](Self::introduce).
    pub fn separate(&mut self, one: u32, other: u32) {
        for (client, peer) in [(one, other), (other, one)] {
            if let Some(client) = self.clients.get_mut(&client) {
                client.peers.remove(&peer);
            }
        }
    }

    /// Removes the offers that have waited too long.
    pub fn expire(&mut self, now: Duration) -> Vec<Offer> {
        let mut expired = Vec::new();
        while self.next_expiry().is_some_and(|expiry| expiry <= now) {
            let Some((_, endpoints)) = self.by_age.pop_first() else { break };
            expired.extend(self.remove(&endpoints));
        }
        expired
    }

    /// When [`expire`](Self::expire) has something to do; `None` if no offer waits.
    pub fn next_expiry(&self) -> Option<Duration> {
        let (_, endpoints) = self.by_age.first_key_value()?;
        self.pending.get(endpoints).map(|pending| pending.expiry)
    }

    fn remove(&mut self, endpoints: &Endpoints) -> Option<Offer> {
        let pending = self.pending.remove(endpoints)?;
        self.by_age.remove(&pending.age);
        if let Some(client) = self.clients.get_mut(&pending.offer.client) {
            client.offers.remove(&pending.offer.connection);
        }
        Some(pending.offer)
    }
}

#[cfg(test)]
mod tests;

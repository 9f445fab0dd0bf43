//! The stored answers, in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use levada_core::Identity;

use super::pending::{AllPending, Pending};
use super::rules::{Freshness, RequestRules, values};
use super::target::{Realm, Target};

/// Answers to different fields of requests for one target.
const MAX_VARIANTS: usize = 16;
/// Realms of one server.
const MAX_REALMS: usize = 64;
/// Servers.
const MAX_SERVERS: usize = 1024;
/// What an answer takes besides its bytes, about: it stands in two tables.
const OVERHEAD: usize = 1024;
/// What a parsed field takes besides its bytes, about.
const FIELD_OVERHEAD: usize = 128;

/// The answers that all sessions of a middlebox store and use: at most as many bytes as it was
/// given. A quarter of them is for answers that are being received.
pub struct Cache {
    size: usize,
    pending: AllPending,
    contents: Mutex<Contents>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) fields: HeaderMap,
    pub(super) body: Vec<u8>,
    /// The fields of the request that the answer depends on.
    pub(super) vary: Vec<(HeaderName, Vec<HeaderValue>)>,
    pub(super) fresh: Freshness,
    /// When its head arrived.
    pub(super) arrived: Instant,
}

impl Entry {
    /// RFC 9111 section 4.2.3.
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.fresh.age + now.saturating_duration_since(self.arrived)
    }

    fn answers(&self, request: &HeaderMap) -> bool {
        self.vary.iter().all(|(name, stored)| values(request, name) == *stored)
    }

    fn bytes(&self, target: &Target) -> usize {
        let host = target.host.as_ref().map_or(0, HeaderValue::len);
        let field = |(name, value): (&HeaderName, &HeaderValue)| {
            FIELD_OVERHEAD + name.as_str().len() + value.len()
        };
        let fields: usize = self.fields.iter().map(field).sum();
        let vary = self.vary.iter().map(|(name, values)| {
            let values = values.iter().map(|value| FIELD_OVERHEAD + value.len());
            FIELD_OVERHEAD + name.as_str().len() + values.sum::<usize>()
        });
        let key = 2 * (host + target.target.len());
        OVERHEAD + key + fields + vary.sum::<usize>() + self.body.capacity()
    }
}

#[derive(Default)]
struct Contents {
    servers: HashMap<Identity, Server>,
    /// Of stored answers.
    bytes: usize,
    /// Of answers that are being received.
    receiving: usize,
    uses: u64,
}

#[derive(Default)]
struct Server {
    realms: HashMap<[u8; 16], Answers>,
    bytes: usize,
    receiving: usize,
}

/// The answers of one realm.
#[derive(Default)]
struct Answers {
    targets: HashMap<Target, Vec<Variant>>,
    /// By the number of their last use.
    by_use: BTreeMap<u64, Target>,
    bytes: usize,
}

struct Variant {
    entry: Arc<Entry>,
    bytes: usize,
    /// The number of its request.
    sent: u64,
    used: u64,
}

impl Cache {
    /// A cache of `size` bytes.
    pub fn new(size: usize) -> Arc<Self> {
        Arc::new(Self { size, pending: AllPending::default(), contents: Mutex::default() })
    }

    /// The longest body that is stored, in bytes: an eighth of all.
    pub(super) fn longest(&self) -> usize {
        self.size / 8
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request that is sent on, and whose answer may be stored.
    pub(super) fn expect(&self, realm: Realm, target: Target) -> Pending {
        self.pending.add(realm, target)
    }

    /// A stored answer that a request may be given.
    pub(super) fn find(
        &self,
        realm: Realm,
        target: &Target,
        (rules, fields): (&RequestRules, &HeaderMap),
        now: Instant,
    ) -> Option<Arc<Entry>> {
        let contents = &mut *self.lock();
        let answers = contents.servers.get_mut(&realm.server)?.realms.get_mut(&realm.realm)?;
        let variants = answers.targets.get_mut(target)?;
        let allowed = |variant: &&mut Variant| {
            let Entry { fresh, .. } = &*variant.entry;
            variant.entry.answers(fields) && rules.allow(fresh, variant.entry.age(now))
        };
        // Of several, the most recent one (RFC 9111 section 4).
        let made =
            |variant: &&mut Variant| variant.entry.arrived.checked_sub(variant.entry.fresh.age);
        let variant = variants.iter_mut().filter(allowed).max_by_key(made)?;
        contents.uses += 1;
        answers.by_use.remove(&variant.used);
        variant.used = contents.uses;
        answers.by_use.insert(variant.used, target.clone());
        Some(variant.entry.clone())
    }

    /// Stores an answer in the place of one to the same request. If it does not fit, the least
    /// recently used answer goes of the realm that has most, of the server that has most; so no
    /// service uses up the place of others. The error says why it is not stored.
    pub(super) fn store(
        &self,
        pending: &Pending,
        request: &HeaderMap,
        entry: Entry,
    ) -> Result<(), &'static str> {
        let realm = pending.realm();
        let target = pending.target();
        let bytes = entry.bytes(target);
        if entry.body.len() > self.longest() || bytes > self.size / 4 {
            return Err("it is too long");
        }
        let contents = &mut *self.lock();
        if pending.is_outdated() {
            return Err("a request that is not safe has changed its target meanwhile");
        }
        if contents.has_later(pending, request) {
            return Err("the answer to a later request is stored");
        }
        contents.remove(realm, target, |variant| variant.entry.answers(request));
        contents.make_room_for(realm);
        contents.uses += 1;
        let entry = Arc::new(entry);
        let used = contents.uses;
        let variant = Variant { entry, bytes, sent: pending.sent, used };
        let server = contents.servers.entry(realm.server).or_default();
        let answers = server.realms.entry(realm.realm).or_default();
        let variants = answers.targets.entry(target.clone()).or_default();
        let least = variants.iter().map(|variant| variant.used).min();
        let full = variants.len() == MAX_VARIANTS;
        answers.by_use.insert(variant.used, target.clone());
        variants.push(variant);
        answers.bytes += bytes;
        server.bytes += bytes;
        contents.bytes += bytes;
        if let Some(least) = least.filter(|_| full) {
            contents.remove(realm, target, |variant| variant.used == least);
        }
        while contents.bytes > self.size - self.size / 4 && contents.evict() {}
        Ok(())
    }

    /// Removes what is stored for a target; what is on its way for it is not stored.
    pub(super) fn invalidate(&self, realm: Realm, target: &Target) {
        let contents = &mut *self.lock();
        self.pending.change(realm, target);
        contents.remove(realm, target, |_| true);
    }

    /// Takes part of what answers that are being received may use: all of them a quarter of the
    /// size, those of one server an eighth.
    pub(super) fn reserve(self: &Arc<Self>, server: Identity) -> Reservation {
        Reservation { cache: self.clone(), server, bytes: 0 }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }
}

impl Contents {
    /// Returns true if an answer is stored to the same request, sent later.
    fn has_later(&self, pending: &Pending, request: &HeaderMap) -> bool {
        let realm = pending.realm();
        let server = self.servers.get(&realm.server);
        let answers = server.and_then(|server| server.realms.get(&realm.realm));
        let variants = answers.and_then(|answers| answers.targets.get(pending.target()));
        variants
            .into_iter()
            .flatten()
            .any(|variant| variant.sent > pending.sent && variant.entry.answers(request))
    }

    fn remove(&mut self, realm: Realm, target: &Target, unwanted: impl Fn(&Variant) -> bool) {
        let Some(server) = self.servers.get_mut(&realm.server) else { return };
        let Some(answers) = server.realms.get_mut(&realm.realm) else { return };
        let Some(variants) = answers.targets.get_mut(target) else { return };
        let mut freed = 0;
        variants.retain(|variant| {
            if !unwanted(variant) {
                return true;
            }
            answers.by_use.remove(&variant.used);
            freed += variant.bytes;
            false
        });
        if variants.is_empty() {
            answers.targets.remove(target);
        }
        answers.bytes -= freed;
        server.bytes -= freed;
        self.bytes -= freed;
        self.forget_empty(realm);
    }

    fn forget_empty(&mut self, realm: Realm) {
        let Some(server) = self.servers.get_mut(&realm.server) else { return };
        if server.realms.get(&realm.realm).is_some_and(|answers| answers.targets.is_empty()) {
            server.realms.remove(&realm.realm);
        }
        if server.realms.is_empty() && server.receiving == 0 {
            self.servers.remove(&realm.server);
        }
    }

    /// Evicts one answer; false if there is none.
    fn evict(&mut self) -> bool {
        let largest = self.servers.iter().max_by_key(|(_, server)| server.bytes);
        let Some((identity, server)) = largest else { return false };
        let largest = server.realms.iter().max_by_key(|(_, answers)| answers.bytes);
        let Some((realm, answers)) = largest else { return false };
        let Some((used, target)) = answers.by_use.first_key_value() else { return false };
        let realm = Realm { server: *identity, realm: *realm };
        let used = *used;
        let target = target.clone();
        self.remove(realm, &target, |variant| variant.used == used);
        true
    }

    /// Keeps the tables of servers and realms small: the least recently used one goes.
    fn make_room_for(&mut self, realm: Realm) {
        let used = |answers: &Answers| answers.by_use.last_key_value().map(|(used, _)| *used);
        if !self.servers.contains_key(&realm.server) && self.servers.len() >= MAX_SERVERS {
            let idle = self.servers.iter().filter(|(_, server)| server.receiving == 0);
            let oldest =
                idle.min_by_key(|(_, server)| server.realms.values().filter_map(used).max());
            if let Some(oldest) = oldest.map(|(identity, _)| *identity)
                && let Some(server) = self.servers.remove(&oldest)
            {
                self.bytes -= server.bytes;
            }
        }
        let Some(server) = self.servers.get_mut(&realm.server) else { return };
        if server.realms.contains_key(&realm.realm) || server.realms.len() < MAX_REALMS {
            return;
        }
        let oldest = server.realms.iter().min_by_key(|(_, answers)| used(answers));
        if let Some(oldest) = oldest.map(|(realm, _)| *realm)
            && let Some(answers) = server.realms.remove(&oldest)
        {
            server.bytes -= answers.bytes;
            self.bytes -= answers.bytes;
        }
    }
}

/// Bytes of an answer that is being received.
pub(super) struct Reservation {
    cache: Arc<Cache>,
    server: Identity,
    bytes: usize,
}

impl Reservation {
    /// Takes `more` bytes; false if there are not so many left.
    pub(super) fn grow(&mut self, more: usize) -> bool {
        let all = self.cache.size / 4;
        let one = self.cache.size / 8;
        let contents = &mut *self.cache.lock();
        let known = contents.servers.get(&self.server);
        let of_server = known.map_or(0, |server| server.receiving);
        if contents.receiving + more > all
            || of_server + more > one
            || known.is_none() && contents.servers.len() >= 2 * MAX_SERVERS
        {
            return false;
        }
        contents.servers.entry(self.server).or_default().receiving += more;
        contents.receiving += more;
        self.bytes += more;
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let contents = &mut *self.cache.lock();
        contents.receiving -= self.bytes;
        if let Some(server) = contents.servers.get_mut(&self.server) {
            server.receiving -= self.bytes;
            if server.realms.is_empty() && server.receiving == 0 {
                contents.servers.remove(&self.server);
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! The clients, and what becomes of their requests.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use levada_ring::wire::{Refusal, Response};
use levada_ring::{Account, History, Segment, Side, records};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::connection::{BATCH, Connection, Outgoing, Process, Shown};
use crate::identity::Endpoints;
use crate::liveness::Kernel;
use crate::options::Options;
use crate::request::{Hello, Offered, Received};
use crate::routes::{Listening, Member, Routes};
use crate::state::{Offer, Placed, State};

/// Clients at a time, two for each process: one is left to its children. Further ones are closed,
/// and stay on TCP.
const CLIENTS: usize = 8192;
/// Clients that one client may add, for the children of its process.
const ADOPTED: usize = 1024;
/// Ended processes whose records are kept for the runs that are watched. The oldest are dropped.
const KEPT: usize = 1024;

/// All clients.
pub struct Clients {
    epoll: Arc<OwnedFd>,
    connections: HashMap<u32, Connection>,
    next: u32,
    state: State,
    kernel: Kernel,
    /// Clients with requests that were read, or that have ended.
    unhandled: VecDeque<u32>,
    routes: Routes,
    /// Clients that wait for the list of a run.
    lists: Vec<(u32, u64)>,
    kept: VecDeque<Shown>,
    account: Account,
    /// The memory that rings may take, in bytes.
    memory_limit: u64,
    /// What a process gets when it has introduced itself: the files of the account and of the
    /// history.
    welcome: Vec<Arc<OwnedFd>>,
}

impl Clients {
    /// Without clients. They are added to `epoll`, by their numbers, which have 32 bits.
    ///
    /// # Errors
    /// Those of memfd_create(2) and mmap(2).
    pub fn new(epoll: Arc<OwnedFd>, options: Options) -> Result<Self, Errno> {
        let (account_file, account) = Account::create(options.memory)?;
        let (history_file, _) = History::create()?;
        Ok(Self {
            epoll,
            connections: HashMap::new(),
            next: random(),
            state: State::new(options.offer_timeout),
            kernel: Kernel::new(),
            unhandled: VecDeque::new(),
            routes: Routes::default(),
            lists: Vec::new(),
            kept: VecDeque::new(),
            account,
            memory_limit: options.memory,
            welcome: vec![Arc::new(account_file), Arc::new(history_file)],
        })
    }

    /// Adds a client, and returns its number; closes it if there are too many.
    pub fn add(&mut self, socket: OwnedFd) -> Option<u32> {
        if self.connections.len() >= CLIENTS {
            return None;
        }
        loop {
            self.next = self.next.wrapping_add(1);
            // 0 stands for the process itself, see `Response::Paired`.
            if self.next != 0 && !self.connections.contains_key(&self.next) {
                break;
            }
        }
        let number = EventData::new_u64(self.next.into());
        epoll::add(&self.epoll, &socket, number, EventFlags::IN).ok()?;
        self.connections.insert(self.next, Connection::new(socket));
        self.state.join(self.next);
        Some(self.next)
    }

    /// Adds a client on behalf of another one, or closes it if that one has reached its limit. An
    /// added client shares the limit of the client that added it.
    fn add_for(&mut self, client: u32, socket: OwnedFd) {
        let Some(first) = self.connections.get(&client).map(|one| one.adopted_by.unwrap_or(client))
        else {
            return;
        };
        let adopted = self.connections.values().filter(|one| one.adopted_by == Some(first));
        if adopted.count() < ADOPTED
            && let Some(number) = self.add(socket)
            && let Some(connection) = self.connections.get_mut(&number)
        {
            connection.adopted_by = Some(first);
        }
    }

    /// Reads what a client has sent, and sends what waits for it.
    pub fn receive(&mut self, client: u32) {
        if let Some(connection) = self.connections.get_mut(&client) {
            connection.read(&self.kernel, BATCH);
            connection.flush();
            self.update_interest(client);
            self.unhandled.push_back(client);
        }
    }

    /// Handles all requests that were read, and removes clients that have ended.
    pub fn handle(&mut self, now: Duration) {
        while let Some(client) = self.unhandled.pop_front() {
            while let Some(request) = self.next_request(client) {
                if !self.handle_request(now, client, request) {
                    self.end(client);
                }
            }
            if self.connections.get(&client).is_some_and(|connection| connection.ended) {
                self.remove(client);
            }
        }
    }

    /// Refuses offers that have waited too long.
    pub fn expire(&mut self, now: Duration) {
        for offer in self.state.expire(now) {
            self.refuse(offer, Refusal::NoPeer);
        }
    }

    /// When [`expire`](Self::expire) has something to do.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.state.next_expiry()
    }

    /// Whether a client waits for a list.
    pub fn awaits_list(&self) -> bool {
        !self.lists.is_empty()
    }

    /// Whether there is no client.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Answers the requests for lists. The caller does this when no other request is there to be
    /// read: a process that has ended before the request was sent, is in the list then.
    pub fn answer_lists(&mut self) {
        for (client, run) in std::mem::take(&mut self.lists) {
            let messages = self.list(run);
            let Some(connection) = self.connections.get_mut(&client) else { continue };
            if !connection.respond_with_list(messages.into_iter()) {
                self.end(client);
            }
            self.update_interest(client);
        }
    }

    fn next_request(&mut self, client: u32) -> Option<Received> {
        self.connections.get_mut(&client)?.inbox.pop_front()
    }

    /// `false` if the client broke the protocol.
    fn handle_request(&mut self, now: Duration, client: u32, request: Received) -> bool {
        let Some(connection) = self.connections.get_mut(&client) else { return true };
        let is_process = connection.process.is_some();
        match request {
            Received::Hello(hello) => !is_process && self.introduce(client, hello),
            Received::List { run } => {
                self.lists.push((client, run));
                true
            }
            Received::Watch { run } => connection.watch(run),
            // Also of a process that has not introduced itself: a server's first process connects,
            // and its children serve.
            Received::Adopt(socket) => {
                self.add_for(client, socket);
                true
            }
            _ if !is_process => false,
            Received::Offer { connection, offered } => {
                self.place(now, Offer { client, connection }, offered);
                true
            }
            Received::Withdraw { connection } => {
                self.state.withdraw(Offer { client, connection });
                true
            }
            Received::Listen { question, listening } => {
                let is_known = self.listen(client, listening);
                let response = Response::Listening { question, is_known };
                self.respond(client, Outgoing::new(response, Vec::new()));
                true
            }
            Received::Shut { listener } => {
                self.routes.shut(client, listener);
                true
            }
            Received::Find { question, endpoints, again } => {
                let route =
                    endpoints.and_then(|endpoints| self.route(client, question, endpoints, again));
                if route.is_none() {
                    let response = Response::NoRoute { question };
                    self.respond(client, Outgoing::new(response, Vec::new()));
                }
                true
            }
        }
    }

    fn introduce(&mut self, client: u32, hello: Hello) -> bool {
        let process = Process::try_from(hello).ok();
        let connection = self.connections.get_mut(&client);
        let is_process = process.is_some();
        if let Some(connection) = connection {
            connection.process = process;
        }
        if is_process {
            self.respond(client, Outgoing::new(Response::Welcome, self.welcome.clone()));
        }
        is_process
    }

    fn place(&mut self, now: Duration, offer: Offer, offered: Offered) {
        let (endpoints, identity) = match offered {
            Ok(offered) => offered,
            Err(refusal) => return self.refuse(offer, refusal),
        };
        self.settle(offer.client, &endpoints);
        let finds_peer = self.state.counterpart(&endpoints).is_some();
        if finds_peer && !self.kernel.is_connected(&identity, &endpoints) {
            // It was closed since the message was read, and the peer's is another connection.
            return self.refuse(offer, Refusal::NoPeer);
        }
        match self.state.place(now, offer, endpoints, identity) {
            Placed::Waiting { replaced: Some(replaced) } => self.refuse(replaced, Refusal::NoPeer),
            Placed::Waiting { replaced: None } => {}
            Placed::Paired { first } => self.pair(first, offer),
            Placed::Refused(refusal) => self.refuse(offer, refusal),
        }
    }

    /// Removes offers of the other end that no longer hold, or whose connection has ended: its
    /// addresses can be used again at once.
    fn settle(&mut self, client: u32, endpoints: &Endpoints) {
        while let Some((other, identity)) = self.state.counterpart(endpoints) {
            let is_connected = self.kernel.is_connected(identity, &endpoints.reversed());
            let Some(connection) = self.connections.get_mut(&other.client) else { return };
            if other.client != client {
                // The requests of one client are handled in their order.
                connection.read(&self.kernel, BATCH);
                self.unhandled.push_back(other.client);
            }
            let process = connection.process.as_ref().filter(|_| is_connected && !connection.ended);
            if process
                .is_some_and(|process| records::holds(&*process.shown.records, other.connection))
            {
                return;
            }
            self.state.withdraw(other);
        }
    }

    /// Hands one segment to both ends.
    fn pair(&mut self, first: Offer, second: Offer) {
        let delivered = Segment::create().is_ok_and(|(file, _)| {
            let bells = self.state.introduce(first.client, second.client);
            let file = Arc::new(file);
            self.send_segment(first, Side::Connector, second.client, bells, &file)
                && self.send_segment(second, Side::Acceptor, first.client, bells, &file)
        });
        if !delivered {
            self.state.separate(first.client, second.client);
            self.refuse(first, Refusal::Exhausted);
            self.refuse(second, Refusal::Exhausted);
        }
    }

    /// Notes a listener. `false` if no client finds it.
    fn listen(&mut self, client: u32, listening: Option<Listening>) -> bool {
        let is_here = |one: &Listening| self.kernel.namespace() == Some(one.namespace);
        let Some(listening) = listening.filter(is_here) else { return false };
        let Some((listener, member)) = self.routes.listen(client, listening) else { return false };
        let number = listener.number();
        let pools = listener.pools().iter().map(|(client, pool)| (*client, Arc::clone(pool)));
        for (client, pool) in pools.collect::<Vec<_>>() {
            if let Some(port) = self.routes.ports_of(client) {
                self.add_member(client, (number, port, &pool), member, None);
            }
        }
        true
    }

    /// Tells a client of the listener that it is connected to, and hands a pool to it and to the
    /// processes that listen, unless it has one. `None` if there is no such
    /// listener, or it cannot be used.
    fn route(
        &mut self,
        client: u32,
        question: u32,
        endpoints: Endpoints,
        again: bool,
    ) -> Option<()> {
        let is_here = self.kernel.namespace() == Some(endpoints.namespace);
        // Where a packet filter leads the connection elsewhere, no socket has these addresses.
        if !is_here || !self.kernel.exists(&endpoints.reversed()) {
            return None;
        }
        let found = self.routes.find(client, endpoints.remote)?;
        let listener = found.number();
        let members = found.members().to_vec();
        let has_pool = found.pools().contains_key(&client);
        let port = self.routes.ports_of(client)?;
        if has_pool && !again {
            let known = Response::Route {
                question,
                peer: 0,
                listener,
                slot: 0,
                port,
                pool: false,
                bells: false,
            };
            return self.respond(client, Outgoing::new(known, Vec::new())).then_some(());
        }
        self.routes.forget_pool(client, listener);
        let pool = self.routes.make_pool(client, listener)?;
        let mut question = Some(question);
        for member in members {
            if self.add_member(client, (listener, port, &pool), member, question) {
                question = None;
            }
        }
        if question.is_some() {
            self.routes.forget_pool(client, listener);
        }
        question.is_none().then_some(())
    }

    /// Hands a pool to a process that listens, and a line to it to the client: with the route that
    /// answers the client's question, if it has one. Returns true if the client was told.
    fn add_member(
        &mut self,
        client: u32,
        (listener, port, pool): (u32, u16, &Arc<OwnedFd>),
        member: Member,
        question: Option<u32>,
    ) -> bool {
        let flags = SocketFlags::CLOEXEC;
        let Ok((near, far)) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        else {
            return false;
        };
        let Member { client: peer, name, slot } = member;
        let bells = self.state.introduce(client, peer);
        let mut for_client = vec![Arc::new(near)];
        let mut for_member = vec![Arc::clone(pool), Arc::new(far)];
        if bells {
            for_client.extend(self.waking(peer));
            for_member.extend(self.waking(client));
        }
        let told = match question {
            Some(question) => {
                for_client.insert(0, Arc::clone(pool));
                let pool = true;
                Response::Route { question, peer, listener, slot, port, pool, bells }
            }
            None => Response::Member { listener, peer, slot, bells },
        };
        // First to the client: it knows each process that takes a connection of it.
        let is_told = self.respond(client, Outgoing::new(told, for_client));
        let handed = Response::Pool { peer: client, listener: name, slot, port, bells };
        if !is_told || !self.respond(peer, Outgoing::new(handed, for_member)) {
            self.state.separate(client, peer);
        }
        is_told
    }

    fn waking(&self, client: u32) -> impl Iterator<Item = Arc<OwnedFd>> {
        let process = self.connections.get(&client).and_then(|one| one.process.as_ref());
        process.into_iter().flat_map(|process| process.waking.iter().cloned())
    }

    fn send_segment(
        &mut self,
        offer: Offer,
        side: Side,
        peer: u32,
        bells: bool,
        file: &Arc<OwnedFd>,
    ) -> bool {
        let mut descriptors = vec![Arc::clone(file)];
        if bells {
            let process = self.connections.get(&peer).and_then(|peer| peer.process.as_ref());
            let Some(process) = process else { return false };
            descriptors.extend(process.waking.iter().cloned());
        }
        let connection = offer.connection;
        let peer = if peer == offer.client { 0 } else { peer };
        let paired = Response::Paired { connection, side, peer, bells };
        self.respond(offer.client, Outgoing::new(paired, descriptors))
    }

    fn refuse(&mut self, offer: Offer, refusal: Refusal) {
        let refused = Response::Refused { connection: offer.connection, refusal };
        self.respond(offer.client, Outgoing::new(refused, Vec::new()));
    }

    /// `false` if the message is dropped.
    fn respond(&mut self, client: u32, message: Outgoing) -> bool {
        let connection = self.connections.get_mut(&client);
        let delivered = connection.is_some_and(|connection| connection.respond(message));
        self.update_interest(client);
        delivered
    }

    fn list(&self, run: u64) -> Vec<Outgoing> {
        let connected = self.connections.values().filter_map(|one| one.process.as_ref());
        let alive = connected.map(|process| (&process.shown, true));
        let all = alive.chain(self.kept.iter().map(|shown| (shown, false)));
        // A process and its forked children have one file.
        let mut files = HashSet::new();
        let wanted = all.filter(|(shown, _)| run == 0 || shown.run == run);
        let mut messages: Vec<Outgoing> = wanted
            .filter(|(shown, _)| files.insert(shown.inode))
            .map(|(shown, alive)| {
                let process = Response::Process { pid: shown.pid, run: shown.run, alive };
                Outgoing::new(process, vec![Arc::clone(&shown.records)])
            })
            .collect();
        messages.push(Outgoing::new(Response::Listed, Vec::new()));
        messages
    }

    /// Ends a client after the present request.
    fn end(&mut self, client: u32) {
        if let Some(connection) = self.connections.get_mut(&client) {
            connection.inbox.clear();
            connection.ended = true;
            self.unhandled.push_back(client);
        }
    }

    fn remove(&mut self, client: u32) {
        let Some(connection) = self.connections.remove(&client) else { return };
        // An adopted socket may be open elsewhere, too: closing it here would leave it in the epoll
        // instance.
        let _ = epoll::delete(&self.epoll, connection.as_fd());
        for peer in self.state.leave(client) {
            self.respond(peer, Outgoing::new(Response::Gone { peer: client }, Vec::new()));
        }
        self.routes.leave(client);
        self.lists.retain(|(waiting, _)| *waiting != client);
        if connection.process.is_some() {
            self.account.set(self.memory(), self.memory_limit);
        }
        if let Some(process) = connection.process
            && self.is_watched(process.shown.run)
        {
            // Processes share a file after a fork.
            self.kept.retain(|shown| shown.inode != process.shown.inode);
            self.kept.push_back(process.shown);
            if self.kept.len() > KEPT {
                self.kept.pop_front();
            }
        }
        if !connection.watches.is_empty() {
            let mut kept = std::mem::take(&mut self.kept);
            kept.retain(|shown| self.is_watched(shown.run));
            self.kept = kept;
        }
    }

    /// What the rings of all processes take, as they say. A process and its forked children have
    /// one file.
    fn memory(&self) -> u64 {
        let processes = self.connections.values().filter_map(|one| one.process.as_ref());
        let files: HashMap<_, _> =
            processes.map(|process| (process.shown.inode, &process.shown.records)).collect();
        files.into_values().map(|file| records::memory(&**file)).fold(0, u64::saturating_add)
    }

    fn is_watched(&self, run: u64) -> bool {
        self.connections.values().any(|connection| connection.watches.contains(&run))
    }

    /// Lets epoll report room for responses exactly while one waits.
    fn update_interest(&mut self, client: u32) {
        let Some(connection) = self.connections.get_mut(&client) else { return };
        let is_waiting = connection.is_waiting();
        if is_waiting == connection.awaits_room {
            return;
        }
        connection.awaits_room = is_waiting;
        let flags = if is_waiting { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        let _ = epoll::modify(
            &self.epoll,
            connection.as_fd(),
            EventData::new_u64(client.into()),
            flags,
        );
    }
}

/// A monitor that is started again gives other numbers: processes know those that the one before
/// gave to their peers.
fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

//! The fixed point: every honest role reacts to all that the attacker can send, until nothing is
//! new.

use std::collections::{HashMap, HashSet};

use crate::knowledge::Knowledge;
use crate::schedule::SessionKeys;
use crate::setting::{CONTEXTS, Right, Setting};
use crate::term::{Term, Terms};

/// A PATH: the hops and their rights.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// Indices into the middleboxes of the setting.
    pub(crate) hops: Vec<usize>,
    pub(crate) rights: Vec<[Right; CONTEXTS]>,
    /// The resume ids, where one is named.
    pub(crate) ids: Vec<Option<Term>>,
    pub(crate) term: Term,
}

/// A ClientHello, with the PATH before it.
#[derive(Clone, Debug)]
pub(crate) struct ClientHello {
    pub(crate) path: usize,
    pub(crate) secret: Term,
    pub(crate) term: Term,
    pub(crate) ticket: Option<usize>,
    pub(crate) honest: bool,
}

/// The first message of a middlebox: its KEM key and signature, or its nonce and tags.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hello {
    pub(crate) hop: usize,
    pub(crate) position: usize,
    /// L_{i-1}: PATH, ClientHello and the MBHELLOs before.
    pub(crate) prefix: Term,
    /// The KEM public key, or the nonce.
    pub(crate) value: Term,
    pub(crate) resumed: bool,
    pub(crate) term: Term,
}

/// A session as the server began it.
#[derive(Clone, Debug)]
pub(crate) struct ServerSession {
    pub(crate) hello: usize,
    pub(crate) path: usize,
    pub(crate) hellos: Vec<Hello>,
    pub(crate) flight: Term,
    /// The TLS secret that everything follows from.
    pub(crate) secret: Term,
    pub(crate) keys: SessionKeys,
    pub(crate) z: Vec<Term>,
    pub(crate) shares: Vec<Term>,
    pub(crate) th1: Term,
    /// SBIND as sent, then with fields changed that one receiver cannot check.
    pub(crate) binds: Vec<Bind>,
}

/// SBIND, and TH2 that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Bind {
    pub(crate) th2: Term,
    /// Whose tags in it are right: hops by position, and the client last.
    pub(crate) valid_for: Vec<bool>,
}

/// A TLS ticket with what belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct IssuedTicket {
    pub(crate) id: Term,
    pub(crate) psk: Term,
    pub(crate) client_is_honest: bool,
    /// Of each hop: the index of the middlebox and its part.
    pub(crate) parts: Vec<(usize, BoxTicket)>,
}

/// A middlebox's part of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BoxTicket {
    pub(crate) id: Term,
    pub(crate) psk: Term,
    pub(crate) y: Term,
}

/// The keys that an honest middlebox holds after it opened its share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BoxSession {
    pub(crate) hello: Hello,
    pub(crate) path: usize,
    pub(crate) a: Term,
    pub(crate) z: Term,
    pub(crate) server_halves: Term,
    pub(crate) th2: Term,
}

/// What an honest role made, by the term that authenticates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    ClientFinished,
    ByBox(usize),
    ByServer,
    Answer { request: Term },
}

/// What an honest role accepted because of a term.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) what: &'static str,
    pub(crate) proof: Term,
    pub(crate) expected: Made,
}

/// Everything that can happen in one setting.
pub(crate) struct World {
    pub(crate) setting: Setting,
    pub(crate) terms: Terms,
    pub(crate) attacker: Knowledge,
    pub(crate) server_key: Term,
    pub(crate) box_keys: Vec<Term>,
    pub(crate) paths: Vec<Path>,
    /// The paths without resume ids.
    pub(crate) plain_paths: usize,
    pub(crate) client_hellos: Vec<ClientHello>,
    pub(crate) box_hellos: Vec<(Hello, usize)>,
    pub(crate) server_sessions: Vec<ServerSession>,
    pub(crate) box_sessions: Vec<BoxSession>,
    /// Box sessions that have the client's halves: (index, halves).
    pub(crate) box_ready: Vec<(usize, Term)>,
    pub(crate) box_tickets: HashSet<(usize, BoxTicket)>,
    /// Sessions that the honest client bound: (server session, which SBIND).
    pub(crate) client_bound: Vec<(usize, usize)>,
    pub(crate) client_accepted: Vec<(usize, usize)>,
    /// Sessions that the server accepted: (session, whether the client is the honest one).
    pub(crate) server_accepted: Vec<(usize, bool)>,
    pub(crate) tickets: Vec<IssuedTicket>,
    pub(crate) made: HashMap<Term, Made>,
    pub(crate) accepted: Vec<Accepted>,
    pub(crate) secrets: Vec<(&'static str, Term)>,
    /// What was done already, so that each step is taken once.
    done: HashSet<(&'static str, Vec<usize>)>,
}

impl World {
    /// Runs the setting to its fixed point.
    pub(crate) fn run(setting: Setting) -> Self {
        let mut terms = Terms::default();
        let server_key = terms.fresh("server's key", &[]);
        let mut box_keys = Vec::new();
        for (index, hop) in setting.boxes.iter().enumerate() {
            let name = ["first box's key", "second box's key"][index];
            box_keys.push(if hop.corrupt { terms.attacker(name) } else { terms.fresh(name, &[]) });
        }
        let mut world = Self {
            setting,
            terms,
            attacker: Knowledge::default(),
            server_key,
            box_keys,
            paths: Vec::new(),
            plain_paths: 0,
            client_hellos: Vec::new(),
            box_hellos: Vec::new(),
            server_sessions: Vec::new(),
            box_sessions: Vec::new(),
            box_ready: Vec::new(),
            box_tickets: HashSet::new(),
            client_bound: Vec::new(),
            client_accepted: Vec::new(),
            server_accepted: Vec::new(),
            tickets: Vec::new(),
            made: HashMap::new(),
            accepted: Vec::new(),
            secrets: Vec::new(),
            done: HashSet::new(),
        };
        world.prepare();
        let mut size = 0;
        while size != world.size() {
            size = world.size();
            world.start_clients();
            world.send_box_hellos();
            world.serve();
            world.bind_boxes();
            world.bind_clients();
            world.ready_boxes();
            world.accept_at_server();
            world.accept_at_client();
            world.exchange();
            while world.attacker.open_all(&world.terms) {}
        }
        world
    }

    /// The public keys, and the paths that the middleboxes allow: every selection of them in every
    /// order.
    fn prepare(&mut self) {
        for secret in [self.server_key].into_iter().chain(self.box_keys.clone()) {
            let public = self.terms.key_of(secret);
            self.send(public);
        }
        let count = self.setting.boxes.len();
        let orders = [vec![0, 1], vec![0], vec![1], vec![1, 0]];
        for hops in orders.into_iter().filter(|hops| hops.iter().all(|hop| *hop < count)) {
            let none = vec![None; hops.len()];
            self.path(hops, none);
        }
        self.plain_paths = self.paths.len();
    }

    /// The index of a path, which is added if it is new.
    pub(crate) fn path(&mut self, hops: Vec<usize>, ids: Vec<Option<Term>>) -> usize {
        let rights: Vec<_> = hops.iter().map(|hop| self.setting.boxes[*hop].rights).collect();
        let none = self.terms.public("no id");
        let mut fields = vec![self.terms.key_of(self.server_key)];
        for (hop, id) in hops.iter().zip(&ids) {
            let key = self.terms.key_of(self.box_keys[*hop]);
            fields.extend([key, id.unwrap_or(none)]);
        }
        let term = self.terms.tuple(&fields);
        if let Some(at) = self.paths.iter().position(|path| path.term == term) {
            return at;
        }
        self.paths.push(Path { hops, rights, ids, term });
        self.paths.len() - 1
    }

    /// An honest role or the attacker sends a term over the network, which the attacker owns.
    pub(crate) fn send(&mut self, term: Term) {
        self.attacker.learn(&self.terms, term);
    }

    /// An honest role sends a term that authenticates what it did.
    pub(crate) fn send_proof(&mut self, term: Term, made: Made) {
        self.made.insert(term, made);
        self.send(term);
    }

    /// Whether the attacker can send the term, so that an honest role may receive it.
    pub(crate) fn arrives(&mut self, term: Term) -> bool {
        self.attacker.can_make(&self.terms, term)
    }

    /// An honest role accepts something because of a term.
    pub(crate) fn accept_proof(&mut self, what: &'static str, proof: Term, expected: Made) {
        self.accepted.push(Accepted { what, proof, expected });
    }

    /// True the first time it is called with these arguments.
    pub(crate) fn first(&mut self, step: &'static str, key: &[usize]) -> bool {
        self.done.insert((step, key.to_vec()))
    }

    /// Grows as long as anything happens.
    fn size(&self) -> usize {
        self.attacker.len() + self.done.len() + self.box_tickets.len()
    }
}

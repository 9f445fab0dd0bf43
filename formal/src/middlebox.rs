//! Middleboxes that are honest, and the first messages that the attacker can make for any of them.

use crate::schedule::{HALVES, b, number, ready};
use crate::setting::Protection;
use crate::term::{Node, Term};
use crate::world::{BoxSession, BoxTicket, Hello, Made, World};

impl World {
    /// Every honest middlebox answers every first flight that reaches it, with whatever stands
    /// before it.
    pub(crate) fn send_box_hellos(&mut self) {
        for client in 0..self.client_hellos.len() {
            // PATH is authenticated by nothing yet: the attacker may have put another one before
            // the ClientHello.
            let own = self.client_hellos[client].path;
            let paths = (0..self.plain_paths).chain((own >= self.plain_paths).then_some(own));
            for path in paths.collect::<Vec<_>>() {
                let mut prefixes = vec![self.l0(path, client)];
                for position in 0..self.paths[path].hops.len() {
                    let mut next = Vec::new();
                    for prefix in prefixes {
                        self.send_hello(path, client, position, prefix);
                        for hello in self.hellos(path, client, position, prefix) {
                            next.push(self.terms.hash(&[prefix, hello.term]));
                        }
                    }
                    prefixes = next;
                }
            }
        }
    }

    /// MBHELLO and MBKEY of an honest middlebox: with a signature, and with tags if it knows the
    /// id.
    fn send_hello(&mut self, path: usize, client: usize, position: usize, prefix: Term) {
        let hop = self.paths[path].hops[position];
        if self.setting.boxes[hop].corrupt
            || !self.first("box hello", &[hop, position, prefix.index()])
        {
            return;
        }
        let place = number(&mut self.terms, position);
        let secret = self.terms.fresh("KEM key", &[place, prefix]);
        let value = self.terms.key_of(secret);
        let (term, proof) = self.signed_hello(hop, position, prefix, value);
        self.send_proof(proof, Made::ByBox(hop));
        let hello = Hello { hop, position, prefix, value, resumed: false, term };
        self.send(value);
        self.send(term);
        self.box_hellos.push((hello, client));
        let Some(part) = self.known_part(hop, path, position) else { return };
        let value = self.terms.fresh("nonce", &[place, prefix]);
        let tags = self.hello_tags(prefix, position, value, part);
        for proof in [value, tags[0], tags[1]] {
            self.send_proof(proof, Made::ByBox(hop));
        }
        let term = self.tagged_hello(value, tags);
        let hello = Hello { hop, position, prefix, value, resumed: true, term };
        self.send(term);
        self.box_hellos.push((hello, client));
    }

    /// The ticket that the middlebox keeps under the id that PATH names.
    fn known_part(&self, hop: usize, path: usize, position: usize) -> Option<BoxTicket> {
        let id = self.paths[path].ids[position]?;
        self.box_tickets
            .iter()
            .find(|(of, part)| *of == hop && part.id == id)
            .map(|(_, part)| *part)
    }

    /// Every MBHELLO at this position that a receiver could accept.
    pub(crate) fn hellos(
        &mut self,
        path: usize,
        client: usize,
        position: usize,
        prefix: Term,
    ) -> Vec<Hello> {
        let hop = self.paths[path].hops[position];
        let mut keys = vec![self.terms.attacker("KEM key")];
        keys[0] = self.terms.key_of(keys[0]);
        let mut nonces = vec![self.terms.public("nonce")];
        for (hello, of) in &self.box_hellos {
            let here = hello.prefix == prefix && hello.position == position;
            if here && hello.resumed {
                nonces.push(hello.value);
            // A corrupt middlebox may announce the key of another one as its own: of one in front
            // of it, because a key that depends on the announcement cannot be in it.
            } else if here || (*of == client && hello.position == 0 && position > 0) {
                keys.push(hello.value);
            }
        }
        keys.dedup();
        let mut all = Vec::new();
        for value in keys {
            let (term, proof) = self.signed_hello(hop, position, prefix, value);
            if self.arrives(proof) {
                all.push(Hello { hop, position, prefix, value, resumed: false, term });
            }
        }
        if let Some(part) = self.part_of(path, position) {
            for value in nonces {
                let junk = self.terms.public("junk");
                let tags = self.hello_tags(prefix, position, value, part);
                let tags = tags.map(|tag| if self.arrives(tag) { tag } else { junk });
                let term = self.tagged_hello(value, tags);
                all.push(Hello { hop, position, prefix, value, resumed: true, term });
            }
        }
        all
    }

    /// The part of a ticket whose id PATH names.
    pub(crate) fn part_of(&self, path: usize, position: usize) -> Option<BoxTicket> {
        let id = self.paths[path].ids[position]?;
        let mut parts = self.tickets.iter().flat_map(|ticket| &ticket.parts);
        parts.find(|(_, part)| part.id == id).map(|(_, part)| *part)
    }

    fn signed_hello(
        &mut self,
        hop: usize,
        position: usize,
        prefix: Term,
        value: Term,
    ) -> (Term, Term) {
        let label = self.terms.public("middlebox hello");
        let place = number(&mut self.terms, position);
        let mut message = vec![label, prefix, place];
        let mut fields = vec![self.terms.public("mode 1")];
        if self.setting.has(Protection::HelloCoversKey) {
            message.push(value);
            fields.push(value);
        }
        let message = self.terms.tuple(&message);
        let proof = self.terms.signed(self.box_keys[hop], message);
        fields.push(proof);
        (self.terms.tuple(&fields), proof)
    }

    fn tagged_hello(&mut self, nonce: Term, tags: [Term; 2]) -> Term {
        let mode = self.terms.public("mode 2");
        self.terms.tuple(&[mode, nonce, tags[0], tags[1]])
    }

    /// The tags of a resumed middlebox for the client and for the server.
    pub(crate) fn hello_tags(
        &mut self,
        prefix: Term,
        position: usize,
        nonce: Term,
        part: BoxTicket,
    ) -> [Term; 2] {
        let place = number(&mut self.terms, position);
        [part.psk, part.y].map(|key| self.terms.keyed(key, "hello", &[prefix, place, nonce]))
    }

    /// A middlebox verifies SBIND and opens its share.
    pub(crate) fn bind_boxes(&mut self) {
        for box_hello in 0..self.box_hellos.len() {
            let hello = self.box_hellos[box_hello].0.clone();
            for index in 0..self.server_sessions.len() {
                let session = &self.server_sessions[index];
                if session.hellos.get(hello.position).map(|other| (other.term, other.prefix))
                    != Some((hello.term, hello.prefix))
                {
                    continue;
                }
                for bind in 0..session.binds.len() {
                    if self.server_sessions[index].binds[bind].valid_for[hello.position]
                        && self.first("box binds", &[box_hello, index, bind])
                    {
                        self.open_share(&hello, index, bind);
                    }
                }
            }
        }
    }

    fn open_share(&mut self, hello: &Hello, index: usize, bind: usize) {
        let session = self.server_sessions[index].clone();
        let th2 = session.binds[bind].th2;
        let path = session.path;
        let mut shares = vec![session.shares[hello.position]];
        if !self.setting.has(Protection::SharesBound) && !hello.resumed {
            let evil = self.evil_halves(path, hello.position);
            let info = self.share_info(hello.position, session.th1);
            let a = self.terms.attacker("a");
            let z = self.terms.attacker("z");
            let content = self.terms.tuple(&[a, z, evil]);
            shares.push(self.terms.sealed_to(hello.value, info, content));
        }
        for share in shares {
            let Some(content) = self.opened(hello, share, path, session.th1) else { continue };
            let &[a, z, server_halves] = self.terms.fields(content) else { continue };
            self.accept_proof("SSHARE at a middlebox", share, Made::ByServer);
            self.box_sessions.push(BoxSession {
                hello: hello.clone(),
                path,
                a,
                z,
                server_halves,
                th2,
            });
        }
    }

    /// The content of a share, if this middlebox can open it.
    fn opened(&mut self, hello: &Hello, share: Term, path: usize, th1: Term) -> Option<Term> {
        match self.terms.node(share).clone() {
            Node::SealedTo { key, content, .. } => {
                (key == hello.value && !hello.resumed).then_some(content)
            }
            Node::Sealed { key, content } => {
                let part = self.known_part(hello.hop, path, hello.position)?;
                (self.share_key(part, th1) == key).then_some(content)
            }
            _ => None,
        }
    }

    /// Halves that the attacker chose.
    fn evil_halves(&mut self, path: usize, position: usize) -> Term {
        let rows = self.paths[path].classes().rows;
        let count =
            rows.iter().filter(|row| row[position] != crate::setting::Right::Nothing).count();
        let evil = self.terms.attacker("half");
        self.terms.tuple(&vec![evil; count])
    }

    /// A middlebox gets the client's halves, and proves to both endpoints that it is there.
    pub(crate) fn ready_boxes(&mut self) {
        for index in 0..self.box_sessions.len() {
            let session = self.box_sessions[index].clone();
            let mut halves = vec![self.evil_halves(session.path, session.hello.position)];
            halves.extend(self.true_client_halves(&session));
            for halves in halves {
                let share = self.seal_client_share(session.a, session.th2, halves);
                if !self.arrives(share) {
                    continue;
                }
                if self.first("box ready", &[index, halves.index()]) {
                    self.box_ready.push((index, halves));
                    let a = session.a;
                    if self.of_honest_client(a) {
                        let what = "CSHARE at a middlebox";
                        self.accept_proof(what, share, Made::ClientFinished);
                    }
                }
                self.prove_box(&session);
            }
        }
    }

    fn prove_box(&mut self, session: &BoxSession) {
        let hop = session.hello.hop;
        let th2 = session.th2;
        let to_server = b(&mut self.terms, &self.setting, true, (session.a, session.z), th2);
        let to_client = b(&mut self.terms, &self.setting, false, (session.a, session.z), th2);
        let proof = ready(&mut self.terms, to_server, true, th2);
        self.send_proof(proof, Made::ByBox(hop));
        let start = self.start(session.z, th2);
        if self.arrives(start) {
            let proof = ready(&mut self.terms, to_client, false, th2);
            self.send_proof(proof, Made::ByBox(hop));
        }
        let part = self.box_ticket(session.a, session.z, th2);
        self.box_tickets.insert((hop, part));
    }

    pub(crate) fn box_ticket(&mut self, a: Term, z: Term, th2: Term) -> BoxTicket {
        BoxTicket {
            id: self.terms.keyed(a, "resume id", &[th2]),
            psk: self.terms.keyed(a, "resume", &[th2]),
            y: self.terms.keyed(z, "resume", &[th2]),
        }
    }

    /// The halves that a client of the same session would send.
    fn true_client_halves(&mut self, session: &BoxSession) -> Option<Term> {
        let keys = self.keys_behind(session.a)?;
        let path = self.paths[session.path].clone();
        Some(keys.halves(&mut self.terms, &path, session.hello.position, HALVES[0]))
    }

    /// The session keys that a_i follows from.
    pub(crate) fn keys_behind(&self, a: Term) -> Option<crate::schedule::SessionKeys> {
        match self.terms.node(a) {
            Node::Keyed(exported, "box", _) => {
                Some(crate::schedule::SessionKeys { exported: *exported })
            }
            _ => None,
        }
    }

    /// Whether a_i belongs to a session that the honest client began.
    fn of_honest_client(&self, a: Term) -> bool {
        let Some(keys) = self.keys_behind(a) else { return false };
        self.server_sessions.iter().any(|session| {
            session.keys.exported == keys.exported && self.client_hellos[session.hello].honest
        })
    }
}

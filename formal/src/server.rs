//! The server, which is honest: a malicious one may give keys and data to anybody.

use crate::schedule::{HALVES, SessionKeys, b, number, ready};
use crate::setting::Protection;
use crate::term::Term;
use crate::world::{Bind, BoxTicket, Hello, IssuedTicket, Made, Path, ServerSession, World};

impl World {
    /// Answers every first flight that the attacker can complete.
    pub(crate) fn serve(&mut self) {
        for hello in 0..self.client_hellos.len() {
            let path = self.client_hellos[hello].path;
            let l0 = self.l0(path, hello);
            for (hellos, l) in self.complete(path, hello, Vec::new(), l0) {
                self.answer(hello, path, &hellos, l);
            }
        }
    }

    /// Every row of MBHELLOs that the server accepts, with L_n.
    fn complete(
        &mut self,
        path: usize,
        hello: usize,
        before: Vec<Hello>,
        l: Term,
    ) -> Vec<(Vec<Hello>, Term)> {
        if before.len() == self.paths[path].hops.len() {
            return vec![(before, l)];
        }
        let mut all = Vec::new();
        for next in self.hellos(path, hello, before.len(), l) {
            if !self.convinces_server(hello, path, &next) {
                continue;
            }
            let l = self.terms.hash(&[l, next.term]);
            let hellos = [before.clone(), vec![next]].concat();
            all.extend(self.complete(path, hello, hellos, l));
        }
        all
    }

    /// A signature was checked by [`World::hellos`]. A tag must be under the key that the server
    /// keeps beside the TLS session.
    fn convinces_server(&mut self, client: usize, path: usize, hello: &Hello) -> bool {
        if !hello.resumed {
            return true;
        }
        let hop = self.paths[path].hops[hello.position];
        let Some(ticket) = self.client_hellos[client].ticket else { return false };
        let part = self.tickets[ticket].parts.iter().find(|(of, _)| *of == hop);
        let Some((_, part)) = part.copied() else { return false };
        if self.paths[path].ids[hello.position] != Some(part.id) {
            return false;
        }
        let [_, tag] = self.hello_tags(hello.prefix, hello.position, hello.value, part);
        !self.setting.has(Protection::HelloTagForServer)
            || self.terms.fields(hello.term).get(3) == Some(&tag)
    }

    fn answer(&mut self, client: usize, path: usize, hellos: &[Hello], l: Term) {
        let hello = self.client_hellos[client].clone();
        let own = self.terms.fresh("server's ephemeral", &[l]);
        let share = self.terms.key_of(hello.secret);
        let public = self.terms.key_of(own);
        let Some(shared) = self.terms.shared(own, share) else { return };
        let secret = match hello.ticket {
            None => self.terms.keyed(shared, "master", &[hello.term, public]),
            Some(ticket) => {
                let both = self.terms.tuple(&[self.tickets[ticket].psk, shared]);
                self.terms.keyed(both, "master", &[hello.term, public])
            }
        };
        let finished = self.terms.keyed(secret, "server finished", &[]);
        let proof = if hello.ticket.is_none() {
            let label = self.terms.public("server CertificateVerify");
            let message = self.terms.tuple(&[label, hello.term, public]);
            self.terms.signed(self.server_key, message)
        } else {
            self.terms.public("no certificate")
        };
        let flight = self.terms.tuple(&[public, proof, finished]);
        let th1 = self.terms.hash(&[l, flight]);
        if !self.first("server", &[client, path, th1.index()]) {
            return;
        }
        let keys = SessionKeys { exported: self.terms.keyed(secret, "exporter", &[th1]) };
        let seed = self.terms.fresh("Z", &[th1]);
        let z = (0..hellos.len()).map(|hop| {
            let hop = number(&mut self.terms, hop);
            self.terms.keyed(seed, "box", &[hop])
        });
        let z: Vec<Term> = z.collect();
        let session = ServerSession {
            hello: client,
            path,
            hellos: hellos.to_vec(),
            flight,
            secret,
            keys,
            z,
            shares: Vec::new(),
            th1,
            binds: Vec::new(),
        };
        self.send(flight);
        self.accept_hellos(&session);
        self.bind(session);
    }

    fn accept_hellos(&mut self, session: &ServerSession) {
        for hello in &session.hellos {
            if self.setting.boxes[hello.hop].corrupt {
                continue;
            }
            let fields = self.terms.fields(hello.term);
            let proof = match (hello.resumed, self.setting.has(Protection::HelloTagForServer)) {
                (false, _) => fields.last().copied(),
                (true, true) => fields.get(3).copied(),
                // Without the tag, that the nonce is the middlebox's own is all that could be hoped
                // for.
                (true, false) => Some(hello.value),
            };
            if let Some(proof) = proof {
                self.accept_proof("MBHELLO at the server", proof, Made::ByBox(hello.hop));
            }
        }
    }

    /// Seals the shares and binds all to them.
    fn bind(&mut self, mut session: ServerSession) {
        let path = self.paths[session.path].clone();
        for (position, hello) in session.hellos.clone().iter().enumerate() {
            let a = session.keys.a(&mut self.terms, position);
            let halves = session.keys.halves(&mut self.terms, &path, position, HALVES[1]);
            let content = self.terms.tuple(&[a, session.z[position], halves]);
            let share = if hello.resumed {
                let Some(part) = self.part_of(session.path, position) else { return };
                let key = self.share_key(part, session.th1);
                self.terms.sealed(key, content)
            } else {
                let info = self.share_info(position, session.th1);
                self.terms.sealed_to(hello.value, info, content)
            };
            self.send_proof(share, Made::ByServer);
            session.shares.push(share);
        }
        let covered = self.covered(&session);
        if session.hellos.iter().all(|hello| hello.resumed) {
            self.bind_by_tags(&mut session, covered);
        } else {
            self.bind_by_signature(&mut session, covered);
        }
        self.server_sessions.push(session);
    }

    /// TH1 and the hashes of the shares.
    fn covered(&mut self, session: &ServerSession) -> Term {
        let mut covered = vec![session.th1];
        if self.setting.has(Protection::SharesBound) {
            for share in &session.shares {
                covered.push(self.terms.hash(&[*share]));
            }
        }
        self.terms.tuple(&covered)
    }

    fn bind_by_signature(&mut self, session: &mut ServerSession, covered: Term) {
        let label = self.terms.public("server bind");
        let message = self.terms.tuple(&[label, covered]);
        let proof = self.terms.signed(self.server_key, message);
        self.send_proof(proof, Made::ByServer);
        let th2 = self.terms.hash(&[session.th1, proof]);
        let valid_for = vec![true; session.hellos.len() + 1];
        session.binds.push(Bind { th2, valid_for });
    }

    /// A tag for each hop and the client. A receiver cannot check the tags of others, so they may
    /// have been changed.
    fn bind_by_tags(&mut self, session: &mut ServerSession, covered: Term) {
        let mut tags = Vec::new();
        for position in 0..session.hellos.len() {
            let Some(part) = self.part_of(session.path, position) else { return };
            tags.push(self.terms.keyed(part.y, "bind", &[covered]));
        }
        tags.push(self.terms.keyed(session.keys.exported, "bind", &[covered]));
        for tag in &tags {
            self.send_proof(*tag, Made::ByServer);
        }
        let junk = self.terms.public("junk");
        let mut variants = vec![(tags.clone(), vec![true; tags.len()])];
        for kept in 0..tags.len() {
            let changed =
                tags.iter().enumerate().map(|(at, tag)| if at == kept { *tag } else { junk });
            let valid = (0..tags.len()).map(|at| at == kept).collect();
            variants.push((changed.collect(), valid));
        }
        for (tags, valid_for) in variants {
            let fields = [vec![session.th1, covered], tags].concat();
            session.binds.push(Bind { th2: self.terms.hash(&fields), valid_for });
        }
    }

    /// The server accepts records after the client's Finished and READY, and that of every
    /// middlebox.
    pub(crate) fn accept_at_server(&mut self) {
        for index in 0..self.server_sessions.len() {
            let session = self.server_sessions[index].clone();
            let path = self.paths[session.path].clone();
            let th2 = session.binds[0].th2;
            let own = ready(&mut self.terms, session.keys.exported, true, th2);
            let mut proofs = Vec::new();
            for (position, hop) in path.hops.iter().enumerate() {
                let a = session.keys.a(&mut self.terms, position);
                let key = b(&mut self.terms, &self.setting, true, (a, session.z[position]), th2);
                let proof = ready(&mut self.terms, key, true, th2);
                proofs.push((proof, Made::ByBox(*hop), !self.setting.boxes[*hop].corrupt));
            }
            let present =
                self.arrives(own) && proofs.iter().all(|(proof, ..)| self.arrives(*proof));
            for honest in [true, false] {
                if present
                    && self.client_proves(&session, honest)
                    && self.first("server accepts", &[index, usize::from(honest)])
                {
                    self.admit(index, honest, own, &proofs);
                }
            }
        }
    }

    fn admit(&mut self, index: usize, honest: bool, own: Term, proofs: &[(Term, Made, bool)]) {
        for (proof, made, box_is_honest) in proofs {
            if *box_is_honest {
                self.accept_proof("READY at the server", *proof, made.clone());
            }
        }
        let session = self.server_sessions[index].clone();
        if honest {
            let hello = self.client_hellos[session.hello].clone();
            let key = self.honest_client();
            self.accept_proof("READY at the server", own, Made::ClientFinished);
            let terms = self.client_finished_terms(key, hello.term, session.flight, session.secret);
            for term in terms.into_iter().skip(usize::from(hello.ticket.is_some())) {
                self.accept_proof("Finished at the server", term, Made::ClientFinished);
            }
        }
        self.server_accepted.push((index, honest));
        let th2 = session.binds[0].th2;
        let answer = ready(&mut self.terms, session.keys.exported, false, th2);
        self.send_proof(answer, Made::ByServer);
        for (hello, z) in session.hellos.iter().zip(&session.z) {
            let start = self.start(*z, th2);
            self.send(start);
            if !self.setting.boxes[hello.hop].corrupt {
                self.secrets.push(("z of an honest middlebox", *z));
            }
        }
        if self.client_hellos[session.hello].ticket.is_none() {
            self.issue(&session, honest, th2);
        }
    }

    /// Issues a ticket. Sessions that were resumed issue none here, which bounds the search.
    fn issue(&mut self, session: &ServerSession, client_is_honest: bool, th2: Term) {
        let hops = self.paths[session.path].hops.clone();
        let mut parts = Vec::new();
        for (position, hop) in hops.into_iter().enumerate() {
            let a = session.keys.a(&mut self.terms, position);
            parts.push((hop, self.box_ticket(a, session.z[position], th2)));
            if !self.setting.boxes[hop].corrupt {
                self.secrets.push(("y of an honest middlebox", parts[position].1.y));
            }
        }
        let id = self.terms.fresh("ticket", &[th2]);
        let psk = self.terms.keyed(session.secret, "resumption", &[th2]);
        self.send(id);
        self.tickets.push(IssuedTicket { id, psk, client_is_honest, parts });
    }

    /// The ticket that a server's session issued.
    pub(crate) fn ticket_of(&self, session: usize) -> Option<usize> {
        let session = &self.server_sessions[session];
        let th2 = session.binds.first()?.th2;
        self.tickets.iter().position(|ticket| {
            matches!(self.terms.node(ticket.psk), crate::term::Node::Keyed(secret, _, fields)
                if *secret == session.secret && fields.first() == Some(&th2))
        })
    }

    /// What proves the client: its signature, then its Finished. A resumed session has the identity
    /// of its ticket.
    pub(crate) fn client_finished_terms(
        &mut self,
        key: Term,
        hello: Term,
        flight: Term,
        secret: Term,
    ) -> [Term; 2] {
        let label = self.terms.public("client CertificateVerify");
        let message = self.terms.tuple(&[label, hello, flight]);
        [self.terms.signed(key, message), self.terms.keyed(secret, "client finished", &[])]
    }

    fn client_proves(&mut self, session: &ServerSession, honest: bool) -> bool {
        let hello = self.client_hellos[session.hello].clone();
        let key = if honest { self.honest_client() } else { self.terms.attacker("client's key") };
        let terms = self.client_finished_terms(key, hello.term, session.flight, session.secret);
        match hello.ticket {
            Some(ticket) => {
                self.tickets[ticket].client_is_honest == honest && self.arrives(terms[1])
            }
            None => terms.iter().all(|term| self.arrives(*term)),
        }
    }

    /// The honest client's identity key.
    pub(crate) fn honest_client(&mut self) -> Term {
        self.terms.fresh("client's key", &[])
    }

    /// L_0: PATH and ClientHello.
    pub(crate) fn l0(&mut self, path: usize, client: usize) -> Term {
        let fields = [self.paths[path].term, self.client_hellos[client].term];
        self.terms.hash(&fields)
    }

    /// The start that opens a middlebox's way to the client.
    pub(crate) fn start(&mut self, z: Term, th2: Term) -> Term {
        let key = self.terms.keyed(z, "start", &[th2]);
        let started = self.terms.public("started");
        self.terms.sealed(key, started)
    }

    pub(crate) fn share_info(&mut self, position: usize, th1: Term) -> Term {
        let label = self.terms.public("sshare");
        let position = number(&mut self.terms, position);
        self.terms.tuple(&[label, position, th1])
    }

    pub(crate) fn share_key(&mut self, part: BoxTicket, th1: Term) -> Term {
        let key = if self.setting.has(Protection::ShareUnderY) { part.y } else { part.psk };
        self.terms.keyed(key, "share", &[th1])
    }

    /// CSHARE of a hop.
    pub(crate) fn client_share(
        &mut self,
        session: &ServerSession,
        path: &Path,
        hop: usize,
        th2: Term,
    ) -> Term {
        let halves = session.keys.halves(&mut self.terms, path, hop, HALVES[0]);
        let a = session.keys.a(&mut self.terms, hop);
        self.seal_client_share(a, th2, halves)
    }

    pub(crate) fn seal_client_share(&mut self, a: Term, th2: Term, halves: Term) -> Term {
        if !self.setting.has(Protection::ClientHalfSealed) {
            return self.terms.tuple(&[halves]);
        }
        let key = self.terms.keyed(a, "cshare", &[th2]);
        self.terms.sealed(key, halves)
    }
}

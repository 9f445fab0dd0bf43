//! The honest client, and what the attacker's client can begin.

use crate::schedule::{HALVES, b, class_keys, number, ready};
use crate::setting::Right;
use crate::term::Term;
use crate::world::{ClientHello, Made, World};

impl World {
    /// Two full sessions of the honest client, a resumed one for each that it accepted, and all
    /// that the attacker's client can begin.
    pub(crate) fn start_clients(&mut self) {
        if self.first("full", &[]) {
            for session in 0..2 {
                let session = number(&mut self.terms, session);
                let secret = self.terms.fresh("client's ephemeral", &[session]);
                self.begin(0, secret, None, true);
            }
            let own = self.terms.attacker("ephemeral");
            let other = self.client_hellos[0].secret;
            for path in 0..self.plain_paths {
                self.begin(path, own, None, false);
                if path != 0 {
                    self.begin(path, other, None, false);
                }
            }
        }
        for ticket in 0..self.tickets.len() {
            self.resume(ticket);
        }
    }

    /// Sends PATH and ClientHello.
    fn begin(&mut self, path: usize, secret: Term, ticket: Option<usize>, honest: bool) {
        let share = self.terms.key_of(secret);
        let bound = self.terms.hash(&[self.paths[path].term]);
        let none = self.terms.public("no ticket");
        let mut fields = vec![share, bound];
        if let Some(ticket) = ticket {
            let TlsTicket { id, psk } = self.tls_ticket(ticket);
            let covered = self.terms.hash(&[share, bound, id]);
            fields.extend([id, self.terms.keyed(psk, "binder", &[covered])]);
        } else {
            fields.push(none);
        }
        let term = self.terms.tuple(&fields);
        if !honest && !self.arrives(term) {
            return;
        }
        self.send(self.paths[path].term);
        self.send(term);
        self.client_hellos.push(ClientHello { path, secret, term, ticket, honest });
    }

    fn tls_ticket(&self, ticket: usize) -> TlsTicket {
        let ticket = &self.tickets[ticket];
        TlsTicket { id: ticket.id, psk: ticket.psk }
    }

    fn resume(&mut self, index: usize) {
        let ticket = self.tickets[index].clone();
        let hops: Vec<usize> = ticket.parts.iter().map(|(hop, _)| *hop).collect();
        let own: Vec<_> = ticket.parts.iter().map(|(_, part)| Some(part.id)).collect();
        if ticket.client_is_honest {
            let accepted = self.client_accepted.iter().any(|(session, _)| {
                self.is_honest_client(*session) && self.ticket_of(*session) == Some(index)
            });
            if accepted && self.first("resume", &[index]) {
                let path = self.path(hops, own);
                let secret = self.terms.fresh("client's ephemeral, resumed", &[ticket.id]);
                self.begin(path, secret, Some(index), true);
            }
            return;
        }
        // The attacker names ids of its own session, of another one, or none.
        let others: Vec<_> = self.foreign_ids(&hops);
        let secret = self.terms.attacker("ephemeral");
        for ids in choices(&own, &others) {
            let path = self.path(hops.clone(), ids);
            if self.first("resume as attacker", &[index, path]) {
                self.begin(path, secret, Some(index), false);
            }
        }
    }

    /// For each hop an id of the honest client's that was seen on the network.
    fn foreign_ids(&mut self, hops: &[usize]) -> Vec<Option<Term>> {
        let honest: Vec<_> =
            self.tickets.iter().filter(|ticket| ticket.client_is_honest).cloned().collect();
        hops.iter()
            .map(|hop| {
                let ids = honest.iter().flat_map(|ticket| &ticket.parts);
                let seen: Vec<_> =
                    ids.filter(|(of, _)| of == hop).map(|(_, part)| part.id).collect();
                seen.into_iter().find(|id| self.attacker.can_make(&self.terms, *id))
            })
            .collect()
    }

    fn is_honest_client(&self, session: usize) -> bool {
        self.client_hellos[self.server_sessions[session].hello].honest
    }

    /// The client checks the server's flight, every MBHELLO and SBIND; then it sends all that is
    /// left to send.
    pub(crate) fn bind_clients(&mut self) {
        for session in 0..self.server_sessions.len() {
            if !self.is_honest_client(session) {
                continue;
            }
            for bind in 0..self.server_sessions[session].binds.len() {
                let valid =
                    self.server_sessions[session].binds[bind].valid_for.last() == Some(&true);
                if valid
                    && self.hellos_convince_client(session)
                    && self.first("client binds", &[session, bind])
                {
                    self.client_bound.push((session, bind));
                    self.send_second_flight(session, bind);
                }
            }
        }
    }

    /// Signatures were checked when the server got the same messages; tags for the client are
    /// checked here.
    fn hellos_convince_client(&mut self, session: usize) -> bool {
        let session = self.server_sessions[session].clone();
        session.hellos.iter().all(|hello| {
            if !hello.resumed {
                return true;
            }
            let Some(part) = self.part_of(session.path, hello.position) else { return false };
            let [tag, _] = self.hello_tags(hello.prefix, hello.position, hello.value, part);
            self.terms.fields(hello.term).get(2) == Some(&tag)
        })
    }

    fn send_second_flight(&mut self, index: usize, bind: usize) {
        let session = self.server_sessions[index].clone();
        let path = self.paths[session.path].clone();
        let th2 = session.binds[bind].th2;
        let hello = self.client_hellos[session.hello].clone();
        let key = self.honest_client();
        let finished = self.client_finished_terms(key, hello.term, session.flight, session.secret);
        for term in finished {
            self.send_proof(term, Made::ClientFinished);
        }
        let own = ready(&mut self.terms, session.keys.exported, true, th2);
        self.send_proof(own, Made::ClientFinished);
        for hop in 0..path.hops.len() {
            let share = self.client_share(&session, &path, hop, th2);
            self.send_proof(share, Made::ClientFinished);
        }
        self.note_secrets(index, th2);
        self.send_requests(index, bind);
    }

    /// What must stay secret in a session of the honest client.
    fn note_secrets(&mut self, index: usize, th2: Term) {
        let session = self.server_sessions[index].clone();
        let path = self.paths[session.path].clone();
        let private = self.terms.keyed(session.keys.exported, "private", &[th2]);
        self.secrets.push(("E", session.keys.exported));
        self.secrets.push(("the key of context 0", private));
        for (class, row) in path.classes().rows.iter().enumerate() {
            let halves = HALVES.map(|side| session.keys.half(&mut self.terms, side, class));
            let (read, write) = class_keys(&mut self.terms, th2, halves[0], halves[1]);
            let corrupt = |wanted: &[Right]| {
                path.hops
                    .iter()
                    .zip(row)
                    .any(|(hop, right)| self.setting.boxes[*hop].corrupt && wanted.contains(right))
            };
            if !corrupt(&[Right::Write]) {
                self.secrets.push(("the write key of a class", write));
            }
            if !corrupt(&[Right::Write, Right::Read]) {
                self.secrets.push(("the read key of a class", read));
            }
        }
        for (position, hop) in path.hops.iter().enumerate() {
            if !self.setting.boxes[*hop].corrupt {
                let a = session.keys.a(&mut self.terms, position);
                self.secrets.push(("a of an honest middlebox", a));
            }
        }
    }

    /// The client accepts records after the READY of the server and of every middlebox.
    pub(crate) fn accept_at_client(&mut self) {
        for (index, bind) in self.client_bound.clone() {
            let session = self.server_sessions[index].clone();
            let path = self.paths[session.path].clone();
            let th2 = session.binds[bind].th2;
            let server = ready(&mut self.terms, session.keys.exported, false, th2);
            let mut proofs = vec![(server, Made::ByServer, true)];
            for (position, hop) in path.hops.iter().enumerate() {
                let a = session.keys.a(&mut self.terms, position);
                let key = b(&mut self.terms, &self.setting, false, (a, session.z[position]), th2);
                let proof = ready(&mut self.terms, key, false, th2);
                proofs.push((proof, Made::ByBox(*hop), !self.setting.boxes[*hop].corrupt));
            }
            if proofs.iter().all(|(proof, ..)| self.attacker.can_make(&self.terms, *proof))
                && self.first("client accepts", &[index, bind])
            {
                for (proof, made, honest) in proofs {
                    if honest {
                        self.accept_proof("READY at the client", proof, made);
                    }
                }
                self.client_accepted.push((index, bind));
            }
        }
    }
}

/// What TLS needs of a ticket.
struct TlsTicket {
    id: Term,
    psk: Term,
}

/// Every way to name the own id, the other one, or none for each hop.
fn choices(own: &[Option<Term>], other: &[Option<Term>]) -> Vec<Vec<Option<Term>>> {
    let mut all = vec![Vec::new()];
    for (own, other) in own.iter().zip(other) {
        let mut options = vec![*own, None, *other];
        options.dedup();
        all = all
            .iter()
            .flat_map(|ids: &Vec<Option<Term>>| {
                options.iter().map(|option| [ids.clone(), vec![*option]].concat())
            })
            .collect();
    }
    all
}

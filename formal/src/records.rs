//! Requests, answers and endorsements, each in one record; a cache in every middlebox that may
//! write both.

use crate::schedule::{HALVES, SessionKeys, b, class_keys, direction, number};
use crate::setting::{Protection, REQUEST, RESPONSE, Right};
use crate::term::Term;
use crate::world::{BoxSession, Made, Path, World};

/// The requests: the honest client's first and second, and one that only the attacker makes.
const REQUESTS: [&str; 3] = ["first request", "second request", "attacker's request"];
/// Requests of a session.
const PER_SESSION: usize = 2;

/// The keys for one context.
#[derive(Clone, Copy)]
struct ContextKeys {
    read: Term,
    /// None if no middlebox may write.
    write: Option<Term>,
}

/// Where a record stands: context, direction, number, and who made it (0 the endpoint, or a hop
/// from 1).
#[derive(Clone, Copy)]
struct Slot {
    context: usize,
    number: usize,
    origin: usize,
}

impl World {
    /// The honest client's requests.
    pub(crate) fn send_requests(&mut self, index: usize, bind: usize) {
        let session = self.server_sessions[index].clone();
        let path = self.paths[session.path].clone();
        let th2 = session.binds[bind].th2;
        let keys = self.endpoint_keys(session.keys, &path, REQUEST, th2);
        for (request, name) in REQUESTS.iter().enumerate().take(PER_SESSION) {
            let slot = Slot { context: REQUEST, number: request, origin: 0 };
            let content = self.terms.public(name);
            for term in self.record(keys, session.keys.exported, slot, content, th2) {
                self.send(term);
            }
        }
    }

    /// The server answers, middleboxes forward, and store what is endorsed.
    pub(crate) fn exchange(&mut self) {
        for (index, _) in self.server_accepted.clone() {
            self.answer_requests(index);
        }
        for (index, halves) in self.box_ready.clone() {
            let session = self.box_sessions[index].clone();
            let path = self.paths[session.path].clone();
            let rights = path.rights[session.hello.position];
            if rights[REQUEST] == Right::Write && rights[RESPONSE] == Right::Write {
                self.store(index, &session, &path, halves);
            }
        }
    }

    fn answer_requests(&mut self, index: usize) {
        let session = self.server_sessions[index].clone();
        let path = self.paths[session.path].clone();
        let th2 = session.binds[0].th2;
        let keys = self.endpoint_keys(session.keys, &path, REQUEST, th2);
        let back = self.endpoint_keys(session.keys, &path, RESPONSE, th2);
        for (number, name, origin) in cases(&path) {
            let content = self.terms.public(name);
            let slot = Slot { context: REQUEST, number, origin };
            let third = if origin == 0 {
                session.keys.exported
            } else {
                let a = session.keys.a(&mut self.terms, origin - 1);
                b(&mut self.terms, &self.setting, true, (a, session.z[origin - 1]), th2)
            };
            let record = self.record(keys, third, slot, content, th2);
            if !record.iter().all(|term| self.arrives(*term))
                || !self.first("answer", &[index, number, content.index(), origin])
            {
                continue;
            }
            let answer = self.terms.fresh("answer", &[content]);
            let slot = Slot { context: RESPONSE, number, origin: 0 };
            for term in self.record(back, session.keys.exported, slot, answer, th2) {
                self.send(term);
            }
            // An answer is no secret: the attacker's client may have asked the same.
            self.send(answer);
            for z in session.z.clone() {
                let tag = self.endorsement(z, th2, number, (content, origin), answer);
                self.send_proof(tag, Made::Answer { request: content });
            }
        }
    }

    /// A middlebox stores an answer under the request that it sent on, once the endorsement has
    /// verified.
    fn store(&mut self, index: usize, session: &BoxSession, path: &Path, halves: Term) {
        let position = session.hello.position;
        let Some(keys) = self.box_keys_of(session, path, halves, REQUEST) else { return };
        let Some(back) = self.box_keys_of(session, path, halves, RESPONSE) else { return };
        let mut answers: Vec<Term> = REQUESTS
            .iter()
            .map(|name| {
                let request = self.terms.public(name);
                self.terms.fresh("answer", &[request])
            })
            .collect();
        answers.push(self.terms.public("false answer"));
        for (number, name, origin) in cases(path).filter(|(.., origin)| *origin <= position) {
            let request = self.terms.public(name);
            let slot = Slot { context: REQUEST, number, origin };
            // The third tag is for the endpoints; a middlebox checks the other two.
            let record = self.record(keys, session.a, slot, request, session.th2);
            if !record[..record.len() - 1].iter().all(|term| self.arrives(*term)) {
                continue;
            }
            for &answer in &answers {
                let slot = Slot { context: RESPONSE, number, origin: 0 };
                let record = self.record(back, session.a, slot, answer, session.th2);
                let tag =
                    self.endorsement(session.z, session.th2, number, (request, origin), answer);
                if record[..record.len() - 1].iter().all(|term| self.arrives(*term))
                    && self.arrives(tag)
                    && self.first("store", &[index, number, request.index(), answer.index()])
                {
                    let expected = Made::Answer { request };
                    self.accept_proof("endorsement at a cache", tag, expected);
                }
            }
        }
    }

    fn endorsement(
        &mut self,
        z: Term,
        th2: Term,
        request: usize,
        (content, origin): (Term, usize),
        answer: Term,
    ) -> Term {
        let key = self.terms.keyed(z, "endorse", &[th2]);
        let request = number(&mut self.terms, request);
        let origin = number(&mut self.terms, origin);
        let mut fields = vec![request, self.terms.hash(&[answer])];
        if self.setting.has(Protection::EndorsedRequest) {
            fields.push(self.terms.hash(&[content, origin]));
        }
        self.terms.keyed(key, "endorsement", &fields)
    }

    /// The ciphertext, the writer tag where there is one, and the third tag.
    fn record(
        &mut self,
        keys: ContextKeys,
        third: Term,
        slot: Slot,
        content: Term,
        th2: Term,
    ) -> Vec<Term> {
        let meta = [
            number(&mut self.terms, slot.context),
            direction(&mut self.terms, slot.context == REQUEST),
            number(&mut self.terms, slot.number),
            number(&mut self.terms, slot.origin),
        ];
        let key = self.terms.keyed(keys.read, "record", &meta);
        let mut terms = vec![self.terms.sealed(key, content)];
        let covered = [meta.as_slice(), &[content, th2]].concat();
        if let Some(write) = keys.write {
            terms.push(self.terms.keyed(write, "writer", &covered));
        }
        let label = if slot.origin == 0 { "endpoint" } else { "author" };
        terms.push(self.terms.keyed(third, label, &covered));
        terms
    }

    fn endpoint_keys(
        &mut self,
        keys: SessionKeys,
        path: &Path,
        context: usize,
        th2: Term,
    ) -> ContextKeys {
        let classes = path.classes();
        let Some(class) = classes.of[context] else {
            let read = self.terms.keyed(keys.exported, "private", &[th2]);
            return ContextKeys { read, write: None };
        };
        let halves = HALVES.map(|side| keys.half(&mut self.terms, side, class));
        let (read, write) = class_keys(&mut self.terms, th2, halves[0], halves[1]);
        let written = classes.rows[class].contains(&Right::Write);
        ContextKeys { read, write: written.then_some(write) }
    }

    /// The keys that a middlebox with write has for a context.
    fn box_keys_of(
        &mut self,
        session: &BoxSession,
        path: &Path,
        halves: Term,
        context: usize,
    ) -> Option<ContextKeys> {
        let classes = path.classes();
        let position = session.hello.position;
        let class = classes.of[context]?;
        let rows = &classes.rows[..class];
        let at = rows.iter().filter(|row| row[position] != Right::Nothing).count();
        let client = *self.terms.fields(halves).get(at)?;
        let server = *self.terms.fields(session.server_halves).get(at)?;
        let (read, write) = class_keys(&mut self.terms, session.th2, client, server);
        Some(ContextKeys { read, write: Some(write) })
    }
}

/// Every request in every place, from every origin that may write it.
fn cases(path: &Path) -> impl Iterator<Item = (usize, &'static str, usize)> + use<> {
    let writers = path.rights.iter().enumerate();
    let writers = writers.filter(|(_, rights)| rights[REQUEST] == Right::Write);
    let origins: Vec<usize> = [0].into_iter().chain(writers.map(|(hop, _)| hop + 1)).collect();
    (0..PER_SESSION).flat_map(move |number| {
        let origins = origins.clone();
        REQUESTS.iter().flat_map(move |name| {
            origins.clone().into_iter().map(move |origin| (number, *name, origin))
        })
    })
}

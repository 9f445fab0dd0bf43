//! The cache in one session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use hyper::{Method, header};
use levada_contexts::{Action, AnswerPart, Direction, Inspector, Path, Piece, Purpose};
use levada_core::Identity;

use super::receiving::Receiving;
use super::request::{Missed, Passing, Request, absent_head, stored_head};
use super::rules::{RequestRules, invalidates};
use super::store::Cache;
use super::target::{Realm, Target};
use crate::http::{MAX_HEAD, RequestHead};
use crate::middlebox::{Granted, Need, SessionLog};

/// Bytes of a body in one part of an answer.
const PART: usize = 64 * 1024;

/// Stores answers, and gives them to later requests, as one session allows.
pub struct CacheInspector {
    cache: Arc<Cache>,
    log: SessionLog,
    granted: Granted,
    server: Option<Identity>,
    /// Who may share answers; None before the start, and if there is a reason against caching.
    realm: Option<Realm>,
    /// The rights do not suffice; this was logged.
    disabled: bool,
    /// The request that passes.
    passing: Passing,
    /// By number: requests that have passed, and have no answer yet. The relay bounds them.
    waiting: BTreeMap<u64, Request>,
    /// The answer that passes, to the lowest request without one.
    receiving: Receiving,
    /// How many requests have an answer.
    answered: u64,
    /// What of the body of an own answer was given; None before its head.
    given: Option<usize>,
}

impl CacheInspector {
    /// The cache in one session; `log` is the log of the session.
    pub fn new(cache: &Arc<Cache>, log: SessionLog) -> Self {
        Self {
            cache: cache.clone(),
            log,
            granted: Granted::default(),
            server: None,
            realm: None,
            disabled: false,
            passing: Passing::default(),
            waiting: BTreeMap::new(),
            receiving: Receiving::default(),
            answered: 0,
            given: None,
        }
    }

    fn log(&self, text: impl std::fmt::Display) {
        self.log.note(format!("cache: {text}"));
    }

    fn disable(&mut self, reason: &str) {
        self.disabled = true;
        self.log(format_args!("nothing is stored or answered in this session: {reason}"));
    }

    /// A record of a request.
    fn request(&mut self, piece: &Piece<'_>) -> Action {
        let purpose = self.granted.purpose(piece.context);
        let emptied = matches!(self.passing.request, Request::Hit(..) | Request::Absent);
        if purpose != Purpose::RequestHead {
            self.passing.content |= !piece.data.is_empty();
            return match emptied && !piece.data.is_empty() {
                true if self.granted.may_write(piece.context) => Action::Replace(Vec::new()),
                true => Action::Block("a request with trailers that cannot be removed".to_owned()),
                false => Action::Pass,
            };
        }
        let whole = !std::mem::replace(&mut self.passing.begun, true) && piece.end;
        if self.passing.head.len() + piece.data.len() <= MAX_HEAD {
            self.passing.head.extend_from_slice(piece.data);
        }
        if !piece.end || self.passing.head.is_empty() {
            return Action::Pass;
        }
        self.passing.request = match RequestHead::decode(&self.passing.head) {
            // What has passed in part can no longer be answered here.
            Ok(head) => self.decide(head, whole && !self.passing.content),
            Err(_) => Request::Bypassed("its request cannot be read"),
        };
        match self.passing.request {
            Request::Hit(..) | Request::Absent => Action::Replace(Vec::new()),
            _ => Action::Pass,
        }
    }

    fn decide(&self, head: RequestHead, may_answer: bool) -> Request {
        let Some(realm) = self.realm else {
            return Request::Bypassed("its request came before the node had started the session");
        };
        let path = head.target.path_and_query().map_or("/", |target| target.as_str());
        let host = head.fields.get(header::HOST).cloned();
        let target = Target { host, target: path.to_owned() };
        let rules = match RequestRules::of(&head) {
            Ok(rules) => rules,
            Err(_) if !head.method.is_safe() => return Request::Unsafe(head.method, target),
            Err(_) if may_answer && RequestRules::wants_stored_only(&head) => {
                return Request::Absent;
            }
            Err(reason) => return Request::Bypassed(reason),
        };
        let now = Instant::now();
        if may_answer {
            let wanted = (&rules, &head.fields);
            if let Some(entry) = self.cache.find(realm, &target, wanted, now) {
                let age = entry.age(now);
                return Request::Hit(entry, age);
            }
            if rules.only_if_cached {
                return Request::Absent;
            }
        }
        let pending = self.cache.expect(realm, target);
        Request::Missed(Box::new(Missed { rules, pending, fields: head.fields, sent: now }))
    }

    fn end_request(&mut self, number: u64) {
        let Passing { request, content, head, .. } = std::mem::take(&mut self.passing);
        let request = match request {
            Request::Missed(_) if content => Request::Bypassed("its request has a body"),
            Request::Unread if !head.is_empty() => Request::Bypassed("its request cannot be read"),
            other => other,
        };
        match &request {
            Request::Hit(_, age) => {
                self.log(format_args!("request {number}: hit, {} s old", age.as_secs()));
            }
            Request::Absent => self.log(format_args!("request {number}: not stored, 504")),
            Request::Missed(_) => self.log(format_args!("request {number}: miss")),
            _ => {}
        }
        self.waiting.insert(number, request);
    }

    /// A record of an answer: to the lowest request without one, unless it has no bytes.
    fn response(&mut self, piece: &Piece<'_>) {
        if piece.data.is_empty() && !piece.end {
            return;
        }
        let request = self.waiting.get(&self.answered);
        if !matches!(request, Some(Request::Missed(_) | Request::Unsafe(..))) {
            return;
        }
        match self.granted.purpose(piece.context) {
            Purpose::ResponseHead => {
                self.receiving.head(piece);
                match (request, self.server) {
                    (Some(Request::Missed(missed)), Some(server)) if piece.end => {
                        let arrived = (SystemTime::now(), missed.sent.elapsed());
                        self.receiving.evaluate(&missed.rules, arrived, self.cache.reserve(server));
                    }
                    // At once, and also if the rest never comes.
                    (Some(Request::Unsafe(method, target)), _) if piece.end => {
                        self.invalidate(method, target);
                    }
                    _ => {}
                }
            }
            Purpose::ResponseBody => self.receiving.body(piece.data, self.cache.longest()),
            _ if piece.data.is_empty() => {}
            _ => self.receiving.refuse("it has trailers"),
        }
    }

    fn end_response(&mut self, number: u64, endorsed: bool) {
        let receiving = std::mem::take(&mut self.receiving);
        // The server's answer to a request that was answered on the way.
        if number < self.answered {
            return;
        }
        self.answered = number + 1;
        match self.waiting.remove(&number) {
            Some(Request::Missed(missed)) => {
                let outcome = self.store(&missed, receiving, endorsed);
                match outcome {
                    Ok(text) => self.log(format_args!("response {number}: stored, {text}")),
                    Err(reason) => {
                        self.log(format_args!("response {number}: not stored: {reason}"));
                    }
                }
            }
            Some(Request::Unsafe(..)) => {
                self.log(format_args!("response {number}: not stored: the method is not GET"));
            }
            Some(Request::Bypassed(reason)) => {
                self.log(format_args!("response {number}: not stored: {reason}"));
            }
            _ => {}
        }
    }

    /// Removes what is stored for the target of a request that changes something.
    fn invalidate(&self, method: &Method, target: &Target) {
        let changed = self.receiving.status().is_some_and(|status| invalidates(method, status));
        if let Some(realm) = self.realm.filter(|_| changed) {
            self.cache.invalidate(realm, target);
        }
    }

    fn store(
        &self,
        missed: &Missed,
        receiving: Receiving,
        endorsed: bool,
    ) -> Result<String, &'static str> {
        let (entry, reservation) = receiving.finish(&missed.fields)?;
        if !endorsed {
            return Err(
                "the node has not endorsed it, as a middlebox behind this one has changed it or its request, or has answered itself",
            );
        }
        let bytes = entry.body.len();
        let left = entry.fresh.lifetime - entry.fresh.age;
        let stored = self.cache.store(&missed.pending, &missed.fields, entry);
        drop(reservation);
        stored?;
        Ok(format!("{bytes} B for {} s", left.as_secs()))
    }
}

impl Inspector for CacheInspector {
    fn granted(&mut self, path: &Path, hop: u8) {
        self.granted = Granted::new(path, hop);
        self.server = Some(path.server.identity);
        if let Err(reason) = Need::CACHE.check_granted(&self.granted) {
            self.disable(&reason);
        }
    }

    fn started(&mut self, started: bool, realm: Option<[u8; 16]>) {
        if self.disabled || !started {
            return;
        }
        match (self.server, realm) {
            (Some(server), Some(realm)) => self.realm = Some(Realm { server, realm }),
            _ => self.disable("the service does not share answers (`share` is \"none\" there)"),
        }
    }

    fn record(&mut self, piece: Piece<'_>) -> Action {
        if self.disabled {
            return Action::Pass;
        }
        match piece.direction {
            Direction::ToServer => self.request(&piece),
            Direction::ToClient => {
                self.response(&piece);
                Action::Pass
            }
        }
    }

    fn exchange(&mut self, direction: Direction, number: u64, endorsed: bool) {
        if self.disabled {
            return;
        }
        match direction {
            Direction::ToServer => self.end_request(number),
            Direction::ToClient => self.end_response(number, endorsed),
        }
    }

    fn answer(&mut self, number: u64) -> Option<AnswerPart> {
        let context = self.granted.number(Purpose::ResponseHead)?;
        let part = match (self.waiting.get(&number)?, self.given) {
            (Request::Absent, _) => {
                AnswerPart { context, data: absent_head(), end: true, last: true }
            }
            (Request::Hit(entry, age), None) => {
                let data = stored_head(entry, *age);
                AnswerPart { context, data, end: true, last: entry.body.is_empty() }
            }
            (Request::Hit(entry, _), Some(given)) => {
                let until = entry.body.len().min(given + PART);
                let data = entry.body[given..until].to_vec();
                let last = until == entry.body.len();
                self.given = Some(until);
                let context = self.granted.number(Purpose::ResponseBody)?;
                return Some(self.part(number, AnswerPart { context, data, end: last, last }));
            }
            _ => return None,
        };
        self.given = Some(0);
        Some(self.part(number, part))
    }
}

impl CacheInspector {
    /// Notes the end of an own answer.
    fn part(&mut self, number: u64, part: AnswerPart) -> AnswerPart {
        if part.last {
            self.waiting.remove(&number);
            self.answered = number + 1;
            self.given = None;
        }
        part
    }
}

#[cfg(test)]
mod tests;

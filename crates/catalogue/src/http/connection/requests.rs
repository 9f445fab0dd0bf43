//! From bytes that have come to requests, and from those to what has to be done next.

use std::sync::Arc;

use super::{Answering, Connection, ENOUGH, Step};
use crate::http::incoming::Incoming;
use crate::http::problem::refusal_response;
use crate::http::request::{Parsed, Refusal, Sends, parse};
use crate::http::route::{Reply, is_compat};

impl Connection {
    /// Answers what has come.
    pub(super) fn advance(&mut self) -> Step {
        loop {
            if self.outgoing.last {
                return Step::End;
            }
            if self.outgoing.waiting() >= ENOUGH {
                return Step::Send;
            }
            if self.start == self.end {
                return Step::Read;
            }
            if let Some(step) = self.next() {
                return step;
            }
        }
    }

    /// Goes on with the next request. None if there may be another behind it.
    fn next(&mut self) -> Option<Step> {
        if let Some(incoming) = self.incoming.take() {
            return self.take_body(incoming);
        }
        let (mut request, used) = match parse(&self.input[self.start..self.end]) {
            Parsed::Partial => return Some(Step::Read),
            Parsed::Refused(refusal) => return Some(self.refuse(refusal)),
            Parsed::Request(request, used) => (request, used),
        };
        if let Err(refusal) = self.site.config.hosts.apply(&mut request) {
            return Some(self.refuse(refusal));
        }
        if self.place.is_reserved() && !self.site.is_extra(&request) {
            return Some(Step::Place);
        }
        if request.sends == Sends::Nothing {
            let (reply, answering) = (self.site.answer(&request), Answering::of(&request));
            self.start += used;
            return self.reply(reply, answering);
        }
        if !is_compat(request.path) {
            let detail =
                "POST is answered under /.well-known/ only: publish with `levada catalogue`";
            return Some(self.refuse(Refusal { status: 405, detail }));
        }
        let head = self.start..self.start + used;
        let waits = request.waits && head.end == self.end;
        match Incoming::new(&self.input[head.clone()], request.sends) {
            Ok(incoming) => self.incoming = Some(incoming),
            Err(refusal) => return Some(self.refuse(refusal)),
        }
        if waits {
            self.outgoing.text().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.start = head.end;
        None
    }

    /// Takes what has come of a body, and answers its request when that is all.
    fn take_body(&mut self, mut incoming: Incoming) -> Option<Step> {
        let place = || Arc::clone(&self.site.long_bodies).try_acquire_owned().ok();
        match incoming.take(&self.input[self.start..self.end], place) {
            Ok(used) => self.start += used,
            Err(refusal) => return Some(self.refuse_body(refusal)),
        }
        if !incoming.is_done() {
            self.incoming = Some(incoming);
            return Some(Step::Read);
        }
        let Parsed::Request(mut request, _) = parse(&incoming.head) else { return Some(Step::End) };
        if let Err(refusal) = self.site.config.hosts.apply(&mut request) {
            return Some(self.refuse_body(refusal));
        }
        request.body = &incoming.body;
        let (reply, answering) = (self.site.answer(&request), Answering::of(&request));
        self.reply(reply, answering)
    }

    fn reply(&mut self, reply: Reply, mut answering: Answering) -> Option<Step> {
        self.head_until = None;
        self.place.work();
        answering.keep_alive &= !self.place.is_reserved();
        match reply {
            Reply::Now(response) => self.push(response, answering),
            Reply::Later(job) => Some(Step::Job(job, answering)),
        }
    }

    /// Refuses what has come, which is no request that is answered.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Step {
        // Also of what is no request it can be said whether a body would be taken for the next answer, and whose words
        // the client knows.
        let mut words = self.input[self.start..self.end].split(|byte| *byte == b' ');
        let only_head = words.next() == Some(b"HEAD");
        let target =
            words.next().and_then(|target| str::from_utf8(target).ok()).unwrap_or_default();
        let path = match target.split_once("://") {
            Some((_, rest)) => rest.find('/').map_or("", |start| &rest[start..]),
            None => target,
        };
        self.refuse_as(refusal, only_head, is_compat(path))
    }

    /// Refuses a request because of its body: only those of the original's layer have one.
    pub(super) fn refuse_body(&mut self, refusal: Refusal) -> Step {
        self.refuse_as(refusal, false, true)
    }

    fn refuse_as(&mut self, refusal: Refusal, only_head: bool, compat: bool) -> Step {
        self.refused = true;
        let answering = Answering { only_head, keep_alive: false, old: false };
        self.push(refusal_response(refusal, compat), answering);
        Step::End
    }
}

//! Parses the input of a connection into requests, and routes each of them.

use std::sync::Arc;

use super::{Connection, MAX_PENDING, ResponseContext, Step};
use crate::http::body_reader::BodyReader;
use crate::http::path::is_rethink;
use crate::http::problem::refusal_response;
use crate::http::reply::Reply;
use crate::http::request::{BodyLength, Parsed, Refusal, parse};
use crate::http::route::route;

impl Connection {
    /// Answers the requests that were received.
    pub(super) fn advance(&mut self) -> Step {
        loop {
            if self.send_buffer.last {
                return Step::End;
            }
            if self.send_buffer.pending() >= MAX_PENDING {
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

    /// Handles the next request. `None` if the input may contain another one.
    fn next(&mut self) -> Option<Step> {
        if let Some(reader) = self.body_reader.take() {
            return self.read_body(reader);
        }
        let (mut request, used) = match parse(&self.input[self.start..self.end]) {
            Parsed::Partial => return Some(Step::Read),
            Parsed::Refused(refusal) => return Some(self.refuse(refusal)),
            Parsed::Request(request, used) => (request, used),
        };
        if let Err(refusal) = self.site.config.hosts.apply(&mut request) {
            return Some(self.refuse(refusal));
        }
        if self.permit.is_reserved() && self.site.extra_response(request.path).is_none() {
            return Some(Step::Permit);
        }
        if request.body_length == BodyLength::None {
            let reply = route(&self.site, &request);
            let context = ResponseContext::of(&request);
            self.start += used;
            return self.push_reply(reply, context);
        }
        if !is_rethink(request.path) {
            let detail =
                "POST is answered under /.well-known/ only: publish with `levada catalogue`";
            return Some(self.refuse(Refusal { status: 405, detail }));
        }
        let head = self.start..self.start + used;
        let send_continue = request.expects_continue && head.end == self.end;
        match BodyReader::new(&self.input[head.clone()], request.body_length) {
            Ok(reader) => self.body_reader = Some(reader),
            Err(refusal) => return Some(self.refuse(refusal)),
        }
        if send_continue {
            self.send_buffer.text().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.start = head.end;
        None
    }

    /// Reads the received part of a body, and answers the request when it is complete.
    fn read_body(&mut self, mut reader: BodyReader) -> Option<Step> {
        let acquire = || Arc::clone(&self.site.limits.long_bodies).try_acquire_owned().ok();
        match reader.read(&self.input[self.start..self.end], acquire) {
            Ok(used) => self.start += used,
            Err(refusal) => return Some(self.refuse_body(refusal)),
        }
        if !reader.is_done() {
            self.body_reader = Some(reader);
            return Some(Step::Read);
        }
        let Parsed::Request(mut request, _) = parse(&reader.head) else { return Some(Step::End) };
        if let Err(refusal) = self.site.config.hosts.apply(&mut request) {
            return Some(self.refuse_body(refusal));
        }
        request.body = &reader.body;
        let reply = route(&self.site, &request);
        let context = ResponseContext::of(&request);
        self.push_reply(reply, context)
    }

    fn push_reply(&mut self, reply: Reply, mut context: ResponseContext) -> Option<Step> {
        self.request_until = None;
        self.permit.set_busy();
        context.keep_alive &= !self.permit.is_reserved();
        match reply {
            Reply::Ready(response) => self.push(response, context),
            Reply::Job(job) => Some(Step::Job(job, context)),
        }
    }

    /// Refuses the input, which is not a request that can be answered.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Step {
        // Even malformed input shows whether it is a HEAD request, whose client would take a body
        // for the next response, and whether the client expects plain text.
        let mut words = self.input[self.start..self.end].split(|byte| *byte == b' ');
        let is_head = words.next() == Some(b"HEAD");
        let target =
            words.next().and_then(|target| str::from_utf8(target).ok()).unwrap_or_default();
        let path = match target.split_once("://") {
            Some((_, rest)) => rest.find('/').map_or("", |start| &rest[start..]),
            None => target,
        };
        self.refuse_as(refusal, is_head, is_rethink(path))
    }

    /// Refuses a request because of its body: only requests to the reTHINK compatibility layer have
    /// one.
    pub(super) fn refuse_body(&mut self, refusal: Refusal) -> Step {
        self.refuse_as(refusal, false, true)
    }

    fn refuse_as(&mut self, refusal: Refusal, is_head: bool, rethink: bool) -> Step {
        self.refused = true;
        let context = ResponseContext { is_head, keep_alive: false, http_1_0: false, is_v1: false };
        self.push(refusal_response(refusal, rethink), context);
        Step::End
    }
}

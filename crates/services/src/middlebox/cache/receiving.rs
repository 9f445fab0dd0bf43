//! An answer that passes, and may be stored.

use std::time::{Duration, Instant, SystemTime};

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use levada_contexts::Piece;

use super::rules::{Freshness, RequestRules, Times, storable, values, varying};
use super::store::{Entry, Reservation};
use crate::http::{MAX_HEAD, ResponseHead};

/// What has passed of an answer.
#[derive(Default)]
pub(super) struct Receiving {
    head: Vec<u8>,
    decided: Option<Result<Wanted, &'static str>>,
}

/// An answer whose head allows that it is stored.
struct Wanted {
    head: ResponseHead,
    fresh: Freshness,
    arrived: Instant,
    body: Vec<u8>,
    reservation: Reservation,
}

/// An answer that is complete, and the memory that it took while it was received.
pub(super) type Received = (Entry, Reservation);

impl Receiving {
    /// A record of the head. One that is too long is cut, and then cannot be read.
    pub(super) fn head(&mut self, piece: &Piece<'_>) {
        if self.head.len() <= MAX_HEAD {
            self.head.extend_from_slice(piece.data);
        }
    }

    /// Decides at the end of the head whether the answer is to be stored.
    pub(super) fn evaluate(
        &mut self,
        rules: &RequestRules,
        (arrived, delay): (SystemTime, Duration),
        reservation: Reservation,
    ) {
        self.decided = Some(self.decide(rules, Times { arrived, delay }, reservation));
    }

    fn decide(
        &self,
        rules: &RequestRules,
        times: Times,
        reservation: Reservation,
    ) -> Result<Wanted, &'static str> {
        let head = ResponseHead::decode(&self.head).map_err(|_| "its head cannot be read")?;
        let fresh = storable(rules, &head, times)?;
        Ok(Wanted { head, fresh, arrived: Instant::now(), body: Vec::new(), reservation })
    }

    /// A part of the body.
    pub(super) fn body(&mut self, data: &[u8], longest: usize) {
        let Some(Ok(wanted)) = &mut self.decided else {
            return self.refuse("its body came before the end of its head");
        };
        if let Err(reason) = wanted.append(data, longest) {
            self.decided = Some(Err(reason));
        }
    }

    /// The answer is not stored. The first reason stays.
    pub(super) fn refuse(&mut self, reason: &'static str) {
        if !matches!(self.decided, Some(Err(_))) {
            self.decided = Some(Err(reason));
        }
    }

    /// The status, if the head can be read.
    pub(super) fn status(&self) -> Option<StatusCode> {
        ResponseHead::decode(&self.head).ok().map(|head| head.status)
    }

    /// What is to be stored as the answer to a request with these fields, or why nothing is.
    pub(super) fn finish(self, request: &HeaderMap) -> Result<Received, &'static str> {
        let Wanted { head, fresh, arrived, mut body, reservation } =
            self.decided.unwrap_or(Err("its head has no end"))?;
        let vary = varying(&head.fields)?;
        let vary = vary.into_iter().map(|name| {
            let values = values(request, &name);
            (name, values)
        });
        let vary = vary.collect();
        let mut fields = head.fields;
        // Fields for the connection to a proxy (RFC 9111 section 3.1).
        for name in ["proxy-authenticate", "proxy-authentication-info", "proxy-authorization"] {
            fields.remove(name);
        }
        // RFC 9110 section 6.6.1.
        if !fields.contains_key(header::DATE) {
            let now = httpdate::fmt_http_date(SystemTime::now());
            let now = HeaderValue::try_from(now).map_err(|_| "the time cannot be written")?;
            fields.insert(header::DATE, now);
        }
        body.shrink_to_fit();
        Ok((Entry { fields, body, vary, fresh, arrived }, reservation))
    }
}

impl Wanted {
    fn append(&mut self, data: &[u8], longest: usize) -> Result<(), &'static str> {
        let length = self.body.len() + data.len();
        if length > longest {
            return Err("it is longer than an eighth of the cache");
        }
        let capacity = self.body.capacity();
        if length > capacity {
            let next = length.max(2 * capacity).min(longest);
            if !self.reservation.grow(next - capacity) {
                return Err("the cache receives too much at a time");
            }
            self.body.reserve_exact(next - self.body.len());
        }
        self.body.extend_from_slice(data);
        Ok(())
    }
}

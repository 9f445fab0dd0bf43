//! Which answers may be stored and used again (RFC 9111). What the rules leave open is decided for
//! the origin: an answer that is stale or must be validated first is not used, and not stored
//! either.

use std::time::{Duration, SystemTime};

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

use super::directives::{Directives, Seconds, seconds};
use crate::http::{RequestHead, ResponseHead};

/// The longest time for which an answer is used whose origin says nothing about it: a tenth of its
/// age since its last change, but at most this (RFC 9111 section 4.2.2 leaves the heuristic open).
const MAX_HEURISTIC: Duration = Duration::from_secs(3600);

/// The most fields that an answer may depend on: each request is compared by all of them.
const MAX_VARYING: usize = 32;

/// What a request allows a cache to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestRules {
    /// A stored answer may be used…
    reuse: bool,
    /// …if it is not older than this, in seconds…
    max_age: Option<u64>,
    /// …and is fresh for this long, in seconds.
    min_fresh: u64,
    /// No answer but a stored one is wanted.
    pub(super) only_if_cached: bool,
    /// The request has a cookie: only what its origin has declared to be for all may be stored and
    /// used.
    cookie: bool,
}

impl RequestRules {
    /// The rules of a request, or why neither its answer may be stored nor a stored one be used.
    pub(super) fn of(request: &RequestHead) -> Result<Self, &'static str> {
        if request.method != Method::GET {
            return Err("the method is not GET");
        }
        const CONDITIONS: [HeaderName; 5] = [
            header::IF_MATCH,
            header::IF_NONE_MATCH,
            header::IF_MODIFIED_SINCE,
            header::IF_UNMODIFIED_SINCE,
            header::IF_RANGE,
        ];
        let has = |name: &HeaderName| request.fields.contains_key(name);
        if has(&header::AUTHORIZATION) {
            return Err("the request has the field Authorization");
        }
        if has(&header::RANGE) {
            return Err("the request asks for a range");
        }
        if CONDITIONS.iter().any(has) {
            return Err("the request has a condition");
        }
        let directives = Directives::of(&request.fields);
        let directives = directives.map_err(|_| "the request's Cache-Control cannot be read")?;
        if directives.has("no-store") {
            return Err("the request has no-store");
        }
        let (max_age, old) = match directives.seconds("max-age") {
            Seconds::Absent => (None, true),
            Seconds::Given(seconds) => (Some(seconds), true),
            Seconds::Invalid => (None, false),
        };
        let (min_fresh, fresh) = match directives.seconds("min-fresh") {
            Seconds::Absent => (0, true),
            Seconds::Given(seconds) => (seconds, true),
            Seconds::Invalid => (0, false),
        };
        Ok(Self {
            reuse: !directives.has("no-cache") && old && fresh,
            max_age,
            min_fresh,
            only_if_cached: directives.has("only-if-cached"),
            cookie: has(&header::COOKIE),
        })
    }

    /// Returns true if a request without rules of its own wants no answer but a stored one.
    pub(super) fn wants_stored_only(request: &RequestHead) -> bool {
        let directives = Directives::of(&request.fields);
        request.method.is_safe() && directives.is_ok_and(|all| all.has("only-if-cached"))
    }

    /// Whether an answer may be used that is `age` old.
    pub(super) fn allow(&self, stored: &Freshness, age: Duration) -> bool {
        let left = stored.lifetime.saturating_sub(age);
        self.reuse
            && left > Duration::ZERO
            && left >= Duration::from_secs(self.min_fresh)
            && self.max_age.is_none_or(|most| age <= Duration::from_secs(most))
            && (!self.cookie || stored.for_all)
    }
}

/// For how long an answer may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Freshness {
    /// Its freshness lifetime (RFC 9111 section 4.2.1).
    pub(super) lifetime: Duration,
    /// Its age when it arrived (section 4.2.3).
    pub(super) age: Duration,
    /// Its origin has declared that it does not depend on who asks.
    pub(super) for_all: bool,
}

/// When a request was sent on, and when the head of its answer arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) arrived: SystemTime,
    pub(super) delay: Duration,
}

/// Whether the answer to a request may be stored, and how long it is fresh; or why not.
pub(super) fn storable(
    request: &RequestRules,
    response: &ResponseHead,
    times: Times,
) -> Result<Freshness, &'static str> {
    if response.status != StatusCode::OK {
        return Err("the status is not 200");
    }
    let fields = &response.fields;
    if fields.contains_key(header::SET_COOKIE) {
        return Err("it sets a cookie");
    }
    let directives = Directives::of(fields).map_err(|_| "its Cache-Control cannot be read")?;
    for (name, reason) in [
        ("no-store", "it has no-store"),
        ("private", "it is private"),
        ("no-cache", "it has no-cache, and would have to be validated each time"),
    ] {
        if directives.has(name) {
            return Err(reason);
        }
    }
    varying(fields)?;
    let for_all = directives.has("public") || directives.seconds("s-maxage") != Seconds::Absent;
    if request.cookie && !for_all {
        return Err("the request has a cookie, and the answer is not public");
    }
    let date = date(fields, &header::DATE).unwrap_or(times.arrived);
    let lifetime = lifetime(fields, &directives, date)?;
    let apparent = times.arrived.duration_since(date).unwrap_or_default();
    let stated = stated_age(fields).ok_or("its Age cannot be read")?;
    let age = apparent.max(stated + times.delay);
    if lifetime <= age {
        return Err("it is stale");
    }
    Ok(Freshness { lifetime, age, for_all })
}

/// Returns the value of the field Age, and zero without one. Of a list, the first member counts
/// (RFC 9111 section 5.1). `None` if it cannot be read: the RFC permits to ignore the field then,
/// but a response of unknown age would count as fresh.
fn stated_age(fields: &HeaderMap) -> Option<Duration> {
    let Some(value) = fields.get(header::AGE) else { return Some(Duration::ZERO) };
    let first = value.to_str().ok()?.split(',').next()?;
    seconds(first.trim()).map(Duration::from_secs)
}

/// RFC 9111 section 4.2.1.
fn lifetime(
    fields: &HeaderMap,
    directives: &Directives,
    date: SystemTime,
) -> Result<Duration, &'static str> {
    for name in ["s-maxage", "max-age"] {
        match directives.seconds(name) {
            Seconds::Given(seconds) => return Ok(Duration::from_secs(seconds)),
            Seconds::Invalid => return Err("its lifetime cannot be read"),
            Seconds::Absent => {}
        }
    }
    if fields.contains_key(header::EXPIRES) {
        // A date that cannot be read, such as 0, means that it has expired (section 5.3); so do
        // two.
        let once = fields.get_all(header::EXPIRES).iter().count() == 1;
        let expires = self::date(fields, &header::EXPIRES).filter(|_| once);
        let left = expires.and_then(|expires| expires.duration_since(date).ok());
        return Ok(left.unwrap_or_default());
    }
    let changed = self::date(fields, &header::LAST_MODIFIED);
    let unchanged = changed.and_then(|changed| date.duration_since(changed).ok());
    let unchanged = unchanged.ok_or("nothing says how long it is fresh")?;
    Ok((unchanged / 10).min(MAX_HEURISTIC))
}

/// A date, whose case is ignored (RFC 9111 section 4.2).
fn date(fields: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let text = fields.get(name)?.to_str().ok()?.to_ascii_lowercase();
    let mut before = ' ';
    let capital = |letter: char| {
        let begins = !std::mem::replace(&mut before, letter).is_ascii_alphabetic();
        if begins { letter.to_ascii_uppercase() } else { letter }
    };
    let text: String = text.chars().map(capital).collect();
    httpdate::parse_http_date(&text.replace("Gmt", "GMT")).ok()
}

/// The names of the fields of requests that an answer depends on, at most [`MAX_VARYING`].
pub(super) fn varying(fields: &HeaderMap) -> Result<Vec<HeaderName>, &'static str> {
    let mut names = Vec::new();
    for value in fields.get_all(header::VARY) {
        let list = value.to_str().map_err(|_| "its Vary cannot be read")?;
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if name == "*" {
                return Err("it has `Vary: *`");
            }
            let name = name.parse().map_err(|_| "its Vary cannot be read")?;
            if !names.contains(&name) {
                names.push(name);
            }
            if names.len() > MAX_VARYING {
                return Err("its Vary names too many fields");
            }
        }
    }
    Ok(names)
}

/// The values of one field of a request, in their order.
pub(super) fn values(fields: &HeaderMap, name: &HeaderName) -> Vec<HeaderValue> {
    fields.get_all(name).iter().cloned().collect()
}

/// Whether an answer to a request with this method that is no error makes stored answers for the
/// same target invalid (RFC 9111 section 4.4).
pub(super) fn invalidates(method: &Method, status: StatusCode) -> bool {
    !method.is_safe() && (status.is_success() || status.is_redirection())
}

#[cfg(test)]
mod tests;

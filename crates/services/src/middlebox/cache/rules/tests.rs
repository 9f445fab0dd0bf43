//! RFC 9111 as a table. The clock shows Sun, 06 Nov 1994 08:50:00 GMT.

use super::*;

const NOW: &str = "Sun, 06 Nov 1994 08:50:00 GMT";

fn request(fields: &str) -> RequestHead {
    let own_line = fields.starts_with("POST") || fields.starts_with("HEAD");
    let head = if own_line { fields.to_owned() } else { format!("GET /\r\n{fields}") };
    RequestHead::decode(head.replace(" | ", "\r\n").as_bytes()).unwrap()
}

fn response(text: &str) -> ResponseHead {
    let text = text.replace("NOW", NOW).replace(" | ", "\r\n");
    let line_end = if text.is_empty() { "" } else { "\r\n" };
    let head = match text.split_once(' ') {
        Some((status @ ("206" | "301" | "404"), rest)) => format!("{status}\r\n{rest}\r\n"),
        _ => format!("200\r\n{text}{line_end}"),
    };
    ResponseHead::decode(head.as_bytes()).unwrap()
}

fn times(delay: u64) -> Times {
    let arrived = httpdate::parse_http_date(NOW).unwrap();
    Times { arrived, delay: Duration::from_secs(delay) }
}

/// The lifetime and age in seconds, or why the answer is not stored.
fn outcome(fields: &str, answer: &str) -> Result<(u64, u64), &'static str> {
    let fields = if fields.is_empty() { String::new() } else { format!("{fields}\r\n") };
    let rules = RequestRules::of(&request(&fields))?;
    let fresh = storable(&rules, &response(answer), times(2))?;
    Ok((fresh.lifetime.as_secs(), fresh.age.as_secs()))
}

/// Fields of a request, a response, and what is to come of it.
type Row = (&'static str, &'static str, Result<(u64, u64), &'static str>);

const STALE: Result<(u64, u64), &str> = Err("it is stale");
const UNKNOWN: Result<(u64, u64), &str> = Err("nothing says how long it is fresh");
const NO_LIFETIME: Result<(u64, u64), &str> = Err("its lifetime cannot be read");
const NO_AGE: Result<(u64, u64), &str> = Err("its Age cannot be read");

const ROWS: &[Row] = &[
    // Freshness: s-maxage before max-age before Expires before a heuristic (4.2.1).
    ("", "cache-control: max-age=60", Ok((60, 2))),
    ("", "cache-control: max-age=60, s-maxage=90", Ok((90, 2))),
    ("", "cache-control: s-maxage=0, max-age=60", STALE),
    ("", "cache-control: max-age=60 | expires: Sun, 06 Nov 1994 10:00:00 GMT", Ok((60, 2))),
    ("", "date: NOW | expires: Sun, 06 Nov 1994 08:51:30 GMT", Ok((90, 2))),
    ("", "date: NOW | expires: SUN, 06 nov 1994 08:51:30 gmt", Ok((90, 2))),
    ("", "date: NOW | expires: sunday, 06-NOV-94 08:51:30 GMT", Ok((90, 2))),
    ("", "date: NOW | expires: sun nov  6 08:51:30 1994", Ok((90, 2))),
    ("", "expires: Sun, 06 Nov 1994 08:51:30 GMT", Ok((90, 2))),
    ("", "expires: Sunday, 06-Nov-94 08:51:30 GMT", Ok((90, 2))),
    ("", "expires: 0", STALE),
    ("", "expires: Sun, 06 Nov 1994 08:49:00 GMT", STALE),
    ("", "expires: Sun, 06 Nov 1994 09:00:00 GMT | expires: Sun, 06 Nov 1994 10:00:00 GMT", STALE),
    ("", "last-modified: Sun, 06 Nov 1994 08:33:20 GMT", Ok((100, 2))),
    ("", "last-modified: Sun, 06 Nov 1983 08:33:20 GMT", Ok((3600, 2))),
    ("", "last-modified: Sun, 06 Nov 1994 09:33:20 GMT", UNKNOWN),
    ("", "last-modified: yesterday", UNKNOWN),
    ("", "", UNKNOWN),
    ("", "cache-control: public", UNKNOWN),
    ("", "cache-control: max-age=soon", NO_LIFETIME),
    ("", "cache-control: max-age=60 | cache-control: max-age=61", NO_LIFETIME),
    ("", "cache-control: max-age=99999999999999999999", Ok((1 << 31, 2))),
    // Age (4.2.3): the larger of what Date and what Age say; the time of the request counts.
    ("", "cache-control: max-age=60 | age: 10", Ok((60, 12))),
    ("", "cache-control: max-age=60 | date: Sun, 06 Nov 1994 08:49:37 GMT", Ok((60, 23))),
    ("", "cache-control: max-age=60 | date: Sun, 06 Nov 1994 08:51:00 GMT", Ok((60, 2))),
    ("", "cache-control: max-age=60 | age: 58", STALE),
    ("", "cache-control: max-age=60 | date: Sun, 06 Nov 1994 08:49:00 GMT", STALE),
    ("", "cache-control: max-age=60 | age: 18446744073709551615", STALE),
    ("", "cache-control: max-age=60 | age: 1, 10", Ok((60, 3))),
    ("", "cache-control: max-age=60 | age: 10 | age: 1", Ok((60, 12))),
    ("", "cache-control: max-age=60 | age: 10, soon", Ok((60, 12))),
    ("", "cache-control: max-age=3600 | age: 7200, 0", STALE),
    ("", "cache-control: max-age=60 | age: -1", NO_AGE),
    ("", "cache-control: max-age=60 | age: soon", NO_AGE),
    ("", "cache-control: max-age=60 | age: 1;2", NO_AGE),
    ("", "cache-control: max-age=60 | age:", NO_AGE),
    // What an answer forbids (3, 5.2.2).
    ("", "cache-control: max-age=60, No-Store", Err("it has no-store")),
    ("", "cache-control: max-age=60, private", Err("it is private")),
    ("", "cache-control: max-age=60, private=\"x-name\"", Err("it is private")),
    (
        "",
        "cache-control: max-age=60 | cache-control: no-cache",
        Err("it has no-cache, and would have to be validated each time"),
    ),
    ("", "cache-control: max-age=60, must-revalidate", Ok((60, 2))),
    ("", "cache-control: max-age=60, proxy-revalidate, immutable, unknown=1", Ok((60, 2))),
    ("", "cache-control: max-age=60, a=\"b", Err("its Cache-Control cannot be read")),
    ("", "cache-control: max-age=60 | set-cookie: a=b", Err("it sets a cookie")),
    ("", "cache-control: max-age=60 | vary: *", Err("it has `Vary: *`")),
    ("", "cache-control: max-age=60 | vary: accept, *", Err("it has `Vary: *`")),
    ("", "cache-control: max-age=60 | vary: a b", Err("its Vary cannot be read")),
    ("", "cache-control: max-age=60 | vary: accept-encoding", Ok((60, 2))),
    ("", "206 cache-control: max-age=60", Err("the status is not 200")),
    ("", "301 cache-control: max-age=60", Err("the status is not 200")),
    ("", "404 cache-control: max-age=60", Err("the status is not 200")),
    // What a request forbids (3.5, 5.2.1).
    ("HEAD /", "cache-control: max-age=60", Err("the method is not GET")),
    ("POST /", "cache-control: max-age=60", Err("the method is not GET")),
    (
        "authorization: Basic YQ==",
        "cache-control: public, max-age=60",
        Err("the request has the field Authorization"),
    ),
    ("range: bytes=0-1", "cache-control: max-age=60", Err("the request asks for a range")),
    ("if-none-match: \"a\"", "cache-control: max-age=60", Err("the request has a condition")),
    ("if-modified-since: NOW", "cache-control: max-age=60", Err("the request has a condition")),
    ("cache-control: no-store", "cache-control: max-age=60", Err("the request has no-store")),
    (
        "cache-control: a=\"",
        "cache-control: max-age=60",
        Err("the request's Cache-Control cannot be read"),
    ),
    ("cache-control: no-cache", "cache-control: max-age=60", Ok((60, 2))),
    // A cookie may stand for an identity, so only what is declared to be for all is shared.
    (
        "cookie: a=b",
        "cache-control: max-age=60",
        Err("the request has a cookie, and the answer is not public"),
    ),
    ("cookie: a=b", "cache-control: max-age=60, public", Ok((60, 2))),
    ("cookie: a=b", "cache-control: s-maxage=60", Ok((60, 2))),
];

#[test]
fn answers_are_stored_as_the_standard_and_the_origin_allow() {
    for (fields, answer, expected) in ROWS {
        assert_eq!(outcome(fields, answer), *expected, "request {fields:?}, answer {answer:?}");
    }
}

#[test]
fn a_stored_answer_is_used_as_the_request_and_its_age_allow() {
    let seconds = Duration::from_secs;
    let stored = |for_all| Freshness { lifetime: seconds(60), age: seconds(2), for_all };
    for (fields, age, used) in [
        ("", 59, true),
        ("", 60, false),
        ("", u64::MAX, false),
        ("cache-control: no-cache", 2, false),
        ("pragma: no-cache", 2, false),
        ("cache-control: max-age=10", 10, true),
        ("cache-control: max-age=10", 11, false),
        ("cache-control: max-age=0", 2, false),
        ("cache-control: max-age=x", 2, false),
        ("cache-control: min-fresh=30", 30, true),
        ("cache-control: min-fresh=30", 31, false),
        ("cache-control: min-fresh=99999999999999999999", 2, false),
        ("cache-control: min-fresh", 2, false),
        // What is stale is never used, also if the client would take it.
        ("cache-control: max-stale=100", 61, false),
        ("cache-control: only-if-cached", 2, true),
    ] {
        let line = if fields.is_empty() { String::new() } else { format!("{fields}\r\n") };
        let rules = RequestRules::of(&request(&line)).unwrap();
        assert_eq!(rules.allow(&stored(false), seconds(age)), used, "{fields:?} at {age} s");
        assert_eq!(rules.only_if_cached, fields.contains("only-if-cached"));
    }
    let rules = RequestRules::of(&request("cookie: a=b\r\n")).unwrap();
    assert!(!rules.allow(&stored(false), seconds(2)));
    assert!(rules.allow(&stored(true), seconds(2)));
}

#[test]
fn unsafe_methods_that_succeed_invalidate() {
    for (method, status, invalid) in [
        (Method::POST, 200, true),
        (Method::PUT, 204, true),
        (Method::DELETE, 303, true),
        (Method::POST, 404, false),
        (Method::POST, 500, false),
        (Method::GET, 200, false),
        (Method::HEAD, 200, false),
        (Method::OPTIONS, 200, false),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(invalidates(&method, status), invalid, "{method} {status}");
    }
}

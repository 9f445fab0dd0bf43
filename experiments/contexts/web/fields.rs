//! Divides the lines of recorded heads among the contexts of the strategy `per-header` of the
//! service `http`.
//!
//! The recordings have the lengths of lines and no names. The lines of a request have the order
//! and, where they do not depend on the page, the lengths of one client. The lines of a response
//! vary, so each is taken to use every context of fields that the response could have: the bytes
//! are at least those of the table.

use levada_services::http::{Strategy, context_names};

use crate::contexts::end::Exchange;

/// The length of the line of `User-Agent` in all recordings, with its end.
const USER_AGENT: usize = 87;
/// `Accept-Language: en-US,*`, which follows `Accept`.
const ACCEPT_LANGUAGE: usize = 26;
/// `HTTP/1.1 200 OK`.
const STATUS_OK: usize = 17;
/// The empty line after a head, which the recordings leave out.
const EMPTY_LINE: usize = 2;
/// The contexts of fields of any response, and one more that a response with another status may
/// have.
const OF_RESPONSES: [&str; 4] = ["content-type", "cache-control", "validators", "cookie"];
const OF_OTHER_STATUS: &str = "location";

/// An exchange whose contexts are lines in their order and the body of the response, divided by the
/// table.
pub fn divided(lines: &Exchange) -> Exchange {
    let names = context_names(Strategy::PerHeader);
    let mut exchange = Exchange { request: vec![0; names.len()], response: vec![0; names.len()] };
    let at = |name: &str| names.iter().position(|(known, _)| *known == name).unwrap_or_default();
    let used =
        |lines: &[usize]| lines.iter().copied().filter(|bytes| *bytes > 0).collect::<Vec<_>>();
    for (name, bytes) in request(&used(&lines.request)) {
        exchange.request[at(name)] += bytes;
    }
    if let Some((body, head)) = lines.response.split_last() {
        for (name, bytes) in response(&used(head)) {
            exchange.response[at(name)] += bytes;
        }
        exchange.response[at("response-body")] += body;
    }
    exchange
}

/// Each line of a request with its context: the request line with `Host`, `User-Agent`, `Referer`,
/// `Accept`, `Accept-Language`, `Cookie`. A request has no body.
fn request(lines: &[usize]) -> Vec<(&'static str, usize)> {
    let language = lines.iter().rposition(|bytes| *bytes == ACCEPT_LANGUAGE).unwrap_or(lines.len());
    let name = |number: usize, bytes: usize| match number {
        0 => "request-head",
        1 if bytes == USER_AGENT => "user-agent",
        _ if number > language => "cookie",
        _ if number + 1 >= language => "accept",
        _ => "referer",
    };
    let of_lines = lines.iter().enumerate().map(|(number, bytes)| (name(number, *bytes), *bytes));
    of_lines.chain([("request-head", EMPTY_LINE)]).collect()
}

/// Each line of a response with its context: one for each context of fields, the rest in the head.
fn response(lines: &[usize]) -> Vec<(&'static str, usize)> {
    let other = lines.first().is_some_and(|status| *status != STATUS_OK);
    let fields = OF_RESPONSES.into_iter().chain(other.then_some(OF_OTHER_STATUS));
    let names = ["response-head"].into_iter().chain(fields);
    let of_lines = names.chain(std::iter::repeat("response-head")).zip(lines.iter().copied());
    of_lines.chain([("response-head", EMPTY_LINE)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_name(contexts: &[usize]) -> Vec<(&'static str, usize)> {
        let names = context_names(Strategy::PerHeader);
        let all = names.into_iter().zip(contexts).map(|((name, _), bytes)| (name, *bytes));
        all.filter(|(_, bytes)| *bytes > 0).collect()
    }

    #[test]
    fn lines_go_to_the_contexts_of_the_table() {
        let exchange = divided(&Exchange {
            request: vec![112, 87, 33, 30, 26, 50, 0, 0],
            response: vec![0, 0, 17, 23, 24, 37, 46, 22, 28, 9000],
        });
        let request = [
            ("request-head", 114),
            ("cookie", 50),
            ("user-agent", 87),
            ("referer", 33),
            ("accept", 56),
        ];
        assert_eq!(by_name(&exchange.request), request);
        let response = [
            ("response-head", 17 + 22 + 28 + 2),
            ("response-body", 9000),
            ("cookie", 46),
            ("content-type", 23),
            ("cache-control", 24),
            ("validators", 37),
        ];
        assert_eq!(by_name(&exchange.response), response);
    }

    #[test]
    fn a_first_request_without_accept_has_no_referer() {
        let lines =
            Exchange { request: vec![37, 87, 26], response: vec![20, 30, 30, 30, 30, 30, 5] };
        let exchange = divided(&lines);
        let request = [("request-head", 39), ("user-agent", 87), ("accept", 26)];
        assert_eq!(by_name(&exchange.request), request);
        assert!(by_name(&exchange.response).contains(&("location", 30)));
    }
}

use std::io::Read;
use std::sync::Arc;

use levada_contexts::Right;

use super::*;

const TEXT: &str = "200\r\ncontent-type: text/html; charset=utf-8\r\n";

fn session() -> Compress {
    let mut compress = Compress::new(SessionLog::new(1, Arc::new(|_| {})));
    compress.granted = Granted(vec![
        (Purpose::RequestHead, Right::Read),
        (Purpose::ResponseHead, Right::Write),
        (Purpose::ResponseBody, Right::Write),
    ]);
    compress
}

fn record(compress: &mut Compress, context: u8, data: &[u8], end: bool) -> Vec<u8> {
    let direction = if context == 1 { Direction::ToServer } else { Direction::ToClient };
    match compress.record(Piece { direction, context, data, end, origin: 0 }) {
        Action::Pass => data.to_vec(),
        Action::Replace(data) => data,
        Action::Block(why) => panic!("{why}"),
    }
}

fn request(compress: &mut Compress, number: u64, fields: &str) {
    record(compress, 1, format!("GET /\r\n{fields}").as_bytes(), true);
    compress.exchange(Direction::ToServer, number, false);
}

const ACCEPTS: &str = "accept-encoding: br, gzip\r\n";

/// What the client gets of a response's head.
fn head(fields: &str, response: &str) -> String {
    let mut compress = session();
    request(&mut compress, 0, fields);
    String::from_utf8(record(&mut compress, 2, response.as_bytes(), true)).unwrap()
}

fn unzip(data: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(data).read_to_end(&mut plain).unwrap();
    plain
}

#[test]
fn a_body_is_compressed_and_each_record_can_be_read_at_once() {
    let mut compress = session();
    request(&mut compress, 0, ACCEPTS);
    // A head in two records passes in one.
    let (first, rest) = TEXT.as_bytes().split_at(10);
    assert_eq!(record(&mut compress, 2, first, false), b"");
    let changed = record(&mut compress, 2, rest, true);
    let changed = String::from_utf8(changed).unwrap();
    assert_eq!(changed, format!("{TEXT}vary: Accept-Encoding\r\ncontent-encoding: gzip\r\n"));
    let mut sent = Vec::new();
    let mut expected = Vec::new();
    for number in 0..20 {
        let data = format!("part {number} ").repeat(1000);
        let compressed = record(&mut compress, 3, data.as_bytes(), false);
        assert!(compressed.len() < data.len() / 10);
        sent.extend(compressed);
        expected.extend(data.into_bytes());
        // A client that has so much can read all of it.
        let mut plain = vec![0; expected.len()];
        flate2::read::GzDecoder::new(&sent[..]).read_exact(&mut plain).unwrap();
        assert!(plain == expected);
    }
    sent.extend(record(&mut compress, 3, b"", true));
    assert!(unzip(&sent) == expected);
}

#[test]
fn random_bytes_survive_and_records_grow_by_little() {
    let mut compress = session();
    request(&mut compress, 0, ACCEPTS);
    record(&mut compress, 2, TEXT.as_bytes(), true);
    let mut state = 1u32;
    let data: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(100_000)
    .collect();
    let mut sent = Vec::new();
    for part in data.chunks(16_383) {
        let compressed = record(&mut compress, 3, part, false);
        // One more record at most.
        assert!(compressed.len() < 2 * 16_383);
        sent.extend(compressed);
    }
    sent.extend(record(&mut compress, 3, b"", true));
    assert!(unzip(&sent) == data);
}

#[test]
fn only_what_may_be_compressed_is() {
    for (fields, extra, compressed, varies) in [
        (ACCEPTS, "", true, true),
        ("accept-encoding: x-gzip;q=0.5\r\n", "", true, true),
        ("accept-encoding: *\r\n", "", true, true),
        ("", "", false, true),
        ("accept-encoding: br\r\n", "", false, true),
        ("accept-encoding: gzip;q=0\r\n", "", false, true),
        ("accept-encoding: gzip; q=0.000, *\r\n", "", false, true),
        ("accept-encoding: *;q=0\r\n", "", false, true),
        (ACCEPTS, "content-encoding: br\r\n", false, false),
        (ACCEPTS, "content-range: bytes 0-1/2\r\n", false, false),
        (ACCEPTS, "cache-control: public, No-Transform\r\n", false, false),
        (ACCEPTS, "content-digest: sha-256=:AA==:\r\n", false, false),
    ] {
        let head = head(fields, &format!("{TEXT}{extra}"));
        assert_eq!(head.contains("content-encoding: gzip"), compressed, "{fields:?} {extra:?}");
        assert_eq!(head.contains("vary: Accept-Encoding"), varies, "{fields:?} {extra:?}");
    }
    for (kind, compressed) in [
        ("application/json", true),
        ("Application/JavaScript", true),
        ("application/ld+json", true),
        ("image/svg+xml", true),
        ("application/wasm", true),
        ("text/event-stream", false),
        ("image/png", false),
        ("application/octet-stream", false),
        ("font/woff2", false),
        ("text", false),
    ] {
        let head = head(ACCEPTS, &format!("200\r\ncontent-type: {kind}\r\n"));
        assert_eq!(head.contains("gzip"), compressed, "{kind}");
    }
    for status in ["206", "204", "404"] {
        assert!(!head(ACCEPTS, &TEXT.replace("200", status)).contains("gzip"));
    }
    let mut compress = session();
    record(&mut compress, 1, format!("HEAD /\r\n{ACCEPTS}").as_bytes(), true);
    compress.exchange(Direction::ToServer, 0, false);
    let head = record(&mut compress, 2, TEXT.as_bytes(), true);
    assert!(!String::from_utf8(head).unwrap().contains("gzip"));
}

#[test]
fn the_head_says_what_has_become_of_the_body() {
    let changed =
        head(ACCEPTS, &format!("{TEXT}etag: \"a\"\r\naccept-ranges: bytes\r\nvary: cookie\r\n"));
    assert!(
        changed.contains("etag: W/\"a\"\r\n") && !changed.contains("accept-ranges"),
        "{changed}"
    );
    assert!(changed.contains("vary: cookie\r\nvary: Accept-Encoding\r\n"), "{changed}");
    for same in ["etag: W/\"a\"\r\n", "vary: accept-encoding\r\n", "vary: *\r\n"] {
        let changed = head(ACCEPTS, &format!("{TEXT}{same}"));
        assert!(changed.contains(same) && changed.contains("gzip"), "{changed}");
        assert_eq!(changed.matches("vary").count(), usize::from(same.starts_with("vary")).max(1));
    }
}

/// The server's empty answer to a request that was answered on the way may come between others.
#[test]
fn responses_belong_to_their_requests() {
    let mut compress = session();
    request(&mut compress, 0, "");
    request(&mut compress, 1, ACCEPTS);
    // A middlebox behind answers request 0; its head has no end.
    let own = Piece {
        direction: Direction::ToClient,
        context: 2,
        data: TEXT.as_bytes(),
        end: false,
        origin: 2,
    };
    assert_eq!(compress.record(own), Action::Pass);
    assert_eq!(record(&mut compress, 3, b"own", false), b"own");
    compress.exchange(Direction::ToClient, 0, false);
    assert_eq!(record(&mut compress, 2, b"", true), b"");
    compress.exchange(Direction::ToClient, 0, false);
    let head = record(&mut compress, 2, TEXT.as_bytes(), true);
    assert!(String::from_utf8(head).unwrap().contains("gzip"));
    assert_eq!(unzip(&record(&mut compress, 3, b"body", true)), b"body");
    compress.exchange(Direction::ToClient, 1, true);
    assert!(compress.waiting.is_empty() && compress.body.is_none());
}

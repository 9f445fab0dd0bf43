//! An HTTP server that answers as a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use serde_json::json;

/// What a client has asked for.
pub struct Request {
    pub path: String,
}

/// Answers one request; what it writes is what the client gets.
pub type Answer = dyn Fn(&Request, &mut dyn Write) -> std::io::Result<()> + Send + Sync;

/// A server on loopback, whose threads end with the test: gives its `HOST:PORT`.
pub fn start(
    answer: impl Fn(&Request, &mut dyn Write) -> std::io::Result<()> + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer: Arc<Answer> = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || serve(stream, &*answer));
        }
    });
    address
}

/// One request; a client that has gone is no failure of the test.
pub fn serve(stream: impl Read + Write, answer: &Answer) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        match stream.read_line(&mut head) {
            Ok(1..) => {}
            _ => return,
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let request = Request { path };
    let _ = answer(&request, stream.get_mut());
    let _ = stream.get_mut().flush();
}

/// A whole answer with this status and body.
pub fn whole(out: &mut dyn Write, status: &str, body: &[u8]) -> std::io::Result<()> {
    let length = body.len();
    write!(out, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    out.write_all(body)
}

/// What a catalogue says of version 1.0.0 of `hyperty/a`, without a package.
pub fn meta(descriptor: &[u8]) -> serde_json::Value {
    json!({
        "version": "1.0.0",
        "digest": levada_catalogue::model::digest_text(&levada_core::sha256(&[descriptor])),
        "package": null,
        "signatures": [],
        "publisher": null,
        "published": 7,
        "yanked": false,
        "revision": 3,
    })
}

/// Answers as a catalogue that has nothing but version 1.0.0 of `hyperty/a`.
pub fn one_version(
    request: &Request,
    out: &mut dyn Write,
    meta: &serde_json::Value,
    descriptor: &[u8],
) -> std::io::Result<()> {
    match request.path.as_str() {
        "/v1/objects/hyperty/a/latest/meta" => whole(out, "200 OK", meta.to_string().as_bytes()),
        "/v1/objects/hyperty/a/1.0.0" => whole(out, "200 OK", descriptor),
        _ => whole(out, "404 Not Found", b""),
    }
}

//! An HTTP server whose answers a test defines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

/// A request of a client.
pub struct Request {
    pub path: String,
    /// The whole head, in lower case.
    pub head: String,
}

/// Answers one request: writes the raw response.
type Answer = dyn Fn(&Request, &mut dyn Write) -> std::io::Result<()> + Send + Sync;

/// Starts a server on loopback: its `HOST:PORT`. Its threads run until the process ends.
pub fn start(
    answer: impl Fn(&Request, &mut dyn Write) -> std::io::Result<()> + Send + Sync + 'static,
) -> String {
    listen(move |stream| serve(stream, &answer))
}

/// As [`start`], with TLS.
pub fn start_tls(
    config: ServerConfig,
    answer: impl Fn(&Request, &mut dyn Write) -> std::io::Result<()> + Send + Sync + 'static,
) -> String {
    let config = Arc::new(config);
    listen(move |stream| {
        let tls = ServerConnection::new(config.clone()).unwrap();
        serve(StreamOwned::new(tls, stream), &answer);
    })
}

fn listen(each: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let each = Arc::new(each);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let each = each.clone();
            thread::spawn(move || each(stream));
        }
    });
    address
}

/// Makes `ca.pem` in a folder, and a certificate from it for the host name `localhost`.
pub fn certificate(folder: &Path) -> ServerConfig {
    let run = |line: &str| {
        let ran =
            Command::new("openssl").args(line.split(' ')).current_dir(folder).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    run(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=test"));
    run(&format!("req {key} -keyout key.pem -out request.pem -subj /CN=localhost"));
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    run(
        "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem",
    );
    let chain = vec![CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap()
}

/// Serves one request. A client that closes the connection does not fail the test.
fn serve(stream: impl Read + Write, answer: &Answer) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        match stream.read_line(&mut head) {
            Ok(1..) => {}
            _ => return,
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let request = Request { path, head: head.to_lowercase() };
    let _ = answer(&request, stream.get_mut());
    let _ = stream.get_mut().flush();
}

/// A whole answer with this status and body.
pub fn whole(out: &mut dyn Write, status: &str, body: &[u8]) -> std::io::Result<()> {
    let length = body.len();
    write!(out, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    out.write_all(body)
}

/// As [`whole`], in chunks of a few bytes (RFC 9112 section 7.1).
pub fn chunked(out: &mut dyn Write, body: &[u8]) -> std::io::Result<()> {
    out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")?;
    for chunk in body.chunks(7) {
        write!(out, "{:x};a=b\r\n", chunk.len())?;
        out.write_all(chunk)?;
        out.write_all(b"\r\n")?;
    }
    out.write_all(b"0\r\nTrailer: x\r\n\r\n")
}

/// A redirect to `place`.
pub fn redirect(out: &mut dyn Write, place: &str) -> std::io::Result<()> {
    write!(
        out,
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {place}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
}

/// The metadata of version 1.0.0 of `hyperty/a`, without a package.
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

/// Answers as a catalogue that has only version 1.0.0 of `hyperty/a`.
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

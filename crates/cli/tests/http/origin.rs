//! An HTTP origin that reads strictly and records what it received, and a raw client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::support::STEP_TIMEOUT;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The lines of the head, without their ends.
    pub head: Vec<String>,
    pub body: Vec<u8>,
    pub trailers: Vec<String>,
}

impl Recorded {
    pub fn target(&self) -> &str {
        self.head[0].split(' ').nth(1).unwrap()
    }

    /// The values of a field.
    pub fn values(&self, name: &str) -> Vec<&str> {
        let lines = self.head[1..].iter().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect()
    }
}

/// The name of a response with a transfer coding that was not asked for.
pub const GZIP: &str = "a coding before chunked";

/// Responses that two clients may read differently, at `/raw/0` and so on. The second response in
/// each must not be taken for one.
pub const RAW: &[(&str, &str)] = &[
    (
        "two lengths",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 60\r\n\r\n\
         okHTTP/1.1 200 OK\r\nX-Smuggled: 1\r\nContent-Length: 0\r\n\r\n",
    ),
    (
        "a length and a coding",
        "HTTP/1.1 200 OK\r\nContent-Length: 65\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nHTTP/1.1 200 OK\r\nX-Smuggled: 1\r\nContent-Length: 0\r\n\r\n",
    ),
    ("a bare CR", "HTTP/1.1 200 OK\r\nX-A: b\rX-Smuggled: 1\r\nContent-Length: 2\r\n\r\nok"),
    ("obs-fold", "HTTP/1.1 200 OK\r\nX-A: b\r\n X-Smuggled: 1\r\nContent-Length: 2\r\n\r\nok"),
    ("NUL", "HTTP/1.1 200 OK\r\nX-A: b\0X-Smuggled: 1\r\nContent-Length: 2\r\n\r\nok"),
    (
        "no content, with a length",
        "HTTP/1.1 204 No Content\r\nContent-Length: 57\r\n\r\n\
         HTTP/1.1 200 OK\r\nX-Smuggled: 1\r\nContent-Length: 0\r\n\r\n",
    ),
    (
        "an upgrade that was not requested",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n\
         HTTP/1.1 200 OK\r\nX-Smuggled: 1\r\nContent-Length: 0\r\n\r\n",
    ),
    (
        GZIP,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n\
         4\r\ngzip\r\n0\r\n\r\n",
    ),
];

/// The origin. Its threads end with the process of the test.
pub struct Origin {
    pub address: String,
    requests: Arc<Mutex<Vec<Recorded>>>,
    /// Lets `/stream` send its next part.
    gate: Sender<()>,
    /// Nothing takes the parts of `/endless` any more.
    left: Receiver<()>,
}

impl Origin {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<Recorded>>> = Arc::default();
        let (gate, opened) = channel();
        let (leave, left) = channel();
        let records = requests.clone();
        let opened = Arc::new(Mutex::new(opened));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let records = records.clone();
                let opened = opened.clone();
                let leave = leave.clone();
                // A connection that breaks off ends its thread.
                std::thread::spawn(move || serve(&stream, &records, &opened, &leave));
            }
        });
        Self { address, requests, gate, left }
    }

    pub fn let_stream_go_on(&self) {
        self.gate.send(()).unwrap();
    }

    /// Waits until `/endless` has been left.
    pub fn wait_until_left(&self) {
        self.left.recv_timeout(STEP_TIMEOUT).unwrap();
    }

    /// What was received since the last call.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

fn serve(
    stream: &TcpStream,
    records: &Mutex<Vec<Recorded>>,
    opened: &Mutex<Receiver<()>>,
    left: &Sender<()>,
) -> Option<()> {
    let mut input = BufReader::new(stream.try_clone().ok()?);
    let mut out = stream.try_clone().ok()?;
    loop {
        let head = read_lines(&mut input)?;
        let request = Recorded { head, body: Vec::new(), trailers: Vec::new() };
        if request.target() == "/duplex" {
            return echo_parts(&mut input, &mut out);
        }
        let request = read_rest(request, &mut input)?;
        records.lock().unwrap().push(request.clone());
        answer(&request, &mut out, opened, left)?;
    }
}

fn answer(
    request: &Recorded,
    out: &mut TcpStream,
    opened: &Mutex<Receiver<()>>,
    left: &Sender<()>,
) -> Option<()> {
    let is_head = request.head[0].starts_with("HEAD ");
    match request.target() {
        "/none" => write(out, "HTTP/1.1 204 No Content\r\n\r\n"),
        "/same" => write(out, "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
        "/moved" => {
            let host = request.values("host")[0];
            let head = format!("HTTP/1.1 302 Found\r\nLocation: http://{host}/page\r\n");
            write(out, &format!("{head}Set-Cookie: a=b; Secure\r\nContent-Length: 0\r\n\r\n"))
        }
        "/login" => {
            let cookie = "session=secret; Domain=localhost; HttpOnly; SameSite=Strict";
            let head = format!("HTTP/1.1 200 OK\r\nSet-Cookie: {cookie}\r\n");
            write(out, &format!("{head}Content-Length: 2\r\n\r\nin"))
        }
        // The length of the body, chunked, and again as a trailer.
        "/sum" => {
            let length = request.body.len().to_string();
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Host\r\n";
            let size = length.len();
            write(out, &format!("{head}\r\n{size:x}\r\n{length}\r\n0\r\nX-Sum: {length}\r\n\r\n"))
        }
        "/cut" => {
            write(out, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthe beginning")?;
            None
        }
        raw if raw.starts_with("/raw/") => {
            let number: usize = raw["/raw/".len()..].parse().unwrap();
            write(out, RAW[number].1)?;
            None
        }
        "/endless" => send_endlessly(out, left),
        "/stream" => {
            write(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            opened.lock().unwrap().recv_timeout(STEP_TIMEOUT).ok()?;
            write(out, "5\r\nfirst\r\n")?;
            opened.lock().unwrap().recv_timeout(STEP_TIMEOUT).ok()?;
            write(out, "4\r\nlast\r\n0\r\n\r\n")
        }
        _ => {
            let body = if is_head { "" } else { "the page" };
            write(out, &format!("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{body}"))
        }
    }
}

/// Answers with each part of the request as soon as it has arrived.
fn echo_parts(input: &mut impl BufRead, out: &mut TcpStream) -> Option<()> {
    write(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    loop {
        let line = read_line(input)?;
        let mut part = vec![0; usize::from_str_radix(&line, 16).ok()? + 2];
        input.read_exact(&mut part).ok()?;
        write(out, &format!("{line}\r\n"))?;
        out.write_all(&part).ok()?;
        if part.len() == 2 {
            return Some(());
        }
    }
}

/// Sends parts until nothing takes them any more, and then reports that.
fn send_endlessly(out: &mut TcpStream, left: &Sender<()>) -> Option<()> {
    write(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    while write(out, "5\r\nagain\r\n").is_some() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // The test may have ended.
    let _ = left.send(());
    None
}

fn write(out: &mut TcpStream, text: &str) -> Option<()> {
    out.write_all(text.as_bytes()).ok()
}

/// A line that ends with CRLF; any other end is an error.
fn read_line(input: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line).ok()?;
    let line = line.strip_suffix(b"\r\n").filter(|line| !line.contains(&b'\r'))?;
    Some(String::from_utf8_lossy(line).into_owned())
}

fn read_lines(input: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let line = read_line(input)?;
        if line.is_empty() {
            return Some(lines);
        }
        lines.push(line);
    }
}

fn read_rest(mut request: Recorded, input: &mut impl BufRead) -> Option<Recorded> {
    let length: Option<usize> =
        request.values("content-length").first().map(|one| one.parse().unwrap());
    if request.values("transfer-encoding").is_empty() {
        request.body = vec![0; length.unwrap_or(0)];
        input.read_exact(&mut request.body).ok()?;
        return Some(request);
    }
    loop {
        let size = usize::from_str_radix(&read_line(input)?, 16).ok()?;
        if size == 0 {
            request.trailers = read_lines(input)?;
            return Some(request);
        }
        let from = request.body.len();
        request.body.resize(from + size, 0);
        input.read_exact(&mut request.body[from..]).ok()?;
        read_line(input)?;
    }
}

/// A client that sends any bytes.
pub struct RawClient<S>(pub S);

impl RawClient<TcpStream> {
    /// `address` is that of the local origin: `http://HOST:PORT/`.
    pub fn new(address: &str) -> Self {
        // getaddrinfo(3) does not resolve names of localhost.
        let (_, port) = host_port(address).rsplit_once(':').unwrap();
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
        Self(stream)
    }
}

impl RawClient<UnixStream> {
    pub fn unix(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
        Self(stream)
    }
}

pub fn host_port(address: &str) -> &str {
    address.strip_prefix("http://").and_then(|rest| rest.strip_suffix('/')).unwrap()
}

impl<S: Read + Write> RawClient<S> {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A server that refuses may close before it has read everything.
        let _ = self.0.write_all(bytes.as_ref());
    }

    /// Reads until `end` has come; the connection may end before.
    pub fn read_until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        let mut byte = [0];
        while !String::from_utf8_lossy(&read).ends_with(end) {
            match self.0.read(&mut byte) {
                Ok(1) => read.push(byte[0]),
                Err(error) if is_timeout(&error) => panic!("no answer: {read:?}"),
                _ => break,
            }
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Reads until the server closes.
    pub fn read_to_end(&mut self) -> String {
        let mut read = Vec::new();
        match self.0.read_to_end(&mut read) {
            Err(error) if is_timeout(&error) => panic!("the server does not close: {read:?}"),
            _ => String::from_utf8_lossy(&read).into_owned(),
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

//! A catalogue that is read by HTTP: for who has no right to request anything there. What comes is believed for its digest and
//! its signatures only, so the connection needs no encryption.

use std::io::{BufRead, BufReader, Read, Take, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use levada_catalogue::model::{Key, MAX_DESCRIPTOR, Package, Published, parse_digest};
use levada_core::{UnixTime, sha256};
use serde::Deserialize;
use serde_json::Value;

use super::object::{SignatureText, Wanted};
use crate::failure::{Failure, NO, PROTOCOL, UNREACHABLE};
use crate::output::plain;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long nothing may come.
const SILENCE: Duration = Duration::from_secs(30);
/// The longest head of an answer, in bytes.
const MAX_HEAD: u64 = 16 * 1024;
/// The longest answer with what is said of a version, or with what went wrong, in bytes.
const MAX_META: usize = 256 * 1024;
/// How much of a package is read at a time, in bytes.
const PART: usize = 64 * 1024;
const DEFAULT_PORT: u16 = 80;

/// `http://HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Web {
    /// As it stands in `Host`.
    authority: String,
}

impl FromStr for Web {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "expected http://HOST or http://HOST:PORT";
        let authority = text.strip_prefix("http://").ok_or(FORM)?.trim_end_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if authority.is_empty() || authority.len() > 255 || !authority.chars().all(plain) {
            return Err(FORM);
        }
        Ok(Self { authority: authority.to_owned() })
    }
}

/// An answer whose body is still to be read.
struct Answer {
    status: u16,
    length: Option<u64>,
    body: BufReader<Take<TcpStream>>,
}

/// What `/v1/objects/…/meta` says.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    version: String,
    digest: String,
    package: Option<MetaPackage>,
    signatures: Vec<SignatureText>,
    publisher: Option<String>,
    published: u64,
    yanked: bool,
    revision: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaPackage {
    digest: String,
    length: u64,
    media_type: String,
}

impl Web {
    /// One version, with its descriptor.
    ///
    /// # Errors
    /// [`Failure`] 1 if there is none, 122 if nobody answers, 123 if what comes is not what was asked for.
    pub fn get(&self, wanted: &Wanted) -> Result<Published, Failure> {
        let Wanted { key, version } = wanted;
        let version = if version.is_empty() { "latest" } else { version.as_str() };
        let path = |version: &str, behind: &str| {
            let (name, version) = (encode(key.name.as_str()), encode(version));
            format!("/v1/objects/{}/{name}/{version}{behind}", key.kind)
        };
        let meta = self.read(&path(version, "/meta"), MAX_META)?;
        let meta: Meta = serde_json::from_slice(&meta).map_err(|_| malformed())?;
        let found = meta.read(key).ok_or_else(malformed)?;
        check(&found)?;
        let descriptor = self.read(&path(&found.version.to_string(), ""), MAX_DESCRIPTOR)?;
        if sha256(&[&descriptor]) != found.digest {
            return Err(Failure::new(PROTOCOL, "protocol: the descriptor has another digest"));
        }
        let found = Published { descriptor, ..found };
        check(&found)?;
        Ok(found)
    }

    /// Writes a package to `target`, from `offset` on. `progress` hears how many bytes of it are there.
    ///
    /// # Errors
    /// As for [`Self::get`]; what came is written.
    pub fn fetch(
        &self,
        package: &Package,
        offset: u64,
        target: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Failure> {
        if offset == package.length {
            return Ok(());
        }
        let digest = levada_catalogue::model::digest_text(&package.digest);
        let mut answer = self.ask(&format!("/v1/blobs/{digest}"), offset)?;
        let expected = if offset == 0 { 200 } else { 206 };
        if answer.status != expected || answer.length != Some(package.length - offset) {
            return Err(answer.refusal());
        }
        let (mut at, mut part) = (offset, vec![0; PART]);
        progress(at);
        while at < package.length {
            let room = usize::try_from(package.length - at).unwrap_or(PART).min(PART);
            let read = answer.body.read(&mut part[..room]).map_err(|error| self.lost(&error))?;
            if read == 0 {
                let cut = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                return Err(self.lost(&cut));
            }
            let written = target.write_all(&part[..read]);
            written.map_err(|error| Failure::local(format!("the package: {error}")))?;
            at += read as u64;
            progress(at);
        }
        Ok(())
    }

    /// A whole body of at most `max` bytes.
    fn read(&self, path: &str, max: usize) -> Result<Vec<u8>, Failure> {
        let mut answer = self.ask(path, 0)?;
        if answer.status != 200 {
            return Err(answer.refusal());
        }
        let mut body = Vec::new();
        let bound = max as u64 + 1;
        let read = (&mut answer.body).take(bound).read_to_end(&mut body);
        read.map_err(|error| self.lost(&error))?;
        let whole = answer.length.is_none_or(|length| length == body.len() as u64);
        if body.len() > max || !whole { Err(malformed()) } else { Ok(body) }
    }

    fn ask(&self, path: &str, from: u64) -> Result<Answer, Failure> {
        let mut stream = self.connect()?;
        let range = if from == 0 { String::new() } else { format!("Range: bytes={from}-\r\n") };
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAccept-Encoding: identity\r\nConnection: close\r\n{range}\r\n",
            self.authority
        );
        stream.write_all(head.as_bytes()).map_err(|error| self.lost(&error))?;
        read_head(stream).map_err(|error| self.lost(&error))?.ok_or_else(malformed)
    }

    fn connect(&self) -> Result<TcpStream, Failure> {
        let ends_with_port =
            self.authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let place = match ends_with_port {
            true => self.authority.clone(),
            false => format!("{}:{DEFAULT_PORT}", self.authority),
        };
        let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        for address in place.to_socket_addrs().map_err(|error| self.lost(&error))? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => {
                    let bounded = stream.set_read_timeout(Some(SILENCE));
                    bounded
                        .and_then(|()| stream.set_write_timeout(Some(SILENCE)))
                        .map_err(Failure::local)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(self.lost(&last))
    }

    fn lost(&self, error: &std::io::Error) -> Failure {
        Failure::new(UNREACHABLE, format!("unreachable: http://{}: {error}", self.authority))
    }
}

/// Status and fields; `None` if it is no answer that can be read here.
fn read_head(stream: TcpStream) -> std::io::Result<Option<Answer>> {
    let mut reader = BufReader::new(stream.take(MAX_HEAD));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    let Some(status) = status.and_then(|status| status.trim().parse().ok()) else {
        return Ok(None);
    };
    let mut length = None;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Ok(None);
        }
        if line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok(),
            // Not asked for: whoever answers an old client so is no catalogue.
            "transfer-encoding" | "content-encoding" => return Ok(None),
            _ => {}
        }
    }
    // The bound was for the head.
    reader.get_mut().set_limit(u64::MAX);
    Ok(Some(Answer { status, length, body: reader }))
}

impl Answer {
    /// What an answer means that is not the one that was hoped for.
    fn refusal(&mut self) -> Failure {
        let mut body = Vec::new();
        // The status says enough if the words do not come.
        let _ = (&mut self.body).take(MAX_META as u64).read_to_end(&mut body);
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text: String =
            problem["detail"].as_str().unwrap_or_default().chars().take(512).collect();
        let text = format!("{} (HTTP {})", plain(&text), self.status);
        match self.status {
            404 | 410 => Failure::new(NO, text),
            500..=599 => Failure::new(UNREACHABLE, format!("unreachable: {text}")),
            _ => Failure::new(PROTOCOL, format!("protocol: {text}")),
        }
    }
}

impl Meta {
    fn read(self, key: &Key) -> Option<Published> {
        let package = match self.package {
            None => None,
            Some(package) => Some(Package {
                digest: parse_digest(&package.digest).ok()?,
                length: package.length,
                media_type: package.media_type,
                description: b"{}".to_vec(),
            }),
        };
        let publisher = match self.publisher {
            None => None,
            Some(publisher) => Some(publisher.parse().ok()?),
        };
        Some(Published {
            key: key.clone(),
            version: self.version.parse().ok()?,
            descriptor: Vec::new(),
            digest: parse_digest(&self.digest).ok()?,
            package,
            signatures: self.signatures.iter().map(SignatureText::read).collect::<Option<_>>()?,
            publisher,
            published: UnixTime(self.published),
            yanked: self.yanked,
            revision: self.revision,
        })
    }
}

fn check(found: &Published) -> Result<(), Failure> {
    found.check().map_err(|error| {
        Failure::new(PROTOCOL, format!("protocol: the answer is none of a catalogue: {error}"))
    })
}

fn malformed() -> Failure {
    Failure::new(PROTOCOL, "protocol: the answer is none of a catalogue")
}

/// Percent-encoded (RFC 3986 section 2.1), but for what is unreserved.
fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Somebody who answers every request so.
    fn server(answer: &'static [u8]) -> (Web, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let web = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).unwrap();
            let _ = stream.write_all(answer);
        });
        (web, thread)
    }

    #[test]
    fn a_place_is_a_host_and_perhaps_a_port() {
        for text in ["http://catalogue.example", "http://[::1]:5383/", "http://192.0.2.1:80"] {
            assert!(text.parse::<Web>().is_ok(), "{text}");
        }
        for text in ["", "http://", "https://a", "http://a/b", "http://a b", "http://u@a", "a"] {
            assert!(text.parse::<Web>().is_err(), "{text}");
        }
        assert_eq!(encode("a b/ü^1"), "a%20b%2F%C3%BC%5E1");
    }

    #[test]
    fn what_is_no_answer_of_a_catalogue_is_refused() {
        let wanted = Wanted { key: "hyperty/a".parse().unwrap(), version: String::new() };
        for (answer, code) in [
            (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".as_slice(), NO),
            (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", UNREACHABLE),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", PROTOCOL),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", PROTOCOL),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", PROTOCOL),
            (b"SSH-2.0-x\r\n", PROTOCOL),
            (b"", PROTOCOL),
        ] {
            let (web, thread) = server(answer);
            let failure = web.get(&wanted).unwrap_err();
            assert_eq!(failure.code(), code, "{}", failure.text());
            thread.join().unwrap();
        }
    }
}

//! A catalogue that is read by HTTP, for clients that may not request sessions there. Answers are
//! trusted only by digest and signatures; https adds confidentiality.

mod client;
mod meta;
mod resolver;
mod url;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use levada_catalogue::model::{MAX_DESCRIPTOR, Package, Published, digest_text};
use levada_core::sha256;
use levada_core::{format_size, parse_duration};
use serde_json::Value;
use ureq::Body;
use ureq::http::{Response, StatusCode};

use super::object::Wanted;
use crate::failure::{Failure, NO, PROTOCOL, UNREACHABLE};
use crate::output::plain;
use client::{HttpClient, is_resumed};
use meta::Meta;
use url::WebUrl;

/// How long an answer other than a package may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer with the metadata of a version, or with an error, in bytes.
const MAX_META: usize = 256 * 1024;
/// Bytes of one read of a package.
const PART: usize = 64 * 1024;
/// The unit of `--max-package`, in bytes.
const MIB: u64 = 1024 * 1024;

/// The options for reading a catalogue by HTTP.
#[derive(Debug, Args)]
pub struct Options {
    /// Read it by HTTP, from a catalogue with public read access
    #[arg(long, value_name = "http[s]://HOST[:PORT]", conflicts_with = "at")]
    from: Option<WebUrl>,

    /// The certificates (PEM) of trusted authorities; those of the system, or of SSL_CERT_FILE, if
    /// not given
    #[arg(long, value_name = "FILE", requires = "from")]
    ca: Option<PathBuf>,

    /// The time limit of all HTTP requests together
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    timeout: Duration,

    /// The maximum length of a package that is read by HTTP, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    max_package: u64,
}

impl Options {
    /// The catalogue of `--from`, if given.
    ///
    /// # Errors
    /// [`Failure`] if there are no certificates of trusted authorities.
    pub fn open(&self) -> Result<Option<WebCatalogue>, Failure> {
        let Some(web) = &self.from else { return Ok(None) };
        let client = HttpClient::new(web, self.ca.as_deref(), self.timeout)?;
        Ok(Some(WebCatalogue { client, max_package: self.max_package * MIB }))
    }
}

/// A catalogue that is read by HTTP.
pub struct WebCatalogue {
    client: HttpClient,
    /// The longest package, in bytes.
    max_package: u64,
}

impl WebCatalogue {
    /// One version, with its descriptor; both are checked against the model.
    ///
    /// # Errors
    /// [`Failure`] 1 if there is none, 122 if there is no answer, 121 if the server's certificate
    /// is not trusted, 123 for an unexpected answer.
    pub fn get(&self, wanted: &Wanted) -> Result<Published, Failure> {
        let Wanted { key, version } = wanted;
        let version = if version.is_empty() { "latest" } else { version.as_str() };
        let path = |version: &str, suffix: &str| {
            let name = encode(key.name.as_str());
            let version = encode(version);
            format!("/v1/objects/{}/{name}/{version}{suffix}", key.kind)
        };
        let meta = self.read(&path(version, "/meta"), MAX_META)?;
        let meta: Option<Meta> = serde_json::from_slice(&meta).ok();
        let found = meta.and_then(|meta| meta.read(key)).ok_or_else(|| self.malformed())?;
        self.check(&found)?;
        let descriptor = self.read(&path(&found.version.to_string(), ""), MAX_DESCRIPTOR)?;
        if sha256(&[&descriptor]) != found.digest {
            return Err(self.client.broken("the descriptor has another digest"));
        }
        let found = Published { descriptor, ..found };
        self.check(&found)?;
        Ok(found)
    }

    /// Writes a package to `target`, from `offset` on. `progress` is called with the number of
    /// bytes that are complete.
    ///
    /// # Errors
    /// As for [`Self::get`]; the bytes received before an error are written.
    pub fn fetch(
        &self,
        package: &Package,
        offset: u64,
        target: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Failure> {
        if package.length > self.max_package {
            return Err(Failure::new(NO, self.too_long(package)));
        }
        if offset == package.length {
            return Ok(());
        }
        let path = format!("/v1/blobs/{}", digest_text(&package.digest));
        let answer = self.client.get(&path, offset, Duration::MAX)?;
        let from = match answer.status() {
            _ if offset > 0 && is_resumed(&answer, offset) => offset,
            StatusCode::OK => 0,
            _ => return Err(self.refusal(answer)),
        };
        let left = package.length - from;
        if answer.body().content_length().is_some_and(|length| length != left) {
            return Err(self.client.broken("the package has another length"));
        }
        let mut body = answer.into_body().into_reader();
        // A server that ignores the range sends the whole package: skip what is already here.
        self.copy(&mut body, offset - from, &mut io::sink(), &mut |_| {})?;
        progress(offset);
        let mut each = |at| progress(offset + at);
        self.copy(&mut body, package.length - offset, target, &mut each)?;
        match body.read(&mut [0]).map_err(|error| self.client.lost(error))? {
            0 => Ok(()),
            _ => Err(self.client.broken("the package has another length")),
        }
    }

    /// Copies exactly `length` bytes.
    fn copy(
        &self,
        body: &mut impl Read,
        length: u64,
        target: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Failure> {
        let mut at = 0;
        let mut part = vec![0; PART];
        while at < length {
            let room = usize::try_from(length - at).unwrap_or(PART).min(PART);
            let read = body.read(&mut part[..room]).map_err(|error| self.client.lost(error))?;
            if read == 0 {
                return Err(self.client.lost(io::ErrorKind::UnexpectedEof.into()));
            }
            let written = target.write_all(&part[..read]);
            written.map_err(|error| Failure::local(format!("the package: {error}")))?;
            at += read as u64;
            progress(at);
        }
        Ok(())
    }

    /// Requests `path`, and reads a body of at most `max` bytes.
    fn read(&self, path: &str, max: usize) -> Result<Vec<u8>, Failure> {
        let answer = self.client.get(path, 0, ANSWER_TIMEOUT)?;
        if answer.status() != StatusCode::OK {
            return Err(self.refusal(answer));
        }
        let mut bytes = Vec::new();
        // One byte more than allowed, to detect a body that is too long.
        let mut body = answer.into_body().into_reader().take(max as u64 + 1);
        body.read_to_end(&mut bytes).map_err(|error| self.client.lost(error))?;
        if bytes.len() > max { Err(self.malformed()) } else { Ok(bytes) }
    }

    /// The failure for an answer with an unexpected status.
    fn refusal(&self, answer: Response<Body>) -> Failure {
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        // Without a readable body, the status suffices.
        let _ = answer.into_body().into_reader().take(MAX_META as u64).read_to_end(&mut body);
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text: String =
            problem["detail"].as_str().unwrap_or_default().chars().take(512).collect();
        let text = format!("{} (HTTP {status})", plain(&text));
        match status {
            404 | 410 => Failure::new(NO, text),
            500..=599 => Failure::new(UNREACHABLE, format!("unreachable: {text}")),
            _ => Failure::new(PROTOCOL, format!("protocol: {text}")),
        }
    }

    fn check(&self, found: &Published) -> Result<(), Failure> {
        let broken = |error| {
            self.client.broken(format_args!("the answer is not that of a catalogue: {error}"))
        };
        found.check().map_err(broken)
    }

    fn malformed(&self) -> Failure {
        self.client.broken("the answer is not that of a catalogue")
    }

    fn too_long(&self, package: &Package) -> String {
        format!(
            "the package has {}, more than the {} MiB of --max-package",
            format_size(package.length),
            self.max_package / MIB
        )
    }
}

/// Percent-encodes all but unreserved characters (RFC 3986 sections 2.1 and 2.3).
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

    fn catalogue(web: &str) -> WebCatalogue {
        let options = Options {
            from: Some(web.parse().unwrap()),
            ca: None,
            timeout: Duration::from_secs(60),
            max_package: 1,
        };
        options.open().unwrap().unwrap()
    }

    /// A server that answers one request with `answer`, and then closes the connection.
    fn server(answer: &'static [u8]) -> (WebCatalogue, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let catalogue = catalogue(&format!("http://{}", listener.local_addr().unwrap()));
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).unwrap();
            let _ = stream.write_all(answer);
        });
        (catalogue, thread)
    }

    #[test]
    fn percent_encodes_reserved_characters() {
        assert_eq!(encode("a b/ü^1"), "a%20b%2F%C3%BC%5E1");
    }

    #[test]
    fn rejects_answers_that_are_not_those_of_a_catalogue() {
        let wanted = Wanted { key: "hyperty/a".parse().unwrap(), version: String::new() };
        for (answer, code) in [
            (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".as_slice(), NO),
            (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", UNREACHABLE),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", PROTOCOL),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", UNREACHABLE),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", PROTOCOL),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", PROTOCOL),
            (b"HTTP/1.1 302 Found\r\nLocation: ftp://a/\r\nContent-Length: 0\r\n\r\n", PROTOCOL),
            (b"SSH-2.0-x\r\n", PROTOCOL),
            (b"", UNREACHABLE),
        ] {
            let (catalogue, thread) = server(answer);
            let failure = catalogue.get(&wanted).unwrap_err();
            let shown = String::from_utf8_lossy(answer);
            assert_eq!(failure.code(), code, "{shown}: {}", failure.text());
            thread.join().unwrap();
        }
    }

    #[test]
    fn does_not_request_a_package_that_is_too_long() {
        let package = Package {
            digest: [1; 32],
            length: MIB + 1,
            media_type: "text/plain".into(),
            description: b"{}".to_vec(),
        };
        // No server listens there.
        let failure = catalogue("http://127.0.0.1:1")
            .fetch(&package, 0, &mut io::sink(), &mut |_| {})
            .unwrap_err();
        assert!(failure.text().contains("--max-package"), "{}", failure.text());
    }
}

//! A server with a store of its own, and a client that sends any bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_catalogue::http::{Config, Site, Timeouts, serve};
use levada_catalogue::index::{Index, Options};
use levada_catalogue::model::{Draft, Package};
use levada_catalogue::rethink::Folder;
use levada_catalogue::store::embedded::EmbeddedStore;
use levada_catalogue::store::{Outcome, Store};
use levada_core::{Digest, UnixTime};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The time of every publication.
pub const NOW: UnixTime = UnixTime(1_700_000_000);
/// The longest wait for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Polls `condition` every 10 ms until it is true, at most [`TIMEOUT`].
#[track_caller]
pub fn eventually(mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < until, "the condition is still false after {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Timeouts that do not expire while other tests take the processors.
pub fn lenient_config() -> Config {
    let timeouts =
        Timeouts { head: TIMEOUT, stall: TIMEOUT, store: TIMEOUT, ..Timeouts::default() };
    Config { timeouts, ..Config::default() }
}

/// A running server, which dropping this ends.
pub struct Server<S: Store = EmbeddedStore> {
    pub address: SocketAddr,
    pub store: Arc<S>,
    pub site: Arc<Site>,
    runtime: Option<Runtime>,
    /// Has the folder of an embedded store.
    folder: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(lenient_config(), Options::default())
    }

    pub fn start_with(config: Config, options: Options) -> Self {
        Self::start_at("127.0.0.1:0", config, options)
    }

    /// As [`Self::start_with`], on an address of loopback.
    pub fn start_at(address: &str, config: Config, options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(&folder.path().join("catalogue")).unwrap();
        Self::over(store, folder, address, config, options)
    }

    /// The folder of the store.
    pub fn folder(&self) -> std::path::PathBuf {
        self.folder.path().join("catalogue")
    }

    /// Publishes, and updates the server's index.
    pub fn publish(&self, draft: &Draft) {
        let outcome = self.store.publish(draft, None, NOW).unwrap();
        assert!(matches!(outcome, Outcome::Created(_)), "{outcome:?}");
        self.site.index().catch_up(&*self.store).unwrap();
    }

    pub fn yank(&self, key: &str, version: &str) {
        let key = key.parse().unwrap();
        let version = version.parse().unwrap();
        self.store.yank(&key, &version, true, None, NOW).unwrap();
        self.site.index().catch_up(&*self.store).unwrap();
    }

    pub fn upload(&self, content: &[u8]) -> Digest {
        let mut writer = self.store.begin_blob().unwrap();
        content.chunks(60_000).for_each(|chunk| writer.write(chunk).unwrap());
        writer.finish(None).unwrap().0
    }

    /// Publishes the objects of a folder of reTHINK's catalogue, as an import does.
    pub fn import(&self, folder: &Path) {
        for found in Folder::open(folder).unwrap().flatten() {
            self.upload(&found.code);
            self.store.publish(&found.draft, None, NOW).unwrap();
        }
        self.site.index().catch_up(&*self.store).unwrap();
    }
}

impl<S: Store + 'static> Server<S> {
    /// A server over any store.
    pub fn over(
        store: S,
        folder: tempfile::TempDir,
        address: &str,
        config: Config,
        options: Options,
    ) -> Self {
        let store = Arc::new(store);
        let index = Arc::new(Index::load(&*store, options).unwrap());
        let site = Site::new(index, Arc::clone(&store) as Arc<dyn Store>, config, None);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(serve(Arc::clone(&site), listener, std::future::pending()));
        Self { address, store, site, runtime: Some(runtime), folder }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends `request` and returns all bytes until the server closes the connection.
    pub fn raw(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        read_all(&mut stream)
    }

    /// One request on a connection of its own; `fields` are complete lines.
    pub fn ask(&self, method: &str, target: &str, fields: &str) -> Answer {
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n{fields}\r\n");
        Answer::parse(&self.raw(request.as_bytes()))
    }

    pub fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, "")
    }

    /// A POST of `body` on a connection of its own.
    pub fn post(&self, target: &str, body: &str) -> Answer {
        let request = format!(
            "POST {target} HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Answer::parse(&self.raw(request.as_bytes()))
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl<S: Store> Drop for Server<S> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

pub fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// A parsed response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head: {:?}", String::from_utf8_lossy(bytes)));
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
        let fields = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        });
        Self { status, fields: fields.collect(), body: bytes[end + 4..].to_vec() }
    }

    /// The value of a field, which must not occur twice.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(other, _)| other == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} occurs twice");
        value
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Asserts that it is plain text with this status, and not JSON.
    #[track_caller]
    pub fn assert_text(&self, status: u16) {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.field("content-type"), Some("text/plain; charset=utf-8"));
        assert!(serde_json::from_slice::<serde_json::Value>(&self.body).is_err());
    }

    /// Asserts that it is a problem document (RFC 9457) with this status.
    #[track_caller]
    pub fn assert_problem(&self, status: u16) {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.field("content-type"), Some("application/problem+json"));
        assert_eq!(self.json()["status"], status);
        assert!(!self.json()["detail"].as_str().unwrap().is_empty());
    }
}

pub fn draft(key: &str, version: &str, descriptor: &str) -> Draft {
    Draft {
        key: key.parse().unwrap(),
        version: version.parse().unwrap(),
        descriptor: descriptor.into(),
        package: None,
        signatures: Vec::new(),
    }
}

/// As [`draft`], with `content` as its package.
pub fn draft_with(
    server: &Server,
    key: &str,
    version: &str,
    media_type: &str,
    content: &[u8],
) -> Draft {
    let package = Package {
        digest: server.upload(content),
        length: content.len() as u64,
        media_type: media_type.to_owned(),
        description: br#"{"encoding":"UTF-8"}"#.to_vec(),
    };
    Draft { package: Some(package), ..draft(key, version, r#"{"language":"javascript"}"#) }
}

/// A dataschema `S` that reTHINK's clients can request, with `content` as its package.
pub fn schema_draft(server: &Server, version: &str, content: &[u8]) -> Draft {
    let mut draft = draft_with(server, "dataschema/S", version, "text/javascript", content);
    draft.descriptor = format!(
        r#"{{"type":"t","version":"{version}","objectName":"S","description":"d","language":"l"}}"#
    )
    .into();
    draft.package.as_mut().unwrap().description = br#"{"sourceCodeClassname":"S"}"#.to_vec();
    draft
}

/// Bytes that do not compress.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_9abc_def0_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

//! `pkg/nginx-catalogue.conf` with a real nginx in front of three catalogues of the same content.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use levada_catalogue::index::Options;
use levada_catalogue::model::digest_text;
use levada_core::sha256;

use super::server::{
    Answer, Server, TIMEOUT, draft, draft_with, eventually, lenient_config, noise,
};

const CONFIGURATION: &str = include_str!("../../../../pkg/nginx-catalogue.conf");
/// A package that exceeds all buffers of nginx.
const LONG: usize = 12_000_000;
const DESCRIPTOR: &str = r#"{"description":"an object"}"#;
const OBJECT: &str = "/v1/objects/hyperty/a/1.0.0";

/// nginx, which listens on a socket in its folder.
struct Nginx {
    child: Child,
    folder: tempfile::TempDir,
}

impl Nginx {
    /// Starts it with the packaged configuration, in which only addresses and paths are replaced,
    /// and the lines of the cache are in use if `with_cache`.
    fn start(nodes: &[String; 3], with_cache: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let mut text = CONFIGURATION.replace("listen 80;", &format!("listen unix:{at}/socket;"));
        for (number, node) in (1..).zip(nodes) {
            text = text.replace(&format!("10.0.0.{number}:5383"), node);
        }
        if with_cache {
            text = text.replace("# proxy_cache", "proxy_cache");
        }
        text = text.replace("/var/cache/nginx/levada", &format!("{at}/cache"));
        fs::write(folder.path().join("catalogue.conf"), text).unwrap();
        let main = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
            events {{}}
            http {{
                access_log off;
                client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;
                uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
                include {at}/catalogue.conf;
            }}"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, main).unwrap();
        let mut nginx = Command::new("nginx");
        // Debian keeps programs for administrators there.
        let path = std::env::var("PATH").unwrap_or_default();
        nginx.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        nginx.args(["-e", "stderr", "-p"]).arg(folder.path()).arg("-c").arg(&file);
        let child = nginx.stdin(Stdio::null()).spawn().expect("Debian's package nginx-light");
        let nginx = Self { child, folder };
        eventually(|| UnixStream::connect(nginx.socket()).is_ok());
        nginx
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn send(&self, method: &str, target: &str, fields: &str) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn ask(&self, method: &str, target: &str, fields: &str) -> Answer {
        let mut all = Vec::new();
        self.send(method, target, fields).read_to_end(&mut all).unwrap();
        Answer::parse(&all)
    }

    fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, "")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("error.log"));
            eprintln!("{}", log.unwrap_or_default());
        }
    }
}

/// Three nodes, on addresses that no other test uses: a port stays free there after its server has
/// ended.
struct Nodes {
    servers: [Option<Server>; 3],
    addresses: [String; 3],
    package: String,
    code: Vec<u8>,
}

impl Nodes {
    fn start() -> Self {
        static BLOCK: AtomicUsize = AtomicUsize::new(0);
        let block = 1 + 3 * BLOCK.fetch_add(1, Ordering::Relaxed);
        let [.., high, low] = std::process::id().to_be_bytes();
        let servers = [0, 1, 2].map(|number| {
            let address = format!("127.{high}.{low}.{}:0", block + number);
            Some(Server::start_at(&address, lenient_config(), Options::default()))
        });
        let addresses =
            servers.each_ref().map(|server| server.as_ref().unwrap().address.to_string());
        let code = noise(LONG);
        let package = format!("/v1/blobs/{}", digest_text(&sha256(&[&code])));
        let nodes = Self { servers, addresses, package, code };
        nodes.each(|server| {
            server.publish(&draft("hyperty/a", "1.0.0", DESCRIPTOR));
            server.publish(&draft_with(server, "runtime/long", "1.0.0", "image/png", &nodes.code));
            // Caches keep a package only when its node has verified it.
            let policy = || server.ask("HEAD", &nodes.package, "");
            eventually(|| policy().field("cache-control").unwrap().contains("immutable"));
        });
        nodes
    }

    fn each(&self, mut work: impl FnMut(&Server)) {
        self.servers.iter().flatten().for_each(&mut work);
    }

    /// Makes `work` run on several threads until it was called often enough on each, also after
    /// `change`.
    fn read_during(work: impl Fn() + Sync, change: impl FnOnce()) {
        let done = AtomicBool::new(false);
        let count = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        work();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let more = || {
                let before = count.load(Ordering::Relaxed);
                eventually(|| count.load(Ordering::Relaxed) > before + 200);
            };
            more();
            change();
            more();
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn passes_answers_through_unchanged() {
    let nodes = Nodes::start();
    let nginx = Nginx::start(&nodes.addresses, false);
    let answer = nginx.get(OBJECT);
    assert_eq!((answer.status, answer.text()), (200, DESCRIPTOR));
    let tag = answer.field("etag").unwrap();
    let known = nginx.ask("GET", OBJECT, &format!("If-None-Match: {tag}\r\n"));
    assert_eq!((known.status, known.field("etag")), (304, Some(tag)));
    assert!(answer.field("cache-control").unwrap().contains("immutable"));
    assert_eq!(nginx.ask("HEAD", OBJECT, "").status, 200);
    let whole = nginx.get(&nodes.package);
    assert!(whole.status == 200 && whole.body == nodes.code);
    let tag = whole.field("etag").unwrap();
    let fields = format!("Range: bytes=5000000-5000999\r\nIf-Range: {tag}\r\n");
    let part = nginx.ask("GET", &nodes.package, &fields);
    let range = format!("bytes 5000000-5000999/{LONG}");
    assert_eq!((part.status, part.field("content-range")), (206, Some(range.as_str())));
    assert!(part.body == nodes.code[5_000_000..5_001_000]);
    nginx.get("/v1/objects/hyperty/b").assert_problem(404);
    assert_eq!(nginx.get("/.well-known/hyperty").status, 200);
    // Changes are refused in front of the nodes, and their numbers are not shown.
    assert_eq!(nginx.ask("PUT", OBJECT, "Content-Length: 0\r\n").status, 405);
    assert_eq!(nginx.get("/metrics").status, 404);
    let kept = fs::read_dir(nginx.folder.path().join("proxy")).unwrap().count();
    assert_eq!(kept, 0, "a package was written to a temporary file");
}

#[test]
fn changes_arrive_while_the_stream_goes_on() {
    let nodes = Nodes::start();
    let nginx = Nginx::start(&nodes.addresses, false);
    let mut stream = nginx.send("GET", "/v1/watch", "");
    let mut seen = Vec::new();
    let mut read_until = |text: &str| {
        while !String::from_utf8_lossy(&seen).contains(text) {
            let mut part = [0; 4096];
            let length = stream.read(&mut part).unwrap();
            assert!(length > 0, "the stream has ended: {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&part[..length]);
        }
    };
    read_until("retry:");
    for version in ["1.1.0", "1.2.0"] {
        nodes.each(|server| server.publish(&draft("hyperty/a", version, DESCRIPTOR)));
        read_until(&format!("\"version\":\"{version}\""));
    }
}

#[test]
fn no_read_fails_while_a_node_ends_or_cannot_answer() {
    let mut nodes = Nodes::start();
    let nginx = Nginx::start(&nodes.addresses, false);
    let read = || {
        let answer = nginx.get(OBJECT);
        assert_eq!((answer.status, answer.text()), (200, DESCRIPTOR));
    };
    let first = nodes.servers[0].take();
    Nodes::read_during(read, || drop(first));
    // In its place, a node that answers 503 to everything.
    let listener = TcpListener::bind(&nodes.addresses[0]).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            counter.fetch_add(1, Ordering::Relaxed);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy",
            );
        }
    });
    Nodes::read_during(read, || eventually(|| asked.load(Ordering::Relaxed) > 0));
    // Without a node that can, the answer is the last node's, or that there is none.
    nodes.servers = [None, None, None];
    assert!([502, 503].contains(&nginx.get(OBJECT).status));
}

#[test]
fn the_cache_keeps_versions_and_packages_only() {
    let mut nodes = Nodes::start();
    let nginx = Nginx::start(&nodes.addresses, true);
    let kept = [OBJECT, &nodes.package];
    let not_kept =
        ["/v1/objects/hyperty/a/latest", "/v1/objects", "/v1/objects/hyperty/later/1.0.0"];
    let read = |path: &str| nginx.get(path).status;
    assert_eq!(kept.map(read), [200, 200]);
    assert_eq!(not_kept.map(read), [200, 200, 404]);
    // A version that one node lacked at first is found later.
    nodes.each(|server| server.publish(&draft("hyperty/later", "1.0.0", DESCRIPTOR)));
    assert_eq!(read(not_kept[2]), 200);
    nodes.servers = [None, None, None];
    assert_eq!(nginx.get(OBJECT).text(), DESCRIPTOR);
    assert!(nginx.get(&nodes.package).body == nodes.code);
    let part = nginx.ask("GET", &nodes.package, "Range: bytes=7-9\r\n");
    assert!(part.status == 206 && part.body == nodes.code[7..10]);
    let tag = nginx.get(OBJECT).field("etag").unwrap().to_owned();
    assert_eq!(nginx.ask("GET", OBJECT, &format!("If-None-Match: {tag}\r\n")).status, 304);
    assert_eq!(not_kept[..2].iter().map(|path| read(path)).collect::<Vec<_>>(), [502, 502]);
}

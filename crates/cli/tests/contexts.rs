//! HTTP through middleboxes, with real processes: curl, `levada http`, two middleboxes, a node, and
//! a web server.

#[cfg(feature = "browser-tests")]
mod browser;
mod flood;
mod granted;
mod node;
mod refusals;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::support::{Home, Node, STEP_TIMEOUT, eventually};

/// A process that prints the address where it listens, and whose standard error is kept.
pub struct Service {
    pub child: Child,
    pub address: String,
    log: Arc<Mutex<String>>,
}

impl Service {
    pub fn start(home: &Home, args: &[&str]) -> Self {
        let mut command = home.command(args);
        Self::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Takes the outputs of a process, and waits for its address.
    pub fn of(mut child: Child) -> Self {
        let log = Arc::new(Mutex::new(String::new()));
        let copy = log.clone();
        let errors = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                copy.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let service = Self { child, address: address.trim().to_owned(), log };
        assert!(!service.address.is_empty(), "{}", service.log());
        service
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The part `host:port` of an address such as `lv…@host:port`.
    pub fn host_port(&self) -> &str {
        self.address.rsplit_once('@').map_or(&self.address, |(_, at)| at)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Python's web server, which `scripts/test` installs, in front of `folder`.
fn web_server(folder: &Path) -> Service {
    let program = "import http.server, sys\n\
        class H(http.server.SimpleHTTPRequestHandler):\n    \
        protocol_version = 'HTTP/1.1'\n    \
        def do_POST(self):\n        \
        body = b''\n        \
        while True:\n            \
        size = int(self.rfile.readline(), 16)\n            \
        body += self.rfile.read(size)\n            \
        self.rfile.readline()\n            \
        if size == 0: break\n        \
        self.send_response(200)\n        \
        self.send_header('Content-Length', str(len(body)))\n        \
        self.end_headers()\n        \
        self.wfile.write(body)\n\
        s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n\
        print('127.0.0.1:%d' % s.server_port, flush=True)\n\
        s.serve_forever()\n";
    let mut child = Command::new("python3")
        .args(["-c", program])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
    Service { child, address: address.trim().to_owned(), log: Arc::default() }
}

pub fn curl(args: &[&str]) -> String {
    let seconds = STEP_TIMEOUT.as_secs().to_string();
    let mut command = Command::new("curl");
    let mut child = command
        .args(["--silent", "--max-time", &seconds, "--noproxy", "*"])
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    child.wait().unwrap();
    String::from_utf8_lossy(&output).into_owned()
}

/// All parties of a path: the homes of a client, two middleboxes and a node, and the web server.
struct Parties {
    client: Home,
    hops: [Home; 2],
    node: Home,
    folder: tempfile::TempDir,
    server: Service,
}

impl Parties {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("index.html"), "the page").unwrap();
        let server = web_server(folder.path());
        let hops = [Home::new(), Home::new()];
        Self { client: Home::new(), hops, node: Home::new(), folder, server }
    }

    /// The definition of the service, with what it allows the middleboxes.
    fn definition(&self, allow: [&str; 2], required: bool) -> String {
        let mut text = format!("name = 'web'\ntype = 'http'\norigin = '{}'\n", self.server.address);
        for (hop, allow) in self.hops.iter().zip(allow) {
            let identity = hop.identity();
            text += &format!(
                "[[middlebox]]\nidentity = '{identity}'\nallow = '{allow}'\nrequired = {required}\n"
            );
        }
        let file = self.node.path().join("web.toml");
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }

    /// The local origin, both middleboxes, of which the second adds a field, and the node.
    fn run(&self) -> (Service, [Service; 2], Node<'_>) {
        let file = self.definition(["request-head=r", "response-head=rw"], false);
        let node = self.node.up(&format!("--service {file} --allow {}", self.client.identity()));
        let at = node.address();
        let add = ["--add-response", "X-Checked: yes"];
        let second = ["middlebox", "--next", &at];
        let second = Service::start(&self.hops[1], &[&second[..], &add].concat());
        let first = Service::start(&self.hops[0], &["middlebox", "--next", second.host_port()]);
        let vias = [
            format!("{}:request-head=r", first.address),
            format!("{}:response-head=rw", second.address),
        ];
        let target = format!("{}@{at}/web", self.node.identity());
        let args = ["http", "--via", &vias[0], "--via", &vias[1], &target];
        let http = Service::start(&self.client, &args);
        (http, [first, second], node)
    }
}

#[test]
fn each_middlebox_sees_and_changes_what_it_was_granted_and_nothing_else() {
    let parties = Parties::new();
    let (http, [first, second], _node) = parties.run();
    let page = curl(&["--include", &http.address]);
    assert!(page.contains("x-checked: yes\r\n") && page.ends_with("the page"), "{page}");
    // A body that is sent in parts, and its echo.
    let body = "0123456789abcdef".repeat(40_000);
    let sent = parties.folder.path().join("sent");
    std::fs::write(&sent, &body).unwrap();
    let data = format!("@{}", sent.to_str().unwrap());
    let chunked = "Transfer-Encoding: chunked";
    let echo = curl(&["--data-binary", &data, "--header", chunked, &http.address]);
    assert!(echo == body, "{} bytes of {}", echo.len(), body.len());
    let rebound = curl(&["--include", "--header", "Host: other.test", &http.address]);
    assert!(rebound.starts_with("HTTP/1.1 421"), "{rebound}");
    let upgrade = curl(&["--include", "--header", "Upgrade: websocket", &http.address]);
    assert!(upgrade.starts_with("HTTP/1.1 501"), "{upgrade}");
    let logged = || first.log().contains("request 1:") && second.log().contains("response 1:");
    eventually("both middleboxes have logged two exchanges", logged);
    let one = first.log();
    let two = second.log();
    assert!(one.contains("hop 1 of 2 holds request-head=r\n"), "{one}");
    assert!(one.contains("fields accept, user-agent") && !one.contains("response"), "{one}");
    assert!(two.contains("hop 2 of 2 holds response-head=rw\n"), "{two}");
    assert!(!two.contains("request-head") && !two.contains("body"), "{two}");
}

#[test]
fn metrics_name_a_start_through_middleboxes_in_one_word() {
    let parties = Parties::new();
    let (http, _hops, node) = parties.run();
    curl(&[&http.address]);
    let (_, metrics) = node.http("/metrics");
    let operations = metrics.lines().filter(|line| line.starts_with("levada_operations_total{"));
    let operations: Vec<&str> = operations.collect();
    let started = |line: &&str| line.contains("operation=\"start_through_middleboxes\"");
    assert!(operations.iter().any(started), "{metrics}");
    for line in operations {
        let labels = &line[..line.rfind('}').unwrap()];
        assert!(!labels.contains(' '), "{line}");
    }
}

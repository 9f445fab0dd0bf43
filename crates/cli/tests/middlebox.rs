//! What `levada middlebox` does with responses, with real processes: curl, `levada http`,
//! middleboxes, a node, and a web server that counts what it is asked.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::contexts::{Service, curl};
use crate::support::{Home, Node, STEP_TIMEOUT, eventually};

/// All rights.
const ALL: &str = "request-head=rw,request-body=rw,response-head=rw,response-body=rw";

/// A web server. Each parameter of a query is a field of the response, except `size`, the length of
/// its body. The body begins with how often this very target was asked for. `/count?TARGET` is that
/// number; `/stream` sends its second part after `/release` was asked for.
const ORIGIN: &str = r#"
import collections, http.server, threading, urllib.parse
counts = collections.Counter()
released = threading.Event()
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        path, _, query = self.path.partition('?')
        if path == '/release':
            released.set()
        if path == '/stream':
            return self.stream()
        if path == '/count':
            return self.reply({}, str(counts[urllib.parse.unquote(query)]))
        counts[self.path] += 1
        fields = dict(urllib.parse.parse_qsl(query))
        size = int(fields.pop('size', 0))
        body = 'answer %d\n' % counts[self.path]
        self.reply(fields, body + ('0123456789 the same again\n' * size)[:size])
    do_POST = do_GET
    def reply(self, fields, body):
        self.send_response(200)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())
    def stream(self):
        self.send_response(200)
        self.send_header('Content-Type', 'text/plain')
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        self.wfile.write(b'6\r\nfirst\n\r\n')
        self.wfile.flush()
        released.wait(60)
        self.wfile.write(b'7\r\nsecond\n\r\n0\r\n\r\n')
    def log_message(self, *_):
        pass
s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)
print('127.0.0.1:%d' % s.server_port, flush=True)
s.serve_forever()
"#;

struct Origin {
    child: Child,
    address: String,
}

impl Origin {
    fn start() -> Self {
        let mut command = Command::new("python3");
        let command = command.args(["-c", ORIGIN]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    fn count(&self, target: &str) -> String {
        let target = target.replace('%', "%25").replace('=', "%3D").replace('&', "%26");
        curl(&[&format!("http://{}/count?{target}", self.address)])
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Adds a service to a node that allows middleboxes everything.
fn definition(node: &Home, name: &str, options: &str, origin: &Origin, hops: &[&Home]) -> String {
    let mut text = format!("name = '{name}'\ntype = 'http'\norigin = '{}'\n", origin.address);
    text += options;
    for hop in hops {
        let identity = hop.identity();
        text += &format!("\n[[middlebox]]\nidentity = '{identity}'\nallow = '{ALL}'\n");
    }
    let file = node.path().join(format!("{name}.toml"));
    std::fs::write(&file, text).unwrap();
    format!("--service {}", file.to_str().unwrap())
}

/// `levada http` to a service through middleboxes with all rights, or with those that an address
/// names.
fn through(client: &Home, node: &Home, running: &Node<'_>, name: &str, vias: &[&str]) -> Service {
    let mut args = vec!["http".to_owned()];
    for via in vias {
        let via = if via.contains('=') { (*via).to_owned() } else { format!("{via}:{ALL}") };
        args.extend(["--via".to_owned(), via]);
    }
    args.push(format!("{}@{}/{name}", node.identity(), running.address()));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Service::start(client, &args)
}

fn fetch(service: &Service, target: &str, args: &[&str]) -> String {
    let target = target.strip_prefix('/').unwrap();
    curl(&[args, &[&format!("{}{target}", service.address)]].concat())
}

const FRESH: &str = "Cache-Control=max-age%3D600";

#[test]
fn a_cache_answers_what_may_be_shared_and_nothing_else() {
    let origin = Origin::start();
    let node = Home::new();
    let hop = Home::new();
    let clients = [Home::new(), Home::new()];
    let services = [("web", "share = 'all'"), ("wiki", "share = 'all'"), ("own", "")];
    let services = services.map(|(name, share)| definition(&node, name, share, &origin, &[&hop]));
    let allowed = clients.each_ref().map(|client| format!("--allow {}", client.identity()));
    let running = node.up(&[services.as_slice(), &allowed].concat().join(" "));
    let next = running.address();
    let middlebox = ["middlebox", "--next", &next, "--cache", "16M", "--add-response", "X-Box: 1"];
    let cache = Service::start(&hop, &middlebox);
    let open = |client, name| through(client, &node, &running, name, &[&cache.address]);
    let [alice, bob] = clients.each_ref().map(|client| open(client, "web"));
    let fetch = |service: &Service, target: &str, args: &[&str]| fetch(service, target, args);

    // A page of a megabyte, asked for by two identities.
    let page = format!("/page?{FRESH}&size=1000000");
    let first = fetch(&alice, &page, &[]);
    assert!(first.starts_with("answer 1\n") && first.len() == 1_000_009, "{}", first.len());
    eventually("it is stored", || cache.log().contains("response 0: stored, 1000009 B for "));
    for service in [&alice, &bob, &alice] {
        let again = fetch(service, &page, &["--include"]);
        let (head, body) = again.split_once("\r\n\r\n").unwrap();
        assert!(body == first && head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("\r\nage: ") && head.contains("\r\nx-box: 1"), "{head}");
    }
    assert_eq!(origin.count(&page), "1");
    eventually("hits are logged", || cache.log().matches(": hit, ").count() == 3);

    // What is asked for twice, how, and how often the web server sees it.
    for (target, args, count) in [
        ("/vary?Cache-Control=max-age%3D600&Vary=X-Name", ["X-Name: a", "X-Name: a"], "1"),
        ("/varies?Cache-Control=max-age%3D600&Vary=X-Name", ["X-Name: a", "X-Name: b"], "2"),
        ("/private?Cache-Control=private,max-age%3D600", ["A: b", "A: b"], "2"),
        ("/no-store?Cache-Control=no-store,max-age%3D600", ["A: b", "A: b"], "2"),
        ("/cookie?Cache-Control=max-age%3D600&Set-Cookie=a%3Db", ["A: b", "A: b"], "2"),
        ("/unknown", ["A: b", "A: b"], "2"),
        ("/auth?Cache-Control=max-age%3D600", ["Authorization: a", "Authorization: a"], "2"),
        ("/later?Cache-Control=max-age%3D600", ["A: b", "Authorization: a"], "2"),
        ("/reload?Cache-Control=max-age%3D600", ["A: b", "Cache-Control: no-cache"], "2"),
        ("/range?Cache-Control=max-age%3D600", ["A: b", "Range: bytes=0-1"], "2"),
    ] {
        for field in args {
            assert!(fetch(&alice, target, &["--header", field]).starts_with("answer "), "{target}");
        }
        assert_eq!(origin.count(target), count, "{target} with {args:?}");
    }
    for reason in [
        "not stored: it is private",
        "not stored: it has no-store",
        "not stored: it sets a cookie",
        "not stored: nothing says how long it is fresh",
        "not stored: the request has the field Authorization",
    ] {
        eventually(reason, || cache.log().contains(reason));
    }
    let absent = fetch(&alice, "/a", &["--include", "--header", "Cache-Control: only-if-cached"]);
    assert!(absent.starts_with("HTTP/1.1 504"), "{absent}");

    // The answers of another service are not those of this one, and those of a third are for no one
    // else.
    let wiki = open(&clients[0], "wiki");
    assert!(fetch(&wiki, &page, &[]).starts_with("answer 2\n"));
    assert!(fetch(&wiki, &page, &[]).starts_with("answer 2\n"));
    let own = clients.each_ref().map(|client| open(client, "own"));
    for (service, count) in [(&own[0], 3), (&own[0], 4), (&own[1], 5)] {
        assert!(fetch(service, &page, &[]).starts_with(&format!("answer {count}\n")));
    }
    let reason = "the service does not share answers";
    eventually("the reason is logged", || cache.log().contains(reason));
}

#[test]
fn a_cache_stores_nothing_that_the_node_has_not_endorsed_or_that_it_may_not_see() {
    let origin = Origin::start();
    let node = Home::new();
    let client = Home::new();
    let hops = [Home::new(), Home::new()];
    let service = definition(&node, "web", "share = 'all'", &origin, &[&hops[0], &hops[1]]);
    let running = node.up(&format!("{service} --allow {}", client.identity()));
    let next = running.address();
    let writer =
        Service::start(&hops[1], &["middlebox", "--next", &next, "--add-response", "X-Box: 1"]);
    let middlebox = ["middlebox", "--next", writer.host_port(), "--next", &next, "--cache", "16M"];
    let cache = Service::start(&hops[0], &[&middlebox[..], &["--lenient"]].concat());
    let page = format!("/page?{FRESH}");
    let changed = through(&client, &node, &running, "web", &[&cache.address, &writer.address]);
    for count in 1..3 {
        assert!(fetch(&changed, &page, &[]) == format!("answer {count}\n"));
    }
    let log = || cache.log();
    eventually("the reason is logged", || log().contains("the node has not endorsed it"));
    assert!(!log().contains(": stored"), "{}", log());
    // A session that grants too little.
    let less = format!("{}:request-head=rw,response-head=rw,response-body=rw", cache.address);
    let less = through(&client, &node, &running, "web", &[&less]);
    for count in 3..5 {
        assert!(fetch(&less, &page, &[]) == format!("answer {count}\n"));
    }
    let reason = "in this session: the session does not grant request-body=rw";
    let session = "hop 1 of 1 holds request-head=rw,response-head=rw,response-body=rw";
    let count = |text: &str| log().matches(text).count();
    eventually("it is logged once", || count(reason) > 0 && count(reason) == count(session));
    // The same cache alone stores it.
    let alone = through(&client, &node, &running, "web", &[&cache.address]);
    for _ in 0..2 {
        assert!(fetch(&alone, &page, &[]) == "answer 5\n");
    }
}

#[test]
fn a_middlebox_compresses_what_a_client_takes() {
    let origin = Origin::start();
    let node = Home::new();
    let client = Home::new();
    let hop = Home::new();
    let service = definition(&node, "web", "share = 'all'", &origin, &[&hop]);
    let running = node.up(&format!("{service} --allow {}", client.identity()));
    let next = running.address();
    let middlebox = ["middlebox", "--next", &next, "--compress", "--cache", "16M"];
    let middlebox = Service::start(&hop, &middlebox);
    let http = through(&client, &node, &running, "web", &[&middlebox.address]);
    let page = format!("/page?Content-Type=text/html&ETag=%22a%22&{FRESH}&size=300000");
    // From the web server, and from the cache.
    for _ in 0..2 {
        let answer = fetch(&http, &page, &["--include", "--compressed"]);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\ncontent-encoding: gzip"), "{head}");
        assert!(head.contains("\r\netag: W/\"a\"") && head.contains("\r\nvary: Accept-Encoding"));
        let (first, rest) = body.split_once('\n').unwrap();
        assert_eq!(first, "answer 1");
        let line = "0123456789 the same again\n";
        assert!(rest == &line.repeat(20_000)[..300_000], "{} bytes", rest.len());
    }
    let plain = fetch(&http, &page, &["--include"]);
    assert!(!plain.contains("content-encoding") && plain.len() > 300_000);
    assert_eq!(origin.count(&page), "1");
    let logged = || middlebox.log().contains("compress: response 0: 300009 B to ");
    eventually("the gain is logged", logged);
    // An empty body, and one that is no text.
    let empty = fetch(&http, "/count?x", &["--compressed"]);
    assert_eq!(empty, "0");
    let image =
        fetch(&http, "/image?Content-Type=image/png&size=5000", &["--include", "--compressed"]);
    assert!(!image.contains("content-encoding"), "{image}");
    // A part of a body arrives before the next one is there.
    let seconds = STEP_TIMEOUT.as_secs().to_string();
    let mut curl = Command::new("curl")
        .args(["--silent", "--no-buffer", "--compressed", "--max-time", &seconds])
        .args(["--noproxy", "*", &format!("{}stream", http.address)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(curl.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    fetch(&http, "/release", &[]);
    line.clear();
    output.read_to_string(&mut line).unwrap();
    curl.wait().unwrap();
    assert_eq!(line, "second\n");
}

#[test]
fn a_filter_ends_the_session_at_a_request_that_matches_and_lets_others_pass() {
    let origin = Origin::start();
    let node = Home::new();
    let client = Home::new();
    let hop = Home::new();
    let service = definition(&node, "web", "", &origin, &[&hop]);
    let running = node.up(&format!("{service} --allow {}", client.identity()));
    let next = running.address();
    let patterns = ["^[A-Z]+ /private", "(?im)^x-secret: "];
    let middlebox = ["middlebox", "--next", &next, "--block", patterns[0], "--block", patterns[1]];
    let filter = Service::start(&hop, &middlebox);
    let http = through(&client, &node, &running, "web", &[&filter.address]);
    for (target, args, pattern) in [
        ("/private/page", ["--header", "A: b"], patterns[0]),
        ("/private/form", ["--data", "a=b"], patterns[0]),
        ("/marked", ["--header", "X-Secret: 1"], patterns[1]),
    ] {
        let answer = fetch(&http, target, &[&args[..], &["--include"]].concat());
        assert!(answer.starts_with("HTTP/1.1 403"), "{target}: {answer}");
        let text = format!("the middlebox {} (1) refuses this request", filter.address);
        assert!(answer.contains(&text), "{answer}");
        let line = format!("blocked, and the session ended: a request that matches `{pattern}`");
        eventually("it is logged", || filter.log().contains(&line));
        assert_eq!(origin.count(target), "0", "{target}");
        // The next request opens another session.
        assert!(fetch(&http, "/public", &[]).starts_with("answer "), "{}", http.log());
    }
    let passed = [": GET /public; ", ": 200; "];
    eventually("what passes is logged", || passed.iter().all(|text| filter.log().contains(text)));
    // A client cannot turn it off: by a smaller grant, or by contexts where it does not look.
    let less = format!("{}:response-head=r", filter.address);
    let one = format!("{}:exchange=r", filter.address);
    let target = format!("{}@{}/web", node.identity(), running.address());
    for (via, strategy) in [(&less, "four"), (&one, "one"), (&less, "per-header")] {
        let refused = client.args(["http", "--strategy", strategy, "--via", via, &target]);
        refused.fails(123, "the session must also grant what its options need");
    }
    let log = "`block` cannot do its work: the session does not grant request-head=r";
    eventually("the reason is logged", || filter.log().contains(log));
    // Unless its operator permits it.
    let lenient = [&middlebox[..], &["--lenient", "--log-format", "json"]].concat();
    let lenient = Service::start(&hop, &lenient);
    let blind = format!("{}:response-head=r", lenient.address);
    let blind = through(&client, &node, &running, "web", &[&blind]);
    assert_eq!(fetch(&blind, "/private/page", &[]), "answer 1\n");
    let entry = |event: &str| {
        let log = lenient.log();
        let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut found = entries.filter(|entry| entry["event"] == event);
        found.next().unwrap_or_default()
    };
    eventually("the response is logged", || entry("response")["status"] == 200);
    assert_eq!(entry("session")["rights"], json!({ "response-head": "r" }));
    assert_eq!(entry("response")["session"], 1);
    assert!(entry("response")["time"].as_str().unwrap().ends_with('Z'));
    // It may not read the head of the request.
    assert_eq!(entry("request")["method"], Value::Null);
}

//! `levada http`, with real processes: over ordinary sessions and through middleboxes.

mod origin;
#[cfg(feature = "browser-tests")]
mod sites;
mod smuggling;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use crate::contexts::{Service as Started, curl};
use crate::support::{Home, Node, STEP_TIMEOUT, eventually};
use origin::{Origin, RawClient, host_port};

/// The homes of a client, a middlebox and a node, and an origin.
struct Parties {
    client: Home,
    hop: Home,
    node: Home,
    origin: Origin,
}

impl Parties {
    fn new() -> Self {
        let client = Home::new();
        let hop = Home::new();
        let node = Home::new();
        Self { client, hop, node, origin: Origin::new() }
    }

    /// A node that offers the origin as `web`, and allows the middlebox what `keys` say.
    fn up(&self, keys: &str, required: bool) -> Node<'_> {
        self.up_with("", keys, required)
    }

    /// The same, with further keys of the service.
    fn up_with(&self, service: &str, keys: &str, required: bool) -> Node<'_> {
        let address = &self.origin.address;
        // Pinned names stand for identities.
        let pinned = ["peers", "add", "office", &self.hop.identity()];
        self.node.args(pinned).ok();
        let hop = "office";
        let text = format!(
            "name = 'web'\ntype = 'http'\norigin = '{address}'\n{service}\n\
             [[middlebox]]\nidentity = '{hop}'\nrequired = {required}\n{keys}\n"
        );
        let file = self.node.path().join("web.toml");
        std::fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        self.node.up(&format!("--service {file} --allow {}", self.client.identity()))
    }

    /// The middlebox, and what `--via` says to grant it something.
    fn middlebox(&self, node: &Node, grants: &str) -> (Started, String) {
        let middlebox = Started::start(&self.hop, &["middlebox", "--next", &node.address()]);
        let via = format!("{}:{grants}", middlebox.address);
        (middlebox, via)
    }

    fn http(&self, node: &Node, options: &[&str]) -> Started {
        let target = format!("{}/web", node.at());
        let args = [&["http"], options, &[target.as_str()]].concat();
        Started::start(&self.client, &args)
    }
}

/// Requests of every form, answered the same way by every carrier.
fn use_origin(parties: &Parties, http: &Started, trailers: bool) {
    let url = |path: &str| format!("{}{path}", http.address);
    let head = curl(&["--head", &url("page")]);
    assert!(head.starts_with("HTTP/1.1 200") && !head.contains("content-length"), "{head}");
    assert_eq!(curl(&[&url("page")]), "the page");
    let none = curl(&["--include", &url("none")]);
    assert!(none.starts_with("HTTP/1.1 204") && none.ends_with("\r\n\r\n"), "{none}");
    let same = curl(&["--include", "--header", "If-None-Match: \"a\"", &url("same")]);
    assert!(same.starts_with("HTTP/1.1 304") && same.contains("etag: \"a\""), "{same}");
    let moved = curl(&["--include", &url("moved")]);
    assert!(
        moved.contains("location: /page\r\n") && moved.contains("set-cookie: a=b\r\n"),
        "{moved}"
    );
    assert!(moved.contains("content-length: 0\r\n"), "{moved}");
    // A body of known length, with an interim response before it.
    let sent = curl(&["--data-binary", "12345", "--header", "Expect: 100-continue", &url("sum")]);
    assert_eq!(sent, "5");
    let seen = parties.origin.take();
    assert_eq!(seen.len(), 6);
    assert!(seen.iter().all(|request| request.values("host") == [&parties.origin.address]));
    assert!(seen[1].values("transfer-encoding").is_empty(), "{:?}", seen[1]);
    assert!(seen[5].values("expect").is_empty() && seen[5].body == b"12345");
    send_trailers(parties, http, trailers);
}

/// A chunked request with trailers, and a response with some: those that may travel, if `carried`.
fn send_trailers(parties: &Parties, http: &Started, carried: bool) {
    let mut client = RawClient::new(&http.address);
    let host = host_port(&http.address);
    client.send(format!(
        "POST /sum HTTP/1.1\r\nHost: {host}\r\nTE: trailers\r\nConnection: te\r\nTrailer: X-Mine, Authorization\r\n\
         Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Mine: 1\r\nAuthorization: a\r\nX-Other: b\r\n\r\n"
    ));
    let answer = client.read_to_end();
    assert!(answer.contains("\r\n1\r\n3\r\n0\r\n"), "{answer}");
    let request = parties.origin.take().pop().unwrap();
    assert_eq!(request.body, b"abc");
    if carried {
        let trailers: Vec<String> =
            request.trailers.iter().map(|line| line.to_ascii_lowercase()).collect();
        assert_eq!(trailers, ["x-mine: 1"]);
        assert!(answer.ends_with("0\r\nx-sum: 3\r\n\r\n"), "{answer}");
    } else {
        assert!(request.trailers.is_empty(), "{:?}", request.trailers);
        assert!(answer.ends_with("0\r\n\r\n"), "{answer}");
    }
}

/// The head of a response, and each part of its body, arrive before the next part is sent.
fn stream(parties: &Parties, http: &Started) {
    let mut client = RawClient::new(&http.address);
    let host = host_port(&http.address);
    client.send(format!("GET /stream HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    assert!(client.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
    parties.origin.let_stream_go_on();
    client.read_until("first\r\n");
    parties.origin.let_stream_go_on();
    assert!(client.read_to_end().ends_with("last\r\n0\r\n\r\n"));
    let mut client = RawClient::new(&http.address);
    let head = "POST /duplex HTTP/1.1\r\nTransfer-Encoding: chunked";
    client.send(format!("{head}\r\nHost: {host}\r\n\r\n"));
    assert!(client.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
    for part in ["one", "two"] {
        client.send(format!("3\r\n{part}\r\n"));
        client.read_until(&format!("{part}\r\n"));
    }
    client.send("0\r\n\r\n");
    assert!(client.read_to_end().ends_with("0\r\n\r\n"));
    parties.origin.take();
}

/// A response that breaks off never looks complete, and one that is left stops at the origin. Other
/// requests are not affected.
fn break_off(parties: &Parties, http: &Started) {
    let host = host_port(&http.address);
    let mut client = RawClient::new(&http.address);
    client.send(format!("GET /cut HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    let cut = client.read_to_end();
    // The end of the stream may overtake what was sent before.
    let is_error = cut.starts_with("HTTP/1.1 502");
    assert!(is_error || !cut.ends_with("0\r\n\r\n"), "{cut}");
    let mut client = RawClient::new(&http.address);
    client.send(format!("GET /endless HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.read_until("again");
    drop(client);
    parties.origin.wait_until_left();
    assert_eq!(curl(&[&http.address]), "the page");
    parties.origin.take();
}

#[test]
fn requests_travel_over_an_ordinary_session() {
    let parties = Parties::new();
    let node = parties.up("", false);
    let http = parties.http(&node, &[]);
    use_origin(&parties, &http, true);
    stream(&parties, &http);
    break_off(&parties, &http);
    load_page(&parties, &http, 6);
    let rebound = curl(&["--include", "--header", "Host: other.test", &http.address]);
    assert!(rebound.starts_with("HTTP/1.1 421"), "{rebound}");
    assert!(parties.origin.take().is_empty());
}

/// One identity must not choose what another one sees, or who it is taken for.
#[test]
fn an_origin_learns_about_clients_from_the_node_only() {
    let parties = Parties::new();
    let fields = ["X-Forwarded-Host: evil.test", "X_Forwarded_User: root", "X-Real-IP: 192.0.2.1"];
    let sent: Vec<&str> = fields.iter().flat_map(|field| ["--header", field]).collect();
    let names =
        ["forwarded", "x-forwarded-user", "x-forwarded-host", "x_forwarded_user", "x-real-ip"];
    let alice = parties.client.identity();
    let named = format!("for=_{alice}");
    for (keys, seen) in [
        ("", [vec![], vec![], vec![], vec![], vec![]]),
        ("trusted_fields = ['X-Real-IP']", [vec![], vec![], vec![], vec![], vec!["192.0.2.1"]]),
        ("forwarded = true", [vec![named.as_str()], vec![alice.as_str()], vec![], vec![], vec![]]),
    ] {
        let node = parties.up_with(keys, "", false);
        let http = parties.http(&node, &[]);
        let url = format!("{}page", http.address);
        assert_eq!(curl(&[&sent[..], &[&url]].concat()), "the page", "{}", http.log());
        let requests = parties.origin.take();
        assert_eq!(names.map(|name| requests[0].values(name)), seen, "{keys}");
    }
}

#[test]
fn slow_local_clients_do_not_keep_others_from_the_origin() {
    let parties = Parties::new();
    let node = parties.up("allow = 'request-head=r'", false);
    let (_middlebox, via) = parties.middlebox(&node, "request-head=r");
    let http = parties.http(&node, &["--via", &via]);
    let host = host_port(&http.address);
    let head = format!("POST /sum HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n");
    // As many as there are sessions. They begin a body, and send no more.
    let mut slow: Vec<_> = (0..6).map(|_| RawClient::new(&http.address)).collect();
    slow.iter_mut().for_each(|client| client.send(format!("{head}1\r\na\r\n")));
    let ask = |_| {
        let address = http.address.clone();
        std::thread::spawn(move || curl(&[&address]))
    };
    let others: Vec<_> = (0..6).map(ask).collect();
    others.into_iter().for_each(|one| assert_eq!(one.join().unwrap(), "the page"));
    let ended = slow.iter_mut().any(|client| {
        client.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut answer = [0; 12];
        client.0.read_exact(&mut answer).is_ok_and(|()| answer == *b"HTTP/1.1 408")
    });
    assert!(ended, "no slow exchange was ended");

    // More than there are places, without a request.
    let silent: Vec<_> = (0..300).map(|_| RawClient::new(&http.address)).collect();
    assert_eq!(curl(&[&http.address]), "the page");
    drop(silent);
}

/// What a browser would send for a page of another site. `sites` asks a real one.
#[test]
fn pages_of_other_sites_change_nothing() {
    let parties = Parties::new();
    let node = parties.up("", false);
    let http = parties.http(&node, &[]);
    let own = format!("Origin: http://{}", host_port(&http.address));
    let (site, port) = host_port(&http.address).rsplit_once(':').unwrap();
    assert!(site.starts_with("web--lv") && site.ends_with(".localhost"), "{site}");
    for (field, status) in [
        ("Sec-Fetch-Site: cross-site", "403"),
        ("Sec-Fetch-Site: same-site", "403"),
        ("Origin: http://evil.test", "403"),
        ("Origin: null", "403"),
        ("Sec-Fetch-Site: same-origin", "200"),
        (own.as_str(), "200"),
        ("A: b", "200"),
    ] {
        let answer = curl(&["--include", "--header", field, "--data", "a=b", &http.address]);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{field}: {answer}");
        assert_eq!(parties.origin.take().len(), usize::from(status == "200"), "{field}");
    }
    let read = curl(&["--header", "Sec-Fetch-Site: cross-site", &http.address]);
    assert_eq!(read, "the page");
    // For programs that do not resolve such names.
    let plain = format!("http://127.0.0.1:{port}/");
    assert_eq!(curl(&[&plain]), "the page");
    assert!(http.log().contains(&plain), "{}", http.log());
}

#[test]
fn more_requests_than_streams_wait_for_their_turn() {
    let parties = Parties::new();
    std::fs::write(parties.node.path().join("config.toml"), "limits.streams = 2\n").unwrap();
    let node = parties.up("", false);
    let http = parties.http(&node, &[]);
    load_page(&parties, &http, 20);
}

/// As a browser loads a page, which opens six connections.
fn load_page(parties: &Parties, http: &Started, connections: usize) {
    let address = http.address.clone();
    let load = |_| {
        let address = address.clone();
        std::thread::spawn(move || {
            let mut client = RawClient::<TcpStream>::new(&address);
            for _ in 0..17 {
                let host = host_port(&address);
                client.send(format!("GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n"));
                assert!(client.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
                client.read_until("\r\n0\r\n\r\n");
            }
        })
    };
    let running: Vec<_> = (0..connections).map(load).collect();
    running.into_iter().for_each(|one| one.join().unwrap());
    assert_eq!(parties.origin.take().len(), 17 * connections);
}

#[test]
fn each_strategy_carries_the_same_requests_and_gives_middleboxes_no_more_than_was_granted() {
    let parties = Parties::new();
    let all = "request-head=rw,request-body=rw,response-head=rw,response-body=rw,trailers=rw";
    let node = parties.up(&format!("allow = '{all}'"), false);
    let cases: [(&str, &str, &[&str], bool); 4] = [
        ("one", "exchange=r", &[], false),
        ("four", "request-head=r,trailers=rw", &[], true),
        ("per-header", "user-agent=r,content-type=rw", &["--trailers"], true),
        ("per-header", "request-head=r", &[], false),
    ];
    for (strategy, grants, options, trailers) in cases {
        let (middlebox, via) = parties.middlebox(&node, grants);
        let options = [options, &["--strategy", strategy, "--via", &via]].concat();
        let http = parties.http(&node, &options);
        use_origin(&parties, &http, trailers);
        stream(&parties, &http);
        break_off(&parties, &http);
        eventually("the middlebox has logged the session", || middlebox.log().contains("holds"));
        if strategy == "per-header" {
            let seen = || middlebox.log();
            assert!(!seen().contains("user-agent"), "{}", seen());
        }
    }
}

/// A process, and the JSON objects that it prints.
struct WithEvents {
    child: Child,
    events: Receiver<Value>,
}

impl WithEvents {
    fn start(home: &Home, args: &[&str]) -> Self {
        let mut command = home.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        Self { child, events }
    }

    fn next(&self) -> Value {
        self.events.recv_timeout(STEP_TIMEOUT).unwrap()
    }
}

impl Drop for WithEvents {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn required_middleboxes_are_shown_and_used_only_if_they_are_accepted() {
    let parties = Parties::new();
    // A middlebox has to listen before its address can be configured.
    let address = crate::support::own_loopback() + ":5383";
    let node = parties
        .up(&format!("address = '{address}'\nallow = 'request-head=r,response-head=rw'"), true);
    let hop = parties.hop.identity();
    let target = format!("{}/web", node.at());
    let options = ["middlebox", "--listen", &address, "--next", &node.address()];
    let _middlebox = Started::start(&parties.hop, &options);
    let shown =
        parties.client.json(&format!("query {target}"))["services"][0]["middleboxes"][0].take();
    assert_eq!(shown["identity"], hop.as_str());
    assert_eq!(shown["address"], address.as_str());
    assert_eq!(
        (&shown["required"], &shown["allow"]),
        (&true.into(), &"request-head=r,response-head=rw".into())
    );
    // By a pinned name, at the middlebox's own address.
    parties.client.args(["peers", "add", "office", &hop]).ok();
    let via = "office:request-head=r,response-head=rw";
    let named = Started::start(&parties.client, &["http", "--via", via, &target]);
    assert_eq!(curl(&[&named.address]), "the page", "{}", named.log());
    drop(named);
    let text = parties.client.run(&format!("query {target}")).ok();
    let line =
        format!("office ({hop}@{address}) required, may see request-head=r,response-head=rw");
    assert!(text.contains(&line), "{text}");
    parties
        .client
        .run(&format!("request {target}"))
        .denied(&format!("requires the middlebox {hop}"));
    let refused = parties.client.run(&format!("http {target}"));
    assert!(refused.stderr.contains("--accept-via"), "{}", refused.stderr);
    refused.denied(&format!("{hop}@{address} may see request-head=r,response-head=rw"));
    let http = WithEvents::start(&parties.client, &["http", "--json", "--accept-via", &target]);
    let opened = http.next();
    assert_eq!((&opened["event"], &opened["session"]), (&"opened".into(), &1.into()));
    assert_eq!(opened["middleboxes"][0]["identity"], hop.as_str());
    let rights = serde_json::json!({ "request-head": "r", "response-head": "rw" });
    assert_eq!(opened["middleboxes"][0]["rights"], rights);
    let listening = http.next();
    assert_eq!(listening["event"], "listening");
    assert_eq!(curl(&[listening["address"].as_str().unwrap()]), "the page");
    node.kill();
    let ended = http.next();
    assert_eq!((&ended["event"], &ended["session"]), (&"ended".into(), &1.into()));
    assert!(ended["error"].is_string(), "{ended}");
}

#[test]
fn a_unix_socket_is_private_and_lost_sessions_are_reported_and_opened_again() {
    let parties = Parties::new();
    let node = parties.up("", false);
    let socket = parties.client.path().join("web.sock");
    let path = socket.to_str().unwrap();
    let target = format!("{}/web", node.at());
    // A socket that nothing listens at.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let http = WithEvents::start(&parties.client, &["http", "--json", "--unix", path, &target]);
    let opened = http.next();
    assert_eq!(
        (&opened["event"], &opened["middleboxes"]),
        (&"opened".into(), &Value::Array(Vec::new()))
    );
    assert_eq!(http.next()["address"], format!("unix:{path}"));
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let get = |host: &str| {
        let mut client = RawClient::unix(&socket);
        client.send(format!("GET /page HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        client.read_to_end()
    };
    assert!(get("localhost").contains("the page"));
    assert!(get("other.test").starts_with("HTTP/1.1 421"));
    // A second process must not take the socket.
    let second = parties.client.args(["http", "--unix", path, &target]);
    second.fails(120, "cannot listen at");
    assert!(get("localhost").contains("the page"));
    // A revocation ends the session, and the next request needs the right to another one.
    let sessions = parties.node.json("sessions");
    let id = sessions["sessions"][0]["session"].as_str().unwrap().to_owned();
    parties.node.run(&format!("revoke {id}")).ok();
    let ended = http.next();
    assert_eq!((&ended["event"], &ended["session"]), (&"ended".into(), &1.into()));
    assert!(ended["error"].is_string(), "{ended}");
    assert!(get("localhost").contains("the page"));
    assert_eq!(http.next()["session"], 2);
    node.kill();
    assert_eq!(http.next()["event"], "ended");
    assert!(get("localhost").starts_with("HTTP/1.1 502"));
    // An orderly end removes the socket.
    crate::support::signal(http.child.id(), "TERM");
    eventually("the socket is removed", || !socket.exists());
}

/// A request finds the new address of its node in the pins.
#[test]
fn a_node_that_moves_is_looked_up_again() {
    let parties = Parties::new();
    let node = parties.up("", false);
    let client = &parties.client;
    client.run(&format!("peers add web {}", node.at())).ok();
    let http = Started::start(client, &["http", "web/web"]);
    let page = format!("{}page", http.address);
    assert_eq!(curl(&[&page]), "the page");
    let before = node.address();
    node.kill();
    let moved = parties.up("", false);
    assert_ne!(moved.address(), before);
    client.run("peers forget web").ok();
    client.run(&format!("peers add web {}", moved.at())).ok();
    assert_eq!(curl(&[&page]), "the page");
}

//! Wireshark decrypts connections with the key log of a test build: both directions, before and
//! after a key update, and on a resumed connection. This checks the records against an independent
//! implementation.
//!
//! Capturing needs root or the capability CAP_NET_RAW.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{self, Home, eventually};
use levada_client::{Client, RequestSpec, Target};
use levada_core::Framing;
use levada_service::stdio::Message;

/// A running tshark that captures one port of loopback.
struct Capture {
    tshark: Child,
    file: PathBuf,
    port: String,
}

impl Capture {
    fn start(folder: &Path, address: &str) -> Self {
        let port = address.rsplit_once(':').unwrap().1.to_owned();
        let file = folder.join("captured.pcapng");
        let mut tshark = Command::new("tshark")
            .args(["-q", "-i", "lo", "-f", &format!("tcp port {port}"), "-w"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("tshark is not installed: apt-get install tshark");
        // It captures when a new connection appears in its file.
        eventually("tshark captures", || {
            if tshark.try_wait().unwrap().is_some() {
                let mut text = String::new();
                tshark.stderr.take().unwrap().read_to_string(&mut text).unwrap();
                panic!("tshark cannot capture; this test needs root or CAP_NET_RAW: {text}");
            }
            drop(std::net::TcpStream::connect(address).unwrap());
            std::fs::metadata(&file).is_ok_and(|file| file.len() > 1000)
        });
        Self { tshark, file, port }
    }

    /// The output of tshark about the captured packets, with the secrets in `keys`.
    fn read(&self, keys: &Path, args: &[&str]) -> String {
        let output = Command::new("tshark")
            .arg("-r")
            .arg(&self.file)
            .args(["-o", &format!("tls.keylog_file:{}", keys.display())])
            .args(["-d", &format!("tcp.port=={},tls", self.port)])
            .args(args)
            .output()
            .unwrap();
        // tshark may report an error, because the last packet of the growing file may be
        // incomplete.
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The TCP connections with a packet that `filter` selects, each with the port that sent it.
    fn connections(&self, keys: &Path, filter: &str) -> BTreeSet<(u32, String)> {
        let fields = ["-Y", filter, "-T", "fields", "-e", "tcp.stream", "-e", "tcp.srcport"];
        let text = self.read(keys, &fields);
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        lines.map(|(stream, port)| (stream.parse().unwrap(), port.to_owned())).collect()
    }

    /// The decrypted bytes of one connection: from the client, and from the node.
    fn decrypted(&self, keys: &Path, connection: u32) -> [Vec<u8>; 2] {
        let text = self.read(keys, &["-q", "-z", &format!("follow,tls,raw,{connection}")]);
        let mut directions = [Vec::new(), Vec::new()];
        for line in text.lines() {
            // Bytes from the node are indented.
            let (direction, line) = line.strip_prefix('\t').map_or((0, line), |line| (1, line));
            if line.len() % 2 == 0 && line.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                directions[direction].extend(unhex(line));
            }
        }
        directions
    }

    /// The connection with `text` in both directions.
    fn connection_with(&self, keys: &Path, text: &str) -> Option<u32> {
        let all = self.connections(keys, "tls.handshake.type == 2");
        let mut connections = all.into_iter().map(|(connection, _)| connection);
        connections.find(|&connection| {
            let directions = self.decrypted(keys, connection);
            directions.iter().all(|bytes| contains(bytes, text))
        })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // tshark ends its capture process on SIGINT, but not on SIGKILL.
        let process = self.tshark.id().to_string();
        let _ = Command::new("kill").args(["-s", "INT", &process]).status();
        let _ = self.tshark.wait();
    }
}

fn unhex(line: &str) -> Vec<u8> {
    let digits: Vec<u8> = line.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A node that logs its keys; killed when dropped.
struct Logging(Child);

impl Logging {
    fn up(home: &Home, keys: &Path) -> (Self, String) {
        let mut command = home.command([
            "up",
            "--listen",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--name",
            "well",
        ]);
        command.env("SSLKEYLOGFILE", keys).stdout(Stdio::null()).stderr(Stdio::null());
        let node = Self(command.spawn().unwrap());
        eventually("the node is up", || home.run("status --json").code == 0);
        let address = home.json("status")["listening"][0].as_str().unwrap().to_owned();
        (node, address)
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn wireshark_decrypts_a_session_of_the_command_line() {
    let home = Home::new();
    let node_keys = home.path().join("node.keys");
    let client_keys = home.path().join("client.keys");
    let (_node, address) = Logging::up(&home, &node_keys);
    let capture = Capture::start(home.path(), &address);

    let mut command = home.command(["run", &format!("{}@{address}/echo", home.identity())]);
    let input = home.path().join("input");
    std::fs::write(&input, "water from the well").unwrap();
    command.env("SSLKEYLOGFILE", &client_keys).stdin(std::fs::File::open(&input).unwrap());
    assert_eq!(support::Ran::from(command.output().unwrap()).ok(), "water from the well");

    for keys in [&node_keys, &client_keys] {
        eventually("tshark decrypts it", || {
            capture.connection_with(keys, "water from the well").is_some()
        });
    }
    // Without the keys nothing can be decrypted.
    let nothing = home.path().join("nothing.keys");
    std::fs::write(&nothing, "").unwrap();
    assert_eq!(capture.connection_with(&nothing, "water from the well"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn wireshark_decrypts_key_updates_and_resumption() {
    let home = Home::new();
    let keys = home.path().join("node.keys");
    let (_node, address) = Logging::up(&home, &keys);
    let capture = Capture::start(home.path(), &address);
    let client = Client::new(&levada_home::Home::at(home.path()).unwrap()).unwrap();
    let target = Target::typed(client.identity(), &address);

    for (n, words) in
        [["before the first update", "after the first update"], ["resumed before", "resumed after"]]
            .into_iter()
            .enumerate()
    {
        let connection = client.connection(&target, Framing::Auto).await.unwrap();
        assert_eq!(connection.resumed(), n == 1);
        let spec = RequestSpec { service: "echo".into(), ..RequestSpec::default() };
        let capability = client.request(&target, spec).await.unwrap();
        let mut running = client.connect(&capability).await.unwrap();
        for text in words {
            // The echo shows that both directions have used the old keys.
            running.stream.send(&Message::Data(text.as_bytes()).to_bytes()).await.unwrap();
            let back = running.stream.receive(1000).await.unwrap().unwrap();
            assert_eq!(Message::decode(&back).unwrap(), Message::Data(text.as_bytes()));
            running.connection.update_key();
        }
        // The data after the last update shows that the peer has processed it.
        running.stream.send(&Message::End.to_bytes()).await.unwrap();
        let exit = running.stream.receive(1000).await.unwrap().unwrap();
        assert_eq!(Message::decode(&exit).unwrap(), Message::Exit(0));
        running.stream.finish().await.unwrap();
        drop((running, connection));
        client.close();
    }

    let port = capture.port.clone();
    let read = tokio::task::spawn_blocking(move || {
        let found = |text| {
            eventually(text, || capture.connection_with(&keys, text).is_some());
            capture.connection_with(&keys, text).unwrap()
        };
        let first = found("before the first update");
        assert_eq!(found("after the first update"), first);
        let resumed = found("resumed before");
        assert_eq!(found("resumed after"), resumed);
        assert_ne!(first, resumed);
        // tshark saw the key updates of both sides, and a resumption by a ticket.
        let updates = capture.connections(&keys, "tls.handshake.type == 24");
        for connection in [first, resumed] {
            let sides = updates.iter().filter(|(stream, _)| *stream == connection);
            let (node, client): (Vec<_>, Vec<_>) = sides.partition(|(_, from)| *from == port);
            assert!(!node.is_empty() && !client.is_empty(), "{updates:?}");
        }
        let by_ticket = "tls.handshake.type == 2 && tls.handshake.extension.type == 41";
        let by_ticket = capture.connections(&keys, by_ticket);
        assert!(by_ticket.iter().any(|(stream, _)| *stream == resumed), "{by_ticket:?}");
        assert!(!by_ticket.iter().any(|(stream, _)| *stream == first), "{by_ticket:?}");
    });
    read.await.unwrap();
}

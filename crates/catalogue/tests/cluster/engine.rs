//! Three servers of NATS that form a cluster, with their files in a folder of their own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use levada_catalogue::store::cluster::Options;
use tempfile::TempDir;

/// The number of servers.
pub const SERVERS: usize = 3;
/// Below the ports that the kernel gives to connections.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 32_000;

/// A cluster, which ends with this value.
pub struct Engine {
    folder: TempDir,
    ports: Vec<u16>,
    servers: Vec<Option<Child>>,
}

impl Engine {
    /// Starts all servers. They elect a leader in some seconds.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ports = free_ports(2 * SERVERS);
        let mut engine = Self { folder, ports, servers: Vec::new() };
        for number in 0..SERVERS {
            engine.configure(number);
            engine.servers.push(None);
            engine.start_one(number);
        }
        engine
    }

    /// How a node uses it, for the catalogue `name`.
    pub fn options(&self, name: &str) -> Options {
        let servers = self.ports[..SERVERS].iter().map(|port| format!("nats://127.0.0.1:{port}"));
        // Elections take longer on a busy machine.
        Options {
            servers: servers.collect(),
            name: name.to_owned(),
            connect_timeout: LIMIT,
            write_timeout: LIMIT,
            ..Options::default()
        }
    }

    fn configure(&self, number: usize) {
        let (clients, routes) = self.ports.split_at(SERVERS);
        let all: Vec<_> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        let text = format!(
            "server_name: n{number}\nlisten: 127.0.0.1:{}\nmax_payload: 2MB\n\
             jetstream {{ store_dir: '{}', sync_interval: always }}\n\
             cluster {{ name: levada, listen: 127.0.0.1:{}, routes: [{}] }}\n",
            clients[number],
            self.folder.path().join(format!("data{number}")).display(),
            routes[number],
            all.join(", "),
        );
        fs::write(self.file(number, "conf"), text).unwrap();
    }

    fn file(&self, number: usize, end: &str) -> PathBuf {
        self.folder.path().join(format!("n{number}.{end}"))
    }

    /// Starts a server that does not run.
    pub fn start_one(&mut self, number: usize) {
        let file = self.file(number, "log");
        let log = fs::File::options().create(true).append(true).open(file).unwrap();
        let server = Command::new(program())
            .arg("-c")
            .arg(self.file(number, "conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("nats-server: go install github.com/nats-io/nats-server/v2@v2.15.2");
        self.servers[number] = Some(server);
    }

    /// Kills a server.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut server) = self.servers[number].take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|number| self.kill(number));
    }
}

/// The program: `LEVADA_NATS_SERVER`, or the one that `go install` makes.
fn program() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let installed = || home().join("go/bin/nats-server");
    std::env::var_os("LEVADA_NATS_SERVER").map_or_else(installed, PathBuf::from)
}

/// Ports that nothing listens on. Tests in other processes begin elsewhere.
fn free_ports(count: usize) -> Vec<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let range = LAST_PORT - FIRST_PORT;
    let first = (std::process::id().wrapping_mul(64) % u32::from(range)) as u16;
    let mut ports = Vec::new();
    while ports.len() < count {
        let port = FIRST_PORT + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % range;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            ports.push(port);
        }
    }
    ports
}

/// How long to wait for what another node does, or the engine.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits until `done`.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

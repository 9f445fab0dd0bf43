//! Servers of NATS, three that form a cluster or a single one, with their files in a folder of
//! their own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use levada_catalogue::store::cluster::Options;
use levada_lab::Node;
use tempfile::TempDir;

/// The servers of a cluster.
pub const SERVERS: usize = 3;
/// Below the ports that the kernel gives to connections.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 32_000;

/// An engine, which ends with this value.
pub struct Engine {
    folder: TempDir,
    setup: Setup,
    ports: Vec<u16>,
    servers: Vec<Option<Child>>,
}

/// How the servers are started.
pub struct Setup {
    /// How many there are.
    pub servers: usize,
    /// Added to the configuration of each.
    pub configuration: String,
    /// The host of each, and its address there; none if all are on this machine's loopback.
    pub hosts: Vec<(Node, IpAddr)>,
    /// Where the first server keeps its data, if not beside those of the others.
    pub first_data: Option<PathBuf>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { servers: SERVERS, configuration: String::new(), hosts: Vec::new(), first_data: None }
    }
}

impl Setup {
    /// A single server, which leads at once.
    pub fn single() -> Self {
        Self { servers: 1, ..Self::default() }
    }
}

impl Engine {
    /// Starts a cluster on loopback. The servers elect a leader in some seconds.
    pub fn start() -> Self {
        Self::start_as(Setup::default())
    }

    pub fn start_as(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ports = free_ports(2 * setup.servers);
        let servers = (0..setup.servers).map(|_| None).collect();
        let mut engine = Self { folder, setup, ports, servers };
        for number in 0..engine.servers.len() {
            engine.configure(number);
            engine.start_one(number);
        }
        engine
    }

    /// How a node uses it, for the catalogue `name`.
    pub fn options(&self, name: &str) -> Options {
        let count = self.servers.len();
        let url = |number| format!("nats://{}:{}", self.address(number), self.ports[number]);
        // Elections take longer on a busy machine.
        Options {
            servers: (0..count).map(url).collect(),
            name: name.to_owned(),
            replicas: count,
            connect_timeout: LIMIT,
            write_timeout: LIMIT,
            ..Options::default()
        }
    }

    fn address(&self, number: usize) -> IpAddr {
        self.setup.hosts.get(number).map_or(Ipv4Addr::LOCALHOST.into(), |(_, address)| *address)
    }

    fn configure(&self, number: usize) {
        let (clients, routes) = self.ports.split_at(self.servers.len());
        let address = self.address(number);
        let own = self.setup.first_data.as_ref().filter(|_| number == 0);
        let data = self.folder.path().join(format!("data{number}"));
        let mut text = format!(
            "server_name: n{number}\nlisten: '{address}:{}'\nmax_payload: 2MB\n\
             jetstream {{ store_dir: '{}', sync_interval: always, max_file_store: 100GB }}\n{}\n",
            clients[number],
            own.unwrap_or(&data).display(),
            self.setup.configuration,
        );
        if routes.len() > 1 {
            let route = |(number, port)| format!("nats://{}:{port}", self.address(number));
            let all: Vec<_> = routes.iter().enumerate().map(route).collect();
            text += &format!(
                "cluster {{ name: levada, listen: '{address}:{}', routes: [{}] }}\n",
                routes[number],
                all.join(", "),
            );
        }
        fs::write(self.file(number, "conf"), text).unwrap();
    }

    fn file(&self, number: usize, end: &str) -> PathBuf {
        self.folder.path().join(format!("n{number}.{end}"))
    }

    /// Starts a server that does not run.
    pub fn start_one(&mut self, number: usize) {
        let file = self.file(number, "log");
        let log = fs::File::options().create(true).append(true).open(file).unwrap();
        let mut command = Command::new(program());
        command.arg("-c").arg(self.file(number, "conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let server = match self.setup.hosts.get(number) {
            Some((host, _)) => host.run(|| command.spawn()).unwrap(),
            None => command.spawn(),
        };
        let server = server.expect("go install github.com/nats-io/nats-server/v2@v2.15.2");
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

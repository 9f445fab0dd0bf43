//! The engine: three servers of NATS on this host.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, ensure};
use async_nats::jetstream;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::binary;
use crate::program::{Side, free_address};
use crate::testbed::Testbed;

/// How many servers keep each change.
pub const SERVERS: usize = 3;
/// The stream of the changes, by the name that nodes give it.
const LOG: &str = "LEVADA_CATALOGUE_LOG";
/// The time limit for an election.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// The servers, which end with this value.
pub struct Engine {
    folder: TempDir,
    ports: Vec<u16>,
    servers: Vec<Option<Child>>,
    runtime: Runtime,
}

impl Engine {
    /// Starts the servers, and waits until they have a leader.
    pub fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let free = |_| anyhow::Ok(free_address(&Testbed::Loopback, Side::Far)?.port());
        let ports = (0..2 * SERVERS).map(free).collect::<anyhow::Result<Vec<_>>>()?;
        let mut engine = Self { folder, ports, servers: Vec::new(), runtime };
        for number in 0..SERVERS {
            engine.configure(number)?;
            engine.servers.push(None);
            engine.start_one(number)?;
        }
        engine.wait_until("the engine has a leader", |engine| engine.stream("XP_READY").is_ok())?;
        Ok(engine)
    }

    /// The lines of a node's configuration that name the servers.
    pub fn configuration(&self) -> String {
        format!("[catalogue]\nstore = {:?}\n", self.servers())
    }

    /// The URLs of the servers.
    pub fn servers(&self) -> Vec<String> {
        self.ports[..SERVERS].iter().map(|port| format!("nats://127.0.0.1:{port}")).collect()
    }

    /// Where a server listens.
    pub fn address(&self, number: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports[number]).into()
    }

    /// Its folder, for a look at the disk.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    fn configure(&self, number: usize) -> anyhow::Result<()> {
        let (clients, routes) = self.ports.split_at(SERVERS);
        // A client is not told of other servers than those that it is configured with.
        let all: Vec<_> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        let text = format!(
            "server_name: n{number}\nlisten: 127.0.0.1:{}\nmax_payload: 2MB\n\
             jetstream {{ store_dir: '{}', sync_interval: always }}\n\
             cluster {{ name: xp, listen: 127.0.0.1:{}, no_advertise: true, routes: [{}] }}\n",
            clients[number],
            self.folder.path().join(format!("data{number}")).display(),
            routes[number],
            all.join(", "),
        );
        Ok(fs::write(self.configuration_of(number), text)?)
    }

    fn configuration_of(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("n{number}.conf"))
    }

    /// Starts a server that does not run.
    pub fn start_one(&mut self, number: usize) -> anyhow::Result<()> {
        let log = self.folder.path().join(format!("n{number}.log"));
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(program()?);
        command.arg("-c").arg(self.configuration_of(number));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.servers[number] = Some(command.spawn().context("run nats-server")?);
        Ok(())
    }

    /// Kills a server.
    pub fn kill(&mut self, number: usize) -> anyhow::Result<()> {
        if let Some(mut server) = self.servers[number].take() {
            server.kill()?;
            server.wait()?;
        }
        Ok(())
    }

    /// The server that leads the log; `None` while there is none, or while another one is behind.
    pub fn leader(&self) -> Option<usize> {
        let servers = self.servers();
        let cluster = self.runtime.block_on(async {
            let client = async_nats::connect(servers).await.ok()?;
            let stream = jetstream::new(client).get_stream(LOG).await.ok()?;
            stream.cached_info().cluster.clone()
        })?;
        let current = cluster.replicas.iter().filter(|replica| replica.current).count();
        let leader = cluster.leader?.strip_prefix('n')?.parse().ok()?;
        (current == SERVERS - 1).then_some(leader)
    }

    /// Waits until the log has a leader and two current followers: its number.
    pub fn wait_for_leader(&self) -> anyhow::Result<usize> {
        self.wait_until("the log has a leader", |engine| engine.leader().is_some())?;
        self.leader().context("the leader has gone again")
    }

    /// Creates a stream with the settings of the log, for messages of the subjects `NAME.>`.
    pub fn stream(&self, name: &str) -> anyhow::Result<()> {
        let config = jetstream::stream::Config {
            name: name.to_owned(),
            subjects: vec![format!("{name}.>")],
            num_replicas: SERVERS,
            ..jetstream::stream::Config::default()
        };
        let servers = self.servers();
        self.runtime.block_on(async {
            let client = async_nats::connect(servers).await?;
            jetstream::new(client).get_or_create_stream(config).await?;
            Ok(())
        })
    }

    fn wait_until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) -> anyhow::Result<()> {
        let start = Instant::now();
        while !done(self) {
            ensure!(start.elapsed() < ELECTION_TIMEOUT, "{what}: not within a minute");
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for number in 0..self.servers.len() {
            // It may have ended.
            let _ = self.kill(number);
        }
    }
}

/// The program: `LEVADA_NATS_SERVER`, or one of PATH, or the one that `go install` makes.
pub fn program() -> anyhow::Result<PathBuf> {
    if let Some(file) = env::var_os("LEVADA_NATS_SERVER") {
        return Ok(file.into());
    }
    let home = PathBuf::from(env::var_os("HOME").unwrap_or_default());
    binary::find("nats-server", [home.join("go/bin")]).context(
        "nats-server is not installed: go install github.com/nats-io/nats-server/v2@v2.15.2, or name \
         it in LEVADA_NATS_SERVER",
    )
}

//! Servers and clients as Debian installs them, with `LEVADA_TEST_FULL` (`scripts/test --all`
//! installs them): each pair runs without the library, with it on both ends, and with it on either
//! end.

mod table;

use std::cell::Cell;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use levada_ring::records::Traffic;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::library::{Count, in_full, with_library};

/// How long a server may take to start or to end, and a client to finish.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The interval at which a server is asked to end again.
const SIGNAL_INTERVAL: Duration = Duration::from_secs(5);

/// A server, and the clients that use it one after the other.
struct Service {
    name: &'static str,
    /// Makes the files that the server needs.
    prepare: fn(&Testbed),
    server: fn(&Testbed) -> Command,
    /// Succeeds when the server is ready; without it, the server is ready when it accepts.
    ready: Option<fn(&Testbed) -> Command>,
    /// What asks the server to end.
    stop: Signal,
    clients: &'static [Client],
}

struct Client {
    command: fn(&Testbed) -> Command,
    /// Asserts what the client wrote.
    check: fn(&Testbed, &str),
    /// It exchanges so much that rings carry nearly all of it, if both ends have the library.
    is_long: bool,
}

/// The least part that rings carry of the bytes after the trigger of the upgrade, and of all bytes.
const LEAST: (f64, f64) = (0.99, 0.9);

/// Where a server runs: a folder, and an address of loopback that no other test has.
struct Testbed {
    folder: TempDir,
    host: String,
    port: u16,
    /// How many times as long as usual a client works.
    factor: Cell<usize>,
}

impl Testbed {
    fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(1);
        let folder = tempfile::tempdir().unwrap();
        // Servers may give up their privileges.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let [.., high, low] = std::process::id().to_be_bytes();
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        assert!(number < 255, "there are no more addresses in the block of this test");
        let host = format!("127.{}.{low}.{number}", high | 128);
        // Below the ports that the kernel gives to clients.
        let mut ports = 20_000..30_000;
        let port = ports.find(|port| TcpListener::bind((host.as_str(), *port)).is_ok()).unwrap();
        Self { folder, host, port, factor: Cell::new(1) }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn port(&self) -> String {
        self.port.to_string()
    }

    /// How often a client does what it usually does so many times.
    fn times(&self, usual: usize) -> String {
        (usual * self.factor.get()).to_string()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}:{}/{path}", self.host, self.port)
    }
}

/// A running server, which ends when it is dropped.
struct Server {
    child: Child,
    stop: Signal,
}

impl Server {
    fn start(service: &Service, place: &Testbed, fast: bool) -> Self {
        let log = File::create(place.path().join("server.log")).unwrap();
        let mut command = (service.server)(place);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        if fast {
            with_library(&mut command);
        }
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut server = Self { child, stop: service.stop };
        let start = Instant::now();
        while !is_ready(service, place) {
            let ended = server.child.try_wait().unwrap();
            assert!(
                ended.is_none() && start.elapsed() < TIMEOUT,
                "the server is not ready ({ended:?}): {}",
                fs::read_to_string(place.path().join("server.log")).unwrap()
            );
            thread::sleep(Duration::from_millis(50));
        }
        server
    }
}

fn is_ready(service: &Service, place: &Testbed) -> bool {
    match service.ready {
        Some(command) => run(command(place), place).0.success(),
        None => TcpStream::connect((place.host.as_str(), place.port)).is_ok(),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let start = Instant::now();
        // Once is not enough: Python discards a KeyboardInterrupt that is raised in a finaliser.
        while start.elapsed() < TIMEOUT {
            let _ = kill_process(pid, self.stop);
            if wait_within(&mut self.child, SIGNAL_INTERVAL).is_some() {
                return;
            }
        }
        let threads = threads_of(pid);
        let _ = self.child.kill();
        let _ = self.child.wait();
        assert!(thread::panicking(), "the server does not end; its threads wait in:\n{threads}");
    }
}

/// The functions of the kernel in which the threads of a process wait, with the system call of
/// each.
fn threads_of(pid: Pid) -> String {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let tasks = fs::read_dir(tasks).into_iter().flatten().flatten();
    tasks
        .map(|task| format!("{} {}\n", of_file(&task, "wchan"), of_file(&task, "syscall")))
        .collect()
}

fn of_file(task: &fs::DirEntry, file: &str) -> String {
    fs::read_to_string(task.path().join(file)).unwrap_or_default().trim().to_owned()
}

fn wait(child: &mut Child) -> Option<ExitStatus> {
    wait_within(child, TIMEOUT)
}

fn wait_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Runs a client to its end: how it ended, and its output with its errors.
fn run(mut command: Command, place: &Testbed) -> (ExitStatus, String) {
    let path = place.path().join("client.log");
    let log = File::create(&path).unwrap();
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let status = wait(&mut child);
    let output = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
    let Some(status) = status else {
        let _ = child.kill();
        let _ = child.wait();
        panic!("{command:?} does not end: {output}");
    };
    (status, output)
}

/// How often a client is tried. What a connection sends by TCP before it leaves that depends on
/// what else this machine does, not on how much the client sends in all: in each attempt it sends
/// three times as much as in the one before.
const ATTEMPTS: u32 = 4;

/// Runs a service with every choice of which end has the library.
fn try_service(service: &Service) {
    if !in_full() {
        eprintln!("skipped: needs LEVADA_TEST_FULL");
        return;
    }
    let place = Testbed::new();
    (service.prepare)(&place);
    for (server_is_fast, client_is_fast) in choices() {
        let ends = format!(
            "{}: server {}, client {}",
            service.name,
            if server_is_fast { "fast" } else { "plain" },
            if client_is_fast { "fast" } else { "plain" }
        );
        eprintln!("{ends}");
        let server = Server::start(service, &place, server_is_fast);
        for client in service.clients {
            let both = server_is_fast && client_is_fast;
            let failed = |attempt: u32| {
                place.factor.set(3_usize.pow(attempt));
                let failure = try_client(client, &place, client_is_fast, both).err()?;
                eprintln!("{ends}: attempt {attempt}: {failure}");
                Some(failure)
            };
            // A failure counts if it repeats: servers may still be at the end of the connection
            // before.
            let failures: Vec<String> = (0..ATTEMPTS).map_while(failed).collect();
            assert!(failures.len() < ATTEMPTS as usize, "{ends}: {}", failures.join("\n"));
        }
        drop(server);
    }
}

/// Runs a client once; why it failed.
fn try_client(client: &Client, place: &Testbed, is_fast: bool, both: bool) -> Result<(), String> {
    let mut command = (client.command)(place);
    command.stdin(Stdio::null());
    if is_fast {
        with_library(&mut command);
    }
    let line = format!("{command:?}");
    let count = (both && client.is_long).then(|| Count::begin(&mut command));
    let (status, output) = run(command, place);
    if !status.success() {
        return Err(format!("{line} {status}\n{output}"));
    }
    let check = || (client.check)(place, &output);
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    checked.map_err(|_| format!("the output of {line} is wrong\n{output}"))?;
    count.map_or(Ok(()), |count| check_share(&line, count.traffic()))
}

/// Whether rings have carried enough.
fn check_share(line: &str, traffic: Traffic) -> Result<(), String> {
    let of = |rest: u64| traffic.ring() as f64 / (traffic.ring() + rest).max(1) as f64;
    let late = of(traffic.tcp_late);
    let all = of(traffic.tcp());
    eprintln!("through rings: {late:.4} of the bytes after the trigger, {all:.4} of all: {line}");
    let enough = late >= LEAST.0 && all >= LEAST.1;
    enough.then_some(()).ok_or_else(|| format!("too little: {traffic:?}"))
}

/// Server and client. `LEVADA_PROGRAMS_PLAIN` tries the table itself.
fn choices() -> Vec<(bool, bool)> {
    let all = [(false, false), (true, true), (true, false), (false, true)];
    let plain = std::env::var_os("LEVADA_PROGRAMS_PLAIN").is_some();
    all[..if plain { 1 } else { all.len() }].to_vec()
}

//! `levada fast --direct`: connections are made without the kernel, `--stats` names those that
//! would have needed it, and a kill at any step leaves nothing behind.

use std::fs;

use serde_json::Value;

use super::{Monitor, Program, socket_of};
use crate::support::eventually;

/// Echoes on any number of connections, each in a thread, until its input ends.
const SERVER: &str = "
import os, socket, sys, threading
listener = socket.create_server(('127.0.0.1', 0), backlog=64)
print(listener.getsockname()[1], flush=True)
def echo(connection):
    try:
        while data := connection.recv(65536):
            connection.sendall(data)
    except OSError:
        pass
    connection.close()
def serve():
    while True:
        threading.Thread(target=echo, args=[listener.accept()[0]], daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
sys.stdin.read()
os._exit(0)
";

/// Functions of clients: `connect` returns a connection after one exchange, and `is_direct` says
/// whether the kernel knows it.
const CLIENT: &str = "
import os, signal, socket, sys, time
def is_direct(connection):
    number = str(os.fstat(connection.fileno()).st_ino)
    return all(line.split()[9] != number for line in open('/proc/net/tcp').readlines()[1:])
def exchange(connection):
    connection.sendall(b'x' * 1000)
    left = 1000
    while left > 0:
        data = connection.recv(left)
        if not data:
            raise ConnectionResetError
        left -= len(data)
def connect():
    connection = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    connection.settimeout(60)
    exchange(connection)
    return connection
def direct():
    end = time.monotonic() + 30
    while time.monotonic() < end:
        connection = connect()
        if is_direct(connection):
            return connection
        connection.close()
        time.sleep(0.001)
    raise SystemExit('no connection is direct')
def step(word):
    print(word, flush=True)
    sys.stdin.readline()
";

fn python(monitor: &Monitor, options: &[&str], script: &str, port: &str) -> (Program, String) {
    let options = [&["--direct"], options].concat();
    let script = [CLIENT, script].concat();
    monitor.program(&options, &["python3", "-c", &script, port])
}

fn server(monitor: &Monitor) -> (Program, String) {
    monitor.program(&["--direct"], &["python3", "-c", SERVER])
}

#[test]
fn programs_connect_without_the_kernel() {
    let monitor = Monitor::start();
    let (server, port) = server(&monitor);
    let file = monitor.home.path().join("stats.json");
    let to_file = format!("--stats={}", file.display());
    let script = "
direct().close()
found = 0
for number in range(100):
    connection = connect()
    found += is_direct(connection)
    connection.close()
print(found)
";
    let (client, found) = python(&monitor, &[&to_file], script, &port);
    let (code, errors) = client.end();
    assert_eq!(code, 0, "{errors}");
    // The kernel makes the first ones, and those that find a full queue.
    let found: u64 = found.parse().unwrap();
    assert!(found >= 50, "{found} of 100");
    let stats: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert!(stats["closed"]["upgraded"].as_u64().unwrap() >= found, "{stats}");
    assert!(stats["traffic"]["ring_out"].as_u64().unwrap() >= found * 1000, "{stats}");
    assert_eq!(server.end().0, 0);
}

#[test]
fn the_option_is_needed_at_both_ends() {
    let monitor = Monitor::start();
    let (server, port) = monitor.program(&[], &["python3", "-c", SERVER]);
    let script = "print(sum(is_direct(connect()) for number in range(20)))";
    let (client, found) = python(&monitor, &[], script, &port);
    assert_eq!((found.as_str(), client.end().0, server.end().0), ("0", 0, 0));
}

/// The number of the error.
const EOPNOTSUPP: &str = "95";

/// What cannot be carried by TCP fails, and the summary says why.
#[test]
fn stats_name_the_connections_that_would_have_needed_the_kernel() {
    let monitor = Monitor::start();
    let (server, port) = server(&monitor);
    let urgent = "
connection = direct()
try:
    connection.send(b'!', socket.MSG_OOB)
except OSError as error:
    print(error.errno, flush=True)
connection.close()
";
    let passed = "
connection = direct()
ends = socket.socketpair(socket.AF_UNIX)
try:
    socket.send_fds(ends[0], [b'x'], [connection.fileno()])
except OSError as error:
    print(error.errno, flush=True)
connection.close()
";
    for (script, reason) in [(urgent, "unsupported"), (passed, "handed-over")] {
        let file = monitor.home.path().join(format!("{reason}.json"));
        let to_file = format!("--stats={}", file.display());
        let (client, error) = python(&monitor, &[&to_file], script, &port);
        let (code, errors) = client.end();
        assert_eq!((error, code), (EOPNOTSUPP.to_owned(), 0), "{errors}");
        let stats: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(stats["closed"]["reasons"][reason], 1, "{stats}");
    }
    assert_eq!(server.end().0, 0);
}

/// Connections, and new ones of two processes that know each other, need no monitor.
#[test]
fn a_killed_monitor_ends_no_direct_connection() {
    let mut monitor = Monitor::start();
    let (server, port) = server(&monitor);
    let script = "
old = direct()
step('connected')
exchange(old)
new = direct()
exchange(new)
step('again')
exchange(old)
new.close()
old.close()
";
    let (mut client, line) = python(&monitor, &[], script, &port);
    assert_eq!(line, "connected");
    monitor.kill();
    client.go_on();
    assert_eq!(client.line(), "again");
    // The next monitor has no part in them, and serves new programs.
    monitor.restart();
    let (other, line) = python(&monitor, &[], "print(is_direct(connect()))", &port);
    assert_eq!((line.as_str(), other.end().0), ("False", 0));
    let (code, errors) = client.end();
    assert_eq!(code, 0, "{errors}");
    assert_eq!(server.end().0, 0);
}

/// A step at which a client is killed.
const STEPS: [&str; 4] = [
    // Its connection waits in the queue, perhaps.
    "socket.create_connection(('127.0.0.1', int(sys.argv[1])))",
    "exchange(connection)",
    "connection.sendall(b'x' * 100000)",
    "connection.close()",
];

#[test]
fn killed_clients_leave_nothing_behind() {
    let monitor = Monitor::start();
    let (server, port) = server(&monitor);
    for at in STEPS {
        let script = format!(
            "
connection = direct()
{at}
print('done', flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"
        );
        let (mut client, line) = python(&monitor, &[], &script, &port);
        assert_eq!(line, "done", "{at}");
        client.child.wait().unwrap();
        let (next, line) = python(&monitor, &[], "print(is_direct(direct()))", &port);
        assert_eq!((line.as_str(), next.end().0), ("True", 0), "after {at}");
    }
    eventually("the pools of dead clients are unmapped", || {
        maps_of(server.child.id(), "levada-pool") == 0
    });
    assert_eq!(server.end().0, 0);
    check_empty(&monitor);
}

#[test]
fn killed_servers_end_their_connections() {
    let monitor = Monitor::start();
    for waits in ["connection.recv(1)", "time.sleep(0.01)", "exchange(connection)"] {
        let (mut server, port) = server(&monitor);
        let script = format!(
            "
connection = direct()
print(connection.getpeername()[1], flush=True)
try:
    while connection.getpeername():
        if {waits} == b'':
            break
        connection.sendall(b'x')
except OSError:
    pass
try:
    connect()
except ConnectionRefusedError:
    step('refused')
"
        );
        let (mut client, line) = python(&monitor, &[], &script, &port);
        assert_eq!(line, port);
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        assert_eq!(client.line(), "refused", "{waits}");
        let pid = client.child.id();
        client.go_on();
        assert_eq!(client.end().0, 0, "{pid}: {waits}");
    }
    check_empty(&monitor);
}

/// A worker has a listener of its own. Its parent goes on.
#[test]
fn a_killed_worker_ends_its_connections() {
    let monitor = Monitor::start();
    let worker = "
import os, socket, sys, threading
ends = os.pipe()
if os.fork() == 0:
    listener = socket.create_server(('127.0.0.1', 0))
    os.write(ends[1], b'%d %d' % (listener.getsockname()[1], os.getpid()))
    while True:
        connection = listener.accept()[0]
        while data := connection.recv(65536):
            connection.sendall(data)
        connection.close()
print(os.read(ends[0], 100).decode(), flush=True)
os.wait()
print('worker has ended', flush=True)
sys.stdin.read()
";
    let (mut parent, line) = monitor.program(&["--direct"], &["python3", "-c", worker]);
    let (port, pid) = line.split_once(' ').unwrap();
    let script = "
connection = direct()
step('connected')
if connection.recv(1) == b'':
    step('ended')
try:
    connect()
except ConnectionRefusedError:
    print('refused')
";
    let (mut client, line) = python(&monitor, &[], script, port);
    assert_eq!(line, "connected");
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(parent.line(), "worker has ended");
    client.go_on();
    assert_eq!(client.line(), "ended");
    client.go_on();
    assert_eq!(client.line(), "refused");
    assert_eq!((client.end().0, parent.end().0), (0, 0));
    check_empty(&monitor);
}

/// The mappings of a process with this name.
fn maps_of(process: u32, name: &str) -> usize {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    maps.lines().filter(|line| line.contains(name)).count()
}

/// Without programs, the monitor has neither pools, ports nor descriptors of processes.
fn check_empty(monitor: &Monitor) {
    let folder = format!("/proc/{}/fd", monitor.child.id());
    let links = || {
        let entries = fs::read_dir(&folder).unwrap().flatten();
        let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.map(|link| link.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    eventually("the monitor has nothing of ended programs", || {
        let is_left =
            |link: &String| ["levada-pool", "[pidfd]"].iter().any(|name| link.contains(name));
        let sockets = links().iter().filter(|link| link.starts_with("socket:")).count();
        // 128 ports for each client.
        !links().iter().any(is_left) && sockets < 64
    });
    let socket = socket_of(&monitor.home);
    let mut files = fs::read_dir(socket.parent().unwrap()).unwrap().flatten();
    assert!(files.all(|file| file.file_name().to_string_lossy().starts_with("fast.sock")));
}

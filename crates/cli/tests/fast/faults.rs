//! What goes wrong under fast sockets: the monitor is killed, descriptors run out, a peer writes
//! anything into shared memory.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::{Monitor, Program, SERVER};
use crate::support::eventually;

/// Exchanges a thousand messages, and again after each line of its input.
const STEPS: &str = "
import socket, sys
connection = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
while True:
    for number in range(1000):
        sent = bytes([number % 256]) * 1000
        connection.sendall(sent)
        received = b''
        while len(received) < len(sent):
            received += connection.recv(65536)
        assert received == sent
    print('exchanged', flush=True)
    if not sys.stdin.readline():
        break
";

/// Echoes what comes on two connections, each in a thread of its own.
const TWO: &str = "
import socket, threading
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
def echo(connection):
    try:
        while data := connection.recv(65536):
            connection.sendall(data)
    except OSError:
        pass
    connection.close()
threads = []
for _ in range(2):
    threads.append(threading.Thread(target=echo, args=[listener.accept()[0]]))
    threads[-1].start()
for thread in threads:
    thread.join()
";

/// Exchanges messages on two connections at once, of which the first may go wrong in any way, and
/// the second in none.
const SCRIBBLED: &str = "
import os, socket, sys, threading
def connect():
    connection = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    connection.settimeout(60)
    return connection
def exchange(connection, number):
    sent = bytes([number % 256]) * 3000
    connection.sendall(sent)
    received = b''
    while len(received) < len(sent):
        data = connection.recv(65536)
        if not data:
            return 'ended'
        received += data
    return received == sent
def many(connection, count):
    return all(exchange(connection, number) is True for number in range(count))
first = connect()
assert many(first, 200)
print(os.getpid(), flush=True)
sys.stdin.readline()
second = connect()
assert many(second, 200)
stop = False
def wrong():
    first.settimeout(0.2)
    try:
        number = 0
        while not stop and exchange(first, number) != 'ended':
            number += 1
    except OSError:
        pass
    first.close()
thread = threading.Thread(target=wrong)
thread.start()
print('both', flush=True)
rounds = 0
while not stop:
    assert many(second, 100)
    rounds += 1
    stop = rounds >= 10 and not thread.is_alive() or rounds >= 300
thread.join()
second.close()
print('right', flush=True)
";

#[test]
fn established_connections_outlive_a_killed_monitor() {
    let mut monitor = Monitor::start();
    let (server, port) = monitor.program(&[], &["python3", "-c", SERVER]);
    let (mut client, line) = monitor.program(&[], &["python3", "-c", STEPS, &port]);
    assert_eq!(line, "exchanged");
    monitor.kill();
    for _ in 0..3 {
        client.go_on();
        assert_eq!(client.line(), "exchanged");
    }
    assert_eq!(client.end().0, 0);
    assert_eq!(server.end().0, 0);

    // Another one takes over, although the socket of the first is still there.
    monitor.restart();
    let (server, port) = monitor.program(&[], &["python3", "-c", SERVER]);
    let (client, _) = monitor.program(&["--stats"], &["python3", "-c", STEPS, &port]);
    let (code, errors) = client.end();
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("1 had a ring"), "{errors}");
    assert_eq!(server.end().0, 0);
}

/// New connections of programs that had a monitor stay on TCP when it is gone.
#[test]
fn programs_without_their_monitor_go_on_over_tcp() {
    let mut monitor = Monitor::start();
    let (server, port) = monitor.program(&[], &["python3", "-c", SERVER]);
    let waits = "import socket, sys\nprint('ready', flush=True)\nsys.stdin.readline()\n";
    let script = [waits, STEPS].concat();
    let (mut client, line) = monitor.program(&[], &["python3", "-c", &script, &port]);
    assert_eq!(line, "ready");
    monitor.kill();
    client.go_on();
    assert_eq!(client.line(), "exchanged");
    assert_eq!(client.end().0, 0);
    assert_eq!(server.end().0, 0);
}

#[test]
fn programs_with_few_descriptors_exchange_all_the_same() {
    let monitor = Monitor::start();
    let limited = |limit: u32, script: &str, port: &str| {
        let command = format!("ulimit -n {limit} && exec /usr/bin/python3 -c \"$0\" \"$1\"");
        let program = ["sh", "-c", &command, script, port];
        monitor.program(&[], &program)
    };
    // The script itself needs five. The library has none with fewer than 128.
    for limit in [5, 6, 20, 127, 128, 130, 135, 150] {
        let (server, port) = limited(limit, SERVER, "");
        let (client, line) = limited(limit, STEPS, &port);
        assert_eq!(line, "exchanged", "with {limit} descriptors");
        assert_eq!(client.end().0, 0, "with {limit} descriptors");
        assert_eq!(server.end().0, 0, "with {limit} descriptors");
    }
}

/// Numbers that look random, and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A word that a writer may put into the header of a segment: anything, or nearly what was
    /// there.
    fn word(&mut self, before: u64) -> u64 {
        match self.next() % 6 {
            0 => self.next(),
            1 => 0,
            2 => u64::MAX,
            3 => before.wrapping_add(1),
            4 => before.wrapping_sub(1),
            _ => before.wrapping_add(self.next() % (2 << 20)),
        }
    }
}

/// A server and a client whose first connection is on a ring, and the client's number.
fn on_a_ring(monitor: &Monitor) -> (Program, Program, String) {
    let (server, port) = monitor.program(&[], &["python3", "-c", TWO]);
    let (client, process) = monitor.program(&[], &["python3", "-c", SCRIBBLED, &port]);
    eventually("the first connection is on a ring", || {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
        maps.contains("/memfd:levada-ring")
    });
    (server, client, process)
}

/// Where a process has mapped its segment. It has one.
fn segment(process: &str) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let mut found = maps.lines().filter(|line| line.contains("/memfd:levada-ring"));
    let line = found.next().unwrap_or_else(|| panic!("no segment: {maps}"));
    assert!(found.next().is_none(), "{maps}");
    u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
}

/// The shared words of both directions, see `layout` of the crate `ring`.
const CONTROLS: [Range<u64>; 2] = [1024..1024 + 320, 2048..2048 + 320];

/// Writes into the header of a segment, as a hostile peer can, for some time.
fn scribble(process: &str, start: u64, numbers: &mut Numbers) {
    let path = format!("/proc/{process}/mem");
    let memory = File::options().read(true).write(true).open(path).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(150) {
        let words = &CONTROLS[(numbers.next() % 2) as usize];
        let at = start + words.start + numbers.next() % (words.end - words.start) / 8 * 8;
        let mut word = [0; 8];
        // The process may have closed the connection, and unmapped the segment.
        if memory.read_exact_at(&mut word, at).is_err() {
            return;
        }
        let word = numbers.word(u64::from_le_bytes(word));
        let _ = memory.write_all_at(&word.to_le_bytes(), at);
        std::thread::sleep(Duration::from_micros(300));
    }
}

#[test]
fn a_hostile_segment_harms_its_own_connection_only() {
    let monitor = Monitor::start();
    for seed in 1..=4_u64 {
        let (server, mut client, process) = on_a_ring(&monitor);
        let start = segment(&process);
        client.go_on();
        assert_eq!(client.line(), "both");
        scribble(&process, start, &mut Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        assert_eq!(client.line(), "right", "seed {seed}");
        // Neither has ended by a signal.
        assert_eq!(client.end().0, 0, "seed {seed}");
        assert_eq!(server.end().0, 0, "seed {seed}");
    }
}

/// A server and a client with addresses that another namespace has, too. They exchange the letter
/// that they are given.
const SAME_ADDRESSES: &str = "
import os, socket, sys
letter = sys.argv[1].encode()
listener = socket.create_server(('127.0.0.1', 4000))
child = os.fork()
if child == 0:
    connection = listener.accept()[0]
    listener.close()
    while data := connection.recv(65536):
        assert data == letter * len(data), data
        connection.sendall(data)
    os._exit(0)
listener.close()
connection = socket.create_connection(('127.0.0.1', 4000), source_address=('127.0.0.1', 4001))
print('connected', flush=True)
sys.stdin.readline()
for _ in range(3000):
    connection.sendall(letter * 1000)
    left = 1000
    while left > 0:
        data = connection.recv(left)
        assert data and data == letter * len(data), data
        left -= len(data)
connection.close()
assert os.waitpid(child, 0)[1] == 0
";

#[test]
fn the_same_addresses_in_two_namespaces_are_two_connections() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let monitor = Monitor::start();
    let start = |letter: &str| {
        let script = "ip link set lo up && exec python3 -c \"$0\" \"$1\"";
        let program = ["unshare", "--net", "sh", "-c", script, SAME_ADDRESSES, letter];
        monitor.program(&["--stats"], &program)
    };
    let mut both = ["a", "b"].map(start);
    for (program, line) in &mut both {
        assert_eq!(line, "connected");
        program.go_on();
    }
    for (program, _) in both {
        let (code, errors) = program.end();
        assert_eq!(code, 0, "{errors}");
        assert!(errors.contains("bytes through rings: 9"), "{errors}");
    }
}

/// Asks a monitor for all processes, as any program can that reaches its socket.
const ASKS: &str = "
import socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.settimeout(10)
try:
    connection.connect(sys.argv[1])
    connection.send(bytes([5]) + bytes(23))
    answered = connection.recv(24)
except OSError:
    answered = b''
print('answered' if answered else 'refused')
";

#[test]
fn another_user_reaches_neither_the_monitor_nor_a_segment() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let monitor = Monitor::start();
    let socket = super::socket_of(&monitor.home);
    let ask = |user: &str| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", "--"]);
        command.args(["/usr/bin/python3", "-c", ASKS]).arg(&socket).current_dir("/");
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    assert_eq!(ask("0"), "answered");
    assert_eq!(ask("65534"), "refused");
    // Nor if it could open the folder.
    let mut folder = socket.parent();
    while let Some(path) = folder.filter(|path| path.starts_with(std::env::temp_dir())) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        folder = path.parent().filter(|path| *path != std::env::temp_dir());
    }
    fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    assert_eq!(ask("0"), "answered");
    assert_eq!(ask("65534"), "refused");

    // Programs would not trust it so.
    let own = socket.parent().unwrap();
    fs::set_permissions(own, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();

    // A segment has no name, and the memory of a process is closed to others.
    let (server, mut client, process) = on_a_ring(&monitor);
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--", "sh", "-c"]);
    let look =
        "cat /proc/$0/maps || ls /proc/$0/map_files || ls /proc/$0/fd || head -c1 /proc/$0/mem";
    let looked = command.args([look, &process]).output().unwrap();
    assert!(!looked.status.success() && looked.stdout.is_empty(), "{looked:?}");
    client.go_on();
    assert_eq!((client.line(), client.line()), ("both".into(), "right".into()));
    assert_eq!(client.end().0, 0);
    assert_eq!(server.end().0, 0);
}

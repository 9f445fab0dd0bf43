//! Fast sockets where they cannot be had: another user has the monitor's folder, or files may not
//! be long.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Monitor, library};
use crate::support::Home;

/// Exchanges messages between two threads, and prints how many.
const EXCHANGES: &str = "
import socket, threading
listener = socket.create_server(('127.0.0.1', 0))
def serve():
    connection = listener.accept()[0]
    while data := connection.recv(65536):
        connection.sendall(data)
thread = threading.Thread(target=serve)
thread.start()
connection = socket.create_connection(listener.getsockname())
for number in range(300):
    connection.sendall(b'water')
    assert connection.recv(65536) == b'water'
connection.close()
thread.join()
print('exchanged', flush=True)
";

/// Another user listens at a path, and prints each message that it receives.
const SQUATTER: &str = "
import os, socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
os.setgid(65534)
os.setuid(65534)
listener.listen()
print('listening', flush=True)
while True:
    connection = listener.accept()[0]
    data, descriptors, _, _ = socket.recv_fds(connection, 1000, 10)
    print('received', len(data), len(descriptors), flush=True)
";

struct Squatter(Child);

impl Squatter {
    fn start(socket: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", SQUATTER]).arg(socket).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "listening\n");
        Self(child)
    }

    /// What it has received, in full.
    fn end(mut self) -> String {
        self.0.kill().unwrap();
        let mut received = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut received).unwrap();
        self.0.wait().unwrap();
        received.lines().filter(|line| *line != "received 0 0").collect()
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can act as another user");
    }
    is_root
}

/// A folder, which another user owns or not.
fn folder(home: &Home, owner: u32) -> std::path::PathBuf {
    let folder = home.path().join("squatted");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    chown(&folder, Some(owner), Some(owner)).unwrap();
    folder.join("fast.sock")
}

#[test]
fn a_folder_of_another_user_means_tcp_and_one_line() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let socket = folder(&home, 65534);
    let squatter = Squatter::start(&socket);
    for options in [&["fast", "--"][..], &["fast", "--stats", "--"]] {
        let mut command = home.command([options, &["python3", "-c", EXCHANGES]].concat());
        command.env("LEVADA_FAST_SOCKET", &socket).env("LEVADA_FAST_LIBRARY", library());
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"exchanged\n", "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains("stay on TCP") && errors.contains("another user"), "{errors}");
    }
    assert_eq!(squatter.end(), "");
}

/// The command has checked the folder, and another user has it now.
#[test]
fn the_library_sends_nothing_to_another_user() {
    if !is_root() {
        return;
    }
    for owner in [65534, 0] {
        let home = Home::new();
        let socket = folder(&home, owner);
        let squatter = Squatter::start(&socket);
        let mut command = Command::new("python3");
        command.args(["-c", EXCHANGES]).env("LD_PRELOAD", library());
        let output = command.env("LEVADA_FAST_SOCKET", &socket).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"exchanged\n", "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains("another user"), "{errors}");
        assert_eq!(squatter.end(), "");
    }
}

#[test]
fn a_limit_of_the_length_of_files_means_tcp() {
    for kilobytes in [0, 100, 2000] {
        let home = Home::new();
        let monitor = home.path().join("run/fast.sock");
        let line = format!("ulimit -f {kilobytes}; exec \"$0\" fast -- python3 -c \"$1\"");
        let mut command = home.command(["fast"]);
        let levada = command.get_program().to_owned();
        command = Command::new("bash");
        command.args(["-c", &line]).arg(levada).arg(EXCHANGES);
        command.env("LEVADA_FAST_SOCKET", &monitor).env("LEVADA_FAST_LIBRARY", library());
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kilobytes}: {} {errors}", output.status);
        assert_eq!(output.stdout, b"exchanged\n", "{kilobytes}: {errors}");
    }
    // A monitor without the limit changes nothing for the program.
    let monitor = Monitor::start();
    let line = "ulimit -f 2000; exec python3 -c \"$0\"";
    let ran = monitor.run(&["fast", "--", "bash", "-c", line, EXCHANGES]);
    assert_eq!(ran.ok(), "exchanged");
}

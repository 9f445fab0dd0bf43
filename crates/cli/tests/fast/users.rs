//! Fast sockets of an ordinary user, whose processes connect to the monitor when they first need
//! it. Processes of root connect before they change their user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{Monitor, Program, library};
use crate::support::{Home, Ran, eventually};

/// Exchanges messages with itself until its input has a line or ends.
const EXCHANGE: &str = "
import os, select, socket, sys, threading
def exchange():
    listener = socket.create_server(('127.0.0.1', 0))
    print('%s:%d' % listener.getsockname(), flush=True)
    client = socket.socket()
    client.connect(listener.getsockname())
    server = listener.accept()[0]
    def echo():
        while data := server.recv(100):
            server.sendall(data)
    thread = threading.Thread(target=echo)
    thread.start()
    while not select.select([0], [], [], 0.01)[0]:
        for number in range(100):
            client.sendall(b'water')
            assert client.recv(100) == b'water'
    client.close()
    thread.join()
    server.close()
";

/// Exchanges messages, and then again in a forked child, on a new connection.
const FORKS: &str = "
exchange()
assert os.read(0, 1) == b'\\n'
child = os.fork()
if child == 0:
    exchange()
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";

/// Gives up its user before it has a socket, as some daemons do.
const DROPS: &str = "
os.setgid(65534)
os.setuid(65534)
exchange()
";

/// An ordinary user: the one of this test, or another one if that is root.
struct User {
    home: Home,
    levada: PathBuf,
    monitor: Option<Child>,
}

impl User {
    fn new() -> Self {
        let home = Home::new();
        let place = |file: &std::path::Path| {
            let copy = home.path().join(file.file_name().unwrap());
            // The user may not reach the folder of the build.
            if fs::hard_link(file, &copy).is_err() {
                // Not by this process, whose forks would have the copy open for writing (ETXTBSY).
                assert!(Command::new("cp").arg(file).arg(&copy).status().unwrap().success());
            }
            copy
        };
        place(library());
        let levada = place(std::path::Path::new(env!("CARGO_BIN_EXE_levada")));
        if rustix::process::geteuid().is_root() {
            chown(home.path(), Some(65534), Some(65534)).unwrap();
        }
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut user = Self { home, levada, monitor: None };
        user.monitor = Some(user.command(&["monitor"]).stderr(Stdio::null()).spawn().unwrap());
        eventually("the monitor listens", || user.home.path().join("run/fast.sock").exists());
        user
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.levada);
        command.args(args).current_dir(self.home.path());
        command.env("LEVADA_HOME", self.home.path());
        command.env("LEVADA_FAST_SOCKET", self.home.path().join("run/fast.sock"));
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        command
    }

    fn top(&self) -> Value {
        let shown = Ran::from(self.command(&["fast", "top", "--json"]).output().unwrap()).ok();
        serde_json::from_str(&shown).unwrap()
    }
}

/// Returns true if a connection with this address is on a ring.
fn has_ring(top: &Value, address: &str) -> bool {
    let processes = top["processes"].as_array().unwrap();
    let mut open = processes.iter().flat_map(|process| process["connections"].as_array().unwrap());
    open.any(|connection| connection["mode"] == "ring" && connection["local"] == address)
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(mut monitor) = self.monitor.take() {
            let _ = monitor.kill();
            let _ = monitor.wait();
        }
    }
}

#[test]
fn forked_children_of_an_ordinary_user_have_fast_sockets() {
    let user = User::new();
    let program = [EXCHANGE, FORKS].concat();
    let mut command = user.command(&["fast", "--", "python3", "-c", &program]);
    let (mut program, address) = Program::start(&mut command);
    eventually("the parent is on a ring", || has_ring(&user.top(), &address));
    program.go_on();
    let address = program.line();
    eventually("the child is on a ring", || has_ring(&user.top(), &address));
    let (code, errors) = program.end();
    assert_eq!((code, errors.as_str()), (0, ""));
}

#[test]
fn a_process_that_gives_up_its_user_has_fast_sockets() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give up its user");
        return;
    }
    let monitor = Monitor::start();
    let program = [EXCHANGE, DROPS].concat();
    let (program, address) = monitor.program(&[], &["python3", "-c", &program]);
    eventually("it is on a ring", || has_ring(&monitor.top(), &address));
    let (code, errors) = program.end();
    assert_eq!((code, errors.as_str()), (0, ""));
}

//! `levada fast`, with real programs: what it shows of their connections, and how it ends.

mod direct;
mod faults;
mod places;
mod users;
mod wrapper;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::{Home, Ran, eventually};

/// Echoes what comes on one connection, and ends with it.
const SERVER: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
connection = listener.accept()[0]
while data := connection.recv(65536):
    connection.sendall(data)
";

/// Exchanges messages until its input ends, a thousand at a time, and prints a line after the first
/// thousand. Then it says how many bytes it has sent.
const CLIENT: &str = "
import select, socket, sys
connection = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
total = 0
while total == 0 or not select.select([sys.stdin], [], [], 0.01)[0]:
    for number in range(1000):
        sent = bytes([number % 256]) * 1000
        connection.sendall(sent)
        received = b''
        while len(received) < len(sent):
            received += connection.recv(65536)
        assert received == sent
    if total == 0:
        print('exchanged', flush=True)
    total += 1_000_000
print('sent', total, file=sys.stderr)
";

/// The library, beside the binary. It is built first, if cargo has not done so.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_levada")).parent().unwrap();
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        build.args(["build", "--quiet", "--locked", "--package", "levada-preload", "--lib"]);
        if let Some(profile) = ["release", "dist"].into_iter().find(|name| folder.ends_with(name)) {
            build.args(["--profile", profile]);
        }
        build.arg("--target-dir").arg(folder.parent().unwrap());
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        folder.join("liblevada_preload.so")
    })
}

/// A monitor of its own, which ends when this is dropped.
struct Monitor {
    home: Home,
    child: Child,
}

impl Monitor {
    fn start() -> Self {
        let home = Home::new();
        Self { child: Self::listening(&home), home }
    }

    /// Kills it.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again.
    fn restart(&mut self) {
        self.child = Self::listening(&self.home);
    }

    fn listening(home: &Home) -> Child {
        let mut command = home.command(["monitor"]);
        command.env("LEVADA_FAST_SOCKET", socket_of(home)).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("listening at "), "{line}");
        child
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        command.env("LEVADA_FAST_SOCKET", socket_of(&self.home));
        command.env("LEVADA_FAST_LIBRARY", library());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// `levada fast` with options and a program, and the first line that it prints.
    fn program(&self, options: &[&str], program: &[&str]) -> (Program, String) {
        Program::start(&mut self.command(&[&["fast"], options, &["--"], program].concat()))
    }

    fn top(&self) -> Value {
        serde_json::from_str(&self.run(&["fast", "top", "--json"]).ok()).unwrap()
    }
}

fn socket_of(home: &Home) -> PathBuf {
    home.path().join("run/fast.sock")
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts it, and reads the first line that it prints.
    fn start(command: &mut Command) -> (Self, String) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take();
        let mut program = Self { child, input, output };
        let line = program.line();
        (program, line)
    }

    /// The next line that it prints; empty at its end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Sends it an empty line.
    fn go_on(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Ends its input, and waits for its end: its exit code, and its errors.
    fn end(mut self) -> (i32, String) {
        drop(self.input.take());
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap().code().unwrap(), errors)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn programs_exchange_over_shared_memory_and_show_it() {
    let monitor = Monitor::start();
    let file = monitor.home.path().join("stats.json");
    let to_file = format!("--stats={}", file.display());
    let (server, port) = monitor.program(&[&to_file], &["python3", "-c", SERVER]);
    let (client, line) = monitor.program(&["--stats"], &["python3", "-c", CLIENT, &port]);
    assert_eq!(line, "exchanged");

    let address = format!("127.0.0.1:{port}");
    eventually("both ends are on a ring", || {
        let top = monitor.top();
        let processes = top["processes"].as_array().unwrap();
        let open = processes.iter().flat_map(|process| process["connections"].as_array().unwrap());
        let rings: Vec<&Value> = open.filter(|connection| connection["mode"] == "ring").collect();
        let named = |end: &str| rings.iter().any(|connection| connection[end] == *address);
        rings.len() == 2 && named("local") && named("remote")
    });
    let table = monitor.run(&["fast", "top"]).ok();
    assert!(table.contains(&address) && table.contains("ring"), "{table}");

    let (code, errors) = client.end();
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("bytes through rings: "), "{errors}");
    let sent = errors.lines().find_map(|line| line.strip_prefix("sent ")).unwrap();
    let sent: u64 = sent.parse().unwrap();
    let (code, errors) = server.end();
    assert_eq!((code, errors.as_str()), (0, ""));
    let stats: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(stats["closed"]["upgraded"], 1, "{stats}");
    let carried: u64 = ["ring_in", "ring_out", "tcp_in", "tcp_out"]
        .map(|name| stats["traffic"][name].as_u64().unwrap())
        .iter()
        .sum();
    assert_eq!(carried, 2 * sent, "{stats}");
    assert!(stats["ring_share"].as_f64().unwrap() > 0.0, "{stats}");
    eventually("nothing is shown of ended programs", || {
        monitor.top()["processes"].as_array().unwrap().is_empty()
    });
}

#[test]
fn a_connection_to_a_program_that_is_not_fast_stays_on_tcp_and_says_why() {
    let monitor = Monitor::start();
    let mut server =
        Command::new("python3").args(["-c", SERVER]).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let program = ["python3", "-c", CLIENT, port.trim()];
    let (client, line) = monitor.program(&["--stats"], &program);
    assert_eq!(line, "exchanged");
    let (code, errors) = client.end();
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("0.0 % of all"), "{errors}");
    server.wait().unwrap();
}

#[test]
fn the_exit_code_is_that_of_the_program() {
    let monitor = Monitor::start();
    for options in [&["fast", "--"][..], &["fast", "--stats", "--"]] {
        let run = |program: &[&str]| monitor.run(&[options, program].concat());
        assert_eq!(run(&["sh", "-c", "exit 7"]).code, 7);
        assert_eq!(run(&["printf", "%s", "as it is"]).stdout, "as it is");
        run(&["/no/such/program"]).fails(120, "/no/such/program");
    }
    let killed = monitor.run(&["fast", "--stats", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(killed.code, 128 + 15, "{}", killed.stderr);
    monitor.run(&["fast"]).fails(2, "PROGRAM");
}

/// Runs a command on a terminal of seven lines until it has drawn its screen twice, then presses
/// Ctrl-C, and prints what was drawn.
const TERMINAL: &str = "
import fcntl, os, pty, struct, sys, termios
process, terminal = pty.fork()
if process == 0:
    os.execv(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 7, 200, 0, 0))
drawn = b''
while drawn.count(b'\\x1b[H\\x1b[J') < 3:
    drawn += os.read(terminal, 65536)
os.write(terminal, b'\\x03')
try:
    while more := os.read(terminal, 65536):
        drawn += more
except OSError:
    pass
sys.stdout.buffer.write(drawn)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
";

#[test]
fn top_on_a_terminal_is_drawn_again_until_ctrl_c() {
    let monitor = Monitor::start();
    let (server, port) = monitor.program(&[], &["python3", "-c", SERVER]);
    let (client, line) = monitor.program(&[], &["python3", "-c", CLIENT, &port]);
    assert_eq!(line, "exchanged");
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL, env!("CARGO_BIN_EXE_levada"), "fast", "top"]);
    command.env("LEVADA_FAST_SOCKET", socket_of(&monitor.home)).stdin(Stdio::null());
    let drawn = Ran::from(command.output().unwrap()).ok();
    // The last screen was not drawn to its end.
    let screen = drawn.rsplit("\u{1b}[H\u{1b}[J").nth(1).unwrap();
    // The listening socket and one of the two ends have room on the screen.
    assert!(
        screen.contains(&format!("127.0.0.1:{port}")) && screen.contains("and 1 more"),
        "{drawn}"
    );
    assert_eq!((client.end().0, server.end().0), (0, 0));
}

/// A program whose input is more than what `levada fast` is started with reads all of it.
#[test]
fn standard_streams_are_those_of_the_program() {
    let monitor = Monitor::start();
    let mut command = monitor.command(&["fast", "--stats", "--", "cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let sent = vec![b'w'; 1_000_000];
    let bytes = sent.clone();
    let writer = std::thread::spawn(move || input.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success() && output.stdout == sent);
}

//! Programs that use io_uring, for which the kernel would wait for bytes that are in a ring: their
//! connections stay on TCP.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use levada_monitor::Client;
use levada_ring::records::{Mode, Reason};

use crate::library::{monitor, with_library};

/// Connects to itself, exchanges messages, and prints a line. With `before`, it sets up io_uring
/// first. After each line of its input it exchanges again; the line `set up` makes it set up
/// io_uring before that.
const PROGRAM: &str = r"
import ctypes, socket, sys
def set_up():
    parameters = ctypes.create_string_buffer(120)
    assert ctypes.CDLL(None).syscall(425, 4, parameters) >= 0
if sys.argv[1] == 'before':
    set_up()
with socket.create_server(('127.0.0.1', 0)) as listener:
    one = socket.create_connection(listener.getsockname())
    other = listener.accept()[0]
while True:
    for _ in range(50):
        for (sender, receiver) in ((one, other), (other, one)):
            sender.sendall(b'water')
            assert receiver.recv(5, socket.MSG_WAITALL) == b'water'
    print('exchanged', flush=True)
    if sys.argv[1] == 'inherited':
        while True:
            one.recv(1)
    line = sys.stdin.readline()
    if not line:
        break
    if line == 'set up\n':
        set_up()
";

/// A program that runs, and is killed when this is dropped.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(how: &str, input: Stdio) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM, how]).stdin(input).stdout(Stdio::piped());
        with_library(&mut command);
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, output };
        program.exchanged();
        program
    }

    fn exchanged(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "exchanged\n");
    }

    fn again(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.exchanged();
    }

    /// What carries the bytes of its two ends, and why.
    fn modes(&self) -> Vec<(Mode, Reason)> {
        let processes = Client::connect(monitor()).unwrap().list(0).unwrap();
        let own = processes.into_iter().filter(|process| process.pid == self.child.id());
        let open = own.flat_map(|process| process.records.unwrap().connections);
        open.map(|connection| (connection.mode, connection.reason)).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An io_uring of this process. `None` if the kernel does not permit it.
fn ring() -> Option<OwnedFd> {
    let mut parameters = [0_u64; 15];
    // SAFETY: the parameters have the length that the kernel expects, 120 bytes.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) };
    // SAFETY: a new descriptor, which nothing else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The time limit for the monitor to pair the two ends of a connection.
const PAIRING_TIMEOUT: Duration = Duration::from_secs(30);
const UNSUPPORTED: (Mode, Reason) = (Mode::Kernel, Reason::Unsupported);

#[test]
fn connections_of_programs_with_io_uring_stay_on_tcp() {
    let Some(ring) = ring() else {
        eprintln!("skipped: the kernel does not permit io_uring");
        return;
    };
    let before = Program::start("before", Stdio::piped());
    // Neither end is ever offered, so that the monitor may not know the process.
    assert!(before.modes().iter().all(|mode| *mode == UNSUPPORTED), "{:?}", before.modes());

    // A descriptor that the library has not seen made.
    let inherited = Program::start("inherited", Stdio::from(ring));
    assert!(inherited.modes().iter().all(|mode| *mode == UNSUPPORTED));

    let mut after = Program::start("after", Stdio::piped());
    // On a busy machine the monitor answers after the first messages.
    let limit = Instant::now() + PAIRING_TIMEOUT;
    while !after.modes().iter().all(|(mode, _)| *mode == Mode::Ring) {
        assert!(Instant::now() < limit, "{:?}", after.modes());
        after.again("");
    }
    assert_eq!(after.modes().len(), 2);
    after.again("set up");
    after.again("");
    assert_eq!(after.modes(), [UNSUPPORTED; 2]);
}

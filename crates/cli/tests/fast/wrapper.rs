//! `levada fast --stats`: the program gets the signals of this command, and ends with it.

use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::Monitor;
use crate::support::eventually;

/// Prints the number of each signal that it receives.
const RECEIVER: &str = "
import os, signal
def note(number, frame):
    print(number, flush=True)
for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, note)
print(os.getpid(), flush=True)
while True:
    signal.pause()
";

/// The state of a process, as in proc(5).
fn state(process: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[test]
fn all_signals_are_passed_on() {
    let monitor = Monitor::start();
    let (mut program, line) = monitor.program(&["--stats"], &["python3", "-c", RECEIVER]);
    let pid: i32 = line.parse().unwrap();
    let wrapper = program.child.id().cast_signed();
    for name in ["HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "WINCH", "URG", "RTMIN+3", "TERM"] {
        let send = format!("kill -s {name} {wrapper}; kill -l {name}");
        let sent = Command::new("bash").args(["-c", &send]).output().unwrap();
        let number = String::from_utf8(sent.stdout).unwrap();
        assert_eq!(program.line(), number.trim(), "{name}");
    }
    let own = Pid::from_raw(wrapper).unwrap();
    kill_process(own, Signal::TSTP).unwrap();
    assert_eq!(program.line(), Signal::TSTP.as_raw().to_string());
    eventually("the command stops, too", || state(wrapper) == Some('T'));
    kill_process(own, Signal::CONT).unwrap();
    assert_eq!(program.line(), Signal::CONT.as_raw().to_string());
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    eventually("the program ends with the command", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
}

/// Starts a program on a terminal, presses Ctrl-C once it is ready, and prints what it has printed.
const TERMINAL: &str = "
import os, pty, sys
process, terminal = pty.fork()
if process == 0:
    os.execv(sys.argv[1], sys.argv[1:])
shown = b''
while b'ready' not in shown:
    shown += os.read(terminal, 65536)
os.write(terminal, b'\\x03')
try:
    while more := os.read(terminal, 65536):
        shown += more
except OSError:
    pass
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
";

/// Counts interrupts for a moment after the first one.
const COUNTER: &str = "
import signal, time
count = 0
def note(number, frame):
    global count
    count += 1
signal.signal(signal.SIGINT, note)
print('ready', flush=True)
while count == 0:
    time.sleep(0.01)
time.sleep(0.3)
print('interrupts:', count)
";

#[test]
fn a_signal_of_the_terminal_arrives_once() {
    let monitor = Monitor::start();
    let mut command = monitor.command(&["fast", "--stats", "--", "python3", "-c", COUNTER]);
    let levada = command.get_program().to_owned();
    let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let environment: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    command = Command::new("python3");
    command.args(["-c", TERMINAL]).arg(levada).args(words).envs(environment);
    let output = command.output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("interrupts: 1"), "{shown}");
    assert!(output.status.success(), "{shown}");
}

//! A process of a run, and its control socket.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::library;

/// How long a process may take to start or to end.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A process that steps name.
pub struct Process {
    pub pid: u32,
    control: BufReader<UnixStream>,
    /// Its own child of the run; a child of another process has none.
    child: Option<Child>,
    /// Its control socket was closed: the process has ended.
    ended: bool,
}

/// What a process answered.
pub enum Answer {
    Line(String),
    /// The process ended.
    Ended,
    /// Nothing within the time of a step.
    Late,
}

/// Starts the program as a process of a run.
pub fn spawn(name: &str, folder: &Path, prepare: impl FnOnce(&mut Command)) -> Child {
    let mut command = Command::new(library::program());
    command.arg(name).arg(folder).env_remove("LD_PRELOAD");
    let errors = File::create(folder.join(format!("{name}.stderr"))).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    prepare(&mut command);
    command.spawn().unwrap()
}

/// Accepts the control socket of a process, which names itself. `None` if no process came.
pub fn accept(listener: &UnixListener) -> Option<(String, Process)> {
    let start = Instant::now();
    let stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("the control socket does not accept: {error}"),
        }
        if start.elapsed() > TIMEOUT {
            return None;
        }
        thread::sleep(Duration::from_micros(200));
    };
    stream.set_nonblocking(false).unwrap();
    let mut process =
        Process { pid: 0, control: BufReader::new(stream), child: None, ended: false };
    let Answer::Line(line) = process.answer(TIMEOUT) else { return None };
    let (name, pid) = line.split_once(' ').unwrap();
    process.pid = pid.parse().unwrap();
    Some((name.to_owned(), process))
}

impl Process {
    pub fn owns(&mut self, child: Child) {
        self.child = Some(child);
    }

    pub fn send(&mut self, line: &str) {
        // A process that has ended shows in its answer.
        let _ = self.control.get_mut().write_all(format!("{line}\n").as_bytes());
    }

    pub fn answer(&mut self, timeout: Duration) -> Answer {
        self.control.get_ref().set_read_timeout(Some(timeout)).unwrap();
        let mut line = String::new();
        match self.control.read_line(&mut line) {
            Ok(length) if length > 0 => Answer::Line(line.trim_end().to_owned()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(line.is_empty(), "half an answer: {line}");
                Answer::Late
            }
            _ => {
                self.ended = true;
                Answer::Ended
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid.cast_signed()).unwrap();
        // The process may have ended.
        let _ = kill_process(pid, signal);
    }

    /// Waits, for a bounded time, until the main thread sleeps.
    pub fn wait_asleep(&self) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
            // The state follows the name in parentheses.
            match stat.rsplit(") ").next().and_then(|rest| rest.chars().next()) {
                Some('R') => thread::sleep(Duration::from_micros(100)),
                _ => return,
            }
        }
    }

    /// How a process of the run itself ended, or that it does not.
    pub fn wait(&mut self) -> String {
        let start = Instant::now();
        let Some(child) = &mut self.child else {
            while !self.ended && start.elapsed() < TIMEOUT {
                self.answer(TIMEOUT);
            }
            return if self.ended { "ended" } else { "does not end" }.to_owned();
        };
        while start.elapsed() < TIMEOUT {
            if let Some(status) = child.try_wait().unwrap() {
                return describe(status);
            }
            thread::sleep(Duration::from_micros(200));
        }
        "does not end".to_owned()
    }

    /// Closes the control socket, at which the process ends by itself.
    pub fn close(&mut self) {
        let _ = self.control.get_ref().shutdown(Shutdown::Write);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        match &mut self.child {
            Some(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            // A child of a process, in a call that blocks.
            None if !self.ended => self.signal(Signal::KILL),
            None => {}
        }
    }
}

fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("ended with {}", status.code().unwrap_or(-1)),
    }
}

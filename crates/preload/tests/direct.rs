//! Connections that the kernel does not know (`LEVADA_FAST_DIRECT=1`), between real processes.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::library::{compiled, with_library};

/// How a program runs.
#[derive(Clone, Copy, PartialEq)]
enum Sockets {
    Plain,
    Fast,
    Direct,
}

/// A program of these tests, which ends with the test.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(program: &PathBuf, arguments: &[&str], sockets: Sockets) -> Self {
        let mut command = Command::new("timeout");
        command.arg("60").arg(program).args(arguments).stdout(Stdio::piped());
        if sockets != Sockets::Plain {
            with_library(&mut command);
        }
        if sockets == Sockets::Direct {
            command.env("LEVADA_FAST_DIRECT", "1");
        }
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits for its end; returns the rest of its output.
    fn end(mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connections of one client and one server; returns how many the kernel does not know.
fn direct_of(way: &str, count: usize, server: Sockets, client: Sockets) -> usize {
    let program = compiled("probes/direct.c", &[]);
    let number = count.to_string();
    let mut running = Running::start(&program, &["server", way, &number], server);
    let port = running.line();
    let output = Running::start(&program, &["client", way, &number, &port], client).end();
    running.end();
    output.split_once(' ').unwrap().0.parse().unwrap()
}

#[test]
fn connections_are_made_without_the_kernel() {
    for way in ["blocking", "nonblocking", "select", "level", "edge"] {
        let direct = direct_of(way, 30, Sockets::Direct, Sockets::Direct);
        // The kernel makes the first ones: until the server has accepted one, and its client has
        // asked for its queue.
        assert!(direct >= 20, "{way}: {direct} of 30");
    }
}

#[test]
fn without_the_option_at_both_ends_the_kernel_makes_all() {
    for (server, client) in [
        (Sockets::Fast, Sockets::Direct),
        (Sockets::Direct, Sockets::Fast),
        (Sockets::Plain, Sockets::Direct),
        (Sockets::Direct, Sockets::Plain),
    ] {
        assert_eq!(direct_of("blocking", 5, server, client), 0);
    }
}

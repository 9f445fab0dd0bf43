//! The machines on which the terminals of a page are.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// The machines on which the terminals of a page are.
pub trait Machines {
    /// Starts a shell of a terminal, without input.
    fn start(&self, terminal: &str, script: &str, output: Stdio, errors: Stdio) -> Child;

    /// Returns true if a program listens on this port of the loopback of the terminal's machine.
    fn listens(&self, terminal: &str, port: u16) -> bool;
}

/// This machine: all terminals are in one new folder.
pub struct OneMachine(TempDir);

impl OneMachine {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Machines for OneMachine {
    fn start(&self, _terminal: &str, script: &str, output: Stdio, errors: Stdio) -> Child {
        let program = Path::new(env!("CARGO_BIN_EXE_levada")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(self.0.path());
        shell.env("PATH", path).env("NO_COLOR", "1").env_remove("LEVADA_HOME");
        shell.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().unwrap()
    }

    fn listens(&self, _terminal: &str, port: u16) -> bool {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    }
}

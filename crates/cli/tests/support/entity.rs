//! Entities that answer capability requests: by a policy, or by a person at a terminal.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use pty_process::blocking::{Command, Pty};

use super::{Home, Ran, eventually, exit_code};

/// `levada approve` with a policy; killed when dropped.
pub struct Approver {
    child: Child,
    log: PathBuf,
}

impl Approver {
    /// Registers at `place` and decides by the rules in `policy`; returns when it is registered.
    pub fn start(home: &Home, place: &str, policy: &str) -> Self {
        let approver = Self::spawn(home, place, policy);
        eventually("the entity is registered", || approver.log().contains("Registered"));
        approver
    }

    /// As [`Self::start`], without waiting for the registration.
    pub fn spawn(home: &Home, place: &str, policy: &str) -> Self {
        let rules = home.path().join("rules.toml");
        let log = home.path().join("approve.log");
        std::fs::write(&rules, policy).unwrap();
        let rules = rules.to_str().unwrap();
        let mut command = home.command(["approve", "--at", place, "--policy", rules]);
        let child = command.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn();
        Self { child: child.unwrap(), log }
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it ends by itself: its exit code.
    pub fn wait(mut self) -> i32 {
        exit_code(&mut self.child)
    }
}

impl Drop for Approver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `levada approve` on a terminal, operated by the test; killed when dropped.
pub struct Person {
    child: Child,
    terminal: Arc<Pty>,
    seen: Arc<Mutex<String>>,
}

impl Person {
    /// Registers at `place`, with further arguments of `approve`; returns when it is registered.
    pub fn start(home: &Home, place: &str, words: &[&str]) -> Self {
        let (terminal, inside) = pty_process::blocking::open().unwrap();
        terminal.resize(pty_process::Size::new(50, 200)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_levada"))
            .args(["approve", "--at", place])
            .args(words)
            .env("LEVADA_HOME", home.path())
            .env("NO_COLOR", "1")
            .spawn(inside)
            .unwrap();
        let terminal = Arc::new(terminal);
        let seen = Arc::new(Mutex::new(String::new()));
        let screen = terminal.clone();
        let shown = seen.clone();
        // Reading fails, and the thread ends, when the process has ended.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = (&*screen).read(&mut buffer) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        let person = Self { child, terminal, seen };
        person.sees("Registered");
        person
    }

    /// Everything that was shown so far.
    pub fn screen(&self) -> String {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until `text` is shown.
    #[track_caller]
    pub fn sees(&self, text: &str) {
        eventually(text, || self.screen().contains(text));
    }

    /// Types a line.
    pub fn types(&self, line: &str) {
        (&*self.terminal).write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// `kill -9`, and it is gone when this returns.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `levada` with these arguments; [`ended`] waits for its end.
pub fn begin<S: AsRef<OsStr>>(home: &Home, args: impl IntoIterator<Item = S>) -> Child {
    let mut command = home.command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a command that was begun has ended.
pub fn ended(child: Child) -> Ran {
    child.wait_with_output().unwrap().into()
}

/// Waits until `count` of these commands have ended, and takes them out.
pub fn take_ended(children: &mut Vec<Child>, count: usize) -> Vec<Child> {
    let mut taken = Vec::new();
    let is_done = |child: &mut Child| child.try_wait().unwrap().is_some();
    eventually("some have ended", || {
        while let Some(done) = children.iter_mut().position(is_done) {
            taken.push(children.remove(done));
        }
        taken.len() == count
    });
    taken
}

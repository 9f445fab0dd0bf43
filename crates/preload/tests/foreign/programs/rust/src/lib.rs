//! The parts that the echo programs share.

use std::fs;

use sha2::{Digest, Sha256};

/// The arguments of an echo program.
pub enum Role {
    /// `server HOST PORT`
    Server(String),
    /// `client HOST PORT FILE BYTES CONNECTIONS`
    Client(Job),
}

/// The work of a client.
#[derive(Clone)]
pub struct Job {
    pub address: String,
    pub pattern: &'static [u8],
    pub bytes: usize,
    pub connections: usize,
}

/// Reads the arguments of the program.
pub fn role() -> Role {
    let arguments: Vec<String> = std::env::args().collect();
    let address = format!("{}:{}", arguments[2], arguments[3]);
    if arguments[1] == "server" {
        return Role::Server(address);
    }
    Role::Client(Job {
        address,
        pattern: fs::read(&arguments[4]).unwrap().leak(),
        bytes: arguments[5].parse().unwrap(),
        connections: arguments[6].parse().unwrap(),
    })
}

impl Job {
    /// The bytes to send from position `at` on, at most `limit`.
    pub fn chunk(&self, at: usize, limit: usize) -> &'static [u8] {
        let start = at % self.pattern.len();
        let rest = &self.pattern[start..];
        &rest[..rest.len().min(limit).min(self.bytes - at)]
    }
}

/// The size of the next part of a stream.
pub fn part(at: usize) -> usize {
    (at * 7919) % 65_536 + 1
}

/// The digest of the received bytes.
#[derive(Default)]
pub struct Received {
    pub bytes: usize,
    hash: Sha256,
}

impl Received {
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.hash.update(bytes);
    }

    /// The line of a connection.
    pub fn line(self, connection: usize) -> String {
        let digest = self.hash.finalize();
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{connection} {} {hex}", self.bytes)
    }
}

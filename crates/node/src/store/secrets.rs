//! The hashes of the secrets of all invitations and tickets, in memory: a secret that this node has
//! not given out is a guess, which is known and counted before anything waits for the disk.

use std::collections::HashSet;

use levada_core::Digest;
use rusqlite::Connection;

/// The hashes. An invitation and a ticket with one secret have different ones.
#[derive(Default)]
pub(super) struct Secrets(HashSet<Digest>);

impl Secrets {
    pub fn load(connection: &Connection) -> rusqlite::Result<Self> {
        connection
            .prepare("SELECT hash FROM invitation UNION ALL SELECT hash FROM ticket")?
            .query_map([], |row| row.get("hash"))?
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub fn contains(&self, hash: &Digest) -> bool {
        self.0.contains(hash)
    }

    pub fn insert(&mut self, hash: Digest) {
        self.0.insert(hash);
    }
}

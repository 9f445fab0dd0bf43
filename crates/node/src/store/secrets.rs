//! The hashes of the secrets of all invitations and tickets, in memory: a secret that this node has not given out is a guess,
//! which is known and counted before anything waits for the disk.

use std::collections::HashSet;
use std::sync::PoisonError;

use levada_core::Digest;
use rusqlite::Connection;

use super::Store;

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
}

impl Store {
    /// Returns true if this node has made an invitation or a ticket whose secret has this hash, which may be used, revoked or
    /// expired since.
    pub fn knows_secret(&self, hash: &Digest) -> bool {
        self.secrets.read().unwrap_or_else(PoisonError::into_inner).0.contains(hash)
    }

    pub(super) fn add_secret(&self, hash: Digest) {
        self.secrets.write().unwrap_or_else(PoisonError::into_inner).0.insert(hash);
    }
}

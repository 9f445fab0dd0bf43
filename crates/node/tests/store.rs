//! The store: sessions, starts, rights, tickets, time and the file.

mod access;
mod file;
mod groups;
mod lists;
mod retention;
mod rights;
mod sessions;
mod starts;
mod tickets;
mod time;

use std::path::PathBuf;

use levada_core::{Framing, Identity, Random, SystemRandom};
use levada_node::store::{NewSession, Permission, StartError, Store};
use tempfile::TempDir;

use super::support::{LATER, NOW, id, identity, link, start_by};

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("state").join("node.db")
    }

    fn open(&self) -> Store {
        Store::open(&self.path()).unwrap()
    }

    /// A connection without the checks of the store, which must be closed.
    fn open_raw(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}

/// Creates session `byte`, whose first link has the id `byte` and names the identity `byte`.
fn create(store: &Store, byte: u8) {
    create_for(store, byte, identity(200));
}

/// As [`create`], requested by `requester`.
fn create_for(store: &Store, byte: u8, requester: Identity) {
    let root = [byte; 32];
    let new = NewSession { requester, root: &root, ..new_session(byte) };
    store.create_session(&new, NOW).unwrap();
}

/// The session of [`create`], with another root.
fn new_session(byte: u8) -> NewSession<'static> {
    NewSession {
        id: id(byte),
        root: &[0; 32],
        service: "echo",
        framing: Framing::Block(512),
        requester: identity(200),
        holder: identity(byte),
        link: &[0; 90],
        link_id: link(byte),
        expires: LATER,
        about: "",
        permission: Permission::Given,
    }
}

/// Starts session `byte` by its first link.
fn start(store: &Store, byte: u8, uses: u32) -> Result<(), StartError> {
    start_by(store, &id(byte), &[(link(byte), uses)], &identity(byte), NOW)
}

/// Adds `identity` to the allow-list, by an invitation.
fn allow(store: &Store, identity: &Identity, service: Option<&str>) {
    let mut hash = [0; 32];
    SystemRandom.fill(&mut hash).unwrap();
    store.add_invitation(&hash, service, None, LATER, NOW).unwrap();
    store.redeem(&hash, identity, NOW).unwrap();
}

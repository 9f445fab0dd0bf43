//! When a connection is worth an offer, by what is known of its listener: see [`History`].

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use levada_ring::History;
use levada_ring::records::Record;

use crate::connection::Connection;
use crate::latest::Latest;
use crate::settings;

/// The user's history, once the monitor has sent it.
static HISTORY: Latest<History> = Latest::new();

/// The exchange in which a connection is offered before there is a history: one that ends sooner
/// costs no system call.
const FIRST: u32 = 4;

/// No connection is offered later.
pub const LAST: u32 = 128;

/// The monitor has sent the history.
pub fn learn(file: &OwnedFd) {
    if let Ok(history) = History::open(file) {
        HISTORY.set(history);
    }
}

/// Returns true once there is a history: connections note their addresses for it.
pub fn is_known() -> bool {
    HISTORY.get().is_some()
}

/// The exchange in which a connection is offered before there is a history.
pub fn first() -> u32 {
    settings::offer_at().unwrap_or(FIRST)
}

/// The exchange in which a connection, whose addresses are noted, is to be offered.
pub fn offer_at(connection: &Connection) -> u32 {
    let by_history = || HISTORY.get().map(|history| history.offer_at(listener(connection)));
    settings::offer_at().or_else(by_history).unwrap_or(FIRST).clamp(2, LAST)
}

/// A connection has ended whose addresses are noted.
pub fn note(connection: &Connection) {
    if let Some(history) = HISTORY.get() {
        history.note(listener(connection), connection.exchanges());
    }
}

/// The address at which the connection was accepted.
fn listener(connection: &Connection) -> SocketAddr {
    let record = connection.record();
    match connection.was_accepted.load(Ordering::Relaxed) {
        0 => Record::address(&record.remote),
        _ => Record::address(&record.local),
    }
}

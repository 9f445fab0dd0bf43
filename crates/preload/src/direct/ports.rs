//! The ports of this process's connections as a client. No two of them have the same one, although
//! those to different listeners could.

use levada_ring::SEGMENTS;

use crate::lock::Guarded;

struct Ports {
    is_used: [bool; SEGMENTS],
    last: u8,
}

static PORTS: Guarded<Ports> = Guarded::new(Ports { is_used: [false; SEGMENTS], last: 0 });

/// A port that no connection has, by its number among those that are bound for this process, and
/// that was not used for longest. `None` if there is none.
pub fn take() -> Option<u8> {
    PORTS.with(Ports::take)?
}

/// No connection has this port.
pub fn give_back(port: u8) {
    PORTS.with(|ports| ports.is_used[usize::from(port) % SEGMENTS] = false);
}

/// See [`Guarded`].
pub fn before_fork() {
    PORTS.before_fork(|_| ());
}

/// In parent and child.
pub fn after_fork() {
    PORTS.after_fork();
}

/// See [`in_child`](super::in_child).
pub fn in_child() {
    PORTS.with(|ports| ports.is_used.fill(false));
}

impl Ports {
    fn take(&mut self) -> Option<u8> {
        for _ in 0..SEGMENTS {
            self.last = (self.last + 1) % SEGMENTS as u8;
            if !std::mem::replace(&mut self.is_used[usize::from(self.last)], true) {
                return Some(self.last);
            }
        }
        None
    }
}

//! The sockets of direct connections that are closed, for the next calls of socket(2).
//!
//! To make a TCP socket and to close it takes about ten times as long as to duplicate a descriptor.
//! The socket of a connection that the kernel never knew is as new when the program closes it. Some
//! are kept, and socket(2) returns a duplicate of one, which no other connection has at that time.
//! The kernel learns nothing of such a socket: before it would, the descriptor gets another one, see
//! [`claim`].

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use levada_ring::records::RECORDS;
use libc::c_int;

use super::{answers, is_direct, is_on, stock};
use crate::lock::Guarded;
use crate::table::{self, Entry};
use crate::{lifecycle, private, process, real, seccomp, tcp, tcp_only};

/// A socket that is kept.
struct Spare {
    /// The library's own descriptor of it, also while the program has a duplicate.
    home: AtomicI32,
    /// A [`State`]; changed under [`LOCK`].
    state: AtomicU8,
    /// AF_INET or AF_INET6.
    domain: AtomicI32,
    namespace: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// There is none.
    Empty = 0,
    /// No connection has it.
    Free = 1,
    /// A connection has it.
    Used = 2,
}

/// Sockets that are kept at most.
const COUNT: usize = 64;
/// One is kept at most for as many descriptors that the process may have.
const SHARE: u64 = 32;

static ALL: [Spare; COUNT] = [const { Spare::new() }; COUNT];
static LOCK: Guarded<()> = Guarded::new(());
/// Those that no connection has.
static FREE: AtomicUsize = AtomicUsize::new(0);
/// Set once a socket that is kept may be of another network namespace than a new one.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// For each connection, the place of its socket in [`ALL`], plus 1; or one of these.
static PLACES: [AtomicU8; RECORDS] = [const { AtomicU8::new(NEW) }; RECORDS];
/// The program has made its socket, and the kernel knows nothing else of it.
const NEW: u8 = 0;
/// The kernel has been told something of its socket.
const CHANGED: u8 = u8::MAX;

/// A socket as socket(2) makes it: a duplicate of one that was kept. `None` if the kernel has to
/// make it.
pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> Option<c_int> {
    let flags = kind & !libc::SOCK_STREAM;
    let is_usual = flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) == 0
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if FREE.load(Ordering::Relaxed) == 0 || !is_usual || !may_be_kept() {
        return None;
    }
    let (place, fd) = LOCK.with(|()| take(domain, flags & libc::SOCK_CLOEXEC != 0))??;
    lifecycle::is_new(fd);
    let begun = lifecycle::begin(fd, flags & libc::SOCK_NONBLOCK != 0, false);
    let Some((number, connection)) = begun else {
        // SAFETY: the descriptor was made above.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        give_back(place, true);
        return None;
    };
    connection.shares_socket.store(1, Ordering::Relaxed);
    connection.domain.store(domain.unsigned_abs(), Ordering::Relaxed);
    PLACES[number as usize].store(place as u8 + 1, Ordering::Relaxed);
    table::insert(fd, number);
    Some(fd)
}

fn may_be_kept() -> bool {
    is_on()
        && process::owns_tables()
        && !tcp_only::is_on()
        && !seccomp::is_sealed()
        && !IS_OVER.load(Ordering::Relaxed)
}

/// The place of a socket, and a duplicate of it with the lowest free number.
fn take(domain: c_int, is_closed_on_exec: bool) -> Option<(usize, c_int)> {
    let is_it = |spare: &Spare| {
        spare.state() == State::Free && spare.domain.load(Ordering::Relaxed) == domain
    };
    let place = ALL.iter().position(is_it)?;
    let command = if is_closed_on_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    // SAFETY: the command takes a number.
    let duplicate =
        |socket: BorrowedFd<'_>| unsafe { real::fcntl64(socket.as_raw_fd(), command, 0) };
    let fd = private::with(&ALL[place].home, duplicate)?;
    if fd < 0 {
        // The numbers of all are the program's.
        ALL.iter().filter(|spare| spare.state() == State::Free).for_each(Spare::end);
        return None;
    }
    if fd <= libc::STDERR_FILENO {
        // Libc reads and writes these by calls of its own.
        // SAFETY: the descriptor was made above.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        return None;
    }
    ALL[place].set(State::Used);
    Some((place, fd))
}

/// The last descriptor of a connection in this process is about to be closed: its socket may be
/// kept.
pub fn closing(entry: Entry) {
    if seccomp::is_sealed() {
        return;
    }
    let connection = entry.connection;
    let is_own = connection.holders.load(Ordering::Relaxed) == 1
        && connection.is_handed_over.load(Ordering::Relaxed) == 0;
    match PLACES[entry.number as usize].swap(NEW, Ordering::Relaxed) {
        NEW if is_own && is_direct(entry) => keep(entry),
        NEW | CHANGED => {}
        place => give_back(usize::from(place - 1), is_own),
    }
}

/// Keeps the socket of a connection that the program has made.
fn keep(entry: Entry) {
    let connection = entry.connection;
    let is_accepted = connection.was_accepted.load(Ordering::Relaxed) != 0;
    if is_accepted || has_own_flags(entry) || !may_be_kept() {
        return;
    }
    let count = ALL.iter().filter(|spare| spare.state() != State::Empty).count();
    if count == COUNT || count as u64 >= private::limit() / SHARE {
        return;
    }
    // SAFETY: the caller has not closed the descriptor yet.
    let socket = unsafe { BorrowedFd::borrow_raw(entry.fd) };
    let domain = tcp::option(entry.fd, libc::SOL_SOCKET, libc::SO_DOMAIN);
    if let (Some(domain), Some(namespace)) = (domain, tcp::namespace(entry.fd))
        && !answers::is_bound(entry.fd)
        && let Ok(copy) = private::copy(socket)
    {
        answers::set_flags(copy.as_raw_fd(), false, Some(false));
        LOCK.with(|()| {
            let place = ALL.iter().position(|spare| spare.state() == State::Empty)?;
            private::keep_in(&ALL[place].home, copy).ok()?;
            ALL[place].domain.store(domain, Ordering::Relaxed);
            ALL[place].namespace.store(namespace, Ordering::Relaxed);
            ALL[place].set(State::Free);
            Some(())
        });
    }
}

/// No connection has a socket. It is kept, unless others may have it, or the program has bound it by
/// a system call of its own.
fn give_back(place: usize, is_own: bool) {
    let spare = &ALL[place % COUNT];
    let is_new = |socket: BorrowedFd<'_>| !answers::is_bound(socket.as_raw_fd());
    let may_be_kept = is_own && may_be_kept();
    LOCK.with(|()| match may_be_kept && private::with(&spare.home, is_new) == Some(true) {
        true => spare.set(State::Free),
        false => spare.end(),
    });
}

/// Returns true for a connection whose flags and TCP_NODELAY this library keeps: the kernel does not
/// have them.
pub fn has_own_flags(entry: Entry) -> bool {
    entry.connection.shares_socket.load(Ordering::Relaxed) != 0
}

/// The place of a connection's socket, if it is one that is kept.
fn place_of(entry: Entry) -> Option<usize> {
    match PLACES[entry.number as usize].load(Ordering::Relaxed) {
        NEW | CHANGED => None,
        place => Some(usize::from(place - 1)),
    }
}

/// The family and the namespace of a connection's socket, if it is one that is kept: it is not
/// bound.
pub fn find(entry: Entry) -> Option<(c_int, u64)> {
    let spare = &ALL[place_of(entry)? % COUNT];
    Some((spare.domain.load(Ordering::Relaxed), spare.namespace.load(Ordering::Relaxed)))
}

/// The kernel is about to learn something of a connection's socket, which is not kept after that. If
/// it is one that was kept, the descriptor gets a new one.
pub fn claim(entry: Entry) {
    if place_of(entry).is_some() {
        replace(entry);
    }
    PLACES[entry.number as usize].store(CHANGED, Ordering::Relaxed);
}

/// Gives a connection with a socket that is kept a new one. Without one, it has the other for good.
pub fn replace(entry: Entry) {
    let (Some(place), Some((domain, namespace))) = (place_of(entry), find(entry)) else { return };
    // The thread may be in another namespace than when it has made the socket.
    let is_right = |socket: &OwnedFd| tcp::namespace(socket.as_raw_fd()) == Some(namespace);
    let socket = stock::socket(domain).ok().filter(is_right);
    if !socket.is_some_and(|socket| answers::give_socket(entry, &socket)) {
        return LOCK.with(|()| settle(entry)).unwrap_or(());
    }
    PLACES[entry.number as usize].store(NEW, Ordering::Relaxed);
    give_back(place, true);
}

/// Lets a connection have its socket for good.
fn settle(entry: Entry) {
    let Some(place) = place_of(entry) else { return };
    answers::settle_flags(entry);
    PLACES[entry.number as usize].store(CHANGED, Ordering::Relaxed);
    ALL[place % COUNT].end();
}

/// Closes those that no connection has.
pub fn release() {
    if FREE.load(Ordering::Relaxed) > 0 && process::owns_tables() {
        let is_free = |spare: &&Spare| spare.state() == State::Free;
        LOCK.with(|()| ALL.iter().filter(is_free).for_each(Spare::end));
    }
}

/// This thread is about to enter another network namespace. From now on, the kernel makes all
/// sockets.
pub fn leave_namespace() {
    if !process::owns_tables() {
        return;
    }
    IS_OVER.store(true, Ordering::SeqCst);
    table::entries().filter(|entry| !is_direct(*entry)).for_each(replace);
    release();
}

/// A fork follows, after which two processes have the sockets of all connections.
pub fn before_fork() {
    LOCK.before_fork(|()| table::entries().for_each(settle));
}

/// In parent and child.
pub fn after_fork() {
    LOCK.after_fork();
}

/// In the child: the others are its parent's.
pub fn in_child() {
    release();
}

impl Spare {
    const fn new() -> Self {
        Self {
            home: AtomicI32::new(-1),
            state: AtomicU8::new(State::Empty as u8),
            domain: AtomicI32::new(0),
            namespace: AtomicU64::new(0),
        }
    }

    fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            0 => State::Empty,
            1 => State::Free,
            _ => State::Used,
        }
    }

    /// Changes the state, under [`LOCK`].
    fn set(&self, state: State) {
        let was_free = self.state() == State::Free;
        self.state.store(state as u8, Ordering::Relaxed);
        match (was_free, state == State::Free) {
            (false, true) => FREE.fetch_add(1, Ordering::Relaxed),
            (true, false) => FREE.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Gives up the socket, under [`LOCK`].
    fn end(&self) {
        private::forget(&self.home);
        self.set(State::Empty);
    }
}

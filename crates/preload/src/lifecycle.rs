//! The start of the process, its forks, and the life of its descriptors.

use std::sync::atomic::Ordering;

use levada_ring::records::Reason;
use libc::c_int;

use crate::connection::{Connection, Path, Phase};
use crate::table::{self, Entry};
use crate::{
    arena, demote, direct, epoll, errno, monitor, poll, prepare, private, process, seccomp,
    segments, settings, tcp, waking,
};

/// Called by the loader before the program starts.
extern "C" fn start() {
    process::take_over();
    settings::read();
    if settings::socket().is_none() {
        return;
    }
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Called at exit(3) and _exit(2): the kernel closes all descriptors soon.
pub extern "C" fn end() {
    if seccomp::is_sealed() || !process::owns_tables() {
        return;
    }
    for entry in table::entries().filter(|entry| table::forget(*entry)) {
        let holders = &entry.connection.holders;
        let leave = |count: u32| (count > 1).then(|| count - 1);
        let is_last = holders.fetch_update(Ordering::AcqRel, Ordering::Relaxed, leave) == Err(1);
        if is_last && entry.connection.becomes_free() {
            match entry.connection.phase() {
                Phase::Direct => direct::leave_for_good(entry),
                _ => say_goodbye(entry),
            }
        }
        end_offer(entry, is_last);
    }
    epoll::release_all();
    process::disown();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

unsafe extern "C" fn before_fork() {
    prepare::before_fork();
    monitor::before_fork();
    // After it: a thread that handles a message of the monitor notes what it has.
    direct::before_fork();
    epoll::before_fork();
    table::before_fork();
    arena::before_fork();
}

unsafe extern "C" fn in_parent() {
    after_fork();
    direct::in_parent();
}

fn after_fork() {
    arena::after_fork();
    epoll::after_fork();
    direct::after_fork();
    monitor::after_fork();
    prepare::after_fork();
}

unsafe extern "C" fn in_child() {
    after_fork();
    if seccomp::is_sealed() {
        return;
    }
    process::take_over();
    private::in_child();
    arena::in_child();
    epoll::in_child();
    poll::in_child();
    monitor::in_child();
    direct::in_child();
}

/// accept(2) or socket(2) has returned a new socket. If the table knows its number, the descriptor
/// was closed by other means than close(2).
pub fn is_new(fd: c_int) {
    if table::find(fd).is_some() || epoll::is_known(fd) {
        closing(fd);
    }
}

/// A socket was opened that is a connection, or may become one: by socket(2), connect(2) or
/// accept(2).
pub fn opened(fd: c_int, was_accepted: bool) {
    // Libc reads and writes standard input, output and errors by calls of its own.
    if fd <= libc::STDERR_FILENO
        || settings::socket().is_none()
        || !process::owns_tables()
        || table::find(fd).is_some()
    {
        return;
    }
    if !is_tcp(fd) || !prepare::prepare() {
        return;
    }
    if let Some((number, _)) = begin(fd, tcp::is_nonblocking(fd), was_accepted) {
        table::insert(fd, number);
    }
}

/// The state of a new connection with this descriptor, which is not in the table yet. `None` if
/// there are too many.
pub fn begin(
    fd: c_int,
    is_nonblocking: bool,
    was_accepted: bool,
) -> Option<(u32, &'static Connection)> {
    if fd as usize >= table::DESCRIPTORS {
        return None;
    }
    let (number, connection) = arena::allocate()?;
    let has_begun = connection.begin(is_nonblocking, was_accepted);
    if !has_begun {
        arena::release(number);
    }
    has_begun.then_some((number, connection))
}

fn is_tcp(fd: c_int) -> bool {
    let option = |name| {
        let mut value: c_int = 0;
        let mut length = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: the buffer has the stated length.
        let code = unsafe {
            crate::real::getsockopt(
                fd,
                libc::SOL_SOCKET,
                name,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        (code == 0).then_some(value)
    };
    option(libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

/// A descriptor is about to be closed, or replaced.
pub fn closing(fd: c_int) {
    if table::find(fd).is_none() && !epoll::is_known(fd) || !process::owns_tables() {
        return;
    }
    if let Some(entry) = table::find(fd)
        && epoll::is_registered(entry)
    {
        if table::has_duplicates(entry) {
            // The registration belongs to the open file, and stays, but can no longer be changed by
            // this descriptor.
            demote::both(entry, Reason::Unsupported);
        } else if segments::own(entry.number).offer_name() != 0 {
            // The monitor may have the file until it has read the offer.
            epoll::unregister(entry);
        }
    }
    epoll::closing(fd);
    let Some((entry, last)) = table::remove(fd) else { return };
    if !last {
        return;
    }
    direct::closing(entry);
    if entry.connection.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
        say_goodbye(entry);
        end_offer(entry, true);
        entry.connection.end();
    } else {
        if entry.connection.phase() == Phase::Listening {
            direct::leave(entry);
        }
        end_offer(entry, false);
    }
    entry.connection.close();
}

/// Ends the offer of a connection. If the message with its socket is still on its way to the
/// monitor, and no other process has the connection, ends that, too: close(2) does not, until the
/// monitor has read the message.
fn end_offer(entry: Entry, is_last: bool) {
    let is_on_its_way = monitor::withdraw(entry);
    if is_on_its_way && is_last && entry.connection.is_handed_over.load(Ordering::Relaxed) == 0 {
        tcp::end(entry.fd);
    }
}

/// What the peer has to know before the kernel closes the connection.
fn say_goodbye(entry: Entry) {
    match entry.connection.phase() {
        Phase::Direct => return direct::goodbye(entry),
        Phase::Listening => return direct::close(entry),
        Phase::Paired => {}
        _ => return,
    }
    demote::honour_leave(entry);
    let connection = entry.connection;
    let waiter =
        connection.lock_outbound().and_then(|mut outbound| demote::leave(entry, &mut outbound));
    let mut unread = false;
    let other = connection.lock_inbound().and_then(|mut inbound| {
        // What is left to the peer, it sends again.
        unread = inbound.path() != Path::Back
            && inbound.consumer().readable().is_ok_and(|bytes| bytes > 0);
        inbound.consumer().abandon()
    });
    if unread && !seccomp::is_sealed() {
        // As the kernel does when bytes are lost that no one has read.
        tcp::reset_when_closed(entry.fd);
    }
    waking::ring(connection, waiter);
    waking::ring(connection, other);
}

/// A descriptor is a duplicate of another one.
pub fn duplicated(from: c_int, to: c_int) {
    let is_known = table::find(from).is_some() || epoll::is_known(from);
    if to < 0 || from == to || !is_known || !process::owns_tables() {
        return;
    }
    epoll::duplicated(from, to);
    if let Some(entry) = table::find(from) {
        if to <= libc::STDERR_FILENO {
            demote::both(entry, Reason::Unsupported);
        }
        table::insert(to, entry.number);
    }
}

/// A descriptor is about to become standard input, output or errors, which libc reads and writes by
/// calls of its own.
pub fn becomes(from: c_int, to: c_int) {
    if (0..=libc::STDERR_FILENO).contains(&to)
        && let Some(entry) = table::find(from)
        && process::owns_tables()
    {
        demote::both(entry, Reason::Unsupported);
    }
}

/// The program becomes another one, and hands its inheritable connections to it. The others end if
/// no one else has them, and the kernel has to know what is unread. Returns what [`exec_failed`]
/// takes back.
pub fn before_exec() -> Vec<&'static epoll::Instance> {
    if seccomp::is_sealed() {
        return Vec::new();
    }
    let saved = errno::last();
    let ends = process::owns_tables();
    let handed = table::entries().filter(|entry| {
        // SAFETY: the command takes no argument.
        let flags = unsafe { crate::real::fcntl64(entry.fd, libc::F_GETFD, 0) };
        let alone = entry.connection.holders.load(Ordering::Relaxed) == 1;
        flags >= 0 && (flags & libc::FD_CLOEXEC == 0 || ends && alone)
    });
    demote::all(&handed.collect::<Vec<_>>(), Reason::Handed);
    if ends {
        end_direct();
    }
    let closed = if ends { epoll::before_exec() } else { Vec::new() };
    errno::set(saved);
    closed
}

/// Ends the connections that the kernel does not know, which the next program cannot have. They
/// have ended, too, if it does not start.
fn end_direct() {
    for entry in table::entries().filter(|entry| direct::is_direct(*entry)) {
        if !table::forget(entry) {
            continue;
        }
        if entry.connection.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            direct::leave_for_good(entry);
        }
    }
}

/// The program has not become another one. Returns `code`.
pub fn exec_failed(closed: &[&'static epoll::Instance], code: c_int) -> c_int {
    closed.iter().for_each(|instance| instance.hold());
    code
}

/// The program closes a range of descriptors. The parts that are not this library's own.
pub fn ranges(first: u32, last: u32) -> Vec<(u32, u32)> {
    let end = last.min(table::DESCRIPTORS as u32 - 1);
    let mut ranges = Vec::new();
    let mut from = first;
    for fd in first..=end {
        let ours = i32::try_from(fd).is_ok_and(private::is_ours);
        if ours {
            if fd > from {
                ranges.push((from, fd - 1));
            }
            from = fd + 1;
        }
    }
    if from <= last {
        ranges.push((from, last));
    }
    ranges
}

//! The connection of this process to the monitor.

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use levada_ring::Segment;
use levada_ring::records::{Reason, Record};
use levada_ring::wire::{LENGTH, Refusal, Request, Response, VERSION, WAKING};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with, socketpair,
};

use crate::connection::{Connection, Phase};
use crate::lock::Lock;
use crate::table::Entry;
use crate::{arena, memory, private, settings, waking};

/// The socket; see [`State`].
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static STATE: AtomicU32 = AtomicU32::new(State::None as u32);
/// One thread at a time changes the state or receives.
static LOCK: Lock = Lock::new();

/// What the socket is good for.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum State {
    /// There is none.
    None = 0,
    /// It is connected, and the monitor does not know this process.
    Connected = 1,
    /// The monitor knows this process.
    Greeted = 2,
    /// It is the parent's: this process was forked.
    Inherited = 3,
    /// The monitor cannot be reached.
    Failed = 4,
}

fn state() -> State {
    match STATE.load(Ordering::Acquire) {
        0 => State::None,
        1 => State::Connected,
        2 => State::Greeted,
        3 => State::Inherited,
        _ => State::Failed,
    }
}

fn set_state(state: State) {
    STATE.store(state as u32, Ordering::Release);
}

/// The socket, while it is open.
fn socket() -> Option<BorrowedFd<'static>> {
    let fd = SOCKET.load(Ordering::Acquire);
    // SAFETY: the descriptor is private to this library, whose functions do not let the program close it.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Connects early, before the program may give up the right to.
pub fn connect_early() {
    if let Some(_guard) = LOCK.lock() {
        open();
    }
}

/// A forked child shares the socket with its parent, until it needs one.
pub fn after_fork() {
    waking::after_fork();
    if !matches!(state(), State::None | State::Failed) {
        set_state(State::Inherited);
    }
}

fn open() {
    let connected = || -> Result<OwnedFd, Errno> {
        let path = settings::socket().ok_or(Errno::NOENT)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket)
    };
    match connected().and_then(private::keep) {
        Ok(socket) => {
            SOCKET.store(socket.into_raw_fd(), Ordering::Release);
            set_state(State::Connected);
        }
        Err(_) => set_state(State::Failed),
    }
}

/// Asks the monitor for a socket of this process's own, over that of the parent.
fn request_socket() {
    let adopted = || -> Result<OwnedFd, Errno> {
        let parent = socket().ok_or(Errno::BADF)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        send(parent, Request::Adopt, &[rustix::fd::AsFd::as_fd(&other)])?;
        private::keep(own)
    };
    let Ok(own) = adopted() else {
        set_state(State::Failed);
        return;
    };
    let parent = SOCKET.swap(own.into_raw_fd(), Ordering::AcqRel);
    private::forget(parent);
    set_state(State::Connected);
}

/// Introduces this process.
fn send_hello() -> Result<(), Errno> {
    let socket = socket().ok_or(Errno::BADF)?;
    let records = arena::file().ok_or(Errno::BADF)?;
    waking::prepare()?;
    let attached: Vec<_> = [records].into_iter().chain(waking::descriptors()).collect();
    let hello =
        Request::Hello { version: VERSION, run: settings::run(), pid: crate::process::own() };
    send(socket, hello, &attached)?;
    set_state(State::Greeted);
    Ok(())
}

/// Makes the connection usable for offers. The caller holds the lock.
fn ensure() -> bool {
    if state() == State::None {
        open();
    }
    if state() == State::Inherited {
        request_socket();
    }
    if state() == State::Connected && send_hello().is_err() {
        set_state(State::Failed);
    }
    state() == State::Greeted
}

/// Offers a connection. `false` if there is no monitor.
pub fn send_offer(entry: Entry) -> bool {
    let Some(_guard) = LOCK.lock() else { return false };
    if !ensure() {
        return false;
    }
    let Some(socket) = socket() else { return false };
    // SAFETY: the program is in a call on this descriptor; should another thread close it meanwhile, another file is offered, which
    // the monitor refuses or which no peer offers.
    let connection = unsafe { BorrowedFd::borrow_raw(entry.fd) };
    note_addresses(entry, connection);
    let sent = send(socket, Request::Offer { connection: name(entry) }, &[connection]);
    entry.connection.is_offered.store(sent.is_ok().into(), Ordering::Relaxed);
    if sent == Err(Errno::PIPE) || sent == Err(Errno::CONNRESET) {
        // The monitor was started again.
        private::forget(SOCKET.swap(-1, Ordering::AcqRel));
        set_state(State::None);
    }
    sent.is_ok()
}

/// How long a close waits for the monitor.
const WITHDRAW_TIMEOUT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Takes an offer back, and waits for the response: until then the monitor may have the socket, which keeps the connection open. The
/// response to the offer may come instead.
pub fn withdraw(entry: Entry) {
    let (Some(_guard), Some(socket)) = (LOCK.lock(), socket()) else { return };
    if send(socket, Request::Withdraw { connection: name(entry) }, &[]).is_err() {
        return;
    }
    while entry.connection.is_offered.load(Ordering::Relaxed) != 0 {
        let mut waiting = [PollFd::new(&socket, PollFlags::IN)];
        let come = poll(&mut waiting, Some(&WITHDRAW_TIMEOUT));
        if come != Ok(1) || receive(socket).is_err() {
            return;
        }
    }
}

/// What a connection is called in messages: a record may be used for another one later.
fn name(entry: Entry) -> u64 {
    u64::from(entry.connection.generation.load(Ordering::Relaxed)) << 32 | u64::from(entry.number)
}

fn note_addresses(entry: Entry, socket: BorrowedFd<'_>) {
    let record = &entry.connection.record;
    if let Ok(local) = rustix::net::getsockname(socket).and_then(std::net::SocketAddr::try_from) {
        Record::set_address(&record.local, local);
    }
    if let Ok(Some(remote)) = rustix::net::getpeername(socket)
        && let Ok(remote) = std::net::SocketAddr::try_from(remote)
    {
        Record::set_address(&record.remote, remote);
    }
}

/// Descriptors that go or come with one message at most: the records, or a segment, and what wakes the process.
const ATTACHED: usize = 1 + WAKING;

fn send(
    socket: BorrowedFd<'_>,
    request: Request,
    attached: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ATTACHED))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !attached.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(attached));
    }
    let bytes = request.encode();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[std::io::IoSlice::new(&bytes)], &mut control, flags).map(drop)
}

/// Handles all responses that have come.
pub fn collect() {
    // A thread that is at it already handles this one's, too.
    let Some(_guard) = LOCK.try_lock() else { return };
    if state() != State::Greeted {
        return;
    }
    while let Some(socket) = socket()
        && receive(socket).is_ok()
    {}
}

fn receive(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut bytes = [0; LENGTH];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ATTACHED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received =
        recvmsg(socket, &mut [std::io::IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    if received.bytes == 0 {
        private::forget(SOCKET.swap(-1, Ordering::AcqRel));
        set_state(State::None);
        return Err(Errno::PIPE);
    }
    let mut attached = Vec::with_capacity(ATTACHED);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            attached.extend(descriptors);
        }
    }
    if let Ok(response) = Response::decode(&bytes[..received.bytes.min(LENGTH)]) {
        handle(response, attached);
    }
    Ok(())
}

fn handle(response: Response, attached: Vec<OwnedFd>) {
    match response {
        Response::Paired { connection, side, peer, bells } => {
            let mut attached = attached.into_iter();
            let segment = attached.next();
            // A peer that could not be woken would wait for ever.
            let can_wake = peer == 0
                || if bells { waking::learn(peer, attached) } else { waking::is_known(peer) };
            let segment = segment.filter(|_| can_wake).and_then(|file| Segment::open(file).ok());
            let Some(waiting) = by_name(connection) else { return };
            match segment {
                Some(segment) => waiting.attach(segment.leak(), side, peer),
                None => waiting.settle(Reason::Exhausted),
            }
        }
        Response::Refused { connection, refusal } => {
            if let Some(waiting) = by_name(connection) {
                waiting.settle(match refusal {
                    Refusal::NoPeer => Reason::NoPeer,
                    Refusal::Exhausted | Refusal::TooMany => Reason::Exhausted,
                    Refusal::NotTcp => Reason::Unsupported,
                });
            }
        }
        Response::Gone { peer } => waking::forget(peer),
        Response::Welcome => attached.iter().for_each(memory::learn),
        Response::Process { .. } | Response::Listed => {}
    }
}

/// The connection that still waits for this response.
fn by_name(name: u64) -> Option<&'static Connection> {
    let connection = arena::connection(name as u32)?;
    if u64::from(connection.generation.load(Ordering::Relaxed)) != name >> 32 {
        return None;
    }
    connection.is_offered.store(0, Ordering::Relaxed);
    (connection.phase() == Phase::Offered).then_some(connection)
}

//! The connection of this process to the monitor, and the bells of this process and its peers.

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use levada_ring::records::{Reason, Record};
use levada_ring::wire::{BELLS, LENGTH, Refusal, Request, Response, VERSION};
use levada_ring::{Segment, Waiter};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with, socketpair,
};

use crate::connection::{Connection, Phase};
use crate::lock::Lock;
use crate::table::Entry;
use crate::{arena, private, settings};

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

/// The eventfds of this process.
static OWN: [AtomicI32; BELLS] = [const { AtomicI32::new(-1) }; BELLS];
/// The peers whose eventfds this process has.
const PEERS: usize = 1024;
static PEER_NUMBERS: [AtomicU64; PEERS] = [const { AtomicU64::new(0) }; PEERS];
static PEER_BELLS: [[AtomicI32; BELLS]; PEERS] =
    [const { [const { AtomicI32::new(-1) }; BELLS] }; PEERS];

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
    for bell in &OWN {
        if bell.load(Ordering::Relaxed) < 0 {
            let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            bell.store(private::keep(made)?.into_raw_fd(), Ordering::Release);
        }
    }
    let mut attached = vec![records];
    attached.extend((0..BELLS).filter_map(own_bell));
    let hello =
        Request::Hello { version: VERSION, run: settings::run(), pid: crate::process::own() };
    send(socket, hello, &attached)?;
    set_state(State::Greeted);
    Ok(())
}

/// An eventfd of this process that its peers ring.
pub fn own_bell(index: usize) -> Option<BorrowedFd<'static>> {
    let fd = OWN.get(index)?.load(Ordering::Acquire);
    // SAFETY: as in `socket`.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
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

fn send(
    socket: BorrowedFd<'_>,
    request: Request,
    attached: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BELLS + 1))];
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

/// Descriptors that come with one response at most: a segment, and the bells of the peer.
const ATTACHED: usize = 1 + BELLS;

fn receive(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut bytes = [0; LENGTH];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1 + BELLS))];
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
            if bells {
                learn(peer, attached);
            }
            let segment = segment.and_then(|file| Segment::open(file).ok());
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
        Response::Gone { peer } => forget(peer),
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

fn learn(peer: u32, bells: impl Iterator<Item = OwnedFd>) {
    let place = position(peer)
        .or_else(|| PEER_NUMBERS.iter().position(|number| number.load(Ordering::Relaxed) == 0));
    let Some(place) = place else { return };
    for (bell, known) in bells.zip(&PEER_BELLS[place]) {
        if let Ok(bell) = private::keep(bell) {
            private::forget(known.swap(bell.into_raw_fd(), Ordering::AcqRel));
        }
    }
    PEER_NUMBERS[place].store(u64::from(peer) + 1, Ordering::Release);
}

fn position(peer: u32) -> Option<usize> {
    PEER_NUMBERS.iter().position(|number| number.load(Ordering::Acquire) == u64::from(peer) + 1)
}

fn forget(peer: u32) {
    let Some(place) = position(peer) else { return };
    PEER_NUMBERS[place].store(0, Ordering::Release);
    for known in &PEER_BELLS[place] {
        private::forget(known.swap(-1, Ordering::AcqRel));
    }
}

/// Rings the bell that a call on a ring of `connection` has returned.
pub fn ring(connection: &Connection, waiter: Option<Waiter>) {
    let Some(waiter) = waiter else { return };
    connection.record.counters.wakeups.fetch_add(1, Ordering::Relaxed);
    let Waiter::Bell(index) = waiter else { return };
    let peer = connection.peer.load(Ordering::Relaxed);
    let bell = position(peer)
        .and_then(|place| PEER_BELLS[place].get(usize::from(index)))
        .or_else(|| OWN.get(usize::from(index)));
    write_bell(bell);
}

/// Rings a bell of this process, for its own threads.
pub fn ring_own(bell: u8) {
    write_bell(OWN.get(usize::from(bell)));
}

fn write_bell(bell: Option<&AtomicI32>) {
    let fd = bell.map_or(-1, |bell| bell.load(Ordering::Acquire));
    if fd >= 0 {
        // SAFETY: as in `socket`.
        let bell = unsafe { BorrowedFd::borrow_raw(fd) };
        let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
    }
}

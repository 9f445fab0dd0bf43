//! The connection of this process to the monitor.

mod place;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use levada_ring::Segment;
use levada_ring::records::{OfferName, Reason, Record};
use levada_ring::wire::{LENGTH, Refusal, Request, Response, VERSION, WAKING};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use smallvec::SmallVec;

use crate::connection::{Connection, Phase};
use crate::direct::{Member, Role};
use crate::lock::Lock;
use crate::table::Entry;
use crate::{arena, direct, history, memory, private, segments, settings, shown, spin, waking};

/// The socket; see [`State`].
static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// A second connection, on which nothing is ever received. A forked child has it, and asks for one
/// of its own over it; it does not have that of its parent, where it could read descriptors that
/// the monitor sends to the parent.
static SPARE: AtomicI32 = AtomicI32::new(-1);
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
    /// There is the spare one only: this process was forked.
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

/// Calls `use_it` with the socket, while it is open.
fn with_socket<T>(use_it: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
    private::with(&SOCKET, use_it).unwrap_or(Err(Errno::BADF))
}

fn forget_socket() {
    private::forget(&SOCKET);
    set_state(State::None);
}

/// Connects early, before the program may give up the right to.
pub fn connect_early() {
    if let Some(_guard) = LOCK.lock()
        && connect(None).is_ok()
    {
        set_state(State::Connected);
    }
}

fn connect(warn: Option<fn(&str, &str)>) -> Result<(), Errno> {
    private::keep_in(&SOCKET, place::connect(warn)?)?;
    // Without it, children stay on TCP.
    let _ = place::connect(None).and_then(|spare| private::keep_in(&SPARE, spare));
    Ok(())
}

/// No thread handles a response during a fork: the child would miss a segment.
pub fn before_fork() {
    LOCK.hold();
}

/// In parent and child.
pub fn after_fork() {
    LOCK.free();
}

/// A forked child has no socket, until it needs one.
pub fn in_child() {
    waking::in_child();
    private::forget(&SOCKET);
    if !matches!(state(), State::None | State::Failed) {
        set_state(State::Inherited);
    }
}

/// All connections are on TCP: the monitor is of no more use.
pub fn leave() {
    if let Some(_guard) = LOCK.lock() {
        private::forget(&SOCKET);
        private::forget(&SPARE);
        set_state(State::Failed);
    }
}

fn open() {
    let is_connected = connect(Some(place::warn)).is_ok();
    set_state(if is_connected { State::Connected } else { State::Failed });
}

/// Asks the monitor for a socket of this process's own, over the spare one that its parent has left
/// to it.
fn request_socket() {
    let adopted = || -> Result<(), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let adopt = |spare: BorrowedFd<'_>| send(spare, Request::Adopt, &[other.as_fd()]);
        private::with(&SPARE, adopt).unwrap_or(Err(Errno::BADF))?;
        private::keep_in(&SOCKET, own)
    };
    set_state(if adopted().is_ok() { State::Connected } else { State::Failed });
}

/// Introduces this process.
fn send_hello() -> Result<(), Errno> {
    waking::prepare()?;
    let hello =
        Request::Hello { version: VERSION, run: settings::run(), pid: crate::process::own() };
    let mut attached = SmallVec::<[OwnedFd; ATTACHED]>::new();
    for home in [shown::file()].into_iter().chain(waking::descriptors()) {
        // It keeps its number while the homes change.
        attached.push(private::duplicate(home)?);
    }
    let attached: SmallVec<[BorrowedFd<'_>; ATTACHED]> = attached.iter().map(AsFd::as_fd).collect();
    with_socket(|socket| send(socket, hello, &attached))?;
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

/// What has become of an offer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// The monitor has it, or will have.
    Sent,
    /// The monitor has not yet taken the messages before.
    Busy,
    /// There is no monitor.
    Failed,
}

/// Offers a connection.
pub fn send_offer(entry: Entry) -> Offered {
    let Some(_guard) = LOCK.lock() else { return Offered::Busy };
    if !ensure() {
        return Offered::Failed;
    }
    // SAFETY: the program is in a call on this descriptor; should another thread close it
    // meanwhile, another file is offered, which the monitor refuses or which no peer offers.
    let connection = unsafe { BorrowedFd::borrow_raw(entry.fd) };
    let name = new_name(entry);
    hold(entry, name);
    let offer = Request::Offer { connection: name };
    let sent = with_socket(|socket| send(socket, offer, &[connection]));
    if sent.is_err() {
        hold(entry, 0);
    }
    match sent {
        Ok(()) => Offered::Sent,
        // Too many descriptors on their way, or no room.
        Err(Errno::AGAIN | Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => Offered::Busy,
        Err(Errno::PIPE | Errno::CONNRESET) => {
            // The monitor was started again.
            forget_socket();
            Offered::Failed
        }
        Err(_) => Offered::Failed,
    }
}

/// Notes the offer that holds for a connection; 0 for none. The monitor reads it in the record.
fn hold(entry: Entry, name: u64) {
    segments::own(entry.number).set_offer(name);
    entry.connection.record().offer.store(name, Ordering::SeqCst);
}

/// Ends the offer of a connection that is about to be closed, without waiting for anything. Returns
/// true if the monitor has not yet read the messages of this process: that with the socket, which
/// keeps the connection open, may be among them.
pub fn withdraw(entry: Entry) -> bool {
    let name = segments::own(entry.number).offer_name();
    if name == 0 {
        return false;
    }
    hold(entry, 0);
    let is_unread = with_socket(|socket| Ok(unread_by_peer(socket) > 0)) == Ok(true);
    if let Some(_guard) = LOCK.try_lock() {
        let withdraw = Request::Withdraw { connection: name };
        let _ = with_socket(|socket| send(socket, withdraw, &[]));
    }
    is_unread
}

/// Bytes of memory for messages that the other end has not read (SIOCOUTQ, unix(7)).
fn unread_by_peer(socket: BorrowedFd<'_>) -> libc::c_int {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the address of a number.
    unsafe { crate::real::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, (&raw mut bytes).cast()) };
    bytes
}

/// A name that this process, and the processes that share its records, give to no other offer.
fn new_name(entry: Entry) -> u64 {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    OfferName {
        serial: serial.wrapping_mul(1 << 16) ^ u64::from(crate::process::own()),
        connection: entry.number as u16,
        record: entry.connection.shown() as u16,
    }
    .encode()
}

/// Notes the addresses of a connection, for people and for [`history`].
pub fn note_addresses(entry: Entry) {
    // SAFETY: the program is in a call on this descriptor; another file has other addresses, which
    // are shown until the connection ends.
    let socket = unsafe { BorrowedFd::borrow_raw(entry.fd) };
    let record = entry.connection.record();
    if let Ok(local) = rustix::net::getsockname(socket).and_then(std::net::SocketAddr::try_from) {
        Record::set_address(&record.local, local);
    }
    if let Ok(Some(remote)) = rustix::net::getpeername(socket)
        && let Ok(remote) = std::net::SocketAddr::try_from(remote)
    {
        Record::set_address(&record.remote, remote);
    }
}

/// Descriptors that go or come with one message at most: a pool, a line, and what wakes the process.
const ATTACHED: usize = 2 + WAKING;

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
    while receive().is_ok_and(|(response, attached)| handle(response, attached)) {}
}

/// A response of the monitor with its descriptors, if one has come.
fn receive() -> Result<(Option<Response>, Vec<OwnedFd>), Errno> {
    let mut bytes = [0; LENGTH];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ATTACHED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = with_socket(|socket| {
        recvmsg(socket, &mut [std::io::IoSliceMut::new(&mut bytes)], &mut control, flags)
    })?;
    let mut attached = Vec::with_capacity(ATTACHED);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            attached.extend(descriptors);
        }
    }
    if received.bytes == 0 {
        forget_socket();
        return Err(Errno::PIPE);
    }
    Ok((Response::decode(&bytes[..received.bytes.min(LENGTH)]).ok(), attached))
}

/// Handles a response. Always returns true.
fn handle(response: Option<Response>, attached: Vec<OwnedFd>) -> bool {
    if let Some(response) = response {
        handle_known(response, attached);
    }
    true
}

fn handle_known(response: Response, attached: Vec<OwnedFd>) {
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
                None => waiting.try_later(Reason::Exhausted),
            }
        }
        Response::Refused { connection, refusal } => {
            if let Some(waiting) = by_name(connection) {
                match refusal {
                    Refusal::NoPeer => waiting.try_later(Reason::NoPeer),
                    Refusal::Exhausted | Refusal::TooMany => waiting.try_later(Reason::Exhausted),
                    Refusal::NotTcp => waiting.settle(Reason::Unsupported),
                }
            }
        }
        Response::Gone { peer } => {
            waking::forget(peer);
            direct::retire();
        }
        Response::Welcome => {
            if let [account, history] = &attached[..] {
                memory::learn(account);
                history::learn(history);
            }
        }
        Response::Pool { peer, listener, slot, port, bells } => {
            let role = Role::Server(listener, slot);
            let mut attached = attached.into_iter();
            if let Some(pool) = attached.next()
                && let Some(member) = member((0, peer), bells, attached)
            {
                direct::learn(role, port, pool, member);
            }
        }
        // It has come too late: its pool is for the next one.
        Response::Route { .. } => learn_route(response, attached),
        Response::Member { listener, peer, slot, bells } => {
            if let Some(member) = member((slot, peer), bells, attached.into_iter()) {
                direct::learn_member(listener, member);
            }
        }
        Response::Process { .. }
        | Response::Listed
        | Response::NoRoute { .. }
        | Response::Listening { .. } => {}
    }
}

/// Notes the pool of a listener.
fn learn_route(response: Response, attached: Vec<OwnedFd>) {
    let Response::Route { peer, listener, slot, port, pool: true, bells, .. } = response else {
        return;
    };
    let mut attached = attached.into_iter();
    if let Some(pool) = attached.next()
        && let Some(member) = member((slot, peer), bells, attached)
    {
        direct::learn(Role::Client(listener), port, pool, member);
    }
}

/// The process at the other end of a line, with what wakes it.
fn member(
    (slot, number): (u8, u32),
    bells: bool,
    mut attached: impl Iterator<Item = OwnedFd>,
) -> Option<Member> {
    let line = attached.next()?;
    // A peer that could not be woken would wait for ever.
    let can_wake = if bells { waking::learn(number, attached) } else { waking::is_known(number) };
    can_wake.then_some(Member { slot, number, line })
}

/// The time for which a call waits for the monitor. It goes on without an answer.
const ANSWER: Duration = Duration::from_millis(100);
/// The time without questions after one that had no answer, in milliseconds.
const PAUSE: u32 = 1000;
/// The time of the last question that had no answer, in [`ticks`](spin::ticks); 0 for none.
static ASKED_IN_VAIN: AtomicU32 = AtomicU32::new(0);
/// The number of the last question: an answer that is late is not taken for the next one.
static QUESTION: AtomicU32 = AtomicU32::new(0);

/// Sends a request, and waits for the response of which `read` returns something. Returns `None` if
/// it was not sent, and `Some(None)` without an answer.
fn ask<T>(
    request: Request,
    attached: &[BorrowedFd<'_>],
    read: impl Fn(Response) -> Option<T>,
) -> Option<Option<(T, Vec<OwnedFd>)>> {
    // Another thread asks, or this is a signal handler that has interrupted it.
    let _guard = LOCK.try_lock()?;
    let last = ASKED_IN_VAIN.load(Ordering::Relaxed);
    if last != 0 && spin::ticks().wrapping_sub(last) < PAUSE {
        return None;
    }
    if !ensure() || with_socket(|socket| send(socket, request, attached)).is_err() {
        return None;
    }
    let answer = wait_for(read);
    if answer.is_none() {
        ASKED_IN_VAIN.store(spin::ticks() | 1, Ordering::Relaxed);
    }
    Some(answer)
}

/// The response of which `read` returns something. The caller holds the lock.
fn wait_for<T>(read: impl Fn(Response) -> Option<T>) -> Option<(T, Vec<OwnedFd>)> {
    let end = Instant::now() + ANSWER;
    loop {
        match receive() {
            Ok((response, attached)) => match response.and_then(&read) {
                Some(answer) => return Some((answer, attached)),
                None => drop(handle(response, attached)),
            },
            Err(Errno::AGAIN) => {
                let left = end.checked_duration_since(Instant::now())?;
                let time = Timespec::try_from(left).ok()?;
                with_socket(|socket| {
                    let mut entry = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
                    poll(&mut entry, Some(&time))
                })
                .ok();
            }
            Err(_) => return None,
        }
    }
}

/// Tells the monitor of a listener, by its name. Returns false if no client finds it; `None` if the
/// monitor was not told. Without an answer, clients may find it.
pub fn listen(entry: Entry, listener: u32) -> Option<bool> {
    // SAFETY: the program is in a call on this descriptor; the monitor refuses another file.
    let socket = unsafe { BorrowedFd::borrow_raw(entry.fd) };
    let asked = QUESTION.fetch_add(1, Ordering::Relaxed);
    let read = |response| match response {
        Response::Listening { question, is_known } if question == asked => Some(is_known),
        _ => None,
    };
    let request = Request::Listen { question: asked, listener };
    let answer = ask(request, &[socket], read)?;
    Some(answer.is_none_or(|(is_known, _)| is_known))
}

/// Tells the monitor that a listener has ended, without waiting for anything. If that fails, its
/// clients find it closed.
pub fn shut(listener: u32) {
    if let Some(_guard) = LOCK.try_lock()
        && state() == State::Greeted
    {
        let _ = with_socket(|socket| send(socket, Request::Shut { listener }, &[]));
    }
}

/// Asks for the listener that a connection of the kernel leads to, and returns its number. With
/// `again`, its pool is a new one.
pub fn find(entry: Entry, again: bool) -> Option<u32> {
    // SAFETY: as in `listen`.
    let socket = unsafe { BorrowedFd::borrow_raw(entry.fd) };
    let asked = QUESTION.fetch_add(1, Ordering::Relaxed);
    let read = |response| match response {
        Response::Route { question, .. } | Response::NoRoute { question } => {
            (question == asked).then_some(response)
        }
        _ => None,
    };
    let (response, attached) = ask(Request::Find { question: asked, again }, &[socket], read)??;
    let Response::Route { listener, .. } = response else { return None };
    learn_route(response, attached);
    Some(listener)
}

/// The connection that still waits for this response.
fn by_name(name: u64) -> Option<&'static Connection> {
    let number = u32::from(OfferName::decode(name).connection);
    let own = segments::own(number);
    if name == 0 || own.offer_name() != name {
        return None;
    }
    let connection = arena::connection(number)?;
    own.set_offer(0);
    connection.record().offer.store(0, Ordering::Relaxed);
    (connection.phase() == Phase::Offered).then_some(connection)
}

//! A monitor on a path of its own, and processes that connect to it.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use levada_ring::records::{OfferName, Records};
use levada_ring::wire::{LENGTH, Request, Response, VERSION, WAKING};
use levada_ring::{Account, Marks};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_reuseaddr, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    socket_with, socketpair,
};

use crate::options::Options;
use crate::packet::{NoPacket, Packet, receive, send};
use crate::server::{Monitor, Stop};

/// No test waits for longer.
pub const LONG: Duration = Duration::from_secs(60);

/// Offers wait for as long as a test can take.
pub const PATIENT: Options = Options { idle: None, offer_timeout: LONG, memory: u64::MAX };

/// A monitor in a thread of this process.
pub struct Running {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    folder: tempfile::TempDir,
}

impl Running {
    pub fn start(options: Options) -> Self {
        crate::server::raise_limits();
        let folder = tempfile::tempdir().unwrap();
        let monitor = Monitor::bind(&folder.path().join("run/fast.sock"), options).unwrap();
        let stop = monitor.stop();
        let thread = Some(std::thread::spawn(move || monitor.run().unwrap()));
        Self { stop, thread, folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("run/fast.sock")
    }

    /// A process that has introduced itself.
    pub fn process(&self, run: u64) -> Process {
        let process = Process::connect(&self.path());
        process.hello(run);
        process
    }

    /// Waits until it has ended by itself.
    pub fn join(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A process with fast sockets.
pub struct Process {
    pub socket: OwnedFd,
    file: OwnedFd,
    records: Arc<Records>,
    bells: [OwnedFd; WAKING],
}

impl Process {
    pub fn connect(path: &Path) -> Self {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self::on(socket)
    }

    /// A process, and the other end of its connection.
    pub fn pair() -> (Self, OwnedFd) {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (near, far) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
        (Self::on(near), far)
    }

    fn on(socket: OwnedFd) -> Self {
        for timeout in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, timeout, Some(LONG)).unwrap();
        }
        let (file, records) = Records::create().unwrap();
        let bells = std::array::from_fn(|at| match at + 1 < WAKING {
            true => eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            false => Marks::create().unwrap().0,
        });
        Self { socket, file, records: Arc::new(records), bells }
    }

    /// A child of this process after a fork: it has the same records.
    pub fn forked(&self, path: &Path) -> Self {
        let file = self.file.try_clone().unwrap();
        let records = Arc::clone(&self.records);
        Self { file, records, ..Self::connect(path) }
    }

    pub fn send(&self, request: Request, descriptors: &[BorrowedFd<'_>]) {
        send(&self.socket, &request.encode(), descriptors, SendFlags::empty()).unwrap();
    }

    pub fn hello(&self, run: u64) {
        let mut descriptors = vec![self.file.as_fd()];
        descriptors.extend(self.bells.iter().map(AsFd::as_fd));
        self.send(Request::Hello { version: VERSION, run, pid: run as u32 }, &descriptors);
    }

    pub fn offer_socket(&self, connection: u64, socket: impl AsFd) {
        let record = OfferName::decode(connection).record;
        self.records.record(record.into()).offer.store(connection, Ordering::SeqCst);
        self.send(Request::Offer { connection }, &[socket.as_fd()]);
    }

    /// Removes the name of an offer from the records.
    pub fn end_offer(&self, connection: u64) {
        let record = OfferName::decode(connection).record;
        self.records.record(record.into()).offer.store(0, Ordering::SeqCst);
    }

    /// The next response that is not [`Response::Welcome`].
    pub fn receive(&self) -> (Response, Vec<OwnedFd>) {
        loop {
            let received = self.receive_any();
            if received.0 != Response::Welcome {
                return received;
            }
        }
    }

    fn receive_any(&self) -> (Response, Vec<OwnedFd>) {
        let Packet { bytes, descriptors, .. } = receive(&self.socket, RecvFlags::empty()).unwrap();
        (Response::decode(&bytes).unwrap(), descriptors)
    }

    /// The account that a process gets when it has introduced itself.
    pub fn account(&self) -> Account {
        let (response, mut descriptors) = self.receive_any();
        assert_eq!((response, descriptors.len()), (Response::Welcome, 2));
        Account::open(descriptors.remove(0)).unwrap()
    }

    /// Says in its records how many segments it has.
    pub fn set_rings(&self, count: u64) {
        self.records.totals().rings.store(count, Ordering::SeqCst);
    }

    /// The next response, which has no descriptors.
    pub fn response(&self) -> Response {
        let (response, descriptors) = self.receive();
        assert!(descriptors.is_empty(), "{response:?}");
        response
    }

    /// Waits until the monitor has closed the connection.
    pub fn is_closed(&self) -> bool {
        loop {
            match receive(&self.socket, RecvFlags::empty()) {
                Ok(_) => {}
                Err(end) => return end == NoPacket::Ever,
            }
        }
    }

    /// Waits until the monitor has handled everything that was sent before.
    pub fn settle(&self) {
        self.send(Request::Offer { connection: u64::MAX }, &[self.file.as_fd()]);
        let refused = self.response();
        assert!(matches!(refused, Response::Refused { connection: u64::MAX, .. }), "{refused:?}");
    }

    pub fn send_bytes(&self, bytes: &[u8]) {
        let _ = rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL);
    }

    pub fn ring_bell(bell: &OwnedFd) {
        std::fs::File::from(bell.try_clone().unwrap()).write_all(&1_u64.to_ne_bytes()).unwrap();
    }

    pub fn has_rung(&self, bell: usize) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&self.bells[bell], &mut count) == Ok(8)
    }
}

/// Both ends of a TCP connection, and what listens for others.
pub fn tcp() -> (TcpStream, TcpStream, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (near, far) = connected(&listener);
    (near, far, listener)
}

/// Another connection.
pub fn connected(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Connects to `listener` again and again from the same address, which no other test has, and with
/// the port of the first connection. Each connection is reset before the next one begins.
pub struct SameAddress(SocketAddr);

impl SameAddress {
    /// `host` is the last part of an address that no other test has.
    pub fn new(host: u8) -> Self {
        Self(SocketAddr::from(([127, 90, 0, host], 0)))
    }

    pub fn connect(&mut self, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let kind = (AddressFamily::INET, SocketType::STREAM);
        let near = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
        set_socket_reuseaddr(&near, true).unwrap();
        // Without TIME_WAIT.
        set_socket_linger(&near, Some(Duration::ZERO)).unwrap();
        bind(&near, &self.0).unwrap();
        connect(&near, &listener.local_addr().unwrap()).unwrap();
        let near = TcpStream::from(near);
        self.0 = near.local_addr().unwrap();
        (near, listener.accept().unwrap().0)
    }
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A message of the right length that is none.
pub const GARBAGE: [u8; LENGTH] = [0xff; LENGTH];

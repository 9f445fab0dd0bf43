//! Asks the monitor what the processes show: for `levada fast`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use levada_ring::records::{Snapshot, SnapshotError};
use levada_ring::wire::{Request, Response};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
    socket_with,
};

use crate::packet::{self, NoPacket, user_of};

/// How long the monitor may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why the monitor cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No monitor listens at the path.
    #[error("no monitor is running")]
    NotRunning,
    /// The process that listens there is of another user.
    #[error("the monitor is of another user")]
    OtherUser,
    /// The monitor has ended, or does not answer.
    #[error("the monitor does not answer")]
    NoAnswer,
    /// A system call failed.
    #[error("cannot connect to the monitor: {0}")]
    Io(#[from] io::Error),
}

/// A connection to the monitor that is not of a process with fast sockets.
#[derive(Debug)]
pub struct Client(OwnedFd);

/// A process with fast sockets, or some of its forked children with it.
#[derive(Debug)]
pub struct Process {
    /// The number of the process.
    pub pid: u32,
    /// The number of the `levada fast` that has started it.
    pub run: u64,
    /// Whether it has not ended.
    pub alive: bool,
    /// What it shows.
    pub records: Result<Snapshot, SnapshotError>,
}

impl Client {
    /// Connects to the monitor at `path`.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`] if none listens there.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let failed = |error: Errno| match error {
            Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR => ClientError::NotRunning,
            Errno::AGAIN => ClientError::NoAnswer,
            other => ClientError::Io(other.into()),
        };
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None).map_err(failed)?;
        for timeout in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, timeout, Some(TIMEOUT)).map_err(failed)?;
        }
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        connect(&socket, &address).map_err(failed)?;
        if user_of(&socket)? != rustix::process::geteuid().as_raw() {
            return Err(ClientError::OtherUser);
        }
        Ok(Self(socket))
    }

    /// Keeps the records of processes of `run` that end, until this connection is closed.
    ///
    /// # Errors
    /// [`ClientError::NoAnswer`] if the monitor has ended.
    pub fn watch(&self, run: u64) -> Result<(), ClientError> {
        self.send(Request::Watch { run })
    }

    /// The processes of a run, or of all runs if it is 0, by their numbers.
    ///
    /// # Errors
    /// [`ClientError::NoAnswer`] if the monitor has ended.
    pub fn list(&self, run: u64) -> Result<Vec<Process>, ClientError> {
        self.send(Request::List { run })?;
        let mut processes = Vec::new();
        loop {
            let packet = packet::receive(&self.0, RecvFlags::empty());
            let packet = packet.map_err(|_: NoPacket| ClientError::NoAnswer)?;
            match (Response::decode(&packet.bytes), &packet.descriptors[..]) {
                (Ok(Response::Process { pid, run, alive }), [records]) => {
                    processes.push(Process { pid, run, alive, records: Snapshot::read(records) });
                }
                (Ok(Response::Listed), []) => break,
                _ => return Err(ClientError::NoAnswer),
            }
        }
        processes.sort_by_key(|process| process.pid);
        Ok(processes)
    }

    fn send(&self, request: Request) -> Result<(), ClientError> {
        let sent = packet::send(&self.0, &request.encode(), &[], SendFlags::empty());
        sent.map_err(|_| ClientError::NoAnswer)
    }
}

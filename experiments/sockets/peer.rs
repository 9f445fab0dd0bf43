//! A process at the other end of connections, on the other core.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::{env, thread};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use levada_harness::pin;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;

use super::exchange::receive_exactly;
use super::subject::{End, SUBJECTS, Subject};

/// Connections before those that are measured: the first ones of two processes may be the kernel's.
const FIRST: usize = 16;

/// The order in which the process serves connections.
#[derive(Clone, Copy, ValueEnum)]
pub enum Way {
    /// One after the other.
    Single,
    /// All that are open, by epoll.
    Many,
}

/// A process that sends messages back.
#[derive(Args)]
pub struct Serve {
    /// The order in which it serves connections
    way: Way,
    /// The subject's name
    subject: String,
    /// Bytes of a message
    length: usize,
    /// The path of a Unix socket
    #[arg(long)]
    path: Option<PathBuf>,
}

impl Serve {
    /// Prints the port, and serves until its parent ends it.
    pub fn run(&self) -> anyhow::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        use_all_cores()?;
        pin(1)?;
        let subject = SUBJECTS.into_iter().find(|subject| subject.to_string() == self.subject);
        let subject = subject.context("no subject has this name")?;
        if let Some(path) = &self.path {
            let listener = UnixListener::bind(path)?;
            levada_harness::print("0\n")?;
            return self.serve_each(|| Ok(Box::new(listener.accept()?.0)));
        }
        let listener = TcpListener::bind("127.0.0.1:0")?;
        levada_harness::print(&format!("{}\n", listener.local_addr()?.port()))?;
        match self.way {
            Way::Single => {
                self.serve_each(|| Ok(Box::new(prepared(listener.accept()?.0, subject)?)))
            }
            Way::Many => self.serve_many(&listener),
        }
    }

    fn serve_each(&self, accept: impl Fn() -> anyhow::Result<Box<dyn End>>) -> anyhow::Result<()> {
        let mut message = vec![0; self.length];
        loop {
            let mut end = accept()?;
            while receive_exactly(&mut *end, &mut message)? {
                end.send(&message)?;
            }
        }
    }

    /// The calls are those of libc, which fast sockets see.
    fn serve_many(&self, listener: &TcpListener) -> anyhow::Result<()> {
        listener.set_nonblocking(true)?;
        let epoll: OwnedFd = uapi::epoll_create1(0)?.into();
        add(&epoll, listener.as_raw_fd())?;
        let mut open: HashMap<RawFd, TcpStream> = HashMap::new();
        let mut message = vec![0; self.length];
        loop {
            let mut events = [uapi::c::epoll_event { events: 0, u64: 0 }; 64];
            let count = uapi::epoll_wait(epoll.as_raw_fd(), &mut events, -1)?;
            for event in &events[..count] {
                let fd = event.u64 as RawFd;
                match open.get_mut(&fd) {
                    Some(stream) => {
                        if !answer(stream, &mut message)? {
                            open.remove(&fd);
                        }
                    }
                    None => accept_all(listener, &epoll, &mut open)?,
                }
            }
        }
    }
}

/// Lets this process use all cores: the thread that has started it may be pinned to one.
pub fn use_all_cores() -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| set.set(core));
    Ok(sched_setaffinity(None, &set)?)
}

fn add(epoll: &OwnedFd, fd: RawFd) -> anyhow::Result<()> {
    let event = uapi::c::epoll_event { events: uapi::c::EPOLLIN as u32, u64: fd as u64 };
    Ok(uapi::epoll_ctl(epoll.as_raw_fd(), uapi::c::EPOLL_CTL_ADD, fd, Some(&event))?)
}

fn accept_all(
    listener: &TcpListener,
    epoll: &OwnedFd,
    open: &mut HashMap<RawFd, TcpStream>,
) -> anyhow::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                add(epoll, stream.as_raw_fd())?;
                open.insert(stream.as_raw_fd(), stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends back what is there. `false` at the end of the stream.
fn answer(stream: &mut TcpStream, message: &mut [u8]) -> anyhow::Result<bool> {
    match stream.read(message) {
        Ok(0) => Ok(false),
        Ok(length) => {
            stream.write_all(&message[..length])?;
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn prepared(stream: TcpStream, subject: Subject) -> anyhow::Result<TcpStream> {
    stream.set_nonblocking(subject.spins())?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns true for a connection that the kernel does not know. The call is made by its number,
/// which the library does not see.
pub fn is_direct(stream: &TcpStream) -> bool {
    rustix::net::getpeername(stream).err() == Some(rustix::io::Errno::NOTCONN)
}

/// A process of this program.
pub fn spawn(
    arguments: &[String],
) -> anyhow::Result<(Child, BufReader<std::process::ChildStdout>)> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("sockets").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("start a process of this program")?;
    let output = child.stdout.take().context("no standard output")?;
    Ok((child, BufReader::new(output)))
}

/// The next line of an output.
pub fn line(output: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    ensure!(line.ends_with('\n'), "the process at the other end has ended");
    Ok(line.trim().to_owned())
}

/// The process, ended when dropped. It ends with the thread that has started it.
pub struct Peer {
    child: Child,
    subject: Subject,
    address: SocketAddr,
    folder: Option<TempDir>,
    length: usize,
}

impl Peer {
    /// Starts it.
    pub fn start(way: Way, subject: Subject, length: usize) -> anyhow::Result<Self> {
        let way = way.to_possible_value().context("no such way")?.get_name().to_owned();
        let mut arguments = vec!["serve".into(), way, subject.to_string(), length.to_string()];
        let folder = (subject == Subject::Unix).then(tempfile::tempdir).transpose()?;
        if let Some(folder) = &folder {
            let path = folder.path().join("socket").display().to_string();
            arguments.extend(["--path".into(), path]);
        }
        let (child, mut output) = spawn(&arguments)?;
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut peer = Self { child, subject, address, folder, length };
        peer.address.set_port(line(&mut output)?.parse()?);
        Ok(peer)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection to it.
    pub fn connect(&self) -> anyhow::Result<Box<dyn End>> {
        Ok(match &self.folder {
            Some(folder) => Box::new(UnixStream::connect(folder.path().join("socket"))?),
            None => Box::new(prepared(TcpStream::connect(self.address)?, self.subject)?),
        })
    }

    /// Makes the first connections, after which each is as the subject says.
    pub fn introduce(&self) -> anyhow::Result<()> {
        let mut message = vec![7; self.length];
        for _ in 0..FIRST {
            let mut end = self.connect()?;
            end.send(&message)?;
            ensure!(receive_exactly(&mut *end, &mut message)?, "the other end has ended");
        }
        if self.subject == Subject::FastDirect {
            let stream = TcpStream::connect(self.address)?;
            ensure!(is_direct(&stream), "the kernel has made connection {FIRST}");
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Accepts connections in a thread, and sends a byte on each.
pub fn accept_first(listener: TcpListener) -> thread::JoinHandle<anyhow::Result<Vec<TcpStream>>> {
    thread::spawn(move || (0..FIRST).map(|_| say_hello(&listener)).collect())
}

/// The connections of [`accept_first`], in this thread.
pub fn accept_here(listener: &TcpListener) -> anyhow::Result<Vec<TcpStream>> {
    (0..FIRST).map(|_| say_hello(listener)).collect()
}

fn say_hello(listener: &TcpListener) -> anyhow::Result<TcpStream> {
    let (mut stream, _) = listener.accept()?;
    stream.write_all(&[7])?;
    Ok(stream)
}

/// As many connections to it, each once it was accepted.
pub fn connect_first(address: SocketAddr) -> anyhow::Result<Vec<TcpStream>> {
    let connect = |_| {
        let mut stream = TcpStream::connect(address)?;
        stream.read_exact(&mut [0])?;
        Ok(stream)
    };
    (0..FIRST).map(connect).collect()
}

//! What carries bytes between two threads.

use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, ensure};
use levada_ring::{Consumer, OwnedHalf, Producer, Segment, Side, Waiter};

/// A subject.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// TCP over loopback, with calls that block.
    Tcp,
    /// The same without TCP_NODELAY: with Nagle's algorithm.
    TcpNagle,
    /// TCP over loopback; an end that waits calls again and again.
    TcpSpinning,
    /// TCP as `Tcp`; the kernel passes what is sent straight to the other socket (eBPF sockmap).
    TcpSockmap,
    /// A Unix socket, with calls that block.
    Unix,
    /// TCP as `Tcp`, in a process with fast sockets.
    Fast,
    /// The same; a wait sleeps at once.
    FastSleeping,
    /// TCP as `TcpSpinning`, in a process with fast sockets.
    FastSpinning,
    /// TCP as `Tcp`, between processes that `levada fast --direct` starts.
    FastDirect,
    /// A ring of shared memory alone; an end that waits looks again and again.
    RingSpinning,
    /// The same; an end that waits sleeps.
    RingSleeping,
}

/// All of them.
pub const SUBJECTS: [Subject; 11] = [
    Subject::Tcp,
    Subject::TcpNagle,
    Subject::TcpSpinning,
    Subject::TcpSockmap,
    Subject::Unix,
    Subject::Fast,
    Subject::FastSleeping,
    Subject::FastSpinning,
    Subject::FastDirect,
    Subject::RingSpinning,
    Subject::RingSleeping,
];

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::TcpNagle => "tcp/nagle",
            Self::TcpSpinning => "tcp/spinning",
            Self::TcpSockmap => "tcp/sockmap",
            Self::Unix => "unix",
            Self::Fast => "fast",
            Self::FastSleeping => "fast/sleeping",
            Self::FastSpinning => "fast/spinning",
            Self::FastDirect => "fast/direct",
            Self::RingSpinning => "ring/spinning",
            Self::RingSleeping => "ring/sleeping",
        })
    }
}

/// One end of a connection.
pub trait End: Send {
    /// Sends all of `bytes`.
    fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()>;

    /// Receives at least one byte, or 0 bytes after the end.
    fn receive(&mut self, buffer: &mut [u8]) -> anyhow::Result<usize>;

    /// Sends the end.
    fn finish(&mut self) -> anyhow::Result<()>;
}

impl Subject {
    /// Whether it can be measured here.
    pub fn is_possible(self) -> bool {
        self != Self::TcpSockmap || Sockmap::is_possible()
    }

    /// Returns true if calls do not block, and are made again and again.
    pub fn spins(self) -> bool {
        matches!(self, Self::TcpSpinning | Self::FastSpinning)
    }

    /// Both ends of a new connection.
    pub fn connect(self) -> anyhow::Result<[Box<dyn End>; 2]> {
        Ok(match self {
            Self::Tcp
            | Self::TcpNagle
            | Self::TcpSpinning
            | Self::Fast
            | Self::FastSleeping
            | Self::FastSpinning
            | Self::FastDirect => {
                let ends = tcp()?;
                for end in &ends {
                    end.set_nonblocking(self.spins())?;
                    end.set_nodelay(self != Self::TcpNagle)?;
                }
                ends.map(|end| Box::new(end) as Box<dyn End>)
            }
            Self::TcpSockmap => {
                let [near, far] = tcp()?;
                let helper = Sockmap::start([&near, &far])?;
                [Box::new(Redirected { stream: near, _helper: helper }), Box::new(far)]
            }
            Self::Unix => {
                let (near, far) = UnixStream::pair()?;
                [Box::new(near), Box::new(far)]
            }
            Self::RingSpinning | Self::RingSleeping => {
                let (file, near) = Segment::create()?;
                let far = Segment::open(&file)?;
                let end = |segment: &Segment, side| {
                    let (producer, consumer) = segment.ends(side);
                    Box::new(RingEnd { producer, consumer, sleeps: self == Self::RingSleeping })
                };
                [end(&near, Side::Connector), end(&far, Side::Acceptor)]
            }
        })
    }
}

fn tcp() -> anyhow::Result<[TcpStream; 2]> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let ends = [TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0];
    for end in &ends {
        end.set_nodelay(true)?;
    }
    Ok(ends)
}

/// The process that has told the kernel to pass bytes between two sockets, which it does as long as
/// that runs.
struct Sockmap {
    helper: Child,
    output: Option<BufReader<ChildStderr>>,
}

impl Sockmap {
    fn start(sockets: [&TcpStream; 2]) -> anyhow::Result<Self> {
        let [near, far] = sockets.map(|socket| socket.try_clone().map(OwnedFd::from));
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("sockmap.py")]).stderr(Stdio::piped());
        let mut helper = command.stdin(near?).stdout(far?).spawn().context("run python3")?;
        let mut output = helper.stderr.take().map(BufReader::new);
        let mut line = String::new();
        if let Some(output) = &mut output {
            output.read_line(&mut line)?;
        }
        let started = Self { helper, output };
        ensure!(line == "done\n", "the kernel does not pass bytes between sockets: {line}");
        Ok(started)
    }

    /// Whether the kernel lets this user do it.
    fn is_possible() -> bool {
        static POSSIBLE: OnceLock<bool> = OnceLock::new();
        *POSSIBLE.get_or_init(|| tcp().and_then(|[near, far]| Self::start([&near, &far])).is_ok())
    }
}

impl Drop for Sockmap {
    fn drop(&mut self) {
        // It ends when this is closed.
        drop(self.output.take());
        let _ = self.helper.wait();
    }
}

struct Redirected {
    stream: TcpStream,
    _helper: Sockmap,
}

impl End for Redirected {
    fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream.send(bytes)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> anyhow::Result<usize> {
        self.stream.receive(buffer)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.stream.finish()
    }
}

/// Calls again while a call would block: only calls of [`Subject::TcpSpinning`] do.
fn spin<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            done => return done,
        }
    }
}

impl End for TcpStream {
    fn send(&mut self, mut bytes: &[u8]) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            bytes = &bytes[spin(|| self.write(bytes))?..];
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> anyhow::Result<usize> {
        Ok(spin(|| self.read(buffer))?)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        Ok(self.shutdown(std::net::Shutdown::Write)?)
    }
}

impl End for UnixStream {
    fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.write_all(bytes)?)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> anyhow::Result<usize> {
        Ok(self.read(buffer)?)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        Ok(self.shutdown(std::net::Shutdown::Write)?)
    }
}

/// Longer than any wait of an experiment. A wait that takes longer only looks at the ring once
/// more.
const LONG: Duration = Duration::from_secs(10);

struct RingEnd {
    producer: Producer<OwnedHalf>,
    consumer: Consumer<OwnedHalf>,
    sleeps: bool,
}

impl End for RingEnd {
    fn send(&mut self, mut bytes: &[u8]) -> anyhow::Result<()> {
        loop {
            let pushed = self.producer.push(bytes)?;
            // Both ends sleep by futex, which is woken by the ring.
            let _ = self.producer.publish();
            bytes = &bytes[pushed..];
            if bytes.is_empty() {
                return Ok(());
            }
            if !self.sleeps {
                std::hint::spin_loop();
            } else if self.producer.prepare_sleep(Waiter::Futex)? {
                self.producer.sleeper().sleep(LONG, true);
                let _ = self.producer.awake(Waiter::Futex);
            }
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> anyhow::Result<usize> {
        loop {
            let (received, _) = self.consumer.read(buffer)?;
            if received > 0 {
                return Ok(received);
            }
            if self.consumer.is_finished() && self.consumer.readable()? == 0 {
                return Ok(0);
            }
            if !self.sleeps {
                std::hint::spin_loop();
            } else if self.consumer.prepare_sleep(Waiter::Futex)? {
                self.consumer.sleeper().sleep(LONG, true);
                let _ = self.consumer.awake(Waiter::Futex);
            }
        }
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let _ = self.producer.finish();
        Ok(())
    }
}

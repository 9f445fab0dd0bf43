//! What carries bytes between two threads.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use levada_ring::{Consumer, Half, Producer, Segment, Side, Waiter};

/// A subject.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// TCP over loopback, with calls that block.
    Tcp,
    /// TCP over loopback; an end that waits calls again and again.
    TcpSpinning,
    /// A Unix socket, with calls that block.
    Unix,
    /// TCP as `Tcp`, in a process with fast sockets.
    Fast,
    /// The same; a wait sleeps at once.
    FastSleeping,
    /// TCP as `TcpSpinning`, in a process with fast sockets.
    FastSpinning,
    /// A ring of shared memory alone; an end that waits looks again and again.
    RingSpinning,
    /// The same; an end that waits sleeps.
    RingSleeping,
}

/// All of them.
pub const SUBJECTS: [Subject; 8] = [
    Subject::Tcp,
    Subject::TcpSpinning,
    Subject::Unix,
    Subject::Fast,
    Subject::FastSleeping,
    Subject::FastSpinning,
    Subject::RingSpinning,
    Subject::RingSleeping,
];

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::TcpSpinning => "tcp/spinning",
            Self::Unix => "unix",
            Self::Fast => "fast",
            Self::FastSleeping => "fast/sleeping",
            Self::FastSpinning => "fast/spinning",
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
    /// Both ends of a new connection.
    pub fn connect(self) -> anyhow::Result<[Box<dyn End>; 2]> {
        Ok(match self {
            Self::Tcp
            | Self::TcpSpinning
            | Self::Fast
            | Self::FastSleeping
            | Self::FastSpinning => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let near = TcpStream::connect(listener.local_addr()?)?;
                let far = listener.accept()?.0;
                for end in [&near, &far] {
                    end.set_nodelay(true)?;
                    end.set_nonblocking(matches!(self, Self::TcpSpinning | Self::FastSpinning))?;
                }
                [Box::new(near), Box::new(far)]
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

/// Longer than any wait of an experiment. A wait that takes longer only looks at the ring once more.
const LONG: Duration = Duration::from_secs(10);

struct RingEnd {
    producer: Producer<Half>,
    consumer: Consumer<Half>,
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
                self.producer.awake();
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
                self.consumer.awake();
            }
        }
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let _ = self.producer.finish();
        Ok(())
    }
}

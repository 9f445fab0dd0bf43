//! A forwarded connection, and bytes through it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use socket2::SockRef;

use super::programs::Programs;
use crate::process_tree::ProcessTree;
use crate::program::{Program, Side, free_address, poll_until};
use crate::testbed::Testbed;

/// The length of a write and of a read, in bytes.
const PART: usize = 256 * 1024;
/// The time limit of each wait for the other end.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the bytes flow to.
#[derive(Clone, Copy)]
pub enum Direction {
    /// To the near end.
    Down,
    /// To the far end.
    Up,
}

/// A listening address at the near end, whose connections a program forwards to a target at the far
/// end.
pub struct Tunnel {
    program: Program,
    listen: SocketAddr,
    target: TcpListener,
}

impl Tunnel {
    /// Starts the program, and waits until it forwards connections.
    pub fn start(testbed: &Testbed, programs: &Programs) -> anyhow::Result<Self> {
        let listen = free_address(testbed, Side::Near)?;
        let (target, address) = testbed.listen()?;
        target.set_nonblocking(true)?;
        let command = programs.forward(listen, address);
        let mut program = Program::start_quiet(testbed, Side::Near, command)?;
        let mut near = None;
        poll_until("the tunnel", || {
            ensure!(program.is_running()?, "the program that forwards connections has ended");
            // A forwarder that has no far end yet refuses connections, or resets them.
            if !near.as_ref().is_some_and(is_open) {
                near = Side::Near.run(testbed, || TcpStream::connect(listen))?.ok();
            }
            match target.accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
                accepted => Ok(Some(accepted?)),
            }
        })?;
        target.set_nonblocking(false)?;
        SockRef::from(&target).set_read_timeout(Some(LIMIT))?;
        Ok(Self { program, listen, target })
    }

    /// The processes of the program.
    pub fn client(&self) -> anyhow::Result<ProcessTree> {
        Ok(ProcessTree(self.program.id()?))
    }

    /// The seconds from connecting until `length` bytes have crossed a new connection.
    pub fn transfer(
        &self,
        testbed: &Testbed,
        length: u64,
        direction: Direction,
    ) -> anyhow::Result<f64> {
        let start = Instant::now();
        let near = Side::Near.run(testbed, || TcpStream::connect(self.listen))??;
        let (far, _) = self.target.accept().context("accept a forwarded connection")?;
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(LIMIT))?;
            socket.set_write_timeout(Some(LIMIT))?;
        }
        let (sender, receiver) = match direction {
            Direction::Down => (far, near),
            Direction::Up => (near, far),
        };
        thread::scope(|scope| {
            let sending = scope.spawn(move || send(sender, length));
            let received = receive(receiver)?;
            let seconds = start.elapsed().as_secs_f64();
            sending.join().map_err(|_| anyhow!("the sender panicked"))??;
            ensure!(received == length, "{received} of {length} bytes arrived");
            Ok(seconds)
        })
    }
}

/// Whether the other end has not closed a connection through which nothing comes.
fn is_open(socket: &TcpStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(rustix::net::recv(socket, &mut [0], flags), Err(Errno::AGAIN))
}

/// Sends so many bytes, and closes the connection.
fn send(mut socket: TcpStream, length: u64) -> anyhow::Result<()> {
    let part = vec![7; PART];
    let mut left = length;
    while left > 0 {
        let now = left.min(PART as u64);
        socket.write_all(&part[..usize::try_from(now)?])?;
        left -= now;
    }
    Ok(())
}

/// The number of bytes that arrive until the end.
fn receive(mut socket: TcpStream) -> anyhow::Result<u64> {
    let mut part = vec![0; PART];
    let mut received = 0;
    loop {
        match socket.read(&mut part)? {
            0 => return Ok(received),
            count => received += count as u64,
        }
    }
}

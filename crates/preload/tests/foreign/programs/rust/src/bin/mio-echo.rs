//! An echo server and its client on mio: edge-triggered, one thread.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use foreign_programs::{Job, Received, Role, part, role};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);

fn main() {
    match role() {
        Role::Server(address) => serve(&address),
        Role::Client(job) => client(&job),
    }
}

/// A connection of the server, with the bytes that it still owes.
struct Echo {
    stream: TcpStream,
    pending: Vec<u8>,
}

impl Echo {
    /// Reads and writes until both would block. Returns false at the end.
    fn step(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        loop {
            while !self.pending.is_empty() {
                match self.stream.write(&self.pending) {
                    Ok(sent) => drop(self.pending.drain(..sent)),
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => self.pending.extend_from_slice(&buffer[..length]),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}

fn serve(address: &str) {
    let mut poll = Poll::new().unwrap();
    let mut events = Events::with_capacity(64);
    let mut listener = TcpListener::bind(address.parse().unwrap()).unwrap();
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE).unwrap();
    let mut connections = HashMap::new();
    let mut next = 0;
    loop {
        poll.poll(&mut events, None).unwrap();
        for event in &events {
            if event.token() != LISTENER {
                let ended =
                    connections.get_mut(&event.token()).is_some_and(|it: &mut Echo| !it.step());
                if ended {
                    connections.remove(&event.token());
                }
                continue;
            }
            while let Ok((mut stream, _)) = listener.accept() {
                let interest = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(&mut stream, Token(next), interest).unwrap();
                connections.insert(Token(next), Echo { stream, pending: Vec::new() });
                next += 1;
            }
        }
    }
}

/// A connection of the client.
struct Exchange {
    stream: TcpStream,
    received: Received,
    sent: usize,
    rounds: usize,
    has_shut: bool,
}

impl Exchange {
    /// Sends what is allowed: a small message after each answer, later a stream.
    fn send(&mut self, job: &Job) {
        while self.sent < job.bytes {
            let limit = match self.rounds {
                20.. => part(self.sent),
                _ if self.received.bytes < self.sent => return,
                round => round * 37 + 1,
            };
            match self.stream.write(job.chunk(self.sent, limit)) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
            self.rounds += 1;
        }
        if !self.has_shut {
            self.has_shut = true;
            self.stream.shutdown(Shutdown::Write).unwrap();
        }
    }

    /// Sends and receives until both would block. Returns false at the end of the stream.
    fn step(&mut self, job: &Job) -> bool {
        let mut buffer = [0; 65_536];
        loop {
            self.send(job);
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => self.received.add(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn client(job: &Job) {
    let mut poll = Poll::new().unwrap();
    let mut events = Events::with_capacity(64);
    let address = job.address.parse().unwrap();
    let mut open: HashMap<usize, Exchange> = HashMap::new();
    for at in 0..job.connections {
        let mut stream = TcpStream::connect(address).unwrap();
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut stream, Token(at), interest).unwrap();
        let received = Received::default();
        open.insert(at, Exchange { stream, received, sent: 0, rounds: 0, has_shut: false });
    }
    let mut lines = vec![String::new(); job.connections];
    while !open.is_empty() {
        poll.poll(&mut events, None).unwrap();
        for event in &events {
            let at = event.token().0;
            let ended = open.get_mut(&at).is_some_and(|exchange| !exchange.step(job));
            if ended {
                lines[at] = open.remove(&at).unwrap().received.line(at);
            }
        }
    }
    println!("{}", lines.join("\n"));
}

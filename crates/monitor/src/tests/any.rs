//! Processes that send anything.

use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use levada_ring::records::Records;
use levada_ring::wire::{LENGTH, Request, VERSION};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

use super::support::{PATIENT, Process, Running, tcp};
use super::{exchange, paired};
use crate::packet;

/// One message: its kind, two numbers, and the kinds of the descriptors with it.
type Message = (u8, u64, u64, Vec<u8>);

/// Descriptors of all kinds.
struct Kinds {
    records: OwnedFd,
    eventfd: OwnedFd,
    tcp: TcpStream,
    packets: [OwnedFd; 2],
}

impl Kinds {
    fn new(tcp: TcpStream) -> Self {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let pair = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
        Self {
            records: Records::create().unwrap().0,
            eventfd: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            tcp,
            packets: pair.into(),
        }
    }

    fn of(&self, kind: u8) -> BorrowedFd<'_> {
        match kind % 4 {
            0 => self.records.as_fd(),
            1 => self.eventfd.as_fd(),
            2 => self.tcp.as_fd(),
            _ => self.packets[usize::from(kind / 4 % 2)].as_fd(),
        }
    }
}

fn bytes(kind: u8, first: u64, second: u64) -> [u8; LENGTH] {
    match kind % 10 {
        0 => Request::Hello { version: VERSION, run: first, pid: second as u32 }.encode(),
        1 => Request::Adopt.encode(),
        2 | 3 => Request::Offer { connection: first }.encode(),
        4 => Request::Withdraw { connection: first }.encode(),
        5 => Request::List { run: first % 3 }.encode(),
        6 => Request::Watch { run: first % 3 }.encode(),
        _ => {
            let mut bytes = [kind; LENGTH];
            bytes[8..16].copy_from_slice(&first.to_le_bytes());
            bytes
        }
    }
}

fn send(process: &Process, kinds: &Kinds, (kind, first, second, with): &Message) {
    let mut with: Vec<_> =
        with.iter().take(packet::DESCRIPTORS).map(|kind| kinds.of(*kind)).collect();
    if *kind % 10 == 0 && *first % 2 == 0 {
        with = vec![kinds.records.as_fd()];
        with.resize(packet::DESCRIPTORS, kinds.eventfd.as_fd());
    }
    // The monitor may have closed the connection.
    let _ =
        packet::send(&process.socket, &bytes(*kind, *first, *second), &with, SendFlags::DONTWAIT);
}

#[test]
fn whatever_processes_send_the_monitor_serves_others() {
    let monitor = Running::start(PATIENT);
    let (near, _far, _listener) = tcp();
    let kinds = Kinds::new(near);
    let path = monitor.path();
    bolero::check!().with_type::<Vec<Message>>().for_each(|messages| {
        let process = Process::connect(&path);
        messages.iter().for_each(|message| send(&process, &kinds, message));
    });
    let one = monitor.process(1);
    let other = monitor.process(2);
    let (near, far, _listener) = tcp();
    one.offer_socket(1, &near);
    other.offer_socket(1, &far);
    exchange(&paired(&one, 1), &paired(&other, 1));
}

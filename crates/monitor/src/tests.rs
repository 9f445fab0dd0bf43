//! A monitor with real sockets.

mod any;
mod direct;
pub(crate) mod support;

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use levada_ring::HALF;
use levada_ring::wire::{Refusal, Request, Response, VERSION, WAKING};
use levada_ring::{Segment, Side};
use rustix::event::epoll;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};

use crate::clients::Clients;
use crate::options::Options;
use crate::packet::{NoPacket, receive};
use crate::server::Monitor;
use crate::{Client, ClientError, ListenError};
use support::{GARBAGE, LONG, PATIENT, Process, Running, SameAddress, connected, eventually, tcp};

/// What a process has received for a connection that was paired.
struct Paired {
    side: Side,
    peer: u32,
    segment: Segment,
    bells: Vec<OwnedFd>,
}

fn paired(process: &Process, number: u64) -> Paired {
    let (response, mut descriptors) = process.receive();
    let Response::Paired { connection, side, peer, bells } = response else {
        panic!("{response:?}");
    };
    assert_eq!(connection, number);
    assert_eq!(descriptors.len(), if bells { 1 + WAKING } else { 1 });
    let segment = Segment::open(descriptors.remove(0)).unwrap();
    Paired { side, peer, segment, bells: descriptors }
}

/// Sends bytes both ways through the segment.
fn exchange(one: &Paired, other: &Paired) {
    assert_ne!(one.side, other.side);
    let mut ends = [one, other].map(|end| end.segment.ends(end.side));
    for (from, to) in [(0, 1), (1, 0)] {
        assert_eq!(ends[from].0.push(b"by ring"), Ok(7));
        assert_eq!(ends[from].0.publish(), None);
        let mut buffer = [0; 20];
        assert_eq!(ends[to].1.read(&mut buffer), Ok((7, None)));
        assert_eq!(&buffer[..7], b"by ring");
    }
}

fn refused(process: &Process) -> (u64, Refusal) {
    match process.response() {
        Response::Refused { connection, refusal } => (connection, refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_processes_get_one_segment_and_are_introduced_once() {
    let monitor = Running::start(PATIENT);
    let one = monitor.process(1);
    let other = monitor.process(2);
    let (near, far, listener) = tcp();
    one.offer_socket(5, &near);
    other.offer_socket(6, &far);
    let mine = paired(&one, 5);
    let theirs = paired(&other, 6);
    exchange(&mine, &theirs);
    for (bell, descriptor) in theirs.bells.iter().enumerate() {
        Process::ring_bell(descriptor);
        assert!(one.has_rung(bell));
    }
    Process::ring_bell(&mine.bells[0]);
    assert!(other.has_rung(0));

    let (near, far) = connected(&listener);
    other.offer_socket(7, &near);
    one.offer_socket(8, &far);
    let again = paired(&one, 8);
    let back = paired(&other, 7);
    exchange(&again, &back);
    assert!(again.bells.is_empty() && back.bells.is_empty());
    assert_eq!((again.peer, back.peer), (mine.peer, theirs.peer));

    drop(other);
    assert_eq!(one.response(), Response::Gone { peer: mine.peer });
}

#[test]
fn both_ends_can_be_in_one_process() {
    let monitor = Running::start(PATIENT);
    let process = monitor.process(1);
    let (near, far, _listener) = tcp();
    process.offer_socket(1, &far);
    process.offer_socket(2, &near);
    let one = paired(&process, 1);
    let other = paired(&process, 2);
    exchange(&one, &other);
    assert!(one.bells.is_empty() && other.bells.is_empty());
    assert_eq!((one.peer, other.peer), (0, 0));
}

#[test]
fn an_offer_without_its_counterpart_is_refused() {
    let monitor = Running::start(Options { offer_timeout: Duration::from_millis(20), ..PATIENT });
    let process = monitor.process(1);
    let (near, _far, listener) = tcp();
    process.offer_socket(1, &near);
    assert_eq!(refused(&process), (1, Refusal::NoPeer));
    process.offer_socket(2, &listener);
    assert_eq!(refused(&process), (2, Refusal::NotTcp));
}

#[test]
fn a_thousand_connections_are_paired() {
    let monitor = Running::start(PATIENT);
    let one = monitor.process(1);
    let other = monitor.process(2);
    let (_, _, listener) = tcp();
    for round in 0..20 {
        let sockets: Vec<_> = (0..50).map(|_| connected(&listener)).collect();
        for (at, (near, far)) in (0..).zip(&sockets) {
            let (first, second) = if at % 2 == 0 { (&one, &other) } else { (&other, &one) };
            first.offer_socket(round * 100 + at, near);
            second.offer_socket(round * 100 + at, far);
        }
        let receive = |process: &Process| -> HashMap<u64, Paired> {
            let all = (0..50).map(|_| {
                let (response, mut descriptors) = process.receive();
                let Response::Paired { connection, side, peer, bells } = response else {
                    panic!("{response:?}");
                };
                assert_eq!(bells, round == 0 && descriptors.len() > 1);
                let segment = Segment::open(descriptors.remove(0)).unwrap();
                (connection, Paired { side, peer, segment, bells: descriptors })
            });
            all.collect()
        };
        let mine = receive(&one);
        let theirs = receive(&other);
        assert_eq!(mine.len(), 50);
        mine.iter().for_each(|(number, end)| exchange(end, &theirs[number]));
    }
}

#[test]
fn only_a_process_that_has_introduced_itself_can_offer() {
    let monitor = Running::start(PATIENT);
    let (near, ..) = tcp();
    let requests = [
        (Request::Offer { connection: 1 }, vec![near.as_fd()]),
        (Request::Withdraw { connection: 1 }, vec![]),
    ];
    for (request, descriptors) in requests {
        let process = Process::connect(&monitor.path());
        process.send(request, &descriptors);
        assert!(process.is_closed());
    }
}

#[test]
fn messages_that_are_none_close_the_connection() {
    let monitor = Running::start(PATIENT);
    let process = |then: &dyn Fn(&Process)| {
        let process = monitor.process(1);
        then(&process);
        assert!(process.is_closed());
    };
    process(&|process| process.send_bytes(&GARBAGE));
    process(&|process| process.send_bytes(b"short"));
    process(&|process| process.send_bytes(&[0; 1000]));
    process(&|process| process.send_bytes(&[]));
    process(&|process| process.hello(1));
    process(&|process| process.send(Request::Offer { connection: 1 }, &[]));
    let pipe = std::io::pipe().unwrap().0;
    process(&|process| process.send(Request::Withdraw { connection: 1 }, &[pipe.as_fd()]));
    process(&|process| process.send(Request::Adopt, &[pipe.as_fd()]));
    process(&|process| {
        (0..1000).for_each(|run| process.send_bytes(&Request::Watch { run }.encode()));
    });
    let other_version = Process::connect(&monitor.path());
    let hello = Request::Hello { version: VERSION + 1, run: 1, pid: 1 };
    other_version.send(hello, &[pipe.as_fd(); 1 + WAKING]);
    assert!(other_version.is_closed());
}

#[test]
fn a_socket_that_is_handed_over_becomes_a_client() {
    let monitor = Running::start(PATIENT);
    let parent = Process::connect(&monitor.path());
    let (child, far) = Process::pair();
    parent.send(Request::Adopt, &[far.as_fd()]);
    parent.hello(1);
    child.hello(1);
    let (near, far_end, _listener) = tcp();
    child.offer_socket(1, &near);
    parent.offer_socket(1, &far_end);
    exchange(&paired(&child, 1), &paired(&parent, 1));
    // The socket is still open here: the monitor must not wait for events of it for ever.
    child.send_bytes(&GARBAGE);
    assert!(matches!(parent.response(), Response::Gone { .. }));
    parent.settle();
    drop(far);
}

#[test]
fn an_offer_that_is_taken_back_is_not_paired() {
    let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
    let mut clients = Clients::new(epoll, PATIENT).unwrap();
    let (one, first) = Process::pair();
    let (other, second) = Process::pair();
    let first = clients.add(first).unwrap();
    let second = clients.add(second).unwrap();
    one.hello(1);
    other.hello(2);
    let (near, far, _listener) = tcp();
    one.offer_socket(1, &near);
    clients.receive(first);
    clients.receive(second);
    clients.handle(Duration::ZERO);
    // The monitor finds out about the offer of the other end first.
    one.end_offer(1);
    one.offer_socket(2, &near);
    other.offer_socket(1, &far);
    clients.receive(second);
    clients.handle(Duration::ZERO);
    clients.receive(first);
    clients.handle(Duration::ZERO);
    exchange(&paired(&one, 2), &paired(&other, 1));

    // As does the end of a process.
    other.offer_socket(3, &far);
    clients.receive(second);
    clients.handle(Duration::ZERO);
    drop(other);
    one.offer_socket(3, &near);
    clients.receive(first);
    clients.handle(Duration::ZERO);
    assert!(matches!(one.response(), Response::Gone { .. }));
    clients.expire(LONG);
    assert_eq!(refused(&one), (3, Refusal::NoPeer));
}

/// A process offers a connection and closes it. The next connection with the same addresses is
/// another one.
#[test]
fn an_offer_of_a_closed_connection_is_not_paired_with_the_next_one() {
    let monitor = Running::start(Options { offer_timeout: Duration::from_secs(2), ..PATIENT });
    let attacker = monitor.process(1);
    let server = monitor.process(2);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = SameAddress::new(1);
    let (near, far) = client.connect(&listener);
    attacker.offer_socket(1, &near);
    attacker.settle();
    drop((near, far));
    let (_next, accepted) = client.connect(&listener);
    server.offer_socket(2, &accepted);
    assert_eq!(refused(&server), (2, Refusal::NoPeer));
    attacker.settle();
}

/// The last close of a socket waits while its bytes are not sent, if SO_LINGER says so.
#[test]
fn a_close_that_waits_delays_no_client() {
    let monitor = Running::start(PATIENT);
    let attacker = monitor.process(1);
    let other = monitor.process(2);
    let (near, _far, _listener) = tcp();
    // The receiver does not read.
    near.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut &near, &[0; 1 << 16]).is_ok() {}
    set_socket_linger(&near, Some(2 * LONG)).unwrap();
    // The monitor receives the last descriptor, with what is no request.
    let (sender, receiver) = Process::pair();
    sender.send(Request::Withdraw { connection: 1 }, &[near.as_fd()]);
    drop(near);
    attacker.send(Request::Adopt, &[receiver.as_fd()]);
    drop(receiver);
    assert!(sender.is_closed());
    other.settle();
}

#[test]
fn a_client_adds_no_more_than_its_share() {
    let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
    let mut clients = Clients::new(epoll, PATIENT).unwrap();
    crate::server::raise_limits();
    let (parent, socket) = Process::pair();
    let number = clients.add(socket).unwrap();
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let mut children = Vec::new();
    for _ in 0..1025 {
        let (near, far) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
        parent.send(Request::Adopt, &[far.as_fd()]);
        clients.receive(number);
        clients.handle(Duration::ZERO);
        children.push(near);
    }
    let is_open = |socket: &OwnedFd| {
        receive(socket, RecvFlags::DONTWAIT).is_err_and(|end| end == NoPacket::Yet)
    };
    assert_eq!(children.iter().filter(|child| is_open(child)).count(), 1024);
}

#[test]
fn a_client_that_does_not_read_delays_no_other() {
    let monitor = Running::start(PATIENT);
    let deaf = monitor.process(1);
    let pipe = std::io::pipe().unwrap().0;
    for connection in 0..10_000 {
        deaf.offer_socket(connection, &pipe);
    }
    let process = monitor.process(2);
    let (near, far, _listener) = tcp();
    process.offer_socket(1, &near);
    process.offer_socket(2, &far);
    exchange(&paired(&process, 1), &paired(&process, 2));
    // What fitted is there, in order.
    for connection in 0..4000 {
        assert_eq!(refused(&deaf), (connection, Refusal::NotTcp));
    }
}

#[test]
fn lists_have_every_process_of_a_run() {
    let monitor = Running::start(PATIENT);
    // Many more than fit into the buffer of a socket.
    let processes: Vec<Process> = (0..600).map(|_| monitor.process(7)).collect();
    let other = monitor.process(8);
    let client = Client::connect(&monitor.path()).unwrap();
    assert_eq!(client.list(7).unwrap().len(), 600);
    assert_eq!(client.list(0).unwrap().len(), 601);
    let [found] = &client.list(8).unwrap()[..] else { panic!() };
    assert_eq!((found.pid, found.run, found.alive), (8, 8, true));
    assert!(found.records.as_ref().unwrap().connections.is_empty());
    drop((processes, other));
    assert!(client.list(0).unwrap().is_empty());
}

#[test]
fn records_of_ended_processes_are_kept_while_their_run_is_watched() {
    let monitor = Running::start(PATIENT);
    let watcher = Client::connect(&monitor.path()).unwrap();
    watcher.watch(7).unwrap();
    let process = monitor.process(7);
    let child = process.forked(&monitor.path());
    child.hello(7);
    drop((monitor.process(7), monitor.process(8), child));
    let alive = |client: &Client, run| -> Vec<bool> {
        let mut all: Vec<bool> =
            client.list(run).unwrap().iter().map(|process| process.alive).collect();
        all.sort_unstable();
        all
    };
    // The forked child has the records of its parent.
    assert_eq!(alive(&watcher, 7), [false, true]);
    drop(process);
    assert_eq!(alive(&watcher, 0), [false, false]);
    let other = Client::connect(&monitor.path()).unwrap();
    drop(watcher);
    assert_eq!(alive(&other, 0), []);
}

#[test]
fn memory_of_ended_processes_can_be_taken_again() {
    let monitor = Running::start(Options { memory: 10 * HALF, ..PATIENT });
    let one = monitor.process(1);
    let other = monitor.process(2);
    let account = one.account();
    let same = other.account();
    for (process, account, rings) in [(&one, &account, 6), (&other, &same, 3)] {
        assert!(account.take(rings * HALF));
        process.set_rings(rings);
    }
    assert!(!account.take(2 * HALF) && account.take(HALF));
    // What it took last it had not counted yet.
    drop(one);
    eventually("the account has what the others say", || same.taken() == 3 * HALF);
    // Also of one that was forked from it, and has the same records.
    let child = other.forked(&monitor.path());
    child.hello(2);
    child.settle();
    drop(child);
    other.settle();
    assert_eq!(same.taken(), 3 * HALF);
}

#[test]
fn a_monitor_without_clients_ends_and_leaves_no_file() {
    let idle = Some(Duration::from_millis(20));
    let mut monitor = Running::start(Options { idle, ..PATIENT });
    let path = monitor.path();
    // It may have ended before this process is its client.
    if let Ok(client) = Client::connect(&path) {
        let _ = client.list(0);
    }
    monitor.join();
    assert!(matches!(Client::connect(&path), Err(ClientError::NotRunning)));
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    let next = Monitor::bind(&path, Options::default()).unwrap();
    assert!(matches!(Monitor::bind(&path, PATIENT), Err(ListenError::Running)));
    drop(next);
}

const CHILD: &str = "LEVADA_MONITOR_TEST_SOCKET";

/// Does nothing but in a process that [`own_process`] starts.
#[test]
fn serves_in_a_process_of_its_own() {
    if let Some(path) = std::env::var_os(CHILD) {
        Monitor::bind(Path::new(&path), PATIENT).unwrap().run().unwrap();
    }
}

fn own_process(path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::serves_in_a_process_of_its_own"]).env(CHILD, path);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    eventually("the monitor listens", || Client::connect(path).is_ok());
    child
}

#[test]
fn no_descriptor_is_kept_of_connections_and_ended_clients() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run/fast.sock");
    let mut child = own_process(&path);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().count();
    let client = Client::connect(&path).unwrap();
    client.list(0).unwrap();
    let before = open();
    let hello = |run| {
        let process = Process::connect(&path);
        process.hello(run);
        process
    };
    let one = hello(1);
    let other = hello(2);
    one.settle();
    other.settle();
    // Files that are no sockets are closed by another thread.
    let with_processes = before + 2 * (2 + WAKING);
    eventually("files of refused offers are closed", || open() == with_processes);
    let (near, far, listener) = tcp();
    let mut sockets = vec![(near, far)];
    sockets.extend((0..20).map(|_| connected(&listener)));
    let pipe = std::io::pipe().unwrap().0;
    for (number, (near, far)) in (0..).zip(&sockets) {
        one.offer_socket(number, near);
        one.offer_socket(1000 + number, &pipe);
        assert_eq!(refused(&one), (1000 + number, Refusal::NotTcp));
        if number % 3 > 0 {
            other.offer_socket(number, far);
            paired(&one, number);
            paired(&other, number);
        }
    }
    // The file of the last segment is closed after it was sent.
    one.settle();
    eventually("descriptors of offers are closed", || open() == with_processes);
    // The other end of a socket of the monitor: an answer that is sent there comes back as a
    // message that is none.
    let mirror = Process::connect(&path);
    mirror.send(Request::Adopt, &[mirror.socket.as_fd()]);
    mirror.send(Request::List { run: 9 }, &[]);
    drop(mirror);
    // Descriptors that come with what is no message are closed.
    one.send(Request::Withdraw { connection: 1 }, &[pipe.as_fd(); 5]);
    assert!(one.is_closed());
    drop((one, other));
    eventually("all descriptors are closed", || open() == before);
    child.kill().unwrap();
    child.wait().unwrap();
    // Its socket is replaced.
    drop(Monitor::bind(&path, PATIENT).unwrap());
}

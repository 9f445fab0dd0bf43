//! The generator against servers that do what they are told, on loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const EXPECT: Expect = Expect { status: 200, length: Some(4) };
const STALL: Duration = Duration::from_millis(200);
/// How long a test on a machine under load may take.
const LONG: Duration = Duration::from_secs(60);

/// Hands every connection to `serve`, on a thread of its own, until the test ends.
fn server(serve: fn(TcpStream)) -> Target {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.unwrap();
            thread::spawn(move || serve(socket));
        }
    });
    Target { address, requests: vec![REQUEST.to_vec()], expect: EXPECT }
}

/// Reads one request; false at the end.
fn asked(socket: &mut TcpStream) -> bool {
    let mut request = [0; REQUEST.len()];
    socket.read_exact(&mut request).is_ok()
}

fn always(mut socket: TcpStream) {
    while asked(&mut socket) && socket.write_all(ANSWER).is_ok() {}
}

fn once(mut socket: TcpStream) {
    if asked(&mut socket) {
        // In pieces, as a link may deliver them.
        for piece in ANSWER.chunks(7) {
            if socket.write_all(piece).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn stalling(mut socket: TcpStream) {
    let mut number = 0;
    while asked(&mut socket) {
        number += 1;
        if number == 10 {
            thread::sleep(STALL);
        }
        if socket.write_all(ANSWER).is_err() {
            return;
        }
    }
}

fn open(rate: u32, count: u32, reuse: Reuse) -> Plan {
    Plan { alone: false, patience: LONG, ..Plan::new(Load::Open { rate, count }, reuse) }
}

#[test]
fn every_request_is_sent_and_answered_once() {
    for reuse in [Reuse::Many(3), Reuse::One(0)] {
        let serve = if reuse == Reuse::One(0) { once } else { always };
        let seen = run(&server(serve), open(500, 50, reuse)).unwrap();
        assert_eq!((seen.answered, seen.errors.all()), (50, 0));
        assert_eq!((seen.times.len(), seen.lateness.len()), (50, 50));
        assert!(seen.rate() > 0.0 && seen.rate() <= 500.0);
    }
}

#[test]
fn a_stall_is_charged_for_all_that_it_keeps_waiting() {
    let seen = run(&server(stalling), open(500, 200, Reuse::Many(1))).unwrap();
    assert_eq!(seen.errors.all(), 0);
    // A hundred requests were due during the stall, each later than the one before: half of them waited for half of it.
    let half = u64::try_from(STALL.as_nanos() / 2).unwrap();
    let waited = seen.times.count_between(half, u64::MAX);
    assert!(waited >= 40, "{waited}");
}

#[test]
fn a_closed_loop_asks_as_soon_as_it_is_answered() {
    let (warm_up, length) = (Duration::from_millis(20), Duration::from_millis(100));
    for reuse in [Reuse::Many(2), Reuse::One(2)] {
        let serve = if reuse == Reuse::One(2) { once } else { always };
        let target = server(serve);
        let plan = Plan { patience: LONG, ..Plan::new(Load::Closed { warm_up, length }, reuse) };
        let begun = Instant::now();
        // More than one on each connection, unless the machine does something else all the time.
        loop {
            let seen = run(&target, plan).unwrap();
            assert_eq!(seen.errors.all(), 0);
            if seen.answered > 2 {
                break;
            }
            assert!(begun.elapsed() < LONG, "{}", seen.answered);
        }
    }
}

#[test]
fn errors_are_told_apart() {
    let ask = |target: &Target| run(target, open(200, 5, Reuse::One(0))).unwrap();
    let cut = ask(&server(|mut socket| {
        asked(&mut socket);
    }));
    assert_eq!((cut.errors.cut, cut.errors.all(), cut.answered), (5, 5, 0));
    let wrong = ask(&Target { expect: Expect { status: 304, length: None }, ..server(once) });
    assert_eq!((wrong.errors.wrong, wrong.errors.all()), (5, 5));
    let nobody = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let refused = ask(&Target { address: nobody, ..server(once) });
    assert_eq!((refused.errors.refused, refused.errors.all()), (5, 5));
}

#[test]
fn whoever_never_answers_times_out() {
    let silent = server(|mut socket| while asked(&mut socket) {});
    // Both are asked on one connection: the second one's turn never comes.
    let plan = Plan { patience: STALL, ..open(100, 2, Reuse::Many(1)) };
    let seen = run(&silent, plan).unwrap();
    assert_eq!((seen.errors.timed_out, seen.errors.all()), (2, 2));
}

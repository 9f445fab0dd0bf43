//! The generator against scripted servers on loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const EXPECT: Expect = Expect { status: 200, length: Some(4) };
const STALL: Duration = Duration::from_millis(200);
/// The time limit for a test on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// Runs `serve` for every connection, on a new thread, until the test ends.
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
fn read_request(socket: &mut TcpStream) -> bool {
    let mut request = [0; REQUEST.len()];
    socket.read_exact(&mut request).is_ok()
}

fn always(mut socket: TcpStream) {
    while read_request(&mut socket) && socket.write_all(ANSWER).is_ok() {}
}

fn once(mut socket: TcpStream) {
    if read_request(&mut socket) {
        // In pieces, as a network may deliver them.
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
    while read_request(&mut socket) {
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
    Plan { alone: false, timeout: LONG, ..Plan::new(Load::Open { rate, count }, reuse) }
}

#[test]
fn every_request_is_sent_and_answered_once() {
    for reuse in [Reuse::Many(3), Reuse::One(0)] {
        let serve = if reuse == Reuse::One(0) { once } else { always };
        let statistics = run(&server(serve), open(500, 50, reuse)).unwrap();
        assert_eq!((statistics.answered, statistics.errors.all()), (50, 0));
        assert_eq!((statistics.times.len(), statistics.lateness.len()), (50, 50));
        assert!(statistics.rate() > 0.0 && statistics.rate() <= 500.0);
    }
}

#[test]
fn a_stall_counts_for_all_delayed_requests() {
    let statistics = run(&server(stalling), open(500, 200, Reuse::Many(1))).unwrap();
    assert_eq!(statistics.errors.all(), 0);
    // A hundred requests were due at even intervals during the stall: half of them waited for at
    // least half of it.
    let half = u64::try_from(STALL.as_nanos() / 2).unwrap();
    let waited = statistics.times.count_between(half, u64::MAX);
    assert!(waited >= 40, "{waited}");
}

#[test]
fn a_closed_loop_sends_the_next_request_after_the_answer() {
    let warm_up = Duration::from_millis(20);
    let length = Duration::from_millis(100);
    for reuse in [Reuse::Many(2), Reuse::One(2)] {
        let serve = if reuse == Reuse::One(2) { once } else { always };
        let target = server(serve);
        let plan = Plan { timeout: LONG, ..Plan::new(Load::Closed { warm_up, length }, reuse) };
        let begun = Instant::now();
        // More than one answer per connection, unless the machine is overloaded: repeat then.
        loop {
            let statistics = run(&target, plan).unwrap();
            assert_eq!(statistics.errors.all(), 0);
            if statistics.answered > 2 {
                break;
            }
            assert!(begun.elapsed() < LONG, "{}", statistics.answered);
        }
    }
}

#[test]
fn errors_are_counted_by_kind() {
    let ask = |target: &Target| run(target, open(200, 5, Reuse::One(0))).unwrap();
    let cut = ask(&server(|mut socket| {
        read_request(&mut socket);
    }));
    assert_eq!((cut.errors.cut, cut.errors.all(), cut.answered), (5, 5, 0));
    let wrong = ask(&Target { expect: Expect { status: 304, length: None }, ..server(once) });
    assert_eq!((wrong.errors.wrong, wrong.errors.all()), (5, 5));
    let closed_port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let refused = ask(&Target { address: closed_port, ..server(once) });
    assert_eq!((refused.errors.refused, refused.errors.all()), (5, 5));
}

#[test]
fn a_request_without_an_answer_times_out() {
    let silent = server(|mut socket| while read_request(&mut socket) {});
    // Both requests use one connection, so the second one is never sent.
    let plan = Plan { timeout: STALL, ..open(100, 2, Reuse::Many(1)) };
    let statistics = run(&silent, plan).unwrap();
    assert_eq!((statistics.errors.timed_out, statistics.errors.all()), (2, 2));
}

//! The program of the differential suite. It connects to the control socket of a run, makes the
//! calls of libc that each line names, and answers with what they returned. It is an ordinary
//! program: it does not know whether the library is loaded.
//!
//! `PROGRAM NAME FOLDER` starts it. After `exec`, further arguments carry the control socket and
//! the slots.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // An invalid line ends the program.

mod call;
mod confine;
mod control;
mod epoll;
mod flags;
mod options;
mod passing;
mod pattern;
mod poll;
mod processes;
mod pump;
mod receive;
mod send;
mod signals;
mod sockets;
mod state;
mod stdio;
mod threads;

use call::{Failure, Reply};
use state::{State, Words};

fn main() {
    // What an invalid line writes is the same in two runs: without the number of the thread.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (state, mut control) = State::start(&arguments);
    while let Some(line) = control.read() {
        // The child of a fork continues here, with a control socket of its own.
        let reply = match processes::changes_control(state, &mut control, &line) {
            Some(reply) => reply,
            None => run(state, &line),
        };
        control.write(&reply);
    }
}

/// Makes the calls of one line, and formats what they returned.
fn run(state: &'static State, line: &str) -> String {
    match dispatch(state, line) {
        Ok(text) if text.is_empty() => "=".to_owned(),
        Ok(text) => format!("= {text}"),
        Err(Failure { errno, detail }) if detail.is_empty() => format!("! {errno}"),
        Err(Failure { errno, detail }) => format!("! {errno} {detail}"),
    }
}

fn dispatch(state: &'static State, line: &str) -> Reply {
    let mut words = Words::new(line);
    let verb = words.text();
    match verb {
        "socket" | "bind" | "listen" | "connect" | "disconnect" | "accept" | "shutdown"
        | "close" | "close-range" | "dup" | "name" | "peer" | "stat" | "pair" => {
            sockets::run(state, verb, &mut words)
        }
        "set" | "get" | "nonblock" | "flags" | "fionread" | "mark" | "async" => {
            options::run(state, verb, &mut words)
        }
        "out" => send::run(state, &mut words),
        "corked" => send::corked(state, &mut words),
        "zerocopy" => send::zerocopy(state, &mut words),
        "in" => receive::run(state, &mut words),
        "drain" => receive::drain(state, &mut words),
        "poll" => poll::run(state, &mut words),
        "epoll" | "ctl" | "wait" | "turns" => epoll::run(state, verb, &mut words),
        "handle" | "count" => signals::run(verb, &mut words),
        "child" | "spawn" => processes::run(state, verb, &mut words),
        "mailbox" | "pass" | "take" => passing::run(state, verb, &mut words),
        "fdopen" | "fwrite" | "fputs" | "fflush" | "fread" | "fgets" | "fclose" | "dprintf"
        | "aio-read" | "aio-write" => stdio::run(state, verb, &mut words),
        "pump" | "fill" | "swallow" => pump::run(state, verb, &mut words),
        "limit" | "deepbind" | "filter" => confine::run(verb, &mut words),
        "thread" | "join" | "hit" => threads::run(state, verb, &mut words),
        _ => panic!("unknown verb `{verb}`"),
    }
}

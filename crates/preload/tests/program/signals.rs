//! Signals: handlers that count.

use std::ffi::c_int;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::call::{Reply, call};
use crate::sockets::done;
use crate::state::Words;

const SIGNALS: &[(&str, c_int)] = &[
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("URG", libc::SIGURG),
    ("IO", libc::SIGIO),
];

static COUNTS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

extern "C" fn count(signal: c_int) {
    COUNTS[signal as usize].fetch_add(1, Ordering::Relaxed);
}

pub fn number(name: &str) -> c_int {
    let found = SIGNALS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no signal `{name}`")).1
}

pub fn run(verb: &str, words: &mut Words) -> Reply {
    let signal = number(words.text());
    match verb {
        "handle" => handle(signal, words.text()),
        // How often is a matter of timing.
        _ => match COUNTS[signal as usize].swap(0, Ordering::Relaxed) {
            0 => Ok("none".to_owned()),
            _ => Ok("some".to_owned()),
        },
    }
}

/// `handle SIGNAL restart|interrupt|ignore|default`
fn handle(signal: c_int, how: &str) -> Reply {
    // SAFETY: zero is a valid value of this structure.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    match how {
        "ignore" => action.sa_sigaction = libc::SIG_IGN,
        "default" => action.sa_sigaction = libc::SIG_DFL,
        _ => action.sa_sigaction = count as extern "C" fn(c_int) as usize,
    }
    action.sa_flags = if how == "restart" { libc::SA_RESTART } else { 0 };
    done(call!(libc::sigaction: signal, &raw const action, std::ptr::null_mut()))
}

//! `poll` and `select` in their forms.

use std::ffi::{c_int, c_ulong};
use std::os::fd::RawFd;
use std::{mem, ptr};

use crate::call::{Errno, Reply, call};
use crate::flags;
use crate::state::{State, Words};

unsafe extern "C" {
    // What the fortified headers of glibc call.
    fn __poll_chk(entries: *mut libc::pollfd, count: c_ulong, timeout: c_int, size: usize)
    -> c_int;
    fn __ppoll_chk(
        entries: *mut libc::pollfd,
        count: c_ulong,
        timeout: *const libc::timespec,
        mask: *const libc::sigset_t,
        size: usize,
    ) -> c_int;
}

/// `poll FORM TIMEOUT SLOT=EVENTS…`; the timeout is in milliseconds, and -1 is none.
pub fn run(state: &State, words: &mut Words) -> Reply {
    let form = words.text();
    let timeout = words.number();
    let mut asked = Vec::new();
    while let Some(word) = words.optional() {
        let (slot, events) = word.split_once('=').unwrap();
        asked.push((slot, state.descriptor(slot), flags::parse(flags::POLL, events)));
    }
    match form {
        _ if form.contains("select") => select(form, timeout, &asked),
        _ => poll(form, timeout, &asked),
    }
}

/// Seconds and nanoseconds of a timeout; the latter are microseconds for `timeval`.
pub fn timespec(timeout: c_int) -> libc::timespec {
    let timeout = i64::from(timeout.max(0));
    libc::timespec { tv_sec: timeout / 1000, tv_nsec: timeout % 1000 * 1_000_000 }
}

/// No signal is blocked.
pub fn empty_mask() -> libc::sigset_t {
    // SAFETY: zero is a valid value of this type.
    let mut mask = unsafe { mem::zeroed() };
    call!(libc::sigemptyset: &raw mut mask).unwrap();
    mask
}

fn poll(form: &str, timeout: c_int, asked: &[(&str, RawFd, c_int)]) -> Reply {
    let entry = |(_, fd, events): &(&str, RawFd, c_int)| libc::pollfd {
        fd: *fd,
        events: *events as i16,
        // The call overwrites it.
        revents: 0x7fff,
    };
    let mut entries: Vec<_> = asked.iter().map(entry).collect();
    let pointer = entries.as_mut_ptr();
    let count = entries.len() as c_ulong;
    let time = timespec(timeout);
    let mask = empty_mask();
    let time = if timeout < 0 { ptr::null() } else { &raw const time };
    let size = size_of_val(&entries[..]);
    let ready = match form {
        "poll" => call!(libc::poll: pointer, count, timeout),
        "ppoll" => call!(libc::ppoll: pointer, count, time, ptr::null()),
        "ppoll-mask" => call!(libc::ppoll: pointer, count, time, &raw const mask),
        "poll_chk" => call!(__poll_chk: pointer, count, timeout, size),
        "ppoll_chk" => call!(__ppoll_chk: pointer, count, time, ptr::null(), size),
        #[cfg(target_arch = "x86_64")]
        "poll-syscall" => call!(libc::syscall: libc::SYS_poll, pointer, count, timeout),
        "ppoll-syscall" => {
            let mut left = timespec(timeout);
            let time = if timeout < 0 { ptr::null_mut() } else { &raw mut left };
            let ready = call!(libc::syscall: libc::SYS_ppoll, pointer, count, time, ptr::null::<u8>(), 8_usize);
            check_left(timeout, left.tv_sec * 1000 + left.tv_nsec / 1_000_000);
            ready
        }
        _ => panic!("no form `{form}`"),
    }?;
    let reported = asked.iter().zip(&entries).filter(|(_, entry)| entry.revents != 0);
    let reported = reported.map(|((slot, ..), entry)| {
        format!("{slot}={}", flags::format(flags::POLL, i32::from(entry.revents)))
    });
    Ok(format!("{ready} {}", reported.collect::<Vec<_>>().join(" ")).trim_end().to_owned())
}

/// What the kernel leaves of a time is no more than was given.
fn check_left(timeout: c_int, milliseconds: i64) {
    assert!((0..=i64::from(timeout.max(0))).contains(&milliseconds), "{milliseconds} ms are left");
}

/// Reading, writing and exceptional sets: those with `in`, `out` and `pri`.
fn select(form: &str, timeout: c_int, asked: &[(&str, RawFd, c_int)]) -> Reply {
    let kinds = [("r", libc::POLLIN), ("w", libc::POLLOUT), ("e", libc::POLLPRI)];
    let mut sets = kinds.map(|(_, bit)| {
        let wanted = asked.iter().filter(|(.., events)| events & c_int::from(bit) != 0);
        set(wanted.map(|(_, descriptor, _)| *descriptor))
    });
    let most = asked.iter().map(|(_, descriptor, _)| *descriptor).max().unwrap_or(-1);
    let ready = call_select(form, most + 1, &mut sets, timeout)?;
    let mut text = ready.to_string();
    for ((name, _), set) in kinds.iter().zip(&sets) {
        let members = asked.iter().filter(|(_, descriptor, _)| {
            // SAFETY: the set lives, and the descriptor is below its size.
            *descriptor >= 0 && unsafe { libc::FD_ISSET(*descriptor, set) }
        });
        let members: Vec<_> = members.map(|(slot, ..)| *slot).collect();
        text += &format!(" {name}={}", members.join("+"));
    }
    Ok(text)
}

fn set(members: impl Iterator<Item = RawFd>) -> libc::fd_set {
    // SAFETY: zero is the empty set.
    let mut set = unsafe { mem::zeroed() };
    for member in members.filter(|member| (0..libc::FD_SETSIZE as c_int).contains(member)) {
        // SAFETY: the set lives, and the descriptor is below its size.
        unsafe { libc::FD_SET(member, &raw mut set) };
    }
    set
}

fn call_select(
    form: &str,
    count: c_int,
    [r, w, e]: &mut [libc::fd_set; 3],
    timeout: c_int,
) -> Result<usize, Errno> {
    let time = timespec(timeout);
    let mask = empty_mask();
    let r = &raw mut *r;
    let w = &raw mut *w;
    let e = &raw mut *e;
    if form == "pselect" {
        let time = if timeout < 0 { ptr::null() } else { &raw const time };
        return call!(libc::pselect: count, r, w, e, time, &raw const mask);
    }
    if form == "pselect-syscall" {
        let mut left = time;
        let time = if timeout < 0 { ptr::null_mut() } else { &raw mut left };
        // The address of the mask, and its length.
        let mask = [(&raw const mask).addr(), 8];
        let ready = call!(libc::syscall: libc::SYS_pselect6, count, r, w, e, time, &raw const mask);
        check_left(timeout, left.tv_sec * 1000 + left.tv_nsec / 1_000_000);
        return ready;
    }
    let mut time = libc::timeval { tv_sec: time.tv_sec, tv_usec: time.tv_nsec / 1000 };
    let time = if timeout < 0 { ptr::null_mut() } else { &raw mut time };
    match form {
        #[cfg(target_arch = "x86_64")]
        "select-syscall" => call!(libc::syscall: libc::SYS_select, count, r, w, e, time),
        _ => call!(libc::select: count, r, w, e, time),
    }
}

//! `epoll` in its forms. Events are named by the slot that was added, and sorted: their order is
//! not specified.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr;

use crate::call::{Errno, Reply, call};
use crate::flags;
use crate::poll::{empty_mask, timespec};
use crate::sockets::{done, keep};
use crate::state::{State, Words};

pub fn run(state: &State, verb: &str, words: &mut Words) -> Reply {
    match verb {
        "epoll" => {
            let slot = words.text();
            let new = match words.optional() {
                Some(_) => call!(libc::syscall: libc::SYS_epoll_create1, 0),
                None => call!(libc::epoll_create1: 0),
            }?;
            Ok(keep(state, slot, new))
        }
        "ctl" => control(state, words),
        "wait" => {
            let form = words.text();
            let epoll = words.descriptor(state);
            let timeout = words.number();
            let most = words.number();
            let mut events = wait(form, epoll, timeout, most)?;
            events.sort();
            Ok(format!("{} {}", events.len(), events.join(" ")).trim_end().to_owned())
        }
        "turns" => turns(state, words),
        _ => unreachable!(),
    }
}

/// `ctl EPOLL add|mod|del SLOT EVENTS`
fn control(state: &State, words: &mut Words) -> Reply {
    let epoll = words.descriptor(state);
    let operation = words.text();
    let slot = words.text();
    let mut event = libc::epoll_event {
        events: flags::parse(flags::EPOLL, words.text()) as u32,
        u64: pack(slot),
    };
    let (operation, event) = match operation {
        "add" => (libc::EPOLL_CTL_ADD, &raw mut event),
        "mod" => (libc::EPOLL_CTL_MOD, &raw mut event),
        _ => (libc::EPOLL_CTL_DEL, ptr::null_mut()),
    };
    done(call!(libc::epoll_ctl: epoll, operation, state.descriptor(slot), event))
}

/// A name of at most eight bytes as the data of an event, which another process may receive.
fn pack(slot: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes[..slot.len()].copy_from_slice(slot.as_bytes());
    u64::from_ne_bytes(bytes)
}

fn unpack(data: u64) -> String {
    String::from_utf8_lossy(&data.to_ne_bytes()).trim_end_matches('\0').to_owned()
}

/// The reported events, as `SLOT=EVENTS`.
fn wait(form: &str, epoll: RawFd, timeout: c_int, most: usize) -> Result<Vec<String>, Errno> {
    let mut events = vec![libc::epoll_event { events: 0, u64: u64::MAX }; most];
    let pointer = events.as_mut_ptr();
    let count = most as c_int;
    let time = timespec(timeout);
    let mask = empty_mask();
    let time = if timeout < 0 { ptr::null() } else { &raw const time };
    let mask = &raw const mask;
    let ready = match form {
        "wait" => call!(libc::epoll_wait: epoll, pointer, count, timeout),
        "pwait" => call!(libc::epoll_pwait: epoll, pointer, count, timeout, mask),
        "pwait-null" => call!(libc::epoll_pwait: epoll, pointer, count, timeout, ptr::null()),
        "pwait2" => call!(libc::epoll_pwait2: epoll, pointer, count, time, mask),
        #[cfg(target_arch = "x86_64")]
        "wait-syscall" => {
            call!(libc::syscall: libc::SYS_epoll_wait, epoll, pointer, count, timeout)
        }
        "pwait-syscall" => {
            call!(libc::syscall: libc::SYS_epoll_pwait, epoll, pointer, count, timeout, mask, 8_usize)
        }
        "pwait2-syscall" => {
            call!(libc::syscall: libc::SYS_epoll_pwait2, epoll, pointer, count, time, mask, 8_usize)
        }
        _ => panic!("no form `{form}`"),
    }?;
    let event = |event: &libc::epoll_event| {
        let data = event.u64;
        let bits = event.events;
        format!("{}={}", unpack(data), flags::format(flags::EPOLL, bits as i32))
    };
    Ok(events[..ready].iter().map(event).collect())
}

/// `turns EPOLL COUNT`: the events of many calls that return at most one each, every one once: none
/// is starved.
fn turns(state: &State, words: &mut Words) -> Reply {
    let epoll = words.descriptor(state);
    let count: usize = words.number();
    let mut seen = Vec::new();
    for _ in 0..count {
        seen.extend(wait("wait", epoll, 0, 1)?);
    }
    seen.sort();
    seen.dedup();
    Ok(seen.join(" "))
}

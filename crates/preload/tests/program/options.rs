//! Options, flags and `ioctl`.

use std::ffi::c_int;
use std::mem::size_of;
use std::os::fd::RawFd;

use crate::call::{Reply, call};
use crate::flags;
use crate::sockets::done;
use crate::state::{State, Words};

#[derive(Clone, Copy)]
enum Kind {
    Int,
    /// A `timeval`, written as milliseconds.
    Time,
    /// A `linger`, written as `ON+SECONDS`.
    Linger,
    /// Only the first byte, the state of the connection, is the same in two runs.
    TcpInfo,
}

/// `SO_ZEROCOPY` of Linux.
const SO_ZEROCOPY: c_int = 60;

const OPTIONS: &[(&str, c_int, c_int, Kind)] = &[
    ("error", libc::SOL_SOCKET, libc::SO_ERROR, Kind::Int),
    ("type", libc::SOL_SOCKET, libc::SO_TYPE, Kind::Int),
    ("domain", libc::SOL_SOCKET, libc::SO_DOMAIN, Kind::Int),
    ("protocol", libc::SOL_SOCKET, libc::SO_PROTOCOL, Kind::Int),
    ("acceptconn", libc::SOL_SOCKET, libc::SO_ACCEPTCONN, Kind::Int),
    ("reuseaddr", libc::SOL_SOCKET, libc::SO_REUSEADDR, Kind::Int),
    ("reuseport", libc::SOL_SOCKET, libc::SO_REUSEPORT, Kind::Int),
    ("keepalive", libc::SOL_SOCKET, libc::SO_KEEPALIVE, Kind::Int),
    ("oobinline", libc::SOL_SOCKET, libc::SO_OOBINLINE, Kind::Int),
    ("priority", libc::SOL_SOCKET, libc::SO_PRIORITY, Kind::Int),
    ("timestamp", libc::SOL_SOCKET, libc::SO_TIMESTAMP, Kind::Int),
    ("zerocopy", libc::SOL_SOCKET, SO_ZEROCOPY, Kind::Int),
    ("rcvbuf", libc::SOL_SOCKET, libc::SO_RCVBUF, Kind::Int),
    ("sndbuf", libc::SOL_SOCKET, libc::SO_SNDBUF, Kind::Int),
    ("rcvlowat", libc::SOL_SOCKET, libc::SO_RCVLOWAT, Kind::Int),
    ("sndlowat", libc::SOL_SOCKET, libc::SO_SNDLOWAT, Kind::Int),
    ("rcvtimeo", libc::SOL_SOCKET, libc::SO_RCVTIMEO, Kind::Time),
    ("sndtimeo", libc::SOL_SOCKET, libc::SO_SNDTIMEO, Kind::Time),
    ("linger", libc::SOL_SOCKET, libc::SO_LINGER, Kind::Linger),
    ("nodelay", libc::IPPROTO_TCP, libc::TCP_NODELAY, Kind::Int),
    ("cork", libc::IPPROTO_TCP, libc::TCP_CORK, Kind::Int),
    ("quickack", libc::IPPROTO_TCP, libc::TCP_QUICKACK, Kind::Int),
    ("keepidle", libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, Kind::Int),
    ("keepintvl", libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, Kind::Int),
    ("keepcnt", libc::IPPROTO_TCP, libc::TCP_KEEPCNT, Kind::Int),
    ("usertimeout", libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, Kind::Int),
    ("inq", libc::IPPROTO_TCP, libc::TCP_INQ, Kind::Int),
    ("info", libc::IPPROTO_TCP, libc::TCP_INFO, Kind::TcpInfo),
    ("tos", libc::IPPROTO_IP, libc::IP_TOS, Kind::Int),
    ("ttl", libc::IPPROTO_IP, libc::IP_TTL, Kind::Int),
    ("v6only", libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, Kind::Int),
    ("unknown", libc::IPPROTO_TCP, 9999, Kind::Int),
];

pub fn run(state: &State, verb: &str, words: &mut Words) -> Reply {
    let descriptor = words.descriptor(state);
    match verb {
        "set" => set(descriptor, words),
        "get" => get(descriptor, words.text()),
        "nonblock" => nonblock(descriptor, words),
        "flags" => {
            let bits = call!(libc::fcntl: descriptor, libc::F_GETFL)?;
            let close_on_exec = call!(libc::fcntl: descriptor, libc::F_GETFD)?;
            Ok(format!("{} cloexec={close_on_exec}", flags::format(flags::STATUS, bits as c_int)))
        }
        "fionread" => ask(descriptor, libc::FIONREAD),
        // SIOCATMARK: whether the next byte is the urgent one.
        "mark" => ask(descriptor, 0x8905),
        "async" => make_async(descriptor, words),
        _ => unreachable!(),
    }
}

fn option(name: &str) -> (c_int, c_int, Kind) {
    let found = OPTIONS.iter().find(|(known, ..)| *known == name);
    let (_, level, option, kind) = found.unwrap_or_else(|| panic!("no option `{name}`"));
    (*level, *option, *kind)
}

/// `set SLOT OPTION VALUE`
fn set(socket: RawFd, words: &mut Words) -> Reply {
    let (level, option, kind) = option(words.text());
    let value = words.lengths();
    let numbers: Vec<i64> = match kind {
        Kind::Time => vec![(value[0] / 1000) as i64, (value[0] % 1000 * 1000) as i64],
        // Two `int`s in one.
        Kind::Linger => vec![(value[0] | value[1] << 32) as i64],
        Kind::Int | Kind::TcpInfo => vec![value[0] as i64],
    };
    let length = match kind {
        Kind::Time => size_of::<libc::timeval>(),
        Kind::Linger => size_of::<libc::linger>(),
        Kind::Int | Kind::TcpInfo => size_of::<c_int>(),
    };
    let length = length as libc::socklen_t;
    done(call!(libc::setsockopt: socket, level, option, numbers.as_ptr().cast(), length))
}

/// `get SLOT OPTION`
fn get(socket: RawFd, name: &str) -> Reply {
    let (level, option, kind) = option(name);
    let mut value = [0i64; 64];
    let mut length = size_of_val(&value) as libc::socklen_t;
    let pointer = value.as_mut_ptr().cast();
    call!(libc::getsockopt: socket, level, option, pointer, &raw mut length)?;
    let [low, high] = [value[0] as c_int, (value[0] >> 32) as c_int];
    Ok(match kind {
        // An error number, or 0.
        Kind::Int if name == "error" && low != 0 => crate::call::Errno(low).to_string(),
        Kind::Int => format!("{low} length={length}"),
        // The kernel rounds times up to its clock ticks, which are at most 10 ms long.
        Kind::Time => format!("{} length={length}", (value[0] * 1000 + value[1] / 1000) / 10 * 10),
        Kind::Linger => format!("{low}+{high} length={length}"),
        Kind::TcpInfo => format!("state={}", low & 0xff),
    })
}

/// `nonblock SLOT fcntl|ioctl 0|1`
fn nonblock(descriptor: RawFd, words: &mut Words) -> Reply {
    let way = words.text();
    let mut on: c_int = words.number();
    if way == "ioctl" {
        return done(call!(libc::ioctl: descriptor, libc::FIONBIO, &raw mut on));
    }
    let bits = call!(libc::fcntl: descriptor, libc::F_GETFL)? as c_int;
    let bits = if on == 1 { bits | libc::O_NONBLOCK } else { bits & !libc::O_NONBLOCK };
    done(call!(libc::fcntl: descriptor, libc::F_SETFL, bits))
}

fn ask(descriptor: RawFd, request: libc::Ioctl) -> Reply {
    let mut number: c_int = -1;
    call!(libc::ioctl: descriptor, request, &raw mut number)?;
    Ok(number.to_string())
}

/// `async SLOT 0|1`: signals for arriving data (`O_ASYNC`), sent to this process.
fn make_async(descriptor: RawFd, words: &mut Words) -> Reply {
    let bits = call!(libc::fcntl: descriptor, libc::F_GETFL)? as c_int;
    call!(libc::fcntl: descriptor, libc::F_SETOWN, std::process::id() as c_int)?;
    let on = words.text() == "1";
    let bits = if on { bits | libc::O_ASYNC } else { bits & !libc::O_ASYNC };
    done(call!(libc::fcntl: descriptor, libc::F_SETFL, bits))
}

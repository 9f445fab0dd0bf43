//! Sockets and descriptors: creation, connection, end, duplicates, addresses.

use std::ffi::c_int;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;

use crate::call::{Errno, Failure, Reply, call};
use crate::control::FIRST_OWN;
use crate::state::{State, Words};

pub fn run(state: &State, verb: &str, words: &mut Words) -> Reply {
    match verb {
        "socket" => socket(state, words),
        "pair" => pair(state, words),
        "accept" => accept(state, words),
        "dup" => duplicate(state, words),
        "close-range" => close_range(words),
        "connect" => connect(state, words),
        "bind" => {
            let socket = words.descriptor(state);
            let (address, length) = to_c(words.text().parse().unwrap());
            call!(libc::bind: socket, (&raw const address).cast(), length)?;
            name(socket, libc::getsockname)
        }
        "disconnect" => {
            let address = sockaddr(libc::AF_UNSPEC);
            let length = size_of::<libc::sockaddr>() as libc::socklen_t;
            call!(libc::connect: words.descriptor(state), &raw const address, length)?;
            Ok(String::new())
        }
        "listen" => done(call!(libc::listen: words.descriptor(state), words.number())),
        "shutdown" => {
            let socket = words.descriptor(state);
            let how = match words.text() {
                "rd" => libc::SHUT_RD,
                "wr" => libc::SHUT_WR,
                "rdwr" => libc::SHUT_RDWR,
                other => other.parse().unwrap(),
            };
            done(call!(libc::shutdown: socket, how))
        }
        "close" => close(state, words),
        "name" => name(words.descriptor(state), libc::getsockname),
        "peer" => name(words.descriptor(state), libc::getpeername),
        "stat" => stat(words.descriptor(state)),
        _ => unreachable!(),
    }
}

pub fn done(result: Result<usize, Errno>) -> Reply {
    result?;
    Ok(String::new())
}

/// `socket SLOT inet|inet6 [nonblock|cloexec]…`
fn socket(state: &State, words: &mut Words) -> Reply {
    let slot = words.text();
    let family = if words.text() == "inet" { libc::AF_INET } else { libc::AF_INET6 };
    let socket = call!(libc::socket: family, libc::SOCK_STREAM | creation_flags(words), 0)?;
    Ok(keep(state, slot, socket))
}

fn creation_flags(words: &mut Words) -> c_int {
    let mut flags = 0;
    while let Some(word) = words.optional() {
        flags |= match word {
            "nonblock" => libc::SOCK_NONBLOCK,
            "cloexec" => libc::SOCK_CLOEXEC,
            _ => panic!("no flag `{word}`"),
        };
    }
    flags
}

/// `pair SLOT SLOT`: a pipe, for calls that need one.
fn pair(state: &State, words: &mut Words) -> Reply {
    let mut ends = [0; 2];
    call!(libc::pipe2: ends.as_mut_ptr(), libc::O_NONBLOCK)?;
    let [read, write] = ends.map(|end| usize::try_from(end).unwrap());
    Ok(format!("{} {}", keep(state, words.text(), read), keep(state, words.text(), write)))
}

/// `accept LISTENER SLOT accept|accept4 [nonblock|cloexec]…`
fn accept(state: &State, words: &mut Words) -> Reply {
    let listener = words.descriptor(state);
    let slot = words.text();
    // SAFETY: zero is a valid value of this structure.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let pointer = (&raw mut address).cast();
    let socket = match words.text() {
        "accept" => call!(libc::accept: listener, pointer, &raw mut length),
        _ => call!(libc::accept4: listener, pointer, &raw mut length, creation_flags(words)),
    }?;
    Ok(format!("{} {}", keep(state, slot, socket), from_c(&address, length)))
}

/// Stores a new descriptor. The kernel gives the lowest free number, which a program may rely on.
pub fn keep(state: &State, slot: &str, descriptor: usize) -> String {
    state.put(slot, RawFd::try_from(descriptor).unwrap());
    format!("descriptor={descriptor}")
}

/// `connect SLOT ADDRESS`; the answer names the own address.
fn connect(state: &State, words: &mut Words) -> Reply {
    let socket = words.descriptor(state);
    let (address, length) = to_c(words.text().parse().unwrap());
    let connected = call!(libc::connect: socket, (&raw const address).cast(), length);
    let own = name(socket, libc::getsockname).unwrap_or_default();
    connected.map(|_| own.clone()).map_err(|errno| Failure { errno, detail: own })
}

/// `close SLOT`: the slot is empty afterwards.
fn close(state: &State, words: &mut Words) -> Reply {
    let slot = words.text();
    let closed = call!(libc::close: state.descriptor(slot));
    state.remove(slot);
    done(closed)
}

unsafe extern "C" {
    fn closefrom(first: c_int);
}

/// `close-range FIRST call|syscall|from`: every descriptor from FIRST on, except those of the
/// program itself, or for `from` all of the program's as well, which then ends.
fn close_range(words: &mut Words) -> Reply {
    let first: u32 = words.number();
    match words.text() {
        "call" => done(call!(libc::close_range: first, FIRST_OWN as u32 - 1, 0)),
        "syscall" => {
            done(call!(libc::syscall: libc::SYS_close_range, first, FIRST_OWN as u32 - 1, 0))
        }
        _ => {
            // SAFETY: no descriptor is used afterwards.
            unsafe { closefrom(first as c_int) };
            std::process::exit(7)
        }
    }
}

/// `dup SLOT NEW dup|dup2|dup2-syscall|dup3|fcntl|cloexec [NUMBER]`
fn duplicate(state: &State, words: &mut Words) -> Reply {
    let old = words.descriptor(state);
    let slot = words.text();
    let way = words.text();
    let number: c_int = words.optional().map_or(0, |number| number.parse().unwrap());
    let new = match way {
        "dup" => call!(libc::dup: old),
        "dup2" => call!(libc::dup2: old, number),
        #[cfg(target_arch = "x86_64")]
        "dup2-syscall" => call!(libc::syscall: libc::SYS_dup2, old, number),
        "dup3" => call!(libc::dup3: old, number, libc::O_CLOEXEC),
        "fcntl" => call!(libc::fcntl: old, libc::F_DUPFD, number),
        _ => call!(libc::fcntl: old, libc::F_DUPFD_CLOEXEC, number),
    }?;
    Ok(keep(state, slot, new))
}

/// What `fstat` says about the kind of a descriptor.
fn stat(descriptor: RawFd) -> Reply {
    // SAFETY: zero is a valid value of this structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    call!(libc::fstat: descriptor, &raw mut stat)?;
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap_or_default();
    let kind = link.to_string_lossy().split(':').next().unwrap_or_default().to_owned();
    Ok(format!("mode={:o} link={kind} size={}", stat.st_mode, stat.st_size))
}

type NameFunction = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int;

fn name(socket: RawFd, function: NameFunction) -> Reply {
    // SAFETY: zero is a valid value of this structure.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    call!(function: socket, (&raw mut address).cast(), &raw mut length)?;
    Ok(from_c(&address, length))
}

fn sockaddr(family: c_int) -> libc::sockaddr {
    libc::sockaddr { sa_family: family as libc::sa_family_t, sa_data: [0; 14] }
}

fn to_c(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: zero is a valid value of this structure.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = match address {
        SocketAddr::V4(address) => {
            let value = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is large enough for, and aligned as, every kind of address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(value) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            let value = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: 0,
            };
            // SAFETY: the storage is large enough for, and aligned as, every kind of address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(value) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

/// An address in an answer: `@` and its text. The run replaces its port, which differs between
/// runs.
pub fn from_c(storage: &libc::sockaddr_storage, length: libc::socklen_t) -> String {
    let pointer = &raw const *storage;
    let address = match c_int::from(storage.ss_family) {
        _ if length == 0 => return "@none".to_owned(),
        libc::AF_INET => {
            // SAFETY: the family says which structure the storage holds.
            let value = unsafe { pointer.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(value.sin_addr.s_addr.to_ne_bytes());
            SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(value.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says which structure the storage holds.
            let value = unsafe { pointer.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(value.sin6_addr.s6_addr);
            SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(value.sin6_port), 0, 0))
        }
        family => return format!("@family-{family}"),
    };
    format!("@{address} length={length}")
}

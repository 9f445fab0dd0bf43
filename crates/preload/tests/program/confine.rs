//! Changes of the whole process: its limit of descriptors, a library that binds to libc by itself,
//! and a filter of system calls.

use std::ffi::CString;
use std::mem;

use crate::call::{Errno, Failure, Reply, call};
use crate::sockets::done;
use crate::state::Words;

pub fn run(verb: &str, words: &mut Words) -> Reply {
    match verb {
        "limit" => limit(words.text()),
        "deepbind" => deepbind(words.text()),
        _ => filter(words.text()),
    }
}

/// `limit NUMBER|max`: the number of descriptors that the process may have (RLIMIT_NOFILE).
fn limit(number: &str) -> Reply {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    call!(libc::getrlimit: libc::RLIMIT_NOFILE, &raw mut limit)?;
    limit.rlim_cur = number.parse().unwrap_or(limit.rlim_max);
    done(call!(libc::setrlimit: libc::RLIMIT_NOFILE, &raw const limit))
}

/// `deepbind LIBRARY`: opens it with RTLD_DEEPBIND.
fn deepbind(library: &str) -> Reply {
    let name = CString::new(library).unwrap();
    // SAFETY: a library of the system, whose initialisation has no conditions.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_DEEPBIND) };
    if handle.is_null() {
        return Err(Failure { errno: Errno(libc::ENOENT), detail: library.to_owned() });
    }
    Ok(String::new())
}

/// `filter prctl|syscall`: calls that this program never makes end the process (seccomp(2)).
fn filter(way: &str) -> Reply {
    const FORBIDDEN: [libc::c_long; 2] = [libc::SYS_eventfd2, libc::SYS_timerfd_create];
    let step =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let number = mem::offset_of!(libc::seccomp_data, nr) as u32;
    let mut steps = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, number)];
    for (at, call) in FORBIDDEN.iter().enumerate() {
        let last = (FORBIDDEN.len() - at) as u8;
        steps.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, last, 0, *call as u32));
    }
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS));
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    call!(libc::prctl: libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
    done(match way {
        "prctl" => {
            call!(libc::prctl: libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        }
        _ => {
            call!(libc::syscall: libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
        }
    })
}

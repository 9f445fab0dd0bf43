//! poll(2), select(2) and epoll(7).

use std::slice;
use std::time::{Duration, Instant};

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::poll::Wait;
use crate::{epoll, errno, lifecycle, real, seccomp, table};

/// When a wait of `milliseconds` ends; negative for never.
fn after(milliseconds: c_int) -> Option<Instant> {
    let milliseconds = u64::try_from(milliseconds).ok()?;
    Instant::now().checked_add(Duration::from_millis(milliseconds))
}

/// When a wait of a time of C ends; null for never. `Err` if the kernel refuses the time.
///
/// # Safety
/// The address is null or that of a time.
unsafe fn after_time(time: *const timespec) -> Result<Option<Instant>, ()> {
    // SAFETY: as the caller promises.
    let Some(time) = (unsafe { time.as_ref() }) else { return Ok(None) };
    let seconds = u64::try_from(time.tv_sec).map_err(drop)?;
    let nanoseconds = u32::try_from(time.tv_nsec).map_err(drop)?;
    if nanoseconds >= 1_000_000_000 {
        return Err(());
    }
    Ok(Instant::now().checked_add(Duration::new(seconds, nanoseconds)))
}

/// The set of poll(2), if it has connections that can be fast.
///
/// # Safety
/// As poll(2) demands.
unsafe fn set<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    let count =
        usize::try_from(count).ok().filter(|count| (1..=table::DESCRIPTORS).contains(count))?;
    if fds.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let set = unsafe { slice::from_raw_parts_mut(fds, count) };
    for entry in &*set {
        epoll::nest(entry.fd);
    }
    set.iter().any(|entry| table::find(entry.fd).is_some()).then_some(set)
}

/// See poll(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    if seccomp::is_sealed() {
        // SAFETY: as the program promises.
        return unsafe {
            crate::poll::sealed(fds, count, |now| {
                real::poll(fds, count, if now { 0 } else { timeout })
            })
        };
    }
    // SAFETY: as the program promises.
    let ready = unsafe { set(fds, count) }.and_then(|set| {
        crate::poll::poll(set, Wait { deadline: || after(timeout), mask: std::ptr::null() })
    });
    // SAFETY: as the program promises.
    ready.unwrap_or_else(|| unsafe { real::poll(fds, count, timeout) })
}

/// See poll(2), with the length of the set checked.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    if (count as usize).saturating_mul(size_of::<pollfd>()) > room {
        std::process::abort();
    }
    // SAFETY: as the program promises.
    unsafe { poll(fds, count, timeout) }
}

/// See ppoll(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if seccomp::is_sealed() {
        let zero = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: as the program promises.
        return unsafe {
            crate::poll::sealed(fds, count, |now| {
                real::ppoll(fds, count, if now { &raw const zero } else { timeout }, mask)
            })
        };
    }
    // SAFETY: as the program promises.
    let ready = unsafe {
        match (set(fds, count), after_time(timeout)) {
            (Some(set), Ok(deadline)) => {
                crate::poll::poll(set, Wait { deadline: || deadline, mask })
            }
            _ => None,
        }
    };
    // SAFETY: as the program promises.
    ready.unwrap_or_else(|| unsafe { real::ppoll(fds, count, timeout, mask) })
}

/// See ppoll(2), with the length of the set checked.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if (count as usize).saturating_mul(size_of::<pollfd>()) > room {
        std::process::abort();
    }
    // SAFETY: as the program promises.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// See select(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    if seccomp::is_sealed() {
        let mut zero = timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: as the program promises.
        return unsafe {
            crate::poll::sealed_select(count, read, |now| {
                let timeout = if now { &raw mut zero } else { timeout };
                real::select(count, read, write, except, timeout)
            })
        };
    }
    // SAFETY: as the program promises.
    if !unsafe { crate::poll::has_rings(count, [read, write, except]) } {
        // SAFETY: as the program promises.
        return unsafe { real::select(count, read, write, except, timeout) };
    }
    // SAFETY: as the program promises.
    let time = unsafe { timeout.as_ref() }
        .map(|time| timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec * 1000 });
    let pointer = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: as the program promises.
    let ready = unsafe {
        match after_time(pointer) {
            Ok(deadline) => {
                let wait = Wait { deadline: || deadline, mask: std::ptr::null() };
                let ready = crate::poll::select(count, [read, write, except], wait);
                if let (Some(_), Some(deadline), Some(left)) = (ready, deadline, timeout.as_mut()) {
                    // Linux says how much of the time is left.
                    let rest = deadline.saturating_duration_since(Instant::now());
                    left.tv_sec = rest.as_secs().cast_signed();
                    left.tv_usec = rest.subsec_micros().into();
                }
                ready
            }
            Err(()) => None,
        }
    };
    // SAFETY: as the program promises.
    ready.unwrap_or_else(|| unsafe { real::select(count, read, write, except, timeout) })
}

/// See pselect(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if seccomp::is_sealed() {
        let zero = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: as the program promises.
        return unsafe {
            crate::poll::sealed_select(count, read, |now| {
                let timeout = if now { &raw const zero } else { timeout };
                real::pselect(count, read, write, except, timeout, mask)
            })
        };
    }
    // SAFETY: as the program promises.
    let ready = unsafe {
        let has_rings = crate::poll::has_rings(count, [read, write, except]);
        has_rings.then(|| after_time(timeout).ok()).flatten().and_then(|deadline| {
            crate::poll::select(count, [read, write, except], Wait { deadline: || deadline, mask })
        })
    };
    // SAFETY: as the program promises.
    ready.unwrap_or_else(|| unsafe { real::pselect(count, read, write, except, timeout, mask) })
}

/// See epoll_create(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the call takes no addresses.
    created(unsafe { real::epoll_create(size) })
}

/// See epoll_create1(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the call takes no addresses.
    created(unsafe { real::epoll_create1(flags) })
}

fn created(epoll: c_int) -> c_int {
    if epoll >= 0 {
        lifecycle::is_new(epoll);
        epoll::created(epoll);
    }
    epoll
}

/// See epoll_ctl(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        epoll::control(epoll, operation, fd, event)
            .unwrap_or_else(|| real::epoll_ctl(epoll, operation, fd, event))
    }
}

/// The events of epoll_wait(2).
///
/// # Safety
/// As epoll_wait(2) demands.
unsafe fn room<'a>(events: *mut epoll_event, count: c_int) -> Option<&'a mut [epoll_event]> {
    let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
    // SAFETY: as the caller promises.
    (!events.is_null()).then(|| unsafe { slice::from_raw_parts_mut(events, count) })
}

/// See epoll_wait(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        room(events, count)
            .and_then(|room| epoll::wait(epoll, room, || after(timeout), std::ptr::null()))
            .unwrap_or_else(|| real::epoll_wait(epoll, events, count, timeout))
    }
}

/// See epoll_pwait(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: as the program promises.
    unsafe {
        room(events, count)
            .and_then(|room| epoll::wait(epoll, room, || after(timeout), mask))
            .unwrap_or_else(|| real::epoll_pwait(epoll, events, count, timeout, mask))
    }
}

/// See epoll_pwait2(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let saved = errno::last();
    // SAFETY: as the program promises.
    unsafe {
        let ready = match (room(events, count), after_time(timeout)) {
            (Some(room), Ok(deadline)) => epoll::wait(epoll, room, || deadline, mask),
            _ => None,
        };
        ready.unwrap_or_else(|| {
            errno::set(saved);
            real::epoll_pwait2(epoll, events, count, timeout, mask)
        })
    }
}

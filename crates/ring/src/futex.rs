//! Sleeping on a word of shared memory.

#[cfg(not(loom))]
pub(crate) use system::{wait, wake};

/// How a sleep ended.
#[cfg(not(loom))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// The other end has done something, or the wake-up was spurious: look again.
    Woken,
    /// Nothing has happened for so long.
    TimedOut,
    /// A signal handler has run.
    Interrupted,
}

/// Loom's tests model the wake-up by their own condition variable.
#[cfg(loom)]
pub(crate) fn wake(_word: &crate::atomic::AtomicU32) {}

#[cfg(not(loom))]
mod system {
    use std::time::Duration;

    use rustix::io::Errno;
    use rustix::thread::{ClockId, futex};
    use rustix::time::clock_gettime;

    use super::Sleep;
    use crate::atomic::AtomicU32;

    /// Sleeps while `word` is `value`, at most for `timeout`; wake-ups may be spurious. With
    /// `restart`, a signal whose handler has SA_RESTART does not end the sleep, as in read(2);
    /// otherwise each handler does, as with SO_RCVTIMEO.
    pub(crate) fn wait(word: &AtomicU32, value: u32, timeout: Duration, restart: bool) -> Sleep {
        if restart && let Some(result) = wait_restarting(word, value, timeout) {
            return end_of(result);
        }
        let timeout = futex::Timespec::try_from(timeout).ok();
        // Without PRIVATE: the word is shared by processes.
        end_of(futex::wait(word, futex::Flags::empty(), value, timeout.as_ref()).map(drop))
    }

    /// By futex_waitv(2), which the kernel restarts although it has a timeout. `None` before Linux
    /// 5.16.
    fn wait_restarting(
        word: &AtomicU32,
        value: u32,
        timeout: Duration,
    ) -> Option<rustix::io::Result<()>> {
        let now = clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::try_from(now).ok()?;
        let deadline = futex::Timespec::try_from(now + timeout).ok()?;
        let mut waiter = futex::Wait::new();
        waiter.val = value.into();
        waiter.uaddr = futex::WaitPtr::new(word.as_ptr().cast());
        waiter.flags = futex::WaitFlags::SIZE_U32;
        let flags = futex::WaitvFlags::empty();
        match futex::waitv(&[waiter], flags, Some(&deadline), ClockId::Monotonic) {
            Err(Errno::NOSYS | Errno::PERM) => None,
            result => Some(result.map(drop)),
        }
    }

    fn end_of(result: rustix::io::Result<()>) -> Sleep {
        match result {
            Err(Errno::INTR) => Sleep::Interrupted,
            Err(Errno::TIMEDOUT) => Sleep::TimedOut,
            _ => Sleep::Woken,
        }
    }

    /// Wakes the one end that waits on `word`.
    pub(crate) fn wake(word: &AtomicU32) {
        // It fails only for an address that is not mapped, and `word` is.
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
}

//! Sleeping on a word of shared memory.

#[cfg(not(loom))]
pub(crate) use system::{wait, wake};

/// Loom's tests model the wake-up by their own condition variable.
#[cfg(loom)]
pub(crate) fn wake(_word: &crate::atomic::AtomicU32) {}

#[cfg(not(loom))]
mod system {
    use std::time::Duration;

    use rustix::io::Errno;
    use rustix::thread::futex;

    use crate::atomic::AtomicU32;

    /// Sleeps while `word` is `value`, at most for `timeout`; wake-ups may be spurious. `false` if a signal interrupted it.
    pub(crate) fn wait(word: &AtomicU32, value: u32, timeout: Duration) -> bool {
        let timeout = futex::Timespec::try_from(timeout).ok();
        // Without PRIVATE: the word is shared by processes.
        !matches!(
            futex::wait(word, futex::Flags::empty(), value, timeout.as_ref()),
            Err(Errno::INTR)
        )
    }

    /// Wakes the one end that waits on `word`.
    pub(crate) fn wake(word: &AtomicU32) {
        // It fails only for an address that is not mapped, and `word` is.
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
}

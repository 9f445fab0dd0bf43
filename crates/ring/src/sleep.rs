//! Sleeping until the other end has done something, without a lost wake-up.
//!
//! The end that sleeps writes its [`Waiter`], then a full fence, then looks at the ring once more.
//! The other end moves its cursor, then a full fence, then looks for a waiter. In every order of
//! these, one of the two sees what the other wrote.

use crate::atomic::{Ordering, fence};
use crate::control::SleepWord;

/// How an end of a ring is woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiter {
    /// It waits on the word itself, by futex(2).
    Futex,
    /// It waits for a descriptor of its process, an eventfd.
    Bell {
        /// The index of the eventfd.
        bell: u8,
        /// Which of the [`Marks`](crate::Marks) of its process says that it is this connection.
        mark: u16,
    },
}

/// The word on which an end sleeps by futex, apart from the end itself: while one thread sleeps,
/// another may use the end.
#[cfg(not(loom))]
pub struct Sleeper<M> {
    pub(crate) memory: M,
    pub(crate) producer: bool,
}

#[cfg(not(loom))]
impl<M: crate::Memory> Sleeper<M> {
    /// Sleeps until the other end does something, at most for `timeout`. With `restart`, a signal
    /// whose handler has SA_RESTART does not end the sleep.
    pub fn sleep(&self, timeout: std::time::Duration, restart: bool) -> crate::futex::Sleep {
        let control = self.memory.control();
        let word = if self.producer { &control.producer_sleep } else { &control.consumer_sleep };
        crate::futex::wait(&word.waiter, Waiter::Futex.to_word(), timeout, restart)
    }
}

impl Waiter {
    fn to_word(self) -> u32 {
        match self {
            Self::Futex => 1,
            Self::Bell { bell, mark } => u32::from(mark) << 16 | (2 + u32::from(bell)),
        }
    }

    /// `None` for an end that does not sleep. A number that no correct peer writes wakes nothing.
    fn from_word(word: u32) -> Option<Self> {
        match word {
            0 => None,
            1 => Some(Self::Futex),
            other => {
                let bell = (other & 0xffff).checked_sub(2).and_then(|bell| u8::try_from(bell).ok());
                bell.map(|bell| Self::Bell { bell, mark: (other >> 16) as u16 })
            }
        }
    }
}

/// Says that this end sleeps. The caller looks at the ring again before it does.
pub(crate) fn announce(word: &SleepWord, waiter: Waiter) {
    word.waiter.store(waiter.to_word(), Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Says that this end no longer sleeps by `waiter`. When the other end has woken it, in nanoseconds
/// of [`now`]; `None` if it has not, or another thread of this end has announced its sleep since,
/// which then holds.
pub(crate) fn withdraw(word: &SleepWord, waiter: Waiter) -> Option<u64> {
    let own = waiter.to_word();
    match word.waiter.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed) {
        Err(0) => Some(word.woken_at.load(Ordering::Relaxed)),
        _ => None,
    }
}

/// Wakes the thread of this end that sleeps by futex, whatever has been announced since.
#[cfg(not(loom))]
pub(crate) fn wake_own(word: &SleepWord) {
    crate::futex::wake(&word.waiter);
}

/// Called after a cursor was moved: the waiter to wake, if the other end sleeps. A futex is woken
/// here; a bell by the caller, who has its descriptor.
#[inline]
pub(crate) fn take_waiter(word: &SleepWord) -> Option<Waiter> {
    fence(Ordering::SeqCst);
    match word.waiter.load(Ordering::Relaxed) {
        0 => None,
        announced => wake(word, announced),
    }
}

/// As [`take_waiter`], but leaves an end that waits for a bell as it is.
pub(crate) fn wake_by_futex(word: &SleepWord) {
    fence(Ordering::SeqCst);
    let announced = word.waiter.load(Ordering::Relaxed);
    if announced == Waiter::Futex.to_word() {
        wake(word, announced);
    }
}

#[cold]
fn wake(word: &SleepWord, announced: u32) -> Option<Waiter> {
    // An end that has changed the word since looked at the ring after the fence above, and needs no
    // wake-up.
    word.waiter.compare_exchange(announced, 0, Ordering::Relaxed, Ordering::Relaxed).ok()?;
    word.woken_at.store(now(), Ordering::Relaxed);
    let waiter = Waiter::from_word(announced);
    if waiter == Some(Waiter::Futex) {
        crate::futex::wake(&word.waiter);
    }
    waiter
}

/// The clock that measures wake-ups, in nanoseconds: that of the system, which all processes of a
/// host share.
#[cfg(not(loom))]
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The clock begins at the start of the system: neither part is negative.
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(loom)]
fn now() -> u64 {
    0
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn words_are_waiters_or_nothing() {
        for bell in [0, 3, u8::MAX] {
            for mark in [0, 1, u16::MAX] {
                let waiter = Waiter::Bell { bell, mark };
                assert_eq!(Waiter::from_word(waiter.to_word()), Some(waiter));
            }
        }
        assert_eq!(Waiter::from_word(Waiter::Futex.to_word()), Some(Waiter::Futex));
        for none in [0, 1 << 16, 0x0001_0001, 0x102, u32::MAX] {
            assert_eq!(Waiter::from_word(none), None, "{none:x}");
        }
    }
}

//! Sleeping until the other end has done something, without a lost wake-up.
//!
//! The end that sleeps writes its [`Waiter`], then a full fence, then looks at the ring once more. The other end moves its
//! cursor, then a full fence, then looks for a waiter. In every order of these, one of the two sees what the other wrote.

use crate::atomic::{AtomicU32, Ordering, fence};

/// How an end of a ring is woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiter {
    /// It waits on the word itself, by futex(2).
    Futex,
    /// It waits for a descriptor of its process, an eventfd, by this index.
    Bell(u8),
}

/// The word on which an end sleeps by futex, apart from the end itself: while one thread sleeps, another may use the end.
#[cfg(not(loom))]
pub struct Sleeper<M> {
    pub(crate) memory: M,
    pub(crate) producer: bool,
}

#[cfg(not(loom))]
impl<M: crate::Memory> Sleeper<M> {
    /// Sleeps until the other end does something, at most for `timeout`. With `restart`, a signal whose handler has SA_RESTART does
    /// not end the sleep.
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
            Self::Bell(index) => 2 + u32::from(index),
        }
    }

    /// `None` for an end that does not sleep. A number that no correct peer writes wakes nothing.
    fn from_word(word: u32) -> Option<Self> {
        match word {
            0 => None,
            1 => Some(Self::Futex),
            other => u8::try_from(other - 2).ok().map(Self::Bell),
        }
    }
}

/// Says that this end sleeps. The caller looks at the ring again before it does.
pub(crate) fn announce(word: &AtomicU32, waiter: Waiter) {
    word.store(waiter.to_word(), Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Says that this end no longer sleeps.
pub(crate) fn withdraw(word: &AtomicU32) {
    word.store(0, Ordering::Relaxed);
}

/// Called after a cursor was moved: the waiter to wake, if the other end sleeps. A futex is woken here; a bell by the
/// caller, who has its descriptor.
pub(crate) fn take_waiter(word: &AtomicU32) -> Option<Waiter> {
    fence(Ordering::SeqCst);
    let announced = word.load(Ordering::Relaxed);
    if announced == 0 {
        return None;
    }
    // An end that has changed the word since looked at the ring after the fence above, and needs no wake-up.
    word.compare_exchange(announced, 0, Ordering::Relaxed, Ordering::Relaxed).ok()?;
    let waiter = Waiter::from_word(announced);
    if waiter == Some(Waiter::Futex) {
        crate::futex::wake(word);
    }
    waiter
}

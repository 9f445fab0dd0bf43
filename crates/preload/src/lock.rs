//! A lock in memory that processes share after a fork.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::process;

/// Held only while bytes are copied, never while a thread waits. Its value is the holder's thread,
/// 0 if it is free.
#[repr(C)]
#[derive(Default)]
pub struct Lock(AtomicU32);

/// Frees the lock when it is dropped.
pub struct Guard<'a>(&'a Lock);

/// How often to look before sleeping between looks.
const SPINS: u32 = 200;
/// Between looks.
const PAUSE: Duration = Duration::from_micros(50);
/// After so many pauses, the holder may be dead.
const PATIENT: u32 = 2000;
/// Pauses of [`Lock::lock_soon`].
const SOON: u32 = 200;

impl Lock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        let own = process::thread();
        let taken = self.0.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(Guard(self))
    }

    /// Waits until the lock is free. `None` if this thread holds it: a signal handler has
    /// interrupted the holder.
    #[inline]
    pub fn lock(&self) -> Option<Guard<'_>> {
        let own = process::thread();
        match self.0.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Guard(self)),
            Err(holder) => self.wait(own, holder),
        }
    }

    /// As [`lock`](Self::lock), but waits for some milliseconds at most: its holder may be stopped.
    pub fn lock_soon(&self) -> Option<Guard<'_>> {
        for _ in 0..SOON {
            let guard = self.try_lock();
            if guard.is_some() || self.0.load(Ordering::Relaxed) == process::thread() {
                return guard;
            }
            std::thread::sleep(PAUSE);
        }
        let holder = self.0.load(Ordering::Relaxed);
        if !process::is_alive(holder) {
            let _ = self.0.compare_exchange(holder, 0, Ordering::Acquire, Ordering::Relaxed);
        }
        self.try_lock()
    }

    /// Takes the lock until [`free`](Self::free), unless this thread has it already.
    pub fn hold(&self) {
        std::mem::forget(self.lock());
    }

    /// Frees the lock, whichever thread has it: after a fork, in parent and child.
    pub fn free(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Returns true while a thread has the lock.
    pub fn is_locked(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    #[cold]
    fn wait(&self, own: u32, mut holder: u32) -> Option<Guard<'_>> {
        let mut attempts = 0_u32;
        while holder != own {
            self.pause(&mut attempts, holder);
            match self.0.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Guard(self)),
                Err(other) => holder = other,
            }
        }
        None
    }

    fn pause(&self, attempts: &mut u32, holder: u32) {
        *attempts += 1;
        if *attempts < SPINS {
            std::hint::spin_loop();
            return;
        }
        std::thread::sleep(PAUSE);
        if *attempts > SPINS + PATIENT && !process::is_alive(holder) {
            // A process was killed between two instructions. What it was copying is lost with it.
            let _ = self.0.compare_exchange(holder, 0, Ordering::Acquire, Ordering::Relaxed);
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}

/// A value of this process behind a [`Lock`], which is also held during a fork: the child finds it
/// whole.
pub struct Guarded<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the thread that holds the lock only.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// Calls `use_it` with the value. `None` in a signal handler that has interrupted such a call.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        let _guard = self.lock.lock()?;
        // SAFETY: the lock is held, and not taken again by this thread.
        Some(use_it(unsafe { &mut *self.value.get() }))
    }

    /// Takes the lock until [`after_fork`](Self::after_fork), and changes the value.
    pub fn before_fork(&self, change: impl FnOnce(&mut T)) {
        let guard = self.lock.lock();
        if guard.is_some() {
            // SAFETY: the lock is held, and not taken again by this thread.
            change(unsafe { &mut *self.value.get() });
        }
        std::mem::forget(guard);
    }

    /// In parent and child.
    pub fn after_fork(&self) {
        self.lock.free();
    }
}

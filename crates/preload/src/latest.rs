//! A page that the monitor sends, and sends again after it was started again.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The value that was set last. Values before it are never freed, since a thread may use them.
pub struct Latest<T>(AtomicPtr<T>);

impl<T: Send + Sync + 'static> Latest<T> {
    /// No value yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        self.0.store(Box::into_raw(Box::new(value)), Ordering::Release);
    }

    /// Returns the value, once there is one.
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null, or was made from a box by `set`. That box is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}

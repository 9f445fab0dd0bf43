//! Points at which a test by loom lets a process die: between two steps that others may see.

/// The process may die here.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn point() {}

#[cfg(loom)]
pub(crate) use simulated::{point, until};

#[cfg(loom)]
mod simulated {
    use std::cell::Cell;
    use std::panic::{self, AssertUnwindSafe};

    loom::thread_local! {
        /// Points that are left to the process that this thread of the model stands for.
        static LEFT: Cell<Option<u32>> = Cell::new(None);
    }

    /// The reason of a panic that stands for a death.
    struct Dead;

    /// The process may die here.
    pub(crate) fn point() {
        let left = LEFT.with(Cell::get);
        if left == Some(0) {
            panic::resume_unwind(Box::new(Dead));
        }
        LEFT.with(|cell| cell.set(left.map(|left| left - 1)));
    }

    /// Runs `process` until the point with this number. `None` if it has died there.
    pub(crate) fn until<T>(number: u32, process: impl FnOnce() -> T) -> Option<T> {
        LEFT.with(|cell| cell.set(Some(number)));
        let result = panic::catch_unwind(AssertUnwindSafe(process));
        LEFT.with(|cell| cell.set(None));
        match result {
            Ok(result) => Some(result),
            Err(reason) if reason.is::<Dead>() => None,
            Err(reason) => panic::resume_unwind(reason),
        }
    }
}

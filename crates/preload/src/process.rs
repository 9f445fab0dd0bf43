//! Who this process and this thread are. A forked child is another process, and a vforked one
//! borrows its parent's memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    /// The number of this thread, 0 while it is unknown.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// The process that the tables in private memory belong to.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The number of this thread.
pub fn thread() -> u32 {
    match THREAD.get() {
        0 => learn_thread(),
        thread => thread,
    }
}

#[cold]
fn learn_thread() -> u32 {
    let thread = match crate::seccomp::is_sealed() {
        // Without a system call: the address of a thread's own memory, as a number that no thread
        // has.
        true => THREAD.with(|own| (std::ptr::from_ref(own) as usize >> 4) as u32 | 1 << 31),
        false => rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(),
    };
    THREAD.set(thread);
    thread
}

/// Whether a thread exists.
pub fn is_alive(thread: u32) -> bool {
    // SAFETY: signal 0 is sent to no thread; the call only looks for it.
    let code = unsafe { libc::syscall(libc::SYS_tkill, thread, 0) };
    code == 0 || crate::errno::last() != libc::ESRCH
}

/// The private tables belong to this process from now on: it has loaded the library, or was forked.
pub fn take_over() {
    THREAD.set(0);
    OWNER.store(own(), Ordering::Relaxed);
}

/// The process ends: what it still closes is counted already.
pub fn disown() {
    OWNER.store(0, Ordering::Relaxed);
}

/// Whether the private tables are this process's. Not in a child of vfork(2), whose calls must
/// change nothing of its parent.
pub fn owns_tables() -> bool {
    crate::seccomp::is_sealed() || OWNER.load(Ordering::Relaxed) == own()
}

/// The number of this process.
pub fn own() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}

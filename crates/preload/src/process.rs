//! Who this process and this thread are. A forked child is another process, and a vforked one
//! borrows its parent's memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

thread_local! {
    /// The number of this thread, 0 while it is unknown.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// Where the [`owner`] is noted; null before the start.
static OWNER: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// Set once a child may use the memory of this process, as after vfork(2), or if the kernel does not
/// clear the page.
static IS_LENT: AtomicBool = AtomicBool::new(false);

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
    if OWNER.load(Ordering::Acquire).is_null() {
        OWNER.store(owner_page(), Ordering::Release);
    }
    set_owner(own());
}

/// The process ends: what it still closes is counted already.
pub fn disown() {
    set_owner(0);
}

fn set_owner(process: u32) {
    if let Some(owner) = owner() {
        owner.store(process, Ordering::Relaxed);
    }
}

/// The number of the process that the tables in private memory belong to, in a page that the kernel
/// clears in each child with a memory of its own.
fn owner() -> Option<&'static AtomicU32> {
    // SAFETY: the pointer is null, or that of a page or a static cell, which are never freed.
    unsafe { OWNER.load(Ordering::Acquire).as_ref() }
}

/// A page for [`owner`].
fn owner_page() -> *mut AtomicU32 {
    const PAGE: usize = 4096;
    static WITHOUT: AtomicU32 = AtomicU32::new(0);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping of this length at an address that the kernel chooses.
    let page = unsafe {
        let page = mmap_anonymous(std::ptr::null_mut(), PAGE, protection, MapFlags::PRIVATE);
        page.and_then(|page| madvise(page, PAGE, Advice::LinuxWipeOnFork).map(|()| page))
    };
    page.map_or_else(
        |_| {
            lend();
            (&raw const WITHOUT).cast_mut()
        },
        <*mut std::ffi::c_void>::cast,
    )
}

/// A child may use the memory of this process from now on.
pub fn lend() {
    IS_LENT.store(true, Ordering::Relaxed);
}

/// Whether the private tables are this process's. Not in a child of vfork(2), whose calls must
/// change nothing of its parent.
pub fn owns_tables() -> bool {
    crate::seccomp::is_sealed()
        || match owner().map_or(0, |owner| owner.load(Ordering::Relaxed)) {
            0 => false,
            _ if !IS_LENT.load(Ordering::Relaxed) => true,
            owner => owner == own(),
        }
}

/// The number of this process.
pub fn own() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}

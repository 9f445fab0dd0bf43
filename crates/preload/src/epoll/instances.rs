//! Which descriptors are epolls. All duplicates of one in this process are one *instance*.
//!
//! After a fork, several processes hold an instance, and the kernel hands an event to one of them.
//! That is right for connections that were registered before: all holders have them. One that is
//! registered later is known to one process only, and stays on TCP while a word that the holders
//! share counts several of them.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use levada_ring::wire::BELLS;
use libc::c_int;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::registry::Epoll;
use crate::lock::Guarded;
use crate::table::DESCRIPTORS;

/// An epoll of the kernel.
pub struct Instance {
    /// Its connections.
    pub state: Guarded<Epoll>,
    /// Its place among all.
    number: usize,
    is_used: AtomicBool,
    /// The number of processes that have descriptors of it, in memory that they share; null before
    /// the first fork. A process that writes anything there decides no more than whether
    /// connections in this epoll may leave TCP.
    holders: AtomicPtr<AtomicU32>,
}

/// Instances that a process can have. They are reused, and never freed.
const MAX: usize = 4096;
static ALL: [AtomicPtr<Instance>; MAX] = [const { AtomicPtr::new(null_mut()) }; MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// For each descriptor its instance; null for none.
static BY_DESCRIPTOR: [AtomicPtr<Instance>; DESCRIPTORS] =
    [const { AtomicPtr::new(null_mut()) }; DESCRIPTORS];
/// No epoll from here on is known.
static END: AtomicU32 = AtomicU32::new(0);

/// The instance of a descriptor.
#[inline]
pub fn find(epoll: c_int) -> Option<&'static Instance> {
    let cell = BY_DESCRIPTOR.get(usize::try_from(epoll).ok()?)?;
    // SAFETY: the pointer is null, or that of an instance, which is never freed.
    unsafe { cell.load(Ordering::Acquire).as_ref() }
}

/// The instance of a descriptor, which is new if it was not known. `None` if there are too many.
pub fn find_or_make(epoll: c_int) -> Option<&'static Instance> {
    if let Some(known) = find(epoll) {
        return Some(known);
    }
    let instance = take_unused().or_else(make)?;
    instance.holders.store(null_mut(), Ordering::Relaxed);
    insert(epoll, instance);
    Some(instance)
}

fn take_unused() -> Option<&'static Instance> {
    all().find(|instance| !instance.is_used.swap(true, Ordering::AcqRel))
}

fn make() -> Option<&'static Instance> {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let Some(cell) = ALL.get(number) else {
        COUNT.store(MAX, Ordering::Relaxed);
        return None;
    };
    let instance = Box::leak(Box::new(Instance {
        state: Guarded::new(Epoll::default()),
        number,
        is_used: AtomicBool::new(true),
        holders: AtomicPtr::new(null_mut()),
    }));
    cell.store(instance, Ordering::Release);
    Some(instance)
}

/// All instances, also those that are not used.
pub fn all() -> impl Iterator<Item = &'static Instance> {
    let count = COUNT.load(Ordering::Relaxed).min(MAX);
    // SAFETY: each pointer is null, or that of an instance, which is never freed.
    ALL[..count].iter().filter_map(|cell| unsafe { cell.load(Ordering::Acquire).as_ref() })
}

/// All descriptors that are epolls.
pub fn descriptors() -> impl Iterator<Item = c_int> {
    let all = (0..END.load(Ordering::Relaxed)).filter_map(|fd| c_int::try_from(fd).ok());
    all.filter(|fd| find(*fd).is_some())
}

/// Notes a descriptor of an instance.
pub fn insert(epoll: c_int, instance: &'static Instance) {
    let Some(cell) = usize::try_from(epoll).ok().and_then(|fd| BY_DESCRIPTOR.get(fd)) else {
        return;
    };
    instance.with(|state| state.descriptors.push(epoll));
    cell.store(std::ptr::from_ref(instance).cast_mut(), Ordering::Release);
    END.fetch_max(epoll.unsigned_abs() + 1, Ordering::Relaxed);
}

/// Removes a descriptor. If it was the last one of its instance, returns what that had.
pub fn remove(epoll: c_int) -> Option<Epoll> {
    let instance = find(epoll)?;
    BY_DESCRIPTOR.get(usize::try_from(epoll).ok()?)?.store(null_mut(), Ordering::Release);
    let old = instance.with(|state| {
        state.descriptors.retain(|other| *other != epoll);
        state.descriptors.is_empty().then(|| std::mem::take(state))
    });
    let old = old.flatten()?;
    instance.release();
    instance.is_used.store(false, Ordering::Release);
    Some(old)
}

/// A fork follows: each instance has one holder more. The caller holds the locks of all.
pub fn before_fork() {
    let held = || all().filter(|instance| instance.is_used.load(Ordering::Relaxed));
    // Words of an earlier fork would be those of other instances in earlier children.
    let is_new = |instance: &&Instance| instance.holders.load(Ordering::Relaxed).is_null();
    let new: Vec<_> = held().filter(is_new).collect();
    for (instance, word) in new.iter().zip(share(new.len())) {
        instance.holders.store(word, Ordering::Release);
    }
    held().for_each(Instance::hold);
}

/// Words that later children share. None if there is no memory: the instances then count as held by
/// one process.
fn share(count: usize) -> impl Iterator<Item = *mut AtomicU32> {
    let length = count * size_of::<AtomicU32>();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start = (count > 0)
        .then(|| unsafe { mmap_anonymous(null_mut(), length, protection, MapFlags::SHARED) });
    let start = start.and_then(Result::ok).map(|start| start.cast::<AtomicU32>());
    start.into_iter().flat_map(move |start| {
        (0..count).map(move |at| {
            let word = start.wrapping_add(at);
            // SAFETY: the word is within the mapping, and zero, which is valid.
            unsafe { (*word).store(1, Ordering::Relaxed) };
            word
        })
    })
}

/// The process ends.
pub fn release_all() {
    let is_held = |instance: &&Instance| instance.is_used.load(Ordering::Relaxed);
    all().filter(is_held).for_each(Instance::release);
}

impl Instance {
    /// Calls `use_it` with the connections. `None` in a signal handler that has interrupted such a
    /// call.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut Epoll) -> R) -> Option<R> {
        self.state.with(use_it)
    }

    /// The bell that is registered in it, once one is.
    pub fn bell(&self) -> u8 {
        (self.number % BELLS) as u8
    }

    fn holders(&self) -> Option<&'static AtomicU32> {
        // SAFETY: the pointer is null, or that of a word in a mapping that is never removed.
        unsafe { self.holders.load(Ordering::Acquire).as_ref() }
    }

    /// Returns true while several processes have it.
    pub fn is_held_by_several(&self) -> bool {
        self.holders().is_some_and(|holders| holders.load(Ordering::Acquire) > 1)
    }

    /// One more process has it.
    pub fn hold(&self) {
        self.holders().map(|holders| holders.fetch_add(1, Ordering::AcqRel));
    }

    /// This process has it no more.
    pub fn release(&self) {
        self.holders().map(|holders| holders.fetch_sub(1, Ordering::AcqRel));
    }
}

//! The state of connections, in pages that a process shares with its children of a later fork, as
//! they share the connections themselves.
//!
//! Which connections exist, and where their segments are mapped, is private memory of each process
//! ([`segments`](crate::segments)). A page is shared by the processes that have its connections
//! since their fork. New connections get pages that no earlier child has: a page without
//! connections is replaced before it is used again after a fork.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use levada_ring::records::RECORDS;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::connection::Connection;
use crate::lock::Guarded;
use crate::segments;

/// Bytes of a page, and the connections in one.
const PAGE: usize = 4096;
const IN_PAGE: usize = PAGE / STRIDE;
const STRIDE: usize = 256;
const PAGES: usize = RECORDS / IN_PAGE;
const LENGTH: usize = RECORDS * STRIDE;

const _: () = assert!(size_of::<Connection>() == STRIDE && PAGE.is_multiple_of(STRIDE));
const _: () = assert!(IN_PAGE <= u16::BITS as usize && RECORDS.is_multiple_of(IN_PAGE));

/// The address of the first page; null before [`create`].
static START: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// All numbers that were ever used are below this.
static USED: AtomicUsize = AtomicUsize::new(0);

static ALLOCATOR: Guarded<Allocator> = Guarded::new(Allocator::new());

/// The connections of this process that are in use.
struct Allocator {
    pages: [Page; PAGES],
    /// Pages that may have room, each once.
    open: [u16; PAGES],
    open_count: usize,
    /// Pages that were never used begin here.
    unused: usize,
    /// Forks of this process so far, also as a child.
    forks: u32,
}

#[derive(Clone, Copy)]
struct Page {
    /// A bit for each connection in use.
    taken: u16,
    is_open: bool,
    /// `forks` when the page was mapped.
    forks: u32,
}

const FULL: u16 = u16::MAX >> (u16::BITS as usize - IN_PAGE);

/// Reserves the addresses. The pages are mapped when they are needed.
///
/// # Errors
/// Those of mmap(2). All connections then stay on TCP.
pub fn create() -> rustix::io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), LENGTH, protection, flags)? };
    START.store(start.cast(), Ordering::Release);
    Ok(())
}

fn start() -> Option<NonNull<u8>> {
    NonNull::new(START.load(Ordering::Acquire))
}

/// The state of the connection with this number. `None` from [`RECORDS`] on.
#[inline]
pub fn connection(number: u32) -> Option<&'static Connection> {
    let number = usize::try_from(number).ok().filter(|number| *number < RECORDS)?;
    // SAFETY: the state is within the mapping, aligned, and made of atomics, for which every
    // pattern of bits is valid; the mapping is only ever replaced by another one of the same
    // length.
    start().map(|start| unsafe { start.add(number * STRIDE).cast().as_ref() })
}

/// The number of a connection.
#[inline]
pub fn number(connection: &Connection) -> u32 {
    let start = START.load(Ordering::Relaxed) as usize;
    ((std::ptr::from_ref(connection) as usize - start) / STRIDE) as u32
}

/// The numbers of all connections that ever existed are below this.
pub fn used() -> usize {
    USED.load(Ordering::Relaxed)
}

/// Takes a number that is not in use. `None` if there is none, or in a signal handler that has
/// interrupted such a call.
pub fn allocate() -> Option<(u32, &'static Connection)> {
    let number = ALLOCATOR.with(Allocator::take).flatten()?;
    USED.fetch_max(number as usize + 1, Ordering::Relaxed);
    connection(number).map(|connection| (number, connection))
}

/// Gives a number back. This process no longer has the connection.
pub fn release(number: u32) {
    ALLOCATOR.with(|allocator| allocator.give_back(number as usize));
}

/// See [`Guarded`]. All connections are shared with the child from now on.
pub fn before_fork() {
    ALLOCATOR.before_fork(|allocator| {
        allocator.forks = allocator.forks.wrapping_add(1);
        for number in allocator.taken() {
            let is_locked = || connection(number).is_some_and(Connection::is_locked);
            segments::own(number).share(is_locked);
        }
    });
}

/// See [`Guarded`].
pub fn after_fork() {
    ALLOCATOR.after_fork();
}

/// In the child: see [`segments::Own::in_child`].
pub fn in_child() {
    (0..used() as u32).for_each(|number| segments::own(number).in_child());
}

impl Allocator {
    const fn new() -> Self {
        let page = Page { taken: 0, is_open: false, forks: 0 };
        Self { pages: [page; PAGES], open: [0; PAGES], open_count: 0, unused: 0, forks: 0 }
    }

    fn take(&mut self) -> Option<u32> {
        loop {
            if self.open_count == 0 {
                if self.unused == PAGES {
                    return None;
                }
                self.unused += 1;
                self.map(self.unused - 1)?;
                self.open(self.unused - 1);
            }
            let at = usize::from(self.open[self.open_count - 1]);
            let is_shared = self.pages[at].forks != self.forks;
            if is_shared && self.pages[at].taken == 0 {
                self.map(at)?;
            } else if is_shared || self.pages[at].taken == FULL {
                self.open_count -= 1;
                self.pages[at].is_open = false;
                continue;
            }
            let free = (!self.pages[at].taken).trailing_zeros();
            self.pages[at].taken |= 1 << free;
            return Some(at as u32 * IN_PAGE as u32 + free);
        }
    }

    fn give_back(&mut self, number: usize) {
        let at = number / IN_PAGE;
        let Some(page) = self.pages.get_mut(at) else { return };
        page.taken &= !(1 << (number % IN_PAGE));
        if page.forks == self.forks || page.taken == 0 {
            self.open(at);
        }
    }

    fn taken(&self) -> impl Iterator<Item = u32> {
        (0..self.unused * IN_PAGE)
            .filter(|number| self.pages[number / IN_PAGE].taken >> (number % IN_PAGE) & 1 != 0)
            .map(|number| number as u32)
    }

    fn open(&mut self, at: usize) {
        if !std::mem::replace(&mut self.pages[at].is_open, true) {
            self.open[self.open_count] = at as u16;
            self.open_count += 1;
        }
    }

    /// Maps a new page there, which no other process has yet.
    fn map(&mut self, at: usize) -> Option<()> {
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the page is within the mapping of `create`, and no connection of this process is
        // in it. A thread that still reads the state of an ended one finds zeros, which are valid.
        unsafe {
            let page = start()?.add(at * PAGE).as_ptr().cast();
            mmap_anonymous(page, PAGE, protection, flags).ok()?;
        }
        self.pages[at].forks = self.forks;
        Some(())
    }
}

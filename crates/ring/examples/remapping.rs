//! Moves messages from one buffer to another, and prints the time of each in nanoseconds.
//!
//! `remapping copy BYTES` copies through shared memory, `remapping remap BYTES` maps the sender's
//! pages into the receiver's buffer and others into the sender's, and `remapping read BYTES` does
//! that and reads a byte of each page. `cargo xp sockets remap` runs it. SocksDirect remaps pages
//! of long messages by a module of the kernel; here it is mmap(2).

#![allow(unsafe_code)] // Mappings of this program's own.

use std::error::Error;
use std::ffi::c_void;
use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::slice;
use std::time::Instant;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const PAGE: usize = 4096;
const LONGEST: usize = 4 << 20;
/// Messages in flight: each has pages of its own.
const SLOTS: usize = 4;
/// Bytes that are moved in one measurement.
const TOTAL: usize = 512 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [how, bytes] = words.as_slice() else { return Err("how, and how many bytes?".into()) };
    let bytes = bytes.parse::<usize>()?;
    if !(PAGE..=LONGEST).contains(&bytes) || !bytes.is_multiple_of(PAGE) {
        return Err("whole pages, 4 MiB at most".into());
    }
    let length = SLOTS * LONGEST;
    let file = memfd_create("levada-remapping", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, length as u64)?;
    fallocate(&file, FallocateFlags::empty(), 0, length as u64)?;
    let shared = Buffer::of(Some(&file), length)?;
    let source = Buffer::of(None, LONGEST)?;
    let target = Buffer::of(None, LONGEST)?;
    let copy = |slot: usize| {
        let ring = shared.bytes(slot * LONGEST, bytes);
        ring.copy_from_slice(source.bytes(0, bytes));
        target.bytes(0, bytes).copy_from_slice(ring);
        Ok(())
    };
    // The sender's pages become the receiver's, and the sender gets others: one mapping at each
    // end.
    let remap = |slot: usize| {
        source.map_over(&file, (slot + 1) % SLOTS * LONGEST, bytes)?;
        target.map_over(&file, slot * LONGEST, bytes)
    };
    let read = |slot: usize| {
        remap(slot)?;
        let pages = target.bytes(0, bytes).iter().step_by(PAGE);
        black_box(pages.fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
        Ok(())
    };
    let time = match how.as_str() {
        "copy" => each(bytes, copy)?,
        "remap" => each(bytes, remap)?,
        "read" => each(bytes, read)?,
        _ => return Err("copy, remap or read".into()),
    };
    println!("{time:.0}");
    Ok(())
}

/// The time of one message in nanoseconds. `one` gets the number of its slot.
fn each(
    bytes: usize,
    mut one: impl FnMut(usize) -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    // The first rounds touch the pages.
    (0..SLOTS).try_for_each(&mut one)?;
    let rounds = (TOTAL / bytes).clamp(64, 20_000);
    let start = Instant::now();
    (0..rounds).try_for_each(|round| one(round % SLOTS))?;
    Ok(start.elapsed().as_nanos() as f64 / rounds as f64)
}

/// Memory of this program, at an address that stays the same when other pages are mapped there.
struct Buffer {
    start: *mut c_void,
    length: usize,
}

impl Buffer {
    fn of(file: Option<&OwnedFd>, length: usize) -> Result<Self, Box<dyn Error>> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let anonymous = memfd_create("levada-private", MemfdFlags::CLOEXEC)?;
        ftruncate(&anonymous, length as u64)?;
        let file = file.unwrap_or(&anonymous);
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), length, protection, flags, file, 0)? };
        Ok(Self { start, length })
    }

    /// Maps pages of the file over the first `length` bytes.
    fn map_over(&self, file: &OwnedFd, offset: usize, length: usize) -> Result<(), Box<dyn Error>> {
        assert!(length <= self.length);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
        // SAFETY: the range is this buffer's own, and no reference to it is held: the slices of
        // `bytes` end with each round.
        unsafe { mmap(self.start, length, protection, flags, file, offset as u64)? };
        Ok(())
    }

    #[allow(clippy::mut_from_ref)] // One thread, and one slice of each buffer at a time.
    fn bytes(&self, offset: usize, length: usize) -> &mut [u8] {
        assert!(offset + length <= self.length);
        // SAFETY: the range is within the mapping, whose pages are all there; slices of different
        // buffers overlap only where both are read.
        unsafe { slice::from_raw_parts_mut(self.start.cast::<u8>().add(offset), length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is this buffer's own, and its slices have ended.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

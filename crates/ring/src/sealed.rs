//! Files in memory that can be made neither shorter nor longer: else one process could end another
//! by SIGBUS.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

pub(crate) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Why a descriptor is not a segment.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its length, its seals or its first bytes are not those of a segment.
    #[error("the descriptor is no segment of this version: {0}")]
    NotASegment(&'static str),
    /// A system call failed.
    #[error("the segment cannot be mapped: {0}")]
    System(#[from] Errno),
}

/// Makes a file of `length` bytes, of which the pages of the first `allocated` are there: writing
/// to them cannot fail for want of memory.
///
/// # Errors
/// Those of memfd_create(2) and fallocate(2), and `FBIG` if the process may not have files of this
/// length.
pub(crate) fn create(name: &str, length: u64, allocated: u64) -> Result<OwnedFd, Errno> {
    let file = unsealed(name, length)?;
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, allocated)?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Makes a file of `length` bytes that has no seals yet.
///
/// # Errors
/// Those of memfd_create(2), and `FBIG` if the process may not have files of this length.
pub(crate) fn unsealed(name: &str, length: u64) -> Result<OwnedFd, Errno> {
    // Beyond the limit, the kernel would send SIGXFSZ, which ends a process by default.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < length) {
        return Err(Errno::FBIG);
    }
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, length)?;
    Ok(file)
}

/// Checks a file that another process has made.
///
/// # Errors
/// [`OpenError::NotASegment`] if it could be shortened later, or has another length.
pub(crate) fn check(file: impl AsFd, length: u64) -> Result<(), OpenError> {
    if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(OpenError::NotASegment("its length is not sealed"));
    }
    if u64::try_from(fstat(&file)?.st_size) != Ok(length) {
        return Err(OpenError::NotASegment("another length"));
    }
    Ok(())
}

//! Leaving the command that has started this process.

use std::io;

/// Puts this process into a session of its own, and lets no program that it starts inherit other
/// descriptors than standard input, output and errors: the command that has started it may hold
/// locks and pipes.
///
/// # Errors
/// Those of close_range(2).
pub fn detach() -> io::Result<()> {
    // It fails if the process leads a session already.
    let _ = rustix::process::setsid();
    uapi::close_range(3, u32::MAX, uapi::c::CLOSE_RANGE_CLOEXEC)?;
    Ok(())
}

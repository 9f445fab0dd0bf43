//! The control socket: one line for each step, one line for each answer.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::call::call;

/// Descriptors of the program itself have at least this number, so that a step gets the lowest
/// numbers.
pub const FIRST_OWN: RawFd = 200;

pub struct Control {
    stream: BufReader<UnixStream>,
}

impl Control {
    /// Connects to the run, and names this process.
    pub fn connect(folder: &Path, name: &str) -> Self {
        let stream = UnixStream::connect(folder.join("control")).unwrap();
        let moved = move_up(OwnedFd::from(stream));
        let mut control = Self { stream: BufReader::new(UnixStream::from(moved)) };
        control.write(&format!("{name} {}", std::process::id()));
        control
    }

    /// The control socket that an image before `exec` left.
    pub fn inherited(descriptor: RawFd) -> Self {
        // SAFETY: the image before `exec` left this descriptor for this purpose only.
        let stream = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Self { stream: BufReader::new(UnixStream::from(stream)) }
    }

    pub fn descriptor(&self) -> RawFd {
        self.stream.get_ref().as_raw_fd()
    }

    /// The next line, or nothing at the end of the run.
    pub fn read(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.stream.read_line(&mut line).unwrap_or(0);
        (length > 0).then(|| line.trim_end().to_owned())
    }

    /// Answers. A run that has ended does not read the answer.
    pub fn write(&mut self, line: &str) {
        let _ = self.stream.get_mut().write_all(format!("{line}\n").as_bytes());
    }
}

/// A duplicate with a high number, which `exec` does not close.
pub fn move_up(descriptor: OwnedFd) -> OwnedFd {
    let number = call!(libc::fcntl: descriptor.as_raw_fd(), libc::F_DUPFD, FIRST_OWN).unwrap();
    // SAFETY: the call returned a new descriptor.
    unsafe { OwnedFd::from_raw_fd(RawFd::try_from(number).unwrap()) }
}

//! Programs in the background.

use std::process::Child;

use crate::support::exit_code;

/// A program in the background; killed when dropped.
pub struct Background(pub Child);

impl Background {
    /// Waits for the end of the program: its exit code.
    pub fn end(mut self) -> i32 {
        exit_code(&mut self.0)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

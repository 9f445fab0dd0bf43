//! The end of a program's output.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use levada_core::printable::one_line;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The bytes that are kept.
const KEPT: usize = 8 * 1024;
/// The longest line that is returned, in bytes.
const MAX_LINE: usize = 300;

/// Reads an output to its end and keeps its last 8 KiB: the program never waits for a reader, and
/// cannot fill a disk.
#[derive(Clone, Default)]
pub struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// Reads `output` in a new task. Must be called within a runtime.
    pub fn follow(&self, mut output: impl AsyncRead + Send + Unpin + 'static) {
        let tail = self.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; KEPT];
            while let Ok(length @ 1..) = output.read(&mut buffer).await {
                tail.note(&buffer[..length]);
            }
        });
    }

    /// Adds bytes that the caller has read from the output.
    pub fn note(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
    }

    /// The last line that is not blank, without characters that are not printable; empty if there
    /// is none.
    pub fn last_line(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
        one_line(last.unwrap_or_default(), MAX_LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn the_last_line_is_kept_after_a_long_output() {
        let tail = Tail::default();
        assert_eq!(tail.last_line(), "");
        let (mut write, read) = tokio::io::duplex(64);
        tail.follow(read);
        let noise = vec![b'x'; 5 * KEPT];
        write.write_all(&noise).await.unwrap();
        write.write_all(b"\nfirst\n last\x1b[2J words \n\n").await.unwrap();
        drop(write);
        while !tail.last_line().starts_with("last") {
            tokio::task::yield_now().await;
        }
        assert_eq!(tail.last_line(), "last[2J words");
        assert!(tail.0.lock().unwrap().len() <= KEPT);
    }
}

//! The last words of a program that says much.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use levada_core::printable::one_line;
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is kept, in bytes.
const KEPT: usize = 8 * 1024;
/// The longest line that is told, in bytes.
const LINE: usize = 300;

/// Reads an output to its end and keeps its last bytes: the program never waits for a reader, and
/// cannot fill a disk.
#[derive(Clone, Default)]
pub struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// Reads `output` in a task of its own. Must be called within a runtime.
    pub fn follow(&self, mut output: impl AsyncRead + Send + Unpin + 'static) {
        let tail = self.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; KEPT];
            while let Ok(length @ 1..) = output.read(&mut buffer).await {
                tail.note(&buffer[..length]);
            }
        });
    }

    /// Takes note of what was said and somebody else has read.
    pub fn note(&self, said: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(said);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
    }

    /// The last line that says something, printable characters only; empty if there is none.
    pub fn last_line(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
        one_line(last.unwrap_or_default(), LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn the_last_line_is_told_however_much_came_before() {
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

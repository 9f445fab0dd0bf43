//! Randomness for keys, secrets and session ids.

use aws_lc_rs::rand::{SecureRandom, SystemRandom as Source};
use thiserror::Error;

/// The operating system gave no random bytes.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("the operating system gave no random bytes")]
pub struct RandomError;

/// A source of unpredictable bytes.
pub trait Random: Send + Sync {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// [`RandomError`] if the source failed; `bytes` must then not be used.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError>;
}

/// The random number generator of aws-lc, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError> {
        Source::new().fill(bytes).map_err(|_| RandomError)
    }
}

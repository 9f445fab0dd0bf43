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

/// Puts `list` in random order, which needs no secrecy: it stays as it is if the source fails.
pub fn shuffle<T>(list: &mut [T], random: &dyn Random) {
    for last in (1..list.len()).rev() {
        let mut bytes = [0; 8];
        if random.fill(&mut bytes).is_err() {
            return;
        }
        // The remainder prefers small numbers by less than 2^-32 for any list that fits in memory.
        let other = u64::from_be_bytes(bytes) % (last as u64 + 1);
        list.swap(last, usize::try_from(other).unwrap_or(last));
    }
}

/// The random number generator of aws-lc, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError> {
        Source::new().fill(bytes).map_err(|_| RandomError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_shuffled_list_has_every_order() {
        let mut orders = BTreeSet::new();
        // One of six orders is missing after 1000 attempts with a probability below 10^-77.
        for _ in 0..1000 {
            let mut list = [1, 2, 3];
            shuffle(&mut list, &SystemRandom);
            orders.insert(list);
        }
        assert_eq!(orders.len(), 6);
        assert!(orders.iter().all(|list| list.iter().sum::<i32>() == 6));
    }

    #[test]
    fn a_list_stays_in_order_without_randomness() {
        struct Failing;
        impl Random for Failing {
            fn fill(&self, _: &mut [u8]) -> Result<(), RandomError> {
                Err(RandomError)
            }
        }
        let mut list = [1, 2, 3];
        shuffle(&mut list, &Failing);
        assert_eq!(list, [1, 2, 3]);
    }
}

//! A statement by an old key that a new one takes its place: what `levada id rotate` makes.

use thiserror::Error;

use crate::{Identity, SecretKey, Signature, UnixTime, label, wire};

/// Why a succession was refused.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum SuccessionError {
    /// A field has the wrong length.
    #[error("the succession is malformed")]
    Malformed,
    /// Not signed by the old key.
    #[error("the succession is not signed by the old key")]
    Signature,
}

/// "From now on `new` stands for `old`", signed by `old`. Fields are fixed once it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Succession {
    old: Identity,
    new: Identity,
    time: UnixTime,
    signature: Signature,
}

fn message(old: &Identity, new: &Identity, time: UnixTime) -> Vec<u8> {
    [old.as_bytes().as_slice(), new.as_bytes(), &time.0.to_be_bytes()].concat()
}

impl Succession {
    /// `old` names `new` as what takes its place.
    pub fn sign(old: &SecretKey, new: &Identity, time: UnixTime) -> Self {
        let signature = old.sign(label::SUCCESSION, &message(&old.identity(), new, time));
        Self { old: old.identity(), new: *new, time, signature }
    }

    /// The key that is dead.
    pub fn old(&self) -> Identity {
        self.old
    }

    /// The key that takes its place.
    pub fn new_identity(&self) -> Identity {
        self.new
    }

    /// When it was made, by the clock of its maker.
    pub fn time(&self) -> UnixTime {
        self.time
    }

    /// As a wire message.
    pub fn to_wire(&self) -> wire::Succession {
        wire::Succession {
            old: self.old.as_bytes().to_vec(),
            new: self.new.as_bytes().to_vec(),
            time: self.time.0,
            signature: self.signature.to_vec(),
        }
    }

    /// Reads and verifies a wire message.
    ///
    /// # Errors
    /// [`SuccessionError`] if a length or the signature is wrong.
    pub fn from_wire(message_: &wire::Succession) -> Result<Self, SuccessionError> {
        let malformed = |_| SuccessionError::Malformed;
        let old = Identity::try_from(message_.old.as_slice()).map_err(malformed)?;
        let new = Identity::try_from(message_.new.as_slice()).map_err(malformed)?;
        let time = UnixTime(message_.time);
        let signature: Signature =
            message_.signature.as_slice().try_into().map_err(|_| SuccessionError::Malformed)?;
        old.verify(label::SUCCESSION, &message(&old, &new, time), &signature)
            .map_err(|_| SuccessionError::Signature)?;
        Ok(Self { old, new, time, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRandom;

    #[test]
    fn only_the_old_key_names_its_successor() {
        let [old, new] = [(); 2].map(|()| SecretKey::generate(&SystemRandom).unwrap());
        let succession = Succession::sign(&old, &new.identity(), UnixTime(7));
        assert_eq!(Succession::from_wire(&succession.to_wire()), Ok(succession.clone()));
        let mut forged = succession.to_wire();
        forged.old = new.identity().as_bytes().to_vec();
        assert_eq!(Succession::from_wire(&forged), Err(SuccessionError::Signature));
        let mut later = succession.to_wire();
        later.time += 1;
        assert_eq!(Succession::from_wire(&later), Err(SuccessionError::Signature));
    }
}

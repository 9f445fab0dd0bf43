//! A statement by an old key that a new one takes its place: what `levada id rotate` makes.

use thiserror::Error;

use crate::{Identity, SecretKey, Signature, UnixTime, label, wire};

/// Why a succession was refused.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum SuccessionError {
    /// A field has the wrong length.
    #[error("the succession is malformed")]
    Malformed,
    /// More than [`Succession::MAX_KEEP`] sessions are kept.
    #[error("a succession keeps at most {} sessions", Succession::MAX_KEEP)]
    TooMany,
    /// Not signed by the old key.
    #[error("the succession is not signed by the old key")]
    Signature,
}

/// The id of a session that a succession keeps.
type SessionBytes = [u8; 16];

/// "From now on `new` stands for `old`", signed by `old`. Fields are fixed once it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Succession {
    old: Identity,
    new: Identity,
    time: UnixTime,
    keep: Vec<SessionBytes>,
    signature: Signature,
}

/// What is signed. The parts before the ids have a fixed length, so that a statement without ids is the one of
/// protocol versions 1 and 2.
fn message(old: &Identity, new: &Identity, time: UnixTime, keep: &[SessionBytes]) -> Vec<u8> {
    let mut message = [old.as_bytes().as_slice(), new.as_bytes(), &time.0.to_be_bytes()].concat();
    message.extend(keep.iter().flatten());
    message
}

impl Succession {
    /// Most sessions that one statement keeps.
    pub const MAX_KEEP: usize = 256;

    /// `old` names `new` as what takes its place, and keeps no session that it requested for others.
    pub fn sign(old: &SecretKey, new: &Identity, time: UnixTime) -> Self {
        Self::signed(old, new, time, Vec::new())
    }

    /// As [`Self::sign`], but the sessions with the ids `keep` go on, though `old` requested them for other
    /// identities.
    ///
    /// # Errors
    /// [`SuccessionError::TooMany`] if there are more than [`Self::MAX_KEEP`] ids.
    pub fn sign_keeping(
        old: &SecretKey,
        new: &Identity,
        time: UnixTime,
        keep: &[[u8; 16]],
    ) -> Result<Self, SuccessionError> {
        if keep.len() > Self::MAX_KEEP {
            return Err(SuccessionError::TooMany);
        }
        Ok(Self::signed(old, new, time, keep.to_vec()))
    }

    fn signed(old: &SecretKey, new: &Identity, time: UnixTime, keep: Vec<SessionBytes>) -> Self {
        let signature = old.sign(label::SUCCESSION, &message(&old.identity(), new, time, &keep));
        Self { old: old.identity(), new: *new, time, keep, signature }
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

    /// The ids of the sessions that go on, though the old key requested them for other identities.
    pub fn keep(&self) -> &[[u8; 16]] {
        &self.keep
    }

    /// As a wire message.
    pub fn to_wire(&self) -> wire::Succession {
        wire::Succession {
            old: self.old.as_bytes().to_vec(),
            new: self.new.as_bytes().to_vec(),
            time: self.time.0,
            signature: self.signature.to_vec(),
            keep: self.keep.iter().map(|id| id.to_vec()).collect(),
        }
    }

    /// Reads and verifies a wire message.
    ///
    /// # Errors
    /// [`SuccessionError`] if a length, the number of ids or the signature is wrong.
    pub fn from_wire(message_: &wire::Succession) -> Result<Self, SuccessionError> {
        let malformed = |_| SuccessionError::Malformed;
        let old = Identity::try_from(message_.old.as_slice()).map_err(malformed)?;
        let new = Identity::try_from(message_.new.as_slice()).map_err(malformed)?;
        let time = UnixTime(message_.time);
        if message_.keep.len() > Self::MAX_KEEP {
            return Err(SuccessionError::TooMany);
        }
        let ids = message_.keep.iter().map(|id| SessionBytes::try_from(id.as_slice()));
        let keep: Vec<_> = ids.collect::<Result<_, _>>().map_err(|_| SuccessionError::Malformed)?;
        let signature: Signature =
            message_.signature.as_slice().try_into().map_err(|_| SuccessionError::Malformed)?;
        old.verify(label::SUCCESSION, &message(&old, &new, time, &keep), &signature)
            .map_err(|_| SuccessionError::Signature)?;
        Ok(Self { old, new, time, keep, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRandom;

    #[test]
    fn only_the_old_key_names_its_successor() {
        let [old, new] = [(); 2].map(|()| SecretKey::generate(&SystemRandom).unwrap());
        let keep = [[1; 16], [2; 16]];
        let succession =
            Succession::sign_keeping(&old, &new.identity(), UnixTime(7), &keep).unwrap();
        assert_eq!(Succession::from_wire(&succession.to_wire()), Ok(succession.clone()));
        let mut forged = succession.to_wire();
        forged.old = new.identity().as_bytes().to_vec();
        assert_eq!(Succession::from_wire(&forged), Err(SuccessionError::Signature));
        let mut later = succession.to_wire();
        later.time += 1;
        assert_eq!(Succession::from_wire(&later), Err(SuccessionError::Signature));
    }

    #[test]
    fn the_kept_sessions_are_part_of_what_is_signed() {
        let [old, new] = [(); 2].map(|()| SecretKey::generate(&SystemRandom).unwrap());
        let sign = |keep: &[_]| Succession::sign_keeping(&old, &new.identity(), UnixTime(7), keep);
        let kept = sign(&[[1; 16], [2; 16]]).unwrap().to_wire();
        for keep in [vec![], vec![vec![1; 16]], vec![vec![2; 16], vec![1; 16]]] {
            let changed = wire::Succession { keep, ..kept.clone() };
            assert_eq!(Succession::from_wire(&changed), Err(SuccessionError::Signature));
        }
        let short = wire::Succession { keep: vec![vec![1; 15]], ..kept.clone() };
        assert_eq!(Succession::from_wire(&short), Err(SuccessionError::Malformed));
        let many = wire::Succession { keep: vec![vec![1; 16]; 257], ..kept };
        assert_eq!(Succession::from_wire(&many), Err(SuccessionError::TooMany));
        assert_eq!(sign(&[[1; 16]; 257]), Err(SuccessionError::TooMany));
    }
}

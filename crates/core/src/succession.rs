//! Successions: a statement, signed by an old key, that names its successor. `levada id rotate`
//! makes one.

use thiserror::Error;

use crate::{Identity, SecretKey, Signature, UnixTime, label, wire};

/// Why a succession was refused.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum SuccessionError {
    /// A field has the wrong length.
    #[error("the succession is malformed")]
    Malformed,
    /// More than [`Succession::MAX_KEEP`] session ids.
    #[error("a succession keeps at most {} sessions", Succession::MAX_KEEP)]
    TooMany,
    /// Not signed by the old key.
    #[error("the succession is not signed by the old key")]
    Signature,
}

/// The id of a session that continues after a succession.
type SessionBytes = [u8; 16];

/// The statement that `new` replaces `old`, signed by `old`. Immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Succession {
    old: Identity,
    new: Identity,
    time: UnixTime,
    keep: Vec<SessionBytes>,
    signature: Signature,
}

/// The signed bytes. The fields before the ids have a fixed length, so a statement without ids is
/// that of protocol versions 1 and 2.
fn message(old: &Identity, new: &Identity, time: UnixTime, keep: &[SessionBytes]) -> Vec<u8> {
    let mut message = [old.as_bytes().as_slice(), new.as_bytes(), &time.0.to_be_bytes()].concat();
    message.extend(keep.iter().flatten());
    message
}

impl Succession {
    /// Most session ids in one statement.
    pub const MAX_KEEP: usize = 256;

    /// A statement that `new` replaces `old`; sessions that `old` requested for other identities
    /// end.
    pub fn sign(old: &SecretKey, new: &Identity, time: UnixTime) -> Self {
        Self::signed(old, new, time, Vec::new())
    }

    /// As [`Self::sign`], but the sessions `keep` continue.
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

    /// The replaced key.
    pub fn old(&self) -> Identity {
        self.old
    }

    /// The successor.
    pub fn new_identity(&self) -> Identity {
        self.new
    }

    /// When it was signed, by the signer's clock.
    pub fn time(&self) -> UnixTime {
        self.time
    }

    /// The ids of the sessions that continue although the old key requested them for other
    /// identities.
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

    /// Decodes and verifies a wire message.
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
    fn rejects_a_succession_not_signed_by_the_old_key() {
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
    fn the_signature_covers_the_kept_sessions() {
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

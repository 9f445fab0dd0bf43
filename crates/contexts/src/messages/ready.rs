//! READY, and the start of the session in that of the server.

use levada_core::{Digest, label::derive};

use crate::ContextError;
use crate::frame;
use crate::kem::{open_once, seal_once};
use crate::schedule::Secret;

/// The verdict on a session's start, for one middlebox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) started: bool,
    /// Who may share stored answers; zeros: they must not be shared.
    pub(crate) realm: [u8; 16],
}

/// Bytes of a sealed [`Start`].
pub(crate) const START: usize = 33;

impl Start {
    /// `aad` is the header of READY_0 and its tag.
    pub(crate) fn seal(
        self,
        z: &Secret,
        th2: &Digest,
        aad: &[u8],
    ) -> Result<Vec<u8>, ContextError> {
        let mut message = [0; 17];
        message[0] = u8::from(self.started);
        message[1..].copy_from_slice(&self.realm);
        seal_once(&z.derive(derive::START, &[th2]), aad, &message)
    }

    pub(crate) fn open(
        z: &Secret,
        th2: &Digest,
        aad: &[u8],
        sealed: &[u8],
    ) -> Result<Self, ContextError> {
        let opened = open_once(&z.derive(derive::START, &[th2]), aad, sealed)?;
        let opened = opened.ok_or(ContextError::forged("a start"))?;
        match opened.split_first() {
            Some((verdict @ 0..=1, realm)) => {
                let realm = realm.try_into().map_err(|_| ContextError::Malformed("a start"))?;
                Ok(Self { started: *verdict == 1, realm })
            }
            _ => Err(ContextError::Malformed("a start")),
        }
    }
}

/// Appends READY_i.
pub(crate) fn put_ready(out: &mut Vec<u8>, hop: u8, tag: &[u8], more: &[u8]) {
    frame::put(out, frame::READY, &[&[hop], tag, more]);
}

/// Checks READY of a hop; its body must be the number and the tag only.
pub(crate) fn check_ready(
    hop: u8,
    body: &[u8],
    expected: Option<&[u8]>,
) -> Result<(), ContextError> {
    let (of, tag) = body.split_first().ok_or(ContextError::Malformed("a READY"))?;
    if *of != hop {
        return Err(ContextError::Unexpected("a READY of another party"));
    }
    let equal =
        |expected: &[u8]| aws_lc_rs::constant_time::verify_slices_are_equal(expected, tag).is_ok();
    if expected.is_some_and(equal) { Ok(()) } else { Err(ContextError::forged_by("a READY", hop)) }
}

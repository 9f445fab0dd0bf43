//! MBHELLO: the first message of a middlebox.

use levada_core::{Digest, SecretKey, Signature, label, label::derive, sha256};

use super::next_transcript;
use crate::ContextError;
use crate::frame::{self, Fields};
use crate::path::{Hop, Path};
use crate::schedule::{Resume, Secret, Tag};
use levada_channel::parts::HEADER;

/// MBHELLO: what a middlebox says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) hop: u8,
    pub(crate) proof: HelloProof,
}

/// How the middlebox proves itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HelloProof {
    /// By its identity key, for a one-time key.
    Signed { key_hash: Digest, signature: Signature },
    /// By the secrets of an earlier session.
    Resumed { nonce: [u8; 32], for_client: Tag, for_server: Tag },
}

impl Hello {
    /// Signed by the middlebox `hop`, after the transcript `before` (L of the hop before it).
    pub(crate) fn signed(key: &SecretKey, hop: u8, before: &Digest, kem_key: &[u8]) -> Self {
        #[cfg(test)]
        crate::tests::probe::public_key_operation();
        let key_hash = sha256(&[kem_key]);
        let message = signed_hello(hop, before, &key_hash);
        let signature = key.sign(label::MIDDLEBOX_HELLO, &message);
        Self { hop, proof: HelloProof::Signed { key_hash, signature } }
    }

    /// Tagged with the secrets of an earlier session. None without y.
    pub(crate) fn resumed(
        resume: &Resume,
        hop: u8,
        before: &Digest,
        nonce: [u8; 32],
    ) -> Option<Self> {
        let for_client = hello_tag(&resume.psk, hop, before, &nonce);
        let for_server = hello_tag(resume.y.as_ref()?, hop, before, &nonce);
        Some(Self { hop, proof: HelloProof::Resumed { nonce, for_client, for_server } })
    }

    pub(crate) fn is_resumed(&self) -> bool {
        matches!(self.proof, HelloProof::Resumed { .. })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match &self.proof {
            HelloProof::Signed { key_hash, signature } => {
                frame::put(out, frame::MBHELLO, &[&[self.hop, 1], key_hash, signature]);
            }
            HelloProof::Resumed { nonce, for_client, for_server } => {
                let parts: &[&[u8]] = &[&[self.hop, 2], nonce, for_client, for_server];
                frame::put(out, frame::MBHELLO, parts);
            }
        }
    }

    /// From a frame's body.
    pub(crate) fn take(body: &[u8]) -> Result<Self, ContextError> {
        let mut fields = Fields::new(body, "a MBHELLO");
        let [hop, mode] = fields.array()?;
        let proof = match mode {
            1 => HelloProof::Signed { key_hash: fields.array()?, signature: fields.array()? },
            2 => HelloProof::Resumed {
                nonce: fields.array()?,
                for_client: fields.array()?,
                for_server: fields.array()?,
            },
            _ => return Err(fields.error()),
        };
        fields.end()?;
        Ok(Self { hop, proof })
    }

    /// At the client: the signature under the key of PATH, or the tag under what the client kept.
    pub(crate) fn verify_at_client(
        &self,
        path: &Path,
        before: &Digest,
        psk: Option<&Secret>,
    ) -> Result<(), ContextError> {
        match &self.proof {
            HelloProof::Signed { .. } => self.verify_signature(path, before),
            HelloProof::Resumed { nonce, for_client, .. } => {
                let expected = psk.map(|psk| hello_tag(psk, self.hop, before, nonce));
                self.compare(expected, for_client)
            }
        }
    }

    /// At the server: the signature under the key of PATH, or the tag under y, which no client has.
    pub(crate) fn verify_at_server(
        &self,
        path: &Path,
        before: &Digest,
        y: Option<&Secret>,
    ) -> Result<(), ContextError> {
        match &self.proof {
            HelloProof::Signed { .. } => self.verify_signature(path, before),
            HelloProof::Resumed { nonce, for_server, .. } => {
                let expected = y.map(|y| hello_tag(y, self.hop, before, nonce));
                self.compare(expected, for_server)
            }
        }
    }

    fn compare(&self, expected: Option<Tag>, tag: &Tag) -> Result<(), ContextError> {
        let fits = expected.is_some_and(|expected| {
            aws_lc_rs::constant_time::verify_slices_are_equal(&expected, tag).is_ok()
        });
        if fits { Ok(()) } else { Err(ContextError::forged_by("a MBHELLO", self.hop)) }
    }

    fn verify_signature(&self, path: &Path, before: &Digest) -> Result<(), ContextError> {
        let forged = ContextError::forged_by("a MBHELLO", self.hop);
        let HelloProof::Signed { key_hash, signature } = &self.proof else { return Err(forged) };
        let at = usize::from(self.hop).checked_sub(1);
        let Some(hop) = at.and_then(|at| path.hops.get(at)) else { return Err(forged) };
        #[cfg(test)]
        crate::tests::probe::public_key_operation();
        let message = signed_hello(self.hop, before, key_hash);
        let verified = hop.party.identity.verify(label::MIDDLEBOX_HELLO, &message, signature);
        verified.map_err(|_| forged)
    }
}

/// L_{i-1} ‖ i ‖ 1 ‖ H(KEM key).
fn signed_hello(hop: u8, before: &Digest, key_hash: &Digest) -> Vec<u8> {
    [&before[..], &[hop, 1], key_hash].concat()
}

/// The tag of L_{i-1} ‖ i ‖ 2 ‖ nonce.
fn hello_tag(key: &Secret, hop: u8, before: &Digest, nonce: &[u8; 32]) -> Tag {
    key.derive(derive::HELLO, &[]).tag(&[before, &[hop, 2], nonce])
}

/// Calls `each` with every hop, its MBHELLO in `body`, and the transcript before it; `transcript`
/// becomes L_n.
pub(crate) fn each_hello(
    body: &[u8],
    path: &Path,
    transcript: &mut Digest,
    mut each: impl FnMut(&Hop, Hello, &Digest) -> Result<(), ContextError>,
) -> Result<(), ContextError> {
    let mut rest = body;
    for (number, hop) in (1u8..).zip(&path.hops) {
        let mut fields = Fields::new(rest, "an ECHO that does not fit PATH");
        let header: [u8; HEADER] = fields.array()?;
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        let hello = Hello::take(fields.bytes(length)?)?;
        if header[..3] != [frame::MBHELLO, 3, 3] || hello.hop != number {
            return Err(ContextError::Malformed("an ECHO that does not fit PATH"));
        }
        each(hop, hello, transcript)?;
        let (whole, after) = rest.split_at(HEADER + length);
        *transcript = next_transcript(transcript, whole);
        rest = after;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(ContextError::Malformed("an ECHO that does not fit PATH"))
    }
}

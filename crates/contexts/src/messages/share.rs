//! SSHARE and CSHARE: what each endpoint gives a middlebox.

use levada_core::{Digest, label::derive};
use zeroize::Zeroizing;

use super::split;
use crate::ContextError;
use crate::frame::{self, Fields};
use crate::kem::{self, Binding, OneTimeKey, open_once, seal_once};
use crate::path::Kem;
use crate::schedule::Secret;

/// What the server sends one middlebox: a_i, z_i, and the server's halves.
pub(crate) struct Share {
    pub(crate) a: Secret,
    pub(crate) z: Secret,
    pub(crate) halves: Zeroizing<Vec<u8>>,
}

impl Share {
    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(64 + self.halves.len()));
        bytes.extend_from_slice(self.a.bytes());
        bytes.extend_from_slice(self.z.bytes());
        bytes.extend_from_slice(&self.halves);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (a, rest) = bytes.split_first_chunk()?;
        let (z, halves) = rest.split_first_chunk()?;
        let halves = Zeroizing::new(halves.to_vec());
        Some(Self { a: Secret::new(*a), z: Secret::new(*z), halves })
    }

    /// Appends SSHARE_i, sealed to a one-time key.
    pub(crate) fn put_sealed(
        &self,
        out: &mut Vec<u8>,
        (kem, key): (Kem, &[u8]),
        hop: u8,
        th1: &Digest,
    ) -> Result<(), ContextError> {
        let message = self.encode();
        let length = 1 + kem.output_len() + message.len() + kem::OVERHEAD;
        let binding = Binding { hop, th1, header: frame::header(frame::SSHARE, length) };
        let (output, sealed) = kem::seal(kem, key, &binding, &message)?;
        frame::put(out, frame::SSHARE, &[&[hop], &output, &sealed]);
        Ok(())
    }

    /// Appends SSHARE_i, sealed under y of an earlier session.
    pub(crate) fn put_resumed(
        &self,
        out: &mut Vec<u8>,
        y: &Secret,
        hop: u8,
        th1: &Digest,
    ) -> Result<(), ContextError> {
        let message = self.encode();
        let header = frame::header(frame::SSHARE, 1 + message.len() + kem::OVERHEAD);
        let aad = Binding { hop, th1, header }.aad();
        let sealed = seal_once(&y.derive(derive::SHARE, &[th1]), &aad, &message)?;
        frame::put(out, frame::SSHARE, &[&[hop], &sealed]);
        Ok(())
    }

    /// Opens a whole frame SSHARE_i that was sealed to a one-time key.
    pub(crate) fn open_sealed(
        kem: Kem,
        key: &OneTimeKey,
        hop: u8,
        th1: &Digest,
        whole: &[u8],
    ) -> Result<Self, ContextError> {
        let (header, body) = split(whole)?;
        let mut fields = Fields::new(body, "a SSHARE");
        fields.byte()?;
        let output = fields.bytes(kem.output_len())?;
        let opened = key.open(&Binding { hop, th1, header }, output, fields.rest())?;
        Self::decode(&opened).ok_or(ContextError::Malformed("a SSHARE"))
    }

    /// Opens a whole frame SSHARE_i that was sealed under y.
    pub(crate) fn open_resumed(
        y: &Secret,
        hop: u8,
        th1: &Digest,
        whole: &[u8],
    ) -> Result<Self, ContextError> {
        let (header, body) = split(whole)?;
        let aad = Binding { hop, th1, header }.aad();
        let sealed = body.get(1..).ok_or(ContextError::Malformed("a SSHARE"))?;
        let opened = open_once(&y.derive(derive::SHARE, &[th1]), &aad, sealed)?;
        let opened = opened.ok_or(ContextError::forged("a server's share"))?;
        Self::decode(&opened).ok_or(ContextError::Malformed("a SSHARE"))
    }
}

/// Appends CSHARE_i: the client's halves.
pub(crate) fn put_client_share(
    out: &mut Vec<u8>,
    a: &Secret,
    th2: &Digest,
    hop: u8,
    halves: &[u8],
) -> Result<(), ContextError> {
    let header = frame::header(frame::CSHARE, 1 + halves.len() + kem::OVERHEAD);
    let aad = Binding { hop, th1: th2, header }.aad();
    let sealed = seal_once(&a.derive(derive::CSHARE, &[th2]), &aad, halves)?;
    frame::put(out, frame::CSHARE, &[&[hop], &sealed]);
    Ok(())
}

/// Opens a whole frame CSHARE_i.
pub(crate) fn open_client_share(
    a: &Secret,
    th2: &Digest,
    hop: u8,
    whole: &[u8],
) -> Result<Zeroizing<Vec<u8>>, ContextError> {
    let (header, body) = split(whole)?;
    let aad = Binding { hop, th1: th2, header }.aad();
    let sealed = body.get(1..).ok_or(ContextError::Malformed("a CSHARE"))?;
    let opened = open_once(&a.derive(derive::CSHARE, &[th2]), &aad, sealed)?;
    opened.ok_or(ContextError::forged("a client's share"))
}

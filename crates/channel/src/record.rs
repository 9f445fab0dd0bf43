//! One record in the TLS 1.3 format (RFC 8446 section 5): its header, sealing and opening.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;
use zeroize::Zeroizing;

use crate::Error;

/// Bytes of a record's header.
pub const HEADER: usize = 5;
/// Bytes of the authentication tag at a record's end.
pub const TAG: usize = 16;
/// Bytes that a sealed record adds to its content: header, type and tag.
pub(crate) const OVERHEAD: usize = HEADER + 1 + TAG;
/// "The length MUST NOT exceed 2^14 bytes" (RFC 8446 section 5.1).
pub(crate) const MAX_CONTENT: usize = 1 << 14;
/// "The length MUST NOT exceed 2^14 + 256 bytes" (RFC 8446 section 5.2).
const MAX_SEALED: usize = MAX_CONTENT + 256;

/// Content types (RFC 8446 section 5.1).
pub const CHANGE_CIPHER_SPEC: u8 = 20;
/// See [`CHANGE_CIPHER_SPEC`].
pub const ALERT: u8 = 21;
/// See [`CHANGE_CIPHER_SPEC`].
pub const HANDSHAKE: u8 = 22;
/// See [`CHANGE_CIPHER_SPEC`].
pub const DATA: u8 = 23;

/// The length of the first record in `input`, header included; None if it is incomplete.
pub(crate) fn length(input: &[u8]) -> Result<Option<usize>, Error> {
    let Some(&[kind, major, _, high, low]) = input.first_chunk::<HEADER>() else { return Ok(None) };
    if !(CHANGE_CIPHER_SPEC..=DATA).contains(&kind) || major != 3 {
        return Err(Error::Record("not a TLS record"));
    }
    let body = usize::from(u16::from_be_bytes([high, low]));
    if body > MAX_SEALED {
        return Err(Error::Record("a record that is too long"));
    }
    Ok((input.len() >= HEADER + body).then_some(HEADER + body))
}

/// The key of one direction and the number of the next record under it.
pub struct RecordKey {
    key: LessSafeKey,
    iv: Zeroizing<[u8; 12]>,
    sequence: u64,
}

impl RecordKey {
    /// The key, IV and sequence number that rustls exports.
    ///
    /// # Errors
    /// [`Error::Internal`] if the cipher is unknown.
    pub fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(Error::Internal("an unknown cipher")),
        };
        let unbound = UnboundKey::new(algorithm, key.as_ref())
            .map_err(|_| Error::Internal("the cipher rejected its key"))?;
        let iv =
            iv.as_ref().try_into().map_err(|_| Error::Internal("an IV of unexpected length"))?;
        Ok(Self { key: LessSafeKey::new(unbound), iv: Zeroizing::new(iv), sequence })
    }

    /// How many records were sealed or opened under this key.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Encrypts `body` (content, type, padding) in place; the returned tag follows it.
    ///
    /// # Errors
    /// [`Error::Internal`] if the sequence number is used up.
    pub fn seal(&mut self, header: [u8; HEADER], body: &mut [u8]) -> Result<Tag, Error> {
        let nonce = self.next_nonce()?;
        self.key
            .seal_in_place_separate_tag(nonce, Aad::from(header), body)
            .map_err(|_| Error::Internal("the cipher failed to seal"))
    }

    /// Decrypts a whole record in place: its inner type and content, without padding.
    ///
    /// # Errors
    /// [`Error::Record`] if the record is malformed, [`Error::Forged`] if it was not sealed by the
    /// peer.
    pub fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<(u8, &'a [u8]), Error> {
        let (header, body) =
            record.split_first_chunk_mut().ok_or(Error::Record("a truncated record"))?;
        // A plaintext record after the handshake was injected on the path.
        let header: [u8; HEADER] = *header;
        if header[0] != DATA {
            return Err(Error::Record("a record in the clear after the handshake"));
        }
        let nonce = self.next_nonce()?;
        let plain: &'a [u8] =
            self.key.open_in_place(nonce, Aad::from(header), body).map_err(|_| Error::Forged)?;
        // "The full encoded TLSInnerPlaintext MUST NOT exceed 2^14 + 1 octets" (section 5.4).
        if plain.len() > MAX_CONTENT + 1 {
            return Err(Error::Record("more content than a record may have"));
        }
        // "The receiving implementation scans the field from the end toward the beginning until it
        // finds a non-zero octet" (RFC 8446 section 5.4).
        let at = plain.iter().rposition(|&byte| byte != 0).ok_or(Error::Record("only padding"))?;
        Ok((plain[at], &plain[..at]))
    }

    /// The sequence number, padded and XORed with the IV (RFC 8446 section 5.3).
    fn next_nonce(&mut self) -> Result<Nonce, Error> {
        let mut nonce = *self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence = self.sequence.checked_add(1).ok_or(Error::Internal("too many records"))?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

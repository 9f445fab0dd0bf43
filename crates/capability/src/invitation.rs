//! Invitations, by which a node accepts a new identity.

use levada_core::{
    Digest, Identity, Random, RandomError, TextError, decode_text, encode_text, label, sha256,
};
use std::fmt;
use zeroize::Zeroizing;

use crate::error::InvitationError;
use crate::id::id_of_secret;
use crate::reader::{MAX_ADDRESSES, MAX_NAME, Reader, append_addresses, are_addresses};

const PREFIX: &str = "lvinv1";
const KEY_LEN: usize = 32;
const MAX_LEN: usize = KEY_LEN + Invitation::SECRET_LEN + 1 + MAX_ADDRESSES * (1 + MAX_NAME);

/// The key of the inviting node, a secret for one use, and addresses of the node. The invited
/// client connects to that key only.
#[derive(Clone)]
pub struct Invitation {
    node: Identity,
    secret: Zeroizing<[u8; Self::SECRET_LEN]>,
    addresses: Vec<String>,
}

impl Invitation {
    /// Length of the secret, in bytes.
    pub const SECRET_LEN: usize = 16;

    /// An invitation of these parts.
    ///
    /// # Errors
    /// [`InvitationError::Addresses`] if there are more than 8, or if one is empty, longer than
    /// 255 bytes or has control characters.
    pub fn new(
        node: Identity,
        secret: Zeroizing<[u8; Self::SECRET_LEN]>,
        addresses: Vec<String>,
    ) -> Result<Self, InvitationError> {
        if !are_addresses(&addresses) {
            return Err(InvitationError::Addresses);
        }
        Ok(Self { node, secret, addresses })
    }

    /// Generates the secret of a new invitation.
    ///
    /// # Errors
    /// [`RandomError`] if the random source failed.
    pub fn generate_secret(
        random: &dyn Random,
    ) -> Result<Zeroizing<[u8; Self::SECRET_LEN]>, RandomError> {
        let mut secret = Zeroizing::new([0; Self::SECRET_LEN]);
        random.fill(secret.as_mut())?;
        Ok(secret)
    }

    /// The hash that a node stores instead of the secret: SHA-256(`label::INVITATION` ‖ 00 ‖
    /// secret).
    pub fn hash(secret: &[u8; Self::SECRET_LEN]) -> Digest {
        sha256(&[label::INVITATION.as_bytes(), &[0], secret])
    }

    /// The id of the invitation with this hash, in lists and in the audit log.
    pub fn id(hash: &Digest) -> String {
        id_of_secret(hash)
    }

    /// The inviting node. A client connects to this key only.
    pub fn node(&self) -> Identity {
        self.node
    }

    /// The secret, which the node accepts once.
    pub fn secret(&self) -> &Zeroizing<[u8; Self::SECRET_LEN]> {
        &self.secret
    }

    /// Addresses of the node: unauthenticated hints.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The text form. It contains the secret.
    pub fn to_text(&self) -> Zeroizing<String> {
        // Full capacity: a reallocation would leave a copy of the secret in freed memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_LEN));
        bytes.extend_from_slice(self.node.as_bytes());
        bytes.extend_from_slice(self.secret.as_ref());
        append_addresses(&mut bytes, &self.addresses);
        Zeroizing::new(encode_text(PREFIX, &bytes))
    }

    /// Parses the output of [`Self::to_text`]. The text form is canonical; the caller trims white
    /// space.
    ///
    /// # Errors
    /// [`InvitationError::Text`] names the fault.
    pub fn from_text(text: &str) -> Result<Self, InvitationError> {
        let bytes = Zeroizing::new(decode_text(PREFIX, text, MAX_LEN)?);
        Ok(Self::read(&bytes).ok_or(TextError::Content)?)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let node = Identity::from_bytes(reader.array()?);
        let secret = Zeroizing::new(reader.array()?);
        let addresses = reader.addresses()?;
        reader.end()?;
        Some(Self { node, secret, addresses })
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation")
            .field("node", &self.node)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation(addresses: &[&str]) -> Result<Invitation, InvitationError> {
        let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        Invitation::new(Identity::from_bytes([7; 32]), Zeroizing::new([0xab; 16]), addresses)
    }

    #[test]
    fn text_round_trips() {
        for addresses in [&[] as &[&str], &["[::1]:5382"], &["a"; 8]] {
            let text = invitation(addresses).unwrap().to_text();
            let read = Invitation::from_text(&text).unwrap();
            assert_eq!((read.node().as_bytes(), **read.secret()), (&[7; 32], [0xab; 16]));
            assert_eq!(read.addresses(), addresses);
            assert_eq!(read.to_text(), text);
        }
    }

    #[test]
    fn rejects_addresses_outside_their_limits() {
        for addresses in [&["a"; 9] as &[&str], &[""], &["a\x1b[1m"], &["a".repeat(256).as_str()]] {
            assert_eq!(invitation(addresses).unwrap_err(), InvitationError::Addresses);
        }
        let body = [[7; 32].as_slice(), &[1; 16], &[9], &[1, b'a'].repeat(9)].concat();
        let text = encode_text(PREFIX, &body);
        assert!(matches!(Invitation::from_text(&text), Err(InvitationError::Text(_))));
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", invitation(&["host:1"]).unwrap());
        assert!(shown.contains("host:1"));
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
    }

    #[test]
    fn hash_is_sha256_of_label_and_secret() {
        let expected = sha256(&[b"levada/1 invitation\0", &[5; 16]]);
        assert_eq!(Invitation::hash(&[5; 16]), expected);
    }

    #[test]
    fn arbitrary_bytes_and_text_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let text = encode_text(PREFIX, bytes);
            if let Ok(invitation) = Invitation::from_text(&text) {
                assert_eq!(invitation.to_text().as_str(), text);
            }
            let _ = Invitation::from_text(&String::from_utf8_lossy(bytes));
        });
    }
}

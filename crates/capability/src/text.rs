//! The text form of a capability: `lvcap1`, then base32 with a checksum.

use levada_core::{TextError, decode_text, encode_text};
use zeroize::Zeroizing;

use crate::error::CapabilityError;
use crate::reader::{MAX_ADDRESSES, MAX_NAME, Reader, append_addresses, append_name};
use crate::{Capability, Chain};

const PREFIX: &str = "lvcap1";
const SIGNATURE_LEN: usize = 64;
const MAX_HINTS: usize = 2 + MAX_NAME + MAX_ADDRESSES * (1 + MAX_NAME);
const MAX_LEN: usize = 1
    + Chain::MAX_LINKS * 4
    + Chain::MAX_LEN
    + (Chain::MAX_LINKS - 1) * SIGNATURE_LEN
    + 32
    + MAX_HINTS;

impl Capability {
    /// The text form. It contains the secret.
    pub fn to_text(&self) -> Zeroizing<String> {
        // Full capacity: a reallocation would leave a copy of the secret in freed memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.encoded_len()));
        bytes.push(u8::try_from(self.chain.links().count()).unwrap_or(u8::MAX));
        for link in self.chain.link_bytes() {
            let length = u32::try_from(link.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(link);
        }
        for signature in self.chain.signatures() {
            bytes.extend_from_slice(signature);
        }
        bytes.extend_from_slice(self.secret.as_ref());
        append_name(&mut bytes, &self.service);
        append_addresses(&mut bytes, &self.addresses);
        Zeroizing::new(encode_text(PREFIX, &bytes))
    }

    /// Parses the output of [`Self::to_text`]. The text form is canonical; the caller trims white
    /// space.
    ///
    /// # Errors
    /// [`CapabilityError`] names the fault.
    pub fn from_text(text: &str) -> Result<Self, CapabilityError> {
        let bytes = Zeroizing::new(decode_text(PREFIX, text, MAX_LEN)?);
        let parts = Parts::read(&bytes).ok_or(TextError::Content)?;
        let chain = Chain::decode(parts.links, &parts.signatures)?;
        Self::new(chain, parts.secret, parts.service, parts.addresses)
    }

    fn encoded_len(&self) -> usize {
        let links: usize = self.chain.link_bytes().map(|link| 4 + link.len()).sum();
        1 + links + self.chain.signatures().count() * SIGNATURE_LEN + 32 + MAX_HINTS
    }
}

/// The fields of a text, in order.
struct Parts {
    links: Vec<Vec<u8>>,
    signatures: Vec<[u8; SIGNATURE_LEN]>,
    secret: Zeroizing<[u8; 32]>,
    service: String,
    addresses: Vec<String>,
}

impl Parts {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let count = usize::from(reader.byte()?);
        if count == 0 || count > Chain::MAX_LINKS {
            return None;
        }
        let links = (0..count).map(|_| read_link(&mut reader)).collect::<Option<_>>()?;
        let signatures = (1..count).map(|_| reader.array()).collect::<Option<_>>()?;
        let secret = Zeroizing::new(reader.array()?);
        let service = reader.name()?;
        let addresses = reader.addresses()?;
        reader.end()?;
        Some(Self { links, signatures, secret, service, addresses })
    }
}

fn read_link(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    let length = usize::try_from(reader.u32()?).ok()?;
    reader.slice(length).map(<[u8]>::to_vec)
}

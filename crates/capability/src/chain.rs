//! The links of a capability in order, with the signatures of their issuers.
//!
//! Each link after the first is signed by the identity of the link before it. Otherwise a party
//! that obtained a copy of a capability, secret included, could delegate it to itself.

use levada_core::wire::{self, Reason};
use levada_core::{Identity, Params, SecretKey, Signature, label, sha256};
use thiserror::Error;

use crate::link::{self, LinkBody, Origin, Secret};
use crate::rights::Rights;
use crate::{LinkId, SessionId};

/// The way in which a link permits more than the one before it.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Widening {
    /// The link before it lacks the right to distribute.
    #[error("a capability without the right `distribute` cannot be passed on")]
    Distribute,
    /// It has a right that the link before it lacks.
    #[error("its rights are wider than those it is derived from")]
    Rights,
    /// It expires later than the link before it.
    #[error("its expiry is later than that it is derived from")]
    Expiry,
    /// It has more uses than the link before it.
    #[error("it has more uses than what it is derived from")]
    Uses,
    /// Its running time is longer than the running time of the link before it.
    #[error("its sessions may run for longer than those it is derived from")]
    MaxRun,
    /// It sets a parameter that an earlier link has set, even to the same value.
    #[error("the parameter {0:?} is already set and cannot be changed")]
    Parameter(String),
}

/// The reason why links and signatures are not a valid chain. Links are counted from 1.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ChainError {
    /// No link, or more than [`Chain::MAX_LINKS`].
    #[error("a capability has 1 to {} links", Chain::MAX_LINKS)]
    Length,
    /// The links have more than [`Chain::MAX_LEN`] bytes.
    #[error("the links of a capability have at most {} bytes", Chain::MAX_LEN)]
    TooLong,
    /// Not one signature of 64 bytes for each link after the first.
    #[error("a capability has one signature for each link after the first")]
    Signatures,
    /// A link that is not in the canonical encoding.
    #[error("the capability is malformed: link {0} cannot be decoded")]
    Malformed(usize),
    /// A link that permits more than the one before it.
    #[error("the capability was widened at link {link}: {how}")]
    Widened {
        /// The link that permits too much.
        link: usize,
        /// How.
        how: Widening,
    },
    /// A link that is not signed by the identity of the link before it.
    #[error("the capability is forged: link {0} is not signed by the holder of the link before it")]
    Signature(usize),
}

impl ChainError {
    /// The reason on the wire.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Length | Self::TooLong | Self::Signatures | Self::Malformed(_) => {
                Reason::Malformed
            }
            Self::Widened { .. } | Self::Signature(_) => Reason::Forged,
        }
    }
}

/// Well-formed links and signatures, not yet verified: see [`Chain::check_narrowing`],
/// [`Chain::check_signatures`] and [`crate::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    first: Link,
    origin: Origin,
    rest: Vec<Next>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Link {
    /// As received: secrets and signatures are computed over these bytes.
    bytes: Vec<u8>,
    body: LinkBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Next {
    link: Link,
    /// By the identity of the link before this one.
    signature: Signature,
}

impl Chain {
    /// Most links in a chain.
    pub const MAX_LINKS: usize = 16;
    /// Most bytes in all links together, so that every chain fits into one message.
    pub const MAX_LEN: usize = 192 * 1024;

    /// Decodes links and their signatures, one for each link after the first. Checks only their
    /// form.
    ///
    /// # Errors
    /// [`ChainError::Length`], [`ChainError::TooLong`], [`ChainError::Signatures`] or
    /// [`ChainError::Malformed`].
    pub fn decode(
        links: Vec<Vec<u8>>,
        signatures: &[impl AsRef<[u8]>],
    ) -> Result<Self, ChainError> {
        if links.is_empty() || links.len() > Self::MAX_LINKS {
            return Err(ChainError::Length);
        }
        if links.iter().map(Vec::len).sum::<usize>() > Self::MAX_LEN {
            return Err(ChainError::TooLong);
        }
        if signatures.len() + 1 != links.len() {
            return Err(ChainError::Signatures);
        }
        let mut links = links.into_iter();
        let bytes = links.next().ok_or(ChainError::Length)?;
        let (body, origin) = link::decode_first(&bytes).ok_or(ChainError::Malformed(1))?;
        let rest = links
            .zip(signatures)
            .enumerate()
            .map(|(i, (bytes, signature))| Next::decode(bytes, signature.as_ref(), i + 2));
        Ok(Self { first: Link { bytes, body }, origin, rest: rest.collect::<Result<_, _>>()? })
    }

    /// The node of the session: the only one that can verify the capability.
    pub fn node(&self) -> Identity {
        self.origin.node
    }

    /// The session that the capability is for.
    pub fn session(&self) -> SessionId {
        self.origin.session
    }

    /// The identity of the last link.
    pub fn holder(&self) -> Identity {
        self.last().body.identity
    }

    /// The content of each link, in order.
    pub fn links(&self) -> impl Iterator<Item = &LinkBody> {
        self.all().map(|link| &link.body)
    }

    /// The content of the last link, which is what the capability permits if the chain verifies.
    pub fn last_link(&self) -> &LinkBody {
        &self.last().body
    }

    /// The encoded links, in order.
    pub fn link_bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.all().map(|link| link.bytes.as_slice())
    }

    /// The signatures of the links after the first, in order.
    pub fn signatures(&self) -> impl Iterator<Item = &Signature> {
        self.rest.iter().map(|next| &next.signature)
    }

    /// The identity of each link, in order. Each of them may revoke.
    pub fn identities(&self) -> Vec<Identity> {
        self.links().map(|link| link.identity).collect()
    }

    /// The id of each link, in order. A revocation names one of them.
    pub fn ids(&self) -> Vec<LinkId> {
        (1..=self.count()).map(|count| self.id(count)).collect()
    }

    /// The id of the last link.
    pub fn last_id(&self) -> LinkId {
        self.id(self.count())
    }

    /// Checks that every link permits at most what the one before it does, and returns the
    /// parameters of all links together.
    ///
    /// # Errors
    /// [`ChainError::Widened`] names the first link that permits more, and how.
    pub fn check_narrowing(&self) -> Result<Params, ChainError> {
        let mut params = self.first.body.params.clone();
        let mut previous = &self.first.body;
        for (i, next) in self.rest.iter().enumerate() {
            let body = &next.link.body;
            narrow(previous, &mut params, body)
                .map_err(|how| ChainError::Widened { link: i + 2, how })?;
            previous = body;
        }
        Ok(params)
    }

    /// Checks that every link after the first is signed by the identity of the link before it.
    ///
    /// # Errors
    /// [`ChainError::Signature`] names the first link that is not.
    pub fn check_signatures(&self) -> Result<(), ChainError> {
        for ((i, next), signer) in self.rest.iter().enumerate().zip(self.links()) {
            signer
                .identity
                .verify(label::LINK_SIGNATURE, &self.digest(i + 2), &next.signature)
                .map_err(|_| ChainError::Signature(i + 2))?;
        }
        Ok(())
    }

    /// A chain of one link.
    pub(crate) fn from_first(bytes: Vec<u8>) -> Result<Self, ChainError> {
        Self::decode(vec![bytes], &[] as &[&[u8]])
    }

    /// Appends a link, signed with `key` of the last link's holder.
    pub(crate) fn push(
        &mut self,
        bytes: Vec<u8>,
        body: LinkBody,
        key: &SecretKey,
    ) -> Result<(), ChainError> {
        if self.count() == Self::MAX_LINKS {
            return Err(ChainError::Length);
        }
        if self.link_bytes().map(<[u8]>::len).sum::<usize>() + bytes.len() > Self::MAX_LEN {
            return Err(ChainError::TooLong);
        }
        let parts: Vec<&[u8]> = self.link_bytes().chain([bytes.as_slice()]).collect();
        let signature = key.sign(label::LINK_SIGNATURE, &sha256(&parts));
        self.rest.push(Next { link: Link { bytes, body }, signature });
        Ok(())
    }

    /// The secret of the last link, derived from the root secret.
    pub(crate) fn secret(&self, root: &[u8; 32]) -> Secret {
        let first = link::next_secret(root, &self.first.bytes);
        self.rest.iter().fold(first, |secret, next| link::next_secret(&secret, &next.link.bytes))
    }

    fn count(&self) -> usize {
        1 + self.rest.len()
    }

    fn all(&self) -> impl Iterator<Item = &Link> {
        std::iter::once(&self.first).chain(self.rest.iter().map(|next| &next.link))
    }

    fn last(&self) -> &Link {
        self.rest.last().map_or(&self.first, |next| &next.link)
    }

    /// The signed digest: the hash of the first `count` links.
    fn digest(&self, count: usize) -> [u8; 32] {
        sha256(&self.link_bytes().take(count).collect::<Vec<_>>())
    }

    /// The id of link number `count`. An encoded link determines its own length, so that
    /// concatenation is injective.
    fn id(&self, count: usize) -> LinkId {
        let links = self.link_bytes().take(count);
        let parts: Vec<&[u8]> = std::iter::once(label::LINK_ID.as_bytes()).chain(links).collect();
        LinkId::from_bytes(sha256(&parts))
    }
}

// The longest presentation: links and signatures with their protobuf headers, the proof, and the
// operation around them.
const _: () = assert!(Chain::MAX_LEN + Chain::MAX_LINKS * (64 + 16) + 128 <= wire::MAX_MESSAGE);

impl Next {
    fn decode(bytes: Vec<u8>, signature: &[u8], number: usize) -> Result<Self, ChainError> {
        let signature = signature.try_into().map_err(|_| ChainError::Signatures)?;
        let body = link::decode_next(&bytes).ok_or(ChainError::Malformed(number))?;
        Ok(Self { link: Link { bytes, body }, signature })
    }
}

/// Checks that `next` permits at most what `previous` does. `params` holds those of all links
/// before `next`; those of `next` are added.
pub(crate) fn narrow(
    previous: &LinkBody,
    params: &mut Params,
    next: &LinkBody,
) -> Result<(), Widening> {
    if !previous.rights.contains(Rights::DISTRIBUTE) {
        return Err(Widening::Distribute);
    }
    if !previous.rights.contains(next.rights) {
        return Err(Widening::Rights);
    }
    if next.expires > previous.expires {
        return Err(Widening::Expiry);
    }
    if next.uses > previous.uses {
        return Err(Widening::Uses);
    }
    if previous.max_run.is_some_and(|limit| next.max_run.is_none_or(|asked| asked > limit)) {
        return Err(Widening::MaxRun);
    }
    if let Some((key, _)) = next.params.iter().find(|(key, _)| params.value(key).is_some()) {
        // The key is a peer's input, and may be as long as a link.
        return Err(Widening::Parameter(key.chars().take(64).collect()));
    }
    params.merge(&next.params).map_err(|_| Widening::Parameter(String::new()))
}

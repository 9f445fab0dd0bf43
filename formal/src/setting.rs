//! What a search begins with: the middleboxes and their rights, who is corrupt, and which
//! protections are removed.

/// What a middlebox may do in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Neither read nor write.
    Nothing,
    /// Read.
    Read,
    /// Read and write.
    Write,
}

/// The contexts of every path here: requests, responses, and one more.
pub const CONTEXTS: usize = 3;
/// Requests travel in this context…
pub const REQUEST: usize = 0;
/// …and responses in this one.
pub const RESPONSE: usize = 1;

/// A middlebox.
#[derive(Clone, Copy, Debug)]
pub struct Middlebox {
    /// The attacker has its identity key, hence plays it.
    pub corrupt: bool,
    /// Its rights in each context.
    pub rights: [Right; CONTEXTS],
}

/// A protection of the protocol that a search can do without, to show that the model notices its
/// absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// The share for a resumed middlebox is sealed under y, which the client cannot derive, and not
    /// under psk (C1).
    ShareUnderY,
    /// The first message of a resumed middlebox has a tag for the server, which the client cannot
    /// make (C2).
    HelloTagForServer,
    /// A middlebox proves itself to the server with a key that the client does not have (C3).
    ReadyUnderZ,
    /// An endorsement covers the request as the server received it (R2).
    EndorsedRequest,
    /// The signature in MBHELLO covers everything before it, and the KEM key.
    HelloCoversKey,
    /// The server's signature covers the shares.
    SharesBound,
    /// The client's half of a key is sealed under a key of this TLS session.
    ClientHalfSealed,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The middleboxes, as the honest client orders them: the first is next to it.
    pub boxes: Vec<Middlebox>,
    /// The protections that are removed.
    pub removed: Vec<Protection>,
}

impl Setting {
    /// Whether a protection is in place.
    pub(crate) fn has(&self, protection: Protection) -> bool {
        !self.removed.contains(&protection)
    }
}

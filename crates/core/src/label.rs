//! All domain-separation labels of the project. `docs/protocol.md` lists them, and a test compares
//! the two. Each label has one purpose, and none is a prefix of another in the same construction.

/// First bytes of an encoded capability link.
pub const LINK: &str = "levada/1 link";
/// First bytes of an encoded capability link that limits the running time.
pub const LIMITED_LINK: &str = "levada/2 link";
/// Hashed with all links up to and including one: the id of that link.
pub const LINK_ID: &str = "levada/1 link id";
/// Signature of a link by the identity of the link before it (form of [`crate::SecretKey::sign`]).
pub const LINK_SIGNATURE: &str = "link";
/// Proof of possession of a link's secret, on one connection.
pub const PROOF: &str = "levada/1 proof";
/// TLS exporter label whose value the proof is bound to.
pub const EXPORTER: &str = "EXPORTER-levada-proof";
/// Checksum of every text form, hashed with its prefix.
pub const CHECKSUM: &str = "levada/1 text";
/// Hash of an invitation's secret, which a node stores instead of the secret.
pub const INVITATION: &str = "levada/1 invitation";
/// Hash of machine, boot and network namespace in an address.
pub const MACHINE: &str = "levada/1 machine";
/// Signature of an old key over its successor.
pub const SUCCESSION: &str = "succession";

/// Signature of a requester's question to an entity.
pub const QUESTION: &str = "question";
/// Signature of an entity's reply to a question.
pub const REPLY: &str = "reply";
/// Signature of a descriptor in the catalogue, with its name, version and package.
pub const DESCRIPTOR: &str = "descriptor";
/// Hashed with the context, key and encapsulation of a seal.
pub const SEAL: &str = "levada/1 seal";
/// HKDF info of a seal's key.
pub const SEAL_KEY: &str = "levada/1 key of seal";

/// All labels, for the test that compares them with the documentation.
pub const ALL: &[&str] = &[
    LINK,
    LIMITED_LINK,
    LINK_ID,
    LINK_SIGNATURE,
    PROOF,
    EXPORTER,
    CHECKSUM,
    INVITATION,
    MACHINE,
    SUCCESSION,
    QUESTION,
    REPLY,
    DESCRIPTOR,
    SEAL,
    SEAL_KEY,
];

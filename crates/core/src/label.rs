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
/// Hash of a ticket's secret, which a node stores instead of the secret.
pub const TICKET: &str = "levada/1 ticket";
/// Hash of machine, boot and network namespace in an address.
pub const MACHINE: &str = "levada/1 machine";
/// Signature of an old key over its successor.
pub const SUCCESSION: &str = "succession";
/// Signature of an identity over a set of groups.
pub const GROUP_SET: &str = "group set";

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

/// ALPN of a session with middleboxes.
pub const CONTEXTS_ALPN: &str = "levada-ctx/1";
/// First bytes of the second protocol name in ALPN, before the hash of PATH.
pub const PATH_ALPN: &str = "lvp:";
/// TLS exporter label of E, which every key of a session with middleboxes follows from.
pub const CONTEXTS_EXPORTER: &str = "EXPORTER-levada-ctx";
/// Signature of a middlebox over all before it and its KEM key.
pub const MIDDLEBOX_HELLO: &str = "middlebox hello";
/// Signature of a server over the transcript and the shares.
pub const SERVER_BIND: &str = "server bind";
/// HPKE info of the share for a middlebox.
pub const SERVER_SHARE: &str = "levada/1 sshare";
/// Hashed with a service and an audience: the realm of answers that caches may share.
pub const REALM: &str = "levada/1 realm";

/// Hashed with a node's identity and a service: the site of a local origin.
pub const SITE: &str = "levada/1 site";

/// Labels of the derivations in a session with middleboxes: `X` of `docs/protocol.md`.
pub mod derive {
    /// a_i and z_i, of one middlebox.
    pub const BOX: &str = "box";
    /// The server's half of a class.
    pub const SERVER_HALF: &str = "server half";
    /// The client's half of a class.
    pub const CLIENT_HALF: &str = "client half";
    /// What of a half is enough to read.
    pub const READ: &str = "read";
    /// The key of contexts in which no middlebox has rights.
    pub const PRIVATE: &str = "private";
    /// The first secret of a context's records in one direction.
    pub const RECORD: &str = "record";
    /// The secret of the next epoch.
    pub const UPDATE: &str = "update";
    /// The key of an origin's records in an epoch.
    pub const KEY: &str = "key";
    /// The IV that belongs to it.
    pub const IV: &str = "iv";
    /// Tags of those who may write.
    pub const WRITER: &str = "writer";
    /// Tags of the sending endpoint.
    pub const ENDPOINT: &str = "endpoint";
    /// Tags of a middlebox for what it wrote.
    pub const AUTHOR: &str = "author";
    /// Audits.
    pub const AUDIT: &str = "audit";
    /// Endorsements.
    pub const ENDORSE: &str = "endorse";
    /// What a middlebox proves itself with to the server.
    pub const TO_SERVER: &str = "to server";
    /// READY.
    pub const READY: &str = "ready";
    /// CSHARE.
    pub const CSHARE: &str = "cshare";
    /// The start in READY of the server.
    pub const START: &str = "start";
    /// The secret that a middlebox keeps for a later session.
    pub const RESUME: &str = "resume";
    /// The id of that secret.
    pub const RESUME_ID: &str = "resume id";
    /// MBHELLO of a resumed middlebox.
    pub const HELLO: &str = "hello";
    /// SSHARE for a resumed middlebox.
    pub const SHARE: &str = "share";
    /// SBIND if all middleboxes are resumed.
    pub const BIND: &str = "bind";
}

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
    TICKET,
    MACHINE,
    SUCCESSION,
    GROUP_SET,
    QUESTION,
    REPLY,
    DESCRIPTOR,
    SEAL,
    SEAL_KEY,
    CONTEXTS_ALPN,
    PATH_ALPN,
    CONTEXTS_EXPORTER,
    MIDDLEBOX_HELLO,
    SERVER_BIND,
    SERVER_SHARE,
    REALM,
    SITE,
    derive::BOX,
    derive::SERVER_HALF,
    derive::CLIENT_HALF,
    derive::READ,
    derive::PRIVATE,
    derive::RECORD,
    derive::UPDATE,
    derive::KEY,
    derive::IV,
    derive::WRITER,
    derive::ENDPOINT,
    derive::AUTHOR,
    derive::AUDIT,
    derive::ENDORSE,
    derive::TO_SERVER,
    derive::READY,
    derive::CSHARE,
    derive::START,
    derive::RESUME,
    derive::RESUME_ID,
    derive::HELLO,
    derive::SHARE,
    derive::BIND,
];

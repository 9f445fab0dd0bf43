//! What a store answers.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use bytes::Bytes;
use levada_core::{Digest, Hasher, Identity, UnixTime};

use crate::model::{Key, Version, digest_text};

/// How a change went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: the store's revision is now this.
    Created(u64),
    /// It was so already; nothing has changed.
    Same,
    /// Another version stands there; nothing has changed.
    Conflict,
}

/// The content of a blob.
#[derive(Debug)]
pub enum Blob {
    /// A file, read from its beginning, and its length in bytes.
    File(File, u64),
    /// In memory.
    Bytes(Bytes),
}

impl Blob {
    /// Reads all of it: SHA-256, and how many bytes there are.
    ///
    /// # Errors
    /// What the disk said.
    pub fn digest(self) -> io::Result<(Digest, u64)> {
        let (mut hasher, mut length) = (Hasher::default(), 0);
        match self {
            Self::Bytes(bytes) => {
                hasher.update(&bytes);
                length = bytes.len() as u64;
            }
            Self::File(mut file, _) => {
                let mut buffer = vec![0; 128 * 1024];
                loop {
                    match file.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(count) => {
                            hasher.update(&buffer[..count]);
                            length += count as u64;
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok((hasher.finish(), length))
    }
}

/// What happened to a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// It is there.
    Published,
    /// It was taken back.
    Yanked,
    /// It was given back.
    Unyanked,
}

impl Event {
    pub(crate) const ALL: [Self; 3] = [Self::Published, Self::Yanked, Self::Unyanked];

    /// One lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Yanked => "yanked",
            Self::Unyanked => "unyanked",
        }
    }
}

/// One change of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its number.
    pub revision: u64,
    /// Of which object.
    pub key: Key,
    /// Of which version.
    pub version: Version,
    /// What happened.
    pub event: Event,
}

/// Where a search goes on. What stands in it is the store's own business.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SearchCursor(pub String);

impl fmt::Display for SearchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The object.
    pub key: Key,
    /// Its newest version that is not yanked.
    pub version: Version,
    /// To go on behind this hit.
    pub cursor: SearchCursor,
}

/// What somebody did, or tried to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Published a version.
    Publish,
    /// Took one back.
    Yank,
    /// Gave one back.
    Unyank,
    /// Deleted blobs that nothing refers to.
    Collect,
}

impl Action {
    pub(crate) const ALL: [Self; 4] = [Self::Publish, Self::Yank, Self::Unyank, Self::Collect];

    /// One lower-case word, as on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Yank => "yank",
            Self::Unyank => "unyank",
            Self::Collect => "collect",
        }
    }
}

/// A row of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Grows with time; never used twice.
    pub id: i64,
    /// When.
    pub time: UnixTime,
    /// Who; none for the store's owner.
    pub identity: Option<Identity>,
    /// What.
    pub action: Action,
    /// The object concerned.
    pub key: Option<Key>,
    /// The version concerned.
    pub version: Option<Version>,
    /// How it went, in one word: `done`, `conflict`.
    pub outcome: String,
    /// A line for a person; may be empty.
    pub text: String,
}

/// What [`collect`](super::Store::collect) deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many blobs.
    pub blobs: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

/// What [`verify`](super::Store::verify) read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many versions.
    pub versions: u64,
    /// How many blobs.
    pub blobs: u64,
    /// How many bytes the blobs have.
    pub bytes: u64,
    /// How many findings there were.
    pub findings: u64,
}

/// Something that is wrong with a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The database contradicts itself.
    Database(String),
    /// A version that is not what was published.
    Version {
        /// The object.
        key: Key,
        /// The version.
        version: Version,
        /// What is wrong with it.
        text: String,
    },
    /// The content of a blob is gone.
    Missing(Digest),
    /// The content of a blob is not what it was.
    Damaged(Digest),
    /// A file that belongs to nothing.
    Stray(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(text) => write!(f, "the database is damaged: {text}"),
            Self::Version { key, version, text } => write!(f, "{key} {version}: {text}"),
            Self::Missing(digest) => {
                write!(f, "{} is missing: upload it again", digest_text(digest))
            }
            Self::Damaged(digest) => {
                write!(f, "{} is damaged: upload it again", digest_text(digest))
            }
            Self::Stray(name) => write!(f, "{name} belongs to nothing: it can be deleted"),
        }
    }
}

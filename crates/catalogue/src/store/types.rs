//! The types that a store returns.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use bytes::Bytes;
use levada_core::{Digest, Hasher, Identity, UnixTime};

use crate::model::{Key, Version, digest_text};

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The change was made, and has this revision.
    Created(u64),
    /// The requested state existed already; nothing was changed.
    Same,
    /// A different version exists; nothing was changed.
    Conflict,
}

/// The content of a blob.
#[derive(Debug)]
pub enum Blob {
    /// A file, positioned at its start, and its length in bytes.
    File(File, u64),
    /// In memory.
    Bytes(Bytes),
}

impl Blob {
    /// The length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::File(_, length) => *length,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Reads the whole blob: its SHA-256 and its length in bytes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn digest(self) -> io::Result<(Digest, u64)> {
        let mut hasher = Hasher::default();
        let mut length = 0;
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

/// The hash tree of a blob by BLAKE3, from its parts up: each part of the blob can be verified
/// alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outboard {
    /// The BLAKE3 hash of the blob.
    pub root: [u8; 32],
    /// The length of a part in bytes; the last may be shorter.
    pub part: u32,
    /// The chaining value of each part, in order.
    pub hashes: Vec<[u8; 32]>,
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The version was published.
    Published,
    /// The version was yanked.
    Yanked,
    /// The version was restored after it was yanked.
    Unyanked,
}

impl Event {
    pub(crate) const ALL: [Self; 3] = [Self::Published, Self::Yanked, Self::Unyanked];

    /// The name, in lower case.
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
    /// The number of the change.
    pub revision: u64,
    /// The object.
    pub key: Key,
    /// The version.
    pub version: Version,
    /// The kind of change.
    pub event: Event,
}

/// How far a store is behind those that it shares its changes with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// How many changes are known and not applied yet.
    pub changes: u64,
    /// Why no news arrives at the moment.
    pub fault: Option<String>,
    /// For how long none has.
    pub away: Duration,
    /// How many records of the others could not be applied, since they conflict with earlier ones.
    pub rejected: u64,
}

impl fmt::Display for Lag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changes > 0 {
            write!(f, "{} changes behind; ", self.changes)?;
        }
        match &self.fault {
            Some(fault) => write!(f, "no news for {} s: {fault}", self.away.as_secs())?,
            None => f.write_str("following")?,
        }
        if self.rejected > 0 {
            let records = if self.rejected == 1 { "record" } else { "records" };
            write!(f, "; {} {records} of its log not applied", self.rejected)?;
        }
        Ok(())
    }
}

/// The position behind a hit, where a search continues. The content is specific to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SearchCursor(pub String);

impl fmt::Display for SearchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A hit of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The object.
    pub key: Key,
    /// Its newest version that is not yanked.
    pub version: Version,
    /// The position behind this hit.
    pub cursor: SearchCursor,
}

/// An action in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Published a version.
    Publish,
    /// Yanked a version.
    Yank,
    /// Restored a yanked version.
    Unyank,
    /// Deleted unreferenced blobs.
    Collect,
}

impl Action {
    pub(crate) const ALL: [Self; 4] = [Self::Publish, Self::Yank, Self::Unyank, Self::Collect];

    /// The name, in lower case, as on the command line.
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
    /// A number that grows and is never reused.
    pub id: i64,
    /// The time of the action.
    pub time: UnixTime,
    /// The acting identity; `None` for the owner of the store.
    pub identity: Option<Identity>,
    /// The action.
    pub action: Action,
    /// The object, if the action concerns one.
    pub key: Option<Key>,
    /// The version, if the action concerns one.
    pub version: Option<Version>,
    /// The outcome: `done` or `conflict`.
    pub outcome: String,
    /// A description of one line; may be empty.
    pub text: String,
}

/// The result of [`collect`](super::Store::collect).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The number of deleted blobs.
    pub blobs: u64,
    /// Their total length, in bytes.
    pub bytes: u64,
}

/// The result of [`verify`](super::Store::verify).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The number of versions that were read.
    pub versions: u64,
    /// The number of sound blobs.
    pub blobs: u64,
    /// The total length of the sound blobs, in bytes.
    pub bytes: u64,
    /// The number of findings.
    pub findings: u64,
}

/// A defect of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The database is inconsistent or damaged.
    Database(String),
    /// A version differs from what was published.
    Version {
        /// The object.
        key: Key,
        /// The version.
        version: Version,
        /// The difference.
        text: String,
    },
    /// The file of a blob is missing.
    Missing(Digest),
    /// The content of a blob does not have its digest.
    Damaged(Digest),
    /// A file that the store does not use.
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
            Self::Stray(name) => {
                write!(f, "{name} is not used by the catalogue: it can be deleted")
            }
        }
    }
}

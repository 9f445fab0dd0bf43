//! Records as bytes (proto/cluster.proto), and their subjects.

use data_encoding::HEXLOWER;
use levada_core::wire::catalogue::record::{self as wire, Record as Message};
use levada_core::wire::catalogue::{
    Failed, MAX_RECORD, Record as Envelope, Snapshot as SnapshotMessage,
};
use levada_core::wire::{decode_within, encode};
use levada_core::{Digest, UnixTime, sha256};

use crate::model::{Key, Version};
use crate::store::embedded::replica::{Author, LogId, Record, Stored, UploadId};
use crate::wire::{digest, draft, identity, invalid, key, publish, version};

/// The number of the format of records: higher than that of all versions which cannot read what
/// this one writes.
pub const FORMAT: u32 = 1;

/// Why bytes of the log are no record.
#[derive(Debug, PartialEq, Eq)]
pub enum Undecoded {
    /// They say nothing in a format that this version knows. Every node with this format reads the
    /// same.
    Unreadable,
    /// A later version has written them, in the format with this number.
    Newer(u32),
}

/// The bytes of a record.
pub fn to_bytes(record: &Record) -> Vec<u8> {
    encode(&Envelope { format: FORMAT, record: Some(to_message(record)) })
}

/// Decodes the bytes of a record.
///
/// # Errors
/// [`Undecoded`].
pub fn from_bytes(bytes: &[u8]) -> Result<Record, Undecoded> {
    let envelope = decode_within::<Envelope>(bytes, MAX_RECORD);
    let envelope = envelope.map_err(|_| Undecoded::Unreadable)?;
    if envelope.format > FORMAT {
        return Err(Undecoded::Newer(envelope.format));
    }
    let record = envelope.record.and_then(|record| from_message(record).ok());
    record.ok_or(Undecoded::Unreadable)
}

fn to_message(record: &Record) -> Message {
    match record {
        Record::Published(draft, author) => Message::Published(wire::Published {
            version: Some(publish(draft)),
            author: Some(to_author(author)),
        }),
        Record::Yanked { key, version, yanked, author } => Message::Yanked(wire::Yanked {
            key: key.to_string(),
            version: version.to_string(),
            back: !yanked,
            author: Some(to_author(author)),
        }),
        Record::Conflict(key, version, author) => Message::Conflict(wire::Conflict {
            key: key.to_string(),
            version: version.to_string(),
            author: Some(to_author(author)),
        }),
        Record::Stored(stored) => Message::Stored(to_stored(stored)),
        Record::Deleted(digest) => Message::Deleted(wire::Deleted { digest: digest.to_vec() }),
        Record::Swept(packages, author) => {
            Message::Swept(wire::Swept { packages: *packages, author: Some(to_author(author)) })
        }
    }
}

fn from_message(message: Message) -> Result<Record, Failed> {
    Ok(match message {
        Message::Published(it) => {
            let draft = draft(it.version.ok_or_else(|| invalid("no version"))?)?;
            draft.check().map_err(|error| invalid(&error.to_string()))?;
            Record::Published(draft, from_author(it.author)?)
        }
        Message::Yanked(it) => Record::Yanked {
            key: key(&it.key)?,
            version: version(&it.version)?,
            yanked: !it.back,
            author: from_author(it.author)?,
        },
        Message::Conflict(it) => {
            Record::Conflict(key(&it.key)?, version(&it.version)?, from_author(it.author)?)
        }
        Message::Stored(it) => Record::Stored(from_stored(it)?),
        Message::Deleted(it) => Record::Deleted(digest(&it.digest)?),
        Message::Swept(it) => Record::Swept(it.packages, from_author(it.author)?),
    })
}

fn to_stored(stored: &Stored) -> wire::Stored {
    wire::Stored {
        digest: stored.digest.to_vec(),
        length: stored.length,
        upload: stored.upload.to_vec(),
        claim: stored.claim,
    }
}

fn from_stored(it: wire::Stored) -> Result<Stored, Failed> {
    Ok(Stored {
        digest: digest(&it.digest)?,
        length: it.length,
        upload: it.upload.try_into().map_err(|_| invalid("an upload has 16 bytes"))?,
        claim: it.claim,
    })
}

fn to_author(author: &Author) -> wire::Author {
    let identity = author.identity.map(|identity| identity.as_bytes().to_vec());
    wire::Author { identity: identity.unwrap_or_default(), time: author.time.0 }
}

fn from_author(author: Option<wire::Author>) -> Result<Author, Failed> {
    let author = author.ok_or_else(|| invalid("no author"))?;
    Ok(Author { identity: identity(&author.identity)?, time: UnixTime(author.time) })
}

/// A copy of a replica in the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The log that it is a replica of.
    pub log: LogId,
    /// The last record that it has.
    pub number: u64,
    /// Where it is.
    pub stored: Stored,
}

impl Snapshot {
    pub fn to_bytes(&self) -> Vec<u8> {
        let log = self.log.to_vec();
        let stored = Some(to_stored(&self.stored));
        encode(&SnapshotMessage { log, number: self.number, stored })
    }

    /// `None` if the bytes are malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let message: SnapshotMessage = decode_within(bytes, MAX_RECORD).ok()?;
        let log = message.log.try_into().ok()?;
        let stored = from_stored(message.stored?).ok()?;
        Some(Self { log, number: message.number, stored })
    }
}

/// The subjects of a catalogue: those of its log, and those of the parts of packages.
#[derive(Clone, Debug)]
pub struct Subjects {
    log: String,
    parts: String,
}

impl Subjects {
    /// Those of the catalogue `name`.
    pub fn of(name: &str) -> Self {
        Self { log: format!("levada.{name}.log"), parts: format!("levada.{name}.part") }
    }

    /// All of the log.
    pub fn log(&self) -> String {
        format!("{}.>", self.log)
    }

    /// All parts of packages.
    pub fn parts(&self) -> String {
        format!("{}.>", self.parts)
    }

    /// The records of a version. Its first one publishes it.
    pub fn version(&self, key: &Key, version: &Version) -> String {
        let name = sha256(&[key.to_string().as_bytes(), &[0], version.to_string().as_bytes()]);
        format!("{}.version.{}", self.log, HEXLOWER.encode(&name))
    }

    /// The records of a package.
    pub fn package(&self, digest: &Digest) -> String {
        format!("{}.package.{}", self.log, HEXLOWER.encode(digest))
    }

    /// Records that are only for the audit log.
    pub fn audit(&self) -> String {
        format!("{}.audit", self.log)
    }

    /// The name of the last snapshot.
    pub fn snapshot(&self) -> String {
        format!("{}.snapshot", self.parts)
    }

    /// A part of a package, or of a snapshot.
    pub fn part(&self, digest: &Digest, upload: &UploadId, number: u64) -> String {
        format!("{}.{number}", self.upload(digest, upload))
    }

    /// All parts of an upload.
    pub fn upload_parts(&self, digest: &Digest, upload: &UploadId) -> String {
        format!("{}.*", self.upload(digest, upload))
    }

    /// The first parts of all uploads.
    pub fn first_parts(&self) -> String {
        format!("{}.*.*.0", self.parts)
    }

    /// The upload that a part belongs to.
    pub fn upload_of(&self, part: &str) -> Option<(Digest, UploadId)> {
        let mut names = part.strip_prefix(&self.parts)?.split('.').skip(1);
        let mut next = || HEXLOWER.decode(names.next()?.as_bytes()).ok();
        Some((next()?.try_into().ok()?, next()?.try_into().ok()?))
    }

    fn upload(&self, digest: &Digest, upload: &UploadId) -> String {
        format!("{}.{}.{}", self.parts, HEXLOWER.encode(digest), HEXLOWER.encode(upload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance::{draft, package};
    use levada_core::Identity;

    #[test]
    fn records_round_trip() {
        let author = Author { identity: Some(Identity::from_bytes([7; 32])), time: UnixTime(5) };
        let owner = Author { identity: None, ..author };
        let mut whole = draft("hyperty/a", "1.0.0", r#"{"a":1}"#);
        whole.package = Some(package([3; 32], 7));
        let key = whole.key.clone();
        let version = whole.version.clone();
        let stored = Stored { digest: [1; 32], length: 9, upload: [2; 16], claim: true };
        for record in [
            Record::Published(whole, author),
            Record::Yanked { key: key.clone(), version: version.clone(), yanked: true, author },
            Record::Yanked { key: key.clone(), version: version.clone(), yanked: false, author },
            Record::Conflict(key, version, owner),
            Record::Stored(stored),
            Record::Deleted([4; 32]),
            Record::Swept(3, owner),
        ] {
            assert_eq!(from_bytes(&to_bytes(&record)), Ok(record));
        }
        let snapshot = Snapshot { log: [5; 16], number: 7, stored };
        assert_eq!(Snapshot::from_bytes(&snapshot.to_bytes()), Some(snapshot));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_told_from_one_of_a_later_version() {
        let bytes = |format, record| encode(&Envelope { format, record });
        let deleted = || Some(to_message(&Record::Deleted([4; 32])));
        assert_eq!(from_bytes(&bytes(0, deleted())), Ok(Record::Deleted([4; 32])));
        assert_eq!(from_bytes(&bytes(FORMAT + 1, deleted())), Err(Undecoded::Newer(FORMAT + 1)));
        assert_eq!(from_bytes(&bytes(FORMAT + 1, None)), Err(Undecoded::Newer(FORMAT + 1)));
        let short = Some(Message::Deleted(wire::Deleted { digest: vec![1] }));
        // A field that this version does not know.
        let unknown = [0xba, 0x01, 0x01, b'a'];
        for wrong in [&bytes(0, None)[..], &bytes(FORMAT, short), &unknown, b"{}"] {
            assert_eq!(from_bytes(wrong), Err(Undecoded::Unreadable), "{wrong:?}");
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if let Some(snapshot) = Snapshot::from_bytes(bytes) {
                assert_eq!(Snapshot::from_bytes(&snapshot.to_bytes()), Some(snapshot));
            }
            if let Ok(record) = from_bytes(bytes) {
                assert_eq!(from_bytes(&to_bytes(&record)), Ok(record));
            }
        });
    }

    #[test]
    fn each_version_has_a_subject_of_its_own() {
        let subjects = Subjects::of("a");
        let of = |key: &str, version: &str| {
            subjects.version(&key.parse().unwrap(), &version.parse().unwrap())
        };
        assert_ne!(of("hyperty/a", "1.0.0"), of("hyperty/a", "1.0.1"));
        assert_ne!(of("hyperty/a", "1.0.0"), of("runtime/a", "1.0.0"));
        assert!(of("hyperty/a", "1.0.0").starts_with("levada.a.log.version."));
        let part = subjects.part(&[1; 32], &[2; 16], 7);
        assert_eq!(subjects.upload_of(&part), Some(([1; 32], [2; 16])));
        assert_eq!(Subjects::of("b").upload_of(&part), None);
        assert_eq!(subjects.upload_of(&subjects.snapshot()), None);
    }
}

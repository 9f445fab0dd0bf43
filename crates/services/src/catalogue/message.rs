//! Conversions between wire messages and the types of the catalogue, with all checks of received
//! messages.

use levada_catalogue::model::{Kind, Published, Version, VersionReq};
use levada_catalogue::store::{Action, AuditEntry, Change, StoreError};
use levada_core::wire::catalogue::{self as wire, Cause, Failed};
use levada_core::{UnixTime, sha256};

pub(super) use levada_catalogue::wire::{digest, draft, identity, invalid, key, publish, version};
use levada_catalogue::wire::{package, signatures, write_package, write_signatures};

/// Maximum length of the name of an event or action, in bytes.
const MAX_WORD: usize = 64;

/// A selection among the versions of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VersionSelector {
    Newest,
    Exact(Version),
    Range(VersionReq),
}

impl VersionSelector {
    /// Parses a version, a range, `latest`, or an empty text, which also selects the newest.
    pub(super) fn parse(text: &str) -> Result<Self, Failed> {
        if text.is_empty() || text == "latest" {
            return Ok(Self::Newest);
        }
        if text.len() > levada_catalogue::model::MAX_VERSION {
            return Err(invalid("the version is too long"));
        }
        if let Ok(version) = Version::parse(text) {
            return Ok(Self::Exact(version));
        }
        let range = VersionReq::parse(text).map(Self::Range);
        range.map_err(|error| {
            invalid(&format!("neither a version nor a range of versions: {error}"))
        })
    }
}

/// The message for a version; with its descriptor if `full`.
pub(super) fn entry(published: Published, full: bool) -> wire::Entry {
    wire::Entry {
        key: published.key.to_string(),
        version: published.version.to_string(),
        descriptor: if full { published.descriptor } else { Vec::new() },
        digest: published.digest.to_vec(),
        package: published.package.as_ref().map(write_package),
        signatures: write_signatures(&published.signatures),
        publisher: published.publisher.map(|by| by.as_bytes().to_vec()).unwrap_or_default(),
        published: published.published.0,
        yanked: published.yanked,
        revision: published.revision,
        swarm: false,
    }
}

/// The version in an entry, checked against the model. A descriptor, if present, must match its
/// digest.
pub(super) fn published(entry: wire::Entry) -> Result<Published, Failed> {
    let digest = digest(&entry.digest)?;
    if !entry.descriptor.is_empty() && sha256(&[&entry.descriptor]) != digest {
        return Err(invalid("the descriptor does not match its digest"));
    }
    let published = Published {
        key: key(&entry.key)?,
        version: version(&entry.version)?,
        descriptor: entry.descriptor,
        digest,
        package: entry.package.map(package).transpose()?,
        signatures: signatures(&entry.signatures)?,
        publisher: identity(&entry.publisher)?,
        published: UnixTime(entry.published),
        yanked: entry.yanked,
        revision: entry.revision,
    };
    published.check().map_err(|error| invalid(&error.to_string()))?;
    Ok(published)
}

/// Checks a change received from another node against the model.
pub(super) fn check_changed(change: &wire::Changed) -> Result<(), Failed> {
    check_word(&change.event)?;
    key(&change.key)?;
    version(&change.version)?;
    Ok(())
}

/// Checks an audit log entry received from another node against the model. Its object may be empty.
pub(super) fn check_logged(entry: &wire::Logged) -> Result<(), Failed> {
    check_word(&entry.action)?;
    check_word(&entry.outcome)?;
    identity(&entry.identity)?;
    if !entry.key.is_empty() {
        key(&entry.key)?;
    }
    if !entry.version.is_empty() {
        version(&entry.version)?;
    }
    Ok(())
}

/// The name of an event or action must be graphic ASCII. Names that are not known here are allowed:
/// later releases may add some.
fn check_word(text: &str) -> Result<(), Failed> {
    let fits = text.len() <= MAX_WORD && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits {
        Ok(())
    } else {
        Err(invalid("the name of an event or action is too long, or not graphic ASCII"))
    }
}

pub(super) fn changed(change: &Change) -> wire::Changed {
    wire::Changed {
        revision: change.revision,
        key: change.key.to_string(),
        version: change.version.to_string(),
        event: change.event.as_str().to_owned(),
    }
}

pub(super) fn logged(entry: AuditEntry) -> wire::Logged {
    wire::Logged {
        number: entry.id,
        time: entry.time.0,
        identity: entry.identity.map(|identity| identity.as_bytes().to_vec()).unwrap_or_default(),
        action: Action::as_str(entry.action).to_owned(),
        key: entry.key.map(|key| key.to_string()).unwrap_or_default(),
        version: entry.version.map(|version| version.to_string()).unwrap_or_default(),
        outcome: entry.outcome,
        text: entry.text,
    }
}

/// A kind; `None` (all kinds) if the text is empty.
pub(super) fn kind(text: &str) -> Result<Option<Kind>, Failed> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse::<Kind>().map(Some).map_err(|error| invalid(&error.to_string()))
}

/// The object, version or package does not exist.
pub(super) fn unknown(text: &str) -> Failed {
    Failed::new(Cause::Unknown, text)
}

/// The response for an error of the store; `None` for internal errors, whose details are only
/// logged.
pub(super) fn failed(error: &StoreError) -> Option<Failed> {
    let cause = match error {
        StoreError::Draft(_)
        | StoreError::Query
        | StoreError::Cursor
        | StoreError::WrongDigest { .. }
        | StoreError::PackageLength { .. } => Cause::Invalid,
        StoreError::NoSuchBlob(_) | StoreError::NoSuchVersion { .. } => Cause::Unknown,
        StoreError::Compacted { .. } => Cause::Compacted,
        StoreError::Behind { .. } | StoreError::Unavailable(_) | StoreError::Uncertain => {
            Cause::Away
        }
        StoreError::Full { .. } => {
            return Some(Failed::new(
                Cause::Full,
                "no space left on the disk of the catalogue: free some and try again",
            ));
        }
        _ => return None,
    };
    Some(Failed::new(cause, error.to_string()))
}

#[cfg(test)]
mod tests {
    use levada_catalogue::model::{DescriptorSignature, Draft, Package};
    use levada_core::Identity;

    use super::*;

    fn full_draft() -> Draft {
        let package = Package {
            digest: [3; 32],
            length: 7,
            media_type: "text/javascript".into(),
            description: b"{}".to_vec(),
        };
        let signature =
            DescriptorSignature { identity: Identity::from_bytes([4; 32]), signature: [5; 64] };
        Draft {
            key: "hyperty/Connector".parse().unwrap(),
            version: Version::new(1, 2, 3),
            descriptor: b"{\"a\":1}".to_vec(),
            package: Some(package),
            signatures: vec![signature; 2],
        }
    }

    #[test]
    fn drafts_and_published_versions_round_trip() {
        let whole = full_draft();
        assert_eq!(draft(publish(&whole)).unwrap(), whole);
        let by = Some(Identity::from_bytes([9; 32]));
        let version = Published::new(&whole, by, UnixTime(5), 6);
        assert_eq!(published(entry(version.clone(), true)).unwrap(), version);
        let without = published(entry(version.clone(), false)).unwrap();
        assert_eq!(without, Published { descriptor: Vec::new(), ..version });
    }

    #[test]
    fn rejects_malformed_messages() {
        let wrong = |change: fn(&mut wire::Publish)| {
            let mut call = publish(&full_draft());
            change(&mut call);
            draft(call).unwrap_err().cause()
        };
        assert_eq!(wrong(|call| call.key = "hyperty".into()), Cause::Invalid);
        assert_eq!(wrong(|call| call.key = "hyperty/..".into()), Cause::Invalid);
        assert_eq!(wrong(|call| call.version = "1".into()), Cause::Invalid);
        assert_eq!(wrong(|call| call.version = "1".repeat(300)), Cause::Invalid);
        assert_eq!(wrong(|call| call.signatures.truncate(95)), Cause::Invalid);
        assert_eq!(wrong(|call| call.signatures = vec![0; 96 * 9]), Cause::Invalid);
        let mut other = entry(Published::new(&full_draft(), None, UnixTime(5), 6), true);
        other.descriptor.push(b' ');
        assert!(published(other).is_err());
        // Entries by which a malicious catalogue could send control sequences to a terminal.
        let forged = |change: fn(&mut wire::Entry)| {
            let mut forgery = entry(Published::new(&full_draft(), None, UnixTime(5), 6), true);
            change(&mut forgery);
            published(forgery)
        };
        assert!(forged(|_| ()).is_ok());
        assert!(forged(|entry| entry.key = "hyperty/\x1b]0;x\x07".into()).is_err());
        assert!(
            forged(|entry| entry.package.as_mut().unwrap().media_type = "\x1b[2J".into()).is_err()
        );
        assert!(
            forged(|entry| entry.package.as_mut().unwrap().description = b"[1]".to_vec()).is_err()
        );
        let escapes = b"\x1b]0;x\x07".to_vec();
        let mut forgery = entry(Published::new(&full_draft(), None, UnixTime(5), 6), true);
        (forgery.digest, forgery.descriptor) = (sha256(&[&escapes]).to_vec(), escapes);
        assert!(published(forgery).is_err());
        let change = wire::Changed {
            revision: 1,
            key: "hyperty/a".into(),
            version: "1.0.0".into(),
            event: "published".into(),
        };
        assert!(check_changed(&change).is_ok());
        for (key, version, event) in [
            ("hyperty/a\n", "1.0.0", "published"),
            ("hyperty/a", "1.0.0\x1b[2J", "published"),
            ("hyperty/a", "1.0.0", "\u{202e}"),
        ] {
            let [key, version, event] = [key, version, event].map(str::to_owned);
            assert!(check_changed(&wire::Changed { revision: 1, key, version, event }).is_err());
        }
        let entry =
            wire::Logged { action: "publish".into(), outcome: "ok".into(), ..Default::default() };
        assert!(check_logged(&entry).is_ok());
        assert!(check_logged(&wire::Logged { key: "\x1b".into(), ..entry }).is_err());
    }

    #[test]
    fn a_selector_is_a_version_a_range_or_empty() {
        assert_eq!(VersionSelector::parse(""), Ok(VersionSelector::Newest));
        assert_eq!(VersionSelector::parse("latest"), Ok(VersionSelector::Newest));
        assert_eq!(
            VersionSelector::parse("1.2.3"),
            Ok(VersionSelector::Exact(Version::new(1, 2, 3)))
        );
        assert!(matches!(VersionSelector::parse("^1"), Ok(VersionSelector::Range(_))));
        assert!(
            VersionSelector::parse("one").is_err()
                && VersionSelector::parse(&"1".repeat(1000)).is_err()
        );
    }

    #[test]
    fn arbitrary_messages_never_panic_and_drafts_round_trip() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            use levada_core::wire::decode_within;
            if let Ok(call) = decode_within::<wire::Publish>(bytes, wire::MAX_MESSAGE)
                && let Ok(read) = draft(call)
            {
                let again = draft(publish(&read));
                assert_eq!(again, Ok(read));
            }
            if let Ok(entry) = decode_within::<wire::Entry>(bytes, wire::MAX_MESSAGE) {
                let _ = published(entry);
            }
        });
    }
}

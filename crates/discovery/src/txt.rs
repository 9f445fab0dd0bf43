//! The TXT record of a node (RFC 6763 section 6).

use levada_core::{Identity, WIRE_VERSIONS, check_name};

const NAME: &str = "name";
const KEY: &str = "key";
const VERSION: &str = "v";

/// The claims of a TXT record, not authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TxtRecord {
    /// The node's name, which is well-formed.
    pub(crate) name: String,
    /// The node's identity.
    pub(crate) identity: Identity,
}

/// Encodes the entries of the TXT record: name, identity, and the highest version of the protocol.
pub(crate) fn encode(name: &str, identity: &Identity) -> [(&'static str, String); 3] {
    let version = WIRE_VERSIONS.end().to_string();
    [(NAME, name.to_owned()), (KEY, identity.to_string()), (VERSION, version)]
}

/// Decodes the entries of a TXT record; `None` if it is not that of a node. Of entries with the
/// same key the first counts, and keys are case-insensitive (RFC 6763 section 6.4). The version
/// only has to be a positive number, because the handshake negotiates the version.
pub(crate) fn decode<'a>(
    entries: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
) -> Option<TxtRecord> {
    let [mut name, mut key, mut version] = [None; 3];
    for (entry, value) in entries {
        let is = |known: &str| entry.eq_ignore_ascii_case(known);
        let field = if is(NAME) {
            &mut name
        } else if is(KEY) {
            &mut key
        } else if is(VERSION) {
            &mut version
        } else {
            continue;
        };
        if field.is_none() {
            *field = Some(std::str::from_utf8(value?).ok()?);
        }
    }
    let name = name?;
    let key = key?;
    let version = version?;
    version.parse::<u32>().ok().filter(|version| *version > 0)?;
    // A name that parses as an identity could be confused with that identity.
    if check_name(name).is_err() || name.parse::<Identity>().is_ok() {
        return None;
    }
    Some(TxtRecord { name: name.to_owned(), identity: key.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity::from_bytes([7; 32])
    }

    fn read(entries: &[(&str, &str)]) -> Option<TxtRecord> {
        decode(entries.iter().map(|(key, value)| (*key, Some(value.as_bytes()))))
    }

    #[test]
    fn entries_round_trip() {
        let entries = encode("well", &identity());
        assert!(entries.iter().all(|(key, value)| key.len() + 1 + value.len() <= 255));
        let entries = entries.each_ref().map(|(key, value)| (*key, value.as_str()));
        let record = read(&entries).unwrap();
        assert_eq!((record.name.as_str(), record.identity), ("well", identity()));
    }

    #[test]
    fn order_case_and_repetition_of_keys_do_not_matter() {
        let key = identity().to_string();
        let known = [("V", "2"), ("Key", key.as_str()), ("NAME", "a")];
        let entries = [&known[..], &[("other", "x"), ("name", "b"), ("v", "x")]].concat();
        assert_eq!(read(&entries).unwrap().name, "a");
    }

    #[test]
    fn records_that_are_not_of_a_node_are_dropped() {
        let key = identity().to_string();
        let good = [("name", "well"), ("key", key.as_str()), ("v", "1")];
        assert!(read(&good).is_some());
        for missing in 0..good.len() {
            let mut entries = good.to_vec();
            entries.remove(missing);
            assert!(read(&entries).is_none(), "{entries:?}");
        }
        let long = "a".repeat(64);
        for (at, wrong) in [
            (0, "\u{1b}[2J"),
            (0, "a b"),
            (0, ""),
            (0, long.as_str()),
            (0, key.as_str()),
            (1, "lvx"),
            (1, ""),
            (2, "0"),
            (2, "-1"),
            (2, "one"),
        ] {
            let mut entries = good;
            entries[at].1 = wrong;
            assert!(read(&entries).is_none(), "{entries:?}");
        }
        assert!(decode([("name", None), ("key", None), ("v", None)]).is_none());
        assert!(decode([("name", Some(&b"\xff"[..]))]).is_none());
    }

    #[test]
    fn arbitrary_entries_never_panic_and_give_only_names_and_keys() {
        bolero::check!().with_type::<(Vec<(u8, String, Option<Vec<u8>>)>, [u8; 32])>().for_each(
            |(entries, bytes)| {
                // Known keys and a valid identity reach code that random bytes do not.
                let identity = Identity::from_bytes(*bytes).to_string();
                let entries = entries.iter().map(|(choice, key, value)| match choice % 6 {
                    0 => ("name", value.as_deref()),
                    1 => ("key", value.as_deref()),
                    2 => ("key", Some(identity.as_bytes())),
                    3 => ("v", Some(&b"1"[..])),
                    4 => ("v", value.as_deref()),
                    _ => (key.as_str(), value.as_deref()),
                });
                if let Some(record) = decode(entries) {
                    assert_eq!(check_name(&record.name), Ok(()));
                    let again = encode(&record.name, &record.identity);
                    let again = again.each_ref().map(|(key, value)| (*key, value.as_str()));
                    assert_eq!(read(&again), Some(record));
                }
            },
        );
    }
}
